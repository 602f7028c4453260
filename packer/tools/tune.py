"""Tune: wall time of a training loop with each number of workers, divided into four columns.

| column  | from -> to                                                                              |
|---------|-----------------------------------------------------------------------------------------|
| epoch   | end of the last step of an epoch -> iterator deleted, worker processes ended            |
| first   | start of an epoch -> first batch: creates the iterator, starts workers, loads a batch   |
| compute | start of a step -> end of the step                                                      |
| wait    | end of a step -> next batch                                                             |
| total   | the sum of the four columns                                                             |

The columns do not overlap. A table of GG-CNN's users (OneOneLiu/ggcnn_cornell_dataset, time_result_pro.xls) has similar
columns, but counts some intervals twice.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

from packer.errors import InvalidRequest
from packer.tools.measured_workload import LOADERS, LoaderSetting, Subject, evenly, load_function
from packer.tools.report import ToolReport, table
from packer.tools.sweep import Answer, Say, SweepRow, cold_notes, sweep

COLUMNS = ("epoch", "first", "compute", "wait")
TOLERANCE = 0.05  # relative slowdown for which a setting with fewer workers is preferred
_MOST_STEPS = 100  # largest default number of steps in an epoch
Clock = Callable[[], float]
Columns = dict[str, float]  # seconds


@dataclass(frozen=True)
class LoopPlan:
    """The training loop that every loader setting runs.

    Attributes:
        steps: Number of batches in an epoch.
        step_seconds: Duration of a simulated training step. Ignored if `step` is not None.
        step: A user's function `module:function`, called with each batch. None sleeps `step_seconds` per batch.
    """

    steps: int
    epochs: int = 3
    step_seconds: float = 0.0
    step: str | None = None

    def function(self) -> Callable[[Any], object]:
        """Return the function to call with each batch: the imported `step`, or a function that sleeps."""
        if self.step is not None:
            return load_function(self.step, "--step")
        return lambda _: time.sleep(self.step_seconds)


def planned(
    subject: Subject, batch_size: int, *, steps: int | None, epochs: int, step_ms: float | None, step: str | None
) -> LoopPlan:
    """Return the loop for the options of a user. Raises InvalidRequest if `steps` is too large or options conflict.

    Args:
        steps: Batches in an epoch. None selects all batches, but at most 100.
        step_ms: Duration of a simulated step. Must be None if `step` is not None.
        step: A user's function `module:function`, called with each batch.
    """
    if step is not None and step_ms is not None:
        raise InvalidRequest("--step and --step-ms both set the work of a step; use one of them")
    there = -(-subject.count() // batch_size)
    if steps is not None and steps > there:
        raise InvalidRequest(
            f"--steps {steps}: a pass over {subject.path} has {there} batches of {batch_size}; set fewer"
        )
    return LoopPlan(steps or min(there, _MOST_STEPS), epochs, (step_ms or 0) / 1e3, step)


@dataclass
class TuneRow(SweepRow):
    """Results of one loader setting. `turns` contains for each run a dict from column name to total seconds."""

    @property
    def columns(self) -> Columns:
        """Column -> seconds, of the run with the median total."""
        return sorted(self.turns, key=total)[(len(self.turns) - 1) // 2]

    @property
    def total(self) -> float:
        """Total seconds of the run with the median total."""
        return total(self.columns)

    @property
    def latest(self) -> str:
        """Total seconds of the latest run, as text."""
        return f"{total(self.turns[-1]):.2f} s"


def total(columns: Columns) -> float:
    """Return the sum of the columns in seconds, which equals the wall time of the run."""
    return sum(columns[name] for name in COLUMNS)


def tune(
    subject: Subject, settings: Sequence[LoaderSetting], plan: LoopPlan, *, rounds: int, cold: bool, say: Say
) -> list[TuneRow]:
    """Run the loop once per setting and round, each run in a new process. Return one row per setting.

    Args:
        cold: True drops the files of the subject from the page cache before each run.
        say: Called with progress messages.

    Raises:
        PackerError: Opening or loading the subject failed.
    """
    rows = [TuneRow(subject, setting) for setting in settings]
    sweep(rows, prepare, plan, rounds=rounds, cold=cold, keeps_processes=False, say=say)
    return rows


def prepare(open_dataset: Callable[[], Dataset[Any]], setting: LoaderSetting, plan: LoopPlan) -> Answer:
    """Open a dataset in the process of its row. Return a function that runs the loop and returns the columns."""
    dataset = open_dataset()
    setting.check(dataset)
    step = plan.function()

    def measure(_: bool) -> dict[str, Any]:
        loader = setting.make(evenly(dataset, plan.steps * setting.batch_size))
        columns = run(loader, step, epochs=plan.epochs)
        if setting.is_ours:
            loader.close()
        return columns

    return measure


def run(
    loader: Iterable[Any], step: Callable[[Any], object], *, epochs: int, clock: Clock = time.perf_counter
) -> Columns:
    """Run `epochs` complete epochs and return column -> seconds. The sum of the columns is the wall time."""
    seconds = dict.fromkeys(COLUMNS, 0.0)
    last = clock()

    def lap(name: str) -> None:
        nonlocal last
        now = clock()
        seconds[name] += now - last
        last = now

    for _ in range(epochs):
        batches, done = iter(loader), 0
        while True:
            batch = next(batches, None)
            lap("first" if done == 0 else "epoch" if batch is None else "wait")
            if batch is None:
                break
            step(batch)
            done += 1
            lap("compute")
        del batch, batches  # a DataLoader's workers end here
        lap("epoch")
    return seconds


# ---- the recommendation


def knee(totals: dict[int, float], tolerance: float = TOLERANCE) -> int:
    """Return the smallest number of workers whose time is at most (1 + `tolerance`) times the shortest time.

    `totals` contains number of workers -> seconds.
    """
    lowest = min(totals.values())
    return min(workers for workers, seconds in totals.items() if seconds <= lowest * (1 + tolerance))


def chosen(rows: Sequence[TuneRow], loader: str) -> TuneRow | None:
    """Return the row of `loader` with the number of workers that `knee` selects, or None without rows of `loader`."""
    found = {row.setting.workers: row for row in rows if row.setting.loader == loader}
    return found[knee({workers: row.total for workers, row in found.items()})] if found else None


def recommended(rows: Sequence[TuneRow]) -> TuneRow:
    """Return the fastest row of `chosen`, which selects one row for each loader."""
    knees = [row for loader in LOADERS if (row := chosen(rows, loader)) is not None]
    return min(knees, key=lambda row: row.total)


# ---- the report

_MUCH_WAITING = 0.1


def report(rows: Sequence[TuneRow], plan: LoopPlan, options: Mapping[str, object], *, cores: int) -> ToolReport:
    """Return the report of the rows that `tune` returns. The JSON also contains `options`, the command's options."""
    best = recommended(rows)
    document = {
        "title": "packer tune",
        "options": {**options, **vars(plan)},
        "rows": [_figures(row) for row in rows],
        "recommended": {"loader": best.setting.loader, "workers": best.setting.workers},
        "sentence": sentence(rows, plan),
    }
    return ToolReport(text(rows, plan, cores=cores), document)


