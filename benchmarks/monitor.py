"""What packer.monitor costs: a loop of 5 ms steps with it and without, in turn, and its own time per step."""

import io
import time
from collections.abc import Iterable
from typing import Any

import base

import packer
from packer.system.resource_usage import Nvml

STEP_S = 0.005
KEYS = [f"class/photo-{number:05d}.jpg" for number in range(32)]


class Batches:
    """Batches that are ready, with keys."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Any:
        return ({"key": KEYS} for _ in range(self.count))


def spinning(batches: Iterable[Any]) -> float:
    """Milliseconds per step of a loop whose body takes 5 ms of one core."""
    started, count = time.perf_counter(), 0
    for _ in batches:
        until = time.perf_counter() + STEP_S
        while time.perf_counter() < until:
            pass
        count += 1
    return (time.perf_counter() - started) / count * 1e3


def empty(batches: Iterable[Any], count: int) -> float:
    """Microseconds of CPU per step of a loop that does nothing."""
    started = time.thread_time()
    for _ in batches:
        pass
    return (time.thread_time() - started) / count * 1e6


def main() -> None:
    args = base.arguments(__doc__ or "", rounds=9, steps=400)
    out = io.StringIO()
    steps, many = args.steps, 100_000
    loops = {
        "5 ms steps": lambda: spinning(Batches(steps)),
        "5 ms steps, monitored": lambda: spinning(packer.monitor(Batches(steps), out=out)),
        "nothing": lambda: empty(Batches(many), many),
        "nothing, monitored": lambda: empty(packer.monitor(Batches(many), out=out), many),
    }
    found = base.interleaved(loops, args.rounds)
    own = [b - a for a, b in zip(found["nothing"], found["nothing, monitored"], strict=True)]
    rows = {
        "5 ms steps": base.spread(found["5 ms steps"], "ms", 4),
        "5 ms steps, monitored": base.spread(found["5 ms steps, monitored"], "ms", 4),
        "monitored / not (wanted: < 1.01)": f"{base.ratio(found, '5 ms steps, monitored', '5 ms steps'):.5f}",
        "monitor's own CPU time": base.spread(own, "us per step"),
        "of a 5 ms step": f"{sorted(own)[len(own) // 2] / (STEP_S * 1e6):.4%}",
        "GPUs that it asked": "none here" if Nvml.open() is None else "yes, every 0.5 s",
    }
    base.report("packer.monitor", rows, {**found, "own_us": own}, args)


if __name__ == "__main__":
    main()
