"""Cache folder: whole files of packs on this machine's disk, within a limit of bytes that all processes keep together.

What counts: every file in it, in whole blocks, and what has been reserved for downloads. All of it is known from the
folder and from the kernel's locks, so that nothing has to be repaired after a kill:

* Who fetches a file holds the bytes of its slot (a hash of its name) in the file `locks`: one is the right to fetch
  it, as many as the file has bytes are reserved room. So each file is fetched once for all processes.
* Who reads a file holds a shared flock on it. Only a file that can be locked exclusively is removed.
* Room is reserved, and a file gets its name, while one byte of `locks` is held: the sum is right at each instant.
* Who finds no room holds a byte for as long as it waits. The others see it, and close what they only keep open.
"""

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from packer.errors import InvalidRequest, StorageError, UnsafePath
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing, free_bytes
from packer.remote.range_locks import HeldRange, RangeLocks
from packer.staging.user_folder import UserFolder, is_digest
from packer.system.closed_after_fork import closed_after_fork
from packer.system.machine_limits import Machine

_LOCKS = "locks"
_UNFINISHED = re.compile(r"\.fetching-([0-9]+)")
_BLOCK_BYTES = 4096
_SLOT_BITS, _SIZE_BITS = 22, 40
MOST_FILE_BYTES = (1 << _SIZE_BITS) - _BLOCK_BYTES
_SLOTS_END = 1 << (_SLOT_BITS + _SIZE_BITS)
_ACCOUNTS, _WAITING = _SLOTS_END, _SLOTS_END + 1  # bytes behind the slots
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITTEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SHARED_DISKS = re.compile(
    "nfs4?|cifs|smb3|smbfs|afs|ceph|lustre|gpfs|beegfs|pvfs2|orangefs|ocfs2|gfs2|fuse\\.(sshfs|s3fs|rclone|gcsfuse"
    "|blobfuse2?|goofys|glusterfs|ceph|mount-s3|juicefs).*"
)


