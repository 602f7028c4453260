"""Part cache: files of remote packs on a disk of this machine, within one size limit for all processes.

The cache is the `OwnedFolder` `<cache>/packer-cache-<uid>/`. It contains:
    <digest>/     Verified files of the pack whose packer.json has this sha256.
    .work/        Files that are being downloaded.
    locks         An empty file. A process that waits for room in the cache holds a shared lock on this file.

Each file is downloaded once for all processes, by the process that locked the file in `.work`. The other processes
wait. A file in `.work` has its final size from the beginning, so it counts towards the limit with this size. A process
holds the lock of the cache folder while it counts sizes, and while it adds a file.

A reader holds a lease on the file that it reads. Only files without a lease are removed.
"""

import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packer.copies.copy_sources import CopySource
from packer.copies.leased_folder import Lease, NewFile, OwnedFolder, lease, lock_alone, open_lockable
from packer.copies.pack_files import PackFile, in_blocks
from packer.errors import DamagedObject, InvalidRequest, StorageError
from packer.files.digest import part_sha256
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing, free_bytes
from packer.system.closed_after_fork import closed_after_fork
from packer.system.machine_limits import Machine

_LOCKS = "locks"
_DIGEST = re.compile("[0-9a-f]{64}")
_NEW = os.O_RDWR | os.O_CREAT
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LEAST_WAIT_S, _MOST_WAIT_S = 0.002, 0.05
_SHARED_DISKS = re.compile(
    "nfs4?|cifs|smb3|smbfs|afs|ceph|lustre|gpfs|beegfs|pvfs2|orangefs|ocfs2|gfs2|fuse\\.(sshfs|s3fs|rclone|gcsfuse"
    "|blobfuse2?|goofys|glusterfs|ceph|mount-s3|juicefs).*"
)


def cache_folder(base: Path) -> OwnedFolder:
    """Return this user's cache folder in `base`. Create the folder, and remove unfinished files of killed processes.

    Raises:
        InvalidRequest: `base` is not a folder, or is on a network disk.
        UnsafePath: Other users may rename files in `base`, or may use the cache folder; see OwnedFolder.
    """
    folder = OwnedFolder(base, name="packer-cache", purpose="keep a cache in", option="cache=")
    with failing(folder.base, "read its file system"):
        mount = Machine().mount(folder.base)
    if mount is not None and _SHARED_DISKS.fullmatch(mount.kind):
        raise InvalidRequest(
            f"{base}: a {mount.kind} file system, which other machines may share: expected a folder on a disk of this "
            "machine, whose kernel keeps the locks of a cache"
        )
    if not (folder.exists() and os.path.lexists(folder.folder / _LOCKS)):
        with folder.locked(lambda: None), _opened(folder.held, _LOCKS, _NEW):
            pass
    folder.unfinished_bytes()
    return folder


@contextmanager
def _opened(above: FolderHandle, name: str, flags: int) -> Iterator[int]:
    descriptor = open_lockable(above, name, flags)
    if descriptor is None:
        raise StorageError(f"{above.path / name}: removed while the cache was in use; open the pack again")
    try:
        yield descriptor
    finally:
        closed_after_fork.close(descriptor)


class _Found(NamedTuple):
    """A file in the cache. `used_ns` is the time of its last use in ns, or 0 after `PartCache.give_up`."""

    digest: str
    name: str
    bytes: int
    used_ns: int


