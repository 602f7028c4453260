"""Processes that hold a batch: each says its digest at once, and again when it is asked.

Light to import, for spawned processes do so. In a forked child torch's own threads are gone: digests are NumPy's.
"""

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tests.support.child_processes import fork

LONG_S = 60.0


def digest(value: Any) -> str:
    """sha256 over everything in a batch."""
    found = hashlib.sha256()

    def add(each: Any) -> None:
        if isinstance(each, Mapping):
            for name in sorted(each):
                found.update(name.encode())
                add(each[name])
        elif isinstance(each, (list, tuple)):
            for member in each:
                add(member)
        elif hasattr(each, "__array__"):
            array = np.asarray(each)
            found.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            found.update(repr(each).encode())

    add(value)
    return found.hexdigest()


def part_of(value: Any) -> Any:
    """An array of NumPy's over a part of the largest tensor in a batch."""
    return max(_tensors(value), key=lambda tensor: tensor.nbytes)[1:2].numpy()[..., 2:]


def _tensors(value: Any) -> list[Any]:
    """No closure: one that calls itself would keep the batch until a collection."""
    if hasattr(value, "numpy"):
        return [value]
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for member in members for tensor in _tensors(member)]


class Holder:
    """A process that holds a batch."""

    def __init__(self, connection: Connection, end: Callable[[], object]) -> None:
        self._connection = connection
        self._end = end
        self.first = self._answer()

    def again(self) -> str:
        """The digest now; the process ends."""
        self._connection.send("again")
        found = self._answer()
        self._end()
        self._connection.close()
        return found

    def _answer(self) -> str:
        assert self._connection.poll(LONG_S), "the process that holds a batch says nothing"
        found: str = self._connection.recv()
        return found


def keep(connection: Connection, batch: Any) -> None:
    """What each of them does."""
    connection.send(digest(batch))
    if connection.poll(LONG_S):  # not left running when a test fails
        connection.recv()
        connection.send(digest(batch))


def keep_sent(connection: Connection, queue: Any) -> None:
    """The same with a batch that is sent once the process runs."""
    keep(connection, queue.get() if queue is not None else connection.recv())


def forked(batch: Any) -> Holder:
    """By os.fork."""
    here, there = multiprocessing.Pipe()
    pid = fork()
    if pid == 0:
        try:
            keep(there, batch)
        finally:
            os._exit(0)
    there.close()
    return Holder(here, lambda: os.waitpid(pid, 0))


def forked_twice(batch: Any) -> Holder:
    """By a child of a child, which itself has gone on."""
    here, there = multiprocessing.Pipe()
    pid = fork()
    if pid == 0:
        try:
            if fork() == 0:
                keep(there, batch)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    there.close()
    return Holder(here, lambda: None)


def with_a_part(batch: Any) -> Holder:
    """A forked child that looks at a slice of an array alone."""
    return forked(part_of(batch))


def process(batch: Any, method: str = "fork") -> Holder:
    """multiprocessing.Process(args=(batch,))."""
    here, there = multiprocessing.Pipe()
    started = multiprocessing.get_context(method).Process(target=keep, args=(there, batch))  # type: ignore[attr-defined]
    started.start()
    there.close()
    return Holder(here, started.join)


def spawned(batch: Any) -> Holder:
    """As an argument of a spawned process."""
    return process(batch, "spawn")


def sent(batch: Any, *, queued: bool) -> Holder:
    """To a spawned process that runs, through a queue or a pipe."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    queue = context.Queue() if queued else None
    started = context.Process(target=keep_sent, args=(there, queue))
    started.start()
    there.close()
    if queue is not None:
        queue.put(batch)
    else:
        here.send(batch)
    return Holder(here, started.join)


def queued(batch: Any) -> Holder:
    return sent(batch, queued=True)


def piped(batch: Any) -> Holder:
    return sent(batch, queued=False)


HOLDERS: dict[str, Callable[[Any], Holder]] = {
    "os.fork": forked,
    "a child of a child": forked_twice,
    "a part": with_a_part,
    "Process": process,
    "spawned Process": spawned,
    "Queue": queued,
    "Pipe": piped,
}


def memory_files(*processes: int) -> set[str]:
    """Inodes of packer's memory files that any of these processes has mapped or open."""
    found = set()
    for pid in processes:
        with open(f"/proc/{pid}/maps") as maps:
            found |= {line.split()[4] for line in maps if "memfd:packer" in line}
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if "memfd:packer" in os.readlink(f"/proc/{pid}/fd/{name}"):
                    found.add(str(os.stat(f"/proc/{pid}/fd/{name}").st_ino))
            except OSError:  # closed meanwhile
                continue
    return found


@contextmanager
def start_method(method: str) -> Iterator[None]:
    """What multiprocessing starts processes by, where nothing else is said."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(method, force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)
