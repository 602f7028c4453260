"""Parallel: map a function over items with threads, in order, and count the cores that this process may use."""

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
    """Return the number of cores that this process may use: the CPU affinity, limited by cgroup quotas; at least 1."""
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
    """Yield function(item) for each item, in order.

    The first exception ends the map. It is raised at its item's turn; items that have not started are dropped, and
    running ones awaited.

    Args:
        function: Called once per item.
        items: The items.
        threads: Number of threads. With one thread, the caller's thread makes the calls.
        window: Most items computed ahead; twice the threads by default.
        background: Start a thread even for `threads` = 1, so that the caller's thread continues.
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
