"""Packing advice: the recommended format, codec and image size for packing a source, from trials with a few samples."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.conversion.source_spec import SourceSpec
from packer.copies import capacity
from packer.errors import BadInput, InvalidRequest, PackerError, StorageError
from packer.files.terminal_output import shell_word
from packer.geometry.parsing import parse
from packer.sources.base import Source
from packer.system.machine_limits import Machine
from packer.system.parallel import usable_cores
from packer.tools.measured_workload import OURS, LoaderSetting, Subject
from packer.tools.packing_candidates import (
    Candidate,
    Prediction,
    Speeds,
    Trial,
    WholeSet,
    candidates,
    predict,
    recommended,
)
from packer.tools.packing_trial import SourceSample, TrialRunner, measure
from packer.tools.report import ToolReport, table

_SHARE_OF_TRIALS = 0.8  # of Question.seconds; the rest is reserve

_SHARE_OF_NOW = 0.05  # of Question.seconds, for loading the source without a pack
_LEAST_S = 0.3  # shortest time in seconds for the trials of a group
_ROOM_BYTES = 2 << 30  # upper limit of the size of a group's packs
Say = Callable[[str], object]


@dataclass(frozen=True)
class Question:
    """Input of `advise`: a source, the settings of training, and the time for the trials.

    Attributes:
        geometry: Geometry as text. None selects a common geometry for the field kinds of the source.
        sizes: Image sizes to try, in the syntax of `packer convert --resize`. None derives a size from the geometry.
        seconds: Approximate duration of all trials.
        max_pixels: Largest number of pixels of an image, as in `packer convert`. None for the default limit.
        spec: Options that select the source.
        source_words: The same options as words of the command line.
    """

    path: Path
    geometry: str | None = None
    sizes: tuple[str, ...] | None = None
    batch_size: int = 32
    seconds: float = 30.0
    max_pixels: int | None = None
    spec: SourceSpec = SourceSpec()
    source_words: Sequence[str] = ()


@dataclass(frozen=True)
class Advice:
    """Results of `advise`.

    Attributes:
        geometry: Geometry of the trials, as text.
        whole: Number of samples and bytes of the source.
        now: Samples per second of a Loader that reads the source without a pack. None if loading fails.
        target: Path of the pack in the recommended commands.
        predictions: One prediction for each combination of format, codec and image size that was tried.
        best: The recommended prediction. None if no pack fits on the disk.
        left_out: One line for each combination that was not tried, with the reason.
        has_grasps: True if samples contain grasps. `packer convert` has presets for grasps.
    """

    question: Question
    geometry: str
    whole: WholeSet
    now: float | None
    speeds: Speeds
    target: Path
    predictions: Sequence[Prediction]
    best: Prediction | None
    left_out: Sequence[str] = ()
    has_grasps: bool = False

    def line(self, one: Prediction) -> str:
        """Return the `packer convert` command for the format, codec and image size of the prediction `one`."""
        return one.candidate.line(self.question.path, self.target, source_words=self.question.source_words)


def advise(question: Question, *, say: Say, machine: Machine | None = None) -> Advice:
    """Try several formats, codecs and image sizes on this machine for about `question.seconds`. Return the results.

    Args:
        say: Called with progress messages.
        machine: Limits of the machine. None detects the limits. Tests pass other limits.

    Raises:
        InvalidRequest: The path is not a data set, or a geometry or size is invalid.
        BadInput: The source has no samples, contains unreadable files, or no sample can be read.
        StorageError: The disk has too little free space for the trials.
    """
    end = time.perf_counter() + question.seconds * _SHARE_OF_TRIALS
    source, found = question.spec.open(question.path)
    if not len(source):
        raise BadInput(f"{question.path}: no samples to pack; packer convert --dry-run lists the files that it finds")
    if source.unread:
        raise BadInput(
            f"{question.path}: {source.unread_message}; or leave them out with packer convert --on-error skip, and run "
            "packer advise on that pack"
        )
    say(f"{question.path}: {found}; measuring the disk")
    machine, sampling, cores = machine or Machine(), SourceSample(source, question.max_pixels), usable_cores()
    text = question.geometry or sampling.usual()
    geometry = parse(text)
    sizes = sampling.sizes(geometry, question.sizes)
    target = free_target(question.path)
    memory_bytes = capacity.free_memory(None, machine)
    speeds = measure(target.absolute().parent, sampling.files, memory_bytes=memory_bytes, threads=cores)
    left_out: list[str] = []
    with _scratch(machine) as folder:
        runner = TrialRunner(folder, LoaderSetting(OURS, cores, question.batch_size), geometry)
        say("loading it as it is")
        now = _now(question, runner, len(sampling.few), left_out)
        groups = candidates(sampling.few, sizes, max_pixels=question.max_pixels)
        trials = list(_trials(groups, runner, sampling.few, end, left_out, say))
    predictions = [predict(trial, sampling.whole, speeds) for trial in trials]
    return Advice(
        question=question,
        geometry=text,
        whole=sampling.whole,
        now=now,
        speeds=speeds,
        target=target,
        predictions=predictions,
        best=recommended(predictions),
        left_out=left_out,
        has_grasps=sampling.has_grasps,
    )


def _now(question: Question, runner: TrialRunner, samples: int, left_out: list[str]) -> float | None:
    """Return the samples per second of loading the source without a pack. After an error, return None and note it."""
    subject = Subject(
        question.path,
        geometry=runner.geometry,
        samples=samples,
        max_pixels=question.max_pixels,
        spec=question.spec,
    )
    try:
        return runner.rate(subject.open(), until=time.perf_counter() + question.seconds * _SHARE_OF_NOW)
    except PackerError as error:
        left_out.append(f"the source as it is: {error}")
        return None


def _trials(
    groups: Sequence[Sequence[Candidate]],
    runner: TrialRunner,
    source: Source,
    end: float,
    left_out: list[str],
    say: Say,
) -> Iterator[Trial]:
    """Yield the trials of all groups until the time `end`. Append groups without a trial to `left_out`."""
    for number, group in enumerate(groups):
        seconds = (end - time.perf_counter()) / (len(groups) - number)
        name = f"{group[0].codec}, {group[0].size or 'as it is'}"
        if number and seconds < _LEAST_S:
            left_out.append(f"{name}: no time left; --seconds gives more")
            continue
        say(f"trying {name}")
        try:
            yield from runner.trials(source, group, seconds=seconds)
        except (BadInput, InvalidRequest) as error:
            left_out.append(f"{name}: {error}")


def free_target(source: Path) -> Path:
    """Return a path for a pack that does not exist: in the current folder, or next to `source`.

    It is next to `source` if the current folder is `source` or in it.
    """
    plain = source.resolve()
    parent = plain.parent if plain in (Path.cwd(), *Path.cwd().parents) else Path()
    name = plain.name.removesuffix(".pack")
    names = (f"{name}{number}.pack" for number in ("", *(f"-{count}" for count in range(2, 10_000))))
    return next(parent / name for name in names if not os.path.lexists(parent / name))


@contextmanager
def _scratch(machine: Machine) -> Iterator[Path]:
    """Yield a temporary folder: in shared memory if enough is free, otherwise in the default temporary folder."""
    base: Path | None = machine.shared_memory
    try:
        capacity.check(machine.shared_memory, capacity.SpaceNeeded(_ROOM_BYTES, 0), None, machine)
    except StorageError:
        base = None
    with tempfile.TemporaryDirectory(prefix="packer-advise-", dir=base) as folder:
        yield Path(folder)


# ---- the report

_WORTH = 1.1  # times the samples per second of the source without a pack


def report(advice: Advice) -> ToolReport:
    """Return the report of `packer advise`, as lines of text and as JSON."""
    return ToolReport(text(advice), document(advice))


def text(advice: Advice) -> list[str]:
    """Return the lines of the report: machine, table of predictions, notes, recommendation and command."""
    head = ("", "codec", "size", "samples/s", "GB", "convert", "in memory")
    now = "?" if advice.now is None else f"{advice.now:.0f}"
    source = ("source", "", "as it is", now, f"{advice.whole.bytes / 1e9:.3f}", "", "")
    rows = [source, *(_row(one, marked=one is advice.best) for one in advice.predictions)]
    return [*_measured(advice), "", *table(head, rows), "", *_notes(advice), *_verdict(advice)]


def _row(one: Prediction, *, marked: bool) -> tuple[str, ...]:
    how, seconds = one.candidate, one.convert_seconds
    return (
        how.format,
        how.codec + "*" * how.loses,
        how.size or "as it is",
        f"{one.rate:.0f}",
        f"{one.pack_bytes / 1e9:.3f}",
        f"{seconds:.0f} s" if seconds < 99.5 else f"{seconds / 60:.0f} min",
        ("yes" if one.fits_memory else "no") + (" <-" if marked else "   "),
    )


def _measured(advice: Advice) -> Iterator[str]:
    speeds = advice.speeds
    yield f"Machine: {usable_cores()} usable cores, {speeds.memory_bytes / 1e9:.1f} GB of memory for files"
    read = f"reads {speeds.read / 1e6:.0f} MB/s cold" if speeds.read else "reads from memory only"
    free = f"{speeds.free_bytes / 1e9:.1f} GB free"
    yield f"Disk of {advice.target}: {free}, writes {speeds.write / 1e6:.0f} MB/s, {read} (blocks of 256 KiB)"
    cold = f"; its files are read at {speeds.source / 1e6:.0f} MB/s cold" if speeds.source else ""
    yield f"Source: {advice.whole.samples} samples, {advice.whole.bytes / 1e9:.3f} GB{cold}"


def _notes(advice: Advice) -> Iterator[str]:
    if any(one.candidate.loses for one in advice.predictions):
        yield "* makes images a little worse: lossless ones become JPEG, or JPEG is encoded a second time."
    if advice.predictions and (bad := advice.predictions[0].trial.skipped):
        drawn = len(bad) + advice.predictions[0].trial.samples
        yield (
            f"{len(bad)} of {drawn} samples cannot be packed, such as {bad[0]}; convert lists all of them, "
            "--on-error skip skips them"
        )
    for line in advice.left_out:
        yield f"Not tried: {line}"
    yield f"All cores, packer.Loader with batches of {advice.question.batch_size}, {advice.geometry}."


def _verdict(advice: Advice) -> Iterator[str]:
    best = advice.best
    if not advice.predictions:
        yield "No advice: no way could be tried, see above."
        return
    if best is None:
        yield "No advice: no pack fits on the disk; try a smaller --size, or another disk."
        return
    why = f"{best.rate:.0f} samples/s"
    if advice.now:
        why += f", {best.rate / advice.now:.1f} times the source as it is ({advice.now:.0f})"
    fits = "fits in memory" if best.fits_memory else "does NOT fit in memory, which slows every epoch"
    yield f"Recommended: {best.candidate}: {why}; {best.pack_bytes / 1e9:.3f} GB, {fits}."
    if advice.now and best.rate < _WORTH * advice.now:
        yield "That is hardly faster than the source as it is."
    yield "Paste:"
    yield f"  {advice.line(best)}"
    if advice.has_grasps:
        words = f"{shell_word(str(advice.question.path))} {shell_word(str(advice.target))}"
        yield "For GG-CNN or GR-ConvNet, whose items show only parts of the images (or --preset grconvnet):"
        yield f"  packer convert {words} --preset ggcnn"


def document(advice: Advice) -> dict[str, Any]:
    """Return the JSON document of the report, with values in samples/s, bytes, bytes/s and seconds."""
    rows = [
        {
            "format": one.candidate.format,
            "codec": one.candidate.codec,
            "size": one.candidate.size,
            "loses": one.candidate.loses,
            "samples_per_second": one.rate,
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
    speeds = advice.speeds
    return {
        "title": "packer advise",
        "options": {"geometry": advice.geometry, "batch": advice.question.batch_size},
        "source": {**vars(advice.whole), "samples_per_second": advice.now},
        "reading": {"cold": speeds.source},
        "disk": {"write": speeds.write, "read": speeds.read, "free_bytes": speeds.free_bytes},
        "memory_bytes": speeds.memory_bytes,
        "left_out": list(advice.left_out),
        "predictions": rows,
    }
