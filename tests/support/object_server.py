"""An object server: as much of the S3 protocol as the client uses, in threads, over a dict, with faults on demand.

It checks no signature. It counts what it served, so that a test can say what was asked for and how often.
"""

import hashlib
import os
import re
import sys
import threading
import time
import urllib.parse
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape, unescape

BUCKET = "b"
_PAGE = 1000
_GENERATION = "x-goog-if-generation-match"  # 0: how Google's XML API says what If-None-Match: * says elsewhere


@dataclass
class StoredBytes:
    """An object. modified: seconds since 1970."""

    data: bytes
    modified: float = field(default_factory=time.time)

    @property
    def etag(self) -> str:
        """As S3 has it for what was put in one request."""
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


@dataclass
class Fault:
    """What goes wrong with a request that `matches` its method and key; `times` requests, or all.

    kind: "503"; "403"; "cut" and "stall" in the middle of a body; "flip" a byte of it; "whole": a
    range is answered with all; "lost": the request is done and
    its connection closed without an answer; "409" to a conditional put; "301" and "307" to `target`;
    a body that comes by 256 KiB "slow" or as a "drip" of bytes, or is a GiB "longer" than it announces, also "chunked".
    """

    kind: str
    method: str = "GET"
    key: str = ""  # that the key ends with
    times: int = 1 << 60
    chance: Callable[[], bool] = lambda: True
    target: str = ""

    def takes(self, method: str, key: str) -> bool:
        """Whether this request meets the fault, which is counted."""
        if self.times <= 0 or method != self.method or not key.endswith(self.key) or not self.chance():
            return False
        self.times -= 1
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that closes its connection is no error; the rest ends up in `ObjectServer.errors`."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError, ValueError)):
            self.errors.append(error)  # type: ignore[attr-defined]


class ObjectServer:
    """A bucket `b`. delay_seconds: of every answer. ignores_conditions: as rclone's S3 server does."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.errors: list[BaseException | None] = []
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.errors = self.errors  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.clear()

    def clear(self) -> None:
        """Forget all that was stored, asked for and asked of it."""
        self.objects: dict[str, StoredBytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.faults: list[Fault] = []
        self.requests: Counter[tuple[str, str]] = Counter()  # (method, key)
        self.sent: Counter[str] = Counter()  # key -> bytes of bodies
        self.delay_seconds = 0.0
        self.ignores_conditions = False
        self.listing = ""  # what every listing is answered with, if given
        self.stalled = threading.Event()  # set: stalled requests go on
        self.most_at_once = 0
        self._at_once = 0
        self._met_fault = False

    @property
    def endpoint(self) -> str:
        """What AWS_ENDPOINT_URL is set to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead the client here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }

    def put(self, key: str, data: bytes) -> None:
        """Store an object behind the client's back."""
        self.objects[key] = StoredBytes(data)

    def put_folder(self, folder: os.PathLike[str], prefix: str = "") -> None:
        """Store the files of a folder, by their relative paths."""
        top = os.fspath(folder)
        for above, _, names in os.walk(top):
            for name in names:
                path = os.path.join(above, name)
                with open(path, "rb") as file:
                    self.put(f"{prefix}{os.path.relpath(path, top)}", file.read())

    def count(self, method: str, ending: str = "") -> int:
        """Requests of this method for keys that end so."""
        return sum(count for (name, key), count in self.requests.items() if name == method and key.endswith(ending))

    @property
    def is_sound(self) -> bool:
        """Whether it answers requests, and has answered each at once and as it should."""
        odd = self._met_fault or self.faults or self.delay_seconds or self.ignores_conditions or self.listing
        return self._thread.is_alive() and not odd and not self._at_once

    def start(self) -> None:
        """Answer requests."""
        self._thread.start()

    def stop(self) -> None:
        """Close; requests under way are cut. May be called twice."""
        if not self._thread.is_alive():
            return
        self.stalled.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """One request at work."""
        with self.lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self.lock:
                self._at_once -= 1

    def fault(self, method: str, key: str) -> Fault:
        """What goes wrong with this request; a fault of the kind "" for nothing."""
        with self.lock:
            found = next((fault for fault in self.faults if fault.takes(method, key)), Fault(""))
            self._met_fault = self._met_fault or bool(found.kind)
            return found


