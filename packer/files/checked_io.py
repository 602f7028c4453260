"""Checked I/O: opens, writes, hashes and syncs files by path, and turns the system's errors into StorageError.

What renames and removes is in folder_handle. An fsync that fails is never tried again (the kernel may have dropped the
dirty pages): it raises StorageError.
"""

import ctypes
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from packer.errors import CorruptPack, PackerError, StorageError


def free_files(path: Path) -> int | None:
    """How many files this user may still make on the file system of `path` or of its nearest existing parent.

    None where it sets no limit.
    """
    while not path.exists() and path != path.parent:
        path = path.parent
    with failing(path, "ask for free space"):
        found = os.statvfs(path)
    return found.f_favail if found.f_files else None


def open_file(path: Path) -> BinaryIO:
    """A file of a pack, open for reading. Never follows a link and never waits, as opening a FIFO would.

    Raises CorruptPack where there is no such file or something else, StorageError where it cannot be read.
    """
    with failing(path, "open"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CorruptPack(f"{path}: missing; copy the pack again") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise CorruptPack(f"{path}: expected a file, found a link; copy the pack with cp -rL") from error
            raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise CorruptPack(f"{path}: expected a file, found a folder or a device; copy the pack again")


def file_bytes(path: Path) -> int:
    """The size of a file of a pack; raises CorruptPack, StorageError."""
    with open_file(path) as file:
        return os.fstat(file.fileno()).st_size


def file_sha256(path: Path) -> str:
    """The sha256 of a file of a pack, in hex; raises CorruptPack, StorageError."""
    digest = hashlib.sha256()
    with open_file(path) as file, failing(path, "read"):
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """fsync a file or a folder; raises StorageError."""
    with failing(path, "sync to disk"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_file_system(path: Path) -> None:
    """Everything written to the file system that holds `path`, by one syncfs(2): many small files; StorageError."""
    with failing(path, "sync to disk"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if function is None:
                os.sync()
            elif function(descriptor):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(descriptor)


def sync_part(path: Path) -> None:
    """A part, which is a file or a folder with files in it; raises StorageError."""
    (sync_file_system if path.is_dir() else sync)(path)


def write_file(path: Path, data: bytes) -> None:
    """A new file with `data`, synced; raises StorageError."""
    with failing(path, "write"), path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """A folder that may exist; its parent must. Raises StorageError."""
    with failing(path, "make the folder"):
        path.mkdir(exist_ok=True)


@contextmanager
def failing(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError of the block into StorageError with the path, and the free space where that is the cause."""
    try:
        yield
    except PackerError:  # some of them are OSErrors too
        raise
    except OSError as error:
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            with suppress(OSError):  # what cannot be asked on a failing disk must not hide the failure
                hint = f"; {free_bytes(path):,} bytes are free there: free some, or choose another folder"
        elif error.errno == errno.EIO:
            hint = "; the disk fails: see the kernel's log (dmesg), and choose another one"
        raise StorageError(f"{path}: cannot {doing}: {error.strerror or error}{hint}") from error


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write to the file system of `path` or of its nearest existing parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free
