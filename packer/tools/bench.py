"""Bench: data sets through loaders, in turn; how many samples a second, with what CPU time and memory."""

import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypedDict

from torch.utils.data import Dataset

from packer.errors import PackerError
from packer.system.resource_usage import cpu_seconds
from packer.tools import cold_files
from packer.tools.cold_files import WARM_SHARE
from packer.tools.output import table
from packer.tools.runner_process import Answer, RunnerProcess
from packer.tools.workload import STOCK, LoaderSetting, Subject, pictures, samples_in

_LEAST_S = 1.0  # that a turn lasts, in whole epochs
_MOST_PASSES = 50
Say = Callable[[str], object]


class Turn(TypedDict):
    """One turn's figures, of whole epochs."""

    samples: int
    seconds: float
    cpu_seconds: float
    first_batch_seconds: float


@dataclass
class BenchRow:
    """One subject through one setting. turns: the answers of `epochs`, one per round. memory_mb: its peak."""

    subject: Subject
    setting: LoaderSetting
    stored_bytes: int  # of the whole subject, and of how many samples that is
    stored_samples: int = 0
    pictures: int = 0
    memory_mb: float = 0.0
    turns: list[Turn] = field(default_factory=list)
    warm_share: list[float | None] = field(default_factory=list)  # of its bytes in memory after dropping; --cold

    @property
    def rates(self) -> list[float]:
        """Samples per second, round by round."""
        return [turn["samples"] / turn["seconds"] for turn in self.turns]

    @property
    def rate(self) -> float:
        """Their median."""
        return statistics.median(self.rates)

    @property
    def mb_per_sample(self) -> float:
        """Stored MB of a sample, all of its fields."""
        return self.stored_bytes / max(1, self.stored_samples) / 1e6

    @property
    def cpu_per_1000(self) -> float:
        """CPU seconds of all its processes per 1000 samples."""
        return statistics.median(turn["cpu_seconds"] / turn["samples"] * 1000 for turn in self.turns)

    @property
    def first_batch_seconds(self) -> float:
        """From `iter` to the first batch."""
        return statistics.median(turn["first_batch_seconds"] for turn in self.turns)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.subject.name} through {self.setting.short}"


def run(
    subjects: Sequence[Subject], settings: Sequence[LoaderSetting], *, rounds: int, cold: bool, say: Say
) -> list[BenchRow]:
    """Every subject through every setting: one turn that does not count, in which memory is watched, then `rounds`.

    cold: each turn is one epoch of a new process, after the subject's files were dropped from the page cache.
    say: takes a line on what goes on. Raises what opening or decoding a subject raises.
    """
    files = {subject: subject.files() for subject in subjects}
    sizes = {subject: sum(path.stat().st_size for path in found) for subject, found in files.items()}
    lines = [BenchRow(subject, setting, sizes[subject]) for subject in subjects for setting in settings]
    with ExitStack() as stack:
        players = []
        for line in lines:
            say(f"{line.name}: warming up")
            player = stack.enter_context(RunnerProcess(line.name, prepare, line.subject.open, line.setting))
            passes = _warm_up(player, line)
            if cold:
                player.close()
            players.append((line, player, passes))
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for line, player, passes in players:
                if cold:
                    _cold_turn(line, cold_files.drop(files[line.subject]))
                else:
                    line.turns.append(_turn(player, passes))
    return lines


def _turn(player: RunnerProcess, passes: int) -> Turn:
    answer = player.ask({"passes": passes})
    return Turn(
        samples=answer["samples"],
        seconds=answer["seconds"],
        cpu_seconds=answer["cpu_seconds"],
        first_batch_seconds=answer["first_batch_seconds"],
    )


def _warm_up(player: RunnerProcess, line: BenchRow) -> int:
    """A turn that does not count; returns how many epochs make one that does."""
    found = player.ask({"passes": 1}, watch=True)
    line.memory_mb = player.peak_mb
    line.stored_samples, line.pictures = found["stored_samples"], found["pictures"]
    again = _turn(player, 1)  # without the start of the workers
    return min(_MOST_PASSES, math.ceil(_LEAST_S / max(again["seconds"], 1e-6)))


def _cold_turn(line: BenchRow, left: cold_files.Residency) -> None:
    line.warm_share.append(left.share)
    with RunnerProcess(line.name, prepare, line.subject.open, line.setting) as fresh:
        line.turns.append(_turn(fresh, 1))


def prepare(open_dataset: Callable[[], Dataset[Any]], setting: LoaderSetting) -> Answer:
    """In the runner process: how it answers {"passes": n}."""
    started = time.perf_counter()
    dataset: Any = open_dataset()
    setting.check(dataset)
    loader = setting.make(dataset)
    opened = time.perf_counter() - started
    inner = getattr(dataset, "dataset", dataset)

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        return {
            **epochs(loader, question["passes"], len(dataset)),
            "open_seconds": opened,
            "stored_samples": len(inner),
            "pictures": pictures(dataset),
        }

    return answer


