"""Moving points and boxes through a matrix, analytically.

Points lie on pixel centres, which are whole numbers; the edges of a box lie between pixels, as COCO and torchvision
have them: the box of a whole picture is 0, 0, width, height. An edge at x is half a pixel before the centre at x.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.geometry.view import Matrix


def move_points(points: npt.NDArray[Any], matrix: Matrix) -> npt.NDArray[np.float32]:
    """float (..., 2) points x, y through a (2, 3) matrix; returns float32 of the same shape."""
    moved = np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2]
    return np.asarray(moved, np.float32)


def move_boxes(boxes: npt.NDArray[Any], matrix: Matrix) -> npt.NDArray[np.float32]:
    """float (N, 4) boxes x0, y0, x1, y1 through a matrix of pixel centres: the upright box around the moved corners."""
    corners = np.asarray(boxes, np.float64).reshape(-1, 4)[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    moved = (corners - 0.5) @ matrix[:, :2].T + matrix[:, 2] + 0.5
    return np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1).astype(np.float32)
