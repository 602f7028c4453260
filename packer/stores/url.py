"""URL: the location of a pack or a data set in an object store, such as `s3://bucket/photos.pack`.

URLs come from the command line, from Python code, or from the list of members in a collection. Members at a URL are
opened only if the user gives a folder for downloads.
"""

import os
import re
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path, PosixPath

from packer.errors import DOCS, InvalidRequest, printable

SCHEMES = ("s3", "gs", "az", "https", "http")
WEB_SCHEMES = ("https", "http")  # web servers can neither list nor write objects
_START = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class StoreURL:
    """A parsed URL.

    Attributes:
        scheme: One of SCHEMES.
        bucket: Bucket of S3 and Google, container of Azure, or host and port of a web server.
        key: Path below the bucket, without slashes at the start and end. "" is the complete bucket.
    """

    scheme: str
    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}" if self.key else f"{self.scheme}://{self.bucket}"

    def __truediv__(self, name: str) -> "StoreURL":
        """Return the URL of the object `name` below this URL."""
        return replace(self, key=f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """Last component of the key, or the bucket if the key is empty."""
        return self.key.rpartition("/")[2] or self.bucket

    @property
    def is_web(self) -> bool:
        """True for http and https. A web server can read objects, but cannot list or write objects."""
        return self.scheme in WEB_SCHEMES


def is_url(text: str | PathLike[str]) -> bool:
    """Return True if `text` begins with a scheme in SCHEMES, such as `s3://`. Local paths return False."""
    found = _START.match(text) if isinstance(text, str) else None
    return found is not None and found[1].lower() in SCHEMES


def parse(text: str) -> StoreURL:
    """Parse a URL. Raises InvalidRequest if the text is not a valid URL of an object store."""
    shown = printable(text)
    found = _START.match(text)
    if found is None or found[1].lower() not in SCHEMES:
        raise InvalidRequest(f"{shown}: expected a URL that begins with {', '.join(f'{name}://' for name in SCHEMES)}")
    scheme = found[1].lower()
    bucket, _, key = text[found.end() :].partition("/")
    if "@" in bucket:  # the message does not repeat the password
        raise InvalidRequest(
            f"{scheme}://: a user or password is in front of the host; URLs end up in logs: give credentials as "
            f"the store's own tools take them ({DOCS}/pack/stores.md)"
        )
    if not (_HOST if scheme in WEB_SCHEMES else _BUCKET).fullmatch(bucket):
        kind = "a host" if scheme in WEB_SCHEMES else "a bucket or container"
        raise InvalidRequest(f"{shown}: expected {kind} behind {scheme}://, found {printable(bucket)!r}")
    for character in "?#":
        if character in key and scheme in WEB_SCHEMES:
            raise InvalidRequest(f"{shown}: expected a path without {character!r}: a pack is several files below it")
    key = key.rstrip("/")
    if any(part in ("", ".", "..") for part in key.split("/")) and key:
        raise InvalidRequest(f"{shown}: expected names between the slashes, found an empty one, . or ..")
    if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in key):
        raise InvalidRequest(f"{shown}: expected a key of printable characters")
    return StoreURL(scheme, bucket, key)


class URLPath(PosixPath):
    """A URL as a pathlib path, which can be joined and printed but not opened."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    @property
    def url(self) -> StoreURL:
        """The parsed URL. Raises InvalidRequest if the text is not a valid URL."""
        return parse(str(self))


def path_or_url(text: str | PathLike[str]) -> Path:
    """Return a URLPath for a URL, otherwise a Path with `~` expanded. Raises InvalidRequest if `text` is invalid."""
    if isinstance(text, URLPath):
        return text
    if "\0" in str(text):
        raise InvalidRequest(f"{printable(str(text))}: expected a path without NUL")
    return URLPath(str(parse(str(text)))) if is_url(text) else Path(os.path.expanduser(text))
