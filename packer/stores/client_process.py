"""Client process: a separate process that runs obstore, the client of object stores.

A user's process and its forked children share one client process. obstore starts threads and does not survive a fork
(obstore issue 441). DataLoader forks, so obstore needs a separate process. The first request starts the client process
as a new interpreter. The client process ends when all processes that inherited its socket have ended. For each
request, a user's process makes a pair of sockets and sends one of the two over the inherited socket. The request and
an optional open file go through the pair. The sockets have no names, so other users cannot send requests.

A message is a header `<IQ`, a JSON object and bytes. The header contains the size of the JSON object and the number of
bytes. A request may contain one file descriptor. The last answer to a request has the field `last`. The client process
also sends messages with the field `beat`: after it receives a request, and when bytes arrive from the store. The user's
process raises an error if no message arrives for 5 seconds more than the `patience` of the request.
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
MASTER = 3  # descriptor of the inherited socket in the client process
_TRIES = 4  # number of client processes that a request is sent to
_LAST_TRY_SECONDS = 5.0  # time for the error message of the client process after the end of the patience
_MOST_BYTES = 1 << 30  # limit of the bytes of a message
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from packer.stores.client_program import serve; serve()"
)
# prefixes of environment variables that configure clients of stores; a change starts a new client process
_CONVENTIONS = ("AWS_", "GOOGLE_", "AZURE_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Answer(NamedTuple):
    """A received message: a JSON object and bytes."""

    fields: Mapping[str, Any]
    payload: bytes


def conventions() -> dict[str, str]:
    """Return name -> value of the environment variables that configure stores, such as AWS_ENDPOINT_URL."""
    return {name: value for name, value in os.environ.items() if name.upper().startswith(_CONVENTIONS)}


class _Ended(Exception):
    """The client process ended before the last answer."""


def ask(
    request: Mapping[str, Any], *, payload: bytes = b"", descriptors: Sequence[int] = (), where: str
) -> Iterator[Answer]:
    """Send a request to the client process, and yield the answers.

    If the client process ends before the first answer, the request is sent again to a new client process. An operation
    may therefore run several times.

    Args:
        request: The JSON object.
        payload: The bytes that follow the JSON object.
        descriptors: At most one open file.
        where: The URL and the operation, for error messages.

    Raises:
        StoreError: Client processes end repeatedly, or send no message for `request["patience"]` + 5 seconds.
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
    """Receive and return one message. Raises EOFError if the connection is closed or the message is too large.

    `head` contains the first HEAD.size bytes of the message if they were received before, otherwise None.
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
    """The client process that this process and its forked children share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._master: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._process: tuple[int, int] | None = None  # (id of the parent process, id of the client process)

    def connect(self, theirs: socket.socket) -> None:
        """Send the socket `theirs` to the client process. Start the client process if it does not run."""
        environment = conventions()
        with self._lock:
            if self._master is not None and self._environment == environment:
                try:
                    socket.send_fds(self._master, [b"c"], [theirs.fileno()])
                    return
                except ConnectionError:
                    pass  # the client process has ended
            socket.send_fds(self._start(environment), [b"c"], [theirs.fileno()])

    def _start(self, environment: dict[str, str]) -> socket.socket:
        """Start a new client process, and return the socket to it."""
        self._forget()
        check_installed("obstore", "a URL of an object store")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)]
        with theirs:
            moved = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 10)  # must differ from MASTER
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
        """Close the socket. The client process ends when all processes have closed their copies of the socket."""
        if self._master is not None:
            self._master.close()
            self._master = None
        if self._process is not None and self._process[0] == os.getpid():
            with suppress(ChildProcessError):
                os.waitpid(self._process[1], os.WNOHANG)  # removes the zombie process
        self._process = None

    def hold(self) -> None:
        """Acquire the lock of `connect` before a fork, so that no thread starts a client process during the fork."""
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()


_clients = _Clients()  # one per process
os.register_at_fork(before=_clients.hold, after_in_parent=_clients.release, after_in_child=_clients.release)
