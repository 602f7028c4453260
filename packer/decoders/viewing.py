"""Viewing: a JPEG through a view, decoding no more of it than the view shows, at the smallest scale that will do."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.arrays import deliver
from packer.decoders.header import Buffer, Header
from packer.decoders.region import chosen
from packer.geometry import View
from packer.warping import warp
from packer.warping.placement import needed, place, shrinking

_FULL = 8  # eighths


def decode_view(  # noqa: PLR0913  see packer.decoders.decode
    buffer: Buffer, found: Header, view: View, *, decoder: str, strict: bool, dct: str, out: Any
) -> npt.NDArray[np.uint8]:
    """uint8 (h, w, 3), RGB: the picture as the view shows it; arguments and errors as of packer.decoders.decode.

    The scale is a half, a quarter or an eighth where the view shrinks by as much or more and wants antialiasing. The
    other eighths are no gain: libjpeg-turbo has no vector code for them, and takes longer than for the whole.
    """
    box = needed(view, place(view, found.height, found.width), found.height, found.width)
    if not (box[2] and box[3]):
        return deliver(np.zeros((*view.size, 3), np.uint8), out=out)
    eighths = _FULL
    if view.antialias:
        shrink = min(shrinking(view))
        eighths = _FULL >> min(3, int(math.log2(shrink))) if shrink >= 2 else _FULL
    region = chosen(decoder, strict=strict)(buffer, found, box=box, eighths=eighths, fast_dct=dct == "fast")
    inner = view.of(region.top, region.left, region.eighths / _FULL)
    return warp(region.pixels, inner, "image", shrunk=region.eighths < _FULL, out=out)
