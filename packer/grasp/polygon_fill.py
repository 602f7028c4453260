"""Polygon fill: finds the pixels in convex polygons of four corners. The pixels are those of skimage.draw.polygon.

The rule of skimage uses coordinates relative to the pixel (x = column, y = row). A pixel within 1e-12 of a corner on
both axes is inside. An edge from (x1, y1) to (x0, y0) crosses the row of the pixel at t = (x0 y1 - x1 y0) / (y1 - y0).
The edge counts on the right if `(y0 > 0) != (y1 > 0) and t > 0`, and on the left if `(y0 < 0) != (y1 < 0) and t < 0`.
The pixel is inside if one of the two counts is odd. The tested rows and columns begin at the smallest corner, truncated
and at least 0. They end at the largest corner, rounded up.

Along a row, t decreases by one per pixel, with an error of about 1e-12. Therefore the sign of t is uncertain only at
the whole number next to a crossing. This module evaluates the expression only there, once per row of a polygon. The
other pixels follow, because a convex polygon has at most two crossings per row.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_SAME_CORNER = 1e-12
_BEFORE = (3, 0, 1, 2)  # index of the previous corner
_NONE = 1 << 40  # greater than every column

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Runs(NamedTuple):
    """K horizontal runs of pixels, sorted by polygon: number of the polygon, row, first and last column, int64 (K,)."""

    polygon: Ints
    row: Ints
    first: Ints
    last: Ints

    def pixels(self, width: int, area: Ints | int = 0) -> tuple[Ints, Ints]:
        """Return `(positions, polygons)`: for each pixel, its position in a flat array and the number of its polygon.

        Args:
            width: Length of a row of the array.
            area: Number that is added to the positions: an array (K,), or one number for all runs.
        """
        lengths = self.last - self.first + 1
        ends = np.cumsum(lengths)
        starts = area + self.row * width + self.first
        count = int(ends[-1]) if len(ends) else 0
        return np.repeat(starts - (ends - lengths), lengths) + np.arange(count), np.repeat(self.polygon, lengths)


def fill(y: Floats, x: Floats, height: int, width: int) -> Runs:
    """Return the pixels of N convex polygons in an image. A pixel may be in two runs of one polygon.

    Args:
        y: Rows of the corners (4, N), in the order of the outline.
        x: Columns of the corners (4, N).
        height: Height of the image in px.
        width: Width of the image in px.
    """
    low = np.maximum(0, y.min(axis=0).astype(np.int64))
    high = np.minimum(height - 1, np.ceil(y.max(axis=0)).astype(np.int64))
    counts = np.maximum(0, high - low + 1)
    ends = np.cumsum(counts)
    first, last = _columns(y, x, low=low, high=high, starts=ends - counts)
    polygon = np.repeat(np.arange(len(counts)), counts)
    row = np.arange(len(polygon)) - np.repeat(ends - counts - low, counts)
    first, last = np.maximum(first, 0), np.minimum(last, width - 1)
    some = np.flatnonzero(first <= last)
    runs = Runs(polygon[some], row[some], first[some].astype(np.int64), last[some].astype(np.int64))
    return _with_corners(runs, y, x, height=height, width=width)


def _columns(y: Floats, x: Floats, *, low: Ints, high: Ints, starts: Ints) -> tuple[Floats, Floats]:
    """Return the first and last column of every row of every polygon. A row without pixels has first > last.

    `y` and `x` are corners (4, N), `low` and `high` the first and last rows. `starts`: position of `low` in the result.
    """
    y0, x0, y1, x1 = y.ravel(), x.ravel(), y[_BEFORE, :].ravel(), x[_BEFORE, :].ravel()
    # the rows that an edge meets, including its ends; whole numbers as floats
    top = np.maximum(np.ceil(np.minimum(y0, y1)), np.tile(low, 4))
    counts = np.maximum(0, np.minimum(np.floor(np.maximum(y0, y1)), np.tile(high, 4)) - top + 1).astype(np.int64)
    ends = np.cumsum(counts)
    row = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts - top, counts)
    y0, x0, y1, x1 = (np.repeat(each, counts) for each in (y0, x0, y1, x1))
    place = (row + np.repeat(np.tile(starts - low, 4), counts)).astype(np.int64)
    y0 -= row
    y1 -= row
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # horizontal edges, which are not counted
        down = y1 - y0
        near = np.rint((x0 * y1 - x1 * y0) / down)
        t = ((x0 - near) * y1 - (x1 - near) * y0) / down
    # the last column left of the crossing, and the first column right of the crossing
    right, left = (y0 > 0) != (y1 > 0), (y0 < 0) != (y1 < 0)
    falls, count = down > 0, int((high - low + 1).clip(0).sum())
    before, after = near - ~(t > 0), near + ~(t < 0)
    r_first, r_last = _between(before, place, (right & falls, right & ~falls), count=count)
    l_first, l_last = _between(after, place, (left & falls, left & ~falls), count=count)
    r_first += 1
    l_last -= 1
    for first, last in ((r_first, r_last), (l_first, l_last)):
        nothing = first > last
        first[nothing], last[nothing] = _NONE, -_NONE
    return np.minimum(r_first, l_first), np.maximum(r_last, l_last)


def _between(
    columns: Floats, place: Ints, sides: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]], *, count: int
) -> tuple[Floats, Floats]:
    """Return (smaller, larger) of the two columns at which edges cross each of `count` rows.

    `columns` and `place` are the column and the row of each crossing. `sides` are masks of falling and of rising edges.
    """
    one, other = np.full((2, count), float(_NONE))
    for found, side in zip((one, other), sides, strict=True):
        which = np.flatnonzero(side)
        found[place[which]] = columns[which]
    return np.minimum(one, other), np.where(one < _NONE, np.maximum(one, other), -_NONE)


def _with_corners(runs: Runs, y: Floats, x: Floats, *, height: int, width: int) -> Runs:
    """Return the runs with additional runs for corners at whole pixels, sorted by polygon."""
    row, column = np.rint(y), np.rint(x)
    near = (np.abs(y - row) < _SAME_CORNER) & (np.abs(x - column) < _SAME_CORNER)
    near &= (row >= 0) & (row < height) & (column >= 0) & (column < width)
    if not near.any():
        return runs
    _, polygon = np.nonzero(near)
    rows, columns = row[near].astype(np.int64), column[near].astype(np.int64)
    every = np.concatenate([runs.polygon, polygon])
    order = np.argsort(every, kind="stable")
    return Runs(
        every[order],
        np.concatenate([runs.row, rows])[order],
        np.concatenate([runs.first, columns])[order],
        np.concatenate([runs.last, columns])[order],
    )
