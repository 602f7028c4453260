"""Picture: one image, depth or mask made to fit a place on a sheet, as RGB.

Depth has the colours of viridis, whose lightness grows evenly with the value (S. van der Walt, N. Smith, "A better
default colormap for matplotlib", SciPy 2015), so that equal steps of depth look equal. They span the 1st to the 99th
percentile of the valid pixels: one wrong pixel does not take all contrast away. Pixels without depth are hatched.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.geometry import View, resized_crop
from packer.geometry.warp import warp
from packer.geometry.warp.depth import is_valid
from packer.inspect.palette import HATCH, HATCH_PX, VOID, Pixels, class_colour, viridis

_OPACITY = 0.3  # of a mask over an image; its outline is opaque
_SLACK = 0.015  # of a place may be filled by stretching: no gap of one px beside pictures without one
_TINY = 4  # what would be enlarged by so much or more
_MOST_VALUES = 32  # a mask with more distinct values is a soft one, whose values are opacities


Mask = npt.NDArray[np.uint8] | npt.NDArray[np.int32]  # of 8 bit or of 16, as samples have them


class Scale(NamedTuple):
    """What the colours of a depth mean: the value of the first and of the last one; None where no pixel is valid."""

    low: float | None
    high: float | None


def placing(height: int, width: int, box: tuple[int, int]) -> View:
    """The view that fits a picture into `box` (height, width); a tiny one is enlarged by a whole factor."""
    factor = min(box[0] / height, box[1] / width)
    if factor >= _TINY:
        return resized_crop(0, 0, height, width, size=(height * int(factor), width * int(factor)))
    size = min(box[0], max(1, round(height * factor))), min(box[1], max(1, round(width * factor)))
    if max(box[0] - size[0], box[1] - size[1]) <= _SLACK * min(box):  # cut at whole px, say
        size = box
    return resized_crop(0, 0, height, width, size=size)


def fit(array: npt.NDArray[Any], view: View, kind: str, *, invalid: float | None = None) -> npt.NDArray[Any]:
    """The array through such a view, dtype kept: warped as packer does, but a tiny picture's pixels stay squares."""
    height, width = array.shape[:2]
    factor = view.size[0] // height
    if factor >= _TINY and view.size == (height * factor, width * factor):
        return np.repeat(np.repeat(array, factor, axis=0), factor, axis=1)
    return warp(array, view, kind, invalid=invalid)


def scale_of(depth: npt.NDArray[Any], invalid: float | None) -> Scale:
    """The scale for the colours of a depth (H, W), measured before it is made to fit."""
    values = depth[is_valid(depth, invalid)]
    if not values.size:
        return Scale(None, None)
    low, high = np.percentile(values.astype(np.float64), (1, 99))
    return Scale(float(low), float(high))


def coloured(depth: npt.NDArray[Any], scale: Scale, *, invalid: float | None) -> Pixels:
    """uint8 (H, W, 3) of a depth (H, W): viridis, and hatched where there is none."""
    height, width = depth.shape
    made = hatch(height, width)
    if scale.low is None or scale.high is None:
        return made  # all of it
    valid = is_valid(depth, invalid)
    span = scale.high - scale.low
    share = (np.where(valid, depth, scale.low).astype(np.float64) - scale.low) / span if span > 0 else 0.5
    levels = np.rint(np.clip(np.broadcast_to(share, depth.shape), 0, 1) * 255).astype(np.uint8)
    made[valid] = viridis()[levels[valid]]
    return made


def hatch(height: int, width: int) -> Pixels:
    """uint8 (height, width, 3): the stripes that mean "no depth here"."""
    rows, columns = np.ogrid[:height, :width]
    stripe = (rows + columns) // HATCH_PX % 2
    colours: Any = np.asarray(HATCH, np.uint8)
    made: Pixels = colours[stripe]
    return made


def overlaid(pixels: Pixels, mask: Mask) -> Pixels:
    """A picture with a mask over it, both of one size: 0 is clear, each value has its colour and an outline."""
    colours, opacity = mask_colours(mask)
    weight = np.where(_outline(mask) & (opacity == 1), 1.0, _OPACITY * opacity)[..., None]
    mixed: npt.NDArray[np.float64] = np.rint(pixels * (1 - weight) + colours * weight)
    return mixed.astype(np.uint8)


def alone(mask: Mask) -> Pixels:
    """uint8 (H, W, 3): a mask without a picture under it, on black."""
    colours, opacity = mask_colours(mask)
    return np.rint(colours * opacity[..., None]).astype(np.uint8)


def _outline(mask: Mask) -> npt.NDArray[np.bool_]:
    """Pixels of which a neighbour above, below, left or right has another value."""
    found = np.zeros(mask.shape, bool)
    down, right = mask[1:] != mask[:-1], mask[:, 1:] != mask[:, :-1]
    found[1:] |= down
    found[:-1] |= down
    found[:, 1:] |= right
    found[:, :-1] |= right
    return found


def mask_colours(mask: Mask) -> tuple[Pixels, npt.NDArray[np.float64]]:
    """The colour of each pixel of a mask, uint8 (H, W, 3), and how much of it is there, 0-1 (H, W).

    A mask of 16 bit holds ids, however many: each has its colour, and none is soft or void.
    """
    if mask.dtype != np.uint8:
        ids, places = np.unique(mask, return_inverse=True)
        colours = np.asarray([class_colour(value) if value else (0, 0, 0) for value in ids.tolist()], np.uint8)
        return colours.reshape(-1, 3)[places].reshape(*mask.shape, 3), (mask != 0).astype(np.float64)
    present = np.flatnonzero(np.bincount(mask.ravel(), minlength=256))
    table, opacity = np.zeros((256, 3), np.uint8), np.ones(256)
    opacity[0] = 0
    if len(present) > _MOST_VALUES:
        table[:] = class_colour(1)
        opacity = np.arange(256) / 255
    else:
        for value in present[present > 0].tolist():
            table[value] = value_colour(value, present.tolist())
    return table[mask], opacity[mask]


def value_colour(value: int, present: list[int]) -> tuple[int, int, int]:
    """The colour of a value of a mask of 8 bit: 255 is the object where there is no other, else void, as in VOC."""
    if value == 255:
        return class_colour(1) if not any(0 < other < 255 for other in present) else VOID
    return class_colour(value)
