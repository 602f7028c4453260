"""Mask warp: masks through a view, by nearest neighbor, so that classes are not mixed."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.geometry import View

Pixels = npt.NDArray[Any]


def resize(array: Pixels, size: tuple[int, int]) -> Pixels:
    """(H, W) at that size, center-aligned, in whole numbers; the array itself where nothing changes."""
    for axis in (0, 1):
        length = array.shape[axis]
        if length != size[axis]:
            # floor((i + 0.5) length / size) in whole numbers
            array = array.take((2 * np.arange(size[axis]) + 1) * length // (2 * size[axis]), axis=axis)
    return array


def affine(array: Pixels, view: View) -> Pixels:
    """uint8, uint16 or int32 (H, W) through any matrix; 0 outside."""
    size = (view.size[1], view.size[0])
    array = np.ascontiguousarray(array)
    return cv2.warpAffine(array, view.array, size, flags=cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT)
