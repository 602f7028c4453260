"""Client process: the program in which the client of the object stores runs, one for a process and its forked children.

obstore's runtime has threads of its own and does not survive a fork (its issue 441), and DataLoader forks. So it never
enters the user's process: a fresh interpreter is started by exec when a store is first asked, and ends when the last
process that may ask it has ended. Who asks sends one end of a new pair of sockets over the socket that all of them
inherited; the request, and the open file that it is about, go through the pair. Nothing listens under a name that
others could find.

Messages, both ways: `<IQ`, the sizes of a JSON object and of the bytes behind it, then these. A request may carry one
descriptor. Answers follow each other until one that says `last`; a beat between them says that the request is there, or
that bytes arrive. The process that asks measures the patience, from beat to beat: the client may be stuck.
"""

import fcntl
import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from packer.errors import StoreError
from packer.registry import check_installed

HEAD = struct.Struct("<IQ")
MASTER = 3  # the descriptor in the client process, behind its standard streams
_TRIES = 4  # of a request whose client process ended
_LAST_TRY_SECONDS = 5.0  # beyond the patience, for a try that begins as it ends
_MOST_BYTES = 1 << 30  # of one answer
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from packer.stores.client_program import serve; serve()"
)
# what the stores' own tools read; another client process is started where one of them changes
_CONVENTIONS = ("AWS_", "GOOGLE_", "AZURE_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Answer(NamedTuple):
    """fields: of the JSON object. payload: the bytes behind it."""

    fields: Mapping[str, Any]
    payload: bytes


def conventions() -> dict[str, str]:
    """The variables of the stores' tools, as the environment has them."""
    return {name: value for name, value in os.environ.items() if name.upper().startswith(_CONVENTIONS)}


class _Ended(Exception):
    """The client process ended before it answered."""


def ask(
    request: Mapping[str, Any], *, payload: bytes = b"", descriptors: Sequence[int] = (), where: str
) -> Iterator[Answer]:
    """The answers to a request. where: for the message, should the client process end again and again.

    A request that had no answer yet is sent to a fresh client process: whatever it asks for may be done twice.
    """
    answered = False
    for attempt in range(1, _TRIES + 1):
        try:
            for answer in _asked(request, payload, descriptors):
                answered = True
                yield answer
            return
        except _Ended as error:
            if answered or attempt == _TRIES:
                raise StoreError(
                    f"{where}: the process of the store's client ended {attempt} times: {error}; run again"
                ) from error
        except TimeoutError as error:
            raise StoreError(
                f"{where}: no answer that helps: nothing came in {request['patience']:.1f} s, or too little; see the "
                "network and the store, then run again"
            ) from error


def _asked(request: Mapping[str, Any], payload: bytes, descriptors: Sequence[int]) -> Iterator[Answer]:
    ours, theirs = socket.socketpair()
    with ours:
        try:
            with theirs:
                _clients.connect(theirs)
            head = json.dumps(request).encode()
            socket.send_fds(ours, [HEAD.pack(len(head), len(payload)) + head], list(descriptors))
            if payload:  # sending nothing is a call nevertheless, which fails where the answer is there by then
                ours.sendall(payload)
            while True:
                answer = receive(ours)
                ours.settimeout(request["patience"] + _LAST_TRY_SECONDS)
                if "beat" not in answer.fields:
                    yield answer
                    if answer.fields["last"]:
                        return
        except (EOFError, ConnectionError) as error:
            raise _Ended("it closed the connection") from error


def receive(connection: socket.socket, *, head: bytes | None = None) -> Answer:
    """One message; raises EOFError where the other end is gone. head: its first bytes, where they were read before."""
    fields, size = HEAD.unpack(head or _read(connection, HEAD.size))
    if size > _MOST_BYTES:
        raise EOFError
    return Answer(json.loads(_read(connection, fields)), bytes(_read(connection, size)))


def _read(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = connection.recv_into(view[done:])
        if not count:
            raise EOFError
        done += count
    return data


class _Clients:
    """The client process of this process; its socket is inherited by forked children, which use it, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._master: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._process: tuple[int, int] | None = None  # who started it, and its number

    def connect(self, theirs: socket.socket) -> None:
        """Give the client process one end of a connection; starts it where there is none.

        Raises ConnectionError where it ends at once.
        """
        environment = conventions()
        with self._lock:
            if self._master is not None and self._environment == environment:
                try:
                    socket.send_fds(self._master, [b"c"], [theirs.fileno()])
                    return
                except ConnectionError:
                    pass  # it has ended
            socket.send_fds(self._start(environment), [b"c"], [theirs.fileno()])

    def _start(self, environment: dict[str, str]) -> socket.socket:
        """The socket to a fresh client process."""
        self._forget()
        check_installed("obstore", "a URL of an object store")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)]
        with theirs:
            moved = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 10)  # out of the way of MASTER
            try:
                actions = [
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 2, 1),  # whatever a library prints is not our output
                    (os.POSIX_SPAWN_DUP2, moved, MASTER),
                ]
                pid = os.posix_spawn(sys.executable, words, os.environ, file_actions=actions, setsid=True)
            except OSError as error:
                ours.close()
                raise StoreError(
                    f"{sys.executable}: the process of the store's client cannot be started: {error.strerror}; see "
                    "the limits on processes and memory"
                ) from error
            finally:
                os.close(moved)
        self._master, self._environment, self._process = ours, environment, (os.getpid(), pid)
        return ours

    def _forget(self) -> None:
        """Let the client process end, which it does when the last one that shares it has let it go."""
        if self._master is not None:
            self._master.close()
            self._master = None
        if self._process is not None and self._process[0] == os.getpid():
            with suppress(ChildProcessError):
                os.waitpid(self._process[1], os.WNOHANG)  # one that has ended stays no zombie
        self._process = None

    def hold(self) -> None:
        """Before fork: no other thread is in the middle of starting a client process."""
        self._lock.acquire()

    def release(self) -> None:
        """After fork, in parent and child, whose locks are copies."""
        self._lock.release()


_clients = _Clients()  # one per process, by design: see above
os.register_at_fork(before=_clients.hold, after_in_parent=_clients.release, after_in_child=_clients.release)
