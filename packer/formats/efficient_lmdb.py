"""Efficient-PyTorch LMDB: an LMDB per part, which contains a pickled pair (image file, label) for each sample.

Layout of `part-00000/` (see also `_foreign_part`):

| file       | content                                                                                                |
|------------|--------------------------------------------------------------------------------------------------------|
| data.lmdb  | LMDB data format 1 in one file. Key: the row in decimal digits; value: the pickle of (bytes of the     |
|            | image's file, label). `__keys__`: the pickled list of keys; `__len__`: their pickled number. The       |
|            | tool's readers require both                                                                            |
| values.npz | the places of the images, and every other field                                                        |

packer.layouts.pickled writes the pickles: protocol 3, bytes, a whole number and a tuple. Unpickling them calls no
function. The label is the field that is exported as `label`, or 0 without this field.
Source: github.com/xunge/pytorch_lmdb_imagenet.
"""

from collections.abc import Mapping

from packer.errors import InvalidRequest
from packer.formats._foreign_lmdb import ForeignLMDBWriter
from packer.formats._foreign_part import IMAGE, LABEL, ForeignLayout, ForeignReader, in_slot_image
from packer.layouts import pickled

SUFFIX = ""
_KEYS, _LENGTH = b"__keys__", b"__len__"
_MOST_BYTES = (1 << 32) - (1 << 10)  # of a value in LMDB

LAYOUT = ForeignLayout("Efficient-PyTorch's readers", "data.lmdb", (), in_slot_image)


class Writer(ForeignLMDBWriter):
    """Adds an entry to data.lmdb for each record: the pickle of (image file, label)."""

    layout = LAYOUT
    slots = (IMAGE._replace(is_needed=True), LABEL)
    needs_label = True

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
    """Returns slices of data.lmdb and values.npz."""

    layout = LAYOUT
