"""Cold files: files dropped from the page cache before a measurement, and how much of them is still in memory.

Dropping is a wish (packer.system.page_cache), so what is left is counted afterwards.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from packer.files.fsync import sync_file_system
from packer.files.storage_errors import failing
from packer.system.page_cache import drop_pages, resident_bytes

WARM_SHARE = 0.05  # of the bytes left in memory, beyond which files are not cold


class Residency(NamedTuple):
    """How many bytes of some files are in memory, and how many they have; None where the system does not tell."""

    resident_bytes: int | None
    bytes: int

    @property
    def share(self) -> float | None:
        """Of all bytes, 0 to 1."""
        return None if self.resident_bytes is None else self.resident_bytes / max(1, self.bytes)


def drop(files: Iterable[Path]) -> Residency:
    """Have what is dirty written, let the system drop the pages, and say how many are left; raises StorageError."""
    paths = list(files)
    for path in paths[:1]:
        sync_file_system(path.parent)  # dirty pages would stay
    for path in paths:
        with _opened(path) as descriptor:
            drop_pages(descriptor)
    return residency(paths)


def residency(files: Iterable[Path]) -> Residency:
    """How much of the files is in memory, in whole pages; raises StorageError for a file that cannot be read."""
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
    """Bytes of one file that are in memory; None where the system does not tell."""
    with _opened(path) as descriptor, failing(path, "map"):
        return resident_bytes(descriptor)
