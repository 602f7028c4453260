"""Recommendation: which way to pack a source, judged by trials with a few of its samples, and the report of it."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packer.conversion.source_spec import SourceSpec, parameters
from packer.errors import BadInput, InvalidRequest, PackerError, StorageError
from packer.files.terminal_output import shell_word
from packer.geometry.parsing import parse
from packer.sources.base import Source
from packer.staging import capacity
from packer.system.machine_limits import Limit, Machine
from packer.system.parallel import usable_cores
from packer.tools.advise.candidates import Candidate, candidates
from packer.tools.advise.prediction import (
    DiskSpeed,
    FileReadSpeed,
    Prediction,
    Rates,
    Trial,
    WholeSet,
    measure_copying,
    measure_disk,
    measure_files,
    predict,
    recommended,
    thrifty,
)
from packer.tools.advise.trial import Loss, SourceSample, TrialRunner
from packer.tools.report import ToolReport, cores_text, table
from packer.tools.workload import OURS, LoaderSetting, Subject

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
    sizes: those that keep what a zoom shows. losses: of the others, what they lose. has_grasps: whether a preset of
    convert is for it.
    """

    question: Question
    geometry: str
    whole: WholeSet
    pictures: int
    now: float | None
    reading: FileReadSpeed | None
    copying: float
    shared: Limit | None
    disk: DiskSpeed
    rates: Rates
    target: Path
    predictions: Sequence[Prediction]
    best: Prediction | None
    thrifty: Prediction | None
    left_out: Sequence[str] = field(default=())
    sizes: Sequence[str | None] = field(default=(None,))
    losses: Mapping[str, Loss] = field(default_factory=dict)
    has_grasps: bool = False

    def line(self, one: Prediction) -> str:
        """The command that packs so."""
        return one.candidate.line(self.question.path, self.target, follow_links=self.question.follow_links)


