"""Foreign LMDB: base of the formats whose tool reads an LMDB, a record an entry, and nothing else in it.

LMDB decides where a value lies, and says so to nobody: the finished file's pages are walked once for the places.
"""

import os
from abc import abstractmethod
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from packer.errors import BadInput, InvalidRequest, StorageError
from packer.formats._foreign_part import ForeignWriter
from packer.formats._new_lmdb import NewLMDB, file_bytes
from packer.layouts import lmdb_pages

MOST_KEY_BYTES = 511  # LMDB's own limit, MDB_MAXKEYSIZE


class ForeignLMDBWriter(ForeignWriter):
    """Puts an entry for each record, whose value holds the one held field in one piece."""

    is_sorted: ClassVar[bool] = False  # whether rows come in the order of their keys
    _file: NewLMDB | None = None

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        return file_bytes(payload_bytes, values)

    @abstractmethod
    def _entry(self, row: int, values: Mapping[str, bytes]) -> tuple[bytes, bytes, int]:
        """Key and value of a record, and where the held field begins in the value."""

    @abstractmethod
    def _row(self, key: bytes) -> int | None:
        """The row of an entry; None for one that is no record."""

    def _more(self) -> list[tuple[bytes, bytes]]:
        """Entries besides those of records, which the tool wants."""
        return []

    def _begin(self, payload_bytes: int) -> None:
        self._file = NewLMDB(
            self.path / self.layout.data, part=self.path, payload_bytes=payload_bytes, is_sorted=self.is_sorted
        )
        self._inner = array("q")  # of each row, where the field begins in its value
        self._sizes = array("q")

    def _opened(self) -> NewLMDB:
        if self._file is None:
            raise InvalidRequest(f"{self.path}: the part is closed; write it anew")
        return self._file

    def _append(self, row: int, values: Mapping[str, bytes]) -> None:
        key, value, inner = self._entry(row, values)
        self._opened().put([(key, value)])
        self._inner.append(inner)
        self._sizes.append(len(values[self._held[0]]))

    def _complete(self) -> None:
        self._opened().commit(*self._more())
        self._opened().close()
        found = array("q", bytes(8 * len(self._inner)))
        with _WholeFile(self.path / self.layout.data) as file:
            try:
                for entry in lmdb_pages.entries(file):
                    row = self._row(entry.key)
                    if row is not None:
                        found[row] = entry.offset
            except BadInput as error:  # a disk that does not give back what it took
                raise StorageError(f"{error.message}; its disk may be failing") from error
        for start, inner, size in zip(found, self._inner, self._sizes, strict=True):
            self._place([(start + inner, size)])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


class _WholeFile:
    """A file that is read by offset."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> "_WholeFile":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """So many bytes, fewer at the end."""
        return os.pread(self._descriptor, size, offset)
