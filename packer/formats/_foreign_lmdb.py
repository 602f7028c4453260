"""Foreign LMDB: base of the formats whose tool reads an LMDB with one entry per record.

The LMDB library does not report where in the file a value is, so the pages of the finished file are read to find out.
"""

import os
from abc import abstractmethod
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from packer.errors import BadInput, StorageError
from packer.formats._foreign_part import ForeignWriter
from packer.formats._new_lmdb import NewLMDB, file_bytes
from packer.layouts import lmdb_reader


class ForeignLMDBWriter(ForeignWriter):
    """Adds an LMDB entry for each record. Its value contains the only held field (see `_foreign_part`) as one piece.

    Attributes:
        is_sorted: True if the keys of entries increase with the row.
    """

    is_sorted: ClassVar[bool] = False

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        return file_bytes(payload_bytes, values)

    @abstractmethod
    def _entry(self, row: int, values: Mapping[str, bytes]) -> tuple[bytes, bytes, int]:
        """Return (key, value, offset of the held field in the value) of a record's entry."""

    @abstractmethod
    def _row(self, key: bytes) -> int | None:
        """Return the row of the entry with this key, or None if the entry is not a record."""

    def _more(self) -> list[tuple[bytes, bytes]]:
        """Return (key, value) of further entries that the tool requires and that are not records. Default: none."""
        return []

    def _begin(self, payload_bytes: int) -> None:
        path = self.path / self.layout.data
        self._file = self._own(NewLMDB(path, part=self.path, payload_bytes=payload_bytes, is_sorted=self.is_sorted))
        self._inner = array("q")  # for each row, the offset of the field in its value
        self._sizes = array("q")

    def _append(self, row: int, values: Mapping[str, bytes]) -> None:
        key, value, inner = self._entry(row, values)
        self._file.put([(key, value)])
        self._inner.append(inner)
        self._sizes.append(len(values[self._held[0]]))

    def _complete(self) -> None:
        self._file.commit(*self._more())
        self._file.close()
        found = array("q", bytes(8 * len(self._inner)))
        with _WholeFile(self.path / self.layout.data) as file:
            try:
                for entry in lmdb_reader.entries(file):
                    row = self._row(entry.key)
                    if row is not None:
                        found[row] = entry.offset
            except BadInput as error:  # the disk returned other bytes than were written
                raise StorageError(f"{error.message}; its disk may be failing") from error
        for start, inner, size in zip(found, self._inner, self._sizes, strict=True):
            self._place([(start + inner, size)])


class _WholeFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> "_WholeFile":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)