def in_blocks(size: int) -> int:
    """Bytes that a file takes on a disk."""
    return max(1, -(-size // _BLOCK_BYTES)) * _BLOCK_BYTES


class Lease:
    """A file of the cache that nobody removes until `close`. path: where it is."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @property
    def is_done_with(self) -> bool:
        """Whether somebody has said that it will not be needed soon; see `CacheFolder.give_up`."""
        with suppress(OSError):  # closed meanwhile
            return os.fstat(self._descriptor).st_mtime_ns == 0
        return True

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            closed_after_fork.close(descriptor)


class CachedName(NamedTuple):
    """A file of a pack in the cache. name: relative to the pack, `/` between folder and file."""

    digest: str
    name: str

    @property
    def slot(self) -> int:
        """The first of its bytes in the file of locks. Two names may have one slot: they are then fetched in turn."""
        return _slot_number(hashlib.sha256(f"{self.digest}/{self.name}".encode()).digest()) << _SIZE_BITS


def _slot_number(digest: bytes) -> int:
    return int.from_bytes(digest[:4], "little") % (1 << _SLOT_BITS)


class _CachedFile(NamedTuple):
    """A file that is there."""

    file: CachedName
    bytes: int
    used_ns: int


class Spared(NamedTuple):
    """What does not make room for a file that is only fetched ahead: all of the pack with this digest that was not
    given up, and what was used since then.
    """

    digest: str
    since_ns: int

    def holds(self, found: _CachedFile) -> bool:
        """Whether this file is one of them."""
        return found.used_ns >= self.since_ns or (found.used_ns > 0 and found.file.digest == self.digest)


class CacheFolder:
    """The cache of this user below `base`. Threads and processes may share it; it pickles."""

    def __init__(self, base: Path, *, limit_bytes: int | None) -> None:
        """limit_bytes: of all files in it; None for as much as the disk holds.

        Raises InvalidRequest where `base` is no folder or lies on a disk of the network, UnsafePath as UserFolder does.
        """
        self.limit_bytes = limit_bytes
        place = _place(base)
        with failing(place.base, "ask for its file system"):
            mount = Machine().mount(place.base)
        if mount is not None and _SHARED_DISKS.fullmatch(mount.kind):
            raise InvalidRequest(
                f"{base}: a {mount.kind} file system, which other machines may share: expected a folder on a disk of "
                "this machine, whose kernel keeps the locks of a cache"
            )
        self.base = place.base
        self.folder = place.folder
        self._locks = RangeLocks(self.folder, _LOCKS)
        if not (place.is_there() and os.path.lexists(self.folder / _LOCKS)):
            with place.locked(_nothing):
                self._locks.held(0, 1)  # makes the file, so that the folder stays

    def path(self, file: CachedName) -> Path:
        """Where it is, or will be."""
        return self.folder / file.digest / file.name

    def _opened(self) -> FolderHandle:
        with FolderHandle.at(self.base) as base:
            return base.folder(self.folder.name)

    # ---- reading

    def lease(self, file: CachedName, size: int) -> Lease | None:
        """A lease on a file that is there; None where it is not, or has another size. Raises UnsafePath, StorageError.

        A lease marks it as just used.
        """
        try:
            with self._above(file) as (above, name):
                descriptor = _opened_file(above, name, _FILE)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits for the instant that removing takes
            status = os.fstat(descriptor)
            if status.st_nlink and stat.S_ISREG(status.st_mode) and status.st_size == size:
                with suppress(OSError):  # it says which file is removed first, no more
                    os.utime(descriptor)
                return Lease(self.path(file), descriptor)
        except BaseException:
            closed_after_fork.close(descriptor)
            raise
        closed_after_fork.close(descriptor)
        return None

    @contextmanager
    def _above(self, file: CachedName, *, make: bool = False) -> Iterator[tuple[FolderHandle, str]]:
        """The open folder that a file lies in, and its name there; raises FileNotFoundError unless it is made."""
        *above, name = (file.digest, *file.name.split("/"))
        with ExitStack() as opened:
            folder = opened.enter_context(self._opened())
            for inner in above:
                if not make and folder.status(inner) is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                folder = opened.enter_context(folder.make_folder(inner) if make else folder.folder(inner))
            yield folder, name

    def give_up(self, file: CachedName) -> None:
        """Say that a file will not be needed soon: it is the first to be removed, until somebody reads it again."""
        with suppress(FileNotFoundError), self._above(file) as (above, name):
            os.utime(name, ns=(0, 0), dir_fd=above.descriptor, follow_symlinks=False)

    def remove(self, file: CachedName) -> None:
        """Remove a file, even if another process reads it."""
        with suppress(FileNotFoundError), self._above(file) as (above, name):
            above.remove(name)

    # ---- fetching

    def claim(self, file: CachedName) -> "Claim | None":
        """The right to fetch a file; None while somebody else has it. Raises StorageError."""
        held = self._locks.take(file.slot)
        return None if held is None else Claim(self, self._locks, held, file)

    # ---- room

    def is_waited_for(self) -> bool:
        """Whether somebody found no room and waits for files to be closed."""
        return bool(self._locks.held(_WAITING, _WAITING + 1))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside the block the others see `is_waited_for`."""
        held = self._locks.take(_WAITING, is_shared=True)
        try:
            yield
        finally:
            if held is not None:
                held.release()

    @contextmanager
    def accounts(self) -> Iterator[None]:
        """Inside the block nobody else reserves room, or gives or takes a name."""
        with self._locks.taken(_ACCOUNTS):
            yield

    def used_bytes(self) -> int:
        """Bytes of all files, and of all that is reserved."""
        with self.accounts():
            return self.counted_bytes()

    def counted_bytes(self) -> int:
        """As `used_bytes`, inside of `accounts`."""
        reserved = sum(length for _, length in self._locks.held(0, _SLOTS_END) if length > 1)
        return reserved + sum(in_blocks(found.bytes) for found in self._found())

    def _found(self) -> Iterator[_CachedFile]:
        """All whole files; what a killed process left of unfinished ones is removed."""
        with self._opened() as top:
            for name in top.names():
                unfinished = _UNFINISHED.fullmatch(name)
                if unfinished is not None:
                    start = int(unfinished[1]) << _SIZE_BITS
                    if not self._locks.held(start, start + 1):
                        top.remove(name)
                elif is_digest(name):
                    with top.folder(name) as pack:
                        yield from self._in_folder(pack, name, "")

    def _in_folder(self, folder: FolderHandle, digest: str, prefix: str) -> Iterator[_CachedFile]:
        for name in folder.names():
            status = folder.status(name)
            if status is None:
                continue
            if stat.S_ISDIR(status.st_mode):
                with folder.folder(name) as inner:
                    yield from self._in_folder(inner, digest, f"{prefix}{name}/")
            else:
                yield _CachedFile(CachedName(digest, f"{prefix}{name}"), status.st_size, status.st_mtime_ns)

    def evict(self, wanted: int, *, spared: "Spared | None" = None) -> int:
        """Remove files that nobody reads, those used longest ago first, until so many bytes are free; inside of
        `accounts`. Returns the bytes.
        """
        freed = 0
        for found in sorted(self._found(), key=lambda each: each.used_ns):
            if freed >= wanted:
                break
            if (spared is None or not spared.holds(found)) and self._removed(found.file):
                freed += in_blocks(found.bytes)
        return freed

    def _removed(self, file: CachedName) -> bool:
        """Whether nobody reads the file; it is gone then, and its folders where nothing is left in them."""
        try:
            with self._above(file) as (above, name):
                descriptor = _opened_file(above, name, _WRITTEN)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    above.remove(name)
                    # who has opened it and waits for the lock would keep its blocks until it runs again
                    os.ftruncate(descriptor, 0)
                finally:
                    closed_after_fork.close(descriptor)
        except (FileNotFoundError, BlockingIOError):
            return False
        with suppress(StorageError), self._opened() as top:  # where something is left in them
            if "/" in file.name:
                with top.folder(file.digest) as pack:
                    pack.remove_empty_folder(file.name.partition("/")[0])
            top.remove_empty_folder(file.digest)
        return True


class Claim:
    """The right to fetch one file; a context that ends with it."""

    def __init__(self, cache: CacheFolder, locks: RangeLocks, held: HeldRange, file: CachedName) -> None:
        self._cache = cache
        self._locks = locks
        self._held = held
        self._file = file
        self._temporary = ""

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, *_: object) -> None:
        self._held.release()

    def reserve(self, size: int, *, spared: Spared | None = None) -> bool:
        """Whether there is room for a file of that size; it is reserved then. spared: as of `CacheFolder.evict`."""
        cache, needed = self._cache, in_blocks(size)
        with cache.accounts():
            if cache.limit_bytes is not None:
                over = cache.counted_bytes() + needed - cache.limit_bytes
                if over > 0 and cache.evict(over, spared=spared) < over:
                    return False
            self._held.resize(needed)
        return True

    @contextmanager
    def new_file(self, size: int, *, spared: Spared | None = None) -> Iterator[int]:
        """A descriptor of a new file with room for so many bytes on the disk, which ends with the block unless
        `publish` is called.

        On a full disk others' files are removed. Raises StorageError where that does not help.
        """
        with self._cache._opened() as top:  # of this module
            descriptor = closed_after_fork.opened(lambda: self._new(top))
            try:
                self._allocate(descriptor, size, spared)
                yield descriptor
            finally:
                if self._temporary:
                    top.remove(self._temporary)
                closed_after_fork.close(descriptor)

    def _new(self, top: FolderHandle) -> int:
        descriptor = top.new_unnamed_file()
        if descriptor is not None:
            return descriptor
        self._temporary = f".fetching-{self._held.start >> _SIZE_BITS}"
        return top.new_named_file(self._temporary)

    def _allocate(self, descriptor: int, size: int, spared: Spared | None) -> None:
        while size:
            try:
                os.posix_fallocate(descriptor, 0, size)
                return
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                    return  # then a full disk is met while writing
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise _unreadable(self._cache.path(self._file), error) from error
                os.ftruncate(descriptor, 0)  # what it got before the disk was full
            with self._cache.accounts():
                freed = self._cache.evict(max(1, in_blocks(size) - free_bytes(self._cache.folder)), spared=spared)
            if not freed:
                with failing(self._cache.path(self._file), f"reserve {size:,} bytes"):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def publish(self, descriptor: int) -> Lease:
        """Give the file, which is whole, its name; from then on it counts itself. Returns a lease on it.

        Raises StorageError.
        """
        path = self._cache.path(self._file)
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # nobody removes it in between
        with failing(path, "bring to disk"), self._cache._opened() as top:
            top.sync_file(descriptor)
            with self._cache.accounts(), self._cache._above(self._file, make=True) as (above, name):
                above.remove(name)  # a file of another size, if any
                if self._temporary:
                    top.replace(self._temporary, above, name)
                    self._temporary = ""
                else:
                    top.link_unnamed_file(descriptor, above, name)
                self._held.resize(1)
        copy = closed_after_fork.opened(lambda: os.dup(descriptor))
        return Lease(path, copy)


def _place(base: Path) -> UserFolder:
    return UserFolder(base, name="packer-cache", purpose="keep a cache in", option="cache=")


def _nothing() -> None:
    """Another process makes the folder at this moment: it is waited for."""


def _opened_file(above: FolderHandle, name: str, flags: int) -> int:
    """A descriptor of what has that name; raises FileNotFoundError, UnsafePath for a link, StorageError."""
    try:
        return closed_after_fork.opened(lambda: os.open(name, flags, dir_fd=above.descriptor))
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePath(f"{above.path / name}: expected a file of the cache, found a link; remove it") from error
        raise _unreadable(above.path / name, error) from error


def _unreadable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path}: cannot read or write in the cache: {error.strerror}; see its disk")
