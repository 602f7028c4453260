"""LMDB source: the base of the sources that read the LMDBs of other tools. Each LMDB value is a record.

An LMDB is a folder with data.mdb, or one file. `layout_of` detects the layout by the first row that matches:

| contents of the LMDB                                                | layout         |
|---------------------------------------------------------------------|----------------|
| meta_info.txt, meta_info.pkl or _keys_cache.p next to data.mdb      | basicsr-lmdb   |
| a key NAME.meta after the first key NAME                            | basicsr-lmdb   |
| `__keys__`, keys of 8 digits, no `__len__`, values: lists or dicts  | tensorpack-lmdb|
| `__keys__`, numbers as keys, values: bytes, serialized by pyarrow   | image2lmdb     |
| numbers as keys, values: pairs of image and label                   | efficient-lmdb |
| values: Datum messages of Caffe                                     | caffe-lmdb     |
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, ClassVar

from packer.errors import BadInput, InvalidRequest
from packer.layouts import datum, lmdb_reader, pyarrow_serialized, serialized
from packer.layouts.lmdb_reader import MAGIC, MAGIC_AT, Entry
from packer.sources._message_texts import counted, listed, shown
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.records._random_access_files import OpenFile, UnpackedFile, check_not_empty
from packer.sources.records._record_source import RecordSource

KEYS, LENGTH, META = b"__keys__", b"__len__", b".meta"
SIDE_FILES = ("meta_info.txt", "meta_info.pkl", "_keys_cache.p")  # of BasicSR
_LOOKED_AT = 2  # number of entries that show the layout
_DATA = "data.mdb"
_PADDED = 8  # digits of a key
_MOST_DIGITS = 19
_LAYOUTS = (
    f"basicsr-lmdb ({', '.join(SIDE_FILES)} next to it, or values that are image files), tensorpack-lmdb, image2lmdb "
    "and efficient-lmdb (numbers as keys and the key __keys__), caffe-lmdb (values that are a Datum)"
)


class LMDBSource(RecordSource):
    """The base class of sources that read LMDBs.

    Attributes:
        is_numbered: True if keys are numbers and `__keys__` lists the keys. Samples are then in numeric order, whereas
            LMDB sorts keys as text: 0, 1, 10, 100, 2.
    """

    noun = "LMDB"
    expected = "data.mdb, or a name that ends in .lmdb"
    file_name = re.compile(r"\.lmdb$|(?<!lock)\.mdb$", re.IGNORECASE)
    ignored = re.compile(r"(?:lock\.mdb|-lock)$")
    is_numbered: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def parse(cls, value: bytes) -> Any:
        """Parse an LMDB value. Raise BadInput if the value has another layout."""

    @classmethod
    def is_metadata(cls, key: bytes) -> bool:
        """Return whether the entry with this key is metadata and not a sample."""
        return key in (KEYS, LENGTH)

    def entries(self, index: int, record: bytes) -> dict[str, Any]:
        """Return the values of a record by entry name, parsed by `parse`."""
        values: dict[str, Any] = self.parse(record)
        return values

    @classmethod
    def begins(cls, start: bytes) -> bool:
        return _has_magic(start)

    @classmethod
    def is_own(cls, folder: SourceRoot, name: str) -> bool:
        try:
            return layout_of(folder, name) == cls.kind
        except BadInput:
            return False  # the source that the user names reports the damage

    def find(self, name: str, file: OpenFile | UnpackedFile, size: int | None) -> None:
        self._check_layout(name)
        lmdb = OpenFile(self.folder, name)
        self._metadata: dict[bytes, bytes] = {}
        entries: list[Entry] = []
        for entry in lmdb_reader.entries(lmdb):
            if self.is_metadata(entry.key):
                self._metadata[entry.key] = lmdb.read(entry.offset, entry.size)
            elif self.is_numbered:
                entries.append(entry)
            else:
                self._add(entry.offset, entry.size, entry.key.decode("utf-8", "surrogateescape"))
        for number, entry in self._in_order(entries) if self.is_numbered else ():
            self._add(entry.offset, entry.size, number)

    def _check_layout(self, name: str) -> None:
        """Raise InvalidRequest if the first entries of an LMDB have another layout than that of this source."""
        path = shown(str(self.folder.root / name))
        found = _first_entries(self.folder, name, _LOOKED_AT)
        if found is None:
            check_not_empty(self.folder.start(name, 1), self.folder.root / name)
            raise InvalidRequest(f"{path}: is not an LMDB: expected magic 0xbeefc0de of a little-endian 64-bit machine")
        for key, value in found:
            try:
                if self.is_metadata(key):
                    continue
                if self.is_numbered and not key.isdigit():
                    raise BadInput("the key is not a number")
                self.parse(value)
            except BadInput as error:
                raise InvalidRequest(
                    f"{path}: not an {self.title}: under {shown(repr(key[:40]))}: {error.message}; expected {_LAYOUTS}"
                ) from error

    def _in_order(self, entries: Sequence[Entry]) -> list[tuple[int, Entry]]:
        """Return (key as number, entry) in numeric order. Skip entries whose key `__keys__` does not list."""
        names = self._listed_keys()
        numbered, others = [], []
        for entry in entries:
            key = entry.key
            if key.isdigit() and len(key) <= _MOST_DIGITS and (names is None or key in names):
                numbered.append((int(key), entry))
            else:
                others.append(key.decode("utf-8", "backslashreplace"))
        if others:
            self.left_out.append((KEYS.decode(), f"{counted(len(others), 'entry')} that __keys__ does not name"))
            self.notes.append(f"skipped, since __keys__ does not name them: {listed(others)}")
        if len({number for number, _ in numbered}) < len(numbered):
            raise BadInput(f"{shown(str(self.root))}: two keys are one number, such as 1 and 01")
        if names is not None and len(names) > len(numbered):
            self.notes.append(f"__keys__ names {len(names) - len(numbered)} more records than there are")
        return sorted(numbered)

    def _listed_keys(self) -> set[bytes] | None:
        data = self._metadata.get(KEYS)
        if data is None:
            return None
        try:
            found = serialized.loads(data)
        except BadInput as error:
            raise BadInput(f"{self.root}: __keys__: {error.message}") from error
        if not isinstance(found, (list, tuple)):
            raise BadInput(f"{self.root}: __keys__ is not a list of keys")
        keys = (key.encode() if isinstance(key, str) else key for key in found)
        return {bytes(key) for key in keys if isinstance(key, bytes)}


# ---- which tool wrote an LMDB


def layout_of(folder: SourceRoot, name: str) -> str | None:
    """Return the name of the source that reads an LMDB file, or None if no source can read the file.

    For a git-lfs pointer, return `caffe-lmdb`, which reports the pointer. Raise BadInput for a damaged file.
    """
    found = _first_entries(folder, name, _LOOKED_AT)
    if found is None:
        return "caffe-lmdb"
    if side_files(folder, name) or (len(found) == _LOOKED_AT and found[1][0] == found[0][0] + META):
        return "basicsr-lmdb"
    data = [(key, value) for key, value in found if key not in (KEYS, LENGTH)]
    if not data:
        return "efficient-lmdb" if found else None  # an empty LMDB
    key, value = data[0]
    if not key.isdigit():
        return "caffe-lmdb" if _is_datum(value) else None
    file = OpenFile(folder, name)
    if lmdb_reader.find(file, KEYS) is None:
        return _numbered(value) or ("caffe-lmdb" if _is_datum(value) else None)
    is_padded = len(key) == _PADDED and lmdb_reader.find(file, LENGTH) is None
    return "tensorpack-lmdb" if is_padded and _is_datapoint(value) else _numbered(value)


def side_files(folder: SourceRoot, name: str) -> list[str]:
    """Return the relative paths of BasicSR metadata files in the folder of an LMDB."""
    place = PurePosixPath(name)
    if place.name != _DATA:
        return []
    return [str(place.with_name(side)) for side in SIDE_FILES if (folder.root / place.with_name(side)).is_file()]


def _has_magic(start: bytes) -> bool:
    return start[MAGIC_AT : MAGIC_AT + len(MAGIC)] == MAGIC


def _first_entries(folder: SourceRoot, name: str, count: int) -> list[tuple[bytes, bytes]] | None:
    """Return (key, value) of the first `count` entries, or None if the file is not an LMDB."""
    if not _has_magic(folder.start(name, MAGIC_AT + len(MAGIC))):
        return None
    file = OpenFile(folder, name)
    return [(entry.key, file.read(entry.offset, entry.size)) for entry in islice(lmdb_reader.entries(file), count)]


def _numbered(value: bytes) -> str | None:
    """Return the layout of an LMDB with numeric keys, detected from one value."""
    if pyarrow_serialized.is_payload(value):
        return "efficient-lmdb" if pyarrow_serialized.holds_list(value) else "image2lmdb"
    try:
        serialized.pair(serialized.loads(value))
    except BadInput:
        return None
    return "efficient-lmdb"


def _is_datapoint(value: bytes) -> bool:
    if pyarrow_serialized.is_payload(value):
        return True
    try:
        return isinstance(serialized.loads(value), (list, tuple, dict))
    except BadInput:
        return False


def _is_datum(value: bytes) -> bool:
    try:
        found = datum.parse(value)
    except BadInput:
        return False
    return bool(found.data) or found.has_floats
