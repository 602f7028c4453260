"""LMDB: one memory-mapped B+tree file per part, read by any LMDB library.

Layout of `part-00000.lmdb` (LMDB data format 1, one unnamed database, no subfolder, no lock file):
    key   8 bytes, big-endian uint64: row * number of fields + position of the field in the schema
    value the encoded value, as it is
    last  key b"packer", value JSON {"fields": [names in order], "samples": rows}: written by finish()

Pages, as a little-endian 64-bit machine writes them (source: LMDB 0.9, mdb.c, the structures MDB_page, MDB_node,
MDB_meta and MDB_db; offsets in bytes):
    page      0 number u64; 10 flags u16; 12 end of the node pointers u16; 16 node pointers u16, the places of the nodes
              in the page, in the order of their keys. Pages 0 and 1 are meta pages.
    node      0 low u16; 2 high u16; 4 flags u16; 6 size of the key u16; 8 key; then the value.
              In a leaf low and high are the size of the value; with flag 1 it stands in overflow pages, and here the
              number u64 of the first. In a branch low, high and flags are the number of the page below, whose keys
              are the node's key or follow it; the key of the first node is not looked at.
    overflow  0 number u64; 10 flags u16; 12 how many pages u32; the value from 16 on, through all of them.
    meta      16 magic u32; 20 version u32; 40 the free database, 88 the main one; 144 transaction u64: the meta page
              of the later one counts.
    database  0 in the free one the size of a page u32; 4 flags u16; 6 depth u16; 32 entries u64; 40 root page u64.
"""

import json
import mmap
import os
from bisect import bisect_right
from collections.abc import Sequence
from operator import ge
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from packer.errors import CorruptPack, InvalidRequest
from packer.formats import base
from packer.formats._columns import mapping, opening
from packer.formats._new_lmdb import NewLMDB, file_bytes
from packer.schema import Schema

SUFFIX = ".lmdb"
_END = b"packer"


class Writer(base.Writer):
    """Appends records in key order, unsynced: a part counts only when a done-record or the manifest names it."""

    has_thread = True

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
        # bytes() copies what the caller may reuse or unmap, and gives bytes themselves back as they are
        values = [bytes(record[name]) for name in self.schema.names]
        first = self._rows * len(values)
        self._file.put([((first + at).to_bytes(8, "big"), value) for at, value in enumerate(values)])
        self._rows += 1

    def finish(self) -> None:
        if self._finished:
            return
        end = json.dumps({"fields": list(self.schema.names), "samples": self._rows}, sort_keys=True).encode()
        self._file.commit((_END, end))
        self._finished = True
        self.close()

    def close(self) -> None:
        self._file.close()


class Reader(base.Reader):
    """Finds values in the mapped file without the library (see BTree); they are slices of it."""

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        super().__init__(path, schema, samples=samples, readahead=readahead)
        self._places = {name: at for at, name in enumerate(schema.names)}
        with opening(path), path.open("rb") as file, mapping(path, file.fileno(), readahead=readahead) as mapped:
            self._tree = BTree(path, mapped, entries=samples * len(schema) + 1)
            try:
                self._check_end()
            except BaseException:
                self._tree.close()
                raise

    def _check_end(self) -> None:
        end = self._tree.find(_END)
        expected = {"fields": list(self.schema.names), "samples": self.samples}
        try:
            found = json.loads(end) if end is not None else None
        except (ValueError, RecursionError) as error:
            raise CorruptPack(f"{self.path}: the end record is damaged: {end!r:.60}; pack again") from error
        if found != expected:
            raise CorruptPack(
                f"{self.path}: the part does not hold what the manifest says: expected {self.samples} samples of "
                f"{', '.join(self.schema.names):.200}, found end record {found!r:.200}; "
                "pack again"
            )

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        first = row * len(self._places)
        return {name: self._value(row, name, first + self._places[name]) for name in names}

    def _value(self, row: int, name: str, number: int) -> memoryview:
        value = self._tree.value(number)
        if value is None:
            raise CorruptPack(f"{self.path}: row {row} has no field {name!r}; pack again")
        return value

    def values(self, rows: Sequence[int], name: str) -> Sequence[memoryview]:
        fields, place = len(self._places), self._places[name]
        return [self._value(row, name, row * fields + place) for row in rows]

    def close(self) -> None:
        self._tree.close()


# ---- the pages of a file, read without the library

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
_IN_OVERFLOW = 1  # flag of a node
_HEADER = 16  # bytes, of a page
_PAGE_SIZES = {1 << power for power in range(9, 17)}  # what LMDB makes
_NO_ROOT = (1 << 64) - 1

