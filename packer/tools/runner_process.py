"""Runner process: what is measured runs in a process of its own that lives on between its turns.

The process is forked from a server that has imported torch and nothing else: it starts in an instant, what an earlier
run left in memory is not in its figures, and no thread of ours is there when its workers are forked. Questions and
answers are JSON.
"""

import json
import signal
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_all_start_methods, get_context, set_start_method
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from packer import errors
from packer.errors import PackerError
from packer.system.resource_usage import memory_mb

Answer = Callable[[dict[str, Any]], dict[str, Any]]
_GONE = (EOFError, BrokenPipeError, ConnectionResetError)
_PRELOADED = ["torch", "cv2", "packer.tools.runner_process"]
_LOOK_S = 0.1  # between two looks at the memory
_END_S = 10.0


class RunnerProcess:
    """A process that answers questions with `prepare(*given)`, which it calls at the first one."""

    def __init__(self, name: str, prepare: Callable[..., Answer], *given: Any) -> None:
        """prepare, given: picklable. name: for messages."""
        self.name = name
        method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
        context: Any = get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(_PRELOADED)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, prepare, given))
        self._process.start()
        theirs.close()
        self._receive()  # it is there
        self._idle_mb = self._own_mb()
        self.peak_mb = 0.0  # beyond what the idle process had

    def _own_mb(self) -> float:
        return memory_mb(self._process.pid)["own"]

    def ask(self, question: dict[str, Any], *, watch: bool = False) -> dict[str, Any]:
        """The answer; raises what went wrong there. watch: look at the memory of its processes meanwhile."""
        with suppress(*_GONE):
            self._pipe.send_bytes(json.dumps(question).encode())
        while watch and not self._pipe.poll(_LOOK_S):
            self.peak_mb = max(self.peak_mb, self._own_mb() - self._idle_mb)
        if watch:
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
    """The body of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, for the process that asks
    # the way that we were started in is no business of a DataLoader's workers: the first one is the system's default
    set_start_method(get_all_start_methods()[0], force=True)
    # that there are more workers than cores is what the user wants to know about, and is said in other words
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
                told = {"message": _plain(error.message), "reasons": error.reasons}
                text = json.dumps({"error": type(error).__name__, **told})
            except Exception as error:  # of a user's function: anything; told to the process that asks, and raised here
                pipe.send_bytes(json.dumps({"error": "PackerError", "message": _described(error)}).encode())
                raise
            pipe.send_bytes(text.encode())


def _plain(message: str) -> str:
    """What a DataLoader brings from a worker process, without the traceback that it wraps it in."""
    if not message.startswith("Caught "):
        return message
    last = [line for line in message.splitlines() if line.strip()][-1]
    return last.partition(": ")[2] or last


def _described(error: Exception) -> str:
    """One line: where a user's function or a library failed, and with what."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{last.filename}:{last.lineno}: {last.name} raised {type(error).__name__}: {text}"
