"""Warp: computes the output pixels of a view. A view composed of several geometries is interpolated only once.

| kind  | shrinking                                             | enlarging                |
|-------|-------------------------------------------------------|--------------------------|
| image | below a factor of 2: small Gaussian filter, then      | bilinear                 |
|       | bilinear, close to Pillow's antialiased bilinear;     |                          |
|       | from 2 on: area mean (cv2.INTER_AREA).                |                          |
|       | With antialias=False: bilinear only                   |                          |
| mask  | nearest                                               | nearest                  |
| depth | area mean of the valid pixels; invalid where less     | nearest                  |
|       | than half of the area is valid                        |                          |

Turns by 90 degrees, mirrors and crops at whole pixels are exact. A scaled crop depends only on the pixels inside the
crop. If one axis shrinks and the other grows, each follows its own rule. Nearest takes the source pixel that contains
the center of the output pixel. If the center is on an edge, it takes the later pixel. All other matrices (rotation,
shear, crops between pixels) are bilinear for images. For depth, they are bilinear means of the valid pixels.

Output pixels outside of the source are 0 for images and masks. For depth they are `invalid`. If that is None, they are
NaN, or 0 if the dtype has no NaN.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.geometry import View
from packer.geometry.warp import depth_and_mask, image
from packer.geometry.warp.axis_aligned_steps import axis_aligned_steps, turned
from packer.schema import PIXEL_KINDS
from packer.system.exact_casts import deliver

Pixels = npt.NDArray[Any]


def warp(array: Pixels, view: View, kind: str, *, invalid: float | None = None, out: Any = None) -> Pixels:
    """Warp an array through a view.

    Args:
        array: (H, W, C) uint8 for an image, (H, W) for depth of any number type or a mask of uint8, uint16 or int32.
        view: The view.
        kind: image, depth or mask.
        invalid: Depth value of a missing pixel. A value that is not finite is always missing.
        out: Writable C-contiguous array with the shape and dtype of the result. None for new memory.

    Returns:
        `out`, or a new C-contiguous array. The dtype is that of `array`, and the memory is never shared with `array`.

    Raises:
        InvalidRequest: The view cannot be inverted, `kind` is unknown, or a shape does not fit `kind` or `out`.
    """
    if kind not in PIXEL_KINDS:
        raise InvalidRequest(f"cannot warp kind {kind!r}; expected one of {', '.join(PIXEL_KINDS)}")
    if array.ndim != (3 if kind == "image" else 2):
        raise InvalidRequest(
            f"cannot warp kind {kind}: found shape {array.shape}, expected (H, W{', C' * (kind == 'image')})"
        )
    steps = axis_aligned_steps(view, array.shape[0], array.shape[1])
    if kind == "image":
        return image.warp(array, view, steps, prescaled=False, out=out)
    if steps is None:
        warped = (
            depth_and_mask.nearest_affine(array, view)
            if kind == "mask"
            else depth_and_mask.affine(array, view, invalid=invalid)
        )
        return deliver(warped, out=out)
    cut = turned(array[steps.rows, steps.columns], steps)
    size = steps.size[::-1] if steps.transpose else steps.size
    resized = depth_and_mask.nearest(cut, size) if kind == "mask" else depth_and_mask.resize(cut, size, invalid=invalid)
    result = resized
    if steps.frame is not None:
        result = np.full(
            view.size, 0 if kind == "mask" else depth_and_mask.missing(array.dtype, invalid), resized.dtype
        )
        result[steps.frame] = resized
    if out is None and np.may_share_memory(result, array):
        return np.array(result, order="C")
    return deliver(result, out=out)
