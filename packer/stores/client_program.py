"""Client program: the code of the client process, which runs one obstore operation for each connection.

Every operation can be repeated safely. A read returns equal bytes while the ETag does not change, and a write stores
equal bytes. If the object of a create exists, its bytes are compared with the new bytes. During an outage, operations
are therefore repeated for `patience` seconds, in addition to the retries of obstore. Each received range or page
restarts this period.
"""

import hashlib
import io
import json
import os
import re
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore import store as stores

from packer.stores.client_process import HEAD, MASTER, conventions, receive
from packer.stores.url import StoreURL

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, RetryConfig

_RANGE_BYTES = 8 << 20  # size of one request for a part of a large object
_RANGES = 3  # number of concurrent requests for parts of one object
_UPLOAD_BYTES = 8 << 20  # smallest part of an upload
_UPLOAD_PARTS = 9000  # S3 accepts 10,000 parts
_PAGE_OBJECTS = 1000  # number of objects in one message of a listing
# smallest chunk of a body; a connection that receives less within the patience counts as an outage
_CHUNK_BYTES = 256 << 10
_BEAT_SECONDS = 0.1  # shortest time between two beats
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 10.0

_VARIABLES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_", "https": "-", "http": "-"}
_ENDPOINT = re.compile(r"(STORAGE_)?(ENDPOINT|ENDPOINT_URL|ENDPOINT_URL_S3|BASE_URL)")
_TRUE = ("1", "true", "yes", "on")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_NOWHERE = "127.0.0.1:0"  # address at which no server can listen
_AWS_CREDENTIALS = ("amazonaws.com", "169.254.0.0/16")  # hosts of STS and of the metadata services

Kind = Literal["missing", "changed", "denied", "file", "refused", "outage"]
Result = TypeVar("Result")

# obstore raises GenericError for outages and for permanent failures. A message that matches _OUTAGE is an outage. Other
# messages are permanent failures, also an answer that cannot be parsed.
_OUTAGE = re.compile(r"status(?: code)?:? (?:408|429|5\d\d)|HTTP error|error response")

_XML = re.compile(r"<\?xml[^>]*>|<Error>(?:.*?<Code>([^<]*)</Code>)?.*?(?:</Error>|$)", re.S)


class _Failed(Exception):
    """A failed operation. The user's process receives it as an answer."""

    def __init__(self, kind: Kind, cause: str) -> None:
        super().__init__(cause)
        self.kind: Kind = kind


class _Short(Exception):
    """An answer with fewer bytes than its header states. `_patiently` repeats the request."""


class _Gone(Exception):
    """The user's process has closed the connection."""


def serve() -> None:
    """Answer requests until all processes that share the inherited socket have ended. Then exit this process."""
    clients = _Buckets()
    with socket.socket(fileno=MASTER) as master:
        while True:
            message, descriptors, _, _ = socket.recv_fds(master, 1, 1)
            if not message:
                os._exit(0)  # no process waits for running requests
            for descriptor in descriptors:
                connection = socket.socket(fileno=descriptor)
                threading.Thread(target=_answer, args=(connection, clients), daemon=True).start()


def _answer(connection: socket.socket, clients: "_Buckets") -> None:
    with connection:
        try:
            fields, payload, descriptors = _request(connection)
        except (EOFError, OSError):
            return
        try:
            call = _Call(connection, fields, payload, descriptors, clients)
            call.beat()
            try:
                found = call.run()
                call.send({**found, "failed": None, "last": True}, call.result)
            except _Failed as error:
                answer = {"failed": error.kind, "cause": str(error), "attempts": call.attempts, "last": True}
                call.send({**answer, "seconds": time.monotonic() - call.began})
        except (_Gone, BrokenPipeError, ConnectionResetError):
            pass
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _request(connection: socket.socket) -> tuple[Mapping[str, Any], bytes, list[int]]:
    """Return (JSON object, bytes, descriptors) of a request. The descriptors arrive with the first bytes."""
    data, descriptors, _, _ = socket.recv_fds(connection, HEAD.size, 1)
    while len(data) < HEAD.size:
        more = connection.recv(HEAD.size - len(data))
        if not more:
            raise EOFError
        data += more
    answer = receive(connection, head=data)
    return answer.fields, answer.payload, list(descriptors)


