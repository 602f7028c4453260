"""Copying: a file or a folder of a pack, its space taken beforehand, its sha256 computed on the way.

Space is taken by posix_fallocate and files are filled by plain writes: a disk or memory that is full is an error then,
not the SIGBUS that a write to a mapped file would end in.
"""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from packer.beneath import open_beneath
from packer.files.open_folder import OpenFolder
from packer.pack.digest import FolderDigest, entries, opened_folder
from packer.pack.storage import failing, open_file
from packer.pack.tree import Tree

_BLOCK_BYTES = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def reserve(path: Path, size_bytes: int) -> None:
    """A new file of that size whose space is taken; raises StorageFailed."""
    with failing(path, "take the space for a copy"):
        descriptor = os.open(path, _NEW_FILE, 0o600)
        try:
            if size_bytes:  # else it is EINVAL
                os.posix_fallocate(descriptor, 0, size_bytes)
        finally:
            os.close(descriptor)


def copy_file(source: Path, target: Path) -> str:
    """Fill `target`, which `reserve` made; returns the sha256 of all that was read, in hex.

    Raises CorruptPack, StorageFailed.
    """
    digest = hashlib.sha256()
    with open_file(source) as file, failing(target, "write"), target.open("r+b", buffering=0) as filled:
        while block := _read(source, file):
            digest.update(block)
            rest = memoryview(block)
            while rest:
                rest = rest[filled.write(rest) :]
    return digest.hexdigest()


def _read(source: Path, file: BinaryIO) -> bytes:
    with failing(source, "read"):
        return file.read(_BLOCK_BYTES)


def copy_folder(source: Path, target: OpenFolder, name: str, *, reserved: Path, block_bytes: int) -> str:
    """Copy a folder with all that is in it to a new one in `target`; returns its sha256 as pack/digest.py has it.

    reserved: the path of a file that holds the space; before each file it is shortened by what that takes, in whole
    blocks.
    Raises CorruptPack, StorageFailed.
    """
    digest = FolderDigest()
    left = reserved.stat().st_size
    with opened_folder(source) as root, Tree(target, name) as tree:
        for path, size in entries(source):
            components = path.split(b"/")
            if size is None:
                tree.make_folder(components)
                digest.add_folder(path)
                continue
            with failing(source / os.fsdecode(path), "read"), os.fdopen(open_beneath(root, path), "rb") as file:
                data = file.read()
            left = max(0, left - in_blocks(len(data), block_bytes))
            with failing(reserved, "give back space"):
                os.truncate(reserved, left)
            tree.write(components, data)
            digest.add_file(path, len(data), hashlib.sha256(data).digest())
    return digest.hexdigest()


def in_blocks(size_bytes: int, block_bytes: int) -> int:
    """A size, rounded up to whole blocks."""
    return -(-size_bytes // block_bytes) * block_bytes
