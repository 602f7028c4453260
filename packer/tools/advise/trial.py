"""Trial: a few samples of a source packed in several ways and loaded, the way that `packer bench` loads them.

The samples are drawn at random but always the same. Formats that hold the same values differ in nothing but how long
reading them takes: the first one is loaded, and of the others that difference is measured, which shows in a moment what
the noise of loading would hide.
"""

import math
import os
import statistics
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
from packer.errors import BadInput, InvalidRequest
from packer.files.folder_handle import remove
from packer.geometry import Geometry, Resize, View
from packer.images import sniff
from packer.pack.extra_files import choose_extras
from packer.schema import PIXEL_KINDS, USUAL_PIXELS
from packer.sources._extend.source_wrapper import subset
from packer.sources.base import Source
from packer.system.parallel import ordered_map
from packer.tools import bench
from packer.tools.advise.candidates import Candidate
from packer.tools.advise.prediction import Trial, WholeSet
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
    """What all trials have in common. folder: where packs are made and removed again. setting: a Loader's."""

    folder: Path
    setting: LoaderSetting
    geometry: Geometry | None
    clock: Clock = time.perf_counter

    def trials(self, source: Source, group: Sequence[Candidate], *, seconds: float) -> list[Trial]:
        """One codec and size, in each format of the group; takes about so long. Raises what packing raises."""
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
                sample_bytes=summary.bytes_out / summary.samples,
                growth=summary.bytes_out / summaries[0].bytes_in,
                encode_seconds=encode_seconds,
                decode_ms=decode_ms,
                samples=summary.samples,
                skipped=tuple(f"{key}: {reason}" for key, reason in summaries[0].skipped[len(few.left_out) :]),
            )
            for candidate, read_seconds, summary in zip(group, reading, summaries, strict=True)
        ]

    def _encode(self, plan: Plan, most_seconds: float) -> tuple[float, int]:
        """Seconds of a sample, and how many were encoded in the time that there is."""
        begun, done, seconds = self.clock(), 0, 0.0
        encoder, count = encoder_of(plan), len(plan.source)
        for _ in islice(ordered_map(encoder, range(count), threads=self.setting.workers), count):
            done, seconds = done + 1, self.clock() - begun
            if done >= _LEAST_SAMPLES and seconds > most_seconds:
                break
        return seconds / done, done

    def _decode_ms(self, dataset: PackDataset, most_seconds: float) -> float:
        """Of a sample on one core, with its warp: the best of some runs, of one where it takes long."""
        indices = list(range(min(_PROFILED, len(dataset))))
        begun, best = self.clock(), float("inf")
        for _ in range(_PROFILES):
            run = profile(dataset, indices)
            best = min(best, run.of("decode") + run.of("warp"))
            if self.clock() - begun > most_seconds:
                break
        return best

    def _read_seconds(self, dataset: PackDataset) -> float:
        """Of a sample in one thread, every page touched: the best of some runs."""
        sample_decoder, best = dataset.sample_decoder(), float("inf")
        for _ in range(_READINGS):
            begun = self.clock()
            for index in range(len(dataset)):
                with sample_decoder.pack.record(index, sample_decoder.stored, check=False) as record:
                    touch(record)
            best = min(best, self.clock() - begun)
        return best / len(dataset)

    def _pack(self, source: Source, group: Sequence[Candidate]) -> tuple[list[Path], list[ConversionSummary]]:
        """The first format from the source, the others from the first one's pack: their values are the same."""
        packs = [self.folder / candidate.format for candidate in group]
        summaries = [convert_source(source, packs[0], group[0].options)]
        for pack, candidate in zip(packs[1:], group[1:], strict=True):
            options = replace(candidate.options, codecs=(), resize=None)
            summaries.append(convert_source(PackSource(packs[0]), pack, options))
        return packs, summaries

    def rate(self, dataset: Any, *, until: float) -> float:
        """Samples per second: the median of turns, one at least.

        The first pass does not count: it brings the pages into memory and compares the checksums. A turn is so many
        passes in one epoch as make up its length.
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


# ---- the samples that trials take

_SAMPLES = 64
_PIXEL_BYTES = 192 << 20  # of all that are drawn
_LOOKED_AT = 8  # samples whose pictures are looked at
_SIZED = 2000  # samples whose files are asked for their size
_DRAWS = 8  # of a sample
_AS_SHARP = 0.99  # of the pixels of a side
PHOTOS = "RandomResizedCrop(224), RandomHorizontalFlip()"
LABELLED = "RandomRotation(choices=(0, 90, 180, 270)), RandomZoom(0.5, 1), Resize((300, 300))"


@dataclass(frozen=True)
class Loss:
    """share: of the pictures that a geometry makes, those with fewer pixels than from the source. sides: the median of
    these, pixels of a side to those from the source.
    """

    share: float
    sides: float


@dataclass(frozen=True)
class SourceSample:
    """One source, not empty. max_pixels: the most of one picture, None for the usual limit."""

    source: Source
    max_pixels: int | None = None

    @cached_property
    def _order(self) -> list[int]:
        """Rows in an order of chance: each beginning of it is a fair choice."""
        rows: list[int] = np.random.default_rng(0).permutation(len(self.source))[:_SIZED].tolist()
        return rows

    @cached_property
    def whole(self) -> WholeSet:
        """The bytes of all files, judged from at most 2000 samples; raises BadInput for a file that vanished."""
        count = len(self.source)
        known = self.source.provenance()
        if known is not None:
            total = int(known.sizes.sum())
        else:
            total = round(sum(_size(path) for path in self._files(self._order)) / len(self._order) * count)
        carried = choose_extras(self.source, most_bytes=MOST_EXTRAS_BYTES)
        return WholeSet(count, total, sum(carried.sizes.values()))

    @cached_property
    def pictures(self) -> list[str]:
        """Names of the picture fields."""
        return [field.name for field in self.source.schema if field.kind in PIXEL_KINDS]

    @cached_property
    def _shapes(self) -> list[dict[str, tuple[int, int]]]:
        """Height and width of the pictures of a few samples; samples that cannot be read are passed over."""
        found, reason = [], None
        for row in self._order[:_LOOKED_AT]:
            try:
                sample = self.source[row]
                found.append({name: _shape(sample[name], self.max_pixels) for name in self.pictures})
            except BadInput as error:
                reason = error
        if reason is not None and not found:
            raise reason
        return found

    @cached_property
    def few(self) -> Source:
        """The samples that trials take: at most 64, fewer where their pictures are large."""
        fields = (self.source.schema[name] for name in self.pictures)
        kinds = {
            field.name: (3 if field.kind == "image" else 1) * np.dtype(field.pixel_dtype).itemsize for field in fields
        }
        sizes = [sum(kinds[name] * h * w for name, (h, w) in shapes.items()) for shapes in self._shapes]
        most = max(_LEAST_SAMPLES, int(_PIXEL_BYTES / max(1.0, statistics.mean(sizes))))
        return subset(self.source, self._order[: min(_SAMPLES, most)])

    @property
    def files(self) -> list[Path]:
        """Of these samples; none of a pack, whose parts hold others too."""
        return [] if self.source.is_encoded else self._files(self._order[: len(self.few)])

    def usual(self) -> str:
        """A geometry as many use it, as people write it: for sets with labels in px, and for others."""
        kinds = {field.kind for field in self.source.schema}
        return LABELLED if kinds & {"points", "boxes"} else PHOTOS

    def sizes(self, geometry: Geometry, asked: Sequence[str] | None) -> tuple[list[str | None], list[str | None]]:
        """Sizes to try, None for pictures as they are; and of these the ones that may be recommended.

        Unless asked for: twice the shorter side of what the geometry makes, so that a zoom by 2 finds all its pixels,
        and 8/7 of it, which is only tried; each where the pictures are larger. Raises InvalidRequest for no size.
        """
        if asked is not None:
            for size in asked:
                Resize.parse(size)
            return [None, *asked], [None, *asked]
        if not self.pictures:
            raise InvalidRequest(f"{self.source.root}: its samples have no pictures; there is nothing to advise")
        main = [shapes[self.pictures[0]] for shapes in self._shapes]
        made = min(geometry.view(*main[0], [0.5] * geometry.draws).size)
        shorter = statistics.median(min(shape) for shape in main)
        found = [str(size) for size in (2 * made, round(made * 8 / 7)) if size < shorter]
        return [None, *found], [None, *(size for size in found if int(size) >= 2 * made)]

    def loss(self, geometry: Geometry, size: str) -> "Loss":
        """What a size loses of what the geometry shows, over draws of chance for a few of the samples."""
        resize, random = Resize.parse(size), np.random.default_rng(0)
        kept = []
        for shapes in self._shapes:
            height, width = shapes[self.pictures[0]]
            stored = min(1.0, _scale(resize.view(height, width)))
            for _ in range(_DRAWS):
                shown = _scale(geometry.view(height, width, random.random(geometry.draws).tolist()))
                kept.append(min(1.0, stored / min(1.0, shown)))
        blurred = [share for share in kept if share < _AS_SHARP]
        return Loss(len(blurred) / len(kept), statistics.median(blurred) if blurred else 1.0)

    def _files(self, rows: Sequence[int]) -> list[Path]:
        return sorted({path for row in rows for path in self.source.files(row) if path.is_file()})


def _scale(view: View) -> float:
    """Output pixels per pixel of a side."""
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
