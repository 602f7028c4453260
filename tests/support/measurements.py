"""Rows of `packer tune` and `packer bench` with given figures."""

from pathlib import Path
from typing import Any

from packer.tools.bench import BenchRow
from packer.tools.measured_workload import LoaderSetting, Subject
from packer.tools.tune import TuneRow


def row(loader: str, workers: int, compute: float, wait: float) -> TuneRow:
    """A row of one run."""
    columns = {"epoch": 0.0, "first": 0.0, "compute": compute, "wait": wait}
    setting = LoaderSetting(loader, workers, persistent=False)
    return TuneRow(Subject(Path("photos")), setting, [columns])


def line(name: str, loader: str, workers: int, *rates: float, **more: Any) -> BenchRow:
    """A row whose turns had those samples per second."""
    turns = [{"samples": 100, "seconds": 100 / rate, "cpu_seconds": 0.5, "first_batch_seconds": 0.02} for rate in rates]
    given = {"stored_bytes": 50_000_000, "stored_samples": 100, "memory_mb": 12.0} | more
    return BenchRow(Subject(Path(name)), LoaderSetting(loader, workers), turns, **given)
