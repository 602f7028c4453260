"""Folder handle: a folder that a descriptor keeps open. It makes, renames and removes files and folders in it.

All names are relative to the descriptor. So if another process replaces the folder by a link, packer does not write or
remove files elsewhere. A link in the folder is removed itself and never followed.

A failed fsync raises StorageError and is never repeated, because the kernel may have dropped the unwritten pages.
"""

import ctypes
import errno
import functools
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from packer.errors import PackerError, PackExists, UnsafePath
from packer.files.fsync import syncfs
from packer.files.storage_errors import failing

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_RENAME_NOREPLACE = 1  # linux/fs.h
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_REMOVALS = 100  # attempts, while another process still writes into the folder
_ASIDE = ".old"  # suffix of the old folder in `swap`, without an atomic exchange


class FolderHandle:
    """An open folder. `path` is its path when it was opened, and only names it in messages."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over an open descriptor of the folder, which `close` closes."""
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def at(cls, path: Path) -> "FolderHandle":
        """Open the folder at `path`, also if the path contains links. Raises StorageError."""
        with failing(path, "open the folder"):
            return cls(path, os.open(path, _FOLDER))

    def __enter__(self) -> "FolderHandle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor. A second call has no effect."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    # ---- content

    def names(self) -> list[str]:
        """Return the sorted names in the folder. Raises StorageError."""
        with failing(self.path, "list the folder"):
            return sorted(os.listdir(self.descriptor))

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of an entry, or None if it is absent. A link is not followed. Raises StorageError."""
        with failing(self.path / name, "ask for it"):
            try:
                return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def folder(self, name: str) -> "FolderHandle":
        """Open a subfolder, which you close. Raises UnsafePath if it is a link or a file, and StorageError."""
        path = self.path / name
        with failing(path, "open the folder"):
            return FolderHandle(path, open_real_folder(path, name, within=self.descriptor))

    @property
    def inside(self) -> Path:
        """A path through the descriptor, for libraries that require paths. Without /proc, this is `path`.

        The path is valid only in this process, and while the folder is open.
        """
        through = Path(f"/proc/self/fd/{self.descriptor}")
        return through if through.exists() else self.path

    @contextmanager
    def named(self) -> Iterator[None]:
        """Return a `with` block whose PackerErrors contain `path` instead of `inside` in their messages."""
        inside = re.compile(rf"{re.escape(str(self.inside))}(?![0-9])")
        try:
            yield
        except PackerError as error:
            error.args = tuple(
                inside.sub(lambda _: str(self.path), word) if isinstance(word, str) else word for word in error.args
            )
            raise

    # ---- making

    def make_folder(self, name: str) -> "FolderHandle":
        """Open a subfolder, which you close. It is made if it is absent. Raises UnsafePath, StorageError."""
        with failing(self.path / name, "make the folder"), suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.descriptor)
        return self.folder(name)

    def write_file(self, name: str, data: bytes) -> None:
        """Write and sync a new file. Raises StorageError, also if the name exists already."""
        with failing(self.path / name, "write"):
            descriptor = os.open(name, _NEW_FILE, 0o666, dir_fd=self.descriptor)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)

    def read_file(self, name: str) -> bytes:
        """Return the content of a file, or no bytes if it is absent. Raises UnsafePath for a link, StorageError."""
        if self.status(name) is None:
            return b""
        with self._plain_file(name) as file, failing(self.path / name, "read"):
            return file.read() or b""

    def _plain_file(self, name: str) -> BinaryIO:
        """Open a regular file with one name for reading. Raises UnsafePath for other entries, StorageError."""
        path = self.path / name
        with failing(path, "open"):
            try:
                descriptor = os.open(name, _FILE, dir_fd=self.descriptor)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                    raise _foreign(path, "a file", "a link, a folder or a device") from error
                raise
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return os.fdopen(descriptor, "rb", buffering=0)
        os.close(descriptor)
        raise _foreign(path, "a file", "a hard link, a folder or a device")

    # ---- syncing

    def sync_file(self, descriptor: int) -> None:
        """Call fdatasync for an open file of the folder. Raises StorageError."""
        with failing(self.path, "sync a file to disk"):
            os.fdatasync(descriptor)

    # ---- removing

    def remove(self, name: str) -> None:
        """Remove a file, a link, or a folder with its content, if it exists. Raises StorageError."""
        with failing(self.path / name, "remove"):
            _remove(self.descriptor, name)

    def remove_empty_folder(self, name: str) -> None:
        """Remove an empty folder. Raises StorageError if it has content, or is a file or a link."""
        with failing(self.path / name, "remove the empty folder"):
            os.rmdir(name, dir_fd=self.descriptor)

    # ---- on disk

    def sync(self) -> None:
        """Call fsync for the folder, so that its names are on disk. Raises StorageError."""
        with failing(self.path, "sync to disk"):
            os.fsync(self.descriptor)

    def sync_file_system(self) -> None:
        """Sync the file system of the folder, fast for many small files. Raises StorageError."""
        with failing(self.path, "sync to disk"):
            syncfs(self.descriptor)

    def replace(self, name: str, target: "FolderHandle", new_name: str) -> None:
        """Rename a synced file to `new_name` in `target`, and replace a file there. Raises StorageError."""
        with failing(target.path / new_name, "replace"):
            os.replace(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)
        target.sync()

    def publish(self, name: str, target: "FolderHandle", new_name: str) -> None:
        """Rename a complete folder to `new_name` in `target`. Raises PackExists if this name exists, StorageError."""
        with self.folder(name) as staged:
            staged.sync()
        if not self._rename(name, target, new_name, _RENAME_NOREPLACE):
            if target.status(new_name) is not None:
                raise PackExists(f"{target.path / new_name}: already there; --overwrite replaces a pack")
            with failing(target.path / new_name, "rename the finished pack"):
                os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)
        target.sync()

    def swap(self, name: str, target: "FolderHandle", new_name: str) -> None:
        """Exchange the complete folder `name` with the folder `new_name` in `target`. Raises StorageError.

        If the system has no atomic exchange, three renames are made, and `new_name` is absent for a moment.
        """
        with self.folder(name) as staged:
            staged.sync()
        if not self._rename(name, target, new_name, _RENAME_EXCHANGE):
            aside, here, there = name + _ASIDE, self.descriptor, target.descriptor
            with failing(target.path / new_name, "swap with the finished pack"):
                os.rename(new_name, aside, src_dir_fd=there, dst_dir_fd=here)
                os.rename(name, new_name, src_dir_fd=here, dst_dir_fd=there)
                os.rename(aside, name, src_dir_fd=here, dst_dir_fd=here)
        target.sync()

    def _rename(self, name: str, target: "FolderHandle", new_name: str, flags: int) -> bool:
        """Call renameat2(2). Return False if the C library, the kernel or the file system does not support it."""
        function = _renameat2()
        if function is None:
            return False
        names = (self.descriptor, os.fsencode(name), target.descriptor, os.fsencode(new_name))
        if function(*names, ctypes.c_uint(flags)) == 0:
            return True
        code, path = ctypes.get_errno(), target.path / new_name
        if code in _UNSUPPORTED:
            return False
        if code == errno.EEXIST:
            raise PackExists(f"{path}: already there; --overwrite replaces a pack")
        with failing(path, "rename the finished folder to this name"):
            raise OSError(code, os.strerror(code))


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its content, if it exists. Raises StorageError."""
    with FolderHandle.at(path.parent) as folder:
        folder.remove(path.name)


