"""Packing trial: a few samples of a source, packed as several candidates and loaded as in `packer bench`.

A fixed seed selects the samples. Two formats that store the same values differ only in the time to read them, which is
smaller than the noise of loading. The trial therefore loads only the first format, and only reads the others.
"""

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
from packer.geometry import Geometry, Resize
from packer.images import sniff
from packer.pack.derived_pack import FolderRecipe
from packer.pack.extra_files import choose_extras
from packer.schema import PIXEL_KINDS, USUAL_PIXELS
from packer.sources._extend.source_wrapper import subset
from packer.sources.base import Source, file_paths, read_file
from packer.system.parallel import ordered_map
from packer.tools import bench
from packer.tools.measured_workload import LoaderSetting
from packer.tools.packing_candidates import Candidate, Speeds, Trial, WholeSet
from packer.tools.profile import touch

_LEAST_SAMPLES = 4
_READINGS = 5
_PACKING_SHARE = 0.2  # share of a group's time for the measurement of encoding
_TURNS = 9  # approximate number of timed runs; the median of many short runs ignores an interruption
_MOST_TURNS = 25
_TURN_S = (0.05, 0.5)


@dataclass(frozen=True)
class TrialRunner:
    """Runner of packing trials.

    Attributes:
        folder: Folder for temporary packs. Each trial removes its packs.
        setting: Loader setting of all trials.
        geometry: Geometry of loaded samples, None to load complete images.
    """

    folder: Path
    setting: LoaderSetting
    geometry: Geometry | None

    def trials(self, source: Source, group: Sequence[Candidate], *, seconds: float) -> list[Trial]:
        """Pack and load a few samples as each candidate of a group, in about `seconds`. Return a trial per candidate.

        Raises:
            BadInput: The samples cannot be packed.
            InvalidRequest: The options do not fit the source.
        """
        until = time.perf_counter() + seconds
        encode_seconds, count = self._encode(make_plan(source, group[0].options), _PACKING_SHARE * seconds)
        few = subset(source, range(count)) if count < len(source) else source
        packs, summaries = self._pack(few, group)
        try:
            datasets = [PackDataset(pack, geometry=self.geometry) for pack in packs]
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
                samples=summary.samples,
                skipped=tuple(f"{key}: {reason}" for key, reason in summaries[0].skipped[len(few.left_out) :]),
            )
            for candidate, read_seconds, summary in zip(group, reading, summaries, strict=True)
        ]

    def _encode(self, plan: Plan, most_seconds: float) -> tuple[float, int]:
        """Encode samples for about `most_seconds`. Return (wall seconds per sample, number of encoded samples)."""
        begun, done, seconds = time.perf_counter(), 0, 0.0
        encoder, count = encoder_of(plan), len(plan.source)
        for _ in islice(ordered_map(encoder, range(count), threads=self.setting.workers), count):
            done, seconds = done + 1, time.perf_counter() - begun
            if done >= _LEAST_SAMPLES and seconds > most_seconds:
                break
        return seconds / done, done

    def _read_seconds(self, dataset: PackDataset) -> float:
        """Return the seconds per sample that one thread needs to read all values, in the best of several runs."""
        sample_decoder, best = dataset.sample_decoder(), float("inf")
        for _ in range(_READINGS):
            begun = time.perf_counter()
            for index in range(len(dataset)):
                with sample_decoder.pack.record(index, sample_decoder.stored, check=False) as record:
                    touch(record)
            best = min(best, time.perf_counter() - begun)
        return best / len(dataset)

    def _pack(self, source: Source, group: Sequence[Candidate]) -> tuple[list[Path], list[ConversionSummary]]:
        """Pack the source as the first candidate, and convert this pack to the formats of the other candidates."""
        packs = [self.folder / candidate.format for candidate in group]
        summaries = [convert_source(source, packs[0], group[0].options)]
        for pack, candidate in zip(packs[1:], group[1:], strict=True):
            options = replace(candidate.options, codecs=(), resize=None)
            summaries.append(convert_source(PackSource(FolderRecipe(packs[0])), pack, options))
        return packs, summaries

    def rate(self, dataset: Any, *, until: float) -> float:
        """Return the median samples per second of the runs that start before `until` (time.perf_counter), at least one.

        A first pass over the data is not timed, because it reads the files into memory and compares checksums.
        """
        begun = time.perf_counter()
        bench.epochs(self.setting.make(dataset), 1, len(dataset))
        now = time.perf_counter()
        wanted = min(max((until - now) / _TURNS, _TURN_S[0]), _TURN_S[1])
        passes = max(1, round(wanted / max(now - begun, 1e-6)))
        repeated = Subset(dataset, list(range(len(dataset))) * passes)
        loader, rates = self.setting.make(repeated), list[float]()
        while not rates or (len(rates) < _MOST_TURNS and time.perf_counter() < until):
            rates.append(len(repeated) / bench.epochs(loader, 1, len(repeated))["seconds"])
        return statistics.median(rates)


# ---- the samples of trials

_SAMPLES = 64
_PIXEL_BYTES = 192 << 20  # limit of the decoded bytes of all samples of a trial

_MEASURED = 8  # number of samples whose image sizes are read