def advise(question: Question, *, say: Say, machine: Machine | None = None) -> Advice:
    """Measure this machine and try things out; takes about question.seconds.

    Raises InvalidRequest for a folder that is no set and for geometries and sizes that there are not, BadInput where
    no sample can be read, StorageError without room for the trials.
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
    machine, sampling, cores = machine or Machine(), SourceSample(source, question.max_pixels), usable_cores()
    text = question.geometry or sampling.usual()
    geometry = parse(text)
    sizes, good = sampling.sizes(geometry, question.sizes)
    target = free_target(question.path)
    reading = measure_files(sampling.files, threads=cores) if sampling.files else None
    disk = measure_disk(target.absolute().parent, threads=cores)
    memory = capacity.free_memory(None, machine)
    rates = Rates(reading.cold if reading else None, disk.read, disk.write, memory, disk.free_bytes)
    with _scratch(machine) as folder:
        rehearsal = TrialRunner(folder, LoaderSetting(OURS, cores, question.batch_size), geometry)
        run = _Trials(sampling, rehearsal, end, say)
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
        shared=capacity.space(machine.shared_memory) if machine.shared_memory.is_dir() else None,
        disk=disk,
        rates=rates,
        target=target,
        predictions=predictions,
        best=best,
        thrifty=thrifty(predictions, best, good, now=now) if best else None,
        left_out=run.left_out,
        sizes=good,
        losses={size: sampling.loss(geometry, size) for size in sizes if size is not None and size not in good},
        has_grasps=bool({"grasps", "grasp_rows"} & set(source.schema.names)),
    )


def _opened(question: Question) -> tuple[Source, str]:
    """The source, refused as `packer convert` refuses it, since the line that is recommended has to work."""
    try:
        return SourceSpec(options=parameters({"follow_links": question.follow_links})).open(question.path)
    except (InvalidRequest, BadInput) as error:
        more = (
            "" if not question.path.is_dir() else "; or pack it with such options, and ask packer advise about the pack"
        )
        raise type(error)(f"{error.message}{more}") from error


class _Trials:
    """Everything that is tried, one after the other."""

    def __init__(self, sampling: SourceSample, rehearsal: TrialRunner, end: float, say: Say) -> None:
        self.left_out: list[str] = []
        self._sampling = sampling
        self._rehearsal = rehearsal
        self._end = end
        self._say = say

    def now(self, question: Question, seconds: float) -> float | None:
        """Samples/s of the source as it is."""
        self._say("loading it as it is")
        try:
            subject = Subject(
                question.path,
                geometry=self._rehearsal.geometry,
                samples=len(self._sampling.few),
                follow_links=question.follow_links,
                max_pixels=question.max_pixels,
            )
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
            except (BadInput, InvalidRequest) as error:
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
        capacity.check(machine.shared_memory, capacity.SpaceNeeded(_ROOM_BYTES, 0), None, machine)
    except StorageError:
        base = None
    with tempfile.TemporaryDirectory(prefix="packer-advise-", dir=base) as folder:
        yield Path(folder)


# ---- the report: the machine, a table of predictions, what to do and why, JSON

_WORTH = 1.1  # times the source as it is
_HEAD_LAST = ("first epoch", "decode ms", "GB", "convert", "in memory")


def report(advice: Advice) -> ToolReport:
    """Return the report of `advise`."""
    return ToolReport(text(advice), document(advice))


def text(advice: Advice) -> list[str]:
    """Lines for the terminal."""
    unit = "images/s" if advice.pictures == 1 else "samples/s"
    head = ("", "codec", "size", unit, *_HEAD_LAST)
    now = ("source", "", "as it is", _rate(advice.now), "", "", f"{advice.whole.bytes / 1e9:.3f}", "", "")
    rows = [now, *(_row(one, marked=one is advice.best) for one in advice.predictions)]
    about = [*_machine(advice), _set(advice), ""]
    return [*about, *table(head, rows), "", *_notes(advice), *verdict(advice, unit)]


def _row(one: Prediction, *, marked: bool) -> tuple[str, ...]:
    how = one.candidate
    return (
        how.format,
        how.codec + "*" * how.loses,
        how.size or "as it is",
        _rate(one.rate),
        _rate(one.first_rate),
        f"{one.trial.decode_ms:.2f}",
        f"{one.pack_bytes / 1e9:.3f}",
        _duration(one.convert_seconds),
        ("yes" if one.fits_memory else "no") + (" <-" if marked else "   "),
    )


def _rate(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 99.5 else f"{seconds / 60:.0f} min"


def _machine(advice: Advice) -> Iterator[str]:
    shared = advice.shared
    shm = f"{shared.free_bytes / 1e9:.1f} GB free in {shared.name}" if shared else "no shared memory"
    memory = f"{advice.rates.memory_bytes / 1e9:.1f} GB of memory for files, {shm}"
    yield f"Machine: {cores_text()}, {memory}, copies {advice.copying / 1e9:.1f} GB/s in memory"
    disk = advice.disk
    read = f"reads {disk.read / 1e6:.0f} MB/s cold" if disk.read else "never reads cold: it lies in memory"
    yield (
        f"Disk of {advice.target}: {disk.free_bytes / 1e9:.1f} GB free, writes {disk.write / 1e6:.0f} MB/s, {read} "
        "(blocks of 256 KiB)"
    )


def _set(advice: Advice) -> str:
    found = f"Source: {advice.whole.samples} samples, {advice.whole.bytes / 1e9:.3f} GB"
    reading = advice.reading
    if reading is None:
        return found
    cold = f"{reading.cold / 1e6:.0f} MB/s cold" if reading.cold else "cold unknown (it stayed in memory)"
    return f"{found}; its files are read at {cold}, {reading.warm / 1e6:.0f} MB/s warm"


def _notes(advice: Advice) -> Iterator[str]:
    if any(one.candidate.loses for one in advice.predictions):
        yield "* makes pictures a little worse: lossless ones become JPEG, or JPEG is encoded a second time."
    if advice.predictions and (bad := advice.predictions[0].trial.skipped):
        drawn = len(bad) + advice.predictions[0].trial.samples
        yield (
            f"{len(bad)} of {drawn} samples cannot be packed, such as {bad[0]}; convert lists all of them, "
            "--on-error skip leaves them out"
        )
    for line in advice.left_out:
        yield f"Not tried: {line}"
    yield (
        f"All cores, packer.Loader with batches of {advice.question.batch_size}, {advice.geometry}; "
        "decode ms: on one core, with the warp."
    )


def verdict(advice: Advice, unit: str) -> Iterator[str]:
    """What to do and why, and the command."""
    best = advice.best
    if not advice.predictions:
        yield "No advice: nothing could be tried, as said above."
        return
    if best is None:
        yield "No advice: nothing that was tried fits on the disk; try a smaller --size, or another disk."
        return
    why = f"{best.rate:.0f} {unit}"
    if advice.now:
        why += f", {best.rate / advice.now:.1f} times the source as it is ({advice.now:.0f})"
    fits = "fits in memory" if best.fits_memory else "does NOT fit in memory, which costs in every epoch"
    yield f"Recommended: {_named(best)}: {why}; {best.pack_bytes / 1e9:.3f} GB, {fits}."
    if advice.now and best.rate < _WORTH * advice.now:
        yield "That is hardly faster than the source as it is."
    yield from _passed_over(advice, best, unit)
    if advice.thrifty:
        less = advice.thrifty
        yield f"At most half as large: {_named(less)}: {less.rate:.0f} {unit}, {less.pack_bytes / 1e9:.3f} GB:"
        yield f"  {advice.line(less)}"
    yield "Paste:"
    yield f"  {advice.line(best)}"
    yield from _smaller(advice, best, unit)
    if advice.has_grasps:
        words = f"{shell_word(str(advice.question.path))} {shell_word(str(advice.target))}"
        yield "For GG-CNN or GR-ConvNet, whose items show less than whole pictures (or --preset grconvnet):"
        yield f"  packer convert {words} --preset ggcnn"


def _smaller(advice: Advice, best: Prediction, unit: str) -> Iterator[str]:
    """The usual size, which is just above the output's: how fast it is, and what it loses."""
    for size, loss in advice.losses.items():
        one = next((one for one in advice.predictions if one.candidate.size == size and not one.candidate.codecs), None)
        if one is None:
            continue
        lost = (
            f"{loss.share:.0%} of what training shows has fewer pixels than from the source, half of that less than "
            f"{loss.sides:.0%} of each side"
            if loss.share
            else "nothing was lost in the crops that were tried"
        )
        yield (
            f"The usual size, --resize {size}: {_named(one)}: {one.rate:.0f} {unit}, {one.rate / best.rate:.1f} times "
            f"the recommended row; {one.pack_bytes / 1e9:.3f} GB; {lost}:"
        )
        yield f"  {advice.line(one)}"


