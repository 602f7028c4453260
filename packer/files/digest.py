"""Digest: size and sha256 of a file, and of a part, which is one file or a folder of files.

The size of a folder is the size of all files in it. Its sha256 covers one record for each file and folder in it, with
paths relative to the part. Files of a folder precede its folders, and both are sorted by the bytes of the names:

| entry  | record                                                                                    |
|--------|-------------------------------------------------------------------------------------------|
| file   | path, NUL, its size in decimal, NUL, the 32 bytes of the sha256 of its content            |
| folder | path, "/", NUL                                                                            |

So the digest depends only on names, sizes and contents. A link or a device raises CorruptPack. Files outside the part
are not opened.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from packer.errors import CorruptPack
from packer.files.safe_paths import open_beneath, open_file
from packer.files.storage_errors import failing

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def file_bytes(path: Path) -> int:
    """Return the size in bytes of a file of a pack. Raises CorruptPack if it is not a regular file, StorageError."""
    with open_file(path) as file:
        return os.fstat(file.fileno()).st_size


def file_sha256(path: Path) -> str:
    """Return the sha256 in hex of a file of a pack. Raises CorruptPack if it is not a regular file, StorageError."""
    with open_file(path) as file, failing(path, "read"):
        return hashlib.file_digest(file, "sha256").hexdigest()


def part_bytes(path: Path, *, without: Container[bytes] = ()) -> int:
    """Return the size of a part in bytes: of the file, or of all files in the folder.

    Args:
        path: The part.
        without: Paths of files to ignore, relative to a part that is a folder.

    Raises:
        CorruptPack: The folder contains a link or a device.
        StorageError: The part cannot be read.
    """
    with failing(path, "read"):
        status = os.stat(path, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return sum(size or 0 for name, size in entries(path) if name not in without)


def part_sha256(path: Path, *, most_bytes: int | None = None, without: Container[bytes] = ()) -> str:
    """Return the sha256 of a part in hex, as the manifest has it. Raises CorruptPack, StorageError.

    Args:
        path: The part.
        most_bytes: Size in the manifest. If the part is larger, CorruptPack is raised before more bytes are read.
        without: Paths of entries to ignore, relative to a part that is a folder.
    """
    with failing(path, "read"):
        status = os.stat(path, follow_symlinks=False)
    left = most_bytes if most_bytes is not None else sys.maxsize
    if not stat.S_ISDIR(status.st_mode):
        _check_size(path, left - status.st_size)
        return file_sha256(path)
    digest = FolderDigest()
    with opened_folder(path) as root:
        for name, size in _entries(path, root):
            if name in without:
                continue
            if size is None:
                digest.add_folder(name)
            else:
                left -= size
                _check_size(path, left)
                digest.add_file(name, size, _content(path, root, name))
    return digest.hexdigest()


def _check_size(path: Path, left: int) -> None:
    if left < 0:
        raise CorruptPack(f"{path}: damaged part: it has more bytes than the manifest states; copy or pack it again")


class FolderDigest:
    """Computes the sha256 of a part that is a folder. Add its entries in the order of the function `entries`."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add_folder(self, name: bytes) -> None:
        """Add a folder by its path, relative to the part."""
        self._hash.update(name + b"/\0")

    def add_file(self, name: bytes, size: int, sha256: bytes) -> None:
        """Add a file by its path relative to the part, its size, and the sha256 of its content (32 bytes)."""
        self._hash.update(b"%s\0%d\0" % (name, size) + sha256)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def entries(path: Path) -> Iterator[tuple[bytes, int | None]]:
    """Yield the relative path and the size of each entry of a part that is a folder, in the order of this module.

    Entries are files and folders. The size of a folder is None. Raises CorruptPack for a link or device, StorageError.
    """
    with opened_folder(path) as root:
        yield from _entries(path, root)


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """Open a part that is a folder, and yield its descriptor for the `with` block. Raises StorageError."""
    with failing(path, "open"):
        descriptor = os.open(path, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _entries(path: Path, root: int) -> Iterator[tuple[bytes, int | None]]:
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        if folder:
            yield folder, None
        inner = []
        for name, status in _listing(path, root, folder):
            below = b"%s/%s" % (folder, name) if folder else name
            if stat.S_ISREG(status.st_mode):
                yield below, status.st_size
            elif stat.S_ISDIR(status.st_mode):
                inner.append(below)
            else:
                where = path / os.fsdecode(below)
                raise CorruptPack(f"{where}: expected a file, found a link or a device; copy the pack with cp -rL")
        waiting += reversed(inner)


def _listing(path: Path, root: int, folder: bytes) -> list[tuple[bytes, os.stat_result]]:
    where = path / os.fsdecode(folder)
    with failing(where, "list the folder"):
        descriptor = open_beneath(root, folder, is_folder=True) if folder else os.dup(root)
        try:
            with os.scandir(descriptor) as listed:
                found = [(os.fsencode(entry.name), entry.stat(follow_symlinks=False)) for entry in listed]
        finally:
            os.close(descriptor)
    return sorted(found, key=lambda item: item[0])


def _content(path: Path, root: int, name: bytes) -> bytes:
    with failing(path / os.fsdecode(name), "read"), os.fdopen(open_beneath(root, name), "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()
