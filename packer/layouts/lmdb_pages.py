"""LMDB page walk: every key of an LMDB of another tool, in order, with the place and size of its value in the file.

Sources take records from them (sources/records/_lmdb_source.py), and packs that other tools open are read by them
(formats/_foreign_lmdb.py). The tree is walked once, page by page, and nothing that a page says is believed; `find`
walks to one key.

The layout is that of packer.formats.lmdb, which looks up single values in mapped parts of packer's own. Here nothing is
mapped, so that a file that is cut meanwhile is an error and no signal, and the library is not used: it follows what
pages say, wants to lock, and opens no file twice in a process.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol

from packer.errors import BadInput

MAGIC = b"\xde\xc0\xef\xbe\x01\0\0\0"  # with the data version, 16 bytes into a meta page
MAGIC_AT = 16
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
_IN_OVERFLOW, _NAMED_DATABASE, _DUPLICATES = 1, 2, 4  # flags of a node
_HEADER_BYTES = 16  # of a page
_NODE_BYTES = 8  # of a node, before its key
_META_BYTES = 152
_PAGE_BYTES = frozenset(1 << power for power in range(9, 17))
_MOST_KEY_BYTES = 511
_MOST_DEPTH = 32
_KNOWN_FLAGS = 0x7E  # of a database: reverse keys, several values, whole numbers as keys, and what goes with them
_NO_ROOT = (1 << 64) - 1

_page = Struct("<QHHH").unpack_from  # number, pad, flags, end of the node pointers
_overflow = Struct("<QHHI").unpack_from  # number, pad, flags, how many pages
_node = Struct("<HHHH").unpack_from  # low, high, flags, bytes of the key
_database = Struct("<IHHQQQQQ").unpack_from  # page bytes, flags, depth, branch, leaf, overflow pages, entries, root
_u16 = Struct("<H").unpack_from
_u64 = Struct("<Q").unpack_from


class Entry(NamedTuple):
    """A key, and where its value lies in the file."""

    key: bytes
    offset: int
    size: int


class _Node(NamedTuple):
    """A node of a page. begin: where what follows its key begins. size: of a value; of a branch, a part of `child`."""

    key: bytes
    begin: int
    size: int
    flags: int

    @property
    def child(self) -> int:
        """The page below, of a node of a branch."""
        return self.size | self.flags << 32


class FileByOffset(Protocol):
    """A file that is read by offset: fewer bytes at its end; raises BadInput."""

    path: Path
    size: int

    def read(self, offset: int, size: int) -> bytes: ...


def entries(file: FileByOffset) -> Iterator[Entry]:
    """Every entry of the main database; raises BadInput where a page is not what it should be."""
    walk = _TreeWalk(file)
    yield from walk.entries()


def find(file: FileByOffset, key: bytes) -> Entry | None:
    """The entry of a key, by the few pages above it; None where there is none. Raises BadInput as `entries`."""
    return _TreeWalk(file).find(key)


class _TreeWalk:
    """One walk through the tree."""

    def __init__(self, file: FileByOffset) -> None:
        self._file = file
        first = self._meta(0)
        second = self._meta(first[0])
        self._page_bytes, self._depth, self._entries, self._root, _ = max(first, second, key=lambda meta: meta[-1])
        self._seen: set[int] = set()

    def entries(self) -> Iterator[Entry]:
        count, last = 0, None
        for entry in self._below(self._root, self._depth) if self._root != _NO_ROOT else ():
            if last is not None and entry.key <= last:
                raise self._damage("its keys are not in order")
            last = entry.key
            count += 1
            yield entry
        if count != self._entries:
            raise self._damage(f"it has {count} entries, and says {self._entries}")

    def find(self, key: bytes) -> Entry | None:
        """The entry of a key."""
        page, depth = self._root, self._depth
        if page == _NO_ROOT:
            return None
        while depth > 1:
            data = self._page_at(page, _BRANCH)
            nodes = list(self._nodes(page, data))
            below = [node for at, node in enumerate(nodes) if at == 0 or node.key <= key]  # the first key is empty
            if not below:
                return None
            page, depth = below[-1].child, depth - 1
        data = self._page_at(page, _LEAF)
        for node in self._nodes(page, data):
            if node.key == key:
                return self._entry(node, page, data)
        return None

    def _meta(self, start: int) -> tuple[int, int, int, int, int]:
        """Bytes of a page, depth, entries, root and transaction."""
        data = self._file.read(start, _META_BYTES)
        if len(data) < _META_BYTES:
            raise self._damage("it is too short for one")
        if data[MAGIC_AT : MAGIC_AT + len(MAGIC)] != MAGIC:
            raise self._damage("expected magic 0xbeefc0de and data version 1, of a little-endian 64-bit machine")
        page_bytes = _database(data, 40)[0]
        _, flags, depth, _, _, _, count, root = _database(data, 88)
        if page_bytes in _PAGE_BYTES and flags and not flags & ~_KNOWN_FLAGS:
            raise BadInput(
                f"{self._file.path}: an LMDB made with flags {flags:#x}, such as dupsort or integerkey: expected plain "
                "keys with one value each; write the entries into a new LMDB"
            )
        if page_bytes not in _PAGE_BYTES or flags or depth > _MOST_DEPTH:
            raise self._damage(f"pages of {page_bytes} bytes, flags {flags:#x}, depth {depth}: no plain database")
        return page_bytes, depth, count, root, _u64(data, 144)[0]

    def _below(self, page: int, depth: int) -> Iterator[Entry]:
        """The entries in and below a page, in order."""
        if page in self._seen:
            raise self._damage(f"page {page} lies below two others, or below itself")
        self._seen.add(page)
        kind = _LEAF if depth <= 1 else _BRANCH
        data = self._page_at(page, kind)
        for node in self._nodes(page, data):
            if kind == _BRANCH:
                yield from self._below(node.child, depth - 1)
            else:
                yield self._entry(node, page, data)

    def _page_at(self, page: int, kind: int) -> bytes:
        """The bytes of a page, which is a leaf or a branch as it should be."""
        data = self._file.read(page * self._page_bytes, self._page_bytes)
        if len(data) < self._page_bytes:
            raise self._damage(f"page {page} lies outside the file")
        number, _, flags, lower = _page(data)
        if number != page or flags != kind or not _HEADER_BYTES <= lower <= self._page_bytes:
            raise self._damage(f"page {page} is not the {'leaf' if kind == _LEAF else 'branch'} that it should be")
        return data

    def _nodes(self, page: int, data: bytes) -> Iterator[_Node]:
        """The nodes of a page, in order."""
        lower = _page(data)[3]
        room = self._page_bytes - lower
        for at in range(_HEADER_BYTES, lower - 1, 2):
            (node,) = _u16(data, at)
            if not lower <= node <= self._page_bytes - _NODE_BYTES:
                raise self._damage(f"a node lies outside page {page}")
            low, high, flags, key_bytes = _node(data, node)
            begin = node + _NODE_BYTES + key_bytes
            if begin > self._page_bytes or key_bytes > _MOST_KEY_BYTES:
                raise self._damage(f"a key of {key_bytes} bytes on page {page}")
            room -= _NODE_BYTES + key_bytes
            if room < 0:
                raise self._damage(f"nodes of page {page} lie over each other")
            yield _Node(data[node + _NODE_BYTES : begin], begin, low | high << 16, flags)

    def _entry(self, node: _Node, page: int, data: bytes) -> Entry:
        if node.flags == _NAMED_DATABASE:
            raise BadInput(
                f"{self._file.path}: an LMDB with databases of their own names, such as {node.key[:40]!r}: expected "
                "entries without one; write those of one database into a new LMDB"
            )
        if node.flags & (_NAMED_DATABASE | _DUPLICATES):
            raise BadInput(
                f"{self._file.path}: {node.key[:40]!r} has several values in this LMDB (dupsort): expected one for "
                "each key; write the entries into a new LMDB"
            )
        if not node.flags and node.begin + node.size <= self._page_bytes:
            return Entry(node.key, page * self._page_bytes + node.begin, node.size)
        if node.flags != _IN_OVERFLOW or node.begin + 8 > self._page_bytes:
            raise self._damage(f"a value with flags {node.flags:#x} and {node.size} bytes on page {page}")
        (first,) = _u64(data, node.begin)
        start = first * self._page_bytes
        if start + _HEADER_BYTES + node.size > self._file.size:
            raise self._damage(f"a value of {node.size} bytes on page {first} lies outside the file: it is cut")
        number, _, kind, pages = _overflow(self._file.read(start, _HEADER_BYTES))
        if number != first or kind != _OVERFLOW or pages * self._page_bytes < _HEADER_BYTES + node.size:
            raise self._damage(f"page {first} is not the overflow page that it should be")
        return Entry(node.key, start + _HEADER_BYTES, node.size)

    def _damage(self, found: str) -> BadInput:
        return BadInput(f"{self._file.path}: damaged LMDB file: {found}; get the file again")
