"""LMDB: one memory-mapped B+tree file per part, read by any LMDB library.

Layout of `part-00000.lmdb` (LMDB data format 1, one unnamed database, no subfolder, no lock file):

| key                                             | value                                                          |
|-------------------------------------------------|----------------------------------------------------------------|
| 8 bytes, big-endian uint64: row * number of     | the encoded value                                              |
| fields + position of the field in the schema    |                                                                |
| b"packer", written last                         | JSON {"fields": [names in order], "samples": rows}             |

packer.layouts.lmdb_reader describes the pages.
"""

import mmap
import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from packer.errors import CorruptPack, InvalidRequest, PackerError
from packer.formats import base
from packer.formats._column_part import check_end, end_record, mapping, opening
from packer.formats._new_lmdb import NewLMDB, file_bytes
from packer.layouts.lmdb_reader import HEADER_BYTES, LEAF, Tree
from packer.schema import Buffer, Schema

SUFFIX = ".lmdb"
_END = b"packer"
_MOST_END_BYTES = 1 << 20  # 10,000 names of 64 characters
_NODE_BYTES = 16  # of a node with a key of 8 bytes, before its value
_pointer = Struct("<H").unpack_from
_numbered = Struct("<HHHH8s").unpack_from  # a leaf node with a key of 8 bytes: low, high, flags, size of the key, key


class Writer(base.Writer):
    """Appends the values of each record under ascending keys, without a sync to disk."""

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        super().__init__(path, schema, payload_bytes=payload_bytes)
        self._rows = 0
        self._finished = False
        if os.path.lexists(path):
            raise InvalidRequest(f"{path}: a part must be new, found a file; remove it")
        self._file = NewLMDB(path, part=path, payload_bytes=payload_bytes, is_sorted=True)

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        return file_bytes(payload_bytes, values)

    def write(self, record: base.Record) -> None:
        # bytes() copies memory that the caller may reuse, and returns a bytes object unchanged
        values = [bytes(record[name]) for name in self.schema.names]
        first = self._rows * len(values)
        self._file.put([((first + at).to_bytes(8, "big"), value) for at, value in enumerate(values)])
        self._rows += 1

    def finish(self) -> None:
        if self._finished:
            return
        self._file.commit((_END, end_record(self.schema, self._rows)))
        self._finished = True
        self.close()

    def close(self) -> None:
        self._file.close()


class Reader(base.Reader):
    """Returns values as slices of the mapped file."""

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        super().__init__(path, schema, samples=samples, readahead=readahead)
        self._positions = {name: at for at, name in enumerate(schema.names)}
        with opening(path), path.open("rb") as file, mapping(path, file.fileno(), readahead=readahead) as mapped:
            self._tree = BTree(path, mapped, count=samples * len(schema) + 1)
            try:
                end = bytes((self._tree.value_of(_END) or b"")[: _MOST_END_BYTES + 1])
                check_end(path, end, schema=schema, samples=samples, most_bytes=_MOST_END_BYTES)
            except BaseException:
                self._tree.close()
                raise

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        first = row * len(self._positions)
        return {name: self._value(row, name, first + self._positions[name]) for name in names}

    def _value(self, row: int, name: str, number: int) -> memoryview:
        value = self._tree.value(number)
        if value is None:
            raise CorruptPack(f"{self.path}: row {row} has no field {name!r}; pack again")
        return value

    def values(self, rows: Sequence[int], name: str) -> Sequence[memoryview]:
        fields, position = len(self._positions), self._positions[name]
        return [self._value(row, name, row * fields + position) for row in rows]

    def close(self) -> None:
        self._tree.close()


class BTree(Tree):
    """Finds the values of an LMDB file that is mapped. Thread-safe: it takes no lock and begins no transaction."""

    def __init__(self, path: Path, mapped: mmap.mmap, *, count: int | None = None) -> None:
        """Read the branch pages, except those directly above the leaves. Raises CorruptPack.

        Args:
            path: The file, for messages.
            mapped: The complete file.
            count: Expected number of entries. None accepts any number.
        """
        self._data = memoryview(mapped)
        self._view: memoryview | None = self._data  # None after `close`
        try:
            super().__init__(path, len(mapped))
            if count not in (None, self.count):
                raise self._damage(f"expected {count} entries, found {self.count}")
            above = list(self.pages_below(self.root, b"", self.depth - 1, seen=set())) if self.count else []
            self._above = [page for page, _ in above]  # the pages above the leaves
            self._bounds = [int.from_bytes(first, "big") for _, first in above]  # of their keys as numbers
            self._leaves: dict[int, tuple[list[int], list[int]]] = {}  # position in `_above` -> bounds, pages
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the file. It stays mapped until its last slice is gone. No other thread may read during the call."""
        self._data.release()  # the frames of an error may refer to it for long
        self._view = None

    def value(self, number: int) -> memoryview | None:
        """Return the value of the key `number` (8 bytes, big-endian) as a slice, or None. Raises CorruptPack."""
        view = self._view if self._view is not None else self._open()
        at = bisect_right(self._bounds, number) - 1
        if at < 0:
            return None
        bounds, pages = self._leaves.get(at) or self._read_leaves(at)
        leaf = bisect_right(bounds, number) - 1
        page, key = pages[leaf], number.to_bytes(8, "big")
        _, start, count = self.page(page, LEAF)
        # numbers have no gaps: the distance from the first number of the leaf is the position of the node
        at = number - bounds[leaf]
        if 0 <= at < count:
            (node,) = _pointer(view, start + HEADER_BYTES + 2 * at)
            if HEADER_BYTES <= node <= self.page_bytes - _NODE_BYTES:
                low, high, flags, key_bytes, found = _numbered(view, start + node)
                if found == key and key_bytes == 8:
                    size = low | high << 16
                    offset = self._value_at(view, start, node + _NODE_BYTES, size=size, flags=flags, page=page, key=key)
                    return view[offset : offset + size]
        return self.value_of(key)

    def value_of(self, key: bytes) -> memoryview | None:
        """Return the value of any key as a slice, or None if the key does not exist; raises CorruptPack."""
        view = self._open()
        entry = self.find(key)
        return None if entry is None else view[entry.offset : entry.offset + entry.size]

    def _open(self) -> memoryview:
        if self._view is None:
            raise InvalidRequest(f"{self.path}: the reader is closed; open it again")
        return self._view

    def _at(self, offset: int, size: int) -> tuple[Buffer, int]:
        return self._data, offset

    def _read_leaves(self, at: int) -> tuple[list[int], list[int]]:
        """Read the page `_above[at]`, which is above leaves. Return the first key and the page number of each leaf.

        The first keys are numbers. The key of `_END` has 6 bytes, but as a number it is above all others.
        """
        found = list(self.pages_below(self._above[at], b"", min(self.depth, 2), seen=set()))
        if not found:
            raise self._damage(f"page {self._above[at]} has no page below it")
        bounds = [self._bounds[at], *(int.from_bytes(first, "big") for _, first in found[1:])]
        self._leaves[at] = bounds, [page for page, _ in found]
        return self._leaves[at]

    def _damage(self, found: str) -> PackerError:
        return CorruptPack(f"{self.path}: damaged LMDB file: {found}; packer verify names the samples; pack again")

    def _unsupported(self, found: str) -> PackerError:
        return self._damage(found)
