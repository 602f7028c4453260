"""Store: the objects below one URL, listed, read and written; each call says what failed, where, and how often.

What does the work is obstore (object_store of Rust), in a process of its own, see client_process.py. An outage, that
is a server that answers 5xx or not at all, is waited for; a refusal is not. What may change under a reader is read with
the ETag that the listing or an earlier answer gave.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from packer.errors import InvalidRequest, NoObject, ObjectChanged, StorageError, StoreError, printable
from packer.files.storage_errors import failing
from packer.stores.client_process import Answer, ask
from packer.stores.url import StoreURL


@dataclass(frozen=True)
class StoreOptions:
    """patience_seconds: how long an outage is waited for before StoreError is raised, from the last bytes on.

    stall_seconds: how long a connection may bring nothing before it is given up and another one tried.
    """

    patience_seconds: float = 180.0
    stall_seconds: float = 20.0

    def __post_init__(self) -> None:
        for name in ("patience_seconds", "stall_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
                raise InvalidRequest(f"{name}={value!r}: expected seconds, at least 0")


class StoredObject(NamedTuple):
    """An object of a listing. name: relative to the store's URL. modified_ns: since 1970, as the server says it."""

    name: str
    bytes: int
    etag: str
    modified_ns: int


class Fetched(NamedTuple):
    """What was written into a file: sha256 as hex of its bytes."""

    bytes: int
    sha256: str
    etag: str


@dataclass(frozen=True)
class Store:
    """The objects below a URL. Pickles; threads and forked children may share it.

    name, in all calls: relative to the URL, with `/` between its components; "" for the object at the URL itself.
    Every call raises StoreError: an outage that outlasts `patience_seconds`, or a refusal at once. The calls that
    change something raise InvalidRequest for https, which can only be read.
    """

    url: StoreURL
    options: StoreOptions = StoreOptions()

    def objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """All objects below the URL, or below `prefix` there, in the store's order, which goes on behind a name.

        An object whose name ends with `/`, as consoles make for an empty folder, comes without that slash.
        Raises InvalidRequest for https, which has no listing. Raises StoreError for a listing that cannot be: with a
        name from elsewhere, a name that does not rise, neither by its bytes nor by its components, or too many.
        """
        self._check_not_web("list what is there", "give a store that has listings, such as s3://")
        below = self.url / prefix if prefix else self.url
        cut = len(self.url.key) + 1 if self.url.key else 0
        last, count = _FIRST, 0
        for answer in self._asked("list", prefix, {"key": below.key}):
            for found in answer.fields["objects"]:
                key = found["name"]
                if key == below.key:  # what consoles make for this folder itself
                    continue
                last, count = _risen(last, key), count + 1
                if not last or count > _MOST_OBJECTS or not key.startswith(f"{below.key}/" if below.key else ""):
                    raise StoreError(
                        f"{below}: list: refused: expected at most {_MOST_OBJECTS:,} rising names below it, found "
                        f"{printable(key[:200])} as number {count:,}; see the store"
                    )
                yield _object(below, key[cut:], found)

    def state(self, name: str = "") -> StoredObject | None:
        """Size, ETag and time of an object; None where there is none."""
        try:
            found = self._ask("state", name).fields
        except NoObject:
            return None
        return _object(self.url, name, found)

    def read(self, name: str = "", *, most: int, start: int | None = None, etag: str | None = None) -> bytes:
        """The bytes of an object, which has at most `most`; with `start`, at most so many of its bytes from there on.

        Raises NoObject; ObjectChanged where its ETag is another by now; StoreError where more bytes come.
        """
        return self._ask("read", name, {"start": start, "most": most, "etag": etag}).payload

    def fetch(self, name: str, descriptor: int, *, bytes: int, etag: str | None = None) -> Fetched:
        """Write an object of so many bytes into the open file from its beginning, hashed on the way.

        Several ranges are under way at once. Raises NoObject; ObjectChanged where its size or ETag is another;
        StorageError where the file cannot be written.
        """
        found = self._ask("fetch", name, {"bytes": bytes, "etag": etag}, descriptors=[descriptor]).fields
        return Fetched(found["bytes"], found["sha256"], found["etag"])

    def write(self, name: str, data: bytes) -> str:
        """Put an object, over one that is there; returns its ETag."""
        self._check_not_web("write", "give a store that can be written, such as s3://")
        return str(self._ask("write", name, payload=data).fields["etag"])

    def create(self, name: str, data: bytes) -> bool:
        """Put an object unless one is there: whether it holds these bytes now, by this call or an earlier one.

        An answer that was lost, and S3's 409, are resolved by reading what is there. Of several that create with
        different bytes one gets True, on stores that keep If-None-Match; see `keeps_conditions`.
        """
        self._check_not_web("write", "give a store that can be written, such as s3://")
        return bool(self._ask("create", name, payload=data).fields["created"])

    def upload(self, name: str, path: Path) -> str:
        """Put a file as an object, over one that is there, in several parts where it is large; returns its ETag.

        A failed upload of several parts is aborted, so that none of them stay and are billed; obstore before 0.12 does
        not do so. Raises StorageError where the file cannot be read.
        """
        self._check_not_web("write", "give a store that can be written, such as s3://")
        with failing(path, "open"):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return str(self._ask("upload", name, descriptors=[descriptor]).fields["etag"])
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        """Remove an object; one that is not there is no error."""
        self._check_not_web("remove", "give a store that can be written, such as s3://")
        with suppress(NoObject):
            self._ask("remove", name)

    def keeps_conditions(self, name: str) -> bool:
        """Whether the store refuses to create an object that is there, tried with an object of this name.

        A store that ignores If-None-Match, as rclone's S3 server does, overwrites and reports success. The object is
        removed again.
        """
        try:
            return self.create(name, b"first") and not self.create(name, b"second")
        finally:
            self.remove(name)

    def _check_not_web(self, verb: str, instead: str) -> None:
        if self.url.is_web:
            raise InvalidRequest(f"{self.url}: a web server cannot {verb}; {instead}")

    def _ask(
        self,
        operation: str,
        name: str,
        fields: Mapping[str, Any] | None = None,
        *,
        payload: bytes = b"",
        descriptors: Sequence[int] = (),
    ) -> Answer:
        """The one answer to a request."""
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
        """The answers to a request, one after the other; raises what the client process says went wrong."""
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


