"""Eight converters at once on one target: one makes the pack, the others are told that it is being made."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from packer import formats
from packer.files import progress_bar
from packer.pack.verification import problems
from packer.system.progress_callback import Progress
from tests.support.command_runs import load_everything
from tests.support.conversions import digest, packed
from tests.support.fault_injection import Ended, Run
from tests.support.source_trees import photos

RIVALS = 8
_PART = 5000


def race(source: Path, target: Path, format: str, *, more: tuple[str, ...] = (), wait: bool = True) -> list[Ended]:
    """How each of the converters ends. wait: the one that has the lock waits until all others have ended."""
    load_everything()
    reading, writing = os.pipe()

    def hold() -> None:
        os.close(writing)
        go_on: Callable[..., None] = progress_bar.ProgressBar.__call__

        def held(self: progress_bar.ProgressBar, now: Progress) -> None:
            if now.samples:  # it is told once before the lock is taken
                os.read(reading, 1)  # returns when the test closes the other end
            go_on(self, now)

        if wait:
            progress_bar.ProgressBar.__call__ = held  # type: ignore[method-assign]

    words = ["convert", source, target, "--to", format, "--part-size", str(_PART), *more]
    runs = [Run(words, hold) for _ in range(RIVALS)]
    for run in runs:
        run.go()
    left, found = list(runs), []
    deadline = time.monotonic() + 60
    while len(left) > (1 if wait else 0) and time.monotonic() < deadline:
        for run in list(left):
            ended = run.poll()
            if ended is not None:
                found.append(ended)
                left.remove(run)
        time.sleep(0.001)
    os.close(writing)
    os.close(reading)
    return [*found, *(run.wait() for run in left)]


@pytest.mark.one_in(22)
@pytest.mark.parametrize("format", formats.names())
@pytest.mark.parametrize("overwrite", [False, True])
def test_one_of_eight_converters_wins(tmp_path: Path, format: str, overwrite: bool) -> None:
    source, target = photos(tmp_path / "in", 6), tmp_path / "out"
    if overwrite:
        packed(source, target, to=format, resize="16")
    found = race(source, target, format, more=("--overwrite",) if overwrite else ())
    assert [ended.code for ended in found] == [5] * (RIVALS - 1) + [0], found
    for ended in found[:-1]:
        assert "another process works on the same target" in ended.text
        assert "Traceback" not in ended.text
    assert list(problems(target, level="full")) == []
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def rounds(folder: Path, format: str, number: int) -> None:
    """Races in which nobody waits: who comes late finds the lock, or the finished pack."""
    source, target = photos(folder / "in", 6), folder / "out"
    digests = set()
    for _ in range(number):
        codes = sorted(ended.code for ended in race(source, target, format, wait=False) if ended.code is not None)
        assert codes[0] == 0, codes
        assert set(codes[1:]) <= {2, 5}, codes
        assert len(codes) == RIVALS
        assert sorted(os.listdir(folder)) == ["in", "out"]
        assert list(problems(target)) == []
        digests.add(digest(target))
        shutil.rmtree(target)
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("format", "number"), [("lmdb", 2), *(pytest.param(name, 50, marks=pytest.mark.full) for name in formats.names())]
)
def test_of_eight_that_do_not_wait_one_wins(tmp_path: Path, format: str, number: int) -> None:
    rounds(tmp_path, format, number)