def text(rows: Sequence[TuneRow], plan: LoopPlan, *, cores: int) -> list[str]:
    """Return the lines of the report: the table in seconds per run, the recommendation and notes."""
    head = ("", "workers", *COLUMNS, "total", "waiting", "memory", "")
    best = recommended(rows)
    cells = [_cells(row, "<-" if row is best else "") for row in rows]
    return [*table(head, cells), "", sentence(rows, plan), *_notes(rows, plan, cores), *cold_notes(rows)]


def _cells(row: TuneRow, mark: str) -> tuple[str, ...]:
    return (
        row.setting.loader,
        str(row.setting.workers),
        *(f"{row.columns[name]:.2f}" for name in COLUMNS),
        f"{row.total:.2f}",
        f"{waiting(row):.0%}",
        f"{row.memory_mb:.0f} MB",
        mark,
    )


def waiting(row: TuneRow) -> float:
    """Return the share of the wall time (0 to 1) outside the column compute."""
    return 1 - row.columns["compute"] / max(row.total, 1e-9)


def sentence(rows: Sequence[TuneRow], plan: LoopPlan) -> str:
    """Return a sentence with the recommended loader setting and the reason."""
    best = recommended(rows)
    fastest = min((row for row in rows if row.setting.loader == best.setting.loader), key=lambda row: row.total)
    per_epoch = f"{best.total / plan.epochs:.2f} s an epoch of {plan.steps} steps"
    parts = [f"Use {best.setting.text}: {per_epoch}, {waiting(best):.0%} of it waiting"]
    if fastest is not best:
        parts.append(f"{fastest.setting.workers} {best.setting.noun} are no more than {TOLERANCE:.0%} faster")
    for loader in LOADERS:
        if loader != best.setting.loader and (other := chosen(rows, loader)):
            parts.append(f"{other.setting.text} takes {other.total / best.total:.2f} times as long")
    return "; ".join(parts) + "."


def _notes(rows: Sequence[TuneRow], plan: LoopPlan, cores: int) -> Iterator[str]:
    best = recommended(rows)
    if plan.step is None and not plan.step_seconds:
        yield "Without a step, only loading was measured: --step-ms 20 simulates a GPU, --step calls your function."
    elif waiting(best) > _MUCH_WAITING:
        yield (
            f"Even so the loop waits: no number of workers feeds {best.columns['compute'] / plan.epochs:.2f} s of "
            "compute an epoch without a pause; `packer profile` shows which stage takes the time."
        )
    if any(row.setting.workers > cores for row in rows):
        yield f"With more than {cores} workers some share a core."


def _figures(row: TuneRow) -> dict[str, Any]:
    return {
        "loader": row.setting.loader,
        "workers": row.setting.workers,
        "seconds": {**row.columns, "total": row.total},
        "runs": [{**run, "total": total(run)} for run in row.turns],
        "memory_mb": row.memory_mb,
    }
