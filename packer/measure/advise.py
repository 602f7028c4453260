"""Advise: which way to pack a source, judged by trials with a few of its samples on this machine."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packer.conversion.sourcing import Request, link_options
from packer.errors import BadInput, PackerError, Refused, StorageFailed
from packer.geometry.parsing import parse
from packer.machine import Limit, Machine
from packer.measure.candidates import Candidate, candidates
from packer.measure.disk import Disk, Reading, measure_copying, measure_disk, measure_files
from packer.measure.prediction import Prediction, Rates, Trial, Whole, predict, recommended, thrifty
from packer.measure.sampling import Sampling
from packer.measure.setting import OURS, Setting, Subject
from packer.measure.trial import Rehearsal
from packer.parallel import usable_cores
from packer.sources.base import Source
from packer.staging import room

_SHARE_OF_TRIALS = 0.8  # of the time; the rest is for starting, and for what takes longer than planned
_SHARE_OF_NOW = 0.05  # of the time, for the source as it is
_LEAST_S = 0.3  # of time, for which a group is still tried
_ROOM_BYTES = 2 << 30  # more than the packs of a group take
Say = Callable[[str], object]


@dataclass(frozen=True)
class Question:
    """geometry: as people write it, None for a usual one. sizes: as --resize takes them, None for some that fit.

    follow_links, max_pixels: as of `packer convert`.
    """

    path: Path
    geometry: str | None = None
    sizes: tuple[str, ...] | None = None
    batch_size: int = 32
    seconds: float = 30.0
    follow_links: bool = False
    max_pixels: int | None = None


@dataclass(frozen=True)
class Advice:
    """now: samples/s of the source as it is through a Loader, None where it cannot be loaded so.

    reading: of the source's files, None of a pack. copying: bytes/s in memory. shared: shared memory.
    target: where the pack may go. best: None where nothing fits. left_out: what was not tried, with the reason.
    sizes: those that keep what a zoom shows. has_grasps: whether a preset of convert is for it.
    """

    question: Question
    geometry: str
    whole: Whole
    pictures: int
    now: float | None
    reading: Reading | None
    copying: float
    shared: Limit | None
    disk: Disk
    rates: Rates
    target: Path
    predictions: Sequence[Prediction]
    best: Prediction | None
    thrifty: Prediction | None
    left_out: Sequence[str] = field(default=())
    sizes: Sequence[str | None] = field(default=(None,))
    has_grasps: bool = False

    def line(self, one: Prediction) -> str:
        """The command that packs so."""
        return one.candidate.line(self.question.path, self.target, follow_links=self.question.follow_links)


def advise(question: Question, *, say: Say, machine: Machine | None = None) -> Advice:
    """Measure this machine and try things out; takes about question.seconds.

    Raises Refused for a folder that is no set and for geometries and sizes that there are not, BadInput where no sample
    can be read, StorageFailed without room for the trials.
    """
    end = time.perf_counter() + question.seconds * _SHARE_OF_TRIALS
    source, found = _opened(question)
    if not len(source):
        raise BadInput(f"{question.path}: no samples to pack; packer convert --dry-run shows what was found")
    if source.unread:
        raise BadInput(
            f"{question.path}: {source.unread_message}; or leave them out with packer convert --on-error skip, and "
            "take advice on that pack"
        )
    say(f"{question.path}: {found}; measuring the disk")
    machine, sampling, cores = machine or Machine(), Sampling(source, question.max_pixels), usable_cores()
    text = question.geometry or sampling.usual()
    geometry = parse(text)
    sizes, good = sampling.sizes(geometry, question.sizes)
    target = free_target(question.path)
    reading = measure_files(sampling.files, threads=cores) if sampling.files else None
    disk = measure_disk(target.absolute().parent, threads=cores)
    memory = room.free_memory(None, machine)
    rates = Rates(reading.cold if reading else None, disk.read, disk.write, memory, disk.free_bytes)
    with _scratch(machine) as folder:
        rehearsal = Rehearsal(folder, Setting(OURS, cores, question.batch_size), geometry)
        run = _Run(sampling, rehearsal, end, say)
        now = run.now(question, question.seconds * _SHARE_OF_NOW)
        predictions = [
            predict(trial, sampling.whole, rates)
            for trial in run.trials(candidates(sampling.few, sizes, good, max_pixels=question.max_pixels))
        ]
    best = recommended(predictions, good)
    return Advice(
        question=question,
        geometry=text,
        whole=sampling.whole,
        pictures=len(sampling.pictures),
        now=now,
        reading=reading,
        copying=measure_copying(),
        shared=room.space(machine.shared_memory) if machine.shared_memory.is_dir() else None,
        disk=disk,
        rates=rates,
        target=target,
        predictions=predictions,
        best=best,
        thrifty=thrifty(predictions, best, good, now=now) if best else None,
        left_out=run.left_out,
        sizes=good,
        has_grasps=bool({"grasps", "grasp_rows"} & set(source.schema.names)),
    )


def _opened(question: Question) -> tuple[Source, str]:
    """The source, refused as `packer convert` refuses it, since the line that is recommended has to work."""
    try:
        return Request(options=link_options(question.follow_links)).open(question.path)
    except (Refused, BadInput) as error:
        more = (
            "" if not question.path.is_dir() else "; or pack it with such options, and ask packer advise about the pack"
        )
        raise type(error)(f"{error.message}{more}") from error


class _Run:
    """Everything that is tried, one after the other."""

    def __init__(self, sampling: Sampling, rehearsal: Rehearsal, end: float, say: Say) -> None:
        self.left_out: list[str] = []
        self._sampling = sampling
        self._rehearsal = rehearsal
        self._end = end
        self._say = say

    def now(self, question: Question, seconds: float) -> float | None:
        """Samples/s of the source as it is."""
        self._say("loading it as it is")
        try:
            how: dict[str, Any] = {"samples": len(self._sampling.few), "follow_links": question.follow_links}
            how["max_pixels"] = question.max_pixels
            subject = Subject(question.path, geometry=self._rehearsal.geometry, **how)
            return self._rehearsal.rate(subject.open(), until=time.perf_counter() + seconds)
        except PackerError as error:
            self.left_out.append(f"the source as it is: {error}")
            return None

    def trials(self, groups: Sequence[Sequence[Candidate]]) -> Iterator[Trial]:
        """The groups share the time that is left; what cannot be packed or has no time is left out."""
        for number, group in enumerate(groups):
            seconds = (self._end - time.perf_counter()) / (len(groups) - number)
            name = f"{group[0].codec}, {group[0].size or 'as it is'}"
            if number and seconds < _LEAST_S:
                self.left_out.append(f"{name}: no time left; --seconds gives more")
                continue
            self._say(f"trying {name}")
            try:
                yield from self._rehearsal.trials(self._sampling.few, group, seconds=seconds)
            except (BadInput, Refused) as error:
                self.left_out.append(f"{name}: {error}")


def free_target(source: Path) -> Path:
    """A name for the pack that is not taken: in the current folder, or beside the source where that lies inside it."""
    plain = source.resolve()
    parent = plain.parent if plain in (Path.cwd(), *Path.cwd().parents) else Path()
    name = plain.name.removesuffix(".pack")
    names = (f"{name}{number}.pack" for number in ("", *(f"-{count}" for count in range(2, 10_000))))
    return next(parent / name for name in names if not os.path.lexists(parent / name))


@contextmanager
def _scratch(machine: Machine) -> Iterator[Path]:
    """A folder for trials, gone afterwards: in shared memory where there is room, else where temporary files are."""
    base: Path | None = machine.shared_memory
    try:
        room.check(machine.shared_memory, room.Need(_ROOM_BYTES, 0), None, machine)
    except StorageFailed:
        base = None
    with tempfile.TemporaryDirectory(prefix="packer-advise-", dir=base) as folder:
        yield Path(folder)
