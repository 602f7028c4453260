"""New LMDB: writes an LMDB file with the LMDB library. The map grows when it is full, and nothing is synced to disk.

The bytes of the file depend only on the entries, their order and `payload_bytes`. `payload_bytes` sets the first size
of the map, and the file contains the size of its map.
"""

import os
from pathlib import Path
from typing import Any

import lmdb

from packer.errors import InvalidRequest, StorageError

PAGE_BYTES = 4096
_MIB = 1 << 20
# small commits keep memory flat and in the caches; without a sync, they cost little
_COMMIT_BYTES = 2 * _MIB
# py-lmdb >= 3 has two engines, and an environment variable chooses one; every library reads data format 1
_ENGINE = {"lib_version": 0} if int(lmdb.__version__.split(".")[0]) >= 3 else {}


def file_bytes(payload_bytes: int, values: int) -> int:
    """Return the estimated size in bytes of an LMDB file with `values` values of `payload_bytes` together.

    A value larger than half a page takes complete pages, and half of its last page is empty on average. Pages of
    smaller values are a quarter empty.
    """
    is_large = payload_bytes > values * (PAGE_BYTES // 2)
    waste = values * (PAGE_BYTES // 2) if is_large else payload_bytes // 3
    return payload_bytes + waste + 4 * PAGE_BYTES


class NewLMDB:
    """An LMDB file that is being written."""

    def __init__(self, path: Path, *, part: Path, payload_bytes: int, is_sorted: bool) -> None:
        """Create the file; raises StorageError.

        Args:
            path: The file.
            part: The part, for messages.
            payload_bytes: Estimated size of all values, which determines the first size of the map.
            is_sorted: True if entries arrive in the order of their keys. False if they arrive in any order.
        """
        self._part = part
        self._is_sorted = is_sorted
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._map_bytes = (payload_bytes + payload_bytes // 4 + 64 * _MIB) // _MIB * _MIB
        options: dict[str, Any] = {"lock": False, "writemap": False, "sync": False, "meminit": True, **_ENGINE}
        try:
            self._env: lmdb.Environment | None = lmdb.open(
                os.fsencode(path), subdir=False, map_size=self._map_bytes, **options
            )
        except (lmdb.Error, OSError) as error:
            raise StorageError(f"{part}: cannot make the part: {error}; free space or choose another folder") from error

    def put(self, entries: list[tuple[bytes, bytes]]) -> None:
        """Add entries in memory. If 2 MiB or more are waiting, commit them in one transaction.

        Raises:
            InvalidRequest: The file is closed.
            StorageError: The commit failed. The next commit contains these entries again.
        """
        self._pending += entries
        self._pending_bytes += sum([len(value) for _, value in entries])
        if self._pending_bytes >= _COMMIT_BYTES:
            self.commit()

    def commit(self, *more: tuple[bytes, bytes]) -> None:
        """Commit all waiting entries and `more`. Raises StorageError, and InvalidRequest if the file is closed."""
        if self._env is None:
            raise InvalidRequest(f"{self._part}: the part is closed; write a new one")
        items = [*self._pending, *more]
        while not self._try_commit(self._env, items):
            self._map_bytes *= 2
            self._env.set_mapsize(self._map_bytes)
        self._pending, self._pending_bytes = [], 0

    def _try_commit(self, env: lmdb.Environment, items: list[tuple[bytes, bytes]]) -> bool:
        """Write all entries in one transaction and return True. If the map is too small, write none, return False."""
        try:
            with env.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(items, append=self._is_sorted)  # the same bytes as one put per entry
        except lmdb.MapFullError:
            return False
        except lmdb.Error as error:
            raise StorageError(f"{self._part}: cannot write: {error}; free space or choose another folder") from error
        return True

    def close(self) -> None:
        """Close the file. Entries that are not committed are lost. A second call does nothing."""
        if self._env is not None:
            self._env.close()
            self._env = None
        self._pending = []
