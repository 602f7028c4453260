"""Tune: a training loop with each number of workers, its time in five columns that add up to the wall time.

| column  | from -> to                                                                              |
|---------|-----------------------------------------------------------------------------------------|
| epoch   | end of the last step -> the old iterator is gone: time to shut down the old workers     |
| first   | start of the pass -> first batch in hand: iterator, workers that start, first batch     |
| compute | the steps                                                                               |
| wait    | end of a step -> next batch in hand                                                     |
| total   | the sum of the four                                                                     |

The table is that of GG-CNN's users (OneOneLiu/ggcnn_cornell_dataset, time_result_pro.xls), which counts the gap between
epochs and all first waits but one twice. This one counts everything once.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import zeros
from torch.utils.data import Dataset, get_worker_info

from packer.errors import InvalidRequest
from packer.tools.report import ChartPanel, ToolReport, bar_chart, table
from packer.tools.sweep import Answer, Say, SweepRow, cold_notes, sweep
from packer.tools.workload import LOADERS, STOCK, LoaderSetting, Subject, evenly, load_function

COLUMNS = ("epoch", "first", "compute", "wait")
TOLERANCE = 0.05  # how much slower than the best a setting with fewer workers may be
_MOST_WORKERS = 1024
_MOST_STEPS = 100  # of an epoch, by default
Clock = Callable[[], float]
Columns = dict[str, float]  # seconds


@dataclass(frozen=True)
class LoopPlan:
    """The training loop that every setting runs: `epochs` of `steps` batches.

    Attributes:
        step: `module:function`, called with each batch. None: the loop sleeps `step_seconds`, as if a GPU worked.
        early_break: Leave each pass after `steps` batches, as GG-CNN's training does. Otherwise the pass ends there.
    """

    steps: int
    epochs: int = 3
    step_seconds: float = 0.0
    step: str | None = None
    early_break: bool = False

    def function(self) -> Callable[[Any], object]:
        """Return the function that is called with each batch."""
        if self.step is not None:
            return load_function(self.step, "--step")
        return lambda _: time.sleep(self.step_seconds)


def planned(
    subject: Subject,
    batch_size: int,
    *,
    steps: int | None,
    epochs: int,
    step_ms: float | None,
    step: str | None,
    early_break: bool,
) -> LoopPlan:
    """Return the plan for the options of a user; raises InvalidRequest if they do not fit the subject.

    steps: batches of an epoch, None for all, at most 100. step_ms: milliseconds of a step. step: function of a step.
    """
    if step is not None and step_ms is not None:
        raise InvalidRequest("--step and --step-ms both say what a step computes; give one of them")
    there = -(-subject.count() // batch_size)
    if steps is not None and steps > there:
        raise InvalidRequest(
            f"--steps {steps}: a pass over {subject.path} has {there} batches of {batch_size}; ask for less"
        )
    if early_break and (steps is None or steps == there):
        raise InvalidRequest(f"--early-break: say with --steps after how many of the {there} batches of a pass")
    return LoopPlan(steps or min(there, _MOST_STEPS), epochs, (step_ms or 0) / 1e3, step, early_break)


@dataclass
class TuneRow(SweepRow):
    """One number of workers. Each turn is an answer of `measure`: the columns of a run, all epochs together."""

    @property
    def runs(self) -> list[Columns]:
        """Columns of each run."""
        return [turn["columns"] for turn in self.turns]

    @property
    def loaded(self) -> list[float]:
        """Samples that each run loaded for one that it used."""
        return [turn["loaded"] for turn in self.turns]

    @property
    def columns(self) -> Columns:
        """Columns of the run with the median total."""
        return sorted(self.runs, key=total)[(len(self.turns) - 1) // 2]

    @property
    def total(self) -> float:
        """Seconds of that run."""
        return total(self.columns)

    @property
    def latest(self) -> str:
        """Seconds of the latest run."""
        return f"{total(self.runs[-1]):.2f} s"


def total(columns: Columns) -> float:
    """Return the sum of the columns: the wall time."""
    return sum(columns[name] for name in COLUMNS)


def tune(
    subject: Subject, settings: Sequence[LoaderSetting], plan: LoopPlan, *, rounds: int, cold: bool, say: Say
) -> list[TuneRow]:
    """Run the loop once per setting and round, each run in a new process; raises the errors of opening and loading.

    cold: drop the subject's files from the page cache before each run. say: called with progress messages.
    """
    rows = [TuneRow(subject, setting) for setting in settings]
    sweep(rows, prepare, plan, rounds=rounds, cold=cold, keeps_processes=False, say=say)
    return rows


def prepare(open_dataset: Callable[[], Dataset[Any]], setting: LoaderSetting, plan: LoopPlan) -> Answer:
    """Open a data set in its process, and return the function that runs the loop over it."""
    dataset = open_dataset()
    setting.check(dataset)
    step = plan.function()
    return lambda _: measure(dataset, setting, plan, step)


def measure(dataset: Any, setting: LoaderSetting, plan: LoopPlan, step: Callable[[Any], object]) -> dict[str, Any]:
    """Run the loop, and return seconds per column, and samples that were loaded for one that was used."""
    steps = plan.steps if plan.early_break else 0
    wanted = dataset if plan.early_break else evenly(dataset, plan.steps * setting.batch_size)
    if setting.is_ours:
        loader = setting.make(wanted, steps_per_epoch=steps or None)  # continues its pass in the next epoch
        columns = run(loader, step, epochs=plan.epochs)
        loader.close()
        return {"columns": columns, "loaded": 1.0}
    counted = Counted(wanted)
    columns = run(setting.make(counted), step, epochs=plan.epochs, break_after=steps)
    used = plan.epochs * min(len(counted), (steps or len(counted)) * setting.batch_size)
    return {"columns": columns, "loaded": max(1.0, counted.count / used)}


def run(
    loader: Iterable[Any],
    step: Callable[[Any], object],
    *,
    epochs: int,
    break_after: int = 0,
    clock: Clock = time.perf_counter,
) -> Columns:
    """Run epochs back to back, and return the seconds of each column; their sum is the wall time.

    break_after: leave each pass after so many steps, as loops that count in their body do. One more batch is fetched
        and dropped. 0: never.
    """
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
            is_last = batch is None or (0 < break_after <= done)
            lap("first" if done == 0 else "epoch" if is_last else "wait")
            if is_last:
                break
            step(batch)
            done += 1
            lap("compute")
        del batch, batches  # a DataLoader's workers end here
        lap("epoch")
    return seconds


class Counted(Dataset[Any]):
    """Data set that counts the samples that it returns, in all processes."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._counts = zeros(_MOST_WORKERS + 1).share_memory_()  # type: ignore[no-untyped-call]  # one per worker
        self._offers_batches = hasattr(dataset, "__getitems__")
        self.schema = getattr(dataset, "schema", ())

    @property
    def count(self) -> int:
        """Samples returned so far."""
        return int(self._counts.sum())

    @property
    def dataset(self) -> Any:
        """The inner data set, as in a Subset."""
        return self._dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        self._add(1)
        return self._dataset[index]

    def __getitems__(self, indices: list[int]) -> Any:
        self._add(len(indices))
        if self._offers_batches:
            return self._dataset.__getitems__(indices)
        return [self._dataset[index] for index in indices]

    def _add(self, samples: int) -> None:
        worker = get_worker_info()
        self._counts[worker.id if worker is not None else _MOST_WORKERS] += samples


