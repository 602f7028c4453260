"""Bench: data sets through loaders, in turn; how many samples a second, with what CPU time and memory."""

import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypedDict

from torch.utils.data import Dataset

from packer.errors import PackerError
from packer.measure import caching
from packer.measure.contestant import Answer, Contestant
from packer.measure.setting import Setting, Subject, pictures, samples_in
from packer.measure.usage import cpu_seconds

_LEAST_S = 1.0  # that a turn lasts, in whole epochs
_MOST_PASSES = 50
Say = Callable[[str], object]


class Turn(TypedDict):
    """One turn's figures, of whole epochs."""

    samples: int
    seconds: float
    cpu_seconds: float
    first_batch_seconds: float


@dataclass
class Line:
    """One subject through one setting. turns: the answers of `epochs`, one per round. memory_mb: its peak."""

    subject: Subject
    setting: Setting
    stored_bytes: int  # of the whole subject, and of how many samples that is
    stored_samples: int = 0
    pictures: int = 0
    memory_mb: float = 0.0
    turns: list[Turn] = field(default_factory=list)
    warm_share: list[float | None] = field(default_factory=list)  # of its bytes in memory after dropping; --cold

    @property
    def rates(self) -> list[float]:
        """Samples per second, round by round."""
        return [turn["samples"] / turn["seconds"] for turn in self.turns]

    @property
    def rate(self) -> float:
        """Their median."""
        return statistics.median(self.rates)

    @property
    def mb_per_sample(self) -> float:
        """Stored MB of a sample, all of its fields."""
        return self.stored_bytes / max(1, self.stored_samples) / 1e6

    @property
    def cpu_per_1000(self) -> float:
        """CPU seconds of all its processes per 1000 samples."""
        return statistics.median(turn["cpu_seconds"] / turn["samples"] * 1000 for turn in self.turns)

    @property
    def first_batch_seconds(self) -> float:
        """From `iter` to the first batch."""
        return statistics.median(turn["first_batch_seconds"] for turn in self.turns)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.subject.name} through {self.setting.short}"


def run(subjects: Sequence[Subject], settings: Sequence[Setting], *, rounds: int, cold: bool, say: Say) -> list[Line]:
    """Every subject through every setting: one turn that does not count, in which memory is watched, then `rounds`.

    cold: each turn is one epoch of a new process, after the subject's files were dropped from the page cache.
    say: takes a line on what goes on. Raises what opening or decoding a subject raises.
    """
    files = {subject: subject.files() for subject in subjects}
    sizes = {subject: sum(path.stat().st_size for path in found) for subject, found in files.items()}
    lines = [Line(subject, setting, sizes[subject]) for subject in subjects for setting in settings]
    with ExitStack() as stack:
        players = []
        for line in lines:
            say(f"{line.name}: warming up")
            player = stack.enter_context(Contestant(line.name, prepare, line.subject.open, line.setting))
            passes = _warm_up(player, line)
            if cold:
                player.close()
            players.append((line, player, passes))
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for line, player, passes in players:
                if cold:
                    _cold_turn(line, caching.drop(files[line.subject]))
                else:
                    line.turns.append(_turn(player, passes))
    return lines


def _turn(player: Contestant, passes: int) -> Turn:
    answer = player.ask({"passes": passes})
    return Turn(
        samples=answer["samples"],
        seconds=answer["seconds"],
        cpu_seconds=answer["cpu_seconds"],
        first_batch_seconds=answer["first_batch_seconds"],
    )


def _warm_up(player: Contestant, line: Line) -> int:
    """A turn that does not count; returns how many epochs make one that does."""
    found = player.ask({"passes": 1}, watch=True)
    line.memory_mb = player.peak_mb
    line.stored_samples, line.pictures = found["stored_samples"], found["pictures"]
    again = _turn(player, 1)  # without the start of the workers
    return min(_MOST_PASSES, math.ceil(_LEAST_S / max(again["seconds"], 1e-6)))


def _cold_turn(line: Line, left: caching.Residency) -> None:
    line.warm_share.append(left.share)
    with Contestant(line.name, prepare, line.subject.open, line.setting) as fresh:
        line.turns.append(_turn(fresh, 1))


def prepare(open_dataset: Callable[[], Dataset[Any]], setting: Setting) -> Answer:
    """In the contestant's process: how it answers {"passes": n}."""
    started = time.perf_counter()
    dataset: Any = open_dataset()
    setting.check(dataset)
    loader = setting.make(dataset)
    opened = time.perf_counter() - started
    inner = getattr(dataset, "dataset", dataset)

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        return {
            **epochs(loader, question["passes"], len(dataset)),
            "open_seconds": opened,
            "stored_samples": len(inner),
            "pictures": pictures(dataset),
        }

    return answer


def epochs(loader: Any, passes: int, expected: int) -> Turn:
    """So many epochs: wall and CPU seconds, samples, seconds to the first batch; raises PackerError."""
    samples, first = 0, 0.0
    cpu, start = cpu_seconds(os.getpid()), time.perf_counter()
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, passes)):
        first = first or time.perf_counter() - start
        samples += samples_in(batch)
    seconds = time.perf_counter() - start
    used = cpu_seconds(os.getpid()) - cpu
    if samples != passes * expected:
        raise PackerError(f"{loader!r}: delivered {samples} samples, expected {passes * expected}; please report it")
    return {"samples": samples, "seconds": seconds, "cpu_seconds": used, "first_batch_seconds": first}
