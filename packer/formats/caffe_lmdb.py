"""Caffe LMDB: an LMDB of Datum per part, a folder with data.mdb, which Caffe and DALI open by the part's path.

Layout of `part-00000/` (see also `_foreign_part`):
    data.mdb             LMDB data format 1, one unnamed database, an entry for each sample and no other: readers count
                         and parse all of them. Key `%08d_` of the row and the sample's key, value a Datum
                         (packer.layouts.datum) of the image's file, its label and its size
    values.npz           where images lie, and every other field

A key has at most 511 bytes: a longer one ends with 16 hex digits of a hash of all of it. The label is the whole number
in the slot label, an int32; 0 where no field is it. Caffe and other libraries that lock leave a lock.mdb behind, DALI
does not.
"""

import hashlib
from collections.abc import Mapping

from packer.errors import DamagedImage
from packer.formats._foreign_lmdb import MOST_KEY_BYTES, ForeignLMDBWriter
from packer.formats._foreign_part import IMAGE, LABEL, ForeignLayout, ForeignReader, in_slot_image
from packer.images import sniff
from packer.layouts import datum
from packer.schema import KEY, MOST_PIXELS, Schema

SUFFIX = ""

LAYOUT = ForeignLayout("Caffe and DALI", "data.mdb", (), in_slot_image)


class Writer(ForeignLMDBWriter):
    """See the module."""

    layout = LAYOUT
    slots = (IMAGE._replace(is_needed=True), LABEL)
    needs_label = True
    labels = range(-(1 << 31), 1 << 31)
    is_sorted = True

    @classmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        return {KEY: KEY} | {field.name: field.slot for field in schema if field.slot is not None}

    def _entry(self, row: int, values: Mapping[str, bytes]) -> tuple[bytes, bytes, int]:
        image = values[self._held[0]]
        value, inner = datum.encoded(image, self._label_of(values), size=_size(image))
        return _shortened(b"%08d_%s" % (row, values.get(KEY, b""))), value, inner

    def _row(self, key: bytes) -> int:
        return int(key[: key.index(b"_")])


def _size(image: bytes) -> tuple[int, int, int] | None:
    """Channels, height and width of an image, as far as its header says them."""
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
    """See `_foreign_part`."""

    layout = LAYOUT
