"""Owned folder: a folder that belongs to one user alone, with locks, and files that arrive complete or not at all.

The folder is `<base>/<name>-<uid>/`, made with mode 0700. A file is written in its subfolder `.work` and moved to its
place when it is complete. The writer holds an exclusive lock on the file in `.work`. A file there without a lock was
left by a killed process and is removed.

A reader holds a shared lock (a lease) on the file or folder that it reads. Files with a lease are not removed.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.errors import InvalidRequest, Locked, StorageError, UnsafePath
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.files.work_folder import ANYTHING, WorkFolder, check_marker, work_folder
from packer.stores.url import path_or_url
from packer.system.closed_after_fork import closed_after_fork
from packer.system.machine_limits import Machine

CODEC = r"[a-z0-9_]+(?::[a-z0-9_]+)*"
_COPY = re.compile(rf"(?P<dot>\.)?(?P<digest>[0-9a-f]{{64}})(-(?P<codec>{CODEC}))?(?P<partial>\.partial)?")
_WORK = ".work"
_NAMES = {ANYTHING: ANYTHING}  # files are removed by name only, so unknown files do no harm
_WRITTEN = os.O_RDWR | os.O_CREAT


class Lease:
    """A shared lock on a file or a folder, which keeps it from being removed until `close`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @property
    def is_given_up(self) -> bool:
        """True if the file will not be needed soon; see `PartCache.give_up`."""
        with suppress(OSError):  # closed by another thread
            return os.fstat(self.descriptor).st_mtime_ns == 0
        return True

    def close(self) -> None:
        """Release the lock; may be called twice."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            closed_after_fork.close(descriptor)


def lease(above: FolderHandle, name: str) -> Lease | None:
    """Return a lease on a file or folder in an open folder; None if it does not exist.

    Raises UnsafePath for a link, StorageError.
    """
    descriptor = open_lockable(above, name, os.O_RDONLY)
    if descriptor is None:
        return None
    found = Lease(above.path / name, descriptor)
    try:
        with failing(found.path, "lock"):
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits while another process removes it
        if _is_at(descriptor, above, name):
            return found
    except BaseException:
        found.close()
        raise
    found.close()
    return None


@contextmanager
def exclusive(above: FolderHandle, name: str) -> Iterator[bool]:
    """Yield True if a file or folder has no lease, or does not exist. It then gets no lease inside the block.

    Raises as `lease` does.
    """
    descriptor = open_lockable(above, name, os.O_RDONLY)
    try:
        yield descriptor is None or lock_alone(descriptor)
    finally:
        if descriptor is not None:
            closed_after_fork.close(descriptor)


def open_lockable(above: FolderHandle, name: str, flags: int) -> int | None:
    """Open a file or folder so that a forked child does not keep its locks; None if it does not exist.

    The caller closes it through `closed_after_fork`. Raises UnsafePath for a link, StorageError.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    path = above.path / name
    with failing(path, "open"):
        try:
            return closed_after_fork.opened(lambda: os.open(name, flags, 0o600, dir_fd=above.descriptor))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnsafePath(f"{path}: expected a copy that packer made, found a link; remove it") from error
            raise


