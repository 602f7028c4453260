"""Headers: what `sniff` says of many files, those of JPEGs that begin alike worked out once.

The pictures of a set come from few encoders: up to their data they have the same bytes, but for their size and for the
table of packer.decoders.intervals. What a header says depends on these bytes alone, where there is one scan.
"""

import struct

from packer.decoders.header import MAX_PIXELS, Buffer, Header
from packer.decoders.intervals import HEAD_BYTES
from packer.decoders.sniffing import sniff

_MOST_BYTES = 2048  # of a header without its table: longer ones have EXIF or previews in them, and are all different
_MOST_FORMS = 2
_MOST_HEADERS = 512
_LENGTH = struct.Struct(">H").unpack_from


class _Form:
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


class Headers:
    """For one field; for many threads."""

    def __init__(self, max_pixels: int = MAX_PIXELS) -> None:
        self._max_pixels = max_pixels
        self._forms: tuple[_Form, ...] = ()

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
            form = _Form(*name)
            self._forms = (form, *self._forms)[:_MOST_FORMS]
        if len(form.known) >= _MOST_HEADERS:
            form.known = {}
        form.known[form.key(buffer)] = found
