"""Rectangles: grasps as corners and as rows, in pixels, x to the right and y down.

corners  (N, 4, 2)  x, y of p0 ... p3; p0 -> p1 is the opening axis of the gripper, p1 -> p2 the jaw
rows     (N, 5)     x, y of the centre, theta in degrees, opening, jaw, as Jacquard's files have them

theta turns x towards y: clockwise as seen, since y points down, and the opening axis is (cos theta, sin theta). The
angle that the grasp networks learn is -theta in radians, in [-pi/2, pi/2).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.sources.jacquard import corners as corners_of_rows

__all__ = ["corners_of_rows", "rows_of_corners", "scale"]

Corners = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


def rows_of_corners(corners: Corners) -> Floats:
    """(N, 4, 2) corners as float64 (N, 5) rows, theta in (-90, 90]; of a parallelogram, its two side lengths."""
    corners = np.asarray(corners, np.float64).reshape(-1, 4, 2)
    along, across = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 1]
    theta = np.degrees(np.arctan2(along[:, 1], along[:, 0]))
    theta = 90 - (90 - theta) % 180
    center = corners.mean(axis=1)
    return np.column_stack([center, theta, np.hypot(*along.T), np.hypot(*across.T)])


def scale(corners: Corners, factor: float | tuple[float, float]) -> npt.NDArray[np.float32]:
    """Corners of the scaled picture, float32; factor: one, or (x, y). No half-pixel term, as the networks have it."""
    return np.asarray(np.asarray(corners, np.float64) * factor, np.float32)
