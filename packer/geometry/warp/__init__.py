"""Warp: moves pixels through a view, with one interpolation per image however many steps made the view.

| kind  | shrinking                                             | enlarging                |
|-------|-------------------------------------------------------|--------------------------|
| image | bilinear after a small Gaussian that makes it as wide | bilinear                 |
|       | as Pillow's antialiased bilinear; from a half on,     |                          |
|       | area mean (cv2.INTER_AREA). Without `antialias`,      |                          |
|       | bilinear and nothing else                             |                          |
| mask  | nearest                                               | nearest                  |
| depth | area mean of the valid pixels; invalid where less     | nearest                  |
|       | than half of the area is valid                        |                          |

Turns by 90 degrees, mirrors and cuts at whole pixels are exact. What a scaled cut shows depends on the pixels inside
the cut alone, as if it had been cut out first. Where one axis shrinks and the other grows, each follows its own rule.
Nearest is center-aligned: output pixel i shows the source pixel whose area holds the center of i, and of two the later
one. Other matrices (rotation, shear, boxes between pixels) are bilinear for images, weighted by validity for depth.

What lies outside the image is 0 in an image or mask, and in a depth `invalid`, or NaN where none is given (0 where
the dtype has no NaN).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.geometry import View
from packer.geometry.warp import depth, image, mask
from packer.geometry.warp.axis_aligned import AxisAlignedSteps, axis_aligned_steps, turned
from packer.schema import PIXEL_KINDS
from packer.system.exact_casts import deliver

Pixels = npt.NDArray[Any]


def warp(
    array: Pixels, view: View, kind: str, *, invalid: float | None = None, prescaled: bool = False, out: Any = None
) -> Pixels:
    """`array` as the view shows it; dtype kept, C-contiguous, never the same memory as `array`.

    array: (H, W, C) uint8 for an image, (H, W) for a depth of any number type or a mask of uint8, uint16 or int32.
    invalid: the depth value of a missing pixel; what is not finite is missing in any case. An output pixel without
      enough valid ones becomes `invalid`, or NaN where none is given. 0 is an ordinary depth unless it is `invalid`.
    prescaled: a decoder has scaled the image down, which did a part of the antialiasing.
    out: as in packer.images.decode. Raises InvalidRequest for a view that cannot be turned back.
    """
    if kind not in PIXEL_KINDS:
        raise InvalidRequest(f"cannot warp kind {kind!r}; expected one of {', '.join(PIXEL_KINDS)}")
    if array.ndim != (3 if kind == "image" else 2):
        raise InvalidRequest(
            f"cannot warp kind {kind}: found shape {array.shape}, expected (H, W{', C' * (kind == 'image')})"
        )
    steps = axis_aligned_steps(view, array.shape[0], array.shape[1])
    if kind == "image":
        return image.warp(array, view, steps, prescaled=prescaled, out=out)
    if steps is None:
        warped = mask.affine(array, view) if kind == "mask" else depth.affine(array, view, invalid=invalid)
        return deliver(warped, out=out)
    cut = turned(array[steps.rows, steps.columns], steps)
    size = steps.size[::-1] if steps.transpose else steps.size
    resized = mask.resize(cut, size) if kind == "mask" else depth.resize(cut, size, invalid=invalid)
    fill = 0 if kind == "mask" else depth.missing(array.dtype, invalid)
    result = _framed(resized, steps, view.size, fill)
    if out is None and np.may_share_memory(result, array):
        return np.array(result, order="C")
    return deliver(result, out=out)


def _framed(inner: Pixels, steps: AxisAlignedSteps, size: tuple[int, int], fill: Any) -> Pixels:
    """The part of the output that shows the image, with fill around it."""
    if steps.frame is None:
        return inner
    framed = np.full(size, fill, inner.dtype)
    framed[steps.frame] = inner
    return framed
