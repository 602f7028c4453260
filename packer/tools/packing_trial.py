"""Packing trial: a few samples of a source, packed in several ways and loaded as `packer bench` loads them.

The samples are drawn at random but always the same. Formats that store the same values differ only in how long a read
takes. So the first format is loaded, and only the reads of the others are measured: the noise of loading would hide the
difference.
"""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Subset

from packer.conversion.build_part import encoder_of
from packer.conversion.convert import ConversionSummary, convert_source
from packer.conversion.options import MOST_EXTRAS_BYTES
from packer.conversion.pack_source import PackSource
from packer.conversion.plan import Plan, make_plan
from packer.datasets.pack_dataset import PackDataset
from packer.errors import BadInput, InvalidRequest, StorageError
from packer.files.folder_handle import remove
from packer.files.fsync import sync
from packer.files.page_cache import drop, expect_random_reads
from packer.files.storage_errors import failing, free_bytes
from packer.geometry import Geometry, Resize, View
from packer.images import sniff
from packer.pack.extra_files import choose_extras
from packer.schema import PIXEL_KINDS, USUAL_PIXELS
from packer.sources._extend.source_wrapper import subset
from packer.sources.base import Source, file_paths, read_file
from packer.system.parallel import ordered_map
from packer.tools import bench
from packer.tools.packing_candidates import Candidate, DiskSpeed, FileReadSpeed, Trial, WholeSet
from packer.tools.profile import profile, touch
from packer.tools.workload import LoaderSetting

_LEAST_SAMPLES = 4
_PROFILED, _PROFILES = 4, 5  # samples, runs
_PROFILE_SHARE = 0.05
_READINGS = 5
_PACKING_SHARE = 0.2  # of a group's time that encoding may take at first
_TURNS = 9  # about: medians of many short ones bear an interruption
_MOST_TURNS = 25
_TURN_S = (0.05, 0.5)
Clock = Callable[[], float]


@dataclass(frozen=True)
class TrialRunner:
    """Runs trials. folder: packs are made and removed there. setting: of a Loader with all cores."""

    folder: Path
    setting: LoaderSetting
    geometry: Geometry | None
    clock: Clock = time.perf_counter

    def trials(self, source: Source, group: Sequence[Candidate], *, seconds: float) -> list[Trial]:
        """Try one codec and size in each format of the group, in about `seconds`; raises as packing does."""
        until = self.clock() + seconds
        encode_seconds, count = self._encode(make_plan(source, group[0].options), _PACKING_SHARE * seconds)
        few = subset(source, range(count)) if count < len(source) else source
        packs, summaries = self._pack(few, group)
        try:
            datasets = [PackDataset(pack, geometry=self.geometry) for pack in packs]
            decode_ms = self._decode_ms(datasets[0], _PROFILE_SHARE * seconds)
            reading = [self._read_seconds(dataset) for dataset in datasets]
            rate = self.rate(datasets[0], until=until)
        finally:
            for pack in packs:
                remove(pack)
        return [
            Trial(
                candidate=candidate,
                rate=1 / (1 / rate + (read_seconds - reading[0]) / self.setting.workers),
                growth=summary.bytes_out / summaries[0].bytes_in,
                encode_seconds=encode_seconds,
                decode_ms=decode_ms,
                samples=summary.samples,
                skipped=tuple(f"{key}: {reason}" for key, reason in summaries[0].skipped[len(few.left_out) :]),
            )
            for candidate, read_seconds, summary in zip(group, reading, summaries, strict=True)
        ]

    def _encode(self, plan: Plan, most_seconds: float) -> tuple[float, int]:
        """Return the seconds of a sample, and how many samples were encoded in the time."""
        begun, done, seconds = self.clock(), 0, 0.0
        encoder, count = encoder_of(plan), len(plan.source)
        for _ in islice(ordered_map(encoder, range(count), threads=self.setting.workers), count):
            done, seconds = done + 1, self.clock() - begun
            if done >= _LEAST_SAMPLES and seconds > most_seconds:
                break
        return seconds / done, done

    def _decode_ms(self, dataset: PackDataset, most_seconds: float) -> float:
        """Return the time of a sample on one core, with its warp: the best of several runs."""
        indices = list(range(min(_PROFILED, len(dataset))))
        begun, best = self.clock(), float("inf")
        for _ in range(_PROFILES):
            run = profile(dataset, indices)
            best = min(best, run.of("decode") + run.of("warp"))
            if self.clock() - begun > most_seconds:
                break
        return best

    def _read_seconds(self, dataset: PackDataset) -> float:
        """Return the seconds that one thread reads a sample, every page touched: the best of several runs."""
        sample_decoder, best = dataset.sample_decoder(), float("inf")
        for _ in range(_READINGS):
            begun = self.clock()
            for index in range(len(dataset)):
                with sample_decoder.pack.record(index, sample_decoder.stored, check=False) as record:
                    touch(record)
            best = min(best, self.clock() - begun)
        return best / len(dataset)

    def _pack(self, source: Source, group: Sequence[Candidate]) -> tuple[list[Path], list[ConversionSummary]]:
        """Pack the first format from the source, and the others, whose values are the same, from its pack."""
        packs = [self.folder / candidate.format for candidate in group]
        summaries = [convert_source(source, packs[0], group[0].options)]
        for pack, candidate in zip(packs[1:], group[1:], strict=True):
            options = replace(candidate.options, codecs=(), resize=None)
            summaries.append(convert_source(PackSource(packs[0]), pack, options))
        return packs, summaries

    def rate(self, dataset: Any, *, until: float) -> float:
        """Return the samples per second: the median of at least one turn of several passes in one epoch.

        The first pass does not count: it brings the pages into memory and compares the checksums.
        """
        begun = self.clock()
        bench.epochs(self.setting.make(dataset), 1, len(dataset))
        now = self.clock()
        wanted = min(max((until - now) / _TURNS, _TURN_S[0]), _TURN_S[1])
        passes = max(1, round(wanted / max(now - begun, 1e-6)))
        repeated = Subset(dataset, list(range(len(dataset))) * passes)
        loader, rates = self.setting.make(repeated), list[float]()
        while not rates or (len(rates) < _MOST_TURNS and self.clock() < until):
            rates.append(len(repeated) / bench.epochs(loader, 1, len(repeated))["seconds"])
        return statistics.median(rates)


