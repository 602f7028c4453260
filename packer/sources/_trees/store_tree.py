"""Store tree: the objects below a URL as files of a folder: `s3://bucket/photos` with classes below it.

One listing says names, sizes and times; each file is read by a request of its own, with the ETag of the listing, so
that a file which is replaced meanwhile is an error. What no folder could hold is refused as of an archive: names that
lead elsewhere, come twice but for case or accents, or are a folder too. An empty object whose name is that of a folder
is what consoles make for one.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

from packer.errors import BadInput, InvalidRequest, ObjectChanged
from packer.sources._trees.archive_tree import Found
from packer.sources._trees.file_tree import Contents, FileState, FileTree
from packer.stores.store import Store, StoredObject, StoreOptions
from packer.stores.url import URLPath

_READS_AT_ONCE = 32  # each waits some 10 to 50 ms for its answer, whatever it asks for
_SECOND_NS = 10**9


class StoreTree(FileTree):
    """The files below one URL."""

    reads_at_once = _READS_AT_ONCE

    def __init__(self, root: URLPath, options: StoreOptions | None = None) -> None:
        """Lists them. Raises InvalidRequest where there is none, BadInput where one cannot be taken, StoreError."""
        self.root: Path = root
        self._store = Store(root.url, options or StoreOptions())
        objects = list(self._store.objects())
        if not objects and self._store.state() is not None:
            raise InvalidRequest(
                f"{root}: is one object: archives and files of records are read from a disk; download it"
            )
        if not objects:
            raise InvalidRequest(f"{root}: nothing is there; see the URL, and give the folder that holds the images")
        found = Found()
        folders = _folders(each.name for each in objects)
        kept: list[StoredObject] = []
        for each in objects:
            if not each.bytes and each.name in folders:
                continue
            if found.add_file(each.name, len(kept), each.bytes):
                kept.append(each)
        found.settle(root, takes_root=False)
        self._objects = [kept[at] for at in found.offsets]
        self._contents = Contents(found.names, sorted(found.folders))

    @property
    def contents(self) -> Contents:
        return self._contents

    @property
    def is_local(self) -> bool:
        return False

    def read(self, name: str, *, is_table: bool = False) -> bytes:
        found = self._object(name)
        if not is_table:
            self.check_size(name, found.bytes)
        try:
            data = self._store.read(found.name, most=found.bytes, etag=found.etag)
        except ObjectChanged as error:
            raise BadInput(f"{self.root / name}: changed since it was listed; run again") from error
        if len(data) != found.bytes:
            raise BadInput(f"{self.root / name}: expected {found.bytes} bytes, found {len(data)}; run again")
        return data

    def start(self, name: str, count: int) -> bytes:
        found = self._object(name)
        if not found.bytes:
            return b""
        try:
            return self._store.read(found.name, start=0, most=min(count, found.bytes), etag=found.etag)
        except ObjectChanged as error:
            raise BadInput(f"{self.root / name}: changed since it was listed; run again") from error

    def state(self, name: str) -> FileState:
        """A server tells whole seconds; below them is a hash of the ETag, so that other bytes have another time."""
        found = self._object(name)
        seconds = found.modified_ns // _SECOND_NS
        return FileState(found.bytes, seconds * _SECOND_NS + _below_a_second(found.etag), is_regular=True)

    def _object(self, name: str) -> StoredObject:
        names = self._contents.names
        at = bisect_left(names, name)
        if at == len(names) or names[at] != name:
            raise BadInput(f"{self.root / name}: cannot read: no such object; run again if it changed")
        return self._objects[at]


def _folders(names: Iterable[str]) -> set[str]:
    """All that lead to a file."""
    folders: set[str] = set()
    for name in names:
        at = name.rfind("/")
        while at >= 0 and name[:at] not in folders:
            folders.add(name[:at])
            at = name.rfind("/", 0, at)
    return folders


def _below_a_second(etag: str) -> int:
    return int.from_bytes(hashlib.sha256(etag.encode()).digest()[:8], "big") % _SECOND_NS
