"""Page cache: drops files from memory before a measurement, and counts how much of a file is in memory.

posix_fadvise(2) only requests that pages are dropped. Pages stay if they wait to be written, if a process maps them, or
if their file system is in memory (tmpfs). So mincore(2) counts the pages that remain. This needs Linux.
"""

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from packer.files.fsync import sync_file_system
from packer.files.storage_errors import failing

_WARM_SHARE = 0.05  # of the bytes; files with more in memory are not cold


class Residency(NamedTuple):
    """The bytes of some files that are in memory, or None if they are unknown, and the size of the files."""

    resident_bytes: int | None
    bytes: int

    @property
    def share(self) -> float | None:
        """Share of the bytes that are in memory, 0 to 1. None if the system does not report it."""
        return None if self.resident_bytes is None else self.resident_bytes / max(1, self.bytes)

    @property
    def is_cold(self) -> bool:
        """True if at most 5 % of the bytes are in memory. False if more are, or if it is not known."""
        return self.share is not None and self.share <= _WARM_SHARE


def cold_sentence(name: str, shares: Sequence[float | None]) -> str:
    """Return a sentence that tells if the files `name` were cold. `shares` has `Residency.share` after each `drop`."""
    if None in shares:
        return f"{name}: this system does not report what is in the page cache (mincore): maybe it was not cold."
    most = max(share or 0.0 for share in shares)
    if most > _WARM_SHARE:
        return (
            f"{name}: NOT cold: up to {most:.0%} of it stayed in memory after it was dropped from the page cache: "
            "it is on a file system in memory, or another process maps it."
        )
    return f"{name}: cold (at most {most:.1%} of it stayed in memory)."


def drop(files: Iterable[Path]) -> Residency:
    """Ask the system to drop the files from memory. Return how much of them stays there. Raises StorageError."""
    paths = list(files)
    for path in paths[:1]:
        sync_file_system(path.parent)  # dirty pages would stay
    for path in paths:
        with _opened(path) as descriptor:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return residency(paths)


def residency(files: Iterable[Path]) -> Residency:
    """Return how much of the files is in memory, counted in whole pages. Raises StorageError."""
    counts = [(_resident_pages(path), path.stat().st_size) for path in files]
    known = [resident for resident, _ in counts if resident is not None]
    return Residency(sum(known) if len(known) == len(counts) else None, sum(size for _, size in counts))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    with failing(path, "read"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _resident_pages(path: Path) -> int | None:
    with _opened(path) as descriptor, failing(path, "map"):
        return resident_bytes(descriptor)


def resident_bytes(descriptor: int) -> int | None:
    """Return how many bytes of an open file are in memory, counted in whole pages. Raises OSError.

    Return None if the system has no mincore(2). Also for a file of another user: its count would include all pages.
    """
    status = os.fstat(descriptor)
    if os.geteuid() not in (0, status.st_uid):
        return None
    if not status.st_size:
        return 0
    mincore = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)
    if mincore is None:
        return None
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapped, np.uint8)
        address, size = ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(mapped))
        failed = mincore(address, size, ctypes.c_void_p(pages.ctypes.data))
        del view  # else the file could not be unmapped
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return min(int((pages & 1).sum()) * mmap.PAGESIZE, status.st_size)


def expect_random_reads(descriptor: int) -> None:
    """Ask the system not to read ahead in a file. Does nothing if it has no such call. Raises OSError."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
