"""Parallel: an ordered map with threads, and the number of cores that this process may use."""

import itertools
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from packer.system.machine_limits import Machine

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of cores in the CPU affinity of this process, limited by cgroup CPU quotas, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = Machine(cgroup=cgroup).cpu_quota()
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def ordered_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    threads: int,
    window: int | None = None,
    background: bool = False,
) -> Iterator[Result]:
    """Yield function(item) for each item, in the order of the items.

    If a call raises an exception, the iterator first yields the results of all previous items, then raises the
    exception. Calls that have not started are canceled. The iterator waits for running calls.

    Args:
        threads: Number of threads. With one thread, the calls run in the thread that iterates.
        window: Largest number of items that are computed ahead. None selects twice the number of threads.
        background: True runs the calls in a new thread even if `threads` is 1. False changes nothing.
    """
    if threads <= 1 and not background:
        yield from map(function, items)
        return
    rest = iter(items)
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="packer-map")
    try:
        for item in itertools.islice(rest, window or 2 * threads):
            pending.append(pool.submit(function, item))
        while pending:
            result = pending.popleft().result()
            for item in itertools.islice(rest, 1):
                pending.append(pool.submit(function, item))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
