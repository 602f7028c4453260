"""Sweep: data sets loaded in several ways, one after the other, each in a process of its own.

The processes are forked from a server that has imported torch and nothing else. They start in an instant, their memory
is not that of earlier runs, and they have no threads when their workers are forked. Questions and answers are JSON.
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
    from packer.tools.workload import LoaderSetting, Subject

Answer = Callable[[Any], dict[str, Any]]
Say = Callable[[str], object]
_GONE = (EOFError, BrokenPipeError, ConnectionResetError)
_PRELOADED = ["torch", "cv2", "packer.tools.sweep"]
_LOOK_S = 0.1  # between two measurements of the memory
_END_S = 10.0


@dataclass
class SweepRow(ABC):
    """One data set loaded in one way.

    Attributes:
        turns: The figures of its turns, one per round.
        memory_mb: The peak memory of its processes, beyond that of an idle process.
        warm_shares: The share of its bytes that stayed in memory, per round. Empty if the files were not dropped.
    """

    subject: "Subject"
    setting: "LoaderSetting"
    turns: list[dict[str, Any]] = field(default_factory=list)
    memory_mb: float = 0.0
    warm_shares: list[float | None] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"{self.subject.name} through {self.setting.short}"

    @property
    @abstractmethod
    def latest(self) -> str:
        """The result of the latest turn, for progress messages."""


def sweep(
    rows: Sequence[SweepRow],
    prepare: Callable[..., Answer],
    *given: Any,
    rounds: int,
    cold: bool,
    keeps_processes: bool,
    say: Say,
) -> None:
    """Run one turn of every row per round, and keep the figures of the turns in the rows.

    The question to a process is True for a turn that only warms it up, and False for a turn that counts.

    Args:
        rows: The rows. The sweep fills their turns.
        prepare: Called in a row's process with the function that opens its data set, its setting and `given`.
        given: Further arguments of `prepare`; picklable.
        rounds: Number of rounds.
        cold: Drop the files of the subject from the page cache before each turn, which has a new process.
        keeps_processes: Warm up a process per row, watch its memory meanwhile, and keep it for all rounds. Otherwise
            each turn has a new process, whose memory is watched.
        say: Called with a line for each turn.

    Raises:
        PackerError: Opening or loading a data set failed.
    """
    files = {row.subject: row.subject.files() for row in rows} if cold else {}

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
                    row.warm_shares.append(drop(files[row.subject]).share)
                if kept:
                    row.turns.append(kept[at].ask(False))
                else:
                    with started(row) as process:
                        row.turns.append(process.ask(False, watch=True))
                    row.memory_mb = max(row.memory_mb, process.peak_mb)
                say(f"round {number + 1} of {rounds}: {row.name}: {row.latest}")


def cold_notes(rows: Sequence[SweepRow]) -> Iterator[str]:
    """Yield a sentence for each data set that was measured cold.

    The sentence states whether all files had left the page cache before every run.
    """
    shares: dict[str, list[float | None]] = {}
    for row in rows:
        shares.setdefault(row.subject.name, []).extend(row.warm_shares)
    return (cold_sentence(name, found) for name, found in shares.items() if found)


class RunnerProcess:
    """A process that answers questions with the function that `prepare(*given)` returns at the first question."""

    def __init__(self, name: str, prepare: Callable[..., Answer], *given: Any) -> None:
        """Start the process. prepare, given: picklable. name: for messages."""
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
        """Return the answer to a JSON value; raise the process's error. watch: measure its memory meanwhile."""
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
        """End the process; may be called twice."""
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
    """Answer questions until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks handles it
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
    """Return one line: the place where a user's function or a library failed, and its error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{last.filename}:{last.lineno}: {last.name} raised {type(error).__name__}: {text}"
