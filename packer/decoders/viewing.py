"""Viewing: a JPEG through a view, decoding no more of it than the view shows, at the smallest scale that will do.

The scale is a half, a quarter or an eighth where the view shrinks by as much and wants antialiasing. The other eighths
are no gain: libjpeg-turbo has no vector code for them, and takes longer than for the whole.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.arrays import target
from packer.decoders.header import Buffer, Header
from packer.decoders.region import FULL, prepare_region
from packer.geometry import View
from packer.warping import image
from packer.warping.placement import needed, place, shrinking

Pixels = npt.NDArray[np.uint8]


def prepare_view(
    buffer: Buffer,
    found: Header,
    view: View,
    *,
    out: Any,
    decoded: Callable[[], object] | None = None,
    **how: bool,
) -> Callable[[], Pixels]:
    """What makes uint8 (h, w, 3), RGB, as packer.decoders.decode has it, of a JPEG that is not CMYK, in this thread.

    decoded: called between decoding and warping, by who wants to know how long each takes.
    how: fast_dct, vouched and table, as packer.decoders.region.prepare_region has them.
    """
    placement = place(view, found.height, found.width)
    made: Pixels = target((*view.size, 3), np.uint8, out=out)
    result = made if out is None else out
    top, left, height, width = box = needed(view, placement, found.height, found.width)
    if not (height and width):
        return partial(_in_turn, (partial(made.fill, 0),), result)
    eighths = FULL
    if view.antialias and (shrink := min(shrinking(view))) >= 2:
        eighths = FULL >> min(3, int(math.log2(shrink)))
    region, fill = prepare_region(buffer, found, box=box, eighths=eighths, **how)
    show: Callable[[], object]
    if placement is not None and placement.frame is None and region.eighths == FULL:
        top, left = top - region.top, left - region.left
        part = region.pixels[top : top + height, left : left + width]
        show = partial(image.put, part, placement, made, antialias=view.antialias)
    else:
        inner = view.of(region.top, region.left, region.eighths / FULL)
        placement = place(inner, *region.pixels.shape[:2])
        show = partial(image.warp, region.pixels, inner, placement, shrunk=region.eighths < FULL, out=made)
    return partial(_in_turn, (fill, show) if decoded is None else (fill, decoded, show), result)


def _in_turn(steps: tuple[Callable[[], object], ...], result: Pixels) -> Pixels:
    for step in steps:
        step()
    return result
