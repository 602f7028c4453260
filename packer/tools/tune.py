"""Tune: a sweep over the number of workers, in five columns that add up to the wall time.

| column  | from -> to                                                                              |
|---------|-----------------------------------------------------------------------------------------|
| epoch   | end of the last step -> the old iterator is gone: time to shut down the old workers     |
| first   | start of the pass -> first batch in hand: iterator, workers that start, first batch     |
| compute | the steps                                                                               |
| wait    | end of a step -> next batch in hand                                                     |
| total   | the sum of the four                                                                     |

The table is that of GG-CNN's users (OneOneLiu/ggcnn_cornell_dataset, time_result_pro.xls), in which the gap between
epochs and all first waits but one are counted twice; here nothing is.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import zeros
from torch.utils.data import Dataset, get_worker_info

from packer.errors import InvalidRequest
from packer.tools import cold_files
from packer.tools.output import table
from packer.tools.runner_process import Answer, RunnerProcess
from packer.tools.workload import LOADERS, STOCK, LoaderSetting, Subject, evenly, load_function

COLUMNS = ("epoch", "first", "compute", "wait")
TOLERANCE = 0.05  # how much slower than the best a setting with fewer workers may be
_MOST_WORKERS = 1024
_MOST_STEPS = 100  # of an epoch, where the user does not say
Clock = Callable[[], float]
Columns = dict[str, float]  # seconds


@dataclass(frozen=True)
class SweepPlan:
    """What every setting does: `epochs` of `steps` batches, back to back.

    step: `module:function`, called with each batch; or None, and the loop sleeps step_seconds, as one that waits for a
    GPU. early_break: each pass is broken off after `steps` batches, as GG-CNN's training does; else it ends there.
    """

    steps: int
    epochs: int = 3
    step_seconds: float = 0.0
    step: str | None = None
    early_break: bool = False

    def function(self) -> Callable[[Any], object]:
        """What is done with a batch."""
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
) -> SweepPlan:
    """The plan that a user asked for; raises InvalidRequest for what does not fit the subject.

    steps: batches of an epoch, None for all, at most 100. step_ms: milliseconds that a step takes; step: a function.
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
    settled = steps or min(there, _MOST_STEPS)
    return SweepPlan(settled, epochs, (step_ms or 0) / 1e3, step, early_break)


