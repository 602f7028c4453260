"""Part readers: the process-wide cache of open parts, and the functions that check and open a part.

All datasets of a process share one reader per part. A reader is pinned while a function reads from it. The cache closes
the least recently used readers that are not pinned when too many are open. A forked child starts with an empty cache.
"""

import os
import resource
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from packer import formats
from packer.errors import CorruptPack, PackerError, StorageError
from packer.formats.base import Reader
from packer.pack.manifest import Part
from packer.schema import Schema
from packer.system import closed_after_fork  # noqa: F401  its fork hooks must be registered before ours

Key = tuple[int, int]  # of a local part: device and inode; of a remote part: a negative number per pack, and the part
_MOST_OPENINGS = 20  # of a pack that is replaced each time it is opened


class PartLease(Protocol):
    """A lock that keeps the file of a part in a cache until `close`. `path` is the path of the file."""

    path: Path

    @property
    def is_given_up(self) -> bool:
        """True if `PartSupply.give_up` marked the part as not needed soon."""

    def close(self) -> None:
        """Release the lock. It may be called twice."""


class _Entry:
    def __init__(self, reader: Reader, lease: PartLease | None) -> None:
        self.reader = reader
        self.lease = lease  # closed with the reader; None for a local part
        self.pins = 0  # reads in progress

    def close(self) -> None:
        self.reader.close()
        if self.lease is not None:
            self.lease.close()


class ReaderCache:
    """The open readers of this process, by the keys of their parts. Thread-safe."""

    def __init__(self, limit: int) -> None:
        """Create an empty cache. If more than `limit` readers are open, it closes readers that are not pinned."""
        self.limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._owners: dict[Key, int] = {}  # number of open packs that use a part
        self._gone: deque[list[Key]] = deque()  # parts of closed packs, not subtracted from `_owners` yet

    def __len__(self) -> int:
        """Return the number of open readers, pinned or not."""
        return len(self._entries)

    def owners(self) -> dict[Key, int]:
        """Return the number of open packs that use each part."""
        return dict(self._owners)

    def unowned(self) -> list[Key]:
        """Return the parts with an open reader that no open pack uses."""
        return [key for key in self._entries if key not in self._owners]

    def own(self, keys: list[Key]) -> None:
        """Register a pack that uses these parts. Their readers stay open between reads until `disown`."""
        with self._lock:
            for key in keys:
                self._owners[key] = self._owners.get(key, 0) + 1
        self._release_gone()

    def disown(self, keys: list[Key]) -> None:
        """Undo one call of `own`, and close the readers of parts that no other pack uses.

        This never waits for the lock, because a finalizer may run in the thread that holds the lock. If another call
        holds the lock, that call closes the readers when it ends.
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
        """Return a `with` block that pins a part and yields its reader. `make` opens the part if it is not open."""
        return ReaderPin(self, key, make)

    def pin(self, key: Key, make: Callable[[], Reader], lease: PartLease | None = None) -> _Entry:
        """Pin a part: its reader stays open until `unpin`.

        Args:
            make: opens the part if it is not open.
            lease: closed with the reader that `make` returns. If the part was open already, you must close the lease.

        Returns:
            The entry, for `unpin`.
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
        """Return True if the cache has an open reader of the part now. Another thread may close the reader."""
        return key in self._entries

    def pin_open(self, key: Key) -> _Entry | None:
        """Pin a part if it is open, and return its entry. Return None if the part is not open."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                entry.pins += 1
        return entry

    def pin_with_lease(self, key: Key, make: Callable[[], Reader], lease: PartLease) -> _Entry:
        """Pin a part as `pin` does. The cache closes the lease in all cases, also after an error."""
        entry = None
        try:
            entry = self.pin(key, make, lease)
        finally:
            if entry is None or entry.lease is not lease:  # another thread opened the part first
                lease.close()
        return entry

    def close_unused(self, *, only_given_up: bool) -> int:
        """Close the readers of remote parts that are not pinned, and return the number of closed readers.

        Args:
            only_given_up: True closes only readers of parts that will not be needed soon. False closes all of them.
        """
        with self._lock:
            found = [
                key
                for key, entry in self._entries.items()
                if entry.lease is not None and not entry.pins and (entry.lease.is_given_up or not only_given_up)
            ]
            for key in found:
                self._entries.pop(key).close()
        return len(found)

    def drop(self, key: Key) -> None:
        """Remove the reader of a part: the next `pin` opens the part again. `unpin` closes a reader that is pinned."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None and not entry.pins:
                entry.close()

    def unpin(self, key: Key, entry: _Entry) -> None:
        """Undo the call of `pin` that returned `entry`. Close the reader if no open pack uses the part."""
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
        """Run before a fork: wait until no thread opens or closes a part, and keep the lock until the fork is done."""
        self._lock.acquire()

    def release(self) -> None:
        """Run in the parent after a fork: release the lock of `hold`."""
        self._lock.release()
        self._release_gone()

    def forget(self) -> None:
        """Run in the child after a fork: close the inherited readers. The readers of the parent stay open."""
        self._lock = threading.Lock()
        for entry in self._entries.values():
            entry.close()
        self._entries.clear()
        self._owners.clear()
        self._gone.clear()


class ReaderPin:
    """The result of `ReaderCache.pinned`, a context manager. A class is faster than a generator."""

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
    """The functions that check and open parts, for packs with one format and schema.

    Attributes:
        is_folder: True if a part is a folder of files, False if it is a file.
        is_mapped: True if records are slices of mapped files, False if they are copies in memory.
    """

    def __init__(self, format: str, schema: Schema) -> None:
        self._reader: type[Reader] = formats.load(format).Reader
        self._schema = schema
        self.is_folder = self._reader.is_folder
        self.is_mapped: bool = self._reader.is_mapped

    def side_files(self) -> Sequence[str]:
        """Return relative paths of the files of a part that contain no values. They are empty if a part is one file."""
        return self._reader.side_files(self._schema)

    def check(self, path: Path, part: Part) -> Key:
        """Check a part as `check_part` does, and return its key. For a folder, the key of its main file."""
        key = check_part(path, part, is_folder=self.is_folder)
        if self.is_folder:
            with suppress(OSError):  # opening the part reports it
                status = os.stat(path / self._reader.main_file, follow_symlinks=False)
                key = status.st_dev, status.st_ino
        return key

    def open(self, path: Path, samples: int, *, readahead: bool = True) -> Reader:
        """Return a new reader. With `readahead`, the system reads ahead. Raises CorruptPack, StorageError."""
        return self._reader(path, self._schema, samples=samples, readahead=readahead)

    def shared(self, path: Path, part: Part, key: Key) -> AbstractContextManager[Reader]:
        """Return a `with` block that yields the shared reader of a part. `key` is the result of `check`."""
        return open_readers.pinned(key, partial(self.open, path, part.samples))


def check_part(path: Path, part: Part, *, is_folder: bool = False) -> Key:
    """Compare the type and size of a part with the manifest, because reading a truncated mapped file raises SIGBUS.

    For a part that is a folder, the reader compares the size of each file later.

    Returns:
        Device and inode of the part.

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
    """Return the result of `opened`, which opens a file of a pack that may be replaced at the same time.

    `convert --overwrite` swaps the folder of a pack and then empties the old one. If the inode of `path` changes during
    the call, the result or the error is discarded and `opened` is called again.

    Raises:
        CorruptPack: `path` was replaced during each of 20 calls.
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
    """Return device, inode and the time of the last change, which a rename sets; None if the path does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
