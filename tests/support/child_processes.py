"""Runs a function in a forked child and tells how it ended: with a value, an error, a signal, or not."""

import faulthandler
import json
import os
import resource
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from packer.errors import PackerError


@dataclass(frozen=True)
class Outcome:
    """How a child ended. kind: "value", "error" (a PackerError), "crash" (any other exception), "signal" or "hang".

    value: what the function returned, through JSON; error and message: class name and text of the exception.
    """

    kind: str
    value: Any = None
    error: str = ""
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None


def child(function: Callable[[], Any], *, timeout_seconds: float = 60.0) -> Outcome:
    """Run `function` in a child; it is killed when it takes longer."""
    reading, writing = os.pipe()
    pid = fork()
    if pid == 0:
        os.close(reading)
        faulthandler.disable()  # pytest has switched it on; a signal is an outcome here
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _answer(writing, function)
        os._exit(0)
    os.close(writing)
    text = _read_all(reading, time.monotonic() + timeout_seconds)
    if text is None:
        os.kill(pid, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    if text is None:
        return Outcome("hang")
    if os.WIFSIGNALED(status):
        return Outcome("signal", signal=os.WTERMSIG(status))
    return Outcome(**json.loads(text))


def fork() -> int:
    """os.fork without the warning about threads: a child here only runs the function and ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def forked(work: Callable[[], object]) -> int:
    """The process id of a child that does `work`; its exit code is 0, or 1 with a traceback on standard error.

    Nothing that `work` raises gets out of the child: pytest would catch it there, too, and run the next test twice.
    """
    pid = fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001  whatever it is, it ends here
        traceback.print_exc()
    finally:
        os._exit(code)


def _answer(descriptor: int, function: Callable[[], Any]) -> None:
    try:
        answer = {"kind": "value", "value": function()}
    except PackerError as error:
        answer = {
            "kind": "error",
            "error": type(error).__name__,
            "message": str(error),
            "exit_code": error.exit_code,
        }
    except BaseException as error:  # noqa: BLE001  whatever happens in the child is the answer
        answer = {"kind": "crash", "error": type(error).__name__, "message": traceback.format_exc()[-2000:]}
    data = json.dumps(answer).encode()
    while data:
        data = data[os.write(descriptor, data) :]


def _read_all(descriptor: int, deadline: float) -> bytes | None:
    """Everything up to the end of the pipe; None where the end did not come in time."""
    data = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        block = os.read(descriptor, 1 << 16)
        if not block:
            return data
        data += block
