"""Isolated program: a function of packer in a process of its own, for what a C library makes of untrusted bytes.

A file can be made so that a library which parses it in C ends its process with a signal, or does not end at all. The
process here has one open file, limits on memory and processor time, and a pipe for its answer, which is bytes. How it
ends is an error of the caller's, never a signal to it.
"""

import os
import resource
import signal
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection

_SECONDS = 300.0
_CPU_SECONDS = 120
_MEMORY_BYTES = 6 << 30  # of address space
_MOST_BYTES = 1 << 30  # of an answer


class ProgramEnded(Exception):
    """The process gave no answer; says how it ended."""


def run(module: str, descriptor: int) -> bytes:
    """What `main(descriptor)` of the module returns; raises ProgramEnded."""
    context = get_context("spawn")  # a fork would bring the locks of our threads along
    incoming, outgoing = context.Pipe(duplex=False)
    # of what can be sent to a process, the one that is a descriptor
    file: Connection[bytes, bytes] = Connection(os.dup(descriptor), writable=False)
    process = context.Process(target=_answer, args=(module, file, outgoing), daemon=True)
    try:
        process.start()
        outgoing.close()
        if not incoming.poll(_SECONDS):
            raise ProgramEnded(f"was not done in {_SECONDS:g} s")
        return incoming.recv_bytes(_MOST_BYTES)
    except (EOFError, OSError) as error:
        process.join()
        raise ProgramEnded(_how(process.exitcode or 0)) from error
    finally:
        for end in (file, incoming, outgoing):
            end.close()
        if process.pid is not None:
            process.kill()
            process.join()
        process.close()


def _how(code: int) -> str:
    if code < 0:
        return f"ended with {signal.Signals(-code).name}"
    return f"ended with exit code {code}; a script that packs such files does it under if __name__ == '__main__'"


def _answer(module: str, file: "Connection[bytes, bytes]", outgoing: "Connection[bytes, bytes]") -> None:
    """The body of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, for the process that asks
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    with suppress(BrokenPipeError):  # nobody waits any more
        outgoing.send_bytes(import_module(module).main(file.fileno()))
