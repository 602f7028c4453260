"""Folder handle: an open folder, held by its descriptor; makes, renames and removes files and folders in it.

All calls are relative to the descriptor. So a link that replaces a folder meanwhile cannot lead a write or a removal
elsewhere. Links in the folder are removed themselves, and never followed.

A failed fsync is never repeated, because the kernel may have dropped the dirty pages; it raises StorageError.
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
    """An open folder; `path` is its path when it was opened, for messages."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over the descriptor, which `close` closes."""
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def at(cls, path: Path) -> "FolderHandle":
        """Open the folder at a path of the user, following links; raises StorageError."""
        with failing(path, "open the folder"):
            return cls(path, os.open(path, _FOLDER))

    def __enter__(self) -> "FolderHandle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; may be called twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    # ---- content

    def names(self) -> list[str]:
        """Return the names in the folder, sorted; raises StorageError."""
        with failing(self.path, "list the folder"):
            return sorted(os.listdir(self.descriptor))

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of a name, without following a link, or None if it is absent; raises StorageError."""
        with failing(self.path / name, "ask for it"):
            try:
                return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def folder(self, name: str) -> "FolderHandle":
        """Open a subfolder, which the caller closes. Raises UnsafePath for a link or a file, StorageError."""
        path = self.path / name
        with failing(path, "open the folder"):
            return FolderHandle(path, open_real_folder(path, name, within=self.descriptor))

    @property
    def inside(self) -> Path:
        """A path through the descriptor, for libraries that require paths; on systems without /proc, `path`.

        It is valid in this process while the folder is open.
        """
        through = Path(f"/proc/self/fd/{self.descriptor}")
        return through if through.exists() else self.path

    @contextmanager
    def named(self) -> Iterator[None]:
        """Replace `inside` by `path` in the messages of errors of packer that the `with` block raises."""
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
        """Open a subfolder, which is made if absent, and which the caller closes. Raises the errors of `folder`."""
        with failing(self.path / name, "make the folder"), suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.descriptor)
        return self.folder(name)

    def write_file(self, name: str, data: bytes) -> None:
        """Write and sync a new file; raises StorageError, also if the name exists."""
        with failing(self.path / name, "write"):
            descriptor = os.open(name, _NEW_FILE, 0o666, dir_fd=self.descriptor)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)

    def read_file(self, name: str) -> bytes:
        """Return the content of a file, empty if it is absent; raises UnsafePath, StorageError."""
        if self.status(name) is None:
            return b""
        with self._plain_file(name) as file, failing(self.path / name, "read"):
            return file.read() or b""

    def _plain_file(self, name: str) -> BinaryIO:
        """Open a regular file for reading; raises UnsafePath for a link, a hard link or anything else, StorageError."""
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
        """Call fdatasync for an open file that was made in the folder; raises StorageError."""
        with failing(self.path, "sync a file to disk"):
            os.fdatasync(descriptor)

    # ---- removing

    def remove(self, name: str) -> None:
        """Remove a file, a link, or a folder with its content, if it exists; raises StorageError."""
        with failing(self.path / name, "remove"):
            _remove(self.descriptor, name)

    def remove_empty_folder(self, name: str) -> None:
        """Remove an empty folder; raises StorageError for anything else."""
        with failing(self.path / name, "remove the empty folder"):
            os.rmdir(name, dir_fd=self.descriptor)

    # ---- on disk

    def sync(self) -> None:
        """Call fsync for the folder; raises StorageError."""
        with failing(self.path, "sync to disk"):
            os.fsync(self.descriptor)

    def sync_file_system(self) -> None:
        """Sync the file system of the folder, which suits many small files; raises StorageError."""
        with failing(self.path, "sync to disk"):
            syncfs(self.descriptor)

    def replace(self, name: str, target: "FolderHandle", new_name: str) -> None:
        """Move a synced file to `new_name` in `target`, replacing a file, by one rename; raises StorageError."""
        with failing(target.path / new_name, "replace"):
            os.replace(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)
        target.sync()

    def publish(self, name: str, target: "FolderHandle", new_name: str) -> None:
        """Move a complete folder to `new_name` in `target`; raises PackExists if that name exists, StorageError."""
        with self.folder(name) as staged:
            staged.sync()
        if not self._rename(name, target, new_name, _RENAME_NOREPLACE):
            if target.status(new_name) is not None:
                raise PackExists(f"{target.path / new_name}: already there; --overwrite replaces a pack")
            with failing(target.path / new_name, "rename the finished pack"):
                os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)
        target.sync()

    def swap(self, name: str, target: "FolderHandle", new_name: str) -> None:
        """Exchange the complete folder `name` with the folder `new_name` in `target`; raises StorageError.

        This is one atomic exchange if the system supports it, else renames, between which `new_name` is absent.
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
        """Call renameat2(2); return False if the C library, kernel or file system does not support it."""
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
    """Remove a file, or a folder with its content, if it exists, without following links; raises StorageError."""
    with FolderHandle.at(path.parent) as folder:
        folder.remove(path.name)


def link(path: Path, new: Path) -> bool:
    """Make the hard link `new` to a file. Return False if the system cannot, for example across file systems."""
    try:
        os.link(path, new, follow_symlinks=False)
    except OSError:
        return False
    return True


def open_real_folder(path: Path, name: str, *, within: int) -> int:
    """Return a descriptor of the folder `name` in the open folder `within`; raises UnsafePath for others, OSError."""
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
    """Remove the content of an open folder, of any depth, with one descriptor at a time; close the descriptor.

    The way back is "..", which must be the same folder as before: a folder that is moved meanwhile is an error.
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
    """Unlink the entries of a folder up to the first that is a folder, and return its name; None if there is none."""
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
