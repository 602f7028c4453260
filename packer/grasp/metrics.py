"""Metrics: select the best grasp in the maps of a network, and compare grasps with labeled rectangles.

A grasp is correct if it matches a labeled rectangle. Two rectangles match if their intersection over union is more than
0.25 and their angles differ by at most 30 degrees. Source: Jiang, Moseson and Saxena, ICRA 2011. Intersection and union
are numbers of whole pixels in the filled rectangles, as in GG-CNN.
"""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.grasp.polygon_fill import fill
from packer.grasp.targets import rectangle

LEAST_IOU = 0.25
MOST_TURNED = np.pi / 6

Points = npt.NDArray[Any]  # (N, 4, 2) corners, row and column


def angle(points: Points) -> npt.NDArray[np.float64]:
    """Return the angle of the opening axis of each rectangle, float64 (N,), radians in [-pi/2, pi/2).

    Angles are counter-clockwise as displayed. `points` contains the corners (N, 4, 2), row and column.
    """
    along = points[..., 1, :] - points[..., 0, :]
    return np.asarray((np.arctan2(-along[..., 0], along[..., 1]) + np.pi / 2) % np.pi - np.pi / 2)


def angle_difference(one: Any, other: Any) -> Any:
    """Return the angle between two opening axes in radians, in [0, pi/2].

    Args:
        one: Angle of an axis in radians, a number or an array. Angles that differ by pi are equal axes.
        other: Angle of the other axis in radians.
    """
    return np.abs((one - other + np.pi / 2) % np.pi - np.pi / 2)


def iou(one: Points, other: Points, *, most_turned: float = MOST_TURNED) -> float:
    """Return the intersection over union of two rectangles, 0 to 1. Pixels above or left of the image do not count.

    Args:
        one: Corners (4, 2), row and column, in px.
        other: Corners of the other rectangle, (4, 2).
        most_turned: Largest angle between the rectangles in radians. The result for a larger angle is 0.
    """
    if angle_difference(angle(one), angle(other)) > most_turned:
        return 0.0
    size = np.ceil(np.maximum(one.max(axis=0), other.max(axis=0))).astype(np.int64) + 1
    if size.min() < 1:
        return 0.0
    corners = np.stack([one, other], axis=1).astype(np.float64)
    pixels, number = fill(corners[..., 0], corners[..., 1], int(size[0]), int(size[1])).pixels(int(size[1]))
    a, b = np.unique(pixels[number == 0]), np.unique(pixels[number == 1])
    if not (len(a) and len(b)):
        return 0.0
    both = len(np.intersect1d(a, b, assume_unique=True))
    return both / (len(a) + len(b) - both)


def is_correct_grasp(grasp: Points, truths: Points) -> bool:
    """Return True if a grasp matches one of the labeled rectangles: IoU over 0.25, and angles within 30 degrees.

    Args:
        grasp: Corners (4, 2), row and column in px.
        truths: Corners of the labeled rectangles, (N, 4, 2).
    """
    return any(iou(grasp, truth) > LEAST_IOU for truth in truths)


# ---- the best grasp of four maps

_SMOOTHING_PX = (2.0, 2.0, 2.0, 1.0)  # sigma for quality, cos, sin and width, as GG-CNN smooths quality, angle, width
_OPENING_PX = 150.0


def best_grasp(quality: Any, cos: Any, sin: Any, width: Any, *, widest: float = _OPENING_PX) -> npt.NDArray[np.float64]:
    """Return the grasp rectangle at the pixel with the largest quality. The maps are smoothed before the search.

    The jaw, the side of the rectangle across the opening, has half the length of the opening.

    Args:
        quality: Quality map, array or CPU tensor of S x S values.
        cos: Map of the cos of twice the angle.
        sin: Map of the sin of twice the angle.
        width: Map of the opening as a share of `widest`.
        widest: Opening in px at which the width is 1.

    Returns:
        float64 (4, 2): row and column of the corners in px.
    """
    maps = [np.asarray(each, np.float32).squeeze() for each in (quality, cos, sin, width)]
    smooth = [cv2.GaussianBlur(each, (0, 0), sigma) for each, sigma in zip(maps, _SMOOTHING_PX, strict=True)]
    row, column = np.unravel_index(int(smooth[0].argmax()), smooth[0].shape)
    angle = np.arctan2(smooth[2][row, column], smooth[1][row, column]) / 2
    opening = float(smooth[3][row, column]) * widest
    values = (np.asarray([value], np.float64) for value in (row, column, angle, opening, opening / 2))
    rows, columns = rectangle(*values)
    return np.concatenate([rows, columns], axis=1)
