"""Depth and mask: warps depth by means of valid pixels, and masks by nearest neighbor.

A mean contains no missing pixel of depth, and classes of masks are never averaged.
"""

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.geometry import View
from packer.geometry.warp.axis_aligned_steps import inside, shrinking

Pixels = npt.NDArray[Any]
Weights = npt.NDArray[np.float64]

_WEIGHT_TOLERANCE = 1e-6  # of half an area: OpenCV adds float32 weights in float64


def nearest(array: Pixels, size: tuple[int, int]) -> Pixels:
    """Resize an array (H, W) to `size` (height, width) by nearest neighbor. Pixel centers of both sizes are aligned."""
    for axis in (0, 1):
        length = array.shape[axis]
        if length != size[axis]:
            # floor((i + 0.5) length / size) in integers
            array = array.take((2 * np.arange(size[axis]) + 1) * length // (2 * size[axis]), axis=axis)
    return array


def nearest_affine(array: Pixels, view: View) -> Pixels:
    """Warp a mask (H, W) of uint8, uint16 or int32 by any matrix. Output pixels outside of the mask are 0."""
    size = (view.size[1], view.size[0])
    array = np.ascontiguousarray(array)
    return cv2.warpAffine(array, view.array, size, flags=cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT)


def resize(array: Pixels, size: tuple[int, int], *, invalid: float | None) -> Pixels:
    """Resize depth (H, W) to `size` (height, width) with unchanged dtype. Return `array` itself if nothing changes."""
    smaller = min(size[0], array.shape[0]), min(size[1], array.shape[1])
    if smaller != array.shape and array.size:
        array = _mean_of_valid(array, smaller, invalid=invalid)
    return nearest(array, size)


def affine(array: Pixels, view: View, *, invalid: float | None) -> Pixels:
    """Warp depth (H, W) by a matrix, as bilinear means of valid pixels. See `_weighted_mean` for missing pixels."""
    border = cv2.BORDER_REPLICATE if inside(view, *array.shape) else cv2.BORDER_CONSTANT
    shrink = shrinking(view)
    if view.antialias and max(shrink) > 1:
        before = array.shape
        smaller = tuple(max(1, round(length / max(1.0, by))) for length, by in zip(before, shrink, strict=True))
        array = _mean_of_valid(array, (smaller[0], smaller[1]), invalid=invalid)
        sy, sx = smaller[0] / before[0], smaller[1] / before[1]
        view = View((1 / sx, 0.0, 0.5 / sx - 0.5, 0.0, 1 / sy, 0.5 / sy - 0.5), (1, 1)).then(view)

    def bilinear(values: Pixels) -> Weights:
        size = (view.size[1], view.size[0])
        return cv2.warpAffine(values, view.array, size, flags=cv2.INTER_LINEAR, borderMode=border)  # type: ignore[return-value]

    return _weighted_mean(array, is_valid(array, invalid), bilinear, invalid=invalid)


def missing(dtype: np.dtype[Any], invalid: float | None) -> Any:
    """Return the value of a missing pixel: `invalid`. If that is None, return NaN, or 0 if the dtype has no NaN."""
    if invalid is None:
        return np.asarray(np.nan if dtype.kind == "f" else 0).astype(dtype)
    return _as_dtype(invalid, dtype)


def is_valid(array: Pixels, invalid: float | None) -> npt.NDArray[np.bool_]:
    """Return a mask that is True for finite pixels other than `invalid`, which are measurements."""
    valid: npt.NDArray[np.bool_] = np.isfinite(array)
    if invalid is not None and np.isfinite(invalid):
        valid &= array != _as_dtype(invalid, array.dtype)
    return valid


def _as_dtype(invalid: float, dtype: np.dtype[Any]) -> Any:
    """Cast `invalid` to a dtype. It comes from a manifest, so it may be outside of the range of the dtype."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(invalid).astype(dtype)


def _mean_of_valid(array: Pixels, size: tuple[int, int], *, invalid: float | None) -> Pixels:
    def area(values: Weights) -> Weights:
        return cv2.resize(values, (size[1], size[0]), interpolation=cv2.INTER_AREA)  # type: ignore[return-value]

    valid = is_valid(array, invalid)
    if valid.all():
        return _back(area(np.ascontiguousarray(array, np.float64)), array.dtype)
    return _weighted_mean(array, valid, area, invalid=invalid)


def _weighted_mean(
    array: Pixels, valid: npt.NDArray[np.bool_], resample: Callable[[Weights], Weights], *, invalid: float | None
) -> Pixels:
    """Return means of valid pixels, weighted by `resample`. A mean with less than half valid weight is missing."""
    weight = resample(valid.astype(np.float64))
    enough = weight >= 0.5 - _WEIGHT_TOLERANCE
    mean = resample(np.where(valid, array, 0).astype(np.float64)) / np.where(enough, weight, 1)
    return np.where(enough, _back(mean, array.dtype), missing(array.dtype, invalid))


def _back(mean: Weights, dtype: np.dtype[Any]) -> Pixels:
    return (np.rint(mean) if dtype.kind in "iu" else mean).astype(dtype)
