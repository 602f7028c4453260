"""Warping: pixels through a view. Turns and mirrors are exact; scaling is one pass per direction.

| kind  | shrinking                                             | enlarging                |
|-------|-------------------------------------------------------|--------------------------|
| image | area mean (cv2.INTER_AREA)                            | bilinear                 |
| mask  | nearest                                               | nearest                  |
| depth | area mean of the valid pixels; invalid where less     | nearest                  |
|       | than half of the area is valid                        |                          |

Where one axis shrinks and the other grows, the shrinking comes first and each axis follows its own rule. Nearest is
centre-aligned: output pixel i shows the source pixel whose area holds the centre of i, and of two the later one.
"""

import math
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.arrays import deliver
from packer.errors import Refused
from packer.geometry import View
from packer.schema import PIXEL_KINDS

Pixels = npt.NDArray[Any]

_WEIGHT_TOLERANCE = 1e-9  # half of an area, summed in float64
_TOLERANCE_PX = 1e-6  # what a product of a few matrices in float64 may be off


def warp(array: Pixels, view: View, kind: str, *, invalid: float | None = None, out: Any = None) -> Pixels:
    """`array` as the view shows it; dtype kept, C-contiguous, never the same memory as `array`.

    array: (H, W, C) uint8 for an image, (H, W) for a depth of any number type or a uint8 mask.
    view: turns by 90 degrees and mirrors, times a positive scale of each axis, times a cut at whole pixels; pixels
      outside the cut are not looked at. Raises Refused for any other matrix, and for one that looks outside the array.
    invalid: the depth value of a missing pixel; what is not finite is missing in any case. An output pixel without
      enough valid ones becomes `invalid`, or NaN where none is given. 0 is an ordinary depth unless it is `invalid`.
    out: as in packer.decoders.decode.
    """
    if kind not in PIXEL_KINDS:
        raise Refused(f"cannot warp kind {kind!r}; expected one of {', '.join(PIXEL_KINDS)}")
    if array.ndim != (3 if kind == "image" else 2):
        raise Refused(f"cannot warp kind {kind}: found shape {array.shape}, expected (H, W{', C' * (kind == 'image')})")
    turned, (sx, cx), (sy, cy) = _turned(array, view)
    rows = _cut(turned.shape[0], view.size[0], scale=sy, shift=cy)
    columns = _cut(turned.shape[1], view.size[1], scale=sx, shift=cx)
    resize = {"image": _image, "mask": _nearest}.get(kind)
    cut = turned[rows, columns]
    result = resize(cut, view.size) if resize else _depth(cut, view.size, invalid=invalid)
    if out is None and np.may_share_memory(result, array):
        return np.array(result, order="C")
    return deliver(result, out=out)


def _turned(array: Pixels, view: View) -> tuple[Pixels, tuple[float, float], tuple[float, float]]:
    """The array turned and mirrored so that what is left is x' = s x + c with s > 0 for each axis; it is not copied."""
    a, b, c, d, e, f = view.matrix
    if not all(map(math.isfinite, view.matrix)) or not ((b == d == 0 and a * e != 0) or (a == e == 0 and b * d != 0)):
        raise Refused(
            f"cannot warp by matrix {view.matrix}: only turns by 90 degrees, mirrors, scales and whole-pixel cuts are "
            f"supported; resize without other rotation or shear"
        )
    if b:
        array, a, e = array.swapaxes(0, 1), b, d
    if a < 0:
        array, a, c = array[:, ::-1], -a, c + a * (array.shape[1] - 1)
    if e < 0:
        array, e, f = array[::-1], -e, f + e * (array.shape[0] - 1)
    return array, (a, c), (e, f)


def _cut(length: int, size: int, *, scale: float, shift: float) -> slice:
    """Which source pixels along one axis the `size` output pixels cover."""
    first = (-0.5 - shift) / scale + 0.5  # the left edge of output pixel 0, pixel edges being whole numbers
    last = first + size / scale
    tolerance = _TOLERANCE_PX * max(1, length)
    start, stop = round(first), round(last)
    if abs(first - start) > tolerance or abs(last - stop) > tolerance:
        raise Refused(f"cannot warp: the view covers pixels {first:.3f} to {last:.3f}, only whole ones are supported")
    if not 0 <= start < stop <= length or size < 1:
        raise Refused(f"cannot warp: the view covers pixels {start} to {stop}, the picture has 0 to {length}")
    return slice(start, stop)


def _image(array: Pixels, size: tuple[int, int]) -> Pixels:
    height, width = min(size[0], array.shape[0]), min(size[1], array.shape[1])
    if (height, width) != array.shape[:2]:
        array = _channels(cv2.resize(np.ascontiguousarray(array), (width, height), interpolation=cv2.INTER_AREA), array)
    if size != (height, width):
        array = _channels(
            cv2.resize(np.ascontiguousarray(array), (size[1], size[0]), interpolation=cv2.INTER_LINEAR), array
        )
    return array


def _channels(resized: Pixels, before: Pixels) -> Pixels:
    return resized.reshape(*resized.shape[:2], before.shape[2])  # OpenCV drops an axis of length 1


def _nearest(array: Pixels, size: tuple[int, int]) -> Pixels:
    for axis in (0, 1):
        length = array.shape[axis]
        if length != size[axis]:
            # floor((i + 0.5) length / size) in whole numbers
            array = array.take((2 * np.arange(size[axis]) + 1) * length // (2 * size[axis]), axis=axis)
    return array


def _depth(array: Pixels, size: tuple[int, int], *, invalid: float | None) -> Pixels:
    smaller = min(size[0], array.shape[0]), min(size[1], array.shape[1])
    if smaller != array.shape:
        array = _mean_of_valid(array, smaller, invalid=invalid)
    return _nearest(array, size)


def _mean_of_valid(array: Pixels, size: tuple[int, int], *, invalid: float | None) -> Pixels:
    def area(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return cv2.resize(values, (size[1], size[0]), interpolation=cv2.INTER_AREA)  # type: ignore[return-value]

    valid = np.isfinite(array)
    if invalid is not None and np.isfinite(invalid):
        valid &= array != np.asarray(invalid).astype(array.dtype)
    if valid.all():
        return _back(area(np.ascontiguousarray(array, np.float64)), array.dtype)
    weight = area(valid.astype(np.float64))
    enough = weight >= 0.5 - _WEIGHT_TOLERANCE
    mean = area(np.where(valid, array, 0).astype(np.float64)) / np.where(enough, weight, 1)
    missing = np.asarray(np.nan if invalid is None else invalid).astype(array.dtype)
    return np.where(enough, _back(mean, array.dtype), missing)


def _back(mean: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> Pixels:
    return (np.rint(mean) if dtype.kind in "iu" else mean).astype(dtype)
