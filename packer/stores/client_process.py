"""Client process: the program in which the client of the object stores runs, one for a process and its forked children.

obstore's runtime has threads of its own and does not survive a fork (its issue 441), and DataLoader forks. So obstore
runs in a fresh interpreter, which is started by exec with the first request. It ends when the last process that
inherited its socket has ended. For each request, a process makes a pair of sockets and sends one of them over the
inherited socket. The request and an open file go through the pair. The sockets have no names that other users could
find.

A message is `<IQ`, the sizes of a JSON object and of the bytes after it, then the object and the bytes. A request may
carry one descriptor. The field `last` marks the last answer. Between answers the client sends beats, when it has the
request and when bytes arrive. The user's process measures the patience from beat to beat: the client may be stuck.
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
MASTER = 3  # the descriptor in the client process, after its standard streams
_TRIES = 4  # of a request
_LAST_TRY_SECONDS = 5.0  # after the end of the patience
_MOST_BYTES = 1 << 30  # of an answer
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from packer.stores.client_program import serve; serve()"
)
# variables of the stores' own tools; if one changes, another client process is started
_CONVENTIONS = ("AWS_", "GOOGLE_", "AZURE_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Answer(NamedTuple):
    """A message: the fields of its JSON object, and the bytes after it."""

    fields: Mapping[str, Any]
    payload: bytes


def conventions() -> dict[str, str]:
    """Return the environment variables that configure the stores' own tools, such as AWS_ENDPOINT_URL."""
    return {name: value for name, value in os.environ.items() if name.upper().startswith(_CONVENTIONS)}


class _Ended(Exception):
    """The client process ended before it answered."""


def ask(
    request: Mapping[str, Any], *, payload: bytes = b"", descriptors: Sequence[int] = (), where: str
) -> Iterator[Answer]:
    """Yield the answers of the client process to a request.

    If the client process ends before the first answer, the request is sent again to a new client process. An operation
    may therefore run twice. `where` is the URL and the operation, for messages.

    Raises StoreError if the client process ended repeatedly, or sent nothing before the end of the patience.
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
            if payload:  # an empty send would fail if the client has answered and closed
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
    """Receive a message; raises EOFError if the other end is closed or the message is too large.

    head: the first HEAD.size bytes of the message, if the caller has received them.
    """
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
    """The client process of this process and of its forked children, which inherit the socket."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._master: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._process: tuple[int, int] | None = None  # the process that started it, and its own id

    def connect(self, theirs: socket.socket) -> None:
        """Send one end of a connection to the client process, which is started if necessary.

        Raises ConnectionError if it ends at once.
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
        """Start a new client process, and return the socket to the process."""
        self._forget()
        check_installed("obstore", "a URL of an object store")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)]
        with theirs:
            moved = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 10)  # out of the way of MASTER
            try:
                actions = [
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 2, 1),  # output of libraries goes to stderr
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
        """Close the socket; the client process ends when all processes have closed it."""
        if self._master is not None:
            self._master.close()
            self._master = None
        if self._process is not None and self._process[0] == os.getpid():
            with suppress(ChildProcessError):
                os.waitpid(self._process[1], os.WNOHANG)  # so that it does not stay a zombie
        self._process = None

    def hold(self) -> None:
        """Wait, before fork, until no thread is starting a client process."""
        self._lock.acquire()

    def release(self) -> None:
        """Release the lock after fork, in parent and child."""
        self._lock.release()


_clients = _Clients()  # one per process
os.register_at_fork(before=_clients.hold, after_in_parent=_clients.release, after_in_child=_clients.release)
