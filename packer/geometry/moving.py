"""Moving points and boxes through a matrix, analytically."""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.geometry.view import Matrix


def move_points(points: npt.NDArray[Any], matrix: Matrix) -> npt.NDArray[np.float32]:
    """float (..., 2) points x, y through a (2, 3) matrix; returns float32 of the same shape."""
    moved = np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2]
    return np.asarray(moved, np.float32)


def move_boxes(boxes: npt.NDArray[Any], matrix: Matrix) -> npt.NDArray[np.float32]:
    """float (N, 4) boxes x0, y0, x1, y1 through a matrix: the upright box around the moved corners."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    corners = move_points(boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2), matrix)
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