# ---- the samples of trials

_SAMPLES = 64
_PIXEL_BYTES = 192 << 20  # of all that are drawn
_LOOKED_AT = 8  # samples whose images are looked at
_SIZED = 2000  # samples whose files are asked for their size
_DRAWS = 8  # of a sample
_AS_SHARP = 0.99  # of the pixels of a side
PHOTOS = "RandomResizedCrop(224), RandomHorizontalFlip()"
LABELLED = "RandomRotation(choices=(0, 90, 180, 270)), RandomZoom(0.5, 1), Resize((300, 300))"


@dataclass(frozen=True)
class Loss:
    """Pixels that a smaller size loses of the images that a geometry makes.

    share: of these images, those with fewer pixels than from the source. sides: of those, the median of a side's
    pixels by those from the source.
    """

    share: float
    sides: float


@dataclass(frozen=True)
class SourceSample:
    """A source that is not empty. max_pixels: the most of one image, None for the default limit."""

    source: Source
    max_pixels: int | None = None

    @cached_property
    def _order(self) -> list[int]:
        """Rows in random order."""
        rows: list[int] = np.random.default_rng(0).permutation(len(self.source))[:_SIZED].tolist()
        return rows

    @cached_property
    def whole(self) -> WholeSet:
        """Size of the complete set, estimated from at most 2000 samples; raises BadInput for a file that vanished."""
        count = len(self.source)
        known = self.source.provenance()
        if known is not None:
            total = int(known.sizes.sum())
        else:
            total = round(sum(_size(path) for path in self._files(self._order)) / len(self._order) * count)
        carried = choose_extras(self.source, most_bytes=MOST_EXTRAS_BYTES)
        return WholeSet(count, total, sum(carried.sizes.values()))

    @cached_property
    def images(self) -> list[str]:
        """Names of the image fields."""
        return [field.name for field in self.source.schema if field.kind in PIXEL_KINDS]

    @cached_property
    def _shapes(self) -> list[dict[str, tuple[int, int]]]:
        """Height and width of the images of a few samples, without those that cannot be read."""
        found, reason = [], None
        for row in self._order[:_LOOKED_AT]:
            try:
                sample = self.source[row]
                found.append({name: _shape(sample[name], self.max_pixels) for name in self.images})
            except BadInput as error:
                reason = error
        if reason is not None and not found:
            raise reason
        return found

    @cached_property
    def few(self) -> Source:
        """The samples of trials: at most 64, fewer if their images are large."""
        fields = (self.source.schema[name] for name in self.images)
        kinds = {
            field.name: (3 if field.kind == "image" else 1) * np.dtype(field.pixel_dtype).itemsize for field in fields
        }
        sizes = [sum(kinds[name] * h * w for name, (h, w) in shapes.items()) for shapes in self._shapes]
        most = max(_LEAST_SAMPLES, int(_PIXEL_BYTES / max(1.0, statistics.mean(sizes))))
        return subset(self.source, self._order[: min(_SAMPLES, most)])

    @property
    def files(self) -> list[Path]:
        """Files of these samples; none for a pack, whose parts contain others too."""
        return [] if self.source.is_encoded else self._files(self._order[: len(self.few)])

    def usual(self) -> str:
        """Return a common geometry, as text: one for sets with labels in px, one for others."""
        kinds = {field.kind for field in self.source.schema}
        return LABELLED if kinds & {"points", "boxes"} else PHOTOS

    def sizes(self, geometry: Geometry, asked: Sequence[str] | None) -> tuple[list[str | None], list[str | None]]:
        """Return the sizes to try, None to keep the sizes, and those of them that may be recommended.

        By default, for larger images: twice the shorter side of the geometry's output, so that a zoom by 2 finds all
        its pixels, and 8/7 of it, which is only tried. Raises InvalidRequest for a text that is not a size.
        """
        if asked is not None:
            for size in asked:
                Resize.parse(size)
            return [None, *asked], [None, *asked]
        if not self.images:
            raise InvalidRequest(f"{self.source.root}: its samples have no images; there is nothing to advise")
        main = [shapes[self.images[0]] for shapes in self._shapes]
        made = min(geometry.view(*main[0], [0.5] * geometry.draws).size)
        shorter = statistics.median(min(shape) for shape in main)
        found = [str(size) for size in (2 * made, round(made * 8 / 7)) if size < shorter]
        return [None, *found], [None, *(size for size in found if int(size) >= 2 * made)]

    def loss(self, geometry: Geometry, size: str) -> Loss:
        """Return the loss of a size, over random draws of the geometry for a few samples."""
        resize, random = Resize.parse(size), np.random.default_rng(0)
        kept = []
        for shapes in self._shapes:
            height, width = shapes[self.images[0]]
            stored = min(1.0, _scale(resize.view(height, width)))
            for _ in range(_DRAWS):
                shown = _scale(geometry.view(height, width, random.random(geometry.draws).tolist()))
                kept.append(min(1.0, stored / min(1.0, shown)))
        blurred = [share for share in kept if share < _AS_SHARP]
        return Loss(len(blurred) / len(kept), statistics.median(blurred) if blurred else 1.0)

    def _files(self, rows: Sequence[int]) -> list[Path]:
        return sorted({path for row in rows for path in file_paths(self.source, row) if path.is_file()})


