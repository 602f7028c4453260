"""Disk: how fast files are read, cold and warm, and written; how fast memory is copied. Bytes per second, all cores."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.errors import StorageFailed
from packer.measure import caching
from packer.pack.storage import failing, free_bytes, sync
from packer.parallel import ordered_map
from packer.sources.base import read_file

_PROBE_BYTES = 64 << 20
_BLOCK_BYTES = 256 << 10
_ROUNDS = 3
Clock = Callable[[], float]


@dataclass(frozen=True)
class Disk:
    """A folder's disk. read: in blocks of 256 KiB at random places, cold; None where it could not be made cold."""

    write: float
    read: float | None
    free_bytes: int


@dataclass(frozen=True)
class Reading:
    """Files, each read whole. cold: None where the files stayed in memory, or the system does not tell."""

    cold: float | None
    warm: float


def measure_disk(folder: Path, *, threads: int, clock: Clock = time.perf_counter) -> Disk:
    """By a file of 64 MiB of random bytes that is gone afterwards; raises StorageFailed."""
    free = free_bytes(folder)
    if free < 2 * _PROBE_BYTES:
        raise StorageFailed(f"{folder}: {free:,} bytes are free, {2 * _PROBE_BYTES:,} are needed; free some")
    data = np.random.default_rng(0).bytes(_PROBE_BYTES)
    with failing(folder, "write"), tempfile.NamedTemporaryFile(dir=folder, prefix=".packer-advise-") as file:
        begun = clock()
        file.write(data)
        file.flush()
        sync(Path(file.name))
        write = _PROBE_BYTES / _seconds(clock, begun)
        left = caching.drop([Path(file.name)])
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
        places = np.random.default_rng(1).permutation(_PROBE_BYTES // _BLOCK_BYTES) * _BLOCK_BYTES
        begun = clock()
        for _ in ordered_map(
            lambda place: os.pread(file.fileno(), _BLOCK_BYTES, place), places.tolist(), threads=threads
        ):
            pass
        read = _PROBE_BYTES / _seconds(clock, begun)
    return Disk(write, read if _is_cold(left) else None, free)


def measure_files(files: Sequence[Path], *, threads: int, clock: Clock = time.perf_counter) -> Reading:
    """Every file read twice, after it was dropped from the page cache; raises BadInput, StorageFailed."""
    left = caching.drop(files)
    found = []
    for _ in range(2):
        begun = clock()
        size = sum(ordered_map(lambda path: len(read_file(path)), files, threads=threads))
        found.append(size / _seconds(clock, begun))
    cold, warm = found
    return Reading(cold if _is_cold(left) else None, warm)


def measure_copying(*, clock: Clock = time.perf_counter) -> float:
    """Bytes per second that one core copies in memory, outside its caches."""
    source = np.zeros(_PROBE_BYTES, np.uint8)
    target = np.ones_like(source)
    fastest = float("inf")
    for _ in range(_ROUNDS):
        begun = clock()
        np.copyto(target, source)
        fastest = min(fastest, _seconds(clock, begun))
    return _PROBE_BYTES / fastest


def _seconds(clock: Clock, begun: float) -> float:
    return max(clock() - begun, 1e-9)


def _is_cold(left: caching.Residency) -> bool:
    return left.share is not None and left.share <= caching.WARM_SHARE
