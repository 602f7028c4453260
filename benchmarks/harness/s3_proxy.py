"""A proxy between loaders and an object store: it counts, limits the rate, and makes what goes wrong with networks.

Requests pass as they are, the Host header too, which S3's signatures cover. Faults meet the reading of objects alone,
not listings and not writing.
"""

import random
import re
import socket
import socketserver
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

_PIECE = 1 << 18  # bytes that are passed on at once
_PIECE_LIMITED = 1 << 14  # the same where the rate is limited: 0.7 ms at 200 Mbit/s
_UNAVAILABLE = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 59\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message>later</Message></Error>"
)


class Flip(NamedTuple):
    """A byte that arrives with another value. key: of the object; at: its offset in there."""

    key: str
    at: int


@dataclass(frozen=True)
class Faults:
    """bits_per_second: of all connections together, 0: no limit. share: of the requests for objects that are answered
    503 or cut in the middle of the body, half of them each; seed: which ones. flip: the same byte in each answer.
    """

    bits_per_second: int = 0
    share: float = 0.0
    seed: int = 0
    flip: Flip | None = None


class _Head(NamedTuple):
    """The first line and the headers of a request or an answer."""

    text: bytes
    first: str
    headers: dict[str, str]

    @property
    def body_bytes(self) -> int | None:
        """None where the body ends with the connection or comes in chunks."""
        return int(self.headers["content-length"]) if "content-length" in self.headers else None

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "")


class Proxy:
    """Listens on a port of its own and passes requests to `upstream`, host and port. A context."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        self._faults = Faults()
        self._random = random.Random(0)
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._bytes = 0
        self._requests: Counter[str] = Counter()
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    @property
    def endpoint(self) -> str:
        """The URL that a client takes for the store."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def begin(self, faults: Faults) -> None:
        """From now on these faults, and counts from zero."""
        with self._lock:
            self._faults, self._random = faults, random.Random(faults.seed)
            self._free_at, self._bytes, self._requests = 0.0, 0, Counter()

    def counts(self) -> dict[str, int]:
        """bytes: sent to clients, heads included; requests: all; those for objects, and those with faults, by kind."""
        with self._lock:
            return {"bytes": self._bytes, **self._requests}

    @property
    def flip(self) -> Flip | None:
        """The byte that is changed."""
        return self._faults.flip

    @property
    def piece(self) -> int:
        """How many bytes are passed on at once."""
        return _PIECE_LIMITED if self._faults.bits_per_second else _PIECE

    def met(self, head: _Head) -> str:
        """The fault that this request meets, which is counted: 503, cut or none."""
        method, path, _ = head.first.split(" ", 2)
        is_object = method == "GET" and "list-type=" not in path and path.strip("/").count("/") > 0
        with self._lock:
            self._requests["requests"] += 1
            if not is_object:
                return ""
            self._requests["objects"] += 1
            if self._random.random() >= self._faults.share:
                return ""
            kind = self._random.choice(("503", "cut"))
            self._requests[kind] += 1
            return kind

    def pay(self, size: int) -> None:
        """Count bytes on their way to a client, and wait as long as the rate says."""
        with self._lock:
            self._bytes += size
            rate = self._faults.bits_per_second / 8
            if not rate:
                return
            self._free_at = max(time.monotonic(), self._free_at) + size / rate
            wait = self._free_at - time.monotonic()
        time.sleep(max(0.0, wait))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    proxy: Proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that were killed close their connections: no error."""


class _Connection(socketserver.BaseRequestHandler):
    """One connection of a client, with one of its own to the store."""

    server: _Server

    def handle(self) -> None:
        proxy, client = self.server.proxy, self.request
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with (
            socket.create_connection(proxy.upstream) as store,
            client.makefile("rb") as asked,
            store.makefile("rb") as answered,
        ):
            store.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (head := _read_head(asked)) is not None:
                fault = proxy.met(head)
                if fault == "503":
                    _copy(asked, head.body_bytes or 0)
                    proxy.pay(len(_UNAVAILABLE))
                    client.sendall(_UNAVAILABLE)
                    continue
                store.sendall(head.text)
                if "100-continue" in head.headers.get("expect", ""):
                    self._pass_on(answered, head, "")
                _copy(asked, head.body_bytes or 0, store)
                if not self._pass_on(answered, head, fault):
                    return

    def _pass_on(self, answered: BinaryIO, request: _Head, fault: str) -> bool:
        """One answer; whether the connection goes on."""
        proxy, client = self.server.proxy, self.request
        head = _read_head(answered)
        if head is None:
            return False
        proxy.pay(len(head.text))
        client.sendall(head.text)
        status = head.first.split(" ", 2)[1]
        if request.first.startswith("HEAD ") or status in ("204", "304") or status.startswith("1"):
            return True
        if head.is_chunked:
            self._pass_chunks(answered)
            return True
        size = head.body_bytes
        if size is None:
            while piece := answered.read1(proxy.piece):
                proxy.pay(len(piece))
                client.sendall(piece)
            return False
        at, flip = _start(head), proxy.flip
        if flip is not None and not request.first.split(" ", 2)[1].partition("?")[0].endswith(flip.key):
            flip = None
        left = size // 2 if fault == "cut" else size
        while left:
            piece = answered.read1(min(left, proxy.piece))
            if not piece:
                return False
            if flip is not None and at <= flip.at < at + len(piece):
                changed = bytearray(piece)
                changed[flip.at - at] ^= 0x10
                piece = bytes(changed)
            proxy.pay(len(piece))
            client.sendall(piece)
            left, at = left - len(piece), at + len(piece)
        if fault == "cut":
            client.shutdown(socket.SHUT_RDWR)
        return fault != "cut"

    def _pass_chunks(self, answered: BinaryIO) -> None:
        """A body in chunks, with its trailing line."""
        size = -1
        while size:
            line = answered.readline()
            size = int(line.split(b";")[0], 16)
            piece = line + answered.read(size + 2)
            self.server.proxy.pay(len(piece))
            self.request.sendall(piece)


def _read_head(file: BinaryIO) -> _Head | None:
    """None at the end of a connection."""
    lines = []
    while (line := file.readline()) not in (b"\r\n", b"\n", b""):
        lines.append(line)
    if not lines or not line:
        return None
    headers = (each.decode("latin-1").partition(":") for each in lines[1:])
    named = {name.strip().lower(): value.strip() for name, _, value in headers}
    return _Head(b"".join([*lines, line]), lines[0].decode("latin-1").strip(), named)


def _start(head: _Head) -> int:
    """The offset in its object of the first byte of a body."""
    found = re.match(r"bytes (\d+)-", head.headers.get("content-range", ""))
    return int(found[1]) if found else 0


def _copy(source: BinaryIO, size: int, target: socket.socket | None = None) -> None:
    while size:
        piece = source.read1(min(size, _PIECE))  # type: ignore[attr-defined]
        if not piece:
            return
        if target is not None:
            target.sendall(piece)
        size -= len(piece)
