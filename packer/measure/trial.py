"""Trials: a few samples packed in several ways and loaded, the way that `packer bench` loads them.

Formats that hold the same values differ in nothing but how long reading them takes: the first one is loaded, and of the
others that difference is measured, which shows in a moment what the noise of loading would hide.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from torch.utils.data import Subset

from packer.conversion.copying import encoder_of
from packer.conversion.plan import Plan, make_plan
from packer.conversion.repacking import PackSource
from packer.conversion.run import Summary, convert
from packer.conversion.subset import subset
from packer.datasets import PackDataset
from packer.geometry import Geometry
from packer.measure import bench
from packer.measure.candidates import Candidate
from packer.measure.prediction import Trial
from packer.measure.profile import profile, touch
from packer.measure.setting import Setting
from packer.pack.storage import remove
from packer.parallel import ordered_map
from packer.sources.base import Source

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
class Rehearsal:
    """What all trials have in common. folder: where packs are made and removed again. setting: a Loader's."""

    folder: Path
    setting: Setting
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
        reader, best = dataset.reader(), float("inf")
        for _ in range(_READINGS):
            begun = self.clock()
            for index in range(len(dataset)):
                with reader.pack.record(index, reader.stored, check=False) as record:
                    touch(record)
            best = min(best, self.clock() - begun)
        return best / len(dataset)

    def _pack(self, source: Source, group: Sequence[Candidate]) -> tuple[list[Path], list[Summary]]:
        """The first format from the source, the others from the first one's pack: their values are the same."""
        packs = [self.folder / candidate.format for candidate in group]
        summaries = [convert(source, packs[0], group[0].options)]
        for pack, candidate in zip(packs[1:], group[1:], strict=True):
            options = replace(candidate.options, codecs=(), resize=None)
            summaries.append(convert(PackSource(packs[0]), pack, options))
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
