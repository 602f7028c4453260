"""Matching: whether a grasp is right, by the rule of Jiang, Moseson and Saxena (ICRA 2011) as GG-CNN computes it.

A grasp counts as right where it overlaps one of the true rectangles by more than 25 % (intersection over union of the
filled rectangles, in whole pixels) and its angle is within 30 degrees of that one's.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.grasp.filling import fill

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

    What lies above or left of the picture does not count, as in the reference.
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


def is_right(grasp: Points, truths: Points) -> bool:
    """Whether a rectangle (4, 2) is right, of true rectangles (N, 4, 2), all in px, row and column."""
    return any(iou(grasp, truth) > LEAST_IOU for truth in truths)
