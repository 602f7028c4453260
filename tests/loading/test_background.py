"""BackgroundIterator and DataLoaderX: they run ahead and no further, end with their consumer, and lose no exception."""

import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from packer.errors import InvalidRequest
from packer.loading import BackgroundIterator, CUDAPrefetcher, DataLoaderX, background_iterator
from tests.support.child_processes import child
from tests.support.waiting import LONG_S, packer_threads, wait_until

NUMBERS = TensorDataset(torch.arange(20))

# what makes an iterable one that runs ahead, and what its items are
WAYS: dict[str, Callable[[Any], Any]] = {
    "BackgroundIterator": BackgroundIterator,
    "CUDAPrefetcher": lambda given: CUDAPrefetcher(given, "cpu"),
}


@pytest.fixture(params=WAYS)
def ahead(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return WAYS[request.param]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_items_come_in_order_and_no_more_is_made_than_was_said(depth: int) -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            made.append(number)
            yield number

    iterator = BackgroundIterator(items(), depth)
    for taken in range(20):
        assert next(iterator) == taken
        most = min(20, taken + 1 + depth)
        wait_until(lambda most=most: len(made) >= most)  # type: ignore[misc]
        time.sleep(0.002)
        assert len(made) == most
    assert next(iterator, None) is None and next(iterator, None) is None
    assert not packer_threads()


def test_it_stands_in_for_a_background_generator() -> None:
    assert BackgroundIterator(range(3), max_prefetch=1).next() == 0
    iterator = BackgroundIterator(range(2), 1)
    assert [iterator.next(), iterator.next()] == [0, 1]
    with pytest.raises(StopIteration):
        iterator.next()
    assert len(BackgroundIterator([1, 2, 3])) == 3
    assert list(BackgroundIterator(iter("abc"))) == ["a", "b", "c"]
    assert [*BackgroundIterator([None, (), (1,)])] == [None, (), (1,)]
    with pytest.raises(TypeError, match="len"):
        len(BackgroundIterator(iter("abc")))
    for depth in (0, -1, 1.5):
        with pytest.raises(InvalidRequest, match="depth"):
            BackgroundIterator([], depth)  # type: ignore[arg-type]


def test_a_hundred_early_breaks_leave_no_thread(ahead: Callable[[Any], Any]) -> None:
    closed = []

    def items() -> Iterator[int]:
        try:
            yield from count()
        finally:
            closed.append(threading.current_thread().name)

    for number in range(100):
        for item in ahead(items()):
            if item == number % 3:
                break
        assert not packer_threads()
    gc.collect()
    assert closed == ["packer-background"] * 100, "a generator is closed in the thread that runs it"


def test_a_break_lets_go_of_what_was_made_ahead(ahead: Callable[[Any], Any]) -> None:
    class Value:
        """A batch."""

    made: list[weakref.ref[Value]] = []

    def items() -> Iterator[Value]:
        while True:
            value = Value()
            made.append(weakref.ref(value))
            yield value
            del value

    gc.disable()
    try:
        for _item in ahead(items()):
            if len(made) > 3:
                break
        del _item
        assert [each() for each in made] == [None] * len(made)
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("good", [0, 1, 3])
def test_every_exception_reaches_the_consumer(ahead: Callable[[Any], Any], kind: Any, good: int) -> None:
    def items() -> Iterator[int]:
        yield from range(good)
        raise kind("no")

    found = []
    with pytest.raises(kind, match="no") as caught:
        for item in ahead(items()):
            found.append(item)
    assert found == list(range(good))
    assert "raise kind" in "".join(traceback.format_exception(caught.value)), "the place in the loader is lost"
    assert not packer_threads()


def test_an_error_of_iter_is_raised_at_once() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        BackgroundIterator(3)  # type: ignore[arg-type]
    assert not packer_threads()


def test_an_error_is_raised_once_and_leaves_no_memory() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no")

    iterator = BackgroundIterator(items())
    held = weakref.ref(iterator.channel)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="no"):
            list(iterator)
        assert next(iterator, None) is None
        del iterator
        assert held() is None
    finally:
        gc.enable()


def test_close_and_with_end_the_thread() -> None:
    with BackgroundIterator(count()) as iterator:
        assert next(iterator) == 0
        assert packer_threads()
    assert not packer_threads() and next(iterator, None) is None
    prefetcher = CUDAPrefetcher([torch.zeros(1)] * 9, "cpu")
    with prefetcher as entered:
        batches = iter(entered)
        next(batches)
        assert packer_threads()
    assert not packer_threads() and next(batches, None) is None
    prefetcher.next(), prefetcher.next()
    prefetcher.close()
    assert not packer_threads()
    assert len(list(prefetcher)) == 9, "a closed prefetcher begins again"


def test_a_forked_child_is_told(ahead: Callable[[Any], Any]) -> None:
    batches = iter(ahead(count()))
    next(batches)
    outcome = child(lambda: next(batches))
    assert (outcome.kind, outcome.error) == ("error", "InvalidRequest"), outcome
    assert "forked child" in outcome.message
    assert next(batches) == 1
    batches.close()


def test_a_stopped_thread_that_still_reads_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a loader that hands out one iterator, as one with persistent workers does."""
    monkeypatch.setattr(background_iterator, "_JOIN_S", 0.0)  # as if an item took longer than that
    reading, together = threading.Event(), []

    class One:
        def __iter__(self) -> "One":
            return self

        def __next__(self) -> int:
            together.append(reading.is_set())
            reading.set()
            time.sleep(0.05)
            reading.clear()
            return 1

    prefetcher = CUDAPrefetcher(One(), "cpu", depth=1)
    for _ in range(3):
        batches = iter(prefetcher)
        next(batches)
        assert reading.wait(LONG_S)  # its thread is in the middle of the second item
        del batches
    prefetcher.wait_for_the_end()
    assert len(together) >= 3 and not any(together)


# ---- DataLoaderX


class Failing(Dataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        if index == 6:
            raise KeyError("six")
        return torch.tensor(index)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_x_gives_what_a_data_loader_gives(workers: int) -> None:
    options: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    stock, ours = DataLoader(NUMBERS, 3, **options), DataLoaderX(NUMBERS, 3, **options)
    assert len(ours) == len(stock) == len(iter(ours)) == 7
    for _ in range(2):
        one, other = ([batch[0].tolist() for batch in loader] for loader in (stock, ours))
        assert one == other
    with pytest.raises(KeyError, match="six"):
        list(DataLoaderX(Failing(), 2, **options))
    assert not packer_threads()


def test_data_loader_x_keeps_persistent_workers_through_breaks() -> None:
    loader = DataLoaderX(
        NUMBERS, 2, num_workers=1, persistent_workers=True, multiprocessing_context="fork", prefetch_factor=1
    )
    found: Any = None
    for _ in range(5):
        for batch in loader:
            if batch[0][0] == 2:
                break
        pids = [worker.pid for worker in loader._iterator._workers]  # type: ignore[union-attr, attr-defined]
        assert found in (None, pids)
        found = pids
        assert batch[0].tolist() == [2, 3]
    assert [batch[0].tolist() for batch in loader] == [[at, at + 1] for at in range(0, 20, 2)]
    assert not packer_threads()