# ---- the recommendation


def knee(totals: dict[int, float], tolerance: float = TOLERANCE) -> int:
    """Return the fewest workers with a total within `tolerance` of the lowest. totals: workers -> seconds."""
    lowest = min(totals.values())
    return min(workers for workers, seconds in totals.items() if seconds <= lowest * (1 + tolerance))


def chosen(rows: Sequence[TuneRow], loader: str) -> TuneRow | None:
    """Return the row of one loader at its knee; None if it was not measured."""
    found = {row.setting.workers: row for row in rows if row.setting.loader == loader}
    return found[knee({workers: row.total for workers, row in found.items()})] if found else None


def recommended(rows: Sequence[TuneRow]) -> TuneRow:
    """Return the row to use: the knee of the loader that is fastest at its knee."""
    knees = [row for loader in LOADERS if (row := chosen(rows, loader)) is not None]
    return min(knees, key=lambda row: row.total)


# ---- the report

_MUCH_WAITING = 0.1
_MUCH_DROPPED = 1.05


def report(rows: Sequence[TuneRow], plan: LoopPlan, options: Mapping[str, object], *, cores: int) -> ToolReport:
    """Return the report of `tune`. options: the options of the command, for the JSON."""
    best = recommended(rows)
    document = {
        "title": "packer tune",
        "options": {**options, **vars(plan)},
        "rows": [_figures(row) for row in rows],
        "recommended": {"loader": best.setting.loader, "workers": best.setting.workers},
        "sentence": sentence(rows, plan),
    }
    return ToolReport(text(rows, plan, cores=cores), document, csv_rows(rows), lambda: figure(rows, plan))


