"""LMDB source: base of the sources that read other tools' LMDBs, each value a record.

An LMDB is a folder with data.mdb, or one file, as LMDB's own option `subdir` has it. Which tool wrote it is for
packer.sources.records._lmdb_layout to tell; one that the user says is of another's layout is named.
"""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from packer.errors import BadInput, InvalidRequest
from packer.layouts import lmdb_page_walk
from packer.sources._parse.folder_listing import counted, shown
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources.records import _lmdb_layout
from packer.sources.records._random_access_files import OpenFile, RecordFile, check_no_pointer, check_not_empty
from packer.sources.records._record_source import RecordSource

_START_BYTES = 64


class LMDBSource(RecordSource):
    """See the module."""

    noun = "LMDB"
    layout: ClassVar[str]  # what the values are, for messages
    metadata: ClassVar[tuple[bytes, ...]] = ()  # keys of what is no sample

    @classmethod
    @abstractmethod
    def _check_record(cls, key: bytes, value: bytes) -> None:
        """Raise BadInput, saying what it is, for an entry that is of another layout."""

    @classmethod
    def _is_metadata(cls, key: bytes) -> bool:
        """Whether an entry is no sample."""
        return key in cls.metadata

    @classmethod
    def recognise_content(cls, folder: SourceRoot, names: Sequence[str]) -> str | None:
        """How many LMDBs there are, if the first one has this layout."""
        chosen = names if len(names) == 1 else _lmdb_layout.environments(names)
        for name in chosen:
            if not _lmdb_layout.may_be_one(folder, name):
                continue
            try:
                found = _lmdb_layout.layout_of(folder, name)
            except BadInput:
                return None  # the source that the user names says so
            if found == cls.kind:
                return f"LMDB of {cls.layout}: {counted(len(chosen), 'file')}"
        return None

    def _list_all(self, root: Path, *, follow_links: bool, layout: str) -> list[RecordFile]:
        """Find every entry of every LMDB; raises InvalidRequest, BadInput."""
        names = self._open(root, follow_links=follow_links, layout=layout)
        chosen = names if root.is_file() else _lmdb_layout.environments(names)
        files, keys = [], list[bytes]()
        self._metadata: dict[tuple[int, bytes], bytes] = {}
        for number, name in enumerate(chosen):
            start = self.folder.start(name, _START_BYTES)
            check_no_pointer(start, self.folder.root / name)
            self._check_layout(name)
            file = OpenFile(self.folder, name)
            for entry in lmdb_page_walk.entries(file):
                if self._is_metadata(entry.key):
                    self._metadata[number, entry.key] = file.read(entry.offset, entry.size)
                    continue
                self._add(number, entry.offset, entry.size)
                keys.append(entry.key)
            files.append(RecordFile(name, file.size))
        if not keys:
            raise self._none_found(names, "data.mdb, or a name that ends in .lmdb")
        self._raw_keys = keys
        taken = set(chosen)
        self._others = [name for name in names if name not in taken and not _lmdb_layout.is_lock(name)]
        return files

    def _check_layout(self, name: str) -> None:
        """Raise InvalidRequest for an LMDB of another tool, saying whose it seems to be."""
        found = _lmdb_layout.first_entries(self.folder, name, _lmdb_layout.LOOKED_AT)
        path = shown(str(self.folder.root / name))
        if found is None:
            check_not_empty(self.folder.start(name, 1), self.folder.root / name)
            raise InvalidRequest(f"{path}: is no LMDB: expected magic 0xbeefc0de of a little-endian 64-bit machine")
        for key, value in found:
            try:
                if not self._is_metadata(key):
                    self._check_record(key, value)
            except BadInput as error:
                raise InvalidRequest(
                    f"{path}: its values are no {self.layout}: under {shown(repr(key[:40]))}: {error.message}; "
                    f"{_lmdb_layout.guess(self.folder, name)}"
                ) from error
