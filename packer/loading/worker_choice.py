"""Worker choice: threads or processes, by how much threads hold each other up on the samples at hand.

Decoding and resizing let go of the interpreter, and what lies between does not: with two threads the one waits for the
other's Python. How much that is depends on the pictures, their codec, the geometry and the user's functions, so a few
samples are made by one thread and then by all at once. What counts is how long threads wait that could run: time at
which they neither run nor wait for a core, which other programs on the machine hardly change. Where threads bring most
of what cores can, they are taken: batches of a process have to be brought over, and it has its own memory.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from packer.loading.sampling import Step
from packer.system.resource_usage import ThreadTimes

LEAST_SHARE = 0.85  # of what as many cores could bring, for threads to be taken
_SECONDS = 0.05  # that a thread works in a round, at least
_FIRST, _MOST = 4, 256  # samples of a thread in a round
_ROUNDS = 3


@dataclass(frozen=True)
class WorkerChoice:
    """num_workers: processes, 0 for threads. threads: how many were tried. share: of what as many cores could bring,
    what they bring; None where there is one core, or no sample, and nothing was tried.
    """

    num_workers: int
    threads: int
    share: float | None = None

    def __str__(self) -> str:
        if self.share is None:
            return "auto: nothing to choose"
        return f"auto: {self.threads} threads wait {1 - self.share:.0%} of the time for each other"


def choose(make: Callable[[Step], object], samples: int, cores: int) -> WorkerChoice:
    """Make some of the samples by one thread and by `cores` threads, in turn.

    make: the samples of a step, in the thread that calls it; what it raises goes on. samples: how many there are, of
    which at most 256 for each thread are made, spread evenly.
    """
    if cores < 2 or not samples:
        return WorkerChoice(0, cores)
    steps = _steps(samples, cores, _FIRST)
    _timed(make, steps[0])  # everything is in memory then, and made once
    seconds = _timed(make, steps[0]).busy
    if seconds < _SECONDS:
        steps = _steps(samples, cores, min(_MOST, round(_FIRST * _SECONDS / max(seconds, 1e-6))))
        for step in steps:
            make(step)
    shares = []
    for _ in range(_ROUNDS):  # in turn, and the median counts
        alone = [_timed(make, step) for step in steps]
        with ThreadPoolExecutor(cores, "packer-loader-choice") as pool:
            together = list(pool.map(_timed, [make] * cores, steps))
        busy = sum(times.busy for times in together)
        waited_anyway = sum(times.blocked for times in alone)  # for a disk, or in the user's function
        waited = max(waited_anyway, sum(times.blocked for times in together))
        shares.append((busy + waited_anyway) / max(busy + waited, 1e-9))
    share = sorted(shares)[_ROUNDS // 2]
    return WorkerChoice(cores if share < LEAST_SHARE else 0, cores, share)


def _steps(samples: int, cores: int, count: int) -> list[Step]:
    """A step of `count` samples for each thread, no two alike where there are enough."""
    rows = np.linspace(0, samples - 1, cores * count).round().astype(np.int64)
    return [Step(part, np.zeros(len(part), np.int64)) for part in np.split(rows, cores)]


def _timed(make: Callable[[Step], object], step: Step) -> ThreadTimes:
    before = ThreadTimes.now()
    make(step)
    return ThreadTimes.now() - before
