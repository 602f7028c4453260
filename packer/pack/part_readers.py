"""Part readers: opens the parts of a pack; one open reader per part and process, shared by every data set.

A part that is open twice takes two descriptors and two mappings, and what a thread opens or closes while another forks
is half open in the child. So readers live in one cache, keyed by the part's device and inode, counted, and thrown away
in a child after fork. Readers in use are pinned; when too many parts are open, the one unused for longest is closed and
opened again on demand.
"""

import os
import resource
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from packer import formats
from packer.errors import CorruptPack, StorageError
from packer.formats.base import Reader
from packer.pack.manifest import Part
from packer.schema import Schema
from packer.system import closed_after_fork  # noqa: F401  its fork hooks must be registered before those of this module

Key = tuple[int, int]


class PartLease(Protocol):
    """Keeps a part where it is, at `path`, until it is closed; may be closed twice."""

    path: Path

    @property
    def is_done_with(self) -> bool:
        """Whether the part will not be needed soon."""

    def close(self) -> None:
        """Let go of the part."""


class _Entry:
    """An open reader and how many reads are going on in it; of a part that is kept by a lease, that too."""

    def __init__(self, reader: Reader, lease: PartLease | None) -> None:
        self.reader = reader
        self.lease = lease
        self.pins = 0

    def close(self) -> None:
        """Both."""
        self.reader.close()
        if self.lease is not None:
            self.lease.close()