def _handler(server: ObjectServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def _begin(self) -> tuple[str, dict[str, str], bytes, Fault]:
            split = urllib.parse.urlsplit(self.path)
            path = urllib.parse.unquote(split.path).lstrip("/")
            bucket, _, key = path.partition("/")
            query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
            if bucket != BUCKET:
                key = f"no such bucket {bucket}"
            with server.lock:
                server.requests[self.command, key] += 1
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if "aws-chunked" in (self.headers.get("Content-Encoding") or ""):
                raise AssertionError("chunked signatures are not expected")
            time.sleep(server.delay_seconds)
            return key, query, body, server.fault(self.command, key)

        def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _fail(self, status: int, code: str) -> None:
            self._send(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

        def _lose(self) -> None:
            self.close_connection = True
            self.connection.close()

        def _refused(self, fault: Fault) -> bool:
            known = {"503": (503, "SlowDown"), "403": (403, "AccessDenied"), "409": (409, "ConditionalRequestConflict")}
            if fault.kind in known:
                self._fail(*known[fault.kind])
            if fault.target:
                self._send(int(fault.kind), b"", {"Location": fault.target})
            return fault.kind in known or bool(fault.target)

        def do_HEAD(self) -> None:
            with server.counted():
                key, _, _, fault = self._begin()
                found = server.objects.get(key)
                if self._refused(fault):
                    return
                if found is None:
                    self._fail(404, "NoSuchKey")
                    return
                self._send(200, b"", {**_described(found), "Content-Length": str(len(found.data))})

        def do_GET(self) -> None:
            with server.counted():
                key, query, _, fault = self._begin()
                if self._refused(fault):
                    return
                if "list-type" in query:
                    self._send(
                        200, server.listing.encode() or _listing(server, query), {"Content-Type": "application/xml"}
                    )
                    return
                found = server.objects.get(key)
                if found is None:
                    self._fail(404, "NoSuchKey")
                    return
                condition = self.headers.get("If-Match") if not server.ignores_conditions else None
                if condition is not None and condition.strip('"') != found.etag.strip('"'):
                    self._fail(412, "PreconditionFailed")
                    return
                self._send_body(key, found, fault.kind)

        def _send_body(self, key: str, found: StoredBytes, fault: str) -> None:
            data, status, headers = found.data, 200, _described(found)
            asked = self.headers.get("Range")
            if asked is not None and fault != "whole":
                first, last = _range(asked, len(data))
                if first >= len(data):
                    self._fail(416, "InvalidRange")
                    return
                headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
                data, status = data[first : last + 1], 206
            if fault == "flip" and data:
                middle = len(data) // 2
                data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            if fault in ("slow", "drip", "longer", "chunked"):
                self._send_oddly(key, data, status, headers, fault)
                return
            with server.lock:
                server.sent[key] += len(data) // 2 if fault in ("cut", "stall") else len(data)
            if fault not in ("cut", "stall"):
                self._send(status, data, headers)
                return
            self._send(status, data[: len(data) // 2], {**headers, "Content-Length": str(len(data))})
            self.wfile.flush()
            if fault == "stall":
                server.stalled.wait(60)
            self._lose()

        def _send_oddly(self, key: str, data: bytes, status: int, headers: dict[str, str], fault: str) -> None:
            self.close_connection = True
            headers["Content-Length"] = str(1 << 30 if fault == "longer" else len(data))
            self._send(status, b"", headers | ({"Transfer-Encoding": "chunked"} if fault == "chunked" else {}))
            size = {"drip": 1, "slow": 256 << 10}.get(fault, 1 << 20)
            for start in range(0, len(data) if fault in ("drip", "slow") else 1 << 30, size):
                chunk = data[start : start + size] if fault in ("drip", "slow") else bytes(size)
                self.wfile.write(b"%x\r\n%b\r\n" % (size, chunk) if fault == "chunked" else chunk)
                self.wfile.flush()
                with server.lock:
                    server.sent[key] += len(chunk)
                if fault in ("drip", "slow"):
                    time.sleep(0.1)

        def do_PUT(self) -> None:
            with server.counted():
                key, query, body, fault = self._begin()
                if self._refused(fault):
                    return
                if "uploadId" in query:
                    with server.lock:
                        if query["uploadId"] not in server.uploads:
                            self._fail(404, "NoSuchUpload")
                            return
                        server.uploads[query["uploadId"]][int(query["partNumber"])] = body
                    self._send(200, b"", {"ETag": StoredBytes(body).etag})
                    return
                with server.lock:
                    is_there = key in server.objects
                    creates = self.headers.get("If-None-Match") == "*" or self.headers.get(_GENERATION) == "0"
                    if is_there and creates and not server.ignores_conditions:
                        self._fail(412, "PreconditionFailed")
                        return
                    server.put(key, body)
                if fault.kind == "lost":
                    self._lose()
                    return
                self._send(200, b"", {"ETag": server.objects[key].etag})

        def do_POST(self) -> None:
            with server.counted():
                key, query, body, fault = self._begin()
                if self._refused(fault):
                    return
                if "uploads" in query:
                    name = uuid.uuid4().hex
                    server.uploads[name] = {}
                    self._send(200, f"<R><UploadId>{name}</UploadId><Key>{escape(key)}</Key></R>".encode())
                    return
                if "delete" in query:
                    names = re.findall(r"<Key>(.*?)</Key>", body.decode())
                    with server.lock:
                        for name in map(unescape, names):
                            server.objects.pop(name, None)
                    gone = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
                    self._send(200, f"<DeleteResult>{gone}</DeleteResult>".encode())
                    return
                with server.lock:
                    parts = server.uploads.pop(query["uploadId"], None)
                    if parts is None:
                        self._fail(404, "NoSuchUpload")
                        return
                    server.put(key, b"".join(data for _, data in sorted(parts.items())))
                if fault.kind == "lost":
                    self._lose()
                    return
                etag = escape(server.objects[key].etag)
                self._send(
                    200, f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>".encode()
                )

        def do_DELETE(self) -> None:
            with server.counted():
                key, query, _, fault = self._begin()
                if self._refused(fault):
                    return
                with server.lock:
                    if "uploadId" in query:
                        server.uploads.pop(query["uploadId"], None)
                    else:
                        server.objects.pop(key, None)
                self._send(204)

    return Handler


def _described(found: StoredBytes) -> dict[str, str]:
    return {"ETag": found.etag, "Last-Modified": formatdate(found.modified, usegmt=True), "Accept-Ranges": "bytes"}


def _range(text: str, size: int) -> tuple[int, int]:
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not first:
        return size - int(last), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1


def _listing(server: ObjectServer, query: dict[str, str]) -> bytes:
    prefix, after = query.get("prefix", ""), query.get("continuation-token") or query.get("start-after", "")
    with server.lock:
        keys = sorted(key for key in server.objects if key.startswith(prefix) and key > after)
        page = keys[: min(_PAGE, int(query.get("max-keys", _PAGE)))]
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(found.data)}</Size><ETag>{escape(found.etag)}</ETag>"
            f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(found.modified))}</LastModified>"
            "</Contents>"
            for key, found in ((key, server.objects[key]) for key in page)
        )
    more = len(keys) > len(page)
    token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
    return (
        f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}<KeyCount>{len(page)}</KeyCount>"
        f"{items}</ListBucketResult>"
    ).encode()
