"""packer tune: columns that add up, the knee, and what is said."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import InvalidRequest
from packer.tools import tune
from packer.tools.measured_workload import LoaderSetting, Subject
from packer.tools.sweep import sweep
from packer.tools.tune import COLUMNS, LoopPlan, TuneRow, chosen, knee, planned, recommended, total
from tests.support import slow_datasets
from tests.support.command_line import run_with_torch
from tests.support.conversions import packed
from tests.support.measurements import row
from tests.support.slow_datasets import Sleeping
from tests.support.source_trees import photos
from tests.support.step_clock import Clock


class SleepingSubject:
    """What a sweep uses of a subject."""

    name = "sleeping"
    open = staticmethod(partial(Sleeping, 64, 0.1))


def tune_row(loader: str, workers: int, *runs: dict[str, float]) -> TuneRow:
    return TuneRow(Subject(Path("photos")), LoaderSetting(loader, workers), list(runs))


class Workers:
    """Batches as so many workers make them, one each at a time, on a machine of so many cores; only the clock moves.

    A batch takes `batch_seconds` of one core. Starting takes start_seconds per worker, ending end_seconds.
    """

    def __init__(self, clock: Clock, workers: int, *, batches: int, batch_seconds: float, cores: int = 8) -> None:
        self.clock, self.workers, self.batches = clock, workers, batches
        self.batch_seconds, self.cores = batch_seconds, cores
        self.start_seconds, self.end_seconds = 0.02, 0.005

    def __iter__(self) -> Iterator[Any]:
        self.clock.sleep(self.start_seconds * self.workers)
        began = self.clock.now
        try:
            for number in range(self.batches):
                if self.workers == 0:
                    self.clock.sleep(self.batch_seconds)
                else:
                    slowed = max(1.0, self.workers / self.cores)
                    ready = began + self.batch_seconds * slowed * (number // self.workers + 1)
                    self.clock.now = max(self.clock.now, ready)
                yield number
        finally:
            self.clock.sleep(self.end_seconds * self.workers)


def columns(workers: int, *, step: float, epochs: int = 2, **how: Any) -> dict[str, float]:
    clock = Clock()
    loader = Workers(clock, workers, **{"batches": 20, "batch_seconds": 0.1, **how})
    before = clock.now
    found = tune.run(loader, lambda _: clock.sleep(step), epochs=epochs, clock=clock)
    assert total(found) == pytest.approx(clock.now - before, abs=1e-9)  # nothing twice, nothing left out
    return found


# ---- the columns


def test_columns_are_what_was_done_in_them() -> None:
    found = columns(0, step=0.03)
    assert found == pytest.approx({"epoch": 0.0, "first": 2 * 0.1, "compute": 2 * 20 * 0.03, "wait": 2 * 19 * 0.1})
    found = columns(2, step=0.2)
    assert found == pytest.approx({"epoch": 2 * 0.01, "first": 2 * (0.04 + 0.1), "compute": 8.0, "wait": 0.0})


@given(st.integers(0, 12), st.floats(0, 0.3), st.floats(0, 0.3), st.integers(1, 3))
def test_columns_always_add_up(workers: int, step: float, batch: float, epochs: int) -> None:
    columns(workers, step=step, batch_seconds=batch, epochs=epochs)


@given(st.dictionaries(st.integers(0, 64), st.floats(0.1, 1e4), min_size=1))
def test_the_knee_is_the_smallest_that_is_nearly_the_best(totals: dict[int, float]) -> None:
    found = knee(totals)
    assert totals[found] <= 1.05 * min(totals.values())
    assert all(seconds > 1.05 * min(totals.values()) for workers, seconds in totals.items() if workers < found)


@pytest.mark.parametrize(
    ("step", "batch_seconds", "cores", "wanted"),
    [
        (0.03, 0.1, 8, 4),  # 0.1 s of loading within steps of 0.03 s: 4 workers
        (0.05, 0.1, 8, 2),
        (0.2, 0.1, 8, 1),
        (0.01, 0.1, 2, 2),  # more workers than cores make no batch sooner
    ],
)
def test_a_known_optimum_is_found(step: float, batch_seconds: float, cores: int, wanted: int) -> None:
    how = {"step": step, "batch_seconds": batch_seconds, "cores": cores, "batches": 200}
    rows = [tune_row("DataLoader", workers, columns(workers, **how)) for workers in range(9)]
    assert recommended(rows).setting.workers == wanted


@pytest.mark.full
def test_a_sleeping_data_set_is_swept() -> None:
    """0.4 s of loading a batch, within steps of 0.2 s; what is asserted differs by far more than any noise."""
    plan = LoopPlan(steps=4, epochs=1, step_seconds=0.2)
    said: list[str] = []
    subject: Any = SleepingSubject()
    settings = [
        LoaderSetting("Loader", 1, 4),
        LoaderSetting("Loader", 4, 4),
        LoaderSetting("DataLoader", 0, 4),
        LoaderSetting("DataLoader", 2, 4),
    ]
    rows = tune.tune(subject, settings, plan, rounds=1, cold=False, say=said.append)
    assert [row.setting for row in rows] == settings
    one, four, alone, two = rows
    assert one.total > four.total + 0.3
    assert alone.total > two.total
    assert all(0.79 < row.columns["compute"] < row.total for row in rows)
    assert recommended(rows) is not one
    assert len(said) == 4


def test_files_of_a_set_are_found_before_a_cold_run(tmp_path: Path) -> None:
    photos(tmp_path, 2)
    row = TuneRow(Subject(tmp_path), LoaderSetting("Loader", 1))
    sweep([row], tune.tune, rounds=0, cold=True, keeps_processes=False, say=print)
    assert row.warm_shares == []


# ---- what it says


def test_the_sentence_says_what_to_use() -> None:
    rows = [
        row("DataLoader", 0, 2, 8),
        row("DataLoader", 2, 2, 2.05),
        row("DataLoader", 4, 2, 2),
        row("Loader", 2, 2, 0),
    ]
    text = tune.text(rows, LoopPlan(steps=10, epochs=2, step_seconds=0.1), cores=4)
    assert text[-1] == (
        "Use packer.Loader(dataset, 32, threads=2): 1.00 s an epoch of 10 steps, 0% of it waiting; "
        "DataLoader(dataset, 32, num_workers=2) takes 2.02 times as long."
    )
    assert [line.endswith("<-") for line in text[1:5]] == [False, False, False, True]
    assert chosen(rows, "DataLoader") is rows[1]
    assert chosen(rows[:3], "Loader") is None


def test_what_helps_and_the_median_run_are_shown() -> None:
    rows = [row("DataLoader", 8, 1, 3)]
    text = "\n".join(tune.text(rows, LoopPlan(steps=10, epochs=2, step_seconds=0.1), cores=4))
    assert "Even so the loop waits" in text
    assert "With more than 4 workers some share a core" in text
    runs = [dict.fromkeys(COLUMNS, value / 4) for value in (3.0, 1.0, 2.0)]
    assert tune_row("Loader", 1, *runs).total == 2.0


def test_plans_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    packed(photos(tmp_path / "photos", 12), tmp_path / "photos.pack")
    subject = Subject(tmp_path / "photos.pack")
    plain: dict[str, Any] = {"steps": None, "epochs": 3, "step": None, "step_ms": None}
    assert planned(subject, 5, **plain) == LoopPlan(3, 3)
    assert planned(subject, 5, **{**plain, "step_ms": 20.0, "steps": 2}) == LoopPlan(2, 3, 0.02)
    with pytest.raises(InvalidRequest, match="one of them"):
        planned(subject, 5, **{**plain, "step_ms": 20.0, "step": "slow_datasets:step"})
    with pytest.raises(InvalidRequest, match="3 batches"):
        planned(subject, 5, **{**plain, "steps": 4})


@pytest.mark.full
def test_the_command_writes_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(photos(tmp_path / "photos", 12), tmp_path / "photos.pack")
    monkeypatch.chdir(Path(slow_datasets.__file__).parent)
    figures = tmp_path / "figures.json"
    words = ("--batch-size", "4", "--workers", "0-1", "--rounds", "1", "--epochs", "2", "--cold")
    words = (*words, "--step", "slow_datasets:step")
    done = run_with_torch("tune", tmp_path / "photos.pack", *words, "--output", figures)
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    assert [(row["loader"], row["workers"]) for row in found["rows"]] == [
        ("DataLoader", 0),
        ("DataLoader", 1),
        ("Loader", 1),
        ("Loader-workers", 1),
    ]
    for each in found["rows"]:
        assert each["seconds"]["compute"] >= 2 * 3 * 0.002
        assert each["seconds"]["total"] == pytest.approx(sum(each["seconds"][name] for name in COLUMNS))
    assert found["sentence"] in done.stdout


@pytest.mark.full
def test_a_step_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    packed(photos(tmp_path / "photos", 4), tmp_path / "photos.pack")
    done = run_with_torch("tune", tmp_path / "photos.pack", "--workers", "0", "--step", "no_such_module_4711:step")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("packer: --step 'no_such_module_4711:step': no module")