def _passed_over(advice: Advice, best: Prediction, unit: str) -> Iterator[str]:
    """Why the fastest and the smallest row are not the recommended one, where they are others."""
    fastest = max(advice.predictions, key=lambda one: one.rate)
    smallest = min(advice.predictions, key=lambda one: one.pack_bytes)
    if fastest is not best and fastest.rate > best.rate:
        why = _objection(fastest, advice) or f"hardly faster, and {fastest.pack_bytes / 1e9:.3f} GB"
        yield f"Not the fastest row ({_named(fastest)}, {fastest.rate:.0f} {unit}): {why}."
    if smallest not in (best, fastest, advice.thrifty) and smallest.pack_bytes < best.pack_bytes:
        why = _objection(smallest, advice) or f"it gives {smallest.rate:.0f} {unit}"
        yield f"Not the smallest row ({_named(smallest)}, {smallest.pack_bytes / 1e9:.3f} GB): {why}."


def _objection(one: Prediction, advice: Advice) -> str | None:
    """What keeps a row from being recommended; None where only the others are better."""
    if one.candidate.loses:
        return "it makes pictures worse (*)"
    if one.candidate.size not in advice.sizes:
        return f"at size {one.candidate.size} zooms and crops of {advice.geometry} have fewer pixels to show"
    return None if one.fits_disk else "it does not fit on the disk"


def _named(one: Prediction) -> str:
    how = one.candidate
    size = f", size {how.size}" if how.size else ", size as it is"
    return f"{how.format}, {how.codec}{size}"


def document(advice: Advice) -> dict[str, Any]:
    """Everything, for programs: samples per second, bytes, seconds."""
    rows = [
        {
            "format": one.candidate.format,
            "codec": one.candidate.codec,
            "size": one.candidate.size,
            "loses": one.candidate.loses,
            "samples_per_second": one.rate,
            "samples_per_second_first_epoch": one.first_rate,
            "decode_ms": one.trial.decode_ms,
            "pack_bytes": one.pack_bytes,
            "convert_seconds": one.convert_seconds,
            "fits_memory": one.fits_memory,
            "fits_disk": one.fits_disk,
            "trial_samples": one.trial.samples,
            "recommended": one is advice.best,
            "command": advice.line(one),
        }
        for one in advice.predictions
    ]
    return {
        "title": "packer advise",
        "options": {"geometry": advice.geometry, "batch": advice.question.batch_size},
        "source": {**vars(advice.whole), "samples_per_second": advice.now},
        "reading": vars(advice.reading) if advice.reading else None,
        "disk": vars(advice.disk),
        "copying": advice.copying,
        "memory_bytes": advice.rates.memory_bytes,
        "shared_memory_bytes": advice.shared.free_bytes if advice.shared else None,
        "left_out": list(advice.left_out),
        "losses": {size: vars(loss) for size, loss in advice.losses.items()},
        "predictions": rows,
    }
