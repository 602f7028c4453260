"""warm_python: Python programs in processes of their own that need not import torch first, which takes over a second.

A process imports torch, NumPy, OpenCV and what else others wrote, once for each process of tests, and does nothing
with them; a program is a fork of it. Another one is without torch, for programs that do not use it: a fork of it is
several times as light. All of packer is imported by the program, in its own order. It begins as after
`python -c`: with its own streams, folder, environment, arguments and signal handlers, an empty `__main__`, and an
interpreter that ends as any other does. What is of the start of a process itself (options and variables that Python or
a library reads when it starts, limits of memory, a library loaded before others, what is imported and what is not)
needs a fresh interpreter: `subprocess`.
"""

import atexit
import contextlib
import functools
import gc
import json
import multiprocessing.process
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TextIO

_SECONDS = 120  # for a first line, or to end
_MOST_BYTES = 1 << 16  # of a program's text, environment and arguments
# nothing whose absence or choice is what some test is about
_LIBRARIES = ("numpy", "cv2", "h5py", "lmdb", "simplejpeg", "tqdm", "click", "multiprocessing.spawn")


class Program:
    """A program that runs, with the names of `subprocess.Popen`."""

    def __init__(self, request: Mapping[str, object], reply: socket.socket, streams: "list[TextIO]") -> None:
        self._reply = reply
        self.args = request
        self.pid = int(reply.recv(_MOST_BYTES) or b"0")
        assert self.pid, "the process that programs are forks of has ended"
        self.returncode: int | None = None
        self.stdout, self.stderr = streams or (None, None)

    def line(self) -> str:
        """The next line of its output, without the line end."""
        assert self.stdout is not None
        assert select.select([self.stdout], [], [], _SECONDS)[0], f"no output for {_SECONDS} seconds"
        return self.stdout.readline().rstrip("\n")

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended."""
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                self.returncode = int(self._reply.recv(_MOST_BYTES))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.args), timeout or 0) from None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it writes until it ends."""
        assert self.stdout is not None and self.stderr is not None
        texts = ["", ""]

        def read(number: int, stream: TextIO) -> None:
            texts[number] = "" if stream.closed else stream.read()

        readers = [
            threading.Thread(target=read, args=each, daemon=True) for each in enumerate((self.stdout, self.stderr))
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():  # a child of the program holds the stream
                raise subprocess.TimeoutExpired(str(self.args), timeout or 0)
        return texts[0], texts[1]


@contextlib.contextmanager
def started(
    code: str,
    *words: str,
    capture: bool = True,
    strict: bool = False,
    torch: bool = True,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """A program that runs `code` with `words` as its arguments; it does not outlive the block.

    capture: its output and errors come as texts, else they go where those of this process go. strict: a warning is an
    error. torch: whether it is imported already. folder: where it runs. environment: all of its variables; those of
    this process when None.
    """
    request = {
        "code": code,
        "words": words,
        "strict": strict,
        "folder": str(folder or Path.cwd()),
        "environment": dict(os.environ if environment is None else environment),
    }
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull))
        ends: list[TextIO] = []
        outputs = [1, 2]
        if capture:
            for at in range(2):
                reading, outputs[at] = os.pipe()
                ends.append(stack.enter_context(os.fdopen(reading)))
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(mine)
        with theirs:
            socket.send_fds(_warm(torch), [json.dumps(request).encode()], [nothing.fileno(), *outputs, theirs.fileno()])
        for each in outputs if capture else ():
            os.close(each)
        program = Program(request, mine, ends)
        try:
            yield program
        finally:
            program.kill()
            program.wait(_SECONDS)


def run(
    code: str,
    *words: str,
    capture: bool = False,
    check: bool = True,
    strict: bool = False,
    torch: bool = True,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end; see `started`. check: an exit code other than 0 is an error.

    timeout: seconds after which a program that still runs is ended, with subprocess.TimeoutExpired.
    """
    how = {"capture": capture, "strict": strict, "torch": torch, "folder": folder, "environment": environment}
    with started(code, *words, **how) as program:  # type: ignore[arg-type]
        output, errors = program.communicate(timeout) if capture else ("", "")
        done = subprocess.CompletedProcess(["-c", code, *words], program.wait(timeout), output, errors)
    if check:
        done.check_returncode()
    return done


@functools.cache
def _warm(torch: bool) -> socket.socket:
    """The connection to the process that has imported everything, started now."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno()), *(["torch.utils.data"] if torch else [])]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def end(owner: int = os.getpid()) -> None:
        if os.getpid() == owner:
            mine.close()
            process.wait()

    atexit.register(end)
    return mine


def _serve(requests: socket.socket) -> "tuple[dict[str, object], list[int]] | None":
    """Fork for each request. In the program itself: what was asked, and its streams; None where no more is asked."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(requests, _MOST_BYTES, 4)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not text:
            return None
        *streams, reply = descriptors
        if _fork() == 0:
            requests.close()
            program = _fork()
            if program == 0:
                os.close(reply)
                return json.loads(text), streams
            for each in streams:
                os.close(each)
            os.write(reply, str(program).encode())
            _, status = os.waitpid(program, 0)
            with contextlib.suppress(BrokenPipeError):  # who asked has ended
                os.write(reply, str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
        for each in descriptors:
            os.close(each)


def _fork() -> int:
    """os.fork without the warning about threads: OpenBLAS's mind forks, and there are no others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _become(request: "dict[str, object]", streams: list[int], *, filters: int) -> dict[str, object]:
    """Make this process that of the program; returns the names of its empty `__main__`."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(str(request["folder"]))
    multiprocessing.process.ORIGINAL_DIR = str(request["folder"])  # which a process that it spawns begins in
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    words = request["words"]
    assert isinstance(words, list)
    sys.argv[:] = ["-c", *words]
    sys.path[0] = ""
    if request["strict"]:
        sys.warnoptions.append("error")
        warnings.simplefilter("error")
        # as with `python -W error`: behind those that libraries add when they are imported
        warnings.filters.insert(len(warnings.filters) - filters - 1, warnings.filters.pop(0))  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = sys.modules["__main__"] = ModuleType("__main__")
    return vars(main)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the programs, and the tests end this one
    _at_start = len(warnings.filters)
    for _name in (*_LIBRARIES, *sys.argv[2:]):
        __import__(_name)
    gc.collect()
    gc.freeze()  # a program's collections need not look at it again
    _this = sys.modules["__main__"]  # lives on beneath the program
    if (_found := _serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        exec(compile(str(_found[0]["code"]), "<string>", "exec"), _become(*_found, filters=_at_start))
