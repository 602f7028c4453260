"""Shape overlay: grasp rectangles, boxes, outlines and points, drawn into a picture of a sheet.

A grasp rectangle has its corners p0 ... p3 in order: p0 to p1 and p2 to p3 are the opening of the gripper, p1 to p2 and
p3 to p0 its jaws. They have two colours, and jaws are thick where there is room. The fields of grasps after the first
(in Cornell those that do not hold) have thin lines. An outline is a polygon, drawn closed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from packer.inspect.palette import BOXES, GRASPS, OUTLINES, POINTS, Colour

Pixels = npt.NDArray[np.uint8]

_SHIFT = 4  # OpenCV's coordinates are whole sixteenths of a px
_FARTHEST_PX = 100_000.0  # a label beyond it is no label, and would overflow
OPENING_PX, JAW_PX = 1, 2
_ROOM_PX = 14.0  # a jaw as long as this is drawn thick
_DOT_PX = 2


class ShapeCounts(NamedTuple):
    """How many shapes of one field there are in a sample, were drawn, and cannot be (not finite, or far outside)."""

    total: int
    drawn: int
    impossible: int


def is_grasp(shape: tuple[int | None, ...] | None) -> bool:
    """Whether values of that shape are grasp rectangles: (N, 4, 2)."""
    return shape is not None and len(shape) == 3 and shape[1:] == (4, 2)


def draw(pixels: Pixels, shapes: npt.NDArray[Any], *, kind: str, rank: int, most: int) -> ShapeCounts:
    """Draw the shapes of one field into uint8 (H, W, 3), coordinates in px of it.

    shapes: grasps (N, 4, 2), boxes (N, 4) or points (N, 2). kind: grasps, boxes or points. rank: this field among those
    of its kind, which gives the colours. most: how many at most, evenly from all; 0 for all.
    """
    farthest = np.abs(shapes).max(axis=tuple(range(1, shapes.ndim)), initial=0)
    kept = shapes[farthest <= _FARTHEST_PX]  # false for NaN
    count = min(most, len(kept)) if most else len(kept)
    chosen = kept[np.arange(count) * len(kept) // max(count, 1)]
    for one in chosen:
        if kind == "grasps":
            _grasp(pixels, one, colours=GRASPS[rank % len(GRASPS)], is_first=not rank)
        elif kind == "boxes":
            x0, y0, x1, y1 = one
            _line(pixels, [(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)], BOXES[rank % len(BOXES)], JAW_PX)
        else:
            _dot(pixels, one, POINTS[rank % len(POINTS)])
    return ShapeCounts(len(shapes), count, len(shapes) - len(kept))


def draw_outlines(pixels: Pixels, outlines: Sequence[npt.NDArray[Any]], *, rank: int, most: int) -> ShapeCounts:
    """Draw the polygons of one field into uint8 (H, W, 3), each (P, 2) in px of it; rank and most as of `draw`."""
    kept = [each for each in outlines if len(each) and np.abs(each).max() <= _FARTHEST_PX]  # false for NaN
    count = min(most, len(kept)) if most else len(kept)
    for place in range(count):
        points = kept[place * len(kept) // count]
        _line(pixels, [*points, points[0]], OUTLINES[rank % len(OUTLINES)], OPENING_PX)
    return ShapeCounts(len(outlines), count, len(outlines) - len(kept))


def _grasp(pixels: Pixels, corners: npt.NDArray[Any], *, colours: tuple[Colour, Colour], is_first: bool) -> None:
    opening, jaw = colours
    room = np.linalg.norm(corners[2] - corners[1]) >= _ROOM_PX
    for first in (0, 2):
        _line(pixels, [corners[first], corners[first + 1]], opening, OPENING_PX)
    for first in (1, 3):
        _line(pixels, [corners[first], corners[(first + 1) % 4]], jaw, JAW_PX if is_first and room else OPENING_PX)


def _line(pixels: Pixels, points: Any, colour: Colour, thickness: int) -> None:
    fixed = np.rint(np.asarray(points, np.float64) * (1 << _SHIFT)).astype(np.int32)
    target: Any = pixels
    cv2.polylines(target, [fixed.reshape(-1, 1, 2)], False, colour, thickness, cv2.LINE_AA, _SHIFT)


def _dot(pixels: Pixels, point: npt.NDArray[Any], colour: Colour) -> None:
    x, y = (round(float(value) * (1 << _SHIFT)) for value in point)
    target: Any = pixels
    cv2.circle(target, (x, y), _DOT_PX << _SHIFT, colour, -1, cv2.LINE_AA, _SHIFT)
