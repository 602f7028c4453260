"""Field decoder: decodes the images of one field, with the same options for all.

This is the fast path of every batch. An ordinary JPEG is decoded directly into the memory of the batch, or only the
part that a view needs. packer.images.decode decodes everything else.

Equal headers of JPEGs with one scan are parsed once, because a data set has few encoders and sizes. Headers are equal
if only the lengths of restart intervals (packer.images.restart_interval_table) differ.
"""

import struct
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.geometry import View
from packer.images.backends import strict_jpeg
from packer.images.decode import DEFAULT_OPTIONS, DecodeOptions, decode
from packer.images.file_types import sniff
from packer.images.file_types._header_record import MAX_PIXELS, Buffer, Header
from packer.images.restart_interval_table import HEAD_BYTES
from packer.registry import import_or_explain
from packer.system.exact_casts import target

_MOST_BYTES = 2048  # longer headers contain EXIF or previews, and are all different
_MOST_FORMS = 2
_MOST_HEADERS = 512
_LENGTH = struct.Struct(">H").unpack_from


class _HeaderForm:
    """Cached headers with a table at `table_at` and `rest` bytes after it, or of `rest` bytes if `table_at` is 0."""

    def __init__(self, table_at: int, rest: int) -> None:
        self.name = table_at, rest
        self._table_at = table_at
        self._rest = rest
        self.known: dict[bytes, Header] = {}

    def key(self, buffer: Buffer) -> bytes:
        """Return the header's bytes without the lengths in its table. Raises struct.error if the file is too short."""
        at = self._table_at
        if not at:
            return bytes(buffer[: self._rest])
        after = at + _LENGTH(buffer, at)[0]
        return bytes(buffer[: at + HEAD_BYTES]) + bytes(buffer[after : after + self._rest])


class HeaderCache:
    """Parsed headers of the images of one field. Thread-safe."""

    def __init__(self, max_pixels: int = MAX_PIXELS) -> None:
        self._max_pixels = max_pixels
        self._forms: tuple[_HeaderForm, ...] = ()

    def of(self, buffer: Buffer) -> Header:
        """Return the result of `sniff` for an image with the limit `max_pixels`, or raise its error."""
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

    def stats(self) -> list[int]:
        """Return the number of cached headers of each `_HeaderForm`, beginning with the newest form."""
        return [len(form.known) for form in self._forms]

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


class StoredImage(NamedTuple):
    """Shape and header of an image before it is decoded.

    Attributes:
        shape: Shape of its stored pixels.
        header: Header of its file, None if the codec stores pixels without a file.
    """

    shape: tuple[int, ...]
    header: Header | None


@cache
def _region_decoder() -> ModuleType:
    """Import the region decoder on first use. It imports OpenCV, which is not needed to pack files."""
    return import_or_explain("packer.images.region_decoder", "resizing images")


def _shows_all(view: View | None, found: Header) -> bool:
    """Return True if `view` shows the complete image without a change."""
    return view is None or view.is_identity(found.height, found.width)


class Decoder:
    """Decodes the images of one field, with the results and errors of packer.images.decode. Thread-safe."""

    def __init__(
        self,
        kind: str,
        options: DecodeOptions = DEFAULT_OPTIONS,
        *,
        wide: bool = False,
        invalid: float | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        """Create a decoder with arguments of packer.images.decode. More than `max_pixels` pixels raise DamagedImage."""
        self._kind = kind
        self._options = options
        self._wide = wide
        self._invalid = invalid
        self.read_header = HeaderCache(max_pixels).of  # the header of a file
        self._fast_dct = options.dct == "fast"
        self._plain = kind == "image" and options.decoder != "opencv"

    def __call__(
        self,
        buffer: Buffer,
        view: View | None = None,
        out: Any = None,
        *,
        header: Header | None = None,
        decoded: Callable[[], object] | None = None,
    ) -> Pixels:
        """Decode an image, through a view if there is one. `prepare` describes `header` and `decoded`.

        `out` is C-contiguous memory with the shape and dtype of the result. Other memory raises InvalidRequest.
        """
        found = header or self.read_header(buffer)
        if self._is_fast(found) and _shows_all(view, found):
            if out is not None:
                target((found.height, found.width, 3), np.uint8, out=out)
            return self._decode_whole(buffer, found, out)
        return self.prepare(buffer, view, out, header=found, decoded=decoded)()

    def stored_image(self, buffer: Buffer) -> StoredImage:
        """Return the header of an image, and the shape (H, W, 3) for an image, or (H, W) for depth or a mask."""
        found = self.read_header(buffer)
        size = found.height, found.width
        return StoredImage((*size, 3) if self._kind == "image" else size, found)

    def prepare(
        self,
        buffer: Buffer,
        view: View | None = None,
        out: Any = None,
        *,
        header: Header | None = None,
        decoded: Callable[[], object] | None = None,
    ) -> Callable[[], Pixels]:
        """Return a function that decodes the image. Call it only once, in the same thread, because it uses its memory.

        A batch prepares several images before it decodes them, which is faster, because it uses the CPU caches better.

        Args:
            buffer: The file.
            view: View of the image, None for the stored pixels.
            out: Memory that must have the shape and dtype of the result. It is not checked. None for new memory.
            header: Result of `sniff` for the same bytes. None reads the header.
            decoded: Function that is called between decoding and warping. Without a warp, it is not called.
        """
        found = header or self.read_header(buffer)
        is_fast = self._is_fast(found)
        if is_fast and _shows_all(view, found):
            return partial(self._decode_whole, buffer, found, out)
        if view is None or not is_fast:
            if decoded is not None and view is not None:
                return partial(self._in_two_steps, buffer, view, out, header=found, decoded=decoded)
            return partial(
                decode,
                buffer,
                self._kind,
                wide=self._wide,
                options=self._options,
                view=view,
                invalid=self._invalid,
                header=found,
                out=out,
            )
        show: Callable[[], Pixels] = _region_decoder().prepare_view(
            buffer, found, view, options=self._options, out=out, decoded=decoded
        )
        return show

    def _is_fast(self, found: Header) -> bool:
        """Return True if only libjpeg-turbo decodes the image: a JPEG, not CMYK, kind image, decoder not "opencv"."""
        return self._plain and found.format == "jpeg" and not found.cmyk

    def _decode_whole(self, buffer: Buffer, found: Header, out: Any) -> Pixels:
        pixels = np.empty((found.height, found.width, 3), np.uint8) if out is None else out
        strict_jpeg.decode(buffer, found, pixels, fast_dct=self._fast_dct)
        return pixels

    def _in_two_steps(
        self, buffer: Buffer, view: View, out: Any, *, header: Header, decoded: Callable[[], object]
    ) -> Pixels:
        pixels = decode(
            buffer, self._kind, wide=self._wide, options=self._options, invalid=self._invalid, header=header
        )
        decoded()
        warp = import_or_explain("packer.geometry.warp", "resizing images").warp
        warped: Pixels = warp(pixels, view, self._kind, invalid=self._invalid, out=out)
        return warped
