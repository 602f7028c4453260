"""Fsync: syncs files, folders, parts and file systems to the disk, and writes synced files.

Writes are not atomic; packer.files.atomic_save is. A failed fsync is never repeated, because the kernel may have
dropped the dirty pages; it raises StorageError.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from packer.files.storage_errors import failing


def sync(path: Path) -> None:
    """Sync a file or a folder; raises StorageError."""
    _call_with_descriptor(os.fsync, path)


def sync_folder(folder: Path) -> None:
    """Sync the files of a folder, and the folder, after all of them are written; raises StorageError.

    This is much faster than a sync after each file, because the first one also writes blocks of the others.
    """
    for path in sorted(folder.iterdir()):
        sync(path)
    sync(folder)


def sync_file_system(path: Path) -> None:
    """Sync the file system of `path`, which suits many small files; raises StorageError."""
    _call_with_descriptor(syncfs, path)


def _call_with_descriptor(function: Callable[[int], None], path: Path) -> None:
    with failing(path, "sync to disk"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            function(descriptor)
        finally:
            os.close(descriptor)


def syncfs(descriptor: int) -> None:
    """Sync the file system of an open file by syncfs(2), or all file systems without it; raises OSError."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        os.sync()
    elif function(descriptor):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def sync_part(path: Path) -> None:
    """Sync a part, which is a file or a folder of files; raises StorageError."""
    (sync_file_system if path.is_dir() else sync)(path)


def write_file(path: Path, data: bytes) -> None:
    """Write and sync a new file; raises StorageError, also if the path exists."""
    with failing(path, "write"), path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """Make a folder, which may exist; the caller syncs its parent, so that its name is on disk. Raises StorageError."""
    with failing(path, "make the folder"):
        path.mkdir(exist_ok=True)
