"""ordered_map keeps order, stays inside its window, and leaves no thread behind; cores are counted as granted."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.system import parallel
from packer.system.parallel import ordered_map, usable_cores


def running() -> list[str]:
    """Threads of ordered_map that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("packer-map")]


@given(st.lists(st.integers()), st.integers(1, 5), st.none() | st.integers(1, 9))
def test_results_come_in_the_order_of_the_items(items: list[int], threads: int, window: int | None) -> None:
    assert list(ordered_map(str, items, threads=threads, window=window)) == [str(item) for item in items]


def test_a_slow_first_item_does_not_change_the_order() -> None:
    last_done = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert last_done.wait(30)
        elif item == 3:
            last_done.set()
        return item

    assert list(ordered_map(work, range(8), threads=2, window=4)) == list(range(8))


def test_no_more_items_are_taken_than_the_window_allows() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(100):
            taken += 1
            yield item

    results = ordered_map(lambda item: item, items(), threads=2, window=3)
    for used, item in enumerate(results, 1):
        assert item == used - 1
        assert taken <= used + 3
    assert taken == 100


def test_one_thread_starts_none() -> None:
    names = list(ordered_map(lambda item: threading.current_thread().name, range(3), threads=1))
    assert set(names) == {threading.current_thread().name}


def test_one_thread_apart_works_while_the_caller_does() -> None:
    begun = [threading.Event() for _ in range(4)]

    def work(item: int) -> str:
        begun[item].set()
        return threading.current_thread().name

    names = []
    for item, name in enumerate(ordered_map(work, range(4), threads=1, background=True)):
        assert begun[min(item + 1, 3)].wait(30)  # while this one is looked at
        names.append(name)
    assert len(set(names)) == 1 and names[0].startswith("packer-map")
    assert not running()


def test_the_first_exception_is_raised_at_its_turn_and_ends_the_threads() -> None:
    def work(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    results = ordered_map(work, range(1000), threads=3)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    assert running() == []


def test_an_exception_of_the_items_reaches_the_caller_and_ends_the_threads() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(ordered_map(str, items(), threads=2, window=2))
    assert running() == []


def test_leaving_early_ends_the_threads_and_starts_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    leaving = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            leaving.set()  # only now the items that are running may end
            super().shutdown(wait=wait)

    def work(item: int) -> None:
        started.append(item)
        if item:
            assert leaving.wait(30)

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Pool)
    results = ordered_map(work, range(1000), threads=2, window=50)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert running() == []
    assert len(started) <= 3


@pytest.mark.parametrize(
    ("content", "most"),
    [("max 100000", None), ("100000 100000", 1), ("150000 100000", 2), ("1000 100000", 1), ("0 0", None), ("x", None)],
)
def test_the_quota_of_the_cgroup_cuts_the_cores(tmp_path: Path, content: str, most: int | None) -> None:
    (tmp_path / "cpu.max").write_text(content)
    available = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path) == (available if most is None else min(available, most))


def test_without_a_cgroup_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none") == len(os.sched_getaffinity(0))


def test_the_affinity_of_the_process_is_respected() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
