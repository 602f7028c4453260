"""Work folder: the folder next to a target in which a command builds the target. One process at a time may use it.

The command removes only entries that packer made, whatever the folder contains:

* The folder has mode 700 and is opened without following a link. A folder of another user is refused. If other users
  may write to it, packer forbids this and the command ends with an error. The next command uses the folder.
* A marker shows that packer made the folder: an empty file whose name contains the folder's inode number. So a copy of
  the folder has no valid marker. The marker is made first. A folder with content but no marker is refused. An empty
  folder is used, because a killed command may have made it.
* The names in it are known (`Names`). If there is another name, nothing is removed and the folder is refused.
* All calls use descriptors (packer.files.folder_handle). Libraries that require paths get `inside`.

The marker is not synced. Its name is on disk when the folder, or a later entry, is synced. After an earlier power loss,
the folder may have no marker. It is then refused, and the error names what to remove.
"""

import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.errors import Locked, StorageError, UnsafePath
from packer.files.folder_handle import FolderHandle, open_real_folder
from packer.files.storage_errors import failing

MODE = 0o700
ANYTHING = ".*"
# regular expression of a name in the work folder -> that of the names in it, if it is a folder
Names = Mapping[str, str]
_MARKER = "made-by-packer"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class WorkFolder(FolderHandle):
    """An open, locked work folder.

    Attributes:
        above: The folder that contains the work folder and the target.
    """

    def __init__(self, path: Path, descriptor: int, above: FolderHandle, names: Names) -> None:
        super().__init__(path, descriptor)
        self.above = above
        self._names = names

    def __enter__(self) -> "WorkFolder":
        return self

    def content(self) -> list[str]:
        """Return the sorted names in the folder, without its marker. Raises StorageError."""
        marker = marker_name(self)
        return [name for name in self.names() if name != marker]

    def check(self) -> None:
        """Raise UnsafePath if the folder, or a folder in it, contains a name that `names` does not allow."""
        for name in self.content():
            inner = next((inner for known, inner in self._names.items() if re.fullmatch(known, name)), None)
            if inner is None:
                raise _unknown(self.path / name)
            if inner != ANYTHING:
                self._check_inner(name, inner)

    def _check_inner(self, name: str, known: str) -> None:
        status = self.status(name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return
        with self.folder(name) as folder:
            for below in folder.names():
                if not re.fullmatch(known, below):
                    raise _unknown(folder.path / below)

    def clear(self) -> None:
        """Remove all entries except the marker. Raises UnsafePath before it removes anything, and StorageError."""
        self.check()
        for name in self.content():
            self.remove(name)


def beside(target: Path) -> Path:
    """Return the path of the work folder for a target: `.NAME.partial` in the same folder."""
    return target.with_name(f".{target.name}.partial")


@contextmanager
def work_folder(path: Path, names: Names, *, waiting: Callable[[], None] | None = None) -> Iterator[WorkFolder]:
    """Make or open a work folder, and lock it during the `with` block. Afterwards, remove it if it is empty.

    The lock is the kernel's flock of the folder. It ends with the process, and needs no file.

    Args:
        path: The work folder.
        names: Names that the folder may contain, and for each the names in it if it is a folder, as regular
            expressions.
        waiting: A function that is called before waiting for another process with the lock. None raises Locked instead.

    Raises:
        Locked: Another process has the lock, and `waiting` is None.
        UnsafePath: The path is not a work folder of this user.
        StorageError: The folder cannot be made or locked.
    """
    with FolderHandle.at(path.parent) as above:
        while True:
            descriptor = _made_or_opened(path, above)
            if descriptor is None:
                continue
            with WorkFolder(path, descriptor, above, names) as folder:
                _flock(folder, waiting)
                if not _is_same(folder):  # another process finished between our open and our lock
                    continue
                _take(folder)
                try:
                    with folder.named():
                        yield folder
                finally:
                    _leave(folder)
                return


def check_marker(folder: FolderHandle) -> None:
    """Raise UnsafePath if a folder has content, but not the marker with its own inode number."""
    names, marker = folder.names(), marker_name(folder)
    if not names:
        return
    status = folder.status(marker)
    if status is None or not stat.S_ISREG(status.st_mode):
        is_copy = any(name.startswith(f"{_MARKER}-") for name in names)
        found = "the marker of another folder, as a copy has" if is_copy else f"no marker {marker}"
        raise UnsafePath(
            f"{folder.path}: not a folder that packer made: it has {found}; nothing in it was touched: move it away, "
            "or remove it if nothing in it is yours"
        )


def marker_name(folder: FolderHandle) -> str:
    """Return the name of the marker that belongs in this folder."""
    return f"{_MARKER}-{os.fstat(folder.descriptor).st_ino}"


def _made_or_opened(path: Path, above: FolderHandle) -> int | None:
    """Make or open the folder, and return its descriptor. None if another process removes it in between."""
    with failing(path, "make or open the folder"):
        with suppress(FileExistsError):
            os.mkdir(path.name, MODE, dir_fd=above.descriptor)
        try:
            return open_real_folder(path, path.name, within=above.descriptor)
        except FileNotFoundError:
            return None


def _flock(folder: FolderHandle, waiting: Callable[[], None] | None) -> None:
    try:
        try:
            fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is None:
                raise
            waiting()
            fcntl.flock(folder.descriptor, fcntl.LOCK_EX)
    except BlockingIOError as error:
        raise Locked(f"{folder.path}: another process works on the same target; wait for it to end") from error
    except OSError as error:
        raise StorageError(f"{folder.path}: cannot lock: {error.strerror}; use a local file system") from error


def _is_same(folder: WorkFolder) -> bool:
    status = folder.above.status(folder.path.name)
    return status is not None and os.path.samestat(os.fstat(folder.descriptor), status)


def _take(folder: WorkFolder) -> None:
    """Mark an empty folder. Raise UnsafePath if a folder's owner, marker, permissions or names are not allowed."""
    owner = os.fstat(folder.descriptor).st_uid
    is_own = owner == os.geteuid()
    if folder.names():
        if not is_own:
            raise _another_user(folder, owner)
        check_marker(folder)
        if _close_to_others(folder):
            raise UnsafePath(
                f"{folder.path}: others could write to it until now, so its content may be theirs; remove it, or "
                "run the command again if no other user was there"
            )
        folder.check()
        return
    if is_own:
        _close_to_others(folder)
    _mark(folder)
    marker = folder.status(marker_name(folder))
    # on some file systems, one user owns every file; the new marker shows it
    if not is_own and (marker is None or marker.st_uid != owner):
        folder.remove(marker_name(folder))
        raise _another_user(folder, owner)
    folder.check()


def _another_user(folder: FolderHandle, owner: int) -> UnsafePath:
    return UnsafePath(
        f"{folder.path}: belongs to user {owner}, not to {os.geteuid()}; have it removed, or choose another target"
    )


def _close_to_others(folder: FolderHandle) -> bool:
    """Deny other users write access. Return True if they had it, and the file system can deny it."""
    if not os.fstat(folder.descriptor).st_mode & _OTHERS_WRITE:
        return False
    with failing(folder.path, "close to other users"):
        os.fchmod(folder.descriptor, MODE)
    return not os.fstat(folder.descriptor).st_mode & _OTHERS_WRITE


def _mark(folder: FolderHandle) -> None:
    name = marker_name(folder)
    with failing(folder.path / name, "make the marker"):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(name, flags, 0o600, dir_fd=folder.descriptor))


def _unknown(path: Path) -> UnsafePath:
    return UnsafePath(f"{path}: packer did not make it, so nothing in that folder is removed; move it away")


def _leave(folder: WorkFolder) -> None:
    """Remove the folder if it contains only the marker. Otherwise the next run continues its work."""
    with suppress(OSError):
        if not folder.content() and _is_same(folder):
            folder.remove(marker_name(folder))
            os.rmdir(folder.path.name, dir_fd=folder.above.descriptor)
