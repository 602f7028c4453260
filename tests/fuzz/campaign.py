"""Campaign: targets fuzzed for some seconds of processor time each, in processes that are started anew."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.progress import Progress
from tests.fuzz.target import Finding, Target, load, name_of

ENGINES = ("atheris", "hypothesis")
_MOST_ENDS = 20  # of workers, before the rest of a target's time is given up
_TOO_LONG = 70
_TOLD = {_TOO_LONG: "time", 71: "memory"}  # exit codes, as libFuzzer has them
_OF_OURS = (1, 2)  # of Python and of libFuzzer, before any input
_WORKER_SECONDS = 180  # workers end sooner after many inputs, see worker.py
_MOST_WALL_SECONDS = 120  # for one input, on the clock: for what waits, or loops in C
_MOST_START_SECONDS = 1200  # until the first one: on a busy machine a worker of low priority starts for minutes


class WorkerFailed(Exception):
    """A worker that ended before it had an input: the fault is the target's or the engine's own."""


@dataclass(frozen=True)
class Result:
    """What became of one target. seconds: of processor time; corpus: inputs by now; findings: all files so far."""

    target: str
    engine: str
    seconds: float
    executions: int
    corpus: int
    findings: tuple[Path, ...]


def chosen(engine: str) -> str:
    """The engine for `auto`: atheris where it is installed."""
    if engine != "auto":
        return engine
    return "atheris" if find_spec("atheris") is not None else "hypothesis"


def fuzz(name: str, folder: Path, *, seconds: float, engine: str) -> Result:
    """Fuzz one target for `seconds` of processor time, which count the same on a busy machine as on a quiet one.

    Its corpus and findings are in `folder/<name>`, and go on from what is there.
    """
    target, place = load(name), folder / name
    _prepare(target, place)
    spent = 0.0
    executions = ends = 0
    while (left := seconds - spent) >= 1 and ends < _MOST_ENDS:
        progress = place / "progress"
        progress.unlink(missing_ok=True)
        code = _work(engine, name, place, int(min(left, _WORKER_SECONDS)))
        if code in _OF_OURS or not progress.exists():
            raise WorkerFailed(f"{name}: the worker failed with exit code {code}: see {place / 'log'}")
        state = Progress(progress, target.most_bytes)
        executions += state.executions
        spent += state.seconds
        if code:
            ends += 1
            _note_end(target, place, state.data, code)
    found = tuple(path for path in sorted((place / "findings").glob("*")) if path.suffix != ".txt")
    return Result(name, engine, spent, executions, corpus=len(list((place / "corpus").iterdir())), findings=found)


def _prepare(target: Target, place: Path) -> None:
    (place / "corpus").mkdir(parents=True, exist_ok=True)
    for data in target.inputs():
        if len(data) <= target.most_bytes:
            (place / "corpus" / name_of(data)).write_bytes(data)


def _work(engine: str, name: str, place: Path, seconds: int) -> int:
    """One worker; its exit code."""
    command = [sys.executable, "-m", "tests.fuzz.worker", engine, name, str(place.resolve()), str(seconds)]
    with (place / "log").open("ab") as log:
        worker = subprocess.Popen(
            [*command, str(int.from_bytes(os.urandom(3), "big"))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place,
        )
        try:
            return _waited(worker, place / "progress")
        finally:
            worker.kill()
            worker.wait()


def _waited(worker: "subprocess.Popen[bytes]", progress: Path) -> int:
    """The exit code of a worker, that of too long a time where it has been at one input for that."""
    before, since = b"", time.monotonic()
    while True:
        try:
            return worker.wait(1)
        except subprocess.TimeoutExpired:
            now = progress.read_bytes()[:8] if progress.exists() else b""
        if now != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > (_MOST_WALL_SECONDS if now else _MOST_START_SECONDS):
            return _TOO_LONG


def _note_end(target: Target, place: Path, data: bytes, code: int) -> None:
    """An input that ended its worker is a finding, and nothing to start from."""
    kind = _TOLD.get(code, "end")
    cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    log = (place / "log").read_bytes()[-8000:].decode("utf-8", "replace")
    Finding(target.name, kind, data, f"the worker ended with {cause}", log).save(place / "findings")
    (place / "corpus" / name_of(data)).unlink(missing_ok=True)
