"""Depth warp: depth through a view, as a mean of valid pixels; missing ones are never mixed in."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.geometry import View
from packer.geometry.warp import mask
from packer.geometry.warp.axis_aligned import inside, shrinking

Pixels = npt.NDArray[Any]
Weights = npt.NDArray[np.float64]

_WEIGHT_TOLERANCE = 1e-6  # half of an area: OpenCV sums in float64 weights that are float32


def resize(array: Pixels, size: tuple[int, int], *, invalid: float | None) -> Pixels:
    """(H, W) at that size, dtype kept; the array itself where nothing changes."""
    smaller = min(size[0], array.shape[0]), min(size[1], array.shape[1])
    if smaller != array.shape and array.size:
        array = _mean_of_valid(array, smaller, invalid=invalid)
    return mask.resize(array, size)


def affine(array: Pixels, view: View, *, invalid: float | None) -> Pixels:
    """(H, W) through any matrix: bilinear over the valid pixels, invalid where less than half of the weight is."""
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

    valid = is_valid(array, invalid)
    weight = bilinear(valid.astype(np.float64))
    enough = weight >= 0.5 - _WEIGHT_TOLERANCE
    mean = bilinear(np.where(valid, array, 0).astype(np.float64)) / np.where(enough, weight, 1)
    return np.where(enough, _back(mean, array.dtype), missing(array.dtype, invalid))


def missing(dtype: np.dtype[Any], invalid: float | None) -> Any:
    """The value of a missing pixel: `invalid`; without one NaN, or 0 where the dtype has no NaN."""
    if invalid is None:
        return np.asarray(np.nan if dtype.kind == "f" else 0).astype(dtype)
    return _as_dtype(invalid, dtype)


def is_valid(array: Pixels, invalid: float | None) -> npt.NDArray[np.bool_]:
    """Where a depth has a measurement: it is finite, and not the value `invalid` that means none."""
    valid: npt.NDArray[np.bool_] = np.isfinite(array)
    if invalid is not None and np.isfinite(invalid):
        valid &= array != _as_dtype(invalid, array.dtype)
    return valid


def _as_dtype(invalid: float, dtype: np.dtype[Any]) -> Any:
    """The value as the array would hold it; one beyond its range, which only a hostile manifest has, is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(invalid).astype(dtype)


def _mean_of_valid(array: Pixels, size: tuple[int, int], *, invalid: float | None) -> Pixels:
    def area(values: Weights) -> Weights:
        return cv2.resize(values, (size[1], size[0]), interpolation=cv2.INTER_AREA)  # type: ignore[return-value]

    valid = is_valid(array, invalid)
    if valid.all():
        return _back(area(np.ascontiguousarray(array, np.float64)), array.dtype)
    weight = area(valid.astype(np.float64))
    enough = weight >= 0.5 - _WEIGHT_TOLERANCE
    mean = area(np.where(valid, array, 0).astype(np.float64)) / np.where(enough, weight, 1)
    return np.where(enough, _back(mean, array.dtype), missing(array.dtype, invalid))


def _back(mean: Weights, dtype: np.dtype[Any]) -> Pixels:
    return (np.rint(mean) if dtype.kind in "iu" else mean).astype(dtype)