_META_BYTES = 152
_MOST_DEPTH = 32  # LMDB's own limit, CURSOR_STACK
_MOST_FOUND_BYTES = 1 << 20  # of the end record: 10,000 names of 64 characters
_MOST_KEY_BYTES = 511  # LMDB's own limit, MDB_MAXKEYSIZE

_page = Struct("<QHHH").unpack_from  # number, pad, flags, end of the node pointers
_overflow = Struct("<QHH").unpack_from  # number, pad, flags
_header = Struct("<HHHH").unpack_from  # of a node: low, high, flags, size of the key
_numbered = Struct("<HHHH8s").unpack_from  # a node of a leaf with a key of 8 bytes
_identity = Struct("<II").unpack_from  # magic, version
_database = Struct("<IHHQQQQQ").unpack_from  # pad, flags, depth, branch, leaf, overflow pages, entries, root
_u16 = Struct("<H").unpack_from
_u64 = Struct("<Q").unpack_from


class _Meta(NamedTuple):
    """What a meta page says, the later one being the larger."""

    transaction: int
    page_bytes: int
    depth: int
    entries: int
    root: int


class BTree:
    """The main database of a mapped file: values under numbers, keys of 8 bytes big-endian, and a few under other keys.

    It walks the pages without the library, and believes nothing that a page says. liblmdb follows page and node numbers
    as they stand in the file, so that a flipped byte can end the process by a signal. Here each is compared with the
    page or the file before it is used. Nothing is locked and no transaction is begun: reads by many threads do not
    meet, and a fork cannot cut one off.
    """

    def __init__(self, path: Path, mapped: mmap.mmap, *, entries: int | None = None) -> None:
        """Walks the branch pages, one in some hundred; raises CorruptPack.

        entries: how many the file must have, where that is known; compared before anything is walked.
        """
        self._path = path
        self._size = len(mapped)
        self._view: memoryview | None = memoryview(mapped)
        try:
            meta = self._newest(self._view)
            self.entries = meta.entries
            if entries not in (None, meta.entries):
                raise self._damage(f"it has {meta.entries} entries, expected {entries}")
            self._page_bytes = meta.page_bytes
            self._leaves, self._firsts = self._walk(self._view, meta)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file, which nobody may be reading; it is unmapped with the last slice."""
        if self._view is not None:
            self._view.release()  # the frames of an error may hold it for long
        self._view = None

    def value(self, number: int) -> memoryview | None:
        """A slice of the mapping, which lives as long as it is held; None where there is no such key. CorruptPack."""
        view = self._open()
        key = number.to_bytes(8, "big")
        start, count, first = self._leaf(view, key)
        # rows are numbered without a gap: how far a key is from the first in its leaf says where its node is
        at = number - int.from_bytes(first, "big")
        if 0 <= at < count:
            (node,) = _u16(view, start + _HEADER + 2 * at)
            if _HEADER <= node <= self._page_bytes - 16:
                low, high, flags, key_bytes, found = _numbered(view, start + node)
                if found == key and key_bytes == 8:
                    return self._content(view, start, node + 16, size=low | high << 16, flags=flags)
        return self._search(view, key)

    def find(self, key: bytes) -> bytes | None:
        """A copy of the value of any key, of at most 1 MiB; None where there is none, raises CorruptPack."""
        value = self._search(self._open(), key)
        if value is not None and len(value) > _MOST_FOUND_BYTES:
            raise self._damage(f"a value of {len(value)} bytes under {key!r}, expected at most {_MOST_FOUND_BYTES}")
        return None if value is None else bytes(value)

    def _open(self) -> memoryview:
        if self._view is None:
            raise InvalidRequest(f"{self._path}: the reader is closed; open it again")
        return self._view

    def _search(self, view: memoryview, key: bytes) -> memoryview | None:
        start, count, _ = self._leaf(view, key)
        for at in range(count):
            node, found = self._node(view, start, at)
            if found == key:
                low, high, flags, key_bytes = _header(view, start + node)
                return self._content(view, start, node + 8 + key_bytes, size=low | high << 16, flags=flags)
        return None

    def _leaf(self, view: memoryview, key: bytes) -> tuple[int, int, bytes]:
        """First byte of the leaf that would hold a key, how many nodes it has, and what they begin with at least."""
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return 0, 0, b""
        return *self._nodes(view, self._leaves[at], _LEAF), self._firsts[at]

    def _nodes(self, view: memoryview, page: int, kind: int) -> tuple[int, int]:
        """First byte of a page, and how many nodes it has."""
        start = page * self._page_bytes
        if start + self._page_bytes > self._size:
            raise self._damage(f"page {page} lies outside the file")
        number, _, flags, lower = _page(view, start)
        if number != page or flags != kind or not _HEADER <= lower <= self._page_bytes:
            raise self._damage(f"page {page} is not the {'leaf' if kind == _LEAF else 'branch'} that it should be")
        return start, (lower - _HEADER) >> 1

    def _node(self, view: memoryview, start: int, at: int) -> tuple[int, bytes]:
        """Place of a node in its page, and its key."""
        (node,) = _u16(view, start + _HEADER + 2 * at)
        if node + 8 <= self._page_bytes:
            (size,) = _u16(view, start + node + 6)
            if node >= _HEADER and node + 8 + size <= self._page_bytes and size <= _MOST_KEY_BYTES:
                return node, bytes(view[start + node + 8 : start + node + 8 + size])
        raise self._damage(f"node {at} lies outside page {start // self._page_bytes}")

    def _content(self, view: memoryview, start: int, at: int, *, size: int, flags: int) -> memoryview:
        """The value whose bytes, or the number of whose overflow pages, begin at `at` of the page."""
        if not flags and at + size <= self._page_bytes:
            return view[start + at : start + at + size]
        if flags != _IN_OVERFLOW or at + 8 > self._page_bytes:
            raise self._damage(f"a value with flags {flags:#x} and {size} bytes on page {start // self._page_bytes}")
        (page,) = _u64(view, start + at)
        first = page * self._page_bytes + _HEADER
        if first + size > self._size:
            raise self._damage(f"a value of {size} bytes on page {page} lies outside the file")
        number, _, kind = _overflow(view, first - _HEADER)
        if number != page or kind != _OVERFLOW:
            raise self._damage(f"page {page} is not the overflow page that it should be")
        return view[first : first + size]

    def _newest(self, view: memoryview) -> _Meta:
        first = self._meta(view, 0)
        second = self._meta(view, first.page_bytes)
        return max(first, second)  # by transaction

    def _meta(self, view: memoryview, start: int) -> _Meta:
        if start + _META_BYTES > self._size:
            raise self._damage("it is too short for one")
        magic, version = _identity(view, start + 16)
        if (magic, version) != (_MAGIC, _VERSION):
            raise self._damage(f"expected magic {_MAGIC:#x} and data format {_VERSION}, found {magic:#x}, {version}")
        page_bytes = _database(view, start + 40)[0]
        _, flags, depth, _, _, _, entries, root = _database(view, start + 88)
        if page_bytes not in _PAGE_SIZES or flags:
            raise self._damage(
                f"pages of {page_bytes} bytes and a database with flags {flags:#x}, expected a plain one"
            )
        if depth > _MOST_DEPTH:
            raise self._damage(f"a tree of depth {depth}")
        return _Meta(_u64(view, start + 144)[0], page_bytes, depth, entries, root)

    def _walk(self, view: memoryview, meta: _Meta) -> tuple[list[int], list[bytes]]:
        """The leaves in the order of their keys, and a key for each that none of its keys is smaller than.

        What this costs is bounded by the file and by the number of entries, whatever the pages say: no page of branches
        is come to twice, each has room for what it says is in it, keys rise, and there is an entry for each leaf.
        """
        pages, firsts = ([], []) if meta.root == _NO_ROOT else ([meta.root], [b""])
        seen: set[int] = set()
        for _ in range(meta.depth - 1):
            if len(seen) + len(pages) != len(seen.union(pages)):
                raise self._damage("a page lies below two others, or below itself")
            seen.update(pages)
            below: list[int] = []
            keys: list[bytes] = []
            for page, key in zip(pages, firsts, strict=True):
                before = max(len(keys) - 1, 0)
                self._add_branch(view, page, key, pages=below, keys=keys)
                added = keys[before:]
                if any(map(ge, added, added[1:])):
                    raise self._damage("its keys are not in order")
                if len(keys) > meta.entries:
                    raise self._damage(f"it has more pages than the {meta.entries} entries that it says are in them")
            pages, firsts = below, keys
        return pages, firsts

    def _add_branch(self, view: memoryview, page: int, key: bytes, *, pages: list[int], keys: list[bytes]) -> None:
        """The pages below one page of branches, and their keys; key: of its first node, where none is looked at."""
        start, count = self._nodes(view, page, _BRANCH)
        room = self._page_bytes - _HEADER
        for at in range(count):
            node, found = self._node(view, start, at)
            low, high, flags, _ = _header(view, start + node)
            room -= 10 + len(found)  # with its pointer
            if room < 0:
                raise self._damage(f"nodes of page {page} lie over each other")
            keys.append(found if at else key)
            pages.append(low | high << 16 | flags << 32)

    def _damage(self, found: str) -> CorruptPack:
        return CorruptPack(f"{self._path}: damaged LMDB file: {found}; packer verify names the samples; pack again")
