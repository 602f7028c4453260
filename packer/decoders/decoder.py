"""Decoder: the pixels of one field's pictures, the way they are wanted said once.

What every batch does for every image is here, in few steps: an ordinary JPEG goes straight into the given memory, or
through a view no further than the view shows. All else is packer.decoders.decode's.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.arrays import target
from packer.decoders import libjpeg
from packer.decoders.header import Buffer, Header
from packer.decoders.pixels import decode
from packer.decoders.region import FULL, decode_region
from packer.decoders.sniffing import sniff
from packer.geometry import View

Pixels = npt.NDArray[Any]


class Decoder:
    """Decodes pictures of one kind; arguments, results and errors as of packer.decoders.decode. For many threads."""

    def __init__(
        self,
        kind: str,
        *,
        decoder: str = "auto",
        strict: bool = True,
        dct: str = "accurate",
        invalid: float | None = None,
    ) -> None:
        self._kind = kind
        self._how: dict[str, Any] = {"decoder": decoder, "strict": strict, "dct": dct, "invalid": invalid}
        self._fast_dct = dct == "fast"
        self._plain = kind == "image" and decoder != "opencv"

    def __call__(
        self, buffer: Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Pixels:
        """The pixels, as stored or as the view shows them."""
        found = header or sniff(buffer)
        if not self._plain or found.format != "jpeg" or found.cmyk:
            return decode(buffer, self._kind, view=view, header=found, out=out, **self._how)
        if view is None or view.is_identity(found.height, found.width):
            pixels = target((found.height, found.width, 3), np.uint8, out=out)
            libjpeg.decode(buffer, found, pixels, fast_dct=self._fast_dct)
            return pixels if out is None else out
        return self._viewed(buffer, found, view, out)

    def _viewed(self, buffer: Buffer, found: Header, view: View, out: Any) -> Pixels:
        """The scale is a half, a quarter or an eighth where the view shrinks by as much and wants antialiasing.

        The other eighths are no gain: libjpeg-turbo has no vector code for them, and takes longer than for the whole.
        """
        # loads OpenCV, which packing kept bytes does without
        from packer.warping import image
        from packer.warping.placement import needed, place, shrinking

        placement = place(view, found.height, found.width)
        top, left, height, width = needed(view, placement, found.height, found.width)
        made = target((*view.size, 3), np.uint8, out=out)
        if not (height and width):
            made.fill(0)
            return made if out is None else out
        eighths = FULL
        if view.antialias and (shrink := min(shrinking(view))) >= 2:
            eighths = FULL >> min(3, int(math.log2(shrink)))
        region = decode_region(buffer, found, box=(top, left, height, width), eighths=eighths, fast_dct=self._fast_dct)
        if placement is not None and placement.frame is None and region.eighths == FULL:
            top, left = top - region.top, left - region.left
            image.put(region.pixels[top : top + height, left : left + width], placement, made, antialias=view.antialias)
        else:
            inner = view.of(region.top, region.left, region.eighths / FULL)
            image.warp(
                region.pixels, inner, place(inner, *region.pixels.shape[:2]), shrunk=region.eighths < FULL, out=made
            )
        return made if out is None else out
