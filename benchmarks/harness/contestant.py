"""The process of one contestant: `python -m benchmarks.harness.contestant PEER JOB`, with JOB as one line of JSON.

Lines on standard input: `prepare` writes the peer's own format; `warm` runs an epoch that does not count, watches the
memory and takes the mean of every pixel; `epoch` runs one that counts. Each is answered by one line of JSON on what was
standard output at the start; what the libraries print goes to standard error. The end of the input ends the process.
"""

import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from benchmarks.harness.images import Image
from benchmarks.harness.job import PASSES, Job
from packer.system.resource_usage import MemoryWatch, cpu_seconds

STEP = 16  # px between the pixels that are looked at in an epoch that counts


class Check:
    """What was delivered: how many images, of which sizes, and the mean of their colors."""

    def __init__(self, step: int) -> None:
        self.step, self.images, self.pixels = step, 0, 0
        self.sums = np.zeros(3)
        self.sizes: set[str] = set()

    def add(self, batch: Image) -> None:
        """Count a batch, (n, height, width, 3) or (n, 3, height, width)."""
        if batch.dtype != np.uint8 or batch.ndim != 4 or 3 not in (batch.shape[1], batch.shape[3]):
            raise ValueError(f"a batch of {batch.dtype} {batch.shape}: expected uint8 with three colors")
        last = batch if batch.shape[3] == 3 else batch.transpose(0, 2, 3, 1)
        seen = last[:, :: self.step, :: self.step]
        rows = np.ascontiguousarray(seen).reshape(-1, seen.shape[2] * 3)
        self.sums += rows.sum(axis=0, dtype=np.uint64).reshape(-1, 3).sum(axis=0)
        self.pixels += rows.size // 3
        self.images += len(batch)
        self.sizes.add(f"{last.shape[2]}x{last.shape[1]}")

    def report(self) -> dict[str, Any]:
        """As JSON: mean is of red, green, blue."""
        mean = [round(float(total) / max(1, self.pixels), 3) for total in self.sums]
        return {"images": self.images, "mean": mean, "sizes": sorted(self.sizes)}


def measure(batches: Iterable[Image], step: int) -> dict[str, Any]:
    """Run through an epoch: wall and CPU seconds, seconds until the first batch, what was delivered."""
    check, first = Check(step), None
    cpu, start = cpu_seconds(os.getpid()), time.perf_counter()
    for batch in batches:
        if first is None:
            first = time.perf_counter() - start
        check.add(batch)
    seconds = time.perf_counter() - start
    used = cpu_seconds(os.getpid()) - cpu
    return {**check.report(), "seconds": seconds, "cpu_seconds": used, "first_batch_seconds": first}


def warm(batches: Iterable[Image]) -> dict[str, Any]:
    """An epoch that looks at every pixel and at the memory."""
    with MemoryWatch() as watch:
        found = measure(batches, 1)
    return {**found, "memory_mb": watch.peak}


def versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of the distributions; those that are not there are left out."""
    found = {"python": sys.version.split()[0]}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def answers(peer: Any, job: Job, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """One answer per line."""
    epoch: Callable[[], Iterator[Image]] | None = None
    rested: float | None = None
    passes = PASSES.get(job.task, 1)
    for line in lines:
        if line.strip() == "prepare":
            peer.prepare(job)
            yield {}
            continue
        idle = cpu_seconds(os.getpid()) - rested if rested is not None else 0.0
        epoch = epoch or peer.epochs(job)
        batches = itertools.chain.from_iterable(epoch() for _ in range(passes))
        if line.strip() == "warm":
            yield {**warm(batches), "versions": versions(peer.PACKAGES)}
        else:
            yield {**measure(batches, STEP), "idle_cpu_seconds": idle}
        rested = cpu_seconds(os.getpid())


def main(arguments: list[str]) -> None:
    name, text = arguments
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        peer = importlib.import_module(f"benchmarks.peers.{name}")
        for answer in answers(peer, Job.from_text(text), sys.stdin):
            out.write(json.dumps(answer) + "\n")
            out.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
