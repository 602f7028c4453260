"""Close-up: the part of a sample that its grasps and boxes are in, instead of the whole."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_AROUND = 0.3  # of the labels' extent, on every side
_LEAST_PX = 24


class Part(NamedTuple):
    """A part of a picture, as fractions of its height and width: 0 <= top < bottom <= 1, left and right alike."""

    top: float
    left: float
    bottom: float
    right: float

    def cut(self, picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The whole px of a picture (H, W, ...) that lie in it, at least one; a view."""
        (top, bottom), (left, right) = self._rows(picture.shape[0]), self._columns(picture.shape[1])
        return picture[top:bottom, left:right]

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """(x, y) of the first px of the cut of a picture of that size."""
        return self._columns(width)[0], self._rows(height)[0]

    def _rows(self, height: int) -> tuple[int, int]:
        return _whole(self.top, self.bottom, height)

    def _columns(self, width: int) -> tuple[int, int]:
        return _whole(self.left, self.right, width)


def around(shapes: Sequence[npt.NDArray[Any]], size: tuple[int, int], box: tuple[int, int]) -> Part | None:
    """The part that all shapes are in, with something around it, of the shape of `box` (height, width) if possible.

    shapes: points (..., 2) as x, y in px of a picture of that (height, width); boxes as two corners. None: no shape
    has a finite corner inside the picture.
    """
    points = np.concatenate([shape.reshape(-1, 2).astype(np.float64) for shape in shapes] or [np.empty((0, 2))])
    height, width = size
    with np.errstate(invalid="ignore"):
        inside = ((points >= 0) & (points < (width, height))).all(axis=1)
    points = points[inside]
    if not len(points) or not height * width:
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    wide, tall = np.maximum((high - low) * (1 + 2 * _AROUND), _LEAST_PX)
    ratio = box[0] / box[1]
    wide, tall = max(wide, tall / ratio), max(tall, wide * ratio)
    center = (low + high) / 2
    left, right = _span(center[0], wide, width)
    top, bottom = _span(center[1], tall, height)
    return Part(top / height, left / width, bottom / height, right / width)


def _span(center: float, length: float, whole: int) -> tuple[float, float]:
    """A stretch of that length around the centre, moved inside 0 ... whole."""
    length = min(length, whole)
    start = min(max(center - length / 2, 0.0), whole - length)
    return start, start + length


def _whole(start: float, end: float, length: int) -> tuple[int, int]:
    first = min(round(start * length), length - 1)
    return first, max(first + 1, round(end * length))