def _scale(view: View) -> float:
    """Return the output pixels per input pixel of a side."""
    return math.sqrt(abs(float(np.linalg.det(np.asarray(view.array)[:, :2]))))


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise BadInput(f"{path}: cannot read: {error.strerror}; the folder changed, run again") from error


def _shape(value: object, max_pixels: int | None) -> tuple[int, int]:
    if isinstance(value, bytes):
        header = sniff(value, USUAL_PIXELS if max_pixels is None else max_pixels)
        return header.height, header.width
    shape = np.asarray(value).shape
    return int(shape[0]), int(shape[1])


# ---- speeds of disk and memory, in bytes per second, with all cores

_PROBE_BYTES = 64 << 20
_BLOCK_BYTES = 256 << 10
_ROUNDS = 3


def measure_disk(folder: Path, *, threads: int, clock: Clock = time.perf_counter) -> DiskSpeed:
    """Measure with a temporary file of 64 MiB of random bytes; raises StorageError."""
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
    """Read every file twice, after it was dropped from the page cache; raises BadInput, StorageError."""
    left = drop(files)
    found = []
    for _ in range(2):
        begun = clock()
        size = sum(ordered_map(lambda path: len(read_file(path)), files, threads=threads))
        found.append(size / _seconds(clock, begun))
    cold, warm = found
    return FileReadSpeed(cold if left.is_cold else None, warm)


def measure_copying(*, clock: Clock = time.perf_counter) -> float:
    """Return the bytes per second that one core copies in memory, outside its caches."""
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
