"""Prediction: what packing a whole set in one way gives, from a trial with a few samples and the machine's rates.

With all bytes in memory, the rate is the trial's. Beyond that, the share of the pack that the page cache cannot hold
is read from the disk in every epoch, while other samples are decoded: the slower of the two decides. Packing reads,
encodes and writes at the same time, too.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.errors import StorageError
from packer.files.fsync import sync
from packer.files.page_cache import drop, expect_random_reads
from packer.files.storage_errors import failing, free_bytes
from packer.sources.base import read_file
from packer.system.parallel import ordered_map
from packer.tools.advise.candidates import Candidate

_EQUAL = 0.9  # of the best rate: what lies so near is as fast
_LIKE = 1.1  # of the least size: as small


@dataclass(frozen=True)
class Trial:
    """rate: samples/s that all cores load, the pack in memory. sample_bytes: of the pack, per sample.

    growth: bytes of the pack per byte of the files. encode_seconds: wall time of a sample, all cores at work.
    decode_ms: of a sample, on one core, with its warp. samples: how many took part. skipped: key and reason of those
    that cannot be packed.
    """

    candidate: Candidate
    rate: float
    sample_bytes: float
    growth: float
    encode_seconds: float
    decode_ms: float
    samples: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class WholeSet:
    """The whole set: samples and their files' bytes, and of the files of no sample that go along."""

    samples: int
    bytes: int
    extras_bytes: int = 0


@dataclass(frozen=True)
class Rates:
    """Bytes per second, None where it could not be measured: source_read and pack_read cold, pack_write.

    memory_bytes: what the page cache may hold. disk_bytes: free where the pack goes.
    """

    source_read: float | None
    pack_read: float | None
    pack_write: float
    memory_bytes: int
    disk_bytes: int


@dataclass(frozen=True)
class Prediction:
    """rate: samples/s of an epoch. first_rate: of one that finds nothing in memory, None where it is not known."""

    trial: Trial
    rate: float
    first_rate: float | None
    pack_bytes: int
    convert_seconds: float
    fits_memory: bool
    fits_disk: bool

    @property
    def candidate(self) -> Candidate:
        """How it is packed."""
        return self.trial.candidate


def predict(trial: Trial, whole: WholeSet, rates: Rates) -> Prediction:
    """See the module."""
    source_bytes = whole.bytes / whole.samples
    pack_bytes = round(trial.growth * whole.bytes) + whole.extras_bytes
    missing = max(0.0, 1 - rates.memory_bytes / max(1, pack_bytes))
    reading = trial.growth * source_bytes / rates.pack_read if rates.pack_read else None
    arriving = source_bytes / rates.source_read if rates.source_read else 0.0
    leaving = trial.growth * source_bytes / rates.pack_write
    return Prediction(
        trial=trial,
        rate=1 / max(1 / trial.rate, missing * (reading or 0.0)),
        first_rate=None if reading is None else 1 / max(1 / trial.rate, reading),
        pack_bytes=pack_bytes,
        convert_seconds=whole.samples * max(trial.encode_seconds, arriving, leaving),
        fits_memory=missing == 0,
        fits_disk=pack_bytes <= rates.disk_bytes,
    )


def recommended(predictions: Sequence[Prediction], sizes: Sequence[str | None]) -> Prediction | None:
    """The fastest that fits on the disk, loses nothing unasked and has one of these sizes; None where none does.

    Of those nearly as fast, the smallest; of those nearly as small, the first.
    """
    good = [one for one in predictions if one.fits_disk and not one.candidate.loses and one.candidate.size in sizes]
    if not good:
        return None
    most = max(one.rate for one in good)
    fast = [one for one in good if one.rate >= _EQUAL * most]
    least = min(one.pack_bytes for one in fast)
    return next(one for one in fast if one.pack_bytes <= _LIKE * least)


def thrifty(
    predictions: Sequence[Prediction], best: Prediction, sizes: Sequence[str | None], *, now: float | None
) -> Prediction | None:
    """The one to take of those that need at most half the space of `best`; None where it is no faster than now."""
    found = recommended([one for one in predictions if 2 * one.pack_bytes <= best.pack_bytes], sizes)
    return found if found is not None and _EQUAL * found.rate > (now or 0.0) else None


# ---- rates of disk and memory, in bytes per second, all cores

_PROBE_BYTES = 64 << 20
_BLOCK_BYTES = 256 << 10
_ROUNDS = 3
Clock = Callable[[], float]


@dataclass(frozen=True)
class DiskSpeed:
    """A folder's disk. read: in blocks of 256 KiB at random places, cold; None where it could not be made cold."""

    write: float
    read: float | None
    free_bytes: int


@dataclass(frozen=True)
class FileReadSpeed:
    """Files, each read whole. cold: None where the files stayed in memory, or the system does not tell."""

    cold: float | None
    warm: float


def measure_disk(folder: Path, *, threads: int, clock: Clock = time.perf_counter) -> DiskSpeed:
    """By a file of 64 MiB of random bytes that is gone afterwards; raises StorageError."""
    free = free_bytes(folder)
    if free < 2 * _PROBE_BYTES:
        raise StorageError(f"{folder}: {free:,} bytes are free, {2 * _PROBE_BYTES:,} are needed; free some")
    data = np.random.default_rng(0).bytes(_PROBE_BYTES)
    with failing(folder, "write"), tempfile.NamedTemporaryFile(dir=folder, prefix=".packer-advise-") as file:
        begun = clock()
        file.write(data)
        file.flush()
        sync(Path(file.name))
        write = _PROBE_BYTES / _seconds(clock, begun)
        left = drop([Path(file.name)])
        expect_random_reads(file.fileno())
        places = np.random.default_rng(1).permutation(_PROBE_BYTES // _BLOCK_BYTES) * _BLOCK_BYTES
        begun = clock()
        for _ in ordered_map(
            lambda place: os.pread(file.fileno(), _BLOCK_BYTES, place), places.tolist(), threads=threads
        ):
            pass
        read = _PROBE_BYTES / _seconds(clock, begun)
    return DiskSpeed(write, read if left.is_cold else None, free)


def measure_files(files: Sequence[Path], *, threads: int, clock: Clock = time.perf_counter) -> FileReadSpeed:
    """Every file read twice, after it was dropped from the page cache; raises BadInput, StorageError."""
    left = drop(files)
    found = []
    for _ in range(2):
        begun = clock()
        size = sum(ordered_map(lambda path: len(read_file(path)), files, threads=threads))
        found.append(size / _seconds(clock, begun))
    cold, warm = found
    return FileReadSpeed(cold if left.is_cold else None, warm)


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
