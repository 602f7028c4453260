"""Decoder: the pixels of one field's pictures, the way they are wanted said once.

What every batch does for every image is here, in few steps: an ordinary JPEG goes straight into the given memory, or
through a view no further than the view shows. All else is packer.decoders.decode's.
"""

from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.arrays import target
from packer.decoders import libjpeg
from packer.decoders.header import MAX_PIXELS, Buffer, Header
from packer.decoders.headers import Headers
from packer.decoders.pixels import decode
from packer.geometry import View
from packer.registry import import_or_explain

Pixels = npt.NDArray[Any]


@cache
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
        check_data: bool = True,
        dct: str = "accurate",
        invalid: float | None = None,
        vouched: bool = False,
        table: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """vouched: the bytes are those of files that were decoded strictly once, says a checksum.

        table: tables of restart intervals in the files may be used: they were compared with the files' markers.
        """
        self._kind = kind
        self._how: dict[str, Any] = {
            "decoder": decoder,
            "strict": strict,
            "check_data": check_data,
            "dct": dct,
            "invalid": invalid,
        }
        self._fast_dct = dct == "fast"
        self._trusted = {"vouched": vouched, "table": table}
        self.look = Headers(max_pixels).of  # the header of a file
        self._plain = kind == "image" and decoder != "opencv"

    def __call__(self, buffer: Buffer, view: View | None = None, out: Any = None, **how: Any) -> Pixels:
        """The pixels, as stored or as the view shows them. how: header and decoded, as `prepare` has them."""
        return self.prepare(buffer, view, out, **how)()

    def prepare(
        self,
        buffer: Buffer,
        view: View | None = None,
        out: Any = None,
        *,
        header: Header | None = None,
        decoded: Callable[[], object] | None = None,
    ) -> Callable[[], Pixels]:
        """What gives the pixels, once; many may be prepared before the first is called. Both raise as a call does.

        The thread that has prepared it calls it: what is warped is decoded into that thread's memory.
        header: what sniff says of these bytes. decoded: called between decoding and warping, if any.
        """
        found = header or self.look(buffer)
        if not self._plain or found.format != "jpeg" or found.cmyk:
            if decoded is not None and view is not None:
                return partial(self._in_two_steps, buffer, view, out, header=found, decoded=decoded)
            return partial(decode, buffer, self._kind, view=view, header=found, out=out, **self._how)
        if view is None or view.is_identity(found.height, found.width):
            pixels = target((found.height, found.width, 3), np.uint8, out=out)
            fill = libjpeg.prepare(buffer, found, pixels, fast_dct=self._fast_dct)
            return partial(_filled, fill, pixels if out is None else out)
        how = {"fast_dct": self._fast_dct, "decoded": decoded, **self._trusted}
        show: Callable[[], Pixels] = _viewing().prepare_view(buffer, found, view, out=out, **how)
        return show

    def _in_two_steps(
        self, buffer: Buffer, view: View, out: Any, *, header: Header, decoded: Callable[[], object]
    ) -> Pixels:
        pixels = decode(buffer, self._kind, header=header, **self._how)
        decoded()
        warp = import_or_explain("packer.warping", "resizing pictures").warp
        warped: Pixels = warp(pixels, view, self._kind, invalid=self._how["invalid"], out=out)
        return warped


def _filled(fill: Callable[[], None], pixels: Pixels) -> Pixels:
    fill()
    return pixels
