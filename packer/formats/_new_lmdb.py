"""New LMDB: one file being written by LMDB's library, unsynced, its map grown on demand.

A thread of its own commits while the caller goes on: the library holds the interpreter for little of that time.

What is in it depends on the entries and their order alone: commits fall on boundaries that these fix, and the size of
the map, which is kept in the file's meta pages, is a function of what was announced and what came.
"""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lmdb

from packer.errors import InvalidRequest, StorageError

PAGE_BYTES = 4096
_MIB = 1 << 20
# A commit falls on boundaries that the records alone fix. Small ones keep memory flat and in the caches: 2 MiB took
# 0.85 of the time of 16 MiB here, and unsynced a commit costs next to nothing.
_COMMIT_BYTES = 2 * _MIB
# py-lmdb >= 3 brings two engines and lets an environment variable choose; data format 1 is what every library reads
_ENGINE = {"lib_version": 0} if int(lmdb.__version__.split(".")[0]) >= 3 else {}


def file_bytes(payload_bytes: int, values: int) -> int:
    """About how large a file is that holds so many bytes in so many values.

    A value beyond half a page takes whole pages, half of one for nothing; smaller ones leave a quarter empty.
    """
    is_large = payload_bytes > values * (PAGE_BYTES // 2)
    waste = values * (PAGE_BYTES // 2) if is_large else payload_bytes // 3
    return payload_bytes + waste + 4 * PAGE_BYTES


class NewLMDB:
    """See the module. part: what messages name."""

    def __init__(self, path: Path, *, part: Path, payload_bytes: int, is_sorted: bool) -> None:
        """is_sorted: whether entries come in the order of their keys. Raises StorageError."""
        self._part = part
        self._is_sorted = is_sorted
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="packer-lmdb")
        self._committing: tuple[Future[None], list[tuple[bytes, bytes]]] | None = None
        self._map_bytes = (payload_bytes + payload_bytes // 4 + 64 * _MIB) // _MIB * _MIB
        options: dict[str, Any] = {"lock": False, "writemap": False, "sync": False, "meminit": True, **_ENGINE}
        try:
            self._env: lmdb.Environment | None = lmdb.open(
                os.fsencode(path), subdir=False, map_size=self._map_bytes, **options
            )
        except (lmdb.Error, OSError) as error:
            raise StorageError(f"{part}: cannot make the part: {error}; free space or choose another folder") from error

    def put(self, entries: list[tuple[bytes, bytes]]) -> None:
        """Take some entries, which are committed together.

        Raises InvalidRequest for a closed file, and StorageError, of entries that were taken before too: those are kept
        and committed again.
        """
        self._pending += entries
        self._pending_bytes += sum([len(value) for _, value in entries])
        if self._pending_bytes >= _COMMIT_BYTES:
            env = self._opened()
            self._await()
            items, self._pending, self._pending_bytes = self._pending, [], 0
            self._committing = self._committer.submit(self._commit, env, items), items

    def commit(self, *more: tuple[bytes, bytes]) -> None:
        """Write what was taken, and some more; raises InvalidRequest for a closed file, StorageError."""
        env = self._opened()
        self._await()
        self._commit(env, [*self._pending, *more])
        self._pending, self._pending_bytes = [], 0

    def _opened(self) -> lmdb.Environment:
        if self._env is None:
            raise InvalidRequest(f"{self._part}: the part is closed; write it anew")
        return self._env

    def _await(self) -> None:
        """Wait until the thread has committed what it was given; where it could not, take that back: StorageError."""
        committing, self._committing = self._committing, None
        if committing is not None:
            future, items = committing
            try:
                future.result()
            except StorageError:
                self._pending[:0] = items
                raise

    def _commit(self, env: lmdb.Environment, items: list[tuple[bytes, bytes]]) -> None:
        while not self._try_commit(env, items):
            self._map_bytes *= 2
            env.set_mapsize(self._map_bytes)

    def _try_commit(self, env: lmdb.Environment, items: list[tuple[bytes, bytes]]) -> bool:
        """One transaction with all entries; False where the map is too small, nothing written then."""
        try:
            with env.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(items, append=self._is_sorted)  # the bytes that a put for each would give
        except lmdb.MapFullError:
            return False
        except lmdb.Error as error:
            raise StorageError(f"{self._part}: cannot write: {error}; free space or choose another folder") from error
        return True

    def close(self) -> None:
        """Give the file back; may be called twice. What was not committed is lost."""
        self._committer.shutdown(wait=True)
        if self._env is not None:
            self._env.close()
            self._env = None
        self._pending = []
