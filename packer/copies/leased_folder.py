"""Leased folder: a folder that belongs to one user, with locks, and files that are complete or do not exist.

The folder is `<base>/<name>-<uid>/`, made with mode 0700. A writer writes each file in the subfolder `.work`, holds an
exclusive lock on it, and moves the complete file to its place. A file in `.work` without a lock belongs to a killed
process and is removed.

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
        """True if the file will not be needed soon (see `PartCache.give_up`), or if the lease is closed."""
        with suppress(OSError):  # closed by another thread
            return os.fstat(self.descriptor).st_mtime_ns == 0
        return True

    def close(self) -> None:
        """Release the lock. A second call has no effect."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            closed_after_fork.close(descriptor)


def lease(above: FolderHandle, name: str) -> Lease | None:
    """Return a lease on the file or folder `name` in the open folder `above`, or None if `name` does not exist.

    Raises UnsafePath if `name` is a link. Raises StorageError if the system refuses the lock.
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
    """Lock a file or folder exclusively in the `with` block, and yield True. Yield False if a lease on it exists.

    If `name` does not exist, yield True without a lock. Raises UnsafePath for a link, and StorageError.
    """
    descriptor = open_lockable(above, name, os.O_RDONLY)
    try:
        yield descriptor is None or lock_alone(descriptor)
    finally:
        if descriptor is not None:
            closed_after_fork.close(descriptor)


def open_lockable(above: FolderHandle, name: str, flags: int) -> int | None:
    """Return a descriptor of the file or folder `name`, or None if it does not exist. A forked child closes its copy.

    `flags` are for open(2). Close it with `closed_after_fork.close`. Raises UnsafePath for a link, and StorageError.
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
    """Lock an open file exclusively and return True. If another process or thread has a lock on it, return False."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, above: FolderHandle, name: str) -> bool:
    status = above.status(name)
    return status is not None and os.path.samestat(os.fstat(descriptor), status)


def copy_name(digest: str, codec: str | None) -> str:
    """Return the name of a staged copy: `digest`, or `<digest>-<codec>` for a recoded copy.

    `digest` is the sha256 of the pack's packer.json. `codec` is None for a copy of the files.
    """
    return digest if codec is None else f"{digest}-{codec}"


class NewFile:
    """A file in `.work` that is being written. At the end of its `with` block, it is removed unless published."""

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
        """Reserve `size` bytes on the disk. So a full disk raises OSError here and not in the middle of a write.

        Does nothing if the file system cannot reserve blocks.
        """
        if size:
            try:
                os.posix_fallocate(self.descriptor, 0, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise

    def publish(self, above: FolderHandle, name: str) -> Lease:
        """Sync the file, move it to `name` in the folder `above`, and return a lease on the file.

        An existing file of that name is replaced. Raises StorageError.
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
        purpose: What the folder is for, such as "stage into". Part of messages.
        option: The option that sets `base`, such as "--to". Part of messages.

    Raises:
        InvalidRequest: If `base` is not a folder.
        UnsafePath: If a user other than root and the current user may rename files in `base`.
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
        """Return the folder for staged copies in the folder `to`, or in the shared memory of `machine` for "auto"."""
        return cls(machine.shared_memory if to == "auto" else path_or_url(to))

    def exists(self) -> bool:
        """Return True if the folder exists, False if nothing has its name.

        Raises UnsafePath if the folder belongs to another user, is open to others, or is a link or a file.
        """
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
        """Return a handle of the folder. The caller closes the handle. Raises UnsafePath for a link, StorageError."""
        with FolderHandle.at(self.base) as base:
            return base.folder(self.folder.name)

    def copies(self) -> list[tuple[str, str | None]]:
        """Return (digest, codec) of each staged copy, also of unfinished copies, sorted by name; see `copy_name`."""
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
        """Hold the exclusive lock of the folder inside the `with` block.

        The folder is made if it does not exist. At the end of the `with` block, an empty folder is removed.

        Args:
            waiting: A function that is called before waiting for a process with the lock. None raises Locked instead.

        Raises:
            UnsafePath: In the cases in which `exists` raises it.
            Locked: If another process has the lock and `waiting` is None.
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
        """Handle of the folder. Raises Locked unless this process has the lock of the folder."""
        return self._both()[0]

    @property
    def work(self) -> FolderHandle:
        """Handle of the subfolder `.work`. Raises Locked unless this process has the lock of the folder."""
        return self._both()[1]

    def _both(self) -> tuple[WorkFolder, FolderHandle]:
        if self._held is None:
            raise Locked(f"{self.folder}: not locked by this process; lock it first")
        return self._held

    def sweep(self) -> None:
        """Remove the unfinished files of killed processes. Do nothing if another process has the lock of the folder."""
        if os.path.lexists(self.folder / _WORK):
            with suppress(Locked), self.locked(None):
                pass

    # ---- new files

    def new_file(self, name: str) -> NewFile | None:
        """Make and lock the file `name` in `.work`. Return None while another process or thread writes this file.

        Raises UnsafePath if the file is a link, StorageError.
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
        """Return the sizes in bytes of all files that are being written. Remove the files of killed processes."""
        with self.opened() as top:
            if top.status(_WORK) is None:
                return []
            with top.folder(_WORK) as work:
                return self._remove_abandoned(work)

    def _remove_abandoned(self, work: FolderHandle) -> list[int]:
        """Remove the entries of `work` that no process has locked. Return the sizes in bytes of the locked ones."""
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
