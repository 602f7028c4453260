"""Field decoder: the pictures of one field, decoded the way they are wanted, which is said once.

What every batch does for every image is here, in few steps: an ordinary JPEG goes straight into the given memory, or
through a view no further than the view shows. All else is packer.images.decode's.

Headers of JPEGs that begin alike are worked out once. The pictures of a set come from few encoders: up to their data
they have the same bytes, but for their size and for the table of packer.images.restart_intervals. What a header says
depends on these bytes alone, where there is one scan.
"""

import struct
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.geometry import View
from packer.images.backends import libjpeg
from packer.images.decode import decode
from packer.images.header import MAX_PIXELS, Buffer, Header
from packer.images.headers.detection import sniff
from packer.images.restart_intervals import HEAD_BYTES
from packer.registry import import_or_explain
from packer.system.arrays import target

_MOST_BYTES = 2048  # of a header without its table: longer ones have EXIF or previews in them, and are all different
_MOST_FORMS = 2
_MOST_HEADERS = 512
_LENGTH = struct.Struct(">H").unpack_from


class _HeaderForm:
    """Headers of one length, apart from that of a table at `table_at` (0 for none)."""

    def __init__(self, table_at: int, rest: int) -> None:
        self.name = table_at, rest
        self._table_at = table_at
        self._rest = rest
        self.known: dict[bytes, Header] = {}

    def key(self, buffer: Buffer) -> bytes:
        """All of the header but the lengths in the table; struct.error where the file is too short for one."""
        at = self._table_at
        if not at:
            return bytes(buffer[: self._rest])
        after = at + _LENGTH(buffer, at)[0]
        return bytes(buffer[: at + HEAD_BYTES]) + bytes(buffer[after : after + self._rest])


class HeaderCache:
    """For one field; for many threads."""

    def __init__(self, max_pixels: int = MAX_PIXELS) -> None:
        self._max_pixels = max_pixels
        self._forms: tuple[_HeaderForm, ...] = ()

    def of(self, buffer: Buffer) -> Header:
        """What sniff(buffer, max_pixels) gives, or raises."""
        for form in self._forms:
            try:
                found = form.known.get(form.key(buffer))
            except struct.error:
                continue
            if found is not None:
                return found
        found = sniff(buffer, self._max_pixels)
        if found.format == "jpeg" and found.scans == 1 and not found.progressive:
            self._keep(buffer, found)
        return found

    def _keep(self, buffer: Buffer, found: Header) -> None:
        table_at = found.intervals.table_at if found.intervals is not None else 0
        after = table_at + _LENGTH(buffer, table_at)[0] if table_at else 0
        name = table_at, found.data_at - after
        if sum(name) > _MOST_BYTES:
            return
        form = next((form for form in self._forms if form.name == name), None)
        if form is None:
            form = _HeaderForm(*name)
            self._forms = (form, *self._forms)[:_MOST_FORMS]
        if len(form.known) >= _MOST_HEADERS:
            form.known = {}
        form.known[form.key(buffer)] = found


# ---- the decoder

Pixels = npt.NDArray[Any]


@cache
def _viewing() -> ModuleType:
    """What views need, loaded when one is asked for: it brings OpenCV, which packing kept bytes does without."""
    return import_or_explain("packer.images.region", "resizing pictures")


class Decoder:
    """Decodes pictures of one kind; arguments, results and errors as of packer.images.decode. For many threads."""

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
        self.look = HeaderCache(max_pixels).of  # the header of a file
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
        warp = import_or_explain("packer.geometry.warp", "resizing pictures").warp
        warped: Pixels = warp(pixels, view, self._kind, invalid=self._how["invalid"], out=out)
        return warped


def _filled(fill: Callable[[], None], pixels: Pixels) -> Pixels:
    fill()
    return pixels