class _Buckets:
    """Cache of obstore clients, one per bucket. A client keeps open connections."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, float], Any] = {}

    def of(self, url: StoreURL, *, stall: float) -> Any:
        """Return the client for the bucket of a URL, with a read timeout of `stall` seconds."""
        key = (url.scheme, url.bucket, stall)
        if key not in self._known:
            options: ClientConfig = {
                "timeout": timedelta(seconds=max(120.0, 4 * stall)),
                "connect_timeout": timedelta(seconds=min(10.0, max(1.0, stall))),
                "read_timeout": timedelta(seconds=max(0.05, stall)),
            }
            retries: RetryConfig = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
            try:
                options.update(_reach(url))
                self._known[key] = stores.from_url(
                    f"{url.scheme}://{url.bucket}", client_options=options, retry_config=retries
                )
            except (exceptions.BaseError, ValueError) as error:
                raise _Failed("refused", _cause(error)) from error
        return self._known[key]


def _reach(url: StoreURL) -> "ClientConfig":
    """Return options that restrict the client to the hosts of the user. Allow only TLS if credentials could leak.

    obstore cannot disable redirects. Requests to other hosts therefore go through a nonexistent proxy and fail. This
    applies to web servers and to S3 with an endpoint, unless the user has configured a proxy.
    """
    prefix = _VARIABLES[url.scheme]
    variables = {name: value for name, value in conventions().items() if name.startswith(prefix)}
    named = [value for name, value in variables.items() if _ENDPOINT.fullmatch(name.removeprefix(prefix))]
    may_do_without_tls = variables.get(f"{prefix}ALLOW_HTTP", "").lower() in _TRUE or any(
        value.lower().startswith("http://") for value in named
    )
    if may_do_without_tls and "AWS_SESSION_TOKEN" in variables:
        raise _Failed(
            "denied", "AWS_SESSION_TOKEN is not sent without TLS: unset AWS_ALLOW_HTTP, give an https endpoint"
        )
    found: ClientConfig = {"allow_http": may_do_without_tls or url.scheme == "http"}
    has_proxy = any(value for name, value in conventions().items() if name.upper() in _PROXIES)
    servers = [f"//{url.bucket}"] if url.is_web else [value for value in variables.values() if "://" in value]
    if not has_proxy and (url.is_web or (url.scheme == "s3" and named)):
        hosts = [urlsplit(server).hostname or "" for server in servers]
        found["proxy_url"] = f"http://{_NOWHERE}"
        found["proxy_excludes"] = ",".join(hosts if url.is_web else [*hosts, *_AWS_CREDENTIALS])
    return found


class _Call:
    """Execution of one request."""

    def __init__(
        self,
        connection: socket.socket,
        fields: Mapping[str, Any],
        payload: bytes,
        descriptors: list[int],
        clients: "_Buckets",
    ) -> None:
        self._connection = connection
        self._fields = fields
        self._payload = payload
        self._descriptors = descriptors
        self._clients = clients
        self._url = StoreURL(fields["scheme"], fields["bucket"], fields["key"])
        self._sending = threading.Lock()
        self._last_beat = 0.0
        self._renew()
        self.began = time.monotonic()
        self.attempts = 0
        self.result: Any = b""

    def run(self) -> dict[str, Any]:
        """Run the operation. Return the fields of the answer, and store the bytes of the answer in `result`."""
        operations: dict[str, Callable[[], dict[str, Any]]] = {
            "list": self._list,
            "state": self._state,
            "read": self._read,
            "fetch": self._fetch,
            "write": self._write,
            "create": self._create,
            "upload": self._upload,
            "remove": self._remove,
        }
        return operations[self._fields["operation"]]()

    def send(self, fields: Mapping[str, Any], payload: Any = b"") -> None:
        head = json.dumps(fields).encode()
        with memoryview(payload) as view, self._sending:
            self._connection.sendall(HEAD.pack(len(head), len(view)) + head)
            self._connection.sendall(view)

    def beat(self) -> None:
        """Send a message without a result, so that the user's process waits longer. At most one message per 0.1 s."""
        now = time.monotonic()
        if now >= self._last_beat + _BEAT_SECONDS:
            self._last_beat = now
            self.send({"beat": True})

    def _renew(self) -> None:
        self._until = time.monotonic() + self._fields["patience"]

    @property
    def _client(self) -> Any:
        return self._clients.of(self._url, stall=self._fields["stall"])

    def _patiently(self, do: Callable[[], Result]) -> Result:
        """Return `do()`. During an outage, repeat the call until the patience ends."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            self.attempts += 1
            try:
                result = do()
                self._renew()
                return result
            except (FileNotFoundError, exceptions.NotFoundError) as error:
                raise _Failed("missing", _cause(error)) from error
            except exceptions.PreconditionError as error:
                raise _Failed("changed", _cause(error)) from error
            except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
                raise _Failed("denied", _cause(error)) from error
            except (exceptions.NotSupportedError, exceptions.InvalidPathError, ValueError) as error:
                raise _Failed("refused", _cause(error)) from error  # ValueError: a date that Python does not have
            except (exceptions.GenericError, exceptions.JoinError, _Short, TimeoutError, ConnectionError) as error:
                text, cause = str(error), _cause(error)
                if isinstance(error, exceptions.GenericError) and (_NOWHERE in text or not _OUTAGE.search(text)):
                    raise _Failed("refused", cause) from error
                left = self._until - time.monotonic()
                if left <= 0:
                    raise _Failed("outage", cause) from error
            self._check_caller(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _check_etag(self, found: str | None, wanted: str | None) -> None:
        """Raise _Failed if `wanted` is neither empty nor equal to `found`. Some servers (rclone's) ignore If-Match."""
        if wanted and _etag(found) != wanted:
            raise _Failed("changed", f"expected ETag {wanted}, found {_etag(found)}")

    def _check_caller(self, seconds: float) -> None:
        """Wait `seconds`. Raise _Gone as soon as the user's process has closed the connection."""
        closed = select.poll()  # a new object per call, because several threads may wait
        closed.register(self._connection, select.POLLRDHUP | select.POLLHUP)
        if closed.poll(1000 * seconds):
            raise _Gone

    # ---- operations

    def _list(self) -> dict[str, Any]:
        last = ""  # last name that was sent; an interrupted listing continues after this name

        def rest() -> None:
            nonlocal last
            pages = obstore.list(
                self._client, prefix=self._url.key or None, offset=last or None, chunk_size=_PAGE_OBJECTS
            )
            for page in pages:
                objects = [{"name": item["path"], **_described(item)} for item in page]
                self.send({"objects": objects, "failed": None, "last": False})
                last = objects[-1]["name"]
                self._renew()

        self._patiently(rest)
        return {"objects": []}

    def _state(self) -> dict[str, Any]:
        found = self._patiently(lambda: obstore.head(self._client, self._url.key))
        return _described(found)

    def _read(self) -> dict[str, Any]:
        start = self._fields["start"]
        chunks, _ = self._get(start, (start or 0) + self._fields["most"], self._fields["etag"])
        self.result = b"".join(chunks)
        return {}

    def _get(self, start: int | None, end: int, etag: str | None, size: int | None = None) -> tuple[list[Any], str]:
        """Return chunks of the bytes from `start` to `end`, and the ETag. Raise _Failed if the object changed.

        `size` and `etag` are the expected values. If `start` is None, return the complete object, at most `end` bytes.
        """

        def get() -> tuple[list[Any], str]:
            options: GetOptions = {} if start is None or (start, end) == (0, size) else {"range": (start, end)}
            if etag:
                options["if_match"] = etag
            answer = obstore.get(self._client, self._url.key, options=options)
            if size not in (None, answer.meta["size"]):
                raise _Failed("changed", f"expected {size} bytes, found {answer.meta['size']}")
            self._check_etag(answer.meta["e_tag"], etag)
            most, found = end - (start or 0), answer.range[1] - answer.range[0]
            if found > most:
                raise _Failed("refused", f"expected at most {most} bytes, found {found}")
            return self._body(answer), _etag(answer.meta["e_tag"])

        return self._patiently(get)

    def _body(self, answer: Any) -> list[Any]:
        """Return the chunks of an answer. If their total size differs from its header, raise _Failed or _Short."""
        first, end = answer.range
        chunks: list[Any] = []
        found = 0
        for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
            found += len(chunk)
            chunks.append(chunk)
            if found > end - first:
                raise _Failed("refused", f"expected {end - first} bytes, found more")
            self.beat()
        if found < end - first:
            raise _Short(f"expected {end - first} bytes, found {found}")
        return chunks

    def _fetch(self) -> dict[str, Any]:
        """Download ranges concurrently. Write and hash them in order. Raise _Failed if the ETag changes meanwhile."""
        (descriptor,) = self._descriptors
        size, etag = self._fields["bytes"], self._fields["etag"]
        digest = hashlib.sha256()
        starts = deque(range(0, size, _RANGE_BYTES))
        waiting: deque[tuple[int, Future[Any]]] = deque()
        if not size:
            found = self._state()
            if found["bytes"] or (etag and found["etag"] != etag):
                raise _Failed("changed", f"expected no bytes, found {found['bytes']}")
            etag = found["etag"]
        elif not etag:
            chunks, etag = self._get(starts.popleft(), min(size, _RANGE_BYTES), "", size)
            _write_at(descriptor, chunks, 0, digest)
        with ThreadPoolExecutor(_RANGES) as pool:
            try:
                while starts or waiting:
                    while starts and len(waiting) < _RANGES:
                        start = starts.popleft()
                        end = min(size, start + _RANGE_BYTES)
                        waiting.append((start, pool.submit(self._get, start, end, etag, size)))
                    start, future = waiting.popleft()
                    chunks, _ = future.result()
                    _write_at(descriptor, chunks, start, digest)
                    self._check_caller(0)
            except BaseException:
                for _, future in waiting:
                    future.cancel()
                raise
        return {"bytes": size, "sha256": digest.hexdigest(), "etag": etag}

    def _write(self) -> dict[str, Any]:
        put = self._patiently(lambda: obstore.put(self._client, self._url.key, self._payload, use_multipart=False))
        return {"etag": _etag(put["e_tag"])}

    def _create(self) -> dict[str, Any]:
        def put() -> bool:
            try:
                obstore.put(self._client, self._url.key, self._payload, mode="create")
            except exceptions.AlreadyExistsError:
                try:
                    found = obstore.get(self._client, self._url.key)
                except (FileNotFoundError, exceptions.NotFoundError) as error:  # S3's 409 for concurrent creates
                    raise _Short("it existed, and then it did not") from error
                return found.range == (0, len(self._payload)) and b"".join(self._body(found)) == self._payload
            return True

        return {"created": self._patiently(put)}

    def _upload(self) -> dict[str, Any]:
        (descriptor,) = self._descriptors
        size = os.fstat(descriptor).st_size
        part = max(_UPLOAD_BYTES, -(-size // _UPLOAD_PARTS))

        def put() -> Any:
            with _Watched(descriptor, closefd=False) as file:
                file.watch = self.beat
                file.seek(0)
                return obstore.put(self._client, self._url.key, file, chunk_size=part, max_concurrency=_RANGES)

        try:
            done = self._patiently(put)
        except _Failed as error:
            if error.kind != "missing":
                raise
            # the answer to the completion was lost, and the store has removed the finished upload
            done = self._patiently(put)
        return {"etag": _etag(done["e_tag"])}

    def _remove(self) -> dict[str, Any]:
        self._patiently(lambda: obstore.delete(self._client, self._url.key))
        return {}


class _Watched(io.FileIO):
    watch: Callable[[], None]

    def read(self, size: int | None = -1, /) -> bytes:
        self.watch()
        return super().read(-1 if size is None else size)


def _described(found: Any) -> dict[str, Any]:
    modified = int(found["last_modified"].timestamp() * 1e9)
    return {"bytes": found["size"], "etag": _etag(found["e_tag"]), "modified_ns": modified}


def _etag(text: str | None) -> str:
    """Return an ETag with quotes, which listings of Azure omit, or "" without an ETag."""
    return f'"{text}"' if text and not text.endswith('"') else text or ""


def _write_at(descriptor: int, chunks: list[Any], start: int, digest: Any) -> None:
    for chunk in chunks:
        digest.update(chunk)
        with memoryview(chunk) as view:
            done = 0
            while done < len(view):
                try:
                    done += os.pwrite(descriptor, view[done:], start + done)
                except OSError as error:
                    raise _Failed("file", f"{error.strerror} ({error.errno})") from error
            start += done


def _cause(error: BaseException) -> str:
    """Return the message of an obstore error in one line, without debug text. An XML answer is reduced to `<Code>`."""
    if _NOWHERE in str(error):
        return "the server redirects to another host than the one that was named"
    text = _XML.sub(lambda found: found[1] or "", str(error).partition("Debug source")[0])
    text = " ".join(text.replace("Server returned non-2xx status code: ", "").split())
    return (text or type(error).__name__)[:600]
