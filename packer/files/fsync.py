"""Fsync: syncs files, folders, parts and file systems to the disk, and writes synced files.

Writes are not atomic. Use packer.files.atomic_save for that. A failed fsync raises StorageError and is never repeated,
because the kernel may have dropped the unwritten pages.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from packer.files.storage_errors import failing


def sync(path: Path) -> None:
    """Sync a file or a folder. Raises StorageError."""
    _call_with_descriptor(os.fsync, path)


def sync_folder(folder: Path) -> None:
    """Sync all files of a folder, and then the folder. Raises StorageError.

    Write all files before: the first sync also writes blocks of the others. A sync after each file is much slower.
    """
    for path in sorted(folder.iterdir()):
        sync(path)
    sync(folder)


def sync_file_system(path: Path) -> None:
    """Sync the complete file system of `path`. For many small files, this is faster. Raises StorageError."""
    _call_with_descriptor(syncfs, path)


def _call_with_descriptor(function: Callable[[int], None], path: Path) -> None:
    with failing(path, "sync to disk"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            function(descriptor)
        finally:
            os.close(descriptor)


def syncfs(descriptor: int) -> None:
    """Sync the file system of an open file, or without syncfs(2) all file systems. Raises OSError."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        os.sync()
    elif function(descriptor):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def sync_part(path: Path) -> None:
    """Sync a part, which is a file or a folder of files. Raises StorageError."""
    (sync_file_system if path.is_dir() else sync)(path)


def write_file(path: Path, data: bytes) -> None:
    """Write and sync a new file. Raises StorageError, also if the path exists already."""
    with failing(path, "write"), path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """Make a folder if it is absent. Sync its parent yourself, so that its name is on disk. Raises StorageError."""
    with failing(path, "make the folder"):
        path.mkdir(exist_ok=True)
