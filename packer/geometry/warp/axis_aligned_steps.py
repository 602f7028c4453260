"""Axis-aligned steps: split a view that only crops, scales, flips and rotates by multiples of 90 degrees into steps."""

import math
from typing import Any, NamedTuple

import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.geometry import View

_TOLERANCE_PX = 1e-6  # rounding errors of a product of matrices in float64, relative to the image

_MARGIN_PX = 2  # neighbors for interpolation and a 3 px filter


# (left-right, up-down) -> code of cv2.flip
_FLIP_CODES = {(False, False): None, (True, False): 1, (False, True): 0, (True, True): -1}


class AxisAlignedSteps(NamedTuple):
    """The steps of an axis-aligned view, in the order of the attributes.

    Attributes:
        rows: Rows of the stored image to crop.
        columns: Columns of the stored image to crop.
        size: (height, width) to which the crop is scaled.
        transpose: True if rows and columns are exchanged after the scaling.
        flip: Code of cv2.flip: 1 left-right, 0 up-down, -1 both; None for no flip.
        frame: Rows and columns of the output that show the crop; None for all. Others are outside of the image.
    """

    rows: slice
    columns: slice
    size: tuple[int, int]
    transpose: bool
    flip: int | None
    frame: tuple[slice, slice] | None

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) of the crop before it is scaled, in px."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start


class _Axis(NamedTuple):
    """The stored pixels `start` to `stop` - 1 fill `length` output pixels from `first` on, in reverse if `mirrored`."""

    start: int
    stop: int
    length: int
    first: int
    mirrored: bool


def axis_aligned_steps(view: View, height: int, width: int) -> AxisAlignedSteps | None:
    """Return the steps for a stored image of `height` x `width` px. Return None if the view needs a general warp.

    Raises InvalidRequest for a matrix that is not finite or cannot be inverted, and for an empty output.
    """
    a, b, c, d, e, f = view.matrix
    rows_out, columns_out = view.size
    if not math.isfinite(a + b + c + d + e + f) or a * e == b * d:
        raise InvalidRequest(
            f"cannot warp by matrix {view.matrix}: expected finite numbers and a determinant other than 0"
        )
    if rows_out < 1 or columns_out < 1:
        raise InvalidRequest(f"cannot warp to {rows_out}x{columns_out} px: expected at least 1 pixel each way")
    if b == d == 0:
        transpose = False
        across, down = _axis(a, c, columns_out, width), _axis(e, f, rows_out, height)
    elif a == e == 0:
        transpose = True
        across, down = _axis(d, f, rows_out, width), _axis(b, c, columns_out, height)
    else:
        return None
    if across is None or down is None:
        return None
    column_axis, row_axis = (down, across) if transpose else (across, down)  # of the output
    frame = None
    if column_axis.length != columns_out or row_axis.length != rows_out:
        frame = (
            slice(row_axis.first, row_axis.first + row_axis.length),
            slice(column_axis.first, column_axis.first + column_axis.length),
        )
    return AxisAlignedSteps(
        slice(down.start, down.stop),
        slice(across.start, across.stop),
        (down.length, across.length),
        transpose,
        _FLIP_CODES[column_axis.mirrored, row_axis.mirrored],
        frame,
    )


def _axis(scale: float, shift: float, size: int, length: int) -> _Axis | None:
    """Return the stored pixels that one axis of the output shows. Return None if the axis needs a general warp.

    The output position is scale * stored position + shift. The output has `size` px, the stored image `length` px.
    """
    mirrored = scale < 0
    # the stored edge at which the output begins, or ends if it is mirrored; pixel edges are whole numbers here
    first = ((size - 0.5 if mirrored else -0.5) - shift) / scale + 0.5
    last = first + (size / -scale if mirrored else size / scale)
    start, stop = round(first), round(last)
    tolerance = _TOLERANCE_PX * length
    if not (-tolerance <= first - start <= tolerance and -tolerance <= last - stop <= tolerance and start < stop):
        return None
    if start >= 0 and stop <= length:
        return _Axis(start, stop, size, 0, mirrored)
    if stop - start != size:
        return None
    inside = min(max(start, 0), length), min(max(stop, 0), length)
    count = inside[1] - inside[0]
    before = (stop - inside[1]) if mirrored else (inside[0] - start)
    return _Axis(*inside, count, min(before, size) if count else 0, mirrored)


def turned(array: npt.NDArray[Any], steps: AxisAlignedSteps) -> npt.NDArray[Any]:
    """Transpose and flip an array as `steps` require. Return a view of its memory."""
    if steps.transpose:
        array = array.swapaxes(0, 1)
    if steps.flip in (1, -1):
        array = array[:, ::-1]
    return array[::-1] if steps.flip in (0, -1) else array


def shrinking(view: View) -> tuple[float, float]:
    """Return the stored pixels per output pixel along the stored y and x axes. Enlarging gives values below 1."""
    a, b, _, d, e, _ = view.matrix
    return 1 / math.hypot(b, e), 1 / math.hypot(a, d)


def needed(view: View, steps: AxisAlignedSteps | None, height: int, width: int) -> tuple[int, int, int, int]:
    """Return (top, left, height, width) of the part of the stored image that the view reads. The part may be empty."""
    if steps is not None:
        return steps.rows.start, steps.columns.start, *steps.shape
    y, x = zip(*corners(view), strict=True)
    margin = _MARGIN_PX * max(1.0, *shrinking(view)) if view.antialias else _MARGIN_PX
    top, bottom = max(0, math.floor(min(y) - margin)), min(height, math.ceil(max(y) + margin) + 1)
    left, right = max(0, math.floor(min(x) - margin)), min(width, math.ceil(max(x) + margin) + 1)
    return (top, left, bottom - top, right - left) if top < bottom and left < right else (0, 0, 0, 0)


def corners(view: View) -> list[tuple[float, float]]:
    """Return the positions (y, x) in the stored image that the four outer corners of the output show."""
    a, b, c, d, e, f = view.matrix
    determinant = a * e - b * d
    found = []
    for y in (-0.5 - f, view.size[0] - 0.5 - f):
        for x in (-0.5 - c, view.size[1] - 0.5 - c):
            found.append(((a * y - d * x) / determinant, (e * x - b * y) / determinant))
    return found


def inside(view: View, height: int, width: int) -> bool:
    """Return True if the output shows only pixels of the stored image. False if it also shows pixels outside."""
    tolerance = _TOLERANCE_PX * max(1, height, width) + 0.5
    low, bottom, right = -tolerance, height - 1 + tolerance, width - 1 + tolerance
    return all(low <= y <= bottom and low <= x <= right for y, x in corners(view))