def link(path: Path, new: Path) -> bool:
    """Make the hard link `new` to a file. Return False if the system cannot, for example on another file system."""
    try:
        os.link(path, new, follow_symlinks=False)
    except OSError:
        return False
    return True


def open_real_folder(path: Path, name: str, *, within: int) -> int:
    """Return a descriptor of the folder `name` in the folder `within`. Raises UnsafePath for another entry, OSError."""
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _foreign(path, "a folder", "a link or a file") from error
        raise


def _foreign(path: Path, expected: str, found: str) -> UnsafePath:
    return UnsafePath(f"{path}: expected {expected} that packer made, found {found}; move it away")


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM):  # POSIX has EPERM for a folder
            raise
        for _ in range(_REMOVALS):
            try:
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            except NotADirectoryError:
                raise error from None
            try:
                _empty(inner)
                os.rmdir(name, dir_fd=folder)
                return
            except OSError as found:
                if found.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # some systems report EEXIST
                    raise
                failed = found
        raise failed from None


def _empty(here: int) -> None:
    """Remove the content of an open folder, of any depth, and close its descriptor.

    The way back is "..". Raises OSError if ".." is another folder than on the way down, because a folder was moved.
    """
    above: list[tuple[str, os.stat_result]] = []
    try:
        while True:
            inner = _unlink_files(here)
            if inner is not None:
                status = os.fstat(here)
                here = _replaced(here, os.open(inner, _FOLDER | os.O_NOFOLLOW, dir_fd=here))
                above.append((inner, status))
            elif above:
                name, status = above.pop()
                here = _replaced(here, os.open("..", _FOLDER, dir_fd=here))
                if not os.path.samestat(os.fstat(here), status):
                    raise OSError(errno.EBUSY, "a folder in it was moved")
                os.rmdir(name, dir_fd=here)
            else:
                return
    finally:
        os.close(here)


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new


def _unlink_files(folder: int) -> str | None:
    """Unlink entries until one is a folder. Return the name of this folder, or None if no entry is left."""
    is_empty = False
    while not is_empty:  # a listing may miss names during removals
        is_empty = True
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    return entry.name
                os.unlink(entry.name, dir_fd=folder)
                is_empty = False
    return None


@functools.cache
def _renameat2() -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
