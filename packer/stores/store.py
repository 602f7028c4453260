"""Store: lists, reads and writes the objects below one URL.

obstore (a Python binding of the Rust crate object_store) runs in a separate process (packer.stores.client_process).
In an outage, the server answers 5xx or does not answer, and operations are repeated. Operations that the server refuses
are not repeated. To detect a change of an object, a read can require the ETag of a listing or of an earlier answer.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from packer.errors import DOCS, InvalidRequest, NoObject, ObjectChanged, StorageError, StoreError, printable
from packer.files.storage_errors import failing
from packer.stores.client_process import Answer, ask
from packer.stores.url import StoreURL


@dataclass(frozen=True)
class StoreOptions:
    """Options of a store.

    Attributes:
        patience_seconds: Duration of an outage after which StoreError is raised, counted from the last received bytes.
        stall_seconds: Time without received bytes after which a new connection replaces the connection.
    """

    patience_seconds: float = 180.0
    stall_seconds: float = 20.0

    def __post_init__(self) -> None:
        for name in ("patience_seconds", "stall_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
                raise InvalidRequest(f"{name}={value!r}: expected seconds, at least 0")


class StoredObject(NamedTuple):
    """An object of a store: name relative to the URL, size in bytes, ETag, time of the last change (ns since 1970)."""

    name: str
    bytes: int
    etag: str
    modified_ns: int


class Fetched(NamedTuple):
    """Result of `Store.fetch`: size, hexadecimal sha256 and ETag of the downloaded object."""

    bytes: int
    sha256: str
    etag: str


@dataclass(frozen=True)
class Store:
    """The objects below a URL. A store can be pickled. Threads and forked children may share a store.

    The argument `name` of all methods is relative to the URL, with `/` as separator. The name "" is the object at the
    URL. All methods raise StoreError if the server refuses the operation, or if an outage is longer than
    `patience_seconds`. Methods that write or remove objects raise InvalidRequest for web servers.
    """

    url: StoreURL
    options: StoreOptions = StoreOptions()

    def objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield all objects below the URL, or only objects below URL/`prefix`, in the order of the store.

        A name that ends with `/`, the marker of an empty folder, is yielded without the slash. Raises InvalidRequest
        for web servers, which cannot list objects. Raises StoreError if the store lists too many names, names outside
        of the URL, or names that are sorted neither by bytes nor by components.
        """
        if self.url.is_web:
            raise InvalidRequest(f"{self.url}: a web server cannot list its files; give a store, such as s3://")
        below = self.url / prefix if prefix else self.url
        cut = len(self.url.key) + 1 if self.url.key else 0
        last, count = _FIRST, 0
        for answer in self._asked("list", prefix, {"key": below.key}):
            for found in answer.fields["objects"]:
                key = found["name"]
                if key == below.key:  # marker of the folder itself
                    continue
                last, count = _risen(last, key), count + 1
                if not last or count > _MOST_OBJECTS or not key.startswith(f"{below.key}/" if below.key else ""):
                    raise StoreError(
                        f"{below}: list: refused: expected at most {_MOST_OBJECTS:,} rising names below it, found "
                        f"{printable(key[:200])} as number {count:,}; see the store"
                    )
                yield _object(below, key[cut:], found)

    def state(self, name: str = "") -> StoredObject | None:
        """Return name, size, ETag and time of an object, or None if the object does not exist."""
        try:
            found = self._ask("state", name).fields
        except NoObject:
            return None
        return _object(self.url, name, found)

    def read(self, name: str = "", *, most: int, start: int | None = None, etag: str | None = None) -> bytes:
        """Return the complete object if `start` is None, else at most `most` bytes from offset `start` on.

        Raises NoObject if the object does not exist, and ObjectChanged if its ETag is not `etag`. None accepts any
        ETag. Raises StoreError if the server sends more than `most` bytes. This also applies to complete objects.
        """
        return self._ask("read", name, {"start": start, "most": most, "etag": etag}).payload

    def fetch(self, name: str, descriptor: int, *, bytes: int, etag: str | None = None) -> Fetched:
        """Download an object into the open file `descriptor`, from offset 0, and compute the sha256.

        `bytes` is the expected size, `etag` the expected ETag, or None for any. Raises ObjectChanged if the object has
        another size or ETag, NoObject if it does not exist, and StorageError if writing the file fails.
        """
        found = self._ask("fetch", name, {"bytes": bytes, "etag": etag}, descriptors=[descriptor]).fields
        return Fetched(found["bytes"], found["sha256"], found["etag"])

    def write(self, name: str, data: bytes) -> str:
        """Write an object, or replace an existing object. Return the ETag."""
        self._check_writable()
        return str(self._ask("write", name, payload=data).fields["etag"])

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless the object exists. Return True if the object now contains `data`, otherwise False.

        If several processes create an object with different bytes, exactly one call returns True. This requires a store
        that supports If-None-Match, which `keeps_conditions` checks.
        """
        self._check_writable()
        return bool(self._ask("create", name, payload=data).fields["created"])

    def upload(self, name: str, path: Path) -> str:
        """Write an object from a file, or replace an existing object. Return the ETag.

        Large files are uploaded in several parts. A failed upload is aborted, so that the store does not keep and bill
        parts. Raises StorageError if the file cannot be read.
        """
        self._check_writable()
        with failing(path, "open"):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return str(self._ask("upload", name, descriptors=[descriptor]).fields["etag"])
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        """Remove an object. Do nothing if the object does not exist."""
        self._check_writable()
        with suppress(NoObject):
            self._ask("remove", name)

    def keeps_conditions(self, name: str) -> bool:
        """Return True if the store supports If-None-Match, so that `create` does not overwrite an existing object.

        The check creates and removes an object `name`. A store without this support, such as rclone's S3 server,
        overwrites the object and reports success.
        """
        try:
            return self.create(name, b"first") and not self.create(name, b"second")
        finally:
            self.remove(name)

    def _check_writable(self) -> None:
        if self.url.is_web:
            raise InvalidRequest(f"{self.url}: a web server cannot be written; give a store, such as s3://")

    def _ask(
        self,
        operation: str,
        name: str,
        fields: Mapping[str, Any] | None = None,
        *,
        payload: bytes = b"",
        descriptors: Sequence[int] = (),
    ) -> Answer:
        """Return the only answer to a request. The arguments and errors are those of `_asked`."""
        (answer,) = self._asked(operation, name, fields, payload=payload, descriptors=descriptors)
        return answer

    def _asked(
        self,
        operation: str,
        name: str,
        fields: Mapping[str, Any] | None = None,
        *,
        payload: bytes = b"",
        descriptors: Sequence[int] = (),
    ) -> Iterator[Answer]:
        """Yield the answers to a request for an operation on an object. If one reports a failure, raise its error."""
        url = self.url / name if name else self.url
        request = {
            "operation": operation,
            "scheme": url.scheme,
            "bucket": url.bucket,
            "key": url.key,
            "patience": self.options.patience_seconds,
            "stall": self.options.stall_seconds,
            **(fields or {}),
        }
        for answer in ask(request, payload=payload, descriptors=descriptors, where=f"{url}: {operation}"):
            if answer.fields["failed"] is not None:
                raise _error(url, operation, answer.fields)
            yield answer


_MOST_OBJECTS = 1 << 24  # limit of a listing
_MOST_OBJECT_BYTES = 1 << 50  # stores accept objects of 5 to 190 TiB
_MOST_NAME_BYTES, _MOST_ETAG = 4096, 1024
_Ranks = Mapping[Callable[[bytes], Any], Any]  # sort key function -> sort key of the last name
_FIRST: _Ranks = {bytes: b"", lambda name: name.split(b"/"): []}  # by bytes as in S3, or by components as in folders


def _risen(last: _Ranks, name: str) -> _Ranks:
    """Return the sort orders (functions) in which `name` follows the previous name, with the sort key of `name`.

    `last` is the result for the previous name. The result is empty if `name` is not in order. If only `name/` follows,
    its sort key is used. In an ordered listing, names are unique, and an interrupted listing can continue.
    """
    found = {order: (order(name.encode()), order(f"{name}/".encode())) for order in last}
    return {order: low if low > last[order] else high for order, (low, high) in found.items() if high > last[order]}


def _object(url: StoreURL, name: str, found: Mapping[str, Any]) -> StoredObject:
    """Return the object for an entry of an answer. Raise StoreError for an invalid size, name or ETag."""
    size, etag = found["bytes"], found["etag"]
    if size > _MOST_OBJECT_BYTES or len(etag) > _MOST_ETAG or len(name.encode()) > _MOST_NAME_BYTES:
        raise StoreError(
            f"{url}: refused: {printable(name[:200])}: {size} bytes, or too long a name or ETag; see the store"
        )
    return StoredObject(name, size, etag, min(max(0, found["modified_ns"]), (1 << 63) - 1))


_CREDENTIALS = (
    "see the credentials: the variables of the store's own tools (AWS_ACCESS_KEY_ID ..., AWS_ENDPOINT_URL, "
    f"GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME ...), {DOCS}/pack/stores.md"
)


_FAILURES: Mapping[str, tuple[type[StorageError], str]] = {
    "missing": (NoObject, "there is no such object or bucket; see the URL"),
    "changed": (ObjectChanged, "changed since it was listed or opened: {cause}; open it again"),
    "denied": (StoreError, f"not allowed: {{cause}}; {_CREDENTIALS}"),
    "file": (StorageError, "the file on this machine: {cause}; see its disk"),
    "no credentials": (StoreError, f"no credentials: {{cause}}; {_CREDENTIALS}"),
    "name": (StoreError, "refused: {cause}: a name that the client does not accept; rename it"),
    "refused": (StoreError, "refused: {cause}; see the URL, region and endpoint"),
    "outage": (StoreError, "no answer that helps: {cause} ({tries}); see the network and the store, then run again"),
}


def _error(url: StoreURL, operation: str, answer: Mapping[str, Any]) -> StorageError:
    kind, cause = answer["failed"], printable(str(answer["cause"]))
    if kind in ("refused", "outage") and "169.254.169.254" in cause:  # the client looks there for credentials
        kind = "no credentials"
    elif kind == "refused" and "invalid path" in cause:
        kind = "name"
    error, text = _FAILURES[kind]
    tries = f"{answer['attempts']} attempts in {answer['seconds']:.1f} s"
    return error(f"{printable(str(url))}: {operation}: {text.format(cause=cause, tries=tries)}")
