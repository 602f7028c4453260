"""Delays of known length injected into read, decode, transform and step: what profile and monitor make of them."""

import io
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import base

import packer
from packer.formats import lmdb
from packer.images.backends import strict_jpeg
from packer.tools.profile import profile


class Delay:
    """A sleep, and how long the sleeps really were: on a busy machine they are longer than was asked for."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.slept = 0.0

    def __call__(self) -> None:
        started = time.perf_counter()
        time.sleep(self.seconds)
        self.slept += time.perf_counter() - started

    def before(self, owner: Any, name: str) -> Any:
        """A patch: the function sleeps before it does its work."""
        real: Callable[..., Any] = getattr(owner, name)

        def slow(*given: Any, **named: Any) -> Any:
            self()
            return real(*given, **named)

        return mock.patch.object(owner, name, slow)


def transforming(pack: Path, delay: Delay | None) -> Any:
    """The data set with a transform that sleeps, or does nothing."""

    def transform(sample: Any) -> Any:
        if delay is not None:
            delay()
        return sample

    return packer.open(pack, fields=("image",), transform=transform)


def shares(pack: Path, samples: int, seconds: float) -> dict[str, float]:
    """Of each stage: the time that it took longer than without the delay / the time that was slept in it."""
    indices, found = range(samples), {}
    plain = profile(transforming(pack, None), indices, batch_size=8)
    for stage in ("read", "decode", "transform"):
        delay = Delay(seconds)
        with ExitStack() as patches:
            if stage == "read":
                patches.enter_context(delay.before(lmdb.Reader, "read"))
            elif stage == "decode":
                patches.enter_context(delay.before(strict_jpeg.library(), "decode"))
            slow = profile(transforming(pack, delay if stage == "transform" else None), indices, batch_size=8)
        found[stage] = (slow.of(stage) - plain.of(stage)) * samples / 1e3 / delay.slept
    step = Delay(seconds)
    monitor = packer.monitor(packer.Loader(packer.open(pack, fields=("image",)), 8), out=io.StringIO())
    for _ in monitor:
        step()
    found["step"] = monitor.report().compute_seconds / step.slept
    return found


def main() -> None:
    args = base.arguments(__doc__ or "", delay_ms=20.0, samples=32, rounds=7)
    found: dict[str, list[float]] = {}
    with base.scratch() as scratch:
        pack = scratch / "set.pack"
        base.seconds([*base.PACKER, "convert", base.photos(None, scratch, args.samples), pack])
        for number in range(args.rounds + 1):
            for stage, share in shares(pack, args.samples, args.delay_ms / 1e3).items():
                if number:
                    found.setdefault(stage, []).append(share)
    rows = {f"{stage}, attributed / slept": base.spread(values, "", 3) for stage, values in found.items()}
    worst = max(abs(statistics.median(values) - 1) for values in found.values())
    rows["largest error of a median (wanted: <= 10 %)"] = f"{worst:.1%}"
    base.report(f"Injected delays of {args.delay_ms} ms", rows, found, args)


if __name__ == "__main__":
    main()
