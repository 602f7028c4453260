"""Image warp: warps images by one bilinear pass of OpenCV, after a filter if images shrink.

Bilinear interpolation reads four pixels, so an image that shrinks shows aliasing. Pillow's antialiased bilinear filter
is a triangle, s times as wide if the image shrinks by s. Its variance is s^2 / 6 px instead of 1 / 6 px. This module
adds the difference by a 3-tap Gaussian before the bilinear pass. The result is closer to Pillow's than an area mean, in
half the time (docs/dev/benchmarks.md). Three taps can add less than 2 / 3, so from s = 2 on, an area mean is used.
"""

import math
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.geometry import View
from packer.geometry.warp.axis_aligned_steps import AxisAlignedSteps, inside, needed, shrinking
from packer.system.exact_casts import target
from packer.system.thread_scratch import ThreadScratch

Pixels = npt.NDArray[Any]

FROM_AREA = 2.0  # least shrinking for the area mean

_LEAST_VARIANCE = 0.002  # a smaller filter does not change 8 bit pixels

_PRESCALED_VARIANCE = 1 / 12  # each pixel of a prescaled image is a mean over its square

_widened_pixels, _upright_pixels = ThreadScratch(), ThreadScratch()  # each thread has its own


def warp(array: Pixels, view: View, steps: AxisAlignedSteps | None, *, prescaled: bool, out: Any) -> Pixels:
    """Warp an image, uint8 (H, W, C), through a view. `prescaled` is True if the decoder has already scaled it down."""
    made = target((*view.size, array.shape[2]), array.dtype, out=out)
    flat = made[..., 0] if made.shape[2] == 1 else made  # OpenCV drops an axis of length 1
    if steps is None:
        _affine(array, view, flat, prescaled=prescaled)
    elif steps.frame is None:
        cut = array[steps.rows, steps.columns]
        apply_steps(cut, steps, flat, antialias=view.antialias, prescaled=prescaled)
    else:
        flat.fill(0)
        part = np.empty((*flat[steps.frame].shape[:2], *flat.shape[2:]), array.dtype)
        if part.size:
            apply_steps(array[steps.rows, steps.columns], steps, part, antialias=view.antialias)
            flat[steps.frame] = part
    return made if out is None else out


def apply_steps(
    cut: Pixels, steps: AxisAlignedSteps, made: Pixels, *, antialias: bool, prescaled: bool = False
) -> None:
    """Scale, transpose and flip the crop `cut`, and write it to `made`. `prescaled` is that of `warp`."""
    if steps.shape != steps.size:
        if not steps.transpose:
            _resize(cut, made, antialias=antialias, prescaled=prescaled)
        else:
            upright = _upright_pixels.pixels(*steps.size, cut.shape[2])
            _resize(cut, upright, antialias=antialias, prescaled=prescaled)
            copy_unless_same(made, cv2.transpose(upright, dst=made))
    elif steps.transpose:
        np.copyto(made, cut.swapaxes(0, 1).reshape(made.shape))
    elif steps.flip is not None:
        copy_unless_same(made, cv2.flip(cut, steps.flip, dst=made))
        return
    else:
        np.copyto(made, cut.reshape(made.shape))
    if steps.flip is not None:
        copy_unless_same(made, cv2.flip(made, steps.flip, dst=made))


def _resize(cut: Pixels, made: Pixels, *, antialias: bool, prescaled: bool) -> None:
    height, width = made.shape[:2]
    shrink = cut.shape[0] / height, cut.shape[1] / width
    if antialias and max(shrink) >= FROM_AREA:
        smaller = min(width, cut.shape[1]), min(height, cut.shape[0])
        if smaller == (width, height):
            copy_unless_same(made, cv2.resize(cut, smaller, dst=made, interpolation=cv2.INTER_AREA))
            return
        cut = cv2.resize(cut, smaller, interpolation=cv2.INTER_AREA)
    elif antialias and max(shrink) > 1:
        cut = widened(cut, shrink, _variance(prescaled))
    copy_unless_same(made, cv2.resize(cut, (width, height), dst=made, interpolation=cv2.INTER_LINEAR))


def widened(array: Pixels, shrink: tuple[float, float], variance: tuple[float, float]) -> Pixels:
    """Filter uint8 (H, W) or (H, W, C) by the 3-tap Gaussian for a shrinking by `shrink` (y, x), both below 2.

    An earlier filter of the pixels with the `variance` (y, x) is taken into account. The result is `array` itself if it
    needs no filter. Otherwise, a result (H, W, C) is valid until the next call in this thread.
    """
    down, across = ((by * by - 1) / 6 - have for by, have in zip(shrink, variance, strict=True))
    size = (3 if across > _LEAST_VARIANCE else 1, 3 if down > _LEAST_VARIANCE else 1)
    if size == (1, 1):
        return array
    made = _widened_pixels.pixels(*array.shape) if array.ndim == 3 else None
    how = {"sigmaX": _sigma(across), "sigmaY": _sigma(down), "borderType": cv2.BORDER_REPLICATE}
    return cv2.GaussianBlur(array, size, dst=made, **how)  # type: ignore[call-overload,no-any-return]


def _variance(prescaled: bool) -> tuple[float, float]:
    return (_PRESCALED_VARIANCE, _PRESCALED_VARIANCE) if prescaled else (0.0, 0.0)


def _sigma(variance: float) -> float:
    """Return the sigma of the 3-tap Gaussian, normalized to sum 1, that has the variance `variance`."""
    if variance <= _LEAST_VARIANCE:
        return 1.0
    neighbor = variance / 2
    return math.sqrt(-0.5 / math.log(neighbor / (1 - 2 * neighbor)))


def _affine(array: Pixels, view: View, made: Pixels, *, prescaled: bool) -> None:
    border = cv2.BORDER_REPLICATE if inside(view, array.shape[0], array.shape[1]) else cv2.BORDER_CONSTANT
    top, left, height, width = needed(view, None, array.shape[0], array.shape[1])
    if not height:
        made.fill(0)
        return
    part = array[top : top + height, left : left + width]
    view = view.of(top, left)
    shrink = shrinking(view)
    if view.antialias and max(shrink) >= FROM_AREA:
        size = max(1, round(width / max(1, shrink[1]))), max(1, round(height / max(1, shrink[0])))
        part = cv2.resize(part, size, interpolation=cv2.INTER_AREA)
        sx, sy = size[0] / width, size[1] / height
        whole = View((1 / sx, 0.0, 0.5 / sx - 0.5, 0.0, 1 / sy, 0.5 / sy - 0.5), (height, width))
        view = whole.then(view)
    elif view.antialias and max(shrink) > 1:
        part = widened(part, shrink, _variance(prescaled))
    size = made.shape[1], made.shape[0]
    copy_unless_same(made, cv2.warpAffine(part, view.array, size, dst=made, flags=cv2.INTER_LINEAR, borderMode=border))


def copy_unless_same(made: Pixels, result: Any) -> None:
    """Copy `result` to `made` if they are different arrays. OpenCV may return new memory in spite of dst=made."""
    if result is not made:
        np.copyto(made, result.reshape(made.shape))
