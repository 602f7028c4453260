"""Bench: samples per second, CPU time and memory of loading data sets."""

import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from torch.utils.data import Dataset

from packer.errors import PackerError
from packer.system.resource_usage import cpu_seconds
from packer.tools.measured_workload import LoaderSetting, Subject
from packer.tools.report import ToolReport, table
from packer.tools.sweep import Answer, Say, SweepRow, cold_notes, sweep

_LEAST_S = 1.0  # least duration of a timed run
_MOST_PASSES = 50


class Turn(TypedDict):
    """Totals of one timed run of complete epochs. `cpu_seconds` includes all processes. `seconds` is the wall time."""

    samples: int
    seconds: float
    cpu_seconds: float
    first_batch_seconds: float


@dataclass
class BenchRow(SweepRow):
    """Results of one data set with one loader setting. `turns` contains one `Turn` per round.

    Attributes:
        stored_bytes: Size of all files of the data set.
        stored_samples: Number of samples in these files.
    """

    stored_bytes: int = 0
    stored_samples: int = 0

    @property
    def rates(self) -> list[float]:
        """Samples per second of each round."""
        return [turn["samples"] / turn["seconds"] for turn in self.turns]

    @property
    def rate(self) -> float:
        """Median samples per second of all rounds."""
        return statistics.median(self.rates)

    @property
    def latest(self) -> str:
        """Samples per second of the latest round, as text."""
        return f"{self.rates[-1]:.0f} samples/s"

    @property
    def mb_per_sample(self) -> float:
        """Mean size of a stored sample in MB (1e6 bytes), all fields together."""
        return self.stored_bytes / max(1, self.stored_samples) / 1e6

    @property
    def cpu_per_1000(self) -> float:
        """CPU seconds of all processes per 1000 samples, median of all rounds."""
        return float(statistics.median(turn["cpu_seconds"] / turn["samples"] * 1000 for turn in self.turns))

    @property
    def first_batch_seconds(self) -> float:
        """Seconds from `iter(loader)` to the first batch, median of all rounds."""
        return float(statistics.median(turn["first_batch_seconds"] for turn in self.turns))


def run(
    subjects: Sequence[Subject], settings: Sequence[LoaderSetting], *, rounds: int, cold: bool, say: Say
) -> list[BenchRow]:
    """Measure every subject with every loader setting, and return one row per combination.

    Unless `cold` is true, each row has one process, which first loads the data set without timing. Then each row is
    timed once in each of `rounds` rounds.

    Args:
        cold: True drops the files of the subject from the page cache before each timed run. Each run is then one epoch
            in a new process.
        say: Called with progress messages.

    Raises:
        PackerError: Opening or decoding a subject failed.
    """
    rows = []
    for subject in subjects:
        dataset: Any = subject.open()
        stored_bytes = sum(path.stat().st_size for path in subject.files())
        stored_samples = len(getattr(dataset, "dataset", dataset))
        rows += [
            BenchRow(
                subject,
                setting,
                stored_bytes=stored_bytes,
                stored_samples=stored_samples,
            )
            for setting in settings
        ]
    sweep(rows, prepare, rounds=rounds, cold=cold, keeps_processes=True, say=say)
    return rows


def prepare(open_dataset: Callable[[], Dataset[Any]], setting: LoaderSetting) -> Answer:
    """Open a dataset in the process of its row. Return the function `turn(is_warm_up)`, which does one timed run.

    A run is one epoch. After a call with `is_warm_up` true, it is as many epochs as take about one second.
    """
    dataset: Any = open_dataset()
    setting.check(dataset)
    loader, passes = setting.make(dataset), 1

    def turn(is_warm_up: bool) -> dict[str, Any]:
        nonlocal passes
        figures = epochs(loader, passes, len(dataset))
        if is_warm_up:
            seconds = epochs(loader, 1, len(dataset))["seconds"]  # the first epoch also started the workers
            passes = min(_MOST_PASSES, math.ceil(_LEAST_S / max(seconds, 1e-6)))
        return {**figures}

    return turn


def epochs(loader: Any, passes: int, expected: int) -> Turn:
    """Load `passes` complete epochs from `loader` and return the times. The batches of the loader must be dicts.

    Raises:
        PackerError: The number of samples per epoch is not `expected`.
    """
    samples, first = 0, 0.0
    cpu, start = cpu_seconds(os.getpid()), time.perf_counter()
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, passes)):
        first = first or time.perf_counter() - start
        samples += len(next(iter(batch.values())))
    seconds = time.perf_counter() - start
    used = cpu_seconds(os.getpid()) - cpu
    if samples != passes * expected:
        raise PackerError(f"{loader!r}: delivered {samples} samples, expected {passes * expected}; please report it")
    return {"samples": samples, "seconds": seconds, "cpu_seconds": used, "first_batch_seconds": first}


# ---- the report


def report(rows: Sequence[BenchRow], options: Mapping[str, object]) -> ToolReport:
    """Return the report of the rows that `run` returns. The JSON also contains `options`, the command's options."""
    document = {"title": "packer bench", "options": dict(options), "lines": [_figures(row) for row in rows]}
    return ToolReport(text(rows), document)


def text(rows: Sequence[BenchRow]) -> list[str]:
    """Return the lines of the report: the table, the fastest rows, and notes on the page cache."""
    head = ("", "workers", "samples/s", "(lowest - highest)", "MB/s", "CPU s/1000", "first batch", "memory")
    return [*table(head, [_cells(row) for row in rows]), "", _fastest(rows), *cold_notes(rows)]


def _cells(row: BenchRow) -> tuple[str, ...]:
    rates = row.rates
    return (
        f"{row.subject.name}, {row.setting.loader}",
        str(row.setting.workers),
        f"{row.rate:.0f}",
        f"({min(rates):.0f} - {max(rates):.0f})",
        f"{row.rate * row.mb_per_sample:.1f}",
        f"{row.cpu_per_1000:.2f}",
        f"{row.first_batch_seconds * 1e3:.0f} ms",
        f"{row.memory_mb:.0f} MB",
    )


def best(rows: Sequence[BenchRow]) -> BenchRow:
    """Return the row with the highest median samples per second."""
    return max(rows, key=lambda row: row.rate)


def _fastest(rows: Sequence[BenchRow]) -> str:
    """Return a sentence about the fastest row, compared with the best row of the first source and loader."""
    first, fastest = rows[0], best(rows)
    other = best([row for row in rows if (row.subject, row.setting.loader) == (first.subject, first.setting.loader)])
    sentence = f"Fastest: {fastest.name}: {fastest.rate:.0f} samples/s"
    if other is not fastest:
        factor = round(fastest.rate) / max(1, round(other.rate))
        sentence += f", {factor:.1f} times {other.name} ({other.rate:.0f})"
    return sentence + "."


def _figures(row: BenchRow) -> dict[str, Any]:
    return {
        "source": row.subject.name,
        "is_pack": row.subject.is_pack,
        "loader": row.setting.loader,
        "workers": row.setting.workers,
        "samples_per_second": {"median": row.rate, "all": row.rates},
        "mb_per_second": row.rate * row.mb_per_sample,
        "cpu_seconds_per_1000": row.cpu_per_1000,
        "first_batch_seconds": row.first_batch_seconds,
        "memory_mb": row.memory_mb,
        "resident_share": row.warm_shares,
        "turns": [{name: turn[name] for name in Turn.__annotations__} for turn in row.turns],
    }
