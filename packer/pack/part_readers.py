"""Part readers: the process-wide cache of open parts, and the functions that check and open a part.

All datasets of a process share one open reader per part. The cache identifies a part by its device and inode and counts
the packs that use it. Readers in use are pinned. When too many parts are open, the cache closes the least recently used
one and opens it again on demand. A forked child starts with an empty cache.
"""

import os
import resource
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from packer import formats
from packer.errors import CorruptPack, PackerError, StorageError
from packer.formats.base import Reader
from packer.pack.manifest import Part
from packer.schema import Schema
from packer.system import closed_after_fork  # noqa: F401  its fork hooks must be registered before ours

Key = tuple[int, int]
_MOST_OPENINGS = 20  # of a pack that is replaced during each attempt


class PartLease(Protocol):
    """Keeps the file of a part at `path` until the lease is closed. It may be closed twice."""

    path: Path

    @property
    def is_done_with(self) -> bool:
        """True if the part will not be needed soon."""

    def close(self) -> None:
        """Release the part."""


class _Entry:
    """An open reader, the number of reads in progress, and the lease on the part, if any."""

    def __init__(self, reader: Reader, lease: PartLease | None) -> None:
        self.reader = reader
        self.lease = lease
        self.pins = 0

    def close(self) -> None:
        self.reader.close()
        if self.lease is not None:
            self.lease.close()


class ReaderCache:
    """The open readers of this process. `limit`: how many unused readers stay open."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._owners: dict[Key, int] = {}
        self._gone: deque[list[Key]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def owners(self) -> dict[Key, int]:
        """Return how many open packs use each part."""
        return dict(self._owners)

    def unowned(self) -> list[Key]:
        """Return the open parts that no open pack uses."""
        return [key for key in self._entries if key not in self._owners]

    def own(self, keys: list[Key]) -> None:
        """Count a pack that uses these parts."""
        with self._lock:
            for key in keys:
                self._owners[key] = self._owners.get(key, 0) + 1
        self._release_gone()

    def disown(self, keys: list[Key]) -> None:
        """Remove a pack that used these parts, and close the parts that no other pack uses.

        This never waits for the lock: a finalizer may run in a thread that holds it. The holder of the lock closes the
        parts when it releases the lock.
        """
        self._gone.append(keys)
        self._release_gone()

    def _release_gone(self) -> None:
        while self._gone and self._lock.acquire(blocking=False):
            try:
                while self._gone:
                    for key in self._gone.popleft():
                        self._drop_owner(key)
            finally:
                self._lock.release()

    def _drop_owner(self, key: Key) -> None:
        self._owners[key] = self._owners.get(key, 1) - 1
        if self._owners[key] <= 0:
            del self._owners[key]
            entry = self._entries.get(key)
            if entry is not None and not entry.pins:
                self._entries.pop(key).close()

    def pinned(self, key: Key, make: Callable[[], Reader]) -> "ReaderPin":
        """Return a `with` block in which the reader of a part stays open; `make` opens a closed part."""
        return ReaderPin(self, key, make)

    def pin(self, key: Key, make: Callable[[], Reader], lease: PartLease | None = None) -> _Entry:
        """Return the entry of a part, which stays open until `unpin`.

        Args:
            make: opens the part if it is not open.
            lease: closed together with the reader that `make` returns.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(make(), lease)
                self._shrink(keep=entry)
            self._entries.move_to_end(key)
            entry.pins += 1
        return entry

    def is_open(self, key: Key) -> bool:
        """Return True if a part is open at this moment."""
        return key in self._entries

    def pin_open(self, key: Key) -> _Entry | None:
        """Pin a part that is open; return None for any other."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                entry.pins += 1
        return entry

    def pin_leased(self, key: Key, make: Callable[[], Reader], lease: PartLease) -> _Entry:
        """Pin a part whose file exists as long as the lease; the cache then owns the lease."""
        entry = None
        try:
            entry = self.pin(key, make, lease)
        finally:
            if entry is None or entry.lease is not lease:  # another thread opened the part first
                lease.close()
        return entry

    def close_idle(self, *, only_done_with: bool) -> int:
        """Close the unused readers of leased parts, and return their number.

        Args:
            only_done_with: close only parts that will not be needed soon.
        """
        with self._lock:
            found = [
                key
                for key, entry in self._entries.items()
                if entry.lease is not None and not entry.pins and (entry.lease.is_done_with or not only_done_with)
            ]
            for key in found:
                self._entries.pop(key).close()
        return len(found)

    def drop(self, key: Key) -> None:
        """Open a part again for the next read; reads in progress keep their reader."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None and not entry.pins:
                entry.close()

    def unpin(self, key: Key, entry: _Entry) -> None:
        """Undo a `pin`, and close the reader if no open pack uses the part."""
        with self._lock:
            entry.pins -= 1
            if not entry.pins and self._entries.get(key) is not entry:  # dropped during the read
                entry.close()
            elif not entry.pins and key not in self._owners:
                self._entries.pop(key).close()
            elif len(self._entries) > self.limit:  # many parts were read at the same time
                self._shrink(keep=entry)
        if self._gone:
            self._release_gone()

    def _shrink(self, keep: _Entry) -> None:
        idle = [key for key, entry in self._entries.items() if not entry.pins and entry is not keep]
        for key in idle[: max(0, len(self._entries) - self.limit)]:
            self._entries.pop(key).close()

    def hold(self) -> None:
        """Wait before a fork until no thread opens or closes a part: the child would inherit a half-open one."""
        self._lock.acquire()

    def release(self) -> None:
        """Continue in the parent after a fork."""
        self._lock.release()
        self._release_gone()

    def forget(self) -> None:
        """Close the inherited readers in a child after a fork; their files stay open in the parent."""
        self._lock = threading.Lock()
        for entry in self._entries.values():
            entry.close()
        self._entries.clear()
        self._owners.clear()
        self._gone.clear()