@dataclass
class TuneRow:
    """One setting, in seconds of runs, all epochs of a run together.

    loaded: of each run, samples that were made for one that was used. memory_mb: the peak of its processes.
    """

    setting: LoaderSetting
    runs: list[Columns] = field(default_factory=list)
    loaded: list[float] = field(default_factory=list)
    memory_mb: float = 0.0

    @property
    def columns(self) -> Columns:
        """Of the run with the median total."""
        return sorted(self.runs, key=total)[(len(self.runs) - 1) // 2]

    @property
    def total(self) -> float:
        """Seconds of that run."""
        return total(self.columns)


def total(columns: Columns) -> float:
    """The sum of the columns: the wall time."""
    return sum(columns[name] for name in COLUMNS)


def sweep(
    open_dataset: Callable[[], Dataset[Any]],
    settings: Sequence[LoaderSetting],
    plan: SweepPlan,
    *,
    rounds: int,
    drop: Callable[[], cold_files.Residency] | None = None,
    say: Callable[[str], object],
) -> list[TuneRow]:
    """Every setting once per round, in turn, each run in a new process; raises what goes wrong there.

    open_dataset: picklable. drop: called before each run, to have it cold.
    """
    rows = [TuneRow(setting) for setting in settings]
    for number in range(rounds):
        for row in rows:
            left = drop() if drop is not None else None
            with RunnerProcess(row.setting.short, prepare, open_dataset, row.setting, plan) as player:
                found = player.ask({}, watch=True)
                row.memory_mb = max(row.memory_mb, player.peak_mb)
            row.runs.append(found["columns"])
            row.loaded.append(found["loaded"])
            warm = "" if left is None or left.share is None else f", {left.share:.0%} of SOURCE was in memory"
            say(f"run {number + 1} of {rounds}: {row.setting.short}: {total(row.runs[-1]):.2f} s{warm}")
    return rows


def prepare(open_dataset: Callable[[], Dataset[Any]], setting: LoaderSetting, plan: SweepPlan) -> Answer:
    """In the run's process."""
    dataset = open_dataset()
    setting.check(dataset)
    step = plan.function()

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        return measure(dataset, setting, plan, step)

    return answer


def measure(dataset: Any, setting: LoaderSetting, plan: SweepPlan, step: Callable[[Any], object]) -> dict[str, Any]:
    """One run: seconds per column, and how many samples were made for one that was used."""
    steps = plan.steps if plan.early_break else 0
    wanted = dataset if plan.early_break else evenly(dataset, plan.steps * setting.batch_size)
    if setting.is_ours:
        # what a Loader has for such loops: an endless stream, of which an epoch takes so many batches
        loader = setting.make(wanted, steps_per_epoch=steps or None)
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
    """Epochs back to back, in the columns' seconds; their sum is the wall time.

    break_after: leave each pass as loops that count in the body do: one more batch is fetched and dropped. 0: never.
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
    """A data set that counts what is asked of it, in whatever process."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._counts = zeros(_MOST_WORKERS + 1).share_memory_()  # type: ignore[no-untyped-call]  # a place per worker
        self._offers_batches = hasattr(dataset, "__getitems__")
        self.schema = getattr(dataset, "schema", ())

    @property
    def count(self) -> int:
        """Samples made so far."""
        return int(self._counts.sum())

    @property
    def dataset(self) -> Any:
        """What is counted, as a Subset has it."""
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


# ---- what is to be learnt from it


def knee(totals: dict[int, float], tolerance: float = TOLERANCE) -> int:
    """The smallest number of workers whose total is within `tolerance` of the lowest. totals: workers -> seconds."""
    lowest = min(totals.values())
    return min(workers for workers, seconds in totals.items() if seconds <= lowest * (1 + tolerance))


def chosen(rows: Sequence[TuneRow], loader: str) -> TuneRow | None:
    """The knee's row of one loader; None where it took no part."""
    found = {row.setting.workers: row for row in rows if row.setting.loader == loader}
    return found[knee({workers: row.total for workers, row in found.items()})] if found else None


def recommended(rows: Sequence[TuneRow]) -> TuneRow:
    """The knee of the loader that is fastest at its own."""
    knees = [row for loader in LOADERS if (row := chosen(rows, loader)) is not None]
    return min(knees, key=lambda row: row.total)


# ---- the report: columns, the recommendation in one sentence, JSON and CSV

CSV_HEAD = ("loader", "workers", "run", "epoch", "first", "compute", "wait", "total", "loaded_per_used", "memory_mb")
_MUCH_WAITING = 0.1
_MUCH_DROPPED = 1.05


def text(rows: Sequence[TuneRow], plan: SweepPlan, *, cores: int) -> list[str]:
    """The table, seconds of all epochs of a run, and what is to be said of it."""
    head = ("", "workers", *COLUMNS, "total", "waiting", "loaded/used", "memory")
    best = recommended(rows)
    cells = [_cells(row, "<-" if row is best else "") for row in rows]
    return [*table((*head, ""), cells), "", sentence(rows, plan), *_notes(rows, plan, cores)]


def _cells(row: TuneRow, mark: str) -> tuple[str, ...]:
    columns = row.columns
    return (
        row.setting.loader,
        str(row.setting.workers),
        *(f"{columns[name]:.2f}" for name in COLUMNS),
        f"{row.total:.2f}",
        f"{waiting(row):.0%}",
        f"{max(row.loaded):.2f}",
        f"{row.memory_mb:.0f} MB",
        mark,
    )


def waiting(row: TuneRow) -> float:
    """The share of the time that is not compute."""
    return 1 - row.columns["compute"] / max(row.total, 1e-9)


def sentence(rows: Sequence[TuneRow], plan: SweepPlan) -> str:
    """What to use, and why."""
    best = recommended(rows)
    same = [row for row in rows if row.setting.loader == best.setting.loader]
    fastest = min(same, key=lambda row: row.total)
    per_epoch = best.total / plan.epochs
    steps = f", steps_per_epoch={plan.steps})" if plan.early_break and best.setting.is_ours else ""
    name = best.setting.text.removesuffix(")") + steps if steps else best.setting.text
    told = f"Use {name}: {per_epoch:.2f} s an epoch of {plan.steps} steps, {waiting(best):.0%} of it waiting"
    if fastest is not best:
        told += f"; {fastest.setting.workers} {best.setting.noun} are no more than {TOLERANCE:.0%} faster"
    others = (chosen(rows, loader) for loader in LOADERS if loader != best.setting.loader)
    for other in filter(None, others):
        told += f"; {other.setting.text} takes {other.total / best.total:.2f} times as long"
    return told + "."


def _notes(rows: Sequence[TuneRow], plan: SweepPlan, cores: int) -> Iterator[str]:
    best = recommended(rows)
    if plan.step is None and not plan.step_seconds:
        yield "No step was given, so this is loading alone: --step-ms 20 stands for a GPU's work, --step for your own."
    elif waiting(best) > _MUCH_WAITING:
        yield (
            f"Even so the loop waits: no number of workers feeds {best.columns['compute'] / plan.epochs:.2f} s of "
            "compute an epoch without a pause; `packer profile` says what takes the time."
        )
    dropped = max((max(row.loaded) for row in rows if row.setting.loader == STOCK), default=1.0)
    if plan.early_break and dropped > _MUCH_DROPPED:
        yield (
            f"Each early `break` throws loaded batches away, up to {dropped:.2f} samples for one that was used: "
            f"packer.Loader(..., steps_per_epoch={plan.steps}) goes on where it was."
        )
    if any(row.setting.workers > cores for row in rows):
        more = f", although the machine has {there}" if (there := os.cpu_count() or cores) > cores else ""
        yield f"With more than {cores} workers some share a core{more}."


def document(rows: Sequence[TuneRow], plan: SweepPlan, options: Mapping[str, object]) -> dict[str, Any]:
    """Everything, for programs. options: what the user asked for."""
    found = [
        {
            "loader": row.setting.loader,
            "workers": row.setting.workers,
            "seconds": {**row.columns, "total": row.total},
            "runs": [{**run, "total": total(run)} for run in row.runs],
            "loaded_per_used": row.loaded,
            "memory_mb": row.memory_mb,
        }
        for row in rows
    ]
    best = recommended(rows)
    return {
        "title": "packer tune",
        "options": {**options, **vars(plan)},
        "rows": found,
        "recommended": {"loader": best.setting.loader, "workers": best.setting.workers},
        "sentence": sentence(rows, plan),
    }


def csv_rows(rows: Sequence[TuneRow]) -> list[tuple[Any, ...]]:
    """A row per setting and run, in seconds, as CSV_HEAD names them."""
    return [
        (
            row.setting.loader,
            row.setting.workers,
            number + 1,
            *(f"{run[name]:.4f}" for name in COLUMNS),
            f"{total(run):.4f}",
            f"{loaded:.3f}",
            f"{row.memory_mb:.1f}",
        )
        for row in rows
        for number, (run, loaded) in enumerate(zip(row.runs, row.loaded, strict=True))
    ]