@dataclass(frozen=True)
class PartCache:
    """The files of one pack in a cache. Threads and processes may share the cache.

    Args:
        folder: The folder of the cache, see `cache_folder`.
        limit_bytes: Limit on the size of all files in the folder, also those of other packs; None for no limit.
        digest: The sha256 of the pack's packer.json.
        source: Downloads files of the pack.
        patience_seconds: How long to wait for a store that does not answer, and for room in the cache.
    """

    folder: OwnedFolder
    limit_bytes: int | None
    digest: str
    source: CopySource
    patience_seconds: float

    def check_limit(self, kept: Sequence[PackFile], parts: Sequence[PackFile]) -> None:
        """Raise InvalidRequest if the limit is too small for the files `kept` and the largest part.

        Args:
            kept: The files that an open pack keeps in the cache.
            parts: All parts of the pack.
        """
        needed = sum(in_blocks(file.bytes) for file in kept) + max((in_blocks(part.bytes) for part in parts), default=0)
        if self.limit_bytes is not None and needed > self.limit_bytes:
            raise InvalidRequest(
                f"cache_limit={self.limit_bytes}: the index and the largest part of the pack take {needed:,} bytes; "
                "expected at least that, and room for the parts that are read at a time"
            )

    def path(self, file: PackFile) -> Path:
        """Return the path of a file in the cache, which need not exist."""
        return self.folder.folder / self.digest / file.name

    # ---- reading

    def lease(self, file: PackFile, *, close_unused: Callable[[], object]) -> Lease:
        """Return a lease on a file, which is downloaded if it is not in the cache.

        Args:
            file: A file of the pack.
            close_unused: A function that closes this process's leases on files that it does not read. It is called
                again and again while the cache has no room.

        Raises:
            StoreError: The store does not answer or refuses.
            ObjectChanged: The remote pack has changed.
            CorruptPack: The remote file is damaged.
            StorageError: The cache had no room for the file for `patience_seconds`.
        """
        found = self._found(file)
        began, pause = time.monotonic(), _LEAST_WAIT_S
        while found is None:
            new = self._new_file(file)
            if new is None:  # another process or thread downloads it
                time.sleep(pause)
                pause = min(2 * pause, _MOST_WAIT_S)
                found = self._found(file)
                continue
            with new:
                found = self._found(file)
                if found is None:
                    # the time that this caller waited for another download counts
                    patience = max(0.0, self.patience_seconds - (time.monotonic() - began))
                    self._wait_for_room(file, new, close_unused)
                    found = self._downloaded(file, new, patience)
        return found

    def _found(self, file: PackFile) -> Lease | None:
        """Return a lease on a file and set its time of last use. None if the file is absent or truncated."""
        found = None
        with suppress(FileNotFoundError), self._above(self.digest, file.name) as (above, name):
            found = lease(above, name)
        if found is not None:
            status = os.stat(found.descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size == file.bytes:
                with suppress(OSError):  # only the order in which files are removed depends on it
                    os.utime(found.descriptor)
                return found
            found.close()
        return None

    def is_there(self, file: PackFile) -> bool:
        """Return True if a file is in the cache, and set its time of last use."""
        found = self._found(file)
        if found is not None:
            found.close()
        return found is not None

    @contextmanager
    def _above(self, digest: str, file_name: str, *, make: bool = False) -> Iterator[tuple[FolderHandle, str]]:
        """Open the folder that contains a file in the `with` block. Yield the folder, and the file's name in it.

        If `make` is true, the folder is created. Otherwise, a missing folder raises FileNotFoundError.
        """
        *folders, name = (digest, *file_name.split("/"))
        with ExitStack() as opened:
            above = opened.enter_context(self.folder.opened())
            for inner in folders:
                if not make and above.status(inner) is None:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), inner)
                above = opened.enter_context(above.make_folder(inner) if make else above.folder(inner))
            yield above, name

    def give_up(self, file: PackFile) -> None:
        """Mark a file as not needed soon. The cache removes it before other files, unless it is read again."""
        with suppress(FileNotFoundError), self._above(self.digest, file.name) as (above, name):
            os.utime(name, ns=(0, 0), dir_fd=above.descriptor, follow_symlinks=False)

    def discard(self, file: PackFile) -> None:
        """Remove a file from the cache if its sha256 is wrong. The next `lease` downloads the file again.

        Processes with a lease on the file can read it, and its blocks stay in use, until they close the lease.
        """
        while (new := self._new_file(file)) is None:  # another process checks or downloads it
            time.sleep(_MOST_WAIT_S)
        with new, closing(self._found(file) or ExitStack()) as found:
            if isinstance(found, Lease) and part_sha256(found.path, most_bytes=file.bytes) != file.sha256:
                with suppress(FileNotFoundError), self._above(self.digest, file.name) as (above, name):
                    above.remove(name)

    # ---- downloading

    def reserve_ahead(self, file: PackFile, *, since_ns: int) -> Callable[[], None] | None:
        """Reserve room for a file that will be needed later. Raises the errors of `lease`.

        Args:
            file: A file of the pack.
            since_ns: Time in ns. Room is made by removing files marked by `give_up`, and files of other packs that
                were not used since this time. No other file is removed.

        Returns:
            A function that downloads the file and raises the errors of `lease`. The caller must call it, because it
            holds the lock on the file. It does nothing if the file is in the cache or another process downloads it.
            None if the cache has not enough room.
        """
        new = None if self.is_there(file) else self._new_file(file)
        if new is None:
            return _nothing
        with ExitStack() as undo:
            undo.enter_context(new)
            if self.is_there(file):
                return _nothing
            if not self._reserve(new, file.bytes, since_ns):
                return None
            held = undo.pop_all()

        def download() -> None:
            with held:
                self._downloaded(file, new, self.patience_seconds, since_ns).close()

        return download

    def _new_file(self, file: PackFile) -> NewFile | None:
        return self.folder.new_file(hashlib.sha256(f"{self.digest}/{file.name}".encode()).hexdigest())

    def _wait_for_room(self, file: PackFile, new: NewFile, close_unused: Callable[[], object]) -> None:
        """Reserve room for a file. Wait while others are in use; after `patience_seconds`, raise StorageError."""
        if self._reserve(new, file.bytes):
            return
        until = time.monotonic() + self.patience_seconds
        with self.waiting():
            while True:
                close_unused()
                if self._reserve(new, file.bytes):
                    return
                if time.monotonic() > until:
                    raise StorageError(
                        f"{self.folder.folder}: no room for {self.source.where(file)}: it has {file.bytes:,} bytes, "
                        f"the limit is {self.limit_bytes:,}, and all other files were in use for "
                        f"{self.patience_seconds:g} s; raise cache_limit, or read with fewer workers"
                    )
                time.sleep(_MOST_WAIT_S)

    def _downloaded(self, file: PackFile, new: NewFile, patience: float, since_ns: int | None = None) -> Lease:
        """Download a file to `new`, whose room is reserved. If the sha256 is wrong twice, raise DamagedObject."""
        self._allocate(file, new, since_ns)
        sums = []
        for _ in range(2):
            fetched = self.source.fetch(file, new.descriptor, patience_seconds=patience)
            if (fetched.bytes, fetched.sha256) == (file.bytes, file.sha256):
                with self._counting(), self._above(self.digest, file.name, make=True) as (above, name):
                    return new.publish(above, name)
            sums.append(f"{fetched.sha256[:16]}...")
            self.source.check_unchanged()
        raise DamagedObject(
            f"{self.source.where(file)}: damaged in the store: expected sha256 {file.sha256[:16]}..., found "
            f"{' and '.join(sums)} in two downloads (ETag {fetched.etag}); put the pack there again"
        )

    # ---- room

    def is_waited_for(self) -> bool:
        """Return True if a process waits for room in the cache."""
        with self.folder.opened() as top, _opened(top, _LOCKS, _NEW) as descriptor:
            return not lock_alone(descriptor)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Make `is_waited_for` return True in all processes during the `with` block."""
        with self.folder.opened() as top, _opened(top, _LOCKS, _NEW) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Hold the lock of the folder in the `with` block. No other process counts, reserves room or adds a file."""
        folder = self.folder.folder
        with FolderHandle.at(folder.parent) as base, _opened(base, folder.name, os.O_RDONLY) as descriptor:
            with failing(folder, "lock"):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    def used_bytes(self) -> int:
        """Return the sum of the sizes, in whole blocks, of the files in the cache and of those being downloaded."""
        with self._counting():
            return self._counted()

    def _counted(self) -> int:
        sizes = [*self.folder.unfinished_bytes(), *(found.bytes for found in self._files())]
        return sum(map(in_blocks, sizes))

    def _reserve(self, new: NewFile, size: int, since_ns: int | None = None) -> bool:
        """Give a new file its final size. Remove other files if needed; return False if too few of them can be removed.

        Only files that `since_ns` allows are removed, as in `reserve_ahead`. None allows every file without a lease.
        """
        with self._counting():
            if self.limit_bytes is not None:
                over = self._counted() + in_blocks(size) - self.limit_bytes
                if over > 0 and self._evict(over, since_ns) < over:
                    return False
            os.ftruncate(new.descriptor, size)
        return True

    def _allocate(self, file: PackFile, new: NewFile, since_ns: int | None) -> None:
        """Reserve disk blocks for `new`. On a full disk, remove other files, or raise StorageError if there is none."""
        while True:
            with failing(self.path(file), f"reserve {file.bytes:,} bytes"):
                try:
                    new.allocate(file.bytes)
                    return
                except OSError as error:
                    if error.errno not in _FULL:
                        raise
                    os.ftruncate(new.descriptor, 0)  # frees the blocks that it got before the disk was full
                    with self._counting():
                        freed = self._evict(max(1, in_blocks(file.bytes) - free_bytes(self.folder.folder)), since_ns)
                    if not freed:
                        raise
                    os.ftruncate(new.descriptor, file.bytes)

    def _files(self) -> Iterator[_Found]:
        """Yield all files of all packs in the cache."""
        with self.folder.opened() as top:
            for name in filter(_DIGEST.fullmatch, top.names()):
                with top.folder(name) as pack:
                    yield from self._files_in(pack, name, "")

    def _files_in(self, folder: FolderHandle, digest: str, prefix: str) -> Iterator[_Found]:
        for name in folder.names():
            status = folder.status(name)
            if status is not None and stat.S_ISDIR(status.st_mode):
                with folder.folder(name) as inner:
                    yield from self._files_in(inner, digest, f"{prefix}{name}/")
            elif status is not None:
                yield _Found(digest, f"{prefix}{name}", status.st_size, status.st_mtime_ns)

    def evict(self, wanted: int) -> int:
        """Remove files without a lease, at least `wanted` bytes if possible. Return the number of removed bytes."""
        with self._counting():
            return self._evict(wanted)

    def _evict(self, wanted: int, since_ns: int | None = None) -> int:
        """Do the work of `evict` for a process that holds the lock. The least recently used files are removed first."""
        freed = 0
        for found in sorted(self._files(), key=lambda each: each.used_ns):
            if freed >= wanted:
                break
            is_needed = since_ns is not None and (
                found.used_ns >= since_ns or (found.used_ns > 0 and found.digest == self.digest)
            )
            if not is_needed and self._removed(found):
                freed += in_blocks(found.bytes)
        return freed

    def _removed(self, found: _Found) -> bool:
        """Remove a file, and folders that become empty. Return False if the file has a lease or does not exist."""
        with self._above(found.digest, found.name) as (above, name):
            descriptor = open_lockable(above, name, os.O_RDWR)
            if descriptor is None:
                return False
            try:
                if not lock_alone(descriptor):
                    return False
                above.remove(name)
                os.ftruncate(descriptor, 0)  # a process that has it open and waits for the lock keeps no blocks
            finally:
                closed_after_fork.close(descriptor)
        with suppress(StorageError), self.folder.opened() as top:  # other files are left in a folder
            if "/" in found.name:
                with top.folder(found.digest) as pack:
                    pack.remove_empty_folder(found.name.partition("/")[0])
            top.remove_empty_folder(found.digest)
        return True


def _nothing() -> None:
    """Do nothing: what `reserve_ahead` returns if no download is needed."""
