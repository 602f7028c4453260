"""What `packer tune` says: the five columns, the recommendation in one sentence, and the same as JSON and CSV."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from packer.measure.figures import table
from packer.measure.setting import OURS, STOCK
from packer.measure.tune import COLUMNS, TOLERANCE, Plan, Row, chosen, recommended, total

CSV_HEAD = ("loader", "workers", "run", "epoch", "first", "compute", "wait", "total", "loaded_per_used", "memory_mb")
_MUCH_WAITING = 0.1
_MUCH_DROPPED = 1.05


def text(rows: Sequence[Row], plan: Plan, *, cores: int) -> list[str]:
    """The table, seconds of all epochs of a run, and what is to be said of it."""
    head = ("", "workers", *COLUMNS, "total", "waiting", "loaded/used", "memory")
    best = recommended(rows)
    cells = [_cells(row, "<-" if row is best else "") for row in rows]
    return [*table((*head, ""), cells), "", sentence(rows, plan), *_notes(rows, plan, cores)]


def _cells(row: Row, mark: str) -> tuple[str, ...]:
    columns = row.columns
    return (
        *(row.setting.loader, str(row.setting.workers)),
        *(f"{columns[name]:.2f}" for name in COLUMNS),
        *(f"{row.total:.2f}", f"{waiting(row):.0%}", f"{max(row.loaded):.2f}", f"{row.memory_mb:.0f} MB", mark),
    )


def waiting(row: Row) -> float:
    """The share of the time that is not compute."""
    return 1 - row.columns["compute"] / max(row.total, 1e-9)


def sentence(rows: Sequence[Row], plan: Plan) -> str:
    """What to use, and why."""
    best = recommended(rows)
    same = [row for row in rows if row.setting.loader == best.setting.loader]
    fastest = min(same, key=lambda row: row.total)
    per_epoch = best.total / plan.epochs
    steps = f", steps_per_epoch={plan.steps})" if plan.early_break and best.setting.loader == OURS else ""
    name = best.setting.text.removesuffix(")") + steps if steps else best.setting.text
    told = f"Use {name}: {per_epoch:.2f} s an epoch of {plan.steps} steps, {waiting(best):.0%} of it waiting"
    if fastest is not best:
        noun = "threads" if best.setting.loader == OURS else "workers"
        told += f"; {fastest.setting.workers} {noun} are no more than {TOLERANCE:.0%} faster"
    other = chosen(rows, STOCK if best.setting.loader == OURS else OURS)
    if other is not None:
        told += f"; {other.setting.text} takes {other.total / best.total:.2f} times as long"
    return told + "."


def _notes(rows: Sequence[Row], plan: Plan, cores: int) -> Iterator[str]:
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


def document(rows: Sequence[Row], plan: Plan, **options: Any) -> dict[str, Any]:
    """Everything, for programs."""
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


def csv_rows(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """A row per setting and run, in seconds, as CSV_HEAD names them."""
    return [
        (
            *(row.setting.loader, row.setting.workers, number + 1),
            *(f"{run[name]:.4f}" for name in COLUMNS),
            *(f"{total(run):.4f}", f"{loaded:.3f}", f"{row.memory_mb:.1f}"),
        )
        for row in rows
        for number, (run, loaded) in enumerate(zip(row.runs, row.loaded, strict=True))
    ]
