"""Fsync: files, folders, parts and file systems synced to the disk before the call returns, and a new file so written.

Nothing is atomic here: what puts a file into its place by a rename is files/atomic_save.py. `make_folder` syncs
nothing: its folder's name is on the disk once the parent is synced. An fsync that fails is never tried again (the
kernel may have dropped the dirty pages): it raises StorageError.
"""

import ctypes
import os
from pathlib import Path

from packer.files.storage_errors import failing


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
    """A folder that may exist; its parent must. It is not synced. Raises StorageError."""
    with failing(path, "make the folder"):
        path.mkdir(exist_ok=True)
