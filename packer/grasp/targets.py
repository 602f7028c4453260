"""Targets: compute the grasp rectangles of training items and the maps that networks learn, equal to those of GG-CNN.

Rectangles are corners (N, 4, 2), row and column. Every step truncates to whole pixels in the same order as the
reference (dougsm/ggcnn, utils/dataset_processing/grasp.py), because maps depend on the rounding. Functions process many
samples together: `owner` is the number of the sample of each rectangle. The maps contain quality, cos 2 theta,
sin 2 theta and width of the grasp at each pixel.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.grasp.polygon_fill import fill

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Points = npt.NDArray[Any]  # float64 or int64 (N, 4, 2), row and column


class Frame(NamedTuple):
    """Position of the output in the source, in whole px.

    Args:
        center: (row, column) of the center of rotation.
        top: First row of the window. The window is cropped after the rotation.
        left: First column of the window.
        size: Side of the output.
    """

    center: tuple[int, int]
    top: int
    left: int
    size: int


class DrawnRectangles(NamedTuple):
    """N rectangles to draw: center (row, column) in whole px, angle in radians, opening and jaw in px."""

    row: Floats
    column: Floats
    angle: Floats
    opening: Floats
    jaw: Floats

    def polygons(self) -> tuple[Floats, Floats]:
        """Return the corners `(rows, columns)`, (4, N) each, of the drawn areas: the middle third of each opening."""
        return rectangle(self.row, self.column, self.angle, self.opening / 3, self.jaw)


def rectangle(row: Floats, column: Floats, angle: Floats, opening: Floats, jaw: Floats) -> tuple[Floats, Floats]:
    """Return the corners of rectangles, `(rows, columns)`, (4, N) each.

    `row` and `column` are the center. `angle` is in radians, counter-clockwise as displayed. Lengths are in px.
    """
    cos, sin = np.cos(angle), np.sin(angle)
    down, along = opening / 2 * sin, opening / 2 * cos
    row_a, row_b, column_a, column_b = row + down, row - down, column - along, column + along
    v_row, v_column = jaw / 2 * cos, jaw / 2 * sin
    rows = np.stack([row_a - v_row, row_b - v_row, row_b + v_row, row_a + v_row])
    columns = np.stack([column_a - v_column, column_b - v_column, column_b + v_column, column_a + v_column])
    return rows, columns


def of_corners(corners: npt.NDArray[Any]) -> Floats:
    """Convert corners (N, 4, 2) from (x, y) to (row, column), float64, rounded half to even."""
    rounded: Floats = np.rint(np.asarray(corners, np.float64)[..., ::-1])
    return rounded


def of_rows(rows: Floats, factor: float) -> Floats:
    """Convert rows (x, y, theta in degrees, opening, jaw) to corners (N, 4, 2), row and column, times `factor`."""
    x, y, degrees, opening, jaw = np.asarray(rows, np.float64).T
    points: Floats = np.stack(rectangle(y, x, -degrees / 180.0 * np.pi, opening, jaw), axis=-1).swapaxes(0, 1)
    return points if factor == 1.0 else points * factor


def around_grasps(
    points: Floats, height: int, width: int, size: int, *, bounds: tuple[int, int] | None = None
) -> Frame:
    """Return the window for Cornell: around the mean of all corners, but inside the image if the image is large enough.

    Without rectangles, it is in the middle of the image. `bounds` (height, width) replaces the size of the image.
    """
    center = (height // 2, width // 2)
    if len(points):
        mean = points.reshape(-1, 2).mean(axis=0)
        center = (int(mean[0]), int(mean[1]))
    rows, columns = bounds or (height, width)
    top = max(0, min(center[0] - size // 2, rows - size))
    left = max(0, min(center[1] - size // 2, columns - size))
    return Frame(center, top, left, size)


def around_middle(size: int) -> Frame:
    """Return the window for Jacquard, which is the complete output: labels are already in px of the output."""
    return Frame((size // 2, size // 2), 0, 0, size)


def moved(points: Points, owner: Ints, frames: Sequence[Frame], rot: Floats, zoom: Floats) -> Ints:
    """Rotate, crop and zoom rectangles. Return corners, int64 (N, 4, 2), in px of the output.

    Args:
        points: Corners (N, 4, 2) of `PlacedLabels.points`.
        owner: Position in `frames` of the sample of each rectangle, int64 (N,).
        frames: Window of each sample.
        rot: Rotation of each sample in radians, counter-clockwise.
        zoom: Visible share of both sides of each sample.
    """
    places = np.asarray([(*frame.center, frame.top, frame.left, frame.size // 2) for frame in frames], np.float64)
    r0, c0, top, left, middle = places.reshape(-1, 5)[owner, :, None].swapaxes(0, 1)
    cos, sin, grown = (each[owner, None] for each in (np.cos(-rot), np.sin(-rot), 1 / zoom))
    down, across = points[..., 0] - r0, points[..., 1] - c0
    row = np.trunc(cos * down + sin * across + r0) - top
    column = np.trunc(-sin * down + cos * across + c0) - left
    row = np.trunc(grown * (row - middle) + middle)
    column = np.trunc(grown * (column - middle) + middle)
    return np.asarray(np.stack([row, column], axis=-1), np.int64)


def drawn(points: Ints) -> DrawnRectangles:
    """Convert corners (N, 4, 2) in whole px to centers, angles, openings and jaws."""
    along, across = points[:, 1] - points[:, 0], points[:, 2] - points[:, 1]
    row, column = np.trunc(points.sum(axis=1) / 4).T
    # integers until here, because a float -0.0 would change the angle by pi
    angle = (np.arctan2(-along[:, 0], along[:, 1]) + np.pi / 2) % np.pi - np.pi / 2
    return DrawnRectangles(row, column, angle, _length(along), _length(across))


def _length(steps: Ints) -> Floats:
    lengths: Floats = np.sqrt(steps[:, 0] ** 2 + steps[:, 1] ** 2)
    return lengths


# ---- maps

MAPS = ("quality", "cos", "sin", "width")
_BACKGROUND = (0.0, 1.0, 0.0, 0.0)  # angle 0 outside of grasps

Maps = npt.NDArray[np.float32]


def draw(points: Ints, owner: Ints, widest: float, out: Maps) -> None:
    """Draw rectangles into the maps of their samples. If rectangles overlap, the last rectangle is visible.

    Args:
        points: Corners from `moved`, int64 (N, 4, 2).
        owner: Position in `out` of the sample of each rectangle, int64 (N,), ascending.
        widest: Opening in px at which the width is 1. The width of larger openings is also 1.
        out: Maps quality, cos, sin, width: float32 (4, samples, S, S), C-contiguous. All values are overwritten.
    """
    for each, background in zip(out, _BACKGROUND, strict=True):
        each.fill(background)
    if not len(points):
        return
    height, width = out.shape[2:]
    found = drawn(points)
    runs = fill(*found.polygons(), height, width)
    pixels, number = runs.pixels(width, owner[runs.polygon] * (height * width))
    values = (np.cos(2 * found.angle), np.sin(2 * found.angle), np.clip(found.opening, 0.0, widest) / widest)
    quality, *others = (each.reshape(-1) for each in out)
    quality[pixels] = 1
    for each, value in zip(others, values, strict=True):
        # NumPy assigns in order: of several values for one pixel, the last value stays
        each[pixels] = value.astype(np.float32)[number]


# ---- styles

Style = Literal["ggcnn", "grconvnet"]
STYLES: tuple[Style, ...] = get_args(Style)
_WIDEST_PX = 150.0


def max_width(style: str, size: int) -> float:
    """Return the opening in px at which a width map is 1: 150 for "ggcnn", half of `size` for "grconvnet".

    Raises InvalidRequest for an unknown style.
    """
    if style not in STYLES:
        raise InvalidRequest(f"style={style!r}: expected one of {', '.join(STYLES)}")
    return _WIDEST_PX if style == "ggcnn" else size / 2


# ---- labels as corners and as rows, in px, x to the right and y down


def rows_of_corners(corners: npt.NDArray[Any]) -> Floats:
    """Convert corners to rows like those of Jacquard's files. Opening and jaw of a parallelogram are its side lengths.

    theta is clockwise in the displayed image. The networks learn -theta in radians, in [-pi/2, pi/2).

    Args:
        corners: (N, 4, 2), x, y of p0 ... p3 in px. p0 -> p1 is the opening axis of the gripper, p1 -> p2 the jaw.

    Returns:
        float64 (N, 5): x, y of the center, theta in degrees in (-90, 90], opening, jaw.
    """
    corners = np.asarray(corners, np.float64).reshape(-1, 4, 2)
    along, across = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 1]
    theta = np.degrees(np.arctan2(along[:, 1], along[:, 0]))
    theta = 90 - (90 - theta) % 180
    center = corners.mean(axis=1)
    return np.column_stack([center, theta, np.hypot(*along.T), np.hypot(*across.T)])


def scale(corners: npt.NDArray[Any], factor: float | tuple[float, float]) -> npt.NDArray[np.float32]:
    """Convert corners to px of a resized image: `corners` times `factor`, float32, without a half-pixel offset.

    `corners` (N, 4, 2) are x, y in px. `factor` is the new size divided by the old size, a number or (x, y).
    """
    return np.asarray(np.asarray(corners, np.float64) * factor, np.float32)
