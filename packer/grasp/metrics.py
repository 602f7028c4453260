"""Metrics: the best grasp of a network's maps, and whether it is correct.

A grasp is correct where it overlaps one of the true rectangles by more than 25 % (intersection over union of the filled
rectangles, in whole pixels) and its angle is within 30 degrees of that one's: the rule of Jiang, Moseson and Saxena
(ICRA 2011) as GG-CNN computes it.
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
    """Angle of the opening, radians in [-pi/2, pi/2), counter-clockwise as seen; (N,)."""
    along = points[..., 1, :] - points[..., 0, :]
    return np.asarray((np.arctan2(-along[..., 0], along[..., 1]) + np.pi / 2) % np.pi - np.pi / 2)


def angle_difference(one: Any, other: Any) -> Any:
    """How far two opening axes are turned from each other, radians in [0, pi/2]; a half turn is none."""
    return np.abs((one - other + np.pi / 2) % np.pi - np.pi / 2)


def iou(one: Points, other: Points, *, most_turned: float = MOST_TURNED) -> float:
    """Intersection over union of two rectangles (4, 2); 0 where their angles differ by more.

    What lies above or left of the image does not count, as in the reference.
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
    """Whether a rectangle (4, 2) matches one of the true rectangles (N, 4, 2), all in px, row and column."""
    return any(iou(grasp, truth) > LEAST_IOU for truth in truths)


# ---- the best grasp of four maps

_SMOOTHING_PX = (2.0, 2.0, 2.0, 1.0)  # sigma for quality, cos, sin and width, as GG-CNN smooths quality, angle, width
_OPENING_PX = 150.0


def best_grasp(quality: Any, cos: Any, sin: Any, width: Any, *, widest: float = _OPENING_PX) -> npt.NDArray[np.float64]:
    """Corners (4, 2), row and column, of the rectangle at the greatest quality; its jaw is half of its opening.

    quality, cos, sin, width: arrays or CPU tensors of S x S values. widest: the opening in px where width is 1.
    """
    maps = [np.asarray(each, np.float32).squeeze() for each in (quality, cos, sin, width)]
    smooth = [cv2.GaussianBlur(each, (0, 0), sigma) for each, sigma in zip(maps, _SMOOTHING_PX, strict=True)]
    row, column = np.unravel_index(int(smooth[0].argmax()), smooth[0].shape)
    angle = np.arctan2(smooth[2][row, column], smooth[1][row, column]) / 2
    opening = float(smooth[3][row, column]) * widest
    values = (np.asarray([value], np.float64) for value in (row, column, angle, opening, opening / 2))
    rows, columns = rectangle(*values)
    return np.concatenate([rows, columns], axis=1)