def lock_alone(descriptor: int) -> bool:
    """Take the exclusive lock on an open file; return False if it is locked already."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, above: FolderHandle, name: str) -> bool:
    status = above.status(name)
    return status is not None and os.path.samestat(os.fstat(descriptor), status)


def copy_name(digest: str, codec: str | None) -> str:
    """Return the name of a staged copy: of the pack whose packer.json has that sha256, recoded to a codec or not."""
    return digest if codec is None else f"{digest}-{codec}"


class NewFile:
    """A file in `.work` that is being written. A context, which removes the file unless it was published."""

    def __init__(self, work: FolderHandle, name: str, descriptor: int) -> None:
        self._work = work
        self._name = name
        self.descriptor = descriptor
        self._published = False

    def __enter__(self) -> "NewFile":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self._published:
                self._work.remove(self._name)
        finally:
            if not self._published:
                closed_after_fork.close(self.descriptor)
            self._work.close()

    def allocate(self, size: int) -> None:
        """Reserve blocks of the disk, so that a full disk is met here and not in the middle of a write.

        Does nothing if the file system cannot reserve blocks. Raises OSError.
        """
        if size:
            try:
                os.posix_fallocate(self.descriptor, 0, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise

    def publish(self, above: FolderHandle, name: str) -> Lease:
        """Sync the file and move it to its place, over a file that may be there; return a lease on it.

        Raises StorageError.
        """
        self._work.sync_file(self.descriptor)
        self._work.replace(self._name, above, name)
        self._published = True
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)
        return Lease(above.path / name, self.descriptor)


class OwnedFolder:
    """The folder `<base>/<name>-<uid>`, which need not exist yet.

    Args:
        base: An existing folder in which other users cannot rename files.
        name: The name of the folder, without the number of the user.
        purpose: What the folder is for, in messages.
        option: The option that names `base`, in messages.

    Raises:
        InvalidRequest: If `base` is not a folder.
        UnsafePath: If another user than root may rename files in `base`.
    """

    def __init__(self, base: Path, *, name: str = "packer", purpose: str = "stage into", option: str = "--to") -> None:
        self._purpose, self._option = purpose, option
        with failing(base, "read the status of the folder"):
            try:
                status = os.stat(base)
            except FileNotFoundError as error:
                raise InvalidRequest(f"{base}: no such folder to {purpose}; make it, or choose another one") from error
        if not stat.S_ISDIR(status.st_mode):
            raise InvalidRequest(f"{base}: expected a folder to {purpose}, found a file; choose another one")
        others = "their group" if status.st_mode & stat.S_IWGRP else ""
        others = "anybody" if status.st_mode & stat.S_IWOTH else others
        if others and not status.st_mode & stat.S_ISVTX:
            raise UnsafePath(
                f"{base}: {others} may rename files there: chmod +t {base}, or choose another folder ({option})"
            )
        if status.st_uid not in (0, os.geteuid()):
            raise UnsafePath(
                f"{base}: belongs to user {status.st_uid}, who may rename files there; choose another folder ({option})"
            )
        self.base = base.resolve()
        self.folder = self.base / f"{name}-{os.geteuid()}"
        self._held: tuple[WorkFolder, FolderHandle] | None = None

    @classmethod
    def of(cls, to: str, machine: Machine) -> "OwnedFolder":
        """Return the folder for staged copies. to: "auto" for the machine's shared memory, or a folder."""
        return cls(machine.shared_memory if to == "auto" else path_or_url(to))

    def exists(self) -> bool:
        """Check that the folder exists; raises UnsafePath unless it is this user's own and closed to others."""
        with failing(self.folder, "read the status of the folder"):
            try:
                status = os.stat(self.folder, follow_symlinks=False)
            except FileNotFoundError:
                return False
        fault = ""
        if not stat.S_ISDIR(status.st_mode):
            fault = "a link or a file is in its place"
        elif status.st_uid != os.geteuid():
            fault = f"it belongs to user {status.st_uid}, not to {os.geteuid()}"
        elif stat.S_IMODE(status.st_mode) & 0o077:
            fault = f"its mode is {stat.S_IMODE(status.st_mode):o}, so others may read it; expected 700"
        if fault:
            raise UnsafePath(
                f"{self.folder}: not a folder to {self._purpose}: {fault}; have it removed, or choose another folder "
                f"({self._option})"
            )
        with self.opened() as folder:
            check_marker(folder)
        return True

    def opened(self) -> FolderHandle:
        """Open the folder; the caller closes it. Raises UnsafePath for a link, StorageError."""
        with FolderHandle.at(self.base) as base:
            return base.folder(self.folder.name)

    def copies(self) -> list[tuple[str, str | None]]:
        """Return digest and codec of all staged copies in it, also of unfinished ones, sorted; see `copy_name`."""
        if not self.exists():
            return []
        with failing(self.folder, "list the folder"):
            found = {_COPY.fullmatch(name) for name in os.listdir(self.folder)}
        # a copy whose name begins with a dot is an unfinished recoded copy
        names = {
            (match["digest"], match["codec"])
            for match in found
            if match and bool(match["dot"]) == bool(match["partial"]) and (match["codec"] or not match["dot"])
        }
        return sorted(names, key=lambda name: copy_name(*name))

    # ---- for one process alone

    @contextmanager
    def locked(self, waiting: Callable[[], None] | None) -> Iterator[None]:
        """Hold the lock of the folder, which is made if it does not exist and removed at the end if it is empty.

        Args:
            waiting: Called before waiting for another process that has the lock. None raises Locked instead.

        Raises:
            UnsafePath: As `exists` does.
            Locked: If another process has the lock.
        """
        self.exists()
        with work_folder(self.folder, _NAMES, waiting=waiting) as folder:
            self.exists()
            with folder.make_folder(_WORK) as work:
                try:
                    self._remove_abandoned(work)
                    self._held = folder, work
                    yield
                finally:
                    self._held = None
                    self._remove_abandoned(work)
                    with suppress(StorageError):  # another process writes in it
                        folder.remove_empty_folder(_WORK)

    @property
    def held(self) -> FolderHandle:
        """The open folder, while this process has its lock."""
        return self._both()[0]

    @property
    def work(self) -> FolderHandle:
        """The open subfolder `.work`, while this process has the lock of the folder."""
        return self._both()[1]

    def _both(self) -> tuple[WorkFolder, FolderHandle]:
        if self._held is None:
            raise Locked(f"{self.folder}: not locked by this process; lock it first")
        return self._held

    def sweep(self) -> None:
        """Remove what a killed process left, unless another process has the lock; raises StorageError."""
        if os.path.lexists(self.folder / _WORK):
            with suppress(Locked), self.locked(None):
                pass

    # ---- new files

    def new_file(self, name: str) -> NewFile | None:
        """Make a file in `.work`, and lock it; None while another process or thread writes a file of that name.

        Raises UnsafePath, StorageError.
        """
        with self.opened() as top:
            work = top.make_folder(_WORK)
        try:
            descriptor = open_lockable(work, name, _WRITTEN)
            if descriptor is not None:
                if lock_alone(descriptor) and _is_at(descriptor, work, name):
                    return NewFile(work, name, descriptor)
                closed_after_fork.close(descriptor)
        except BaseException:
            work.close()
            raise
        work.close()
        return None

    def unfinished_bytes(self) -> list[int]:
        """Return the sizes of all files that are being written; those of killed processes are removed."""
        with self.opened() as top:
            if top.status(_WORK) is None:
                return []
            with top.folder(_WORK) as work:
                return self._remove_abandoned(work)

    def _remove_abandoned(self, work: FolderHandle) -> list[int]:
        """Remove files and folders that are not locked; return the sizes of the others."""
        sizes = []
        for name in work.names():
            status = work.status(name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                work.remove(name)
            elif status is not None:
                with exclusive(work, name) as is_free:
                    if is_free:
                        work.remove(name)
                    else:
                        sizes.append(status.st_size)
        return sizes
