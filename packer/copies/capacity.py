"""Capacity: checks that a copy fits into memory or a file system, before the first write."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packer.errors import StorageError
from packer.files.storage_errors import failing, free_files
from packer.system.machine_limits import Limit, Machine

_INODE_BYTES = 1024  # memory of the kernel for one file of a tmpfs
_ADVICE = "nothing was written; copy some parts (--parts), keep less, or warm the page cache (--warm)"


@dataclass(frozen=True)
class SpaceNeeded:
    """The space that a copy takes: `bytes` in whole blocks of the file system, and the number of `files`."""

    bytes: int
    files: int


@dataclass(frozen=True)
class SpaceKept:
    """The space that must remain free: `share` of the total bytes (0 <= share < 1), or `bytes` if that is more."""

    share: float = 0.0
    bytes: int = 0

    def of(self, limit: Limit) -> int:
        """Return how many bytes of `limit` must remain free."""
        return max(int(limit.total_bytes * self.share), self.bytes)


DEFAULT = SpaceKept(0.2, 1 << 30)  # a DataLoader keeps its batches in shared memory: often more than 1 GB


def check(base: Path, need: SpaceNeeded, keep: SpaceKept | None, machine: Machine, *, advice: str = _ADVICE) -> None:
    """Raise StorageError if a copy does not fit into the file system of `base`.

    Args:
        base: A folder of the file system.
        need: The space that the copy takes.
        keep: The space that remains free. None keeps `DEFAULT` free if the copy is in memory, otherwise nothing.
        machine: Reports the memory limits and the file system of `base`.
        advice: The end of the error message.
    """
    for limit, kept in _limits(base, keep, machine):
        needed = need.bytes + need.files * _INODE_BYTES
        if needed > limit.free_bytes - kept:
            raise StorageError(
                f"{base}: the pack does not fit: it takes {needed:,} bytes; {limit.name} has {limit.free_bytes:,} of "
                f"{limit.total_bytes:,} bytes free, and {kept:,} stay free for others (--leave-free); {advice}"
            )
    files = free_files(base)
    if files is not None and need.files > files:
        raise StorageError(
            f"{base}: the pack does not fit: it has {need.files:,} files, {files:,} more can be made there; {advice}"
        )


def free_memory(keep: SpaceKept | None, machine: Machine) -> int:
    """Return how many bytes the page cache may take, 1 << 62 without a limit. None for `keep` means `DEFAULT`."""
    limits = machine.memory_limits()
    return min((max(0, limit.free_bytes - (keep or DEFAULT).of(limit)) for limit in limits), default=1 << 62)


def space(base: Path) -> Limit | None:
    """Return the total and free bytes of the file system of `base`, or None for a tmpfs without a size.

    If the file system cannot be read, raise StorageError.
    """
    with failing(base, "read its free space"):
        found = os.statvfs(base)
    if not found.f_blocks:
        return None
    return Limit(f"{base}", found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def _limits(base: Path, keep: SpaceKept | None, machine: Machine) -> Iterator[tuple[Limit, int]]:
    """Yield `(limit, bytes that must remain free)` for the file system of `base`, and for memory if it is in memory."""
    there = space(base)
    with failing(base, "read its file system"):
        mount = machine.mount(base)
    if there is not None:
        yield there, (keep or (DEFAULT if _is_shared_memory(base, machine) else SpaceKept())).of(there)
    if mount is not None and mount.in_memory:
        for limit in machine.memory_limits():
            yield limit, (keep or DEFAULT).of(limit)


def _is_shared_memory(base: Path, machine: Machine) -> bool:
    try:
        return os.stat(base).st_dev == os.stat(machine.shared_memory).st_dev
    except FileNotFoundError:
        return False
