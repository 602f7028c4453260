"""Engine: order, slices, bounds, errors, and that it can be stopped from anywhere; jobs here are made of numbers."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import InvalidRequest
from packer.loading.thread_engine import BatchJob, Pass, ThreadEngine
from tests.support.child_processes import child
from tests.support.waiting import LONG_S, packer_threads, wait_until


class Count:
    """A job of `size` samples that notes what was done to it."""

    def __init__(self, number: int, size: int, act: Callable[["Count", str], None], *, bytes: int = 1) -> None:
        self.number = number
        self.size = size
        self.act = act
        self.bytes = bytes
        self.given_up = False
        self.slices: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return self.size

    def slice(self, threads: int) -> int:
        return -(-self.size // (4 * threads))

    def fill(self, start: int, stop: int) -> None:
        self.act(self, "fill")
        self.slices.append((start, stop))

    def finish(self) -> tuple[Any, int]:
        self.act(self, "finish")
        return self, self.bytes


def nothing(job: Count, what: str) -> None:
    """What a job does without a fault."""


def jobs(count: int, size: int = 5, act: Callable[[Count, str], None] = nothing, **options: Any) -> Iterator[Count]:
    return (Count(number, size, act, **options) for number in range(count))


def engine(
    made: Iterator[BatchJob], *, threads: int = 2, most_bytes: int = 1000, most_batches: int = 8
) -> ThreadEngine:
    return ThreadEngine(made, threads=threads, most_bytes=most_bytes, most_batches=most_batches)


def taken(running: ThreadEngine) -> Iterator[Any]:
    while True:
        try:
            yield next(running)
        except StopIteration:
            return


@given(st.lists(st.integers(1, 40), max_size=12), st.integers(1, 5), st.integers(1, 4), st.integers(0, 20))
def test_batches_come_in_order_and_each_sample_is_filled_once(
    lengths: list[int], threads: int, most_batches: int, most_bytes: int
) -> None:
    made = (Count(number, size, nothing) for number, size in enumerate(lengths))
    running = engine(made, threads=threads, most_batches=most_batches, most_bytes=most_bytes)
    found = list(taken(running))
    assert [job.number for job in found] == list(range(len(lengths)))
    for job in found:
        covered = [at for start, stop in sorted(job.slices) for at in range(start, stop)]
        assert covered == list(range(job.size))
        assert len(job.slices) <= 4 * threads
    with pytest.raises(StopIteration):
        next(running)
    assert not packer_threads()


@pytest.mark.parametrize(
    ("most_batches", "most_bytes", "bytes", "bound"),
    [(5, 10**6, 1, 5), (8, 40, 10, 4), (8, 0, 10, 2), (1, 10**6, 1, 2), (8, 10**6, 0, 8)],
)
def test_a_slow_consumer_is_not_run_ahead_of(most_batches: int, most_bytes: int, bytes: int, bound: int) -> None:
    begun: list[int] = []

    def note(job: Count, what: str) -> None:
        if what == "fill" and job.number not in begun:
            begun.append(job.number)

    running = engine(jobs(100, 1, note, bytes=bytes), threads=3, most_batches=most_batches, most_bytes=most_bytes)
    for got in range(1, 20):
        next(running)
        wait_until(lambda most=got + bound: len(begun) >= most)  # type: ignore[misc]
        time.sleep(0.003)  # it could go too far now
        assert len(begun) == got + bound
    running.stop()


def test_only_two_are_begun_before_the_size_of_one_is_known() -> None:
    gate = threading.Event()
    begun: list[int] = []

    def wait(job: Count, what: str) -> None:
        if what == "fill":
            begun.append(job.number)
            gate.wait(LONG_S)

    running = engine(jobs(100, 1, wait, bytes=500), threads=6, most_bytes=1000)
    wait_until(lambda: len(begun) == 2)
    time.sleep(0.02)
    assert len(begun) == 2
    gate.set()
    next(running)
    running.stop()


class Fault(BaseException):
    """Something that nobody would catch by chance."""


@pytest.mark.parametrize("what", ["fill", "finish"])
@pytest.mark.parametrize("kind", [ValueError, Fault, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_comes_in_its_turn(what: str, kind: type[BaseException], threads: int) -> None:
    def fail(job: Count, now: str) -> None:
        if job.number == 3 and now == what:
            raise kind("in the thread")

    running = engine(jobs(9, 5, fail), threads=threads)
    assert [next(running).number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(kind) as caught:
        next(running)
    assert caught.value.args == ("in the thread",)
    assert not packer_threads()
    with pytest.raises(StopIteration):
        next(running)


def test_a_stop_iteration_does_not_end_the_epoch_in_silence() -> None:
    def fail(job: Count, what: str) -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        next(engine(jobs(9, 5, fail)))


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_of_begin_comes_after_what_was_begun(kind: type[BaseException]) -> None:
    def made() -> Iterator[BatchJob]:
        yield from jobs(3)
        raise kind("no more")

    running = engine(made())
    assert [next(running).number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(kind, match="no more"):
        next(running)
    assert not packer_threads()


def test_an_error_does_not_wait_for_what_nobody_wants_any_more() -> None:
    """The other slices of the batch are told to give up."""
    started = threading.Event()

    class Slow(Count):
        def fill(self, start: int, stop: int) -> None:
            if start == 0:
                started.wait(LONG_S)
                raise ValueError("early")
            started.set()
            wait_until(lambda: self.given_up)

    running = engine(iter([Slow(0, 8, nothing)]), threads=2)
    with pytest.raises(ValueError, match="early"):
        next(running)
    assert not packer_threads()


@pytest.mark.parametrize("where", ["begin", "fill", "finish"])
def test_an_error_leaves_no_memory_behind(where: str) -> None:
    """Not even until the next garbage collection: tensors are worth more than a few cycles."""
    held: list[weakref.ref[Count]] = []

    def fail(job: Count, now: str) -> None:
        if now == where:
            raise ValueError(now)

    def made() -> Iterator[BatchJob]:
        for job in jobs(3, 5, fail):
            held.append(weakref.ref(job))
            yield job
        raise ValueError("begin")

    gc.collect()
    gc.disable()
    try:
        running = engine(made(), threads=3)
        with pytest.raises(ValueError, match=where):
            list(taken(running))
        del running
        assert held
        assert not [reference for reference in held if reference() is not None]
    finally:
        gc.enable()


def test_a_taken_batch_is_not_held_by_the_engine() -> None:
    running = engine(jobs(50), threads=4)
    for _ in range(20):
        job = next(running)
        reference = weakref.ref(job)
        del job
        wait_until(lambda reference=reference: reference() is None)  # type: ignore[misc]
    running.stop()


def test_a_thread_of_its_own_may_stop_it() -> None:
    hand: list[ThreadEngine] = []

    def stop(job: Count, what: str) -> None:
        if job.number == 2:
            hand[0].stop()

    running = engine(jobs(9, 1, stop), threads=2, most_batches=2)
    hand.append(running)
    with pytest.raises(StopIteration):
        for _ in range(9):
            next(running)
    wait_until(lambda: not packer_threads())


def test_a_finalizer_may_stop_it_in_the_thread_that_holds_the_lock() -> None:
    """The garbage collector runs finalizers anywhere, also between two lines of the engine itself."""
    running = engine(jobs(100), threads=3)
    next(running)
    with running._lock:
        running.stop()
    wait_until(lambda: not packer_threads())


def test_a_child_after_fork_neither_takes_nor_waits() -> None:
    running = engine(jobs(100))
    batches: Pass[Count] = Pass(running)
    next(batches)

    def forked() -> str:
        with pytest.raises(InvalidRequest, match="forked child"):
            next(batches)
        running.stop()
        return "ended"

    with running._lock:  # as if a thread of the parent had held it at that moment
        outcome = child(forked, timeout_seconds=LONG_S)
    assert outcome.value == "ended", outcome
    assert next(running).number == 1
    running.stop()


def test_where_no_thread_can_be_started_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        engine(jobs(9), threads=4)
    assert not packer_threads()
