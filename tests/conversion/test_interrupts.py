"""Conversions that are killed or interrupted at any moment: absent or whole, and continued with the same bytes."""

import os
import shutil
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from packer import formats
from packer.pack.verification import problems
from tests.support.command_runs import load_everything
from tests.support.conversions import digest
from tests.support.fault_injection import Run
from tests.support.source_trees import photos

_SAMPLES = 60
_PARTS = 6


def nothing() -> None:
    """The command as it is, with its threads."""


def end_at_moments(folder: Path, format: str, number: signal.Signals, count: int) -> Counter[str]:
    """Send the signal at moments spread evenly over a conversion; returns what each came to.

    "early": before a part was finished; "resumed": after; "complete": after the pack was there.
    """
    load_everything()
    source, target = photos(folder / "in", _SAMPLES, height=100, width=100), folder / "out"
    size = sum(path.stat().st_size for path in source.rglob("*.jpg"))
    words = ["convert", source, target, "--to", format, "--resize", "64", "--threads", "2"]
    words += ["--part-size", str(size // _PARTS + 1000)]
    length, clean = 0.0, ""
    for _ in range(2):  # the first one also warms up
        shutil.rmtree(target, ignore_errors=True)
        begun, started = Run(words, nothing), time.monotonic()
        begun.go()
        assert begun.wait().code == 0
        length, clean = time.monotonic() - started, digest(target)
    found = Counter[str]()
    for moment in range(count):
        shutil.rmtree(target)
        begun = Run(words, nothing)
        begun.go()
        time.sleep(length * (moment + 0.5) / count)
        os.kill(begun.pid, number)
        found[after(begun, words, target, number)] += 1
        assert digest(target) == clean
        shutil.rmtree(target.with_name(f".{target.name}.partial"), ignore_errors=True)
    return found


def after(begun: Run, words: list[str | Path], target: Path, number: signal.Signals) -> str:
    """How the run ended and what it left; then the same command is run to its end."""
    ended = begun.wait()
    if number is signal.SIGKILL:
        assert ended.signal == number or ended.code == 0, ended
    else:  # a signal before the handlers are set, or after all is done, ends the process as signals do
        assert ended.code in (0, 128 + number) or ended.signal == number, ended
        assert "Traceback" not in ended.text, ended
        assert "the same command continues" in ended.text or ended.code != 128 + number, ended
    if target.exists():
        assert list(problems(target, level="full")) == []
        return "complete"
    pieces = target.with_name(f".{target.name}.partial") / "pieces"
    state = "resumed" if pieces.is_dir() and any(pieces.iterdir()) else "early"
    again = Run(words, nothing)
    again.go()
    ended = again.wait()
    assert ended.code == 0, ended
    return state


@pytest.mark.one_in(11)
@pytest.mark.parametrize("count", [3, pytest.param(50, marks=pytest.mark.full)])
@pytest.mark.parametrize("format", formats.names())
def test_a_killed_conversion_is_continued(tmp_path: Path, format: str, count: int) -> None:
    found = end_at_moments(tmp_path, format, signal.SIGKILL, count)
    print(f"\n{format}: {dict(found)}")  # noqa: T201  the figure that is asked for
    assert found.total() == count
    assert found["resumed"] or count == 3


@pytest.mark.one_in(22)
@pytest.mark.parametrize("count", [2, pytest.param(10, marks=pytest.mark.full)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("format", formats.names())
def test_an_interrupted_conversion_is_continued(
    tmp_path: Path, format: str, number: signal.Signals, count: int
) -> None:
    assert end_at_moments(tmp_path, format, number, count).total() == count
