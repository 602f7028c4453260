"""Isolated program: a function of packer in a process of its own, for what a C library makes of untrusted bytes.

A file can be made so that a library which parses it in C ends its process with a signal, or does not end at all. The
process here gets one open file after the other through a socket, and answers each with bytes; time, memory and the
size of an answer are limited for each file. How it ends is an error of the caller's, never a signal to it.

It is a fresh interpreter: a fork would bring the locks of our threads along, and what multiprocessing spawns would run
the caller's script once more. To start it costs far more than most files do, so one process reads up to
`Limits.files` of them. What is traded for that: what a file damaged in memory without ending the process is there for
the next ones, which may then be read wrongly; a process for each file would keep that apart. So there are 64, which
bring the 0.2 s of a start down to about what a small file costs itself; more would gain little. The next file gets a
fresh process, too, after one that gave no answer or a malformed one, or that left memory taken or a file open. A file
that gets no answer of a process that read others is given to a fresh one: whoever is named, failed alone.

Messages: the process is sent `<Q` (the number of the file, from 0) with the descriptor, and answers `<4sQ?Q`: magic,
the same number, whether it can go on, and the size of the answer, which follows.
"""

import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType

_BLOCK_BYTES = 1 << 20
_LEFT_BYTES = 256 << 20  # of address space: what a file may leave taken
_SOCKET = 3  # the descriptor of the process, behind its standard streams
_REQUEST = struct.Struct("<Q")
_HEAD = struct.Struct("<4sQ?Q")
_MAGIC = b"ANSW"
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from packer.system.isolated_program import serve; serve(sys.argv[2], **json.loads(sys.argv[3]))"
)


class ProgramEnded(Exception):
    """The process gave no answer; says how it ended."""


@dataclass(frozen=True)
class Limits:
    """What one file may take, and how many files one process reads.

    seconds: on the clock, with the start of the process, and once more for another try. memory_bytes: of address space,
    the interpreter included.
    """

    seconds: float = 300.0
    cpu_seconds: int = 120
    memory_bytes: int = 6 << 30
    answer_bytes: int = 1 << 30
    files: int = 64


class IsolatedProgram:
    """`main(descriptor)` of a module, which returns bytes, for one file after the other; for one thread.

    A context manager: no process is there before the first file, and none is left behind, whatever ends the block.
    """

    def __init__(self, module: str, limits: Limits | None = None) -> None:
        self._module = module
        self._limits = limits or Limits()
        self._process: _Process | None = None

    def __enter__(self) -> "IsolatedProgram":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if there is one; the next file starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def ask(self, descriptor: int) -> bytes:
        """What `main` returns for the file that is open there; raises ProgramEnded, and goes on with other files."""
        is_fresh = self._process is None
        try:
            return self._answer(descriptor)
        except ProgramEnded:
            if is_fresh:
                raise
        return self._answer(descriptor)

    def _answer(self, descriptor: int) -> bytes:
        """As `ask`, of the process that is there, or else of a fresh one."""
        until = time.monotonic() + self._limits.seconds
        if self._process is None:
            self._process = _Process(self._module, self._limits)
        can_go_on = False
        try:
            answered, can_go_on = self._process.ask(descriptor, until)
        finally:
            if not can_go_on:
                self.close()
        return answered


class _Process:
    """One process, as long as it lives."""

    def __init__(self, module: str, limits: Limits) -> None:
        """Start it; raises ProgramEnded."""
        self._limits = limits
        self._asked = 0
        try:
            self._socket, theirs = socket.socketpair()
        except OSError as error:
            raise ProgramEnded(f"could not be started: {error.strerror}") from error
        try:
            self._pid = _start(module, limits, theirs.fileno())
        except OSError as error:
            self._socket.close()
            raise ProgramEnded(f"could not be started: {error.strerror}") from error
        finally:
            theirs.close()
        self._is_reaped = False
        self._ready = select.poll()
        self._ready.register(self._socket, select.POLLIN)

    def end(self) -> None:
        self._socket.close()
        if not self._is_reaped:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._is_reaped = True

    def ask(self, descriptor: int, until: float) -> tuple[bytes, bool]:
        """The answer, and whether another file may follow; raises ProgramEnded."""
        number, self._asked = self._asked, self._asked + 1
        try:
            socket.send_fds(self._socket, [_REQUEST.pack(number)], [descriptor])
            magic, answers, can_go_on, size = _HEAD.unpack(self._read(_HEAD.size, until))
            if magic != _MAGIC or answers != number:
                raise ProgramEnded("answered with what is no answer")
            if size > self._limits.answer_bytes:
                raise ProgramEnded(f"answered more than {self._limits.answer_bytes} bytes")
            return self._read(size, until), can_go_on and self._asked < self._limits.files
        except (BrokenPipeError, ConnectionResetError, EOFError) as error:
            raise ProgramEnded(self._how_it_ended(until)) from error
        except OSError as error:  # as where too many descriptors are on their way
            raise ProgramEnded(f"could not be asked: {error.strerror}") from error

    def _read(self, size: int, until: float) -> bytes:
        """So many bytes; raises ProgramEnded where that takes too long, EOFError, OSError."""
        pieces: list[bytes] = []
        while size:
            left = until - time.monotonic()
            if left <= 0 or not self._ready.poll(1000 * left):
                raise self._too_late()
            piece = self._socket.recv(min(size, _BLOCK_BYTES))
            if not piece:
                raise EOFError
            size -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def _how_it_ended(self, until: float) -> str:
        """Of a process that closed its socket, which a library can do without an end."""
        while not (found := os.waitpid(self._pid, os.WNOHANG))[0]:
            if time.monotonic() > until:
                raise self._too_late()
            time.sleep(0.001)
        self._is_reaped = True
        code = os.waitstatus_to_exitcode(found[1])
        return f"ended with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _too_late(self) -> ProgramEnded:
        return ProgramEnded(f"was not done in {self._limits.seconds:g} s")


def _start(module: str, limits: Limits, theirs: int) -> int:
    """The process's number. The socket is moved out of the way of what it becomes."""
    moved = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 10)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, moved, _SOCKET),
    ]
    of_process = {name: asdict(limits)[name] for name in ("cpu_seconds", "memory_bytes")}
    words = [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path), module, json.dumps(of_process)]
    try:
        return os.posix_spawn(sys.executable, words, os.environ, file_actions=actions)
    finally:
        os.close(moved)


# ---- in the process


def serve(module: str, *, cpu_seconds: int, memory_bytes: int) -> None:
    """The body of the process: it ends with the socket, so with the process that asks, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, for the process that asks
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    most_cpu_seconds = resource.getrlimit(resource.RLIMIT_CPU)[1]
    main = import_module(module).main
    with socket.socket(fileno=_SOCKET) as asked:
        files, size = _open_files(), _address_space_bytes()
        while True:
            request, descriptors, _, _ = socket.recv_fds(asked, _REQUEST.size, 1)
            if not request:
                return
            (descriptor,) = descriptors
            limit = int(time.process_time()) + 1 + cpu_seconds  # in whole seconds, of which one has begun
            if most_cpu_seconds != resource.RLIM_INFINITY:
                limit = min(limit, most_cpu_seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, most_cpu_seconds))
            answer = main(descriptor)
            os.close(descriptor)
            can_go_on = _open_files() == files and _address_space_bytes() - size <= _LEFT_BYTES
            asked.sendall(_HEAD.pack(_MAGIC, *_REQUEST.unpack(request), can_go_on, len(answer)))
            asked.sendall(answer)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