def epochs(loader: Any, passes: int, expected: int) -> Turn:
    """So many epochs: wall and CPU seconds, samples, seconds to the first batch; raises PackerError."""
    samples, first = 0, 0.0
    cpu, start = cpu_seconds(os.getpid()), time.perf_counter()
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, passes)):
        first = first or time.perf_counter() - start
        samples += samples_in(batch)
    seconds = time.perf_counter() - start
    used = cpu_seconds(os.getpid()) - cpu
    if samples != passes * expected:
        raise PackerError(f"{loader!r}: delivered {samples} samples, expected {passes * expected}; please report it")
    return {"samples": samples, "seconds": seconds, "cpu_seconds": used, "first_batch_seconds": first}


# ---- the report: a table, the fastest in one sentence, JSON and CSV

CSV_HEAD = (
    "source",
    "loader",
    "workers",
    "round",
    "samples_per_second",
    "mb_per_second",
    "cpu_seconds_per_1000",
    "first_batch_seconds",
    "memory_mb",
    "resident_share",
)


def text(lines: Sequence[BenchRow]) -> list[str]:
    """The table and what is to be said of it; lines as `bench.run` gives them."""
    unit = "images/s" if all(line.pictures == 1 for line in lines) else "samples/s"
    head = ("", "workers", unit, "(lowest - highest)", "MB/s", "CPU s/1000", "first batch", "memory")
    rows = [_row(line) for line in lines]
    return [*table(head, rows), "", *_fastest(lines, unit), *_warm(lines)]


def _row(line: BenchRow) -> tuple[str, ...]:
    rates = line.rates
    return (
        f"{line.subject.name}, {line.setting.loader}",
        str(line.setting.workers),
        f"{line.rate:.0f}",
        f"({min(rates):.0f} - {max(rates):.0f})",
        f"{line.rate * line.mb_per_sample:.1f}",
        f"{line.cpu_per_1000:.2f}",
        f"{line.first_batch_seconds * 1e3:.0f} ms",
        f"{line.memory_mb:.0f} MB",
    )


def best(lines: Sequence[BenchRow]) -> BenchRow:
    """The one with the highest median."""
    return max(lines, key=lambda line: line.rate)


def _fastest(lines: Sequence[BenchRow], unit: str) -> Iterator[str]:
    """A sentence for all sources of one number of samples: they are taken for the same data."""
    for count in dict.fromkeys(line.stored_samples for line in lines):
        same = [line for line in lines if line.stored_samples == count]
        first, other = best(same), _baseline(same)
        sentence = f"Fastest: {first.name}: {first.rate:.0f} {unit}"
        if other is not first:
            sentence += f", {_factor(first, other):.1f} times {other.name} ({other.rate:.0f})"
        yield sentence + "."


def _baseline(lines: Sequence[BenchRow]) -> BenchRow:
    """The best of the first source, through DataLoader if that took part."""
    first = [line for line in lines if line.subject == lines[0].subject]
    return best([line for line in first if line.setting.loader == STOCK] or first)


def _factor(one: BenchRow, other: BenchRow) -> float:
    """Of the medians as the table shows them, so that a reader who divides them finds the same."""
    return round(one.rate) / max(1, round(other.rate))


def _warm(lines: Sequence[BenchRow]) -> Iterator[str]:
    """Which subjects were not cold although that was asked for."""
    shares: dict[str, list[float | None]] = {}
    for line in lines:
        shares.setdefault(line.subject.name, []).extend(line.warm_share)
    for name, found in shares.items():
        if None in found:
            yield f"{name}: this system does not tell what is in the page cache (mincore): maybe it was not cold."
        elif found and (most := max(share or 0.0 for share in found)) > WARM_SHARE:
            yield (
                f"{name}: NOT cold: up to {most:.0%} of it stayed in memory after it was dropped from the page cache: "
                "it lies on a file system in memory, or another process has it mapped."
            )
        elif found:
            yield f"{name}: cold before every turn (at most {max(share or 0.0 for share in found):.1%} left in memory)."


def document(lines: Sequence[BenchRow], options: Mapping[str, object]) -> dict[str, Any]:
    """Everything, for programs. options: what the user asked for."""
    rows = [
        {
            "source": line.subject.name,
            "is_pack": line.subject.is_pack,
            "loader": line.setting.loader,
            "workers": line.setting.workers,
            "samples_per_second": {"median": line.rate, "all": line.rates},
            "mb_per_second": line.rate * line.mb_per_sample,
            "cpu_seconds_per_1000": line.cpu_per_1000,
            "first_batch_seconds": line.first_batch_seconds,
            "memory_mb": line.memory_mb,
            "pictures_per_sample": line.pictures,
            "resident_share": line.warm_share,
            "turns": line.turns,
        }
        for line in lines
    ]
    return {"title": "packer bench", "options": dict(options), "lines": rows}


def csv_rows(lines: Sequence[BenchRow]) -> list[tuple[Any, ...]]:
    """A row per line and round, as CSV_HEAD names them."""
    rows: list[tuple[Any, ...]] = []
    for line in lines:
        for number, turn in enumerate(line.turns):
            rate = turn["samples"] / turn["seconds"]
            share = line.warm_share[number] if line.warm_share else ""
            rows.append(
                (
                    line.subject.name,
                    line.setting.loader,
                    line.setting.workers,
                    number + 1,
                    f"{rate:.2f}",
                    f"{rate * line.mb_per_sample:.3f}",
                    f"{turn['cpu_seconds'] / turn['samples'] * 1000:.3f}",
                    f"{turn['first_batch_seconds']:.4f}",
                    f"{line.memory_mb:.1f}",
                    share,
                )
            )
    return rows
