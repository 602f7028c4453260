"""LMDB reader: finds keys and values in the B+tree of an LMDB file, without the library.

Sources read the LMDBs of other tools with it, and packer.formats.lmdb reads its own mapped parts. The library is not
used because it follows page numbers unchecked: a flipped byte can end the process by a signal. It also locks files, and
opens a file only once per process. Here, every number is compared with the page or the file before it is used.

Layout, as a little-endian 64-bit machine writes it; offsets in bytes:

| structure | fields                                                                                                  |
|-----------|---------------------------------------------------------------------------------------------------------|
| page      | 0 number u64; 10 flags u16; 12 end of the node pointers u16; 16 node pointers u16: the offsets of the   |
|           | nodes in the page, in the order of their keys. Pages 0 and 1 are meta pages                             |
| node      | 0 low u16; 2 high u16; 4 flags u16; 6 size of the key u16; 8 key; then the value                        |
| ... leaf  | low and high are the size of the value. With flag 1, the value is in overflow pages, and the node       |
|           | contains the number u64 of the first one                                                                |
| ... branch| low, high and flags are the number of the page below, whose keys are at least the node's key. The key   |
|           | of the first node is not used                                                                           |
| overflow  | 0 number u64; 10 flags u16; 12 number of pages u32; 16 the value, through all pages                     |
| meta      | 16 magic u32; 20 version u32; 40 the free database; 88 the main database; 144 transaction u64. The meta |
|           | page with the larger transaction is valid                                                               |
| database  | 0 size of a page u32 (free database only); 4 flags u16; 6 depth u16; 32 entries u64; 40 root page u64   |

Source: LMDB 0.9, mdb.c, the structures MDB_page, MDB_node, MDB_meta and MDB_db.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from struct import Struct, unpack_from
from typing import NamedTuple, Protocol

from packer.errors import BadInput, PackerError
from packer.schema import Buffer

MAGIC = b"\xde\xc0\xef\xbe\x01\0\0\0"  # magic and version
MAGIC_AT = 16
BRANCH, LEAF, OVERFLOW = 1, 2, 4
HEADER_BYTES = 16  # of a page
MOST_KEY_BYTES = 511  # LMDB's own limit, MDB_MAXKEYSIZE
_IN_OVERFLOW, _NAMED_DATABASE, _DUPLICATES = 1, 2, 4  # flags of a node
_NODE_BYTES = 8  # of a node, before its key
_META_BYTES = 152
_PAGE_BYTES = frozenset(1 << power for power in range(9, 17))
_MOST_DEPTH = 32  # LMDB's own limit, CURSOR_STACK
_KNOWN_FLAGS = 0x7E  # of a database: reverse keys, several values, integers as keys
_NO_ROOT = (1 << 64) - 1

_page = Struct("<QHHH").unpack_from
_overflow = Struct("<QHHI").unpack_from
_node = Struct("<HHHH").unpack_from
_database = Struct("<IHHQQQQQ").unpack_from  # also the numbers of branch, leaf and overflow pages
_u64 = Struct("<Q").unpack_from


class Entry(NamedTuple):
    """A key, and the offset and size of its value in the file, in bytes."""

    key: bytes
    offset: int
    size: int


class FileByOffset(Protocol):
    """A file of `size` bytes. `read(offset, size)` returns fewer bytes than it is asked for at the end of the file."""

    path: Path
    size: int

    def read(self, offset: int, size: int) -> bytes: ...


def entries(file: FileByOffset) -> Iterator[Entry]:
    """Yield every entry of the main database in the order of the keys. Raises BadInput for a damaged page."""
    yield from _FileTree(file).entries()


def find(file: FileByOffset, key: bytes) -> Entry | None:
    """Return the entry of a key, or None if the key is absent. Raises BadInput for a damaged page."""
    return _FileTree(file).find(key)


class Tree(ABC):
    """The main database of an LMDB file.

    Attributes:
        path: The file, for messages.
        count: Number of entries that the file states.
        page_bytes: Size of a page.
        root: Number of the root page.
        depth: Number of levels, 1 if the root is a leaf.
    """

    def __init__(self, path: Path, size: int) -> None:
        """Read the meta pages.

        Args:
            path: The file, for messages.
            size: Size of the file in bytes.
        """
        self.path = path
        self._size = size
        first = self._meta(0)
        second = self._meta(first[1])
        _, self.page_bytes, self.depth, self.count, self.root = max(first, second)

    @abstractmethod
    def _at(self, offset: int, size: int) -> tuple[Buffer, int]:
        """Return a buffer that contains `size` bytes of the file from `offset` on, and their place in the buffer."""

    def _damage(self, found: str) -> PackerError:
        """Return the error for a damaged file."""
        return BadInput(f"{self.path}: damaged LMDB file: {found}; get the file again")

    def _unsupported(self, found: str) -> PackerError:
        """Return the error for a file that is not damaged, but has a feature that packer does not read."""
        return BadInput(f"{self.path}: an LMDB {found}; write the entries into a new LMDB")

    def entries(self) -> Iterator[Entry]:
        """Yield every entry in the order of the keys."""
        count, last = 0, None
        for page, _ in self.leaves():
            data, start, nodes = self.page(page, LEAF)
            for key, begin, size, flags in self._nodes(data, start, nodes, page=page):
                if last is not None and key <= last:
                    raise self._damage("its keys are not in order")
                last = key
                count += 1
                yield Entry(key, self._value_at(data, start, begin, size=size, flags=flags, page=page, key=key), size)
        if count != self.count:
            raise self._damage(f"expected {self.count} entries, found {count}")

    def find(self, key: bytes) -> Entry | None:
        """Return the entry of a key, or None if it is absent."""
        page = self._leaf_of(key)
        return None if page is None else self.find_in_leaf(page, key)

    def find_in_leaf(self, page: int, key: bytes) -> Entry | None:
        """Return the entry of a key in a leaf page, or None if it is absent."""
        data, start, count = self.page(page, LEAF)
        for found, begin, size, flags in self._nodes(data, start, count, page=page):
            if found == key:
                return Entry(key, self._value_at(data, start, begin, size=size, flags=flags, page=page, key=key), size)
        return None

    def leaves(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each leaf page in the order of the keys, with a lower bound of the keys in the leaf.

        The cost is bounded by the size of the file and the number of entries. Raises an error if a page has two
        parents, nodes overlap, keys do not rise, or there are more leaf pages than entries.
        """
        if self.root == _NO_ROOT:
            return
        last = None
        for count, (page, key) in enumerate(self.pages_below(self.root, b"", self.depth, seen=set())):
            if last is not None and key <= last:
                raise self._damage("its keys are not in order")
            last = key
            if count >= self.count:
                raise self._damage(f"it has more leaf pages than its {self.count} entries")
            yield page, key

    def pages_below(self, page: int, first: bytes, depth: int, *, seen: set[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the pages `depth` - 1 levels below a page, each with a lower bound of the keys below it.

        Args:
            page: Number of the page.
            first: Lower bound of the keys below `page`.
            depth: 1 or less yields the page itself.
            seen: Numbers of pages, to which those of this walk are added. A page that is in it raises an error.
        """
        if page in seen:
            raise self._damage(f"page {page} has two parents")
        seen.add(page)
        if depth <= 1:
            yield page, first
            return
        data, start, count = self.page(page, BRANCH)
        key = first
        for at, (found, _, size, flags) in enumerate(self._nodes(data, start, count, page=page, is_leaf=False)):
            if at:
                key = found
            below = size | flags << 32
            if depth > 2:
                yield from self.pages_below(below, key, depth - 1, seen=seen)
            elif below in seen:
                raise self._damage(f"page {below} has two parents")
            else:
                seen.add(below)
                yield below, key

    def _leaf_of(self, key: bytes) -> int | None:
        """Return the number of the leaf page that would contain a key. Return None for an empty tree."""
        page: int | None = self.root if self.root != _NO_ROOT else None
        for _ in range(self.depth - 1):
            if page is None:
                return None
            data, start, count = self.page(page, BRANCH)
            below = None
            for at, (found, _, size, flags) in enumerate(self._nodes(data, start, count, page=page, is_leaf=False)):
                if at and found > key:
                    break
                below = size | flags << 32
            page = below
        return page

    def page(self, number: int, kind: int) -> tuple[Buffer, int, int]:
        """Return a buffer with a page, the place of the page in the buffer, and the number of nodes in the page.

        kind: BRANCH or LEAF; a page of another kind raises the error for a damaged file.
        """
        offset = number * self.page_bytes
        if offset + self.page_bytes > self._size:
            raise self._damage(f"page {number} is outside the file")
        data, start = self._at(offset, self.page_bytes)
        found, _, flags, lower = _page(data, start)
        if found != number or flags != kind or not HEADER_BYTES <= lower <= self.page_bytes:
            raise self._damage(f"page {number} is not a {'leaf' if kind == LEAF else 'branch'} page, as expected")
        return data, start, (lower - HEADER_BYTES) >> 1

    def _nodes(
        self, data: Buffer, start: int, count: int, *, page: int, is_leaf: bool = True
    ) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield (key, offset, size, flags) of each node; the offset is that of the byte after the key, in the page.

        In a leaf, `size` is the size of the value. In a branch, `size | flags << 32` is the number of the page below.
        """
        lower = HEADER_BYTES + 2 * count
        room = self.page_bytes - lower
        for at in unpack_from(f"<{count}H", data, start + HEADER_BYTES):
            if not lower <= at <= self.page_bytes - _NODE_BYTES:
                raise self._damage(f"a node is outside page {page}")
            low, high, flags, key_bytes = _node(data, start + at)
            begin = at + _NODE_BYTES + key_bytes
            if begin > self.page_bytes or key_bytes > MOST_KEY_BYTES:
                raise self._damage(f"a key of {key_bytes} bytes is outside page {page}")
            size = low | high << 16
            room -= _NODE_BYTES + key_bytes
            if is_leaf:
                room -= 8 if flags & _IN_OVERFLOW else size
            if room < 0:
                raise self._damage(f"nodes of page {page} overlap")
            yield bytes(data[start + at + _NODE_BYTES : start + begin]), begin, size, flags

    def _value_at(self, data: Buffer, start: int, begin: int, *, size: int, flags: int, page: int, key: bytes) -> int:
        """Return the offset of a value in the file. `begin`, `size` and `flags` are those of `_nodes` for a leaf."""
        if not flags and begin + size <= self.page_bytes:
            return page * self.page_bytes + begin
        if flags == _NAMED_DATABASE:
            raise self._unsupported(f"with named databases, such as {key[:40]!r}: expected entries without one")
        if flags & (_NAMED_DATABASE | _DUPLICATES):
            raise self._unsupported(f"with several values of {key[:40]!r} (dupsort): expected one value per key")
        if flags != _IN_OVERFLOW or begin + 8 > self.page_bytes:
            raise self._damage(f"a value with flags {flags:#x} and {size} bytes on page {page}")
        (first,) = _u64(data, start + begin)
        offset: int = first * self.page_bytes
        if offset + HEADER_BYTES + size > self._size:
            raise self._damage(f"a value of {size} bytes on page {first} is outside the file, which is cut")
        number, _, kind, pages = _overflow(*self._at(offset, HEADER_BYTES))
        if number != first or kind != OVERFLOW or pages * self.page_bytes < HEADER_BYTES + size:
            raise self._damage(f"page {first} is not an overflow page for {size} bytes, as expected")
        return offset + HEADER_BYTES

    def _meta(self, offset: int) -> tuple[int, int, int, int, int]:
        """Return the transaction, page bytes, depth, number of entries and root page of a meta page."""
        if offset + _META_BYTES > self._size:
            raise self._damage("it is too short")
        data, start = self._at(offset, _META_BYTES)
        if bytes(data[start + MAGIC_AT : start + MAGIC_AT + len(MAGIC)]) != MAGIC:
            raise self._damage("expected magic 0xbeefc0de and data version 1, of a little-endian 64-bit machine")
        page_bytes = _database(data, start + 40)[0]
        _, flags, depth, _, _, _, count, root = _database(data, start + 88)
        if page_bytes in _PAGE_BYTES and flags and not flags & ~_KNOWN_FLAGS:
            raise self._unsupported(
                f"made with flags {flags:#x}, such as dupsort or integerkey: expected plain keys with one value each"
            )
        if page_bytes not in _PAGE_BYTES or flags or depth > _MOST_DEPTH:
            raise self._damage(f"pages of {page_bytes} bytes, flags {flags:#x}, depth {depth}: not a plain database")
        return _u64(data, start + 144)[0], page_bytes, depth, count, root


class _FileTree(Tree):
    """A tree that reads a file page by page. The file is not mapped, so truncation raises an error."""

    def __init__(self, file: FileByOffset) -> None:
        self._file = file
        super().__init__(file.path, file.size)

    def _at(self, offset: int, size: int) -> tuple[Buffer, int]:
        data = self._file.read(offset, size)
        if len(data) < size:
            raise self._damage(f"it is cut at byte {offset + len(data)}")
        return data, 0
