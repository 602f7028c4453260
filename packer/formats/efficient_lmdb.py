"""Efficient-PyTorch LMDB: an LMDB of pickled pairs per part, as xunge/pytorch_lmdb_imagenet lays it out.

Layout of `part-00000/` (see also `_foreign_part`):
    data.lmdb            LMDB data format 1 in one file, as these tools open it. Key: the row in decimal digits; value:
                         the pickle of (bytes of the image's file, label). `__keys__`: the pickle of the list of keys,
                         `__len__`: of their number, which is what these readers ask for
    values.npz           where images lie, and every other field

The pickles are written by hand (packer.layouts.pickled): protocol 3, bytes, a whole number and a tuple, nothing that
calls anything. The label is the whole number in the slot label; 0 where no field is it.
"""

from collections.abc import Mapping

from packer.errors import InvalidRequest
from packer.formats._foreign_lmdb import ForeignLMDBWriter
from packer.formats._foreign_part import IMAGE, LABEL, ForeignLayout, ForeignReader, in_slot_image
from packer.layouts import pickled
from packer.schema import Schema

SUFFIX = ""
_KEYS, _LENGTH = b"__keys__", b"__len__"
_MOST_BYTES = (1 << 32) - (1 << 10)  # of a value in LMDB

LAYOUT = ForeignLayout("Efficient-PyTorch's readers", "data.lmdb", (), in_slot_image)


class Writer(ForeignLMDBWriter):
    """See the module."""

    layout = LAYOUT
    slots = (IMAGE._replace(is_needed=True), LABEL)
    needs_label = True

    @classmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        return {field.name: field.slot for field in schema if field.slot is not None}

    def _check(self, values: Mapping[str, bytes]) -> None:
        size = len(values[self._held[0]])
        if size > _MOST_BYTES:
            raise InvalidRequest(f"{self.path}: an image of {size:,} bytes, LMDB holds at most {_MOST_BYTES:,}")

    def _entry(self, row: int, values: Mapping[str, bytes]) -> tuple[bytes, bytes, int]:
        value, inner = pickled.pair(values[self._held[0]], self._label_of(values))
        return b"%d" % row, value, inner

    def _row(self, key: bytes) -> int | None:
        return int(key) if key.isdigit() else None

    def _more(self) -> list[tuple[bytes, bytes]]:
        count = len(self._sizes)
        return [(_KEYS, pickled.pickled_keys(count)), (_LENGTH, pickled.pickled_count(count))]


class Reader(ForeignReader):
    """See `_foreign_part`."""

    layout = LAYOUT
