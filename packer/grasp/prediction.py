"""Prediction: the best grasp of a network's four maps."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.grasp.labels import rectangle

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
