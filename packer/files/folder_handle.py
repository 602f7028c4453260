"""Folder handle: an open folder, held by its descriptor; makes, renames and removes names in it.

All of it is relative to the descriptor, never by a path. So nothing that is swapped for a link meanwhile, in the folder
or above it, leads a write or a removal elsewhere. Links that lie in the folder are removed themselves, and never
followed.

An fsync that fails is never tried again (the kernel may have dropped the dirty pages): it raises StorageError.
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
from packer.files.storage_errors import failing

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_RENAME_NOREPLACE = 1  # linux/fs.h
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_DESCRIPTORS = "/proc/self/fd"
_REMOVALS = 100  # of a folder into which another process still writes
_ASIDE = ".old"  # after a name: where `swap` puts what was there, on a system without an atomic exchange


class FolderHandle:
    """An open folder; `path` is for messages, and where it was found."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Takes the descriptor over."""
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def at(cls, path: Path) -> "FolderHandle":
        """The folder at a path that the user named: links in it are followed. Raises StorageError."""
        with failing(path, "open the folder"):
            return cls(path, os.open(path, _FOLDER))

    def __enter__(self) -> "FolderHandle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back; may be called twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    # ---- what is in it

    def names(self) -> list[str]:
        """The names of all that is in it, sorted; raises StorageError."""
        with failing(self.path, "list the folder"):
            return sorted(os.listdir(self.descriptor))

    def status(self, name: str) -> os.stat_result | None:
        """Of what has that name, a link itself; None where nothing has. Raises StorageError."""
        with failing(self.path / name, "ask for it"):
            try:
                return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def folder(self, name: str) -> "FolderHandle":
        """A folder in it, open; the caller closes it. Raises UnsafePath for a link or a file, StorageError."""
        path = self.path / name
        with failing(path, "open the folder"):
            return FolderHandle(path, open_real_folder(path, name, within=self.descriptor))

    @property
    def inside(self) -> Path:
        """A path of the folder through its descriptor, for libraries that want paths; the plain one without /proc.

        It is good as long as the folder is open, in this process.
        """
        through = Path(f"/proc/self/fd/{self.descriptor}")
        return through if through.exists() else self.path

    @contextmanager
    def named(self) -> Iterator[None]:
        """Inside the block errors of packer say `path` where they would say `inside`."""
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
        """A folder in it, open, made where it is not there; the caller closes it. Raises as `folder` does."""
        with failing(self.path / name, "make the folder"), suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.descriptor)
        return self.folder(name)

    def write_file(self, name: str, data: bytes) -> None:
        """A new file, synced; raises StorageError."""
        with failing(self.path / name, "write"):
            descriptor = os.open(name, _NEW_FILE, 0o666, dir_fd=self.descriptor)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)

    def read_file(self, name: str) -> bytes:
        """The content of a file, nothing where it is not there; raises UnsafePath, StorageError."""
        if self.status(name) is None:
            return b""
        with self._plain_file(name) as file, failing(self.path / name, "read"):
            return file.read() or b""

    def _plain_file(self, name: str) -> BinaryIO:
        """A file of one name, open to be read; raises UnsafePath for a link, of either kind, and anything else, and
        StorageError.
        """
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

    # ---- files without a name, until they are whole

    def new_unnamed_file(self) -> int | None:
        """A new file without a name, open for reading and writing: it ends with the descriptor unless it is linked.

        None where the file system or the system has none, or no /proc to give one a name. Raises StorageError.
        """
        flag = getattr(os, "O_TMPFILE", None)
        if flag is None or not os.path.isdir(_DESCRIPTORS):
            return None
        with failing(self.path, "make a file"):
            try:
                return os.open(".", flag | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=self.descriptor)
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
                    return None
                raise

    def new_named_file(self, name: str) -> int:
        """A new file in the place of what may have that name, open for reading and writing; raises StorageError."""
        self.remove(name)
        with failing(self.path / name, "make a file"):
            return os.open(
                name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.descriptor
            )

    def sync_file(self, descriptor: int) -> None:
        """fdatasync of an open file that was made in it; raises StorageError."""
        with failing(self.path, "sync a file to disk"):
            os.fdatasync(descriptor)

    def link_unnamed_file(self, descriptor: int, target: "FolderHandle", name: str) -> bool:
        """Give a file without a name this one in `target`; False where it is taken. Raises StorageError."""
        with failing(target.path / name, "give the finished file its name"):
            try:
                os.link(f"{_DESCRIPTORS}/{descriptor}", name, dst_dir_fd=target.descriptor, follow_symlinks=True)
            except FileExistsError:
                return False
        return True

    # ---- removing

    def remove(self, name: str) -> None:
        """Remove a file, a link, or a folder with all that is in it, if it is there; raises StorageError."""
        with failing(self.path / name, "remove"):
            _remove(self.descriptor, name)

    def remove_empty_folder(self, name: str) -> None:
        """Raises StorageError where it is not empty, or no folder."""
        with failing(self.path / name, "remove the empty folder"):
            os.rmdir(name, dir_fd=self.descriptor)

    # ---- on disk

    def sync(self) -> None:
        """fsync; raises StorageError."""
        with failing(self.path, "sync to disk"):
            os.fsync(self.descriptor)

    def sync_file_system(self) -> None:
        """Everything written to the file system that holds it, by one syncfs(2): many small files; StorageError."""
        with failing(self.path, "sync to disk"):
            function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if function is None:
                os.sync()
            elif function(self.descriptor):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def replace(self, name: str, target: "FolderHandle", new_name: str) -> None:
        """Move a synced file to `target`, in the place of a file that may be there, by one rename; StorageError."""
        with failing(target.path / new_name, "replace"):
            os.replace(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)
        target.sync()

    def publish(self, name: str, target: "FolderHandle", new_name: str) -> None:
        """Move a complete folder to `target`, where nothing of that name may be; raises PackExists, StorageError."""
        with self.folder(name) as staged:
            staged.sync()
        if not self._rename(name, target, new_name, _RENAME_NOREPLACE):
            if target.status(new_name) is not None:
                raise PackExists(f"{target.path / new_name}: already there; --overwrite replaces a pack")
            with failing(target.path / new_name, "rename the finished pack"):
                os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)
        target.sync()

    def swap(self, name: str, target: "FolderHandle", new_name: str) -> None:
        """Exchange a complete folder with one in `target`; raises StorageError.

        One atomic exchange where the system has it; elsewhere two renames, between which `target` is absent.
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
        """renameat2(2); False where the C library, kernel or file system does not have it."""
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
    """Remove a file or a folder with all that is in it, if it is there; follows no link; raises StorageError."""
    with FolderHandle.at(path.parent) as folder:
        folder.remove(path.name)


def open_real_folder(path: Path, name: str, *, within: int) -> int:
    """A descriptor of the folder `name` in an open one; UnsafePath where it is a link or a file, and OSError."""
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
        if error.errno not in (errno.EISDIR, errno.EPERM):  # the latter is what POSIX has for a folder
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
                if found.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # the latter is what some systems say
                    raise
                failed = found
        raise failed from None


def _empty(here: int) -> None:
    """Remove all that is in a folder, however deep, with one descriptor at a time; takes the descriptor over.

    The way back up is "..", which must be the very folder that was left: one that is moved away meanwhile is an error.
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
                    raise OSError(errno.EBUSY, "a folder in it was moved meanwhile")
                os.rmdir(name, dir_fd=here)
            else:
                return
    finally:
        os.close(here)


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new


def _unlink_files(folder: int) -> str | None:
    """Unlink whatever is no folder, up to the first folder, whose name is returned; None where nothing is left."""
    is_empty = False
    while not is_empty:  # a listing may miss names while others are removed
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