def text(rows: Sequence[TuneRow], plan: LoopPlan, *, cores: int) -> list[str]:
    """Return the table, seconds of all epochs of a run, the recommendation and notes."""
    head = ("", "workers", *COLUMNS, "total", "waiting", "loaded/used", "memory", "")
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
        f"{max(row.loaded):.2f}",
        f"{row.memory_mb:.0f} MB",
        mark,
    )


def waiting(row: TuneRow) -> float:
    """Return the share of the time that is not compute."""
    return 1 - row.columns["compute"] / max(row.total, 1e-9)


def sentence(rows: Sequence[TuneRow], plan: LoopPlan) -> str:
    """Return the recommendation and its reason."""
    best = recommended(rows)
    fastest = min((row for row in rows if row.setting.loader == best.setting.loader), key=lambda row: row.total)
    name = best.setting.text
    if plan.early_break and best.setting.is_ours:
        name = f"{name.removesuffix(')')}, steps_per_epoch={plan.steps})"
    per_epoch = best.total / plan.epochs
    parts = [f"Use {name}: {per_epoch:.2f} s an epoch of {plan.steps} steps, {waiting(best):.0%} of it waiting"]
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
    dropped = max((max(row.loaded) for row in rows if row.setting.loader == STOCK), default=1.0)
    if plan.early_break and dropped > _MUCH_DROPPED:
        yield (
            f"Each early `break` throws loaded batches away, up to {dropped:.2f} samples for one that was used: "
            f"packer.Loader(..., steps_per_epoch={plan.steps}) continues the pass instead."
        )
    if any(row.setting.workers > cores for row in rows):
        more = f", although the machine has {there}" if (there := os.cpu_count() or cores) > cores else ""
        yield f"With more than {cores} workers some share a core{more}."


def _figures(row: TuneRow) -> dict[str, Any]:
    return {
        "loader": row.setting.loader,
        "workers": row.setting.workers,
        "seconds": {**row.columns, "total": row.total},
        "runs": [{**run, "total": total(run)} for run in row.runs],
        "loaded_per_used": row.loaded,
        "memory_mb": row.memory_mb,
    }


def csv_rows(rows: Sequence[TuneRow]) -> list[dict[str, Any]]:
    """Return a row per setting and run, in seconds."""
    return [
        {
            "loader": row.setting.loader,
            "workers": row.setting.workers,
            "run": number + 1,
            **{name: f"{run[name]:.4f}" for name in COLUMNS},
            "total": f"{total(run):.4f}",
            "loaded_per_used": f"{loaded:.3f}",
            "memory_mb": f"{row.memory_mb:.1f}",
        }
        for row in rows
        for number, (run, loaded) in enumerate(zip(row.runs, row.loaded, strict=True))
    ]


_STACKS = {
    "compute": "compute",
    "wait": "waiting for a batch",
    "first": "until the first batch",
    "epoch": "between epochs",
}


def figure(rows: Sequence[TuneRow], plan: LoopPlan) -> Any:
    """Draw the columns, stacked, in seconds per epoch over the number of workers; raises MissingPackage."""
    best = recommended(rows)
    groups = [group for loader in LOADERS if (group := [row for row in rows if row.setting.loader == loader])]
    panels = [
        ChartPanel(
            title=group[0].setting.loader,
            xlabel=group[0].setting.noun,
            ticks=[str(row.setting.workers) for row in group],
            stacks={label: [row.columns[name] / plan.epochs for row in group] for name, label in _STACKS.items()},
            marked=group.index(best) if best in group else None,
        )
        for group in groups
    ]
    return bar_chart(panels, ylabel=f"seconds per epoch of {plan.steps} steps", mark="recommended")
