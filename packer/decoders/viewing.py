"""Viewing: a JPEG through a view, decoding no more of it than the view shows, at the smallest scale that will do.

The scale is a half, a quarter or an eighth where the view shrinks by as much and wants antialiasing. The other eighths
are no gain: libjpeg-turbo has no vector code for them, and takes longer than for the whole.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.arrays import target
from packer.decoders.header import Buffer, Header
from packer.decoders.region import FULL, decode_region
from packer.geometry import View
from packer.warping import image
from packer.warping.placement import needed, place, shrinking


def decode_view(  # noqa: PLR0913  see tests/test_architecture.py
    buffer: Buffer,
    found: Header,
    view: View,
    *,
    fast_dct: bool,
    out: Any,
    decoded: Callable[[], object] | None = None,
) -> npt.NDArray[np.uint8]:
    """uint8 (h, w, 3), RGB, as packer.decoders.decode gives it; the file is a JPEG that is not CMYK.

    decoded: called between decoding and warping, by who wants to know how long each takes.
    """
    placement = place(view, found.height, found.width)
    made: npt.NDArray[np.uint8] = target((*view.size, 3), np.uint8, out=out)
    top, left, height, width = box = needed(view, placement, found.height, found.width)
    if not (height and width):
        made.fill(0)
        return made if out is None else out
    eighths = FULL
    if view.antialias and (shrink := min(shrinking(view))) >= 2:
        eighths = FULL >> min(3, int(math.log2(shrink)))
    region = decode_region(buffer, found, box=box, eighths=eighths, fast_dct=fast_dct)
    if decoded is not None:
        decoded()
    if placement is not None and placement.frame is None and region.eighths == FULL:
        top, left = top - region.top, left - region.left
        image.put(region.pixels[top : top + height, left : left + width], placement, made, antialias=view.antialias)
    else:
        inner = view.of(region.top, region.left, region.eighths / FULL)
        placement = place(inner, *region.pixels.shape[:2])
        image.warp(region.pixels, inner, placement, shrunk=region.eighths < FULL, out=made)
    return made if out is None else out
