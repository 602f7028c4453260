"""Decoder: the pixels of one field's pictures, the way they are wanted said once.

What every batch does for every image is here, in few steps: an ordinary JPEG goes straight into the given memory, or
through a view no further than the view shows. All else is packer.decoders.decode's.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.arrays import target
from packer.decoders import libjpeg
from packer.decoders.header import Buffer, Header
from packer.decoders.pixels import decode
from packer.decoders.sniffing import sniff
from packer.geometry import View
from packer.registry import import_or_explain

Pixels = npt.NDArray[Any]


@functools.cache
def _viewing() -> ModuleType:
    """What views need, loaded when one is asked for: it brings OpenCV, which packing kept bytes does without."""
    return import_or_explain("packer.decoders.viewing", "resizing pictures")


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
        self,
        buffer: Buffer,
        view: View | None = None,
        out: Any = None,
        *,
        header: Header | None = None,
        decoded: Callable[[], object] | None = None,
    ) -> Pixels:
        """The pixels, as stored or as the view shows them. decoded: called between decoding and warping, if any."""
        found = header or sniff(buffer)
        if not self._plain or found.format != "jpeg" or found.cmyk:
            if decoded is not None and view is not None:
                return self._in_two_steps(buffer, view, out, header=found, decoded=decoded)
            return decode(buffer, self._kind, view=view, header=found, out=out, **self._how)
        if view is None or view.is_identity(found.height, found.width):
            pixels = target((found.height, found.width, 3), np.uint8, out=out)
            libjpeg.decode(buffer, found, pixels, fast_dct=self._fast_dct)
            return pixels if out is None else out
        how = {"fast_dct": self._fast_dct, "decoded": decoded}
        shown: Pixels = _viewing().decode_view(buffer, found, view, out=out, **how)
        return shown

    def _in_two_steps(
        self, buffer: Buffer, view: View, out: Any, *, header: Header, decoded: Callable[[], object]
    ) -> Pixels:
        pixels = decode(buffer, self._kind, header=header, **self._how)
        decoded()
        warp = import_or_explain("packer.warping", "resizing pictures").warp
        warped: Pixels = warp(pixels, view, self._kind, invalid=self._how["invalid"], out=out)
        return warped