class ReaderPin:
    """The `with` block of `ReaderCache.pinned`; a class is faster than a generator."""

    __slots__ = ("_cache", "_entry", "_key", "_make")
    _entry: _Entry

    def __init__(self, cache: ReaderCache, key: Key, make: Callable[[], Reader]) -> None:
        self._cache = cache
        self._key = key
        self._make = make

    def __enter__(self) -> Reader:
        self._entry = self._cache.pin(self._key, self._make)
        return self._entry.reader

    def __exit__(self, *_: object) -> None:
        self._cache.unpin(self._key, self._entry)


def default_limit() -> int:
    """Return a quarter of the files that this process may open, at most 512."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if soft == resource.RLIM_INFINITY else max(4, min(512, soft // 4))


open_readers = ReaderCache(default_limit())
os.register_at_fork(before=open_readers.hold, after_in_parent=open_readers.release, after_in_child=open_readers.forget)


# ---- checking and opening a part


class PartOpener:
    """Checks and opens the parts of packs with one format and schema.

    Attributes:
        is_folder: True if a part is a folder of files.
        is_mapped: True if records are views of mapped files.
    """

    def __init__(self, format: str, schema: Schema) -> None:
        self._reader: type[Reader] = formats.load(format).Reader
        self._schema = schema
        self.is_folder = self._reader.is_folder
        self.is_mapped: bool = self._reader.is_mapped

    def side_files(self) -> Sequence[str]:
        """Return the files of a part that contain no values."""
        return self._reader.side_files(self._schema)

    def check(self, path: Path, part: Part) -> Key:
        """Check a part with `check_part`."""
        return check_part(path, part, is_folder=self.is_folder)

    def open(self, path: Path, samples: int, *, readahead: bool = True) -> Reader:
        """Return a reader that the caller closes; raises CorruptPack, StorageError."""
        return self._reader(path, self._schema, samples=samples, readahead=readahead)

    def shared(self, path: Path, part: Part, key: Key) -> AbstractContextManager[Reader]:
        """Return a `with` block with the shared reader of a checked part."""
        return open_readers.pinned(key, partial(self.open, path, part.samples))


def check_part(path: Path, part: Part, *, is_folder: bool = False) -> Key:
    """Compare the size of a part with the manifest: mapping a cut file would end the process.

    The sizes of the files in a folder are compared when each file is read.

    Returns:
        Device and inode.

    Raises:
        CorruptPack: the part is missing, has another size, or is a link or device.
        StorageError: the file system does not answer.
    """
    try:
        status = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CorruptPack(f"{path}: part is missing; open the pack again if it was replaced, or copy it") from error
    except OSError as error:
        raise StorageError(f"{path}: cannot read: {error.strerror}; see its permissions and its disk") from error
    if not (stat.S_ISDIR if is_folder else stat.S_ISREG)(status.st_mode):
        kinds = "a folder, found a file, link or device" if is_folder else "a file, found a link, folder or device"
        raise CorruptPack(f"{path}: expected {kinds}; copy the pack with cp -rL")
    if not is_folder and status.st_size != part.bytes:
        raise CorruptPack(
            f"{path}: part is cut or changed: expected {part.bytes} bytes, found {status.st_size}; open the "
            "pack again if it was replaced, or copy it"
        )
    return status.st_dev, status.st_ino


class _Closable(Protocol):
    def close(self) -> object: ...


Opened = TypeVar("Opened", bound=_Closable)


def open_unreplaced(path: Path, opened: Callable[[], Opened]) -> Opened:
    """Call `opened`, and call it again if another pack replaced `path` meanwhile.

    `convert --overwrite` swaps the folder of a pack and then empties the old one. A result or an error therefore counts
    only if `path` is the same inode before and after the call.
    """
    for _ in range(_MOST_OPENINGS):
        before = _identity(path)
        try:
            found = opened()
        except PackerError:
            if _identity(path) == before:
                raise
            continue
        if _identity(path) == before:
            return found
        found.close()
    raise CorruptPack(f"{path}: replaced {_MOST_OPENINGS} times while it was opened; open it again later")


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return device, inode and time of the last change (a rename sets it), or None if the path does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
