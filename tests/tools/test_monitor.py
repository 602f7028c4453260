"""packer.monitor: waits and computing told apart, and what is said at the end."""

import gc
import io
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer.tools.wait_monitor import Monitor, Report
from tests.support.conversions import packed
from tests.support.source_trees import photos
from tests.support.step_clock import Clock


class Slow:
    """Batches that are awaited; only the clock moves."""

    def __init__(self, clock: Clock, waits: list[float]) -> None:
        self.clock, self.waits = clock, waits
        self.closed = 0

    def __len__(self) -> int:
        return len(self.waits)

    def __iter__(self) -> Iterator[Any]:
        try:
            for number, seconds in enumerate(self.waits):
                self.clock.sleep(seconds)
                yield [number]
        finally:
            self.closed += 1


def watched(clock: Clock, loader: Any, out: Any = None) -> Monitor:
    return Monitor(loader, clock=clock, out=out or io.StringIO())


seconds = st.integers(0, 10_000).map(lambda milliseconds: milliseconds / 1000)


@given(st.lists(seconds, min_size=1, max_size=60), seconds, st.integers(1, 3))
def test_waits_and_steps_are_attributed(waits: list[float], step: float, epochs: int) -> None:
    clock = Clock()
    monitor = watched(clock, Slow(clock, waits))
    for _ in range(epochs):
        for _batch in monitor:
            clock.sleep(step)
        clock.sleep(99)  # between epochs: in neither
    report = monitor.report()
    assert (report.steps, report.epochs) == (epochs * len(waits), epochs)
    assert report.wait_seconds == pytest.approx(epochs * sum(waits), abs=1e-8)
    assert report.first_seconds == pytest.approx(epochs * waits[0], abs=1e-8)
    assert report.compute_seconds == pytest.approx(epochs * step * len(waits), abs=1e-8)
    whole = sum(waits) + step * len(waits)
    assert report.share == pytest.approx(sum(waits) / whole if whole else 0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("wait", "step", "verdict"),
    [(0.063, 0.037, "data-bound: 63 % waiting"), (0.0, 0.02, "compute-bound: 0 % waiting")]
    + [(0.009, 0.091, "compute-bound: 9 % waiting"), (0.011, 0.089, "data-bound: 11 % waiting")],
)
def test_the_verdict(wait: float, step: float, verdict: str) -> None:
    clock = Clock()
    monitor = watched(clock, Slow(clock, [wait] * 10))
    for _ in monitor:
        clock.sleep(step)
    assert monitor.report().verdict == verdict
    assert str(monitor.report()).startswith(f"packer.monitor: {verdict} (")


def test_the_step_that_breaks_off_is_counted_and_the_loader_let_go() -> None:
    clock = Clock()
    loader = Slow(clock, [0.5] * 10)
    monitor = watched(clock, loader)
    for number, _ in enumerate(monitor):
        clock.sleep(0.25)
        if number == 3:
            break
    gc.collect()
    assert loader.closed == 1
    assert monitor.report().compute_seconds == pytest.approx(4 * 0.25)
    with pytest.raises(ZeroDivisionError):
        for _ in monitor:
            clock.sleep(1)
            raise ZeroDivisionError
    assert monitor.report().compute_seconds == pytest.approx(4 * 0.25 + 1)


def test_a_loaders_error_goes_through() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(watched(Clock(), broken()))


def test_percentiles_are_shown() -> None:
    clock = Clock()
    waits = [0.9, *(number / 1000 for number in range(1, 100))]
    monitor = watched(clock, Slow(clock, waits))
    for _ in monitor:
        clock.sleep(0.001)
    marks = [f"{percent} % within {np.percentile(waits, percent) * 1e3:.1f}" for percent in (50, 90, 99)]
    assert f"waits in ms: {', '.join(marks)}, longest 900.0" in str(monitor.report())


def test_batches_of_any_kind_pass_through() -> None:
    for batches in ([torch.zeros(2)] * 3, [(1, 2)] * 3, [{"image": 1}] * 3):
        monitor = watched(Clock(), batches)
        assert monitor.report().steps == 0
        assert list(monitor) == batches


def test_no_batch_is_held_while_the_loop_works_on_it() -> None:
    class Batch:
        pass

    monitor = watched(Clock(), (Batch() for _ in range(2)))
    for batch in monitor:
        watch = weakref.ref(batch)
        del batch
        assert watch() is None


def test_what_else_is_asked_for_is_the_loaders(tmp_path: Path) -> None:
    packed(photos(tmp_path / "photos", 12), tmp_path / "photos.pack")
    monitor = packer.monitor(packer.Loader(packer.open(tmp_path / "photos.pack"), 5), out=io.StringIO())
    assert len(monitor) == 3
    monitor.set_epoch(4)
    assert monitor.epoch == 4
    assert [len(batch["key"]) for batch in monitor] == [5, 5, 2]
    assert monitor.state_dict()["epoch"] == 5
    assert repr(monitor).startswith("monitor(Loader(")
    with pytest.raises(AttributeError):
        monitor.no_such_thing  # noqa: B018
    with pytest.raises(TypeError):
        len(watched(Clock(), iter([])))


# ---- at the end


def test_the_end_is_told_once() -> None:
    out, clock = io.StringIO(), Clock()
    monitor = watched(clock, Slow(clock, [1.0, 1.0]), out)
    list(monitor)
    assert out.getvalue() == ""
    told = str(monitor.report())
    list(monitor)
    del monitor
    gc.collect()
    assert out.getvalue().startswith("packer.monitor: data-bound: 100 % waiting (4.00 of 4.00 s, 4 steps in 2 epochs; ")
    assert told != out.getvalue()


def test_what_was_told_or_never_ran_is_not_told_again() -> None:
    for run in (True, False):
        out, clock = io.StringIO(), Clock()
        monitor = watched(clock, Slow(clock, [1.0]), out)
        if run:
            list(monitor)
            monitor.report()
        del monitor
        gc.collect()
        assert out.getvalue() == ""
    assert "0 steps in 0 epochs" in str(Report(0, 0, 0.0, 0.0, 0.0, ()))
