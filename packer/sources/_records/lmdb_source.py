"""LMDB source: base of the sources that read other tools' LMDBs, each value a record.

An LMDB is a folder with data.mdb, or one file, as LMDB's own option `subdir` has it. Which tool wrote it is told by its
keys and its first values; each says so in `layout`, so that one that is read as another's is named.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import ClassVar

from packer.errors import BadInput, InvalidRequest
from packer.layouts import lmdb_file
from packer.layouts.lmdb_file import MAGIC, MAGIC_AT
from packer.sources._parse.listing import counted, shown
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources._records.random_access_files import OpenFile, RecordFile, check_no_pointer, is_pointer
from packer.sources._records.record_source import RecordSource

_LOOKED_AT = 2  # entries
_START_BYTES = 64
_KEYS = b"__keys__"
_SUFFIXES = (".lmdb", ".mdb")
_LOCKS = ("lock.mdb", "-lock")


class LMDBSource(RecordSource):
    """See the module."""

    noun = "LMDB"
    layout: ClassVar[str]  # what the values are, for messages
    metadata: ClassVar[tuple[bytes, ...]] = ()  # keys of what is no sample

    _keys: list[str]

    @classmethod
    @abstractmethod
    def _is_record(cls, key: bytes, value: bytes) -> bool:
        """Whether an entry is of this layout."""

    @classmethod
    def _fits(cls, key: bytes, value: bytes) -> bool:
        return key in cls.metadata or cls._is_record(key, value)

    @classmethod
    def recognise_content(cls, folder: SourceRoot, names: Sequence[str]) -> str | None:
        """How many LMDBs there are, if the first one has this layout."""
        chosen = names if len(names) == 1 else environments(names)
        for name in chosen:
            if not may_be_one(folder, name):
                continue
            try:
                found = first_entries(folder, name, _LOOKED_AT)
            except BadInput:
                return None  # the source that the user names says so
            if found is None or (found and all(cls._fits(key, value) for key, value in found)):
                return f"LMDB of {cls.layout}: {counted(len(chosen), 'file')}"
        return None

    def _list_all(self, root: Path, *, follow_links: bool, layout: str) -> list[RecordFile]:
        """Find every entry of every LMDB; raises InvalidRequest, BadInput."""
        names = self._open(root, follow_links=follow_links, layout=layout)
        chosen = names if root.is_file() else environments(names)
        files, keys = [], list[bytes]()
        self._metadata: dict[tuple[int, bytes], bytes] = {}
        for number, name in enumerate(chosen):
            start = self.folder.start(name, _START_BYTES)
            check_no_pointer(start, self.folder.root / name)
            self._check_layout(name)
            file = OpenFile(self.folder, name)
            for entry in lmdb_file.entries(file):
                if entry.key in self.metadata:
                    self._metadata[number, entry.key] = file.read(entry.offset, entry.size)
                    continue
                self._add(number, entry.offset, entry.size)
                keys.append(entry.key)
            files.append(RecordFile(name, file.size))
        if not keys:
            raise self._none_found(names, "data.mdb, or a name that ends in .lmdb")
        self._raw_keys = keys
        taken = set(chosen)
        self._others = [name for name in names if name not in taken and not is_lock(name)]
        return files

    def _check_layout(self, name: str) -> None:
        """Raise InvalidRequest for an LMDB of another tool, saying whose it seems to be."""
        found = first_entries(self.folder, name, _LOOKED_AT)
        path = shown(str(self.folder.root / name))
        if found is None:
            raise InvalidRequest(f"{path}: is no LMDB: expected magic 0xbeefc0de of a little-endian 64-bit machine")
        for key, value in found:
            if not self._fits(key, value):
                raise InvalidRequest(
                    f"{path}: its values are no {self.layout}: under {key[:40]!r} are {len(value)} bytes that begin "
                    f"with {value[:8].hex(' ')}; {_guess(self.folder, name, key, value)}"
                )


def environments(names: Sequence[str]) -> list[str]:
    """Those of some files that are LMDBs by their names: data.mdb in a folder, or a file that ends in .lmdb."""
    return [name for name in names if PurePosixPath(name).suffix.lower() in _SUFFIXES and not is_lock(name)]


def is_lock(name: str) -> bool:
    """Whether a file only says who has an LMDB open."""
    return name.endswith(_LOCKS)


def first_entries(folder: SourceRoot, name: str, count: int) -> list[tuple[bytes, bytes]] | None:
    """The first keys and values; None where the file is no LMDB. Raises BadInput for a damaged one."""
    start = folder.start(name, MAGIC_AT + len(MAGIC))
    if start[MAGIC_AT:] != MAGIC:
        return None
    file = OpenFile(folder, name)
    return [(entry.key, file.read(entry.offset, entry.size)) for entry in islice(lmdb_file.entries(file), count)]


def may_be_one(folder: SourceRoot, name: str) -> bool:
    """Whether a file begins as an LMDB, or as what git-lfs leaves in the place of one."""
    start = folder.start(name, 64)
    return start[MAGIC_AT : MAGIC_AT + len(MAGIC)] == MAGIC or (bool(environments([name])) and is_pointer(start))


def other_layout(folder: SourceRoot, names: Sequence[str]) -> str | None:
    """What to say of an LMDB whose layout no source reads; None where there is no LMDB. Raises BadInput."""
    for name in names if len(names) == 1 else environments(names):
        found = first_entries(folder, name, 1)
        if found:
            ((key, value),) = found
            guess = _guess(folder, name, key, value)
            return f"{shown(name)} is an LMDB of a layout that no source reads: {guess}, key {shown(repr(key[:40]))}"
    return None


def _guess(folder: SourceRoot, name: str, key: bytes, value: bytes) -> str:
    """What an LMDB may be whose entries are not of the layout that was asked for; these are its first."""
    if any(entry.key == _KEYS for entry in lmdb_file.entries(OpenFile(folder, name))):
        return "the key __keys__ is of Efficient-PyTorch, Image2LMDB or tensorpack"
    if value.startswith((b"\x89PNG", b"\xff\xd8\xff")):
        return "these are bare picture files, as BasicSR stores them"
    if value[:1] == b"\x80":
        return "these look pickled, as tensorpack and Efficient-PyTorch store them"
    if key.endswith(b".meta"):
        return "the key ends in .meta, as of BasicSR's first layout"
    return "say another --from"