class ReaderCache:
    """Open readers of this process; `limit` is how many may stay open when none is in use."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._owners: dict[Key, int] = {}
        self._gone: deque[list[Key]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def owners(self) -> dict[Key, int]:
        """How many open packs use each part."""
        return dict(self._owners)

    def unowned(self) -> list[Key]:
        """Parts that are open and that no open pack uses."""
        return [key for key in self._entries if key not in self._owners]

    def own(self, keys: list[Key]) -> None:
        """A pack that uses these parts has been opened."""
        with self._lock:
            for key in keys:
                self._owners[key] = self._owners.get(key, 0) + 1
        self._settle()

    def disown(self, keys: list[Key]) -> None:
        """A pack that used these parts is gone; parts that nobody uses any more are closed.

        Never waits: a finalizer may call this at any point, also in a thread that is working on the cache.
        """
        self._gone.append(keys)
        self._settle()

    def _settle(self) -> None:
        """Do what `disown` left behind, unless somebody holds the lock: who does settles after giving it back."""
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
        """The open reader of a part, not closed before the block ends; `make` opens it where it is not open."""
        return ReaderPin(self, key, make)

    def pin(self, key: Key, make: Callable[[], Reader], lease: PartLease | None = None) -> _Entry:
        """The entry of a part, opened by `make` where it is not open; stays until it is given to `unpin`.

        lease: closed with the reader, by the entry that has it; see `pin_leased`.
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
        """Whether a part is open at this moment."""
        return key in self._entries

    def pin_open(self, key: Key) -> _Entry | None:
        """As `pin`, of a part that is open; None where it is not."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                entry.pins += 1
        return entry

    def pin_leased(self, key: Key, make: Callable[[], Reader], lease: PartLease) -> _Entry:
        """As `pin`, of a part that is not where the lease says when that is closed; takes the lease over."""
        entry = None
        try:
            entry = self.pin(key, make, lease)
        finally:
            if entry is None or entry.lease is not lease:  # another thread has opened it meanwhile
                lease.close()
        return entry

    def close_idle(self, *, only_done_with: bool) -> int:
        """Close readers of leased parts that nobody reads at this moment, and return how many.

        only_done_with: those of parts that will not be needed soon.
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
        """Open a part again for the next read; reads that are going on keep the reader that they have."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None and not entry.pins:
                entry.close()

    def unpin(self, key: Key, entry: _Entry) -> None:
        """Undo a `pin`; the reader is closed where no open pack uses the part any more."""
        with self._lock:
            entry.pins -= 1
            if not entry.pins and self._entries.get(key) is not entry:  # dropped meanwhile
                entry.close()
            elif not entry.pins and key not in self._owners:
                self._entries.pop(key).close()
            elif len(self._entries) > self.limit:  # many were read at once
                self._shrink(keep=entry)
        if self._gone:
            self._settle()

    def _shrink(self, keep: _Entry) -> None:
        idle = [key for key, entry in self._entries.items() if not entry.pins and entry is not keep]
        for key in idle[: max(0, len(self._entries) - self.limit)]:
            self._entries.pop(key).close()

    def hold(self) -> None:
        """Before fork: wait until no thread is opening or closing a part, which would stay half open in the child."""
        self._lock.acquire()

    def release(self) -> None:
        """In the parent after fork."""
        self._lock.release()
        self._settle()

    def forget(self) -> None:
        """In a child after fork: drop what the parent opened, without touching what it shares with the parent."""
        self._lock = threading.Lock()
        for entry in self._entries.values():
            entry.close()
        self._entries.clear()
        self._owners.clear()
        self._gone.clear()


class ReaderPin:
    """The `with` block of `ReaderCache.pinned`: a class, which takes less time than a generator."""

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


def key_of(path: Path) -> Key:
    """The identity of a part on this machine: device and inode."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def default_limit() -> int:
    """A quarter of the files that this process may open, at most 512."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if soft == resource.RLIM_INFINITY else max(4, min(512, soft // 4))


open_readers = ReaderCache(default_limit())  # the one piece of process-wide state, by design: see above
os.register_at_fork(before=open_readers.hold, after_in_parent=open_readers.release, after_in_child=open_readers.forget)


# ---- opening


class PartOpener:
    """Of the packs with this format and schema. is_folder, is_mapped: as of its Reader."""

    def __init__(self, format: str, schema: Schema) -> None:
        self._reader: type[Reader] = formats.load(format).Reader
        self._schema = schema
        self.is_folder = self._reader.is_folder
        self.is_mapped: bool = self._reader.is_mapped

    def side_files(self) -> Sequence[str]:
        """As of the format's reader."""
        return self._reader.side_files(self._schema)

    def check(self, path: Path, part: Part) -> Key:
        """As `check_part`."""
        return check_part(path, part, is_folder=self.is_folder)

    def open(self, path: Path, samples: int, *, readahead: bool = True) -> Reader:
        """A reader that the caller closes; raises CorruptPack, StorageError."""
        return self._reader(path, self._schema, samples=samples, readahead=readahead)

    def shared(self, path: Path, part: Part, key: Key) -> AbstractContextManager[Reader]:
        """The reader of this process for a checked part, which a data set may have open already."""
        return open_readers.pinned(key, lambda: self.open(path, part.samples))


def check_part(path: Path, part: Part, *, is_folder: bool = False) -> Key:
    """Compare a part's size with the manifest (mapping a cut file would kill the process); returns its identity.

    is_folder: of a part that is one, this says nothing of the files in it, of which there may be millions: their sizes
    are compared one by one when they are read. Raises CorruptPack, StorageError where the file system does not answer.
    """
    try:
        status = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CorruptPack(
            f"{path}: part is missing; copy the pack again, or open it anew if it was replaced"
        ) from error
    except OSError as error:
        raise StorageError(f"{path}: cannot read: {error.strerror}; see its permissions and its disk") from error
    if is_folder:
        if not stat.S_ISDIR(status.st_mode):
            raise CorruptPack(f"{path}: expected a folder, found a file, link or device; copy the pack with cp -rL")
        return status.st_dev, status.st_ino
    if not stat.S_ISREG(status.st_mode):
        raise CorruptPack(f"{path}: expected a file, found a link, folder or device; copy the pack with cp -rL")
    if status.st_size != part.bytes:
        raise CorruptPack(
            f"{path}: part is cut or changed: expected {part.bytes} bytes, found {status.st_size}; copy the pack "
            "again, or open it anew if it was replaced"
        )
    return status.st_dev, status.st_ino
