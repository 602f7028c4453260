"""Rows of `packer tune` and `packer bench` with given figures."""

from pathlib import Path
from typing import Any

from packer.measure.bench import Line, Turn
from packer.measure.setting import Setting, Subject
from packer.measure.tune import Row


def row(loader: str, workers: int, compute: float, wait: float, *, loaded: float = 1.0) -> Row:
    """A row of one run."""
    return Row(
        Setting(loader, workers, persistent=False),
        [{"epoch": 0.0, "first": 0.0, "compute": compute, "wait": wait}],
        loaded=[loaded],
    )


def line(name: str, loader: str, workers: int, *rates: float, **more: Any) -> Line:
    """A line whose turns had those samples per second."""
    turns = [Turn(samples=100, seconds=100 / rate, cpu_seconds=0.5, first_batch_seconds=0.02) for rate in rates]
    given = {"stored_samples": 100, "pictures": 1, "memory_mb": 12.0} | more
    return Line(Subject(Path(name)), Setting(loader, workers), 50_000_000, turns=turns, **given)
