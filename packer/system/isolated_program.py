"""Isolated program: a function of packer in a process of its own, for what a C library makes of untrusted bytes.

A file can be made so that a library which parses it in C ends its process with a signal, or does not end at all. The
process here has one open file, limits on memory and processor time, and a pipe for its answer, which is bytes. How it
ends is an error of the caller's, never a signal to it.

It is a fresh interpreter: a fork would bring the locks of our threads along, and what multiprocessing spawns would run
the caller's script once more.
"""

import fcntl
import json
import os
import resource
import select
import signal
import sys
import time
from importlib import import_module

_SECONDS = 300.0
_CPU_SECONDS = 120
_MEMORY_BYTES = 6 << 30  # of address space
_MOST_BYTES = 1 << 30  # of an answer
_BLOCK_BYTES = 1 << 20
_FILE, _ANSWER = 3, 4  # the descriptors of the process, behind its standard streams
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from packer.system.isolated_program import answer; answer(sys.argv[2])"
)


class ProgramEnded(Exception):
    """The process gave no answer; says how it ended."""


def run(module: str, descriptor: int) -> bytes:
    """What `main(descriptor)` of the module returns; raises ProgramEnded."""
    reading, writing = os.pipe()
    try:
        pid = _start(module, descriptor, writing)
    except OSError as error:
        os.close(reading)
        raise ProgramEnded(f"could not be started: {error.strerror}") from error
    finally:
        os.close(writing)
    code = None
    try:
        answered = _read(reading)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(reading)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if code:
        raise ProgramEnded(f"ended with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}")
    return answered


def answer(module: str) -> None:
    """The body of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, for the process that asks
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    with open(_ANSWER, "wb") as pipe:
        pipe.write(import_module(module).main(_FILE))


def _start(module: str, descriptor: int, writing: int) -> int:
    """The process's number. The descriptors are moved out of the way of those that they become."""
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (descriptor, writing)]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        *((os.POSIX_SPAWN_DUP2, each, place) for each, place in zip(moved, (_FILE, _ANSWER), strict=True)),
    ]
    words = [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path), module]
    try:
        return os.posix_spawn(sys.executable, words, os.environ, file_actions=actions)
    finally:
        for each in moved:
            os.close(each)


def _read(reading: int) -> bytes:
    """All that is written into a pipe until it is closed; raises ProgramEnded where that takes too long."""
    until = time.monotonic() + _SECONDS
    pieces: list[bytes] = []
    size = 0
    ready = select.poll()
    ready.register(reading, select.POLLIN)
    while True:
        left = until - time.monotonic()
        if left <= 0 or not ready.poll(1000 * left):
            raise ProgramEnded(f"was not done in {_SECONDS:g} s")
        piece = os.read(reading, _BLOCK_BYTES)
        if not piece:
            return b"".join(pieces)
        size += len(piece)
        if size > _MOST_BYTES:
            raise ProgramEnded(f"answered more than {_MOST_BYTES} bytes")
        pieces.append(piece)
