"""The command line in a forked child, with a fault at one chosen system call: by strace, which needs no preparation.

The child is forked from the test, so that a run costs milliseconds and its calls are those of the command alone. Unless
it is told otherwise it works in one thread, so that they come in one order, and with buffers of a few bytes, so that a
tiny part takes every path of a large one.
"""

import ctypes
import faulthandler
import functools
import gc
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from packer import cli
from packer.cli import run as run_packer
from packer.conversion import build_part, writer
from packer.conversion.engines import local
from packer.copies import stager
from packer.formats import _column_part, lmdb, pth
from tests.support.child_processes import fork

WRITING = (
    *("write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "copy_file_range", "fsync", "fdatasync"),
    *("syncfs", "sync_file_range", "msync", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat"),
    *("rmdir", "mkdir", "mkdirat", "ftruncate", "truncate", "fallocate", "symlink", "symlinkat"),
)
_OPENING = ("open", "openat", "creat")
_SECONDS = 60
PROGRAMS: dict[
    str, Callable[..., object]
] = {}  # what a user writes in Python, by the first word: called with the others
_PR_SET_PTRACER = 0x59616D61  # linux/prctl.h


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, or the signal that ended it, and all that it printed."""

    code: int | None
    signal: int | None
    text: str


@dataclass(frozen=True)
class Call:
    """The number-th call of one kind, from 1, of a run; path: of those that name it, where that is not empty."""

    name: str
    number: int
    text: str
    path: str = ""


@dataclass(frozen=True)
class Fault:
    """What happens instead of a call; what: as strace has it, such as error=EIO or signal=KILL."""

    call: Call
    what: str

    @property
    def words(self) -> list[str]:
        """Options of strace."""
        chosen = ["-P", self.call.path] if self.call.path else []
        return [*chosen, "-e", f"inject={self.call.name}:{self.what}:when={self.call.number}"]


class _AtOnce(Executor):
    """An executor without threads."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **options))
        except BaseException as error:  # noqa: BLE001  as an executor does
            done.set_exception(error)
        return done


def small_buffers() -> None:
    """Buffers of a few hundred bytes, in this process."""
    _column_part._MOST_BUFFERED = 300
    lmdb._COMMIT_BYTES = 1500


def in_one_thread() -> None:
    """Small buffers and no threads of `ordered_map`, in this process: all is done in the order of the parts."""
    small_buffers()

    def one_by_one(function: Callable[[Any], Any], items: Iterable[Any], **_: Any) -> Iterator[Any]:
        yield from map(function, items)

    build_part.ordered_map = one_by_one  # type: ignore[assignment]
    local.ordered_map = one_by_one  # type: ignore[assignment]
    stager.ordered_map = one_by_one  # type: ignore[assignment]
    pth.ordered_map = one_by_one  # type: ignore[assignment]
    writer.ThreadPoolExecutor = _AtOnce  # type: ignore[misc, assignment]


class Run:
    """A command that waits in its child until `go`."""

    def __init__(self, words: Iterable[str | Path], prepare: Callable[[], None] = in_one_thread) -> None:
        """prepare: called in the child before the command."""
        reading, self._gate = os.pipe()
        self._output, writing = os.pipe()  # no limit on files and no full disk touches it; it holds 64 KiB
        self.pid = fork()
        if self.pid == 0:
            os.close(self._gate)
            os.close(self._output)
            _work([str(word) for word in words], writing, reading, prepare)
        os.close(reading)
        os.close(writing)

    def go(self) -> None:
        """Let the command begin."""
        os.write(self._gate, b"x")  # closing alone would not do: later runs inherit it
        os.close(self._gate)

    def poll(self) -> Ended | None:
        """Its end, if it has come."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        code = os.waitstatus_to_exitcode(status)
        return Ended(code if code >= 0 else None, -code if code < 0 else None, self._printed())

    def wait(self) -> Ended:
        """Its end; a run that takes longer than a minute is killed, and an AssertionError."""
        deadline = time.monotonic() + _SECONDS
        while True:
            ended = self.poll()
            if ended is not None:
                return ended
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"hangs: {self._printed()}")
            time.sleep(0.001)

    def _printed(self) -> str:
        os.set_blocking(self._output, False)  # a process that the command started may still hold the other end
        text = b""
        with suppress(BlockingIOError):
            while block := os.read(self._output, 1 << 16):
                text += block
        os.close(self._output)
        return text.decode()


def _work(words: list[str], output: int, gate: int, prepare: Callable[[], None]) -> None:
    """In the child; does not return. Until the command begins a signal ends it as it ends any program."""
    code: Any = 70
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        gc.disable()  # else the child, a copy, might finalize what the test has dropped, with all its calls
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)  # no matter where it is not needed
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.stdout = os.fdopen(1, "w", closefd=False)  # pytest has put others there
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        sys.argv = ["packer", *words]
        if words[0] in PROGRAMS:
            cli.main = click.Command("program", callback=functools.partial(PROGRAMS[words[0]], *words[1:]))
            del sys.argv[1:]
        prepare()
        os.read(gate, 1)
        signal.signal(signal.SIGINT, interrupt)
        try:
            run_packer()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001  what the interpreter would do at its end
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        os._exit(code if isinstance(code, int) else 1)


def run(
    words: Iterable[str | Path],
    folder: Path,
    *,
    fault: Fault | None = None,
    prepare: Callable[[], None] = in_one_thread,
) -> Ended:
    """Run a command, with a fault at one of its calls; folder: where the log of strace is put."""
    begun = Run(words, prepare)
    if fault is None:
        begun.go()
        return begun.wait()
    log = folder / "log"
    with _traced(begun.pid, [fault.call.name], log, fault.words):
        begun.go()
        ended = begun.wait()
    assert fault.what.startswith("signal=") or "INJECTED" in log.read_text(), f"{fault} was not met: {ended}"
    return ended


def calls(words: Iterable[str | Path], folder: Path) -> list[Call]:
    """The calls of a run without fault that write: to files of its own, not to the terminal."""
    begun = Run(words, in_one_thread)
    log = folder / "log"
    with _traced(begun.pid, [*WRITING, *_OPENING], log, []):
        begun.go()
        ended = begun.wait()
    assert ended.code == 0, ended
    found, counts = [], Counter[tuple[str, str]]()
    for line in log.read_text().splitlines():
        match = re.match(rf'{begun.pid} +(\w+)\((?:(?:\w+, )?"([^"]*)")?(.*)', line)
        if match is None:  # the end of a call, or one of another process that a library starts
            continue
        name, text = match[1], match[3]
        path = match[2] if name in _OPENING else ""  # what else is opened differs from run to run
        counts[name, path] += 1
        is_reading = name in _OPENING and name != "creat" and "O_CREAT" not in text and "O_TMPFILE" not in text
        if not is_reading and not (name == "write" and re.match(r"\d+ +write\([12],", line)):
            found.append(Call(name, counts[name, path], match[0], path))
    return found


class _traced:  # noqa: N801  used as a function
    """strace on a process, from before the block to after it."""

    def __init__(self, pid: int, names: Iterable[str], log: Path, words: list[str]) -> None:
        base = ["strace", "-f", "-o", str(log), "-e", "signal=none", "-e", f"trace={','.join(names)}"]
        self._words = [*base, *words, "-p", str(pid)]

    def __enter__(self) -> None:
        self._strace = subprocess.Popen(self._words, stderr=subprocess.PIPE, text=True)
        assert self._strace.stderr is not None
        for line in self._strace.stderr:
            if "attached" in line:
                return
        raise AssertionError(f"strace does not attach: {self._words}")

    def __exit__(self, *_: object) -> None:
        self._strace.communicate()


@functools.cache
def why_no_strace() -> str:
    """Why faults cannot be injected by strace here; empty where they can."""
    if shutil.which("strace") is None:
        return "strace is not installed (apt-get install strace)"
    pid = fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
        time.sleep(_SECONDS)
        os._exit(0)
    try:
        words = ["strace", "-f", "-e", "trace=write", "-e", "inject=write:error=EIO:when=1", "-p", str(pid)]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            said = strace.stderr.readline()
            strace.terminate()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return "" if "attached" in said else f"strace cannot trace a process here: {said.strip()}"
