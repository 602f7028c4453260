"""URL: the place of a pack or a data set in an object store, such as `s3://bucket/photos.pack`.

A URL comes from the command line or from Python, and never from a pack.
"""

import os
import re
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path, PosixPath

from packer.errors import DOCS, InvalidRequest, printable

SCHEMES = ("s3", "gs", "az", "https", "http")
WEB_SCHEMES = ("https", "http")  # can neither list nor write
_START = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class StoreURL:
    """A parsed URL.

    Attributes:
        scheme: One of SCHEMES.
        bucket: Bucket of S3 and Google, container of Azure, or host and port of a web server.
        key: Path below the bucket, without a slash at its ends; "" for the complete bucket.
    """

    scheme: str
    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}" if self.key else f"{self.scheme}://{self.bucket}"

    def __truediv__(self, name: str) -> "StoreURL":
        """Return the URL of an object below this one."""
        return replace(self, key=f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """The last component of the key; the bucket if the key is empty."""
        return self.key.rpartition("/")[2] or self.bucket

    @property
    def is_web(self) -> bool:
        """True for a web server: objects are read one by one, and can be neither listed nor written."""
        return self.scheme in WEB_SCHEMES


def is_url(text: str | PathLike[str]) -> bool:
    """Check that a text is the URL of an object store; a path or a name with a colon is not."""
    found = _START.match(text) if isinstance(text, str) else None
    return found is not None and found[1].lower() in SCHEMES


def parse(text: str) -> StoreURL:
    """Parse a URL; raises InvalidRequest for a text that does not name a place in a store."""
    shown = printable(text)
    found = _START.match(text)
    if found is None or found[1].lower() not in SCHEMES:
        raise InvalidRequest(f"{shown}: expected a URL that begins with {', '.join(f'{name}://' for name in SCHEMES)}")
    scheme = found[1].lower()
    bucket, _, key = text[found.end() :].partition("/")
    if "@" in bucket:  # and does not repeat it
        raise InvalidRequest(
            f"{scheme}://: a user or password stands in front of the host; URLs end up in logs: give credentials as "
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
    """A URL in the place of a path: it can be joined and printed, but not opened."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    @property
    def url(self) -> StoreURL:
        """The URL; raises InvalidRequest."""
        return parse(str(self))


def path_or_url(text: str | PathLike[str]) -> Path:
    """Return a path with `~` expanded, or a URLPath; raises InvalidRequest for a bad URL."""
    if isinstance(text, URLPath):
        return text
    return URLPath(str(parse(str(text)))) if is_url(text) else Path(os.path.expanduser(text))
