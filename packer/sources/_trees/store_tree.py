"""Store tree: reads the objects below a URL as files, such as `s3://bucket/photos` with folders that are classes.

One listing returns names, sizes and times. Each read is a request with the ETag of the listing: an object that was
replaced meanwhile raises BadInput. The rules for names in archives (archive_tree) apply. An empty object with the name
of a folder is skipped: web consoles create such objects for folders.
"""

import hashlib

from packer.errors import BadInput, InvalidRequest, ObjectChanged
from packer.sources._trees.archive_tree import ListedTree, Members, add_parents
from packer.sources._trees.file_tree import FileState
from packer.stores.store import Store, StoredObject
from packer.stores.url import URLPath

_SECOND_NS = 10**9


class StoreTree(ListedTree):
    """The files below one URL."""

    reads_at_once = 32  # a request takes 10 to 50 ms
    is_local = False

    def __init__(self, root: URLPath) -> None:
        """List the objects. Raises InvalidRequest if there are none, BadInput for bad names, and StoreError."""
        self._store = Store(root.url)
        objects = list(self._store.objects())
        if not objects:
            is_object = self._store.state() is not None
            raise InvalidRequest(
                f"{root}: is one object: archives and files of records are read from a disk; download it"
                if is_object
                else f"{root}: nothing is there; see the URL, and give the folder that contains the images"
            )
        folders: set[str] = set()
        for each in objects:
            add_parents(folders, each.name)
        members = Members(columns=1)
        for row, each in enumerate(objects):
            if each.bytes or each.name not in folders:
                members.add_file(each.name, row)
        members.resolve(root, has_root=False)
        self._objects = [objects[row] for row in members.columns[0]]
        super().__init__(root, members)

    def read(self, name: str, *, is_table: bool = False) -> bytes:
        found = self._objects[self.row(name)]
        if not is_table:
            self.check_size(name, found.bytes)
        return self._read(name, found, None, found.bytes)

    def start(self, name: str, count: int) -> bytes:
        found = self._objects[self.row(name)]
        return self._read(name, found, 0, min(count, found.bytes)) if found.bytes else b""

    def state(self, name: str) -> FileState:
        """Return size and time. Servers state seconds only, so the nanoseconds are a hash of the ETag."""
        found = self._objects[self.row(name)]
        seconds = found.modified_ns // _SECOND_NS
        etag_ns = int.from_bytes(hashlib.sha256(found.etag.encode()).digest()[:8], "big") % _SECOND_NS
        return FileState(found.bytes, seconds * _SECOND_NS + etag_ns, is_regular=True)

    def _read(self, name: str, found: StoredObject, start: int | None, size: int) -> bytes:
        try:
            data = self._store.read(found.name, start=start, most=size, etag=found.etag)
        except ObjectChanged as error:
            raise BadInput(f"{self.root / name}: changed since it was listed; run again") from error
        if len(data) != size:
            raise BadInput(f"{self.root / name}: expected {size} bytes, found {len(data)}; run again")
        return data
