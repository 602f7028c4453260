"""Caffe LMDB: an LMDB of Datum per part, a folder with data.mdb, which Caffe and DALI open by the part's path.

Layout of `part-00000/` (see also `_foreign_part`):

| file       | content                                                                                                |
|------------|--------------------------------------------------------------------------------------------------------|
| data.mdb   | LMDB data format 1, one unnamed database with one entry per sample and no other: readers count all     |
|            | key: `%08d_` of the row, and the sample's key. If it has more than 511 bytes, it is cut and ends with  |
|            | 16 hex digits of its hash                                                                              |
|            | value: a Datum (packer.layouts.datum) of the image's file, its label and its size                      |
| values.npz | the places of the images, and every other field                                                        |

The label is the field that is exported as `label`, an int32, or 0 without this field. Caffe and other libraries that
lock leave a lock.mdb; DALI does not.
Source: Caffe, tools/convert_imageset.cpp.
"""

import hashlib
from collections.abc import Mapping

from packer.errors import DamagedImage
from packer.formats._foreign_lmdb import ForeignLMDBWriter
from packer.formats._foreign_part import IMAGE, LABEL, ForeignLayout, ForeignReader, in_slot_image
from packer.images import sniff
from packer.layouts import datum
from packer.layouts.lmdb_reader import MOST_KEY_BYTES
from packer.schema import KEY, MOST_PIXELS, Schema

SUFFIX = ""

LAYOUT = ForeignLayout("Caffe and DALI", "data.mdb", (), in_slot_image)


class Writer(ForeignLMDBWriter):
    """Adds an entry to data.mdb for each record: a Datum with the bytes of the image file, its label and its size."""

    layout = LAYOUT
    slots = (IMAGE._replace(is_needed=True), LABEL)
    needs_label = True
    labels = range(-(1 << 31), 1 << 31)
    is_sorted = True

    @classmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        return {KEY: KEY, **super().shown(schema)}

    def _entry(self, row: int, values: Mapping[str, bytes]) -> tuple[bytes, bytes, int]:
        image = values[self._held[0]]
        value, inner = datum.encoded(image, self._label_of(values), size=_size(image))
        return _shortened(b"%08d_%s" % (row, values.get(KEY, b""))), value, inner

    def _row(self, key: bytes) -> int:
        return int(key[: key.index(b"_")])


def _size(image: bytes) -> tuple[int, int, int] | None:
    """Return (channels, height, width) of an image file, or None if its header is damaged."""
    try:
        header = sniff(image, MOST_PIXELS)
    except DamagedImage:
        return None
    return header.channels, header.height, header.width


def _shortened(key: bytes) -> bytes:
    if len(key) <= MOST_KEY_BYTES:
        return key
    mark = b"~" + hashlib.blake2b(key, digest_size=8).hexdigest().encode()
    return key[: MOST_KEY_BYTES - len(mark)] + mark


class Reader(ForeignReader):
    """Returns slices of data.mdb and values.npz."""

    layout = LAYOUT