_SIZED = 2000  # number of samples whose file sizes are read

_SIZE_FACTOR = 8 / 7  # stored size per shorter side of a geometry's output: 256 for crops of 224
PHOTOS = "RandomResizedCrop(224), RandomHorizontalFlip()"
GRASPS = "RandomRotation(choices=(0, 90, 180, 270)), RandomZoom(0.5, 1), Resize((300, 300))"


@dataclass(frozen=True)
class SourceSample:
    """Random samples of a source. `max_pixels` is the most pixels of an image, None for the default limit."""

    source: Source
    max_pixels: int | None = None

    @cached_property
    def _order(self) -> list[int]:
        """Rows of the source in a fixed random order, at most 2000."""
        rows: list[int] = np.random.default_rng(0).permutation(len(self.source))[:_SIZED].tolist()
        return rows

    @cached_property
    def whole(self) -> WholeSet:
        """Size of the complete source, estimated from at most 2000 samples. Raises BadInput if a file was removed."""
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
        """Names of the image, depth and mask fields."""
        return [field.name for field in self.source.schema if field.kind in PIXEL_KINDS]

    @cached_property
    def _shapes(self) -> list[dict[str, tuple[int, int]]]:
        """(height, width) of each image field, one dict per readable sample. Only the first few samples are read."""
        found, reason = [], None
        for row in self._order[:_MEASURED]:
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
        """A source with the samples for trials: at most 64, fewer if the images are large."""
        fields = (self.source.schema[name] for name in self.images)
        kinds = {
            field.name: (3 if field.kind == "image" else 1) * np.dtype(field.pixel_dtype).itemsize for field in fields
        }
        sizes = [sum(kinds[name] * h * w for name, (h, w) in shapes.items()) for shapes in self._shapes]
        most = max(_LEAST_SAMPLES, int(_PIXEL_BYTES / max(1.0, statistics.mean(sizes))))
        return subset(self.source, self._order[: min(_SAMPLES, most)])

    @property
    def files(self) -> list[Path]:
        """Files of the samples of `few`. Empty for a pack, because each part also contains other samples."""
        return [] if self.source.is_encoded else self._files(self._order[: len(self.few)])

    @property
    def has_grasps(self) -> bool:
        """True if samples contain grasps."""
        return bool({"grasps", "grasp_rows"} & set(self.source.schema.names))

    def usual(self) -> str:
        """Return a common geometry as text: the constant GRASPS for samples with grasps, otherwise PHOTOS."""
        return GRASPS if self.has_grasps else PHOTOS

    def sizes(self, geometry: Geometry, given: Sequence[str] | None) -> list[str | None]:
        """Return the image sizes to try. The first element, None, keeps the original sizes.

        `given` contains the sizes of the user. If it is None and the images are larger, 8/7 of the shorter side of the
        geometry's output is tried. Raises InvalidRequest if a text is not a size.
        """
        if given is not None:
            for size in given:
                Resize.parse(size)
            return [None, *given]
        if not self.images:
            raise InvalidRequest(f"{self.source.root}: its samples have no images; there is nothing to advise")
        main = [shapes[self.images[0]] for shapes in self._shapes]
        wanted = round(_SIZE_FACTOR * min(geometry.view(*main[0], [0.5] * geometry.draws).size))
        return [None, str(wanted)] if wanted < statistics.median(map(min, main)) else [None]

    def _files(self, rows: Sequence[int]) -> list[Path]:
        return sorted({path for row in rows for path in file_paths(self.source, row) if path.is_file()})


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


# ---- speeds of the disk and of the source, with all cores

_PROBE_BYTES = 64 << 20
_BLOCK_BYTES = 256 << 10
Clock = Callable[[], float]


def measure(
    folder: Path, files: Sequence[Path], *, memory_bytes: int, threads: int, clock: Clock = time.perf_counter
) -> Speeds:
    """Measure the disk of a folder with a temporary file of 64 MiB, and the speed of reading the source `files`.

    `memory_bytes` is the memory that the page cache may use. It is copied to the result.

    Raises:
        StorageError: The disk is full, or writing fails.
        BadInput: A file of the source cannot be read.
    """
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
        offsets = np.random.default_rng(1).permutation(_PROBE_BYTES // _BLOCK_BYTES) * _BLOCK_BYTES
        begun = clock()
        for _ in ordered_map(
            lambda offset: os.pread(file.fileno(), _BLOCK_BYTES, offset), offsets.tolist(), threads=threads
        ):
            pass
        read = _PROBE_BYTES / _seconds(clock, begun)
    source = _measure_files(files, threads=threads, clock=clock) if files else None
    return Speeds(write, read if left.is_cold else None, free, memory_bytes, source)


def _measure_files(files: Sequence[Path], *, threads: int, clock: Clock) -> float | None:
    """Return the bytes per second of reading the files from disk, None if the page cache may contain the files."""
    left = drop(files)
    begun = clock()
    size = sum(ordered_map(lambda path: len(read_file(path)), files, threads=threads))
    return size / _seconds(clock, begun) if left.is_cold else None


def _seconds(clock: Clock, begun: float) -> float:
    return max(clock() - begun, 1e-9)
