"""BasicSR LMDB: an LMDB of image files per part, with meta_info.txt, which BasicSR opens by the part's path.

Layout of `part-00000.lmdb/` (BasicSR requires this suffix; see also `_foreign_part`):

| file          | content                                                                                             |
|---------------|-----------------------------------------------------------------------------------------------------|
| data.mdb      | LMDB data format 1: key: the sample's name, value: the bytes of the image's file                    |
| meta_info.txt | a line `name.png (height,width,channels) 1` for each sample, in the order of the keys               |
| values.npz    | the places of the images, and every other field                                                     |

The name of a sample is its key without the suffix. `_` replaces other dots, because BasicSR cuts a line at its first
dot to get the name. `~` and the row are appended to a name that is taken or too long for LMDB. The last number of a
line is the PNG compression level that BasicSR's writer adds. BasicSR decodes any image format of OpenCV, and reads no
labels.
Source: BasicSR 1.4, scripts/data_preparation/create_lmdb.py and data/data_util.py (paired_paths_from_lmdb).
"""

import re
from collections.abc import Iterator, Mapping
from itertools import count

from packer.errors import DamagedImage
from packer.formats._foreign_lmdb import ForeignLMDBWriter
from packer.formats._foreign_part import IMAGE, ForeignLayout, ForeignReader, in_slot_image
from packer.images import sniff
from packer.layouts.lmdb_reader import MOST_KEY_BYTES
from packer.schema import KEY, MOST_PIXELS, Schema

SUFFIX = ".lmdb"
_META = "meta_info.txt"
_NUMBER_BYTES = 24  # room for the row in a name

LAYOUT = ForeignLayout("BasicSR", "data.mdb", (_META,), in_slot_image)


class Writer(ForeignLMDBWriter):
    """Adds an LMDB entry for each sample: name -> image. All names stay in memory until the part is finished."""

    layout = LAYOUT
    slots = (IMAGE._replace(is_needed=True),)

    @classmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        return {KEY: KEY, **super().shown(schema)}

    def _begin(self, payload_bytes: int) -> None:
        super()._begin(payload_bytes)
        self._meta = self._make(_META)
        self._rows: dict[bytes, int] = {}
        self._lines: dict[bytes, bytes] = {}

    def _entry(self, row: int, values: Mapping[str, bytes]) -> tuple[bytes, bytes, int]:
        image = values[self._held[0]]
        name = next(name for name in _names(values.get(KEY, b""), row) if name not in self._rows)
        self._rows[name] = row
        self._lines[name] = b"%s.png (%d,%d,%d) 1\n" % (name, *_size(image))
        return name, image, 0

    def _row(self, key: bytes) -> int:
        return self._rows[key]

    def _complete(self) -> None:
        super()._complete()
        self._meta.writelines(self._lines[name] for name in sorted(self._lines))


def _names(key: bytes, row: int) -> Iterator[bytes]:
    """Yield names for a sample: its key without suffix, then names with the row. The writer uses the first free one."""
    stem = re.sub(rb"\.[A-Za-z0-9]{1,5}$", b"", key)
    plain = re.sub(rb"[.\0-\x1f]", b"_", stem).strip()
    if plain and len(plain) <= MOST_KEY_BYTES:
        yield plain
    short = plain[: MOST_KEY_BYTES - _NUMBER_BYTES]
    yield b"%s~%d" % (short, row)
    yield from (b"%s~%d~%d" % (short, row, number) for number in count(1))


def _size(image: bytes) -> tuple[int, int, int]:
    """Return (height, width, channels) of an image file; zeros if its header is damaged."""
    try:
        header = sniff(image, MOST_PIXELS)
    except DamagedImage:
        return 0, 0, 0
    return header.height, header.width, header.channels


class Reader(ForeignReader):
    """Returns slices of data.mdb and values.npz."""

    layout = LAYOUT
