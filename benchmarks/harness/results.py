"""Figures of a comparison: medians, ratios of runs that took turns, what looks wrong, one JSON document and a table."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.base import spread

LIMIT, OURS = "limit", "packer"  # the peers that the others are compared with; the first variant that ran
# how far a color's mean may lie from the limit's, of 255: the fast DCT shifts it by 1.3, crops are random
TOLERANCE = {"full": 2.0, "rrc": 3.0, "raw224": 0.1, "big": 8.0}
_EPOCH = ("images", "seconds", "cpu_seconds", "first_batch_seconds", "sizes", "mean", "idle_cpu_seconds")


@dataclass
class Line:
    """One contestant at one task. warm and epochs: its answers, see contestant.py. prepared: seconds and bytes."""

    peer: str
    variant: str
    task: str
    does: str
    prepared: dict[str, float]
    warm: dict[str, Any]
    epochs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Peer and variant."""
        return f"{self.peer} {self.variant}".strip()

    @property
    def rates(self) -> list[float]:
        """Images per second, epoch by epoch."""
        return [epoch["images"] / epoch["seconds"] for epoch in self.epochs]


@dataclass(frozen=True)
class Absent:
    """A contestant without figures, and why."""

    name: str
    task: str
    reason: str


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """Median of one / other over the rounds."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def first(lines: Sequence[Line], peer: str) -> Line | None:
    """The line that ratios to a peer refer to."""
    return next((line for line in lines if line.peer == peer), None)


def doubts(line: Line, expected: int, reference: Sequence[float] | None) -> list[str]:
    """Reasons to think that a contestant did not do the work that the others did."""
    found = []
    counts = {answer["images"] for answer in (line.warm, *line.epochs)}
    if counts != {expected}:
        found.append(f"delivered {', '.join(map(str, sorted(counts)))} images, not {expected}")
    if len(line.warm["sizes"]) != 1:
        found.append(f"sizes {', '.join(line.warm['sizes'])}")
    if reference is not None:
        off = max(abs(a - b) for a, b in zip(line.warm["mean"], reference, strict=True))
        if off > TOLERANCE[line.task]:
            found.append(f"mean color differs by {off:.1f}")
    idle = sum(epoch["idle_cpu_seconds"] for epoch in line.epochs)
    if idle > 0.05 * sum(epoch["cpu_seconds"] for epoch in line.epochs):
        found.append(f"used {idle:.1f} s of CPU outside its turns")
    return found


def summary(lines: Sequence[Line], expected: int) -> list[dict[str, Any]]:
    """The figures of one task, fastest first."""
    limit, ours = first(lines, LIMIT), first(lines, OURS)
    found = []
    for line in lines:
        used = [epoch["cpu_seconds"] / epoch["images"] * 1000 for epoch in line.epochs]
        row = {
            "name": line.name,
            "peer": line.peer,
            "variant": line.variant,
            "task": line.task,
            "does": line.does,
            "versions": line.warm["versions"],
            "prepared": line.prepared,
            "images_per_second": {"median": statistics.median(line.rates), "all": line.rates},
            "of_limit": ratio(line.rates, limit.rates) if limit else None,
            "packer_is": ratio(ours.rates, line.rates) if ours else None,
            "cpu_seconds_per_1000": statistics.median(used),
            "first_batch_seconds": statistics.median(epoch["first_batch_seconds"] for epoch in line.epochs),
            "memory_mb": line.warm["memory_mb"],
            "mean": line.warm["mean"],
            "size": "/".join(line.warm["sizes"]),
            "doubts": doubts(line, expected, limit.warm["mean"] if limit else None),
            "epochs": [{name: epoch[name] for name in _EPOCH} for epoch in line.epochs],
        }
        found.append(row)
    return sorted(found, key=lambda row: -row["images_per_second"]["median"])


def document(machine: dict[str, Any], settings: dict[str, Any], tasks: dict[str, Any]) -> dict[str, Any]:
    """Everything, for --json and --output. tasks: task -> {"set": ..., "contestants": summary, "absent": [...]}."""
    return {"title": "comparison with other loaders", "machine": machine, "settings": settings, "tasks": tasks}


def table(task: str, found: dict[str, Any]) -> str:
    """One task as a Markdown table, with what is missing and what is in doubt below it."""
    head = (
        f"**{task}**: {found['set']['images']} images, {found['set']['bytes'] / 1e6:.0f} MB",
        "",
        "| | images/s | of the limit | packer is | CPU s per 1000 | first batch, s | memory, MB | stored, MB |",
        "|---|---|---|---|---|---|---|---|",
    )
    rows = [_row(row) for row in found["contestants"]]
    notes = [f"* {row['name']}: {doubt}" for row in found["contestants"] for doubt in row["doubts"]]
    notes += [f"* {absent['name']}: no figures: {absent['reason']}" for absent in found["absent"]]
    return "\n".join([*head, *rows, "", *notes])


def _row(row: dict[str, Any]) -> str:
    cells = (
        row["name"],
        " ".join(spread(row["images_per_second"]["all"], "", 0).split()),
        "" if row["of_limit"] is None else f"{row['of_limit']:.2f}",
        "" if row["packer_is"] is None else f"{row['packer_is']:.2f}x",
        f"{row['cpu_seconds_per_1000']:.2f}",
        f"{row['first_batch_seconds']:.2f}",
        f"{row['memory_mb']['own']:.0f}",
        f"{row['prepared']['bytes'] / 1e6:.0f}" if row["prepared"]["bytes"] else "",
    )
    return f"| {' | '.join(cells)} |"
