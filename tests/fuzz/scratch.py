"""Scratch: where targets put an input for what reads files only; in memory where the system has such a folder."""

import tempfile
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")

_folder = tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None, prefix="fuzz-")


def folder() -> Path:
    """This process's own, gone with it."""
    return Path(_folder.name)


def written(name: str, data: bytes) -> Path:
    """A file of that name with these bytes."""
    path = folder() / name
    path.write_bytes(data)
    return path
