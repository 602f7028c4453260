"""Efficient-PyTorch LMDB: pickled pairs of picture and label under numbers, as folder2lmdb and its kin write them.

Fields: key (the number), image (its bytes as they are) and label (int64), in the order of the numbers, which is that of
ImageFolder when they were written. The values are read without `pickle` (packer.layouts.pickled): nothing in
them is imported or called.
Layout: key = the number in decimal digits; value = the pickle of (bytes, int), of [uint8 array, int], or of ([bytes],
array of one int), the batch of one that thecml/pytorch-lmdb stores; `__keys__` and `__len__` pickled besides.
Values of pyarrow.serialize, which pyarrow itself has given up, are told by name and refused.
"""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.layouts import pickled
from packer.schema import Field
from packer.sources import base
from packer.sources._parse.listing import counted, listed, shown
from packer.sources._records.lmdb_source import LMDBSource

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_KEYS, _LENGTH = b"__keys__", b"__len__"
_PAIR = 2


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(LMDBSource):
    """One LMDB of Efficient-PyTorch's layout, or a folder of them."""

    kind = "efficient-lmdb"
    layout = "pickled pairs of picture and label"
    metadata = (_KEYS, _LENGTH)

    def __init__(self, root: Path, *, layout: str = "auto", follow_links: bool = False) -> None:
        """Find every entry.

        layout: `split`: LMDBs named as splits are of the field split; `auto`: they are refused; `unchecked`: taken.
        follow_links: whether links out of the folder are followed.
        Raises InvalidRequest where there is no such LMDB, BadInput for a damaged one, and for what git-lfs left.
        """
        files = self._list_all(root, follow_links=follow_links, layout=layout)
        self._in_order(len(files))
        self._take(files)
        if len(self) and _is_arrow(self.record(0)):
            raise InvalidRequest(
                f"{shown(str(root))}: its values are of pyarrow.serialize, which packer does not read; pack the "
                "original folder, or write them anew as pickled (bytes, label) with pyarrow 11"
            )
        self._settle(
            [Field("image", "image", "encoded"), Field("label", "number", "number", dtype="int64", shape=())],
            self._others,
        )
        self.notes.append(f"{counted(len(self), 'record')} in {counted(len(files), self.noun)}")

    @classmethod
    def _is_record(cls, key: bytes, value: bytes) -> bool:
        if not key.isdigit():
            return False
        try:
            pair(pickled.loads(value))
        except BadInput:
            return _is_arrow(value)  # to be refused by name
        return True

    def _in_order(self, count: int) -> None:
        """Put the records in the order of their numbers; leave out what is no number or in no list of keys."""
        known = [self._known_keys(number) for number in range(count)]
        rows: list[tuple[int, int, int]] = []
        others: list[str] = []
        for row, (number, key) in enumerate(zip(self._numbers, self._raw_keys, strict=True)):
            names = known[number]
            if key.isdigit() and len(key) < 20 and (names is None or key in names):
                rows.append((number, int(key), row))
            else:
                others.append(key.decode("utf-8", "backslashreplace"))
        if others:
            self.left_out.append(("__keys__", f"{counted(len(others), 'entry')} that __keys__ does not name"))
            self.notes.append(f"left out, since __keys__ does not name them: {listed(others)}")
        rows.sort()
        if len({(number, key) for number, key, _ in rows}) < len(rows):
            raise BadInput(f"{shown(str(self.root))}: two keys are one number, such as 1 and 01")
        self._ids = array("q", (key for _, key, _ in rows))
        for name in ("_numbers", "_offsets", "_sizes"):
            before = getattr(self, name)
            setattr(self, name, array(before.typecode, (before[row] for _, _, row in rows)))
        lacking = [len(names) for names in known if names is not None]
        if all(names is not None for names in known) and sum(lacking) > len(rows):
            self.notes.append(f"__keys__ names {sum(lacking) - len(rows)} more records than there are")
        del self._raw_keys

    def _known_keys(self, number: int) -> set[bytes] | None:
        """What __keys__ lists, None where there is none."""
        data = self._metadata.get((number, _KEYS))
        if data is None:
            return None
        try:
            found = pickled.loads(data)
        except BadInput as error:
            if _is_arrow(data):
                return None  # the records say so
            raise BadInput(f"{self.root}: __keys__: {error.message}") from error
        if not isinstance(found, (list, tuple)):
            raise BadInput(f"{self.root}: __keys__ is no list of keys")
        return {key.encode() if isinstance(key, str) else bytes(key) for key in found if isinstance(key, (str, bytes))}

    def key(self, index: int) -> str:
        at = self.checked(index)
        key = f"{self._ids[at]:08d}"
        return key if len(self._firsts) == 1 else f"{self._stems[self._numbers[at]]}/{key}"

    def _values(self, index: int, record: bytes) -> base.Sample:
        try:
            image, label = pair(pickled.loads(record))
        except BadInput as error:
            raise BadInput(f"{self.where(index)}: {error.message}") from error
        return {"image": image, "label": np.int64(label)}


def pair(value: Any) -> tuple[bytes, int]:
    """Picture and label of an unpickled value, by their types; raises BadInput."""
    if not isinstance(value, (tuple, list)) or len(value) != _PAIR:
        raise BadInput(f"expected a pair of picture and label, found {type(value).__name__}")
    image, label = (_unwrapped(part) for part in value)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 1:
        image = image.tobytes()
    if isinstance(image, str):  # bytes of Python 2
        image = image.encode("latin-1", "replace")
    whole = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
    if not isinstance(image, bytes) or not whole or not -(1 << 63) <= int(label) < 1 << 63:
        raise BadInput(f"expected a picture and a label, found {type(image).__name__} and {type(label).__name__}")
    return image, int(label)


def _unwrapped(value: Any) -> Any:
    """What a list or array of one holds: thecml/pytorch-lmdb stores batches of one."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        return value[0]
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu" and value.dtype != np.uint8:
        return value.reshape(-1)[0]
    return value


def _is_arrow(value: bytes) -> bool:
    """Whether a value begins as pyarrow.serialize writes it: 8 or 16 zeros, then an Arrow stream."""
    return value.startswith(bytes(8))
