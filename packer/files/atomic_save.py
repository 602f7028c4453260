"""Atomic save: writes one file (image, page, table, JSON) under another name, syncs it, and renames it to its name.

If the process is killed, the file has its complete new content, or is as it was before. Links are not followed. The
other name is in a work folder next to the file, which is locked and removed afterwards (packer.files.work_folder).
"""

import os
import stat
from pathlib import Path

from packer.errors import InvalidRequest, UnsafePath
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.files.work_folder import ANYTHING, work_folder

_NEW = "new"
_SAVED = {_NEW: ANYTHING}


def save(path: Path, data: bytes) -> None:
    """Write `data` to `path` by one rename, which replaces an existing file or link.

    If the path is /dev/stdout, /dev/fd/N or another device in /dev, write to this device instead.

    Raises:
        InvalidRequest: The path is a folder.
        UnsafePath: The path is a FIFO, or a device that is not in /dev.
        Locked: Another process saves to the same path.
        StorageError: The file cannot be written.
    """
    check_savable(path)
    if _is_device(path):
        with failing(path, "write"), path.open("wb") as file:
            file.write(data)
        return
    with work_folder(path.with_name(f".{path.name}.save"), _SAVED) as work:
        work.clear()  # left by a run that was killed
        try:
            work.write_file(_NEW, data)
            work.replace(_NEW, work.above, path.name)
        finally:
            work.clear()


def check_savable(path: Path) -> None:
    """Raise InvalidRequest or UnsafePath if `save` would refuse this path. Commands call it before long work."""
    if _is_device(path):
        return
    if not path.name:
        raise InvalidRequest(f"{path}: expected a file to write, found a folder; choose another name")
    if not path.parent.is_dir():
        return  # opening it raises the error
    with FolderHandle.at(path.parent) as folder:
        status = folder.status(path.name)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise InvalidRequest(f"{path}: expected a file to write, found a folder; choose another name")
    if status is not None and not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
        raise UnsafePath(f"{path}: expected a file to write, found a device or a FIFO; choose another name")


def _is_device(path: Path) -> bool:
    """Return True for a path directly in /dev, and below /dev/fd or /proc. In /dev/shm, files are ordinary."""
    absolute = os.path.abspath(path)
    return os.path.dirname(absolute) == "/dev" or absolute.startswith(("/dev/fd/", "/proc/"))