_MOST_OBJECTS = 1 << 24  # of a listing
_MOST_OBJECT_BYTES = 1 << 50  # stores take 5 to 190 TiB
_MOST_NAME_BYTES, _MOST_ETAG = 4096, 1024
_Ranks = Mapping[Callable[[bytes], Any], Any]  # by an order of names: of the last name
_FIRST: _Ranks = {bytes: b"", lambda name: name.split(b"/"): []}  # by bytes as in S3, or by components as in folders


def _risen(last: _Ranks, name: str) -> _Ranks:
    """The ranks of a name, also with the slash that the client cuts from its end, in the orders in which it rises.

    So no name comes twice, and a listing that breaks off can go on behind its last name.
    """
    found = {order: (order(name.encode()), order(f"{name}/".encode())) for order in last}
    return {order: low if low > last[order] else high for order, (low, high) in found.items() if high > last[order]}


def _object(url: StoreURL, name: str, found: Mapping[str, Any]) -> StoredObject:
    """An object that a store has described; raises StoreError for what no object has."""
    size, etag = found["bytes"], found["etag"]
    if size > _MOST_OBJECT_BYTES or len(etag) > _MOST_ETAG or len(name.encode()) > _MOST_NAME_BYTES:
        raise StoreError(
            f"{url}: refused: {printable(name[:200])}: {size} bytes, or too long a name or ETag; see the store"
        )
    return StoredObject(name, size, etag, min(max(0, found["modified_ns"]), (1 << 63) - 1))


_CREDENTIALS = (
    "see the credentials: the variables of the store's own tools (AWS_ACCESS_KEY_ID ..., AWS_ENDPOINT_URL, "
    "GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME ...), docs/howto/remote.md"
)


def _error(url: StoreURL, operation: str, answer: Mapping[str, Any]) -> StorageError:
    """The error of an answer that says what failed."""
    kind, cause = answer["failed"], printable(str(answer["cause"]))
    where = printable(str(url))
    tries = f"{answer['attempts']} attempts in {answer['seconds']:.1f} s"
    if kind == "missing":
        return NoObject(f"{where}: {operation}: there is no such object or bucket; see the URL")
    if kind == "changed":
        return ObjectChanged(f"{where}: {operation}: changed since it was listed or opened: {cause}; open it again")
    if kind == "denied":
        return StoreError(f"{where}: {operation}: not allowed: {cause}; {_CREDENTIALS}")
    if kind == "file":
        return StorageError(f"{where}: {operation}: the file on this machine: {cause}; see its disk")
    if "169.254.169.254" in cause:  # whom the client asks for credentials where no variable has any
        return StoreError(f"{where}: {operation}: no credentials: {cause}; {_CREDENTIALS}")
    if kind == "refused" and "invalid path" in cause:
        return StoreError(f"{where}: {operation}: refused: {cause}: a name that the client does not take; rename it")
    if kind == "refused":
        return StoreError(f"{where}: {operation}: refused: {cause}; see the URL, region and endpoint")
    hint = "see the network and the store, then run again"
    return StoreError(f"{where}: {operation}: no answer that helps: {cause} ({tries}); {hint}")
