"""Sweep: timed runs of data sets with several loader settings, each setting in a separate process.

The processes are forked from a server that has imported torch and OpenCV. A process therefore starts quickly, shares
no memory with earlier runs, and has no threads when a DataLoader forks workers. Messages between processes are JSON.
"""

import json
import signal
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import get_all_start_methods, get_context, set_start_method
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Any

from packer import errors
from packer.errors import PackerError
from packer.files.page_cache import cold_sentence, drop
from packer.system.resource_usage import memory_mb

if TYPE_CHECKING:  # the processes start without it
    from packer.tools.measured_workload import LoaderSetting, Subject

Answer = Callable[[Any], dict[str, Any]]
Say = Callable[[str], object]
_GONE = (EOFError, BrokenPipeError, ConnectionResetError)
_PRELOADED = ["torch", "cv2", "packer.tools.sweep"]
_LOOK_S = 0.1  # between two measurements of the memory
_END_S = 10.0


@dataclass
class SweepRow(ABC):
    """Results of one data set with one loader setting.

    Attributes:
        turns: Results of the timed runs, one dict per round.
        memory_mb: Peak memory of the processes in MB, minus the memory of an idle process.
        warm_shares: For each round, the share of the file bytes (0 to 1) that stayed in the page cache, or None if
            unknown. Empty if the page cache was not dropped.
    """

    subject: "Subject"
    setting: "LoaderSetting"
    turns: list[dict[str, Any]] = field(default_factory=list)
    memory_mb: float = 0.0
    warm_shares: list[float | None] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Names of the data set and of the loader setting, for messages."""
        return f"{self.subject.name} through {self.setting.short}"

    @property
    @abstractmethod
    def latest(self) -> str:
        """The result of the latest timed run as text, for progress messages."""


def sweep(
    rows: Sequence[SweepRow],
    prepare: Callable[..., Answer],
    *given: Any,
    rounds: int,
    cold: bool,
    keeps_processes: bool,
    say: Say,
) -> None:
    """Time every row once per round, and append the results to `turns` of the row.

    Args:
        rows: Rows with a subject and a setting.
        prepare: Called in the process of a row with a function that opens the data set, the setting and `given`.
            Returns a function that does one run. The argument of this function is True for an untimed warm-up run.
        given: Further arguments of `prepare`, which must be picklable.
        cold: True drops the files of the subject from the page cache before each run. Each run then has a new process.
        keeps_processes: True keeps one process per row for all rounds and measures its memory in a warm-up run. False
            starts a process per run and measures the memory of each process. Ignored if `cold` is true.
        say: Called with a progress message for each run.

    Raises:
        PackerError: Opening or loading a data set failed.
    """
    files = {row.subject.path: row.subject.files() for row in rows} if cold else {}

    def started(row: SweepRow) -> RunnerProcess:
        return RunnerProcess(row.name, prepare, row.subject.open, row.setting, *given)

    with ExitStack() as stack:
        kept: list[RunnerProcess] = []
        for row in rows if keeps_processes and not cold else ():
            say(f"{row.name}: warming up")
            process = stack.enter_context(started(row))
            process.ask(True, watch=True)
            row.memory_mb = process.peak_mb
            kept.append(process)
        for number in range(rounds):
            for at, row in enumerate(rows):
                if cold:
                    row.warm_shares.append(drop(files[row.subject.path]).share)
                if kept:
                    row.turns.append(kept[at].ask(False))
                else:
                    with started(row) as process:
                        row.turns.append(process.ask(False, watch=True))
                    row.memory_mb = max(row.memory_mb, process.peak_mb)
                say(f"round {number + 1} of {rounds}: {row.name}: {row.latest}")


def cold_notes(rows: Sequence[SweepRow]) -> Iterator[str]:
    """Yield a sentence for each data set that was measured with `cold` true.

    The sentence states whether all files of the data set had left the page cache before every run.
    """
    shares: dict[str, list[float | None]] = {}
    for row in rows:
        shares.setdefault(row.subject.name, []).extend(row.warm_shares)
    return (cold_sentence(name, found) for name, found in shares.items() if found)


class RunnerProcess:
    """A separate process that calls `prepare(*given)` once. `ask` then calls the function that `prepare` returned."""

    def __init__(self, name: str, prepare: Callable[..., Answer], *given: Any) -> None:
        """Start the process. `prepare` and `given` must be picklable. `name` appears in error messages."""
        self.name = name
        method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
        context: Any = get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(_PRELOADED)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, prepare, given))
        self._process.start()
        theirs.close()
        self._receive()  # the process has started
        self._idle_mb = self._own_mb()
        self.peak_mb = 0.0  # beyond the idle process

    def _own_mb(self) -> float:
        return memory_mb(self._process.pid)["own"]

    def ask(self, question: Any, *, watch: bool = False) -> dict[str, Any]:
        """Call the function in the process with `question`, a JSON value. Return its result, or raise its error.

        If `watch` is true, update the attribute `peak_mb`, the peak memory of the process, during the call.
        """
        with suppress(*_GONE):
            self._pipe.send_bytes(json.dumps(question).encode())
        is_answered = not watch
        while not is_answered:
            is_answered = self._pipe.poll(_LOOK_S)
            self.peak_mb = max(self.peak_mb, self._own_mb() - self._idle_mb)
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(self._pipe.recv_bytes())
        except _GONE:
            self._process.join(_END_S)
            code = self._process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise PackerError(f"{self.name}: its process ended with {how}; is there enough memory?") from None
        if "error" in answer:
            kind = getattr(errors, answer["error"], PackerError)
            kind = kind if issubclass(kind, PackerError) else PackerError
            raise kind(answer["message"], reasons=answer.get("reasons", ()))
        return answer

    def close(self) -> None:
        """End the process. Further calls do nothing."""
        self._pipe.close()
        for end in (None, self._process.terminate, self._process.kill):
            if end is not None:
                end()
            self._process.join(_END_S)
            if not self._process.is_alive():
                return

    def __enter__(self) -> "RunnerProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None and self._process.is_alive():
            self._process.terminate()
        self.close()


def _serve(pipe: Connection, prepare: Callable[..., Answer], given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles the signal
    set_start_method(get_all_start_methods()[0], force=True)  # the system's default, for the workers of a DataLoader
    # a sweep measures more workers than cores on purpose
    warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
    with suppress(*_GONE):
        pipe.send_bytes(b"{}")
        answer: Answer | None = None
        while True:
            question = json.loads(pipe.recv_bytes())
            try:
                answer = answer or prepare(*given)
                text = json.dumps(answer(question))
            except PackerError as error:
                found = {"error": type(error).__name__, "message": _plain(error.message), "reasons": error.reasons}
                text = json.dumps(found)
            except Exception as error:  # a user's function may raise anything
                pipe.send_bytes(json.dumps({"error": "PackerError", "message": _described(error)}).encode())
                raise
            pipe.send_bytes(text.encode())


def _plain(message: str) -> str:
    """Return a message without the traceback that a DataLoader adds to errors of its worker processes."""
    if not message.startswith("Caught "):
        return message
    last = [line for line in message.splitlines() if line.strip()][-1]
    return last.partition(": ")[2] or last


def _described(error: Exception) -> str:
    """Return an error as one line, with the place in the code that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{last.filename}:{last.lineno}: {last.name} raised {type(error).__name__}: {text}"
