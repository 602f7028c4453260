"""LMDB: one memory-mapped B+tree file per part, read by any LMDB library.

Layout of `part-00000.lmdb` (LMDB data format 1, one unnamed database, no subfolder, no lock file):
    key   8 bytes, big-endian uint64: row * number of fields + position of the field in the schema
    value the encoded value, as it is
    last  key b"packer", value JSON {"fields": [names in order], "samples": rows}: written by finish()
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lmdb

from packer.errors import CorruptPack, InvalidRequest, StorageError
from packer.formats import base
from packer.formats._btree import BTree
from packer.formats._columns.mapped import mapping, opening
from packer.schema import Schema

SUFFIX = ".lmdb"
_END = b"packer"
_MIB = 1 << 20
_PAGE_BYTES = 4096
# A commit falls on boundaries that the records alone fix. Small ones keep memory flat and in the caches: 2 MiB took
# 0.85 of the time of 16 MiB here, and unsynced a commit costs next to nothing.
_COMMIT_BYTES = 2 * _MIB
# py-lmdb >= 3 brings two engines and lets an environment variable choose; data format 1 is what every library reads
_ENGINE = {"lib_version": 0} if int(lmdb.__version__.split(".")[0]) >= 3 else {}


class Writer(base.Writer):
    """Appends records in key order, unsynced: a part counts only when the journal or the manifest names it."""

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        super().__init__(path, schema, payload_bytes=payload_bytes)
        self._rows = 0
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._finished = False
        if os.path.lexists(path):
            raise InvalidRequest(f"{path}: a part must be new, found a file; remove it")
        # the size is kept in the file's meta pages, so it must be a function of the content alone
        self._map_bytes = (payload_bytes + payload_bytes // 4 + 64 * _MIB) // _MIB * _MIB
        options: dict[str, Any] = {"lock": False, "writemap": False, "sync": False, "meminit": True, **_ENGINE}
        try:
            self._env: lmdb.Environment | None = lmdb.open(
                os.fsencode(path), subdir=False, map_size=self._map_bytes, **options
            )
        except (lmdb.Error, OSError) as error:
            raise StorageError(f"{path}: cannot make the part: {error}; free space or choose another folder") from error

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        """A value beyond half a page takes whole pages, half of one for nothing; smaller ones leave a quarter empty."""
        is_large = payload_bytes > values * (_PAGE_BYTES // 2)
        waste = values * (_PAGE_BYTES // 2) if is_large else payload_bytes // 3
        return payload_bytes + waste + 4 * _PAGE_BYTES

    def write(self, record: base.Record) -> None:
        # bytes() copies what the caller may reuse or unmap, and gives bytes themselves back as they are
        values = [bytes(record[name]) for name in self.schema.names]
        first = self._rows * len(values)
        self._pending += [((first + at).to_bytes(8, "big"), value) for at, value in enumerate(values)]
        self._pending_bytes += sum(map(len, values))
        self._rows += 1
        if self._pending_bytes >= _COMMIT_BYTES:
            self._commit()

    def finish(self) -> None:
        if self._finished:
            return
        end = json.dumps({"fields": list(self.schema.names), "samples": self._rows}, sort_keys=True).encode()
        self._commit((_END, end))
        self._finished = True
        self.close()

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
        self._pending = []

    def _commit(self, *more: tuple[bytes, bytes]) -> None:
        if self._env is None:
            raise InvalidRequest(f"{self.path}: the part is closed; write it anew")
        while not self._try_commit(self._env, [*self._pending, *more]):
            self._map_bytes *= 2
            self._env.set_mapsize(self._map_bytes)
        self._pending = []
        self._pending_bytes = 0

    def _try_commit(self, env: lmdb.Environment, items: list[tuple[bytes, bytes]]) -> bool:
        """One transaction with all values; False where the map is too small, nothing written then."""
        try:
            with env.begin(write=True) as transaction:
                for key, value in items:
                    transaction.put(key, value, append=True)
        except lmdb.MapFullError:
            return False
        except lmdb.Error as error:
            raise StorageError(f"{self.path}: cannot write: {error}; free space or choose another folder") from error
        return True


class Reader(base.Reader):
    """Finds values in the mapped file without the library (see paging/tree.py); they are slices of it."""

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
