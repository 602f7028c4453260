"""Archive tree: reads the files in an archive by relative path, without unpacking to disk.

Listing refuses members that lead out of the archive: absolute paths, paths with `..`, and links. Listing also refuses
devices, duplicate names, names that differ only in case or accents, and files that are also folders. If all files are
in one folder with the name of the archive (`photos.zip` with `photos/`), this folder becomes the root. `__MACOSX` and
other files of desktops do not count. In an archive of the macOS Finder, a single folder with subfolders becomes the
root under any name.
"""

import zlib
from array import array
from bisect import bisect_left
from pathlib import Path
from posixpath import dirname

from packer.errors import BadInput, InvalidRequest, printable
from packer.files.safe_paths import components, folded
from packer.sources._message_texts import listed
from packer.sources._trees.file_tree import Contents, FileState, FileTree
from packer.sources._trees.folder_scan import clutter_kind
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.records._random_access_files import OpenFile, RecordFile, RecordFiles

ENDINGS = (".tar.gz", ".tgz", ".tar", ".zip")
_FINDER = ("__MACOSX",)  # folder that the macOS Finder adds to a zip file
_START_INPUT_BYTES = 1 << 10  # least number of compressed bytes to read for the start of a member
_MOST_UNPACKED_BYTES = 1 << 30  # largest compressed table, which is unpacked in memory
_BARE = -zlib.MAX_WBITS


class Members:
    """The members of an archive or object store, collected during listing. `resolve` then checks all members.

    Attributes:
        names: Relative paths of files.
        columns: One int64 array per property, such as offset and size. Each array has one number per file.
        folders: Relative paths of folders.
        refused: Texts `name (reason)` of the members that packer refuses.
    """

    def __init__(self, columns: int) -> None:
        self.names: list[str] = []
        self.columns = [array("q") for _ in range(columns)]
        self.folders: set[str] = set()
        self.refused: list[str] = []

    def add_file(self, name: str, *numbers: int) -> None:
        """Add a file with one number per column. An unsafe path is added to `refused` instead."""
        path = self._checked(name)
        if path:
            self.names.append(path)
            for column, number in zip(self.columns, numbers, strict=True):
                column.append(number)

    def add_folder(self, name: str) -> None:
        """Add a folder. Slashes at the end are removed. `./` is the root, which is not added."""
        if name.rstrip("/") not in ("", ".") and (path := self._checked(name.rstrip("/"))):
            self.folders.add(path)

    def refuse(self, name: str, reason: str) -> None:
        """Add a member to `refused`. `resolve` then raises BadInput."""
        self.refused.append(f"{printable(name)} ({reason})")

    def _checked(self, name: str) -> str:
        """Return the path without a leading `./`, or "" for a refused path."""
        while name.startswith("./"):
            name = name[2:].lstrip("/")
        try:
            components(name)
        except InvalidRequest as error:
            leads_out = name.startswith("/") or ".." in name.split("/")
            self.refuse(name, "leads out of the archive" if leads_out else error.message)
            return ""
        return name

    def resolve(self, path: Path, *, has_root: bool = True) -> str:
        """Add missing parent folders, sort the files by name, and return the folder that becomes the root.

        The result is "" if no folder becomes the root, or `has_root` is false. Raises BadInput for refused members.
        """
        for name in self.names:
            add_parents(self.folders, name)
        if not self.refused:
            self._check_collisions()
        if self.refused:
            advice = "unpack it and give the folder, or make it again without them" if has_root else "remove these"
            raise BadInput(f"{printable(str(path))}: members that packer refuses: {listed(self.refused)}; {advice}")
        root = self._enter_root(_stem(path.name)) if has_root else ""
        order = sorted(range(len(self.names)), key=self.names.__getitem__)
        self.names = [self.names[row] for row in order]
        self.columns = [array("q", (column[row] for row in order)) for column in self.columns]
        return root

    def _enter_root(self, top: str) -> str:
        """Make a folder with all files the root: `top`, or the single folder of a Finder archive. Return it, or ""."""
        tops = {name.partition("/")[0] for name in (*self.names, *self.folders)}
        left = {name for name in tops - {top} if clutter_kind(name, is_folder=name in self.folders)}
        rest = tops - left
        if len(rest) == 1 and not left.isdisjoint(_FINDER) and not rest.isdisjoint(map(dirname, self.folders)):
            top = next(iter(rest))
        if rest != {top} or top not in self.folders or any(f"{top}/{name}" in self.folders for name in left):
            return ""
        front = f"{top}/"
        names = [name.removeprefix(front) for name in self.names]
        if len(set(names)) < len(names):
            return ""
        self.names = names
        self.folders = {name.removeprefix(front) for name in self.folders if name != top}
        return top

    def _check_collisions(self) -> None:
        """Refuse names that are equal on a file system that ignores case and accents."""
        seen: set[int] = set()  # hashes need less memory than a million names
        for name in (*self.names, *self.folders):
            seen.add(hash(folded(name)))
        if len(seen) == len(self.names) + len(self.folders):
            return
        first: dict[str, str] = {}  # folded path of a file or folder -> its name
        for name in (*self.names, *(f"{folder}/" for folder in sorted(self.folders))):
            path = folded(name.rstrip("/"))
            if path not in first:
                first[path] = name
            elif first[path].endswith("/"):
                self.refuse(name, f"differs from {printable(first[path])} in case or accents only")
            else:
                other = printable(first[path])
                self.refuse(name, "comes twice" if first[path] == name else f"is in the way of {other}")


def add_parents(folders: set[str], name: str) -> None:
    """Add to `folders` all folders that contain the file `name`."""
    at = name.rfind("/")
    while at >= 0 and name[:at] not in folders:
        folders.add(name[:at])
        at = name.rfind("/", 0, at)


class ListedTree(FileTree):
    """A tree with a complete list of files, such as an archive or an object store."""

    def __init__(self, root: Path, members: Members) -> None:
        """Create a tree of `members`, after `Members.resolve`."""
        self.root = root
        self._contents = Contents(members.names, sorted(members.folders))

    @property
    def contents(self) -> Contents:
        return self._contents

    def row(self, name: str) -> int:
        """Return the position of a file in `contents.names`. Raises BadInput for an unknown name."""
        names = self._contents.names
        row = bisect_left(names, name)
        if row == len(names) or names[row] != name:
            raise BadInput(f"{self.root / name}: cannot read: no such file was listed; run again if it changed")
        return row


class ArchiveTree(ListedTree):
    """The files of one archive."""

    def __init__(
        self, path: Path, members: Members, *, root: str = "", file: OpenFile, is_packed: bool = False
    ) -> None:
        """Create a tree of the files of an archive.

        Args:
            path: Path of the archive.
            members: `Members` after `resolve`, with the columns offset and size in bytes. A zip file has three more
                columns: unpacked size, crc32, and 1 for a deflated member, otherwise 0.
            root: Folder in the archive that becomes the root. Empty for the top of the archive.
            file: The open archive.
            is_packed: True if the whole archive is compressed with gzip.
        """
        super().__init__(path / root if root else path, members)
        self.path = path
        self._offsets, self._sizes, *self._zip = members.columns
        self._time_ns = file.status.st_mtime_ns
        self._files = RecordFiles(file.folder, [RecordFile(file.name, file.size, is_packed)])
        self.unpacks_again = self._files.unpacks_again(
            (0, sum(place)) for place in zip(self._offsets, self._sizes, strict=True)
        )

    def read(self, name: str, *, is_table: bool = False) -> bytes:
        row = self.row(name)
        if not is_table:
            self.check_size(name, max(self._sizes[row], self._size(row)))
        data = self._files.read(0, self._offsets[row], self._sizes[row])
        return self._unpacked(row, name, data) if self._zip else data

    def start(self, name: str, count: int) -> bytes:
        row = self.row(name)
        is_deflated = bool(self._zip and self._zip[2][row])
        most = _START_INPUT_BYTES + 2 * count if is_deflated else count
        data = self._files.read(0, self._offsets[row], min(most, self._sizes[row]))
        if not is_deflated:
            return data
        try:
            return zlib.decompressobj(_BARE).decompress(data, count)
        except zlib.error as error:
            raise self._damaged(name, str(error)) from error

    def state(self, name: str) -> FileState:
        return FileState(self._size(self.row(name)), self._time_ns, is_regular=True)

    def _size(self, row: int) -> int:
        return (self._zip[0] if self._zip else self._sizes)[row]

    def _unpacked(self, row: int, name: str, data: bytes) -> bytes:
        """Return the unpacked bytes of a zip member. Raises BadInput if size or crc32 differ from the directory."""
        size, crc32, is_deflated = (column[row] for column in self._zip)
        if is_deflated:
            if size > max(_MOST_UNPACKED_BYTES, self.most_bytes):
                raise self._damaged(name, f"unpacks to {size} bytes, more than memory should hold")
            decoder = zlib.decompressobj(_BARE)
            try:
                data = decoder.decompress(data, size + 1)
            except zlib.error as error:
                raise self._damaged(name, str(error)) from error
            if len(data) != size or not decoder.eof:
                found = "more" if len(data) > size else f"{len(data)}"
                raise self._damaged(name, f"unpacks to {found} bytes, expected {size}")
        if zlib.crc32(data) != crc32:
            raise self._damaged(name, f"crc32 {zlib.crc32(data):08x}, expected {crc32:08x}")
        return data

    def _damaged(self, name: str, reason: str) -> BadInput:
        return BadInput(f"{self.root / name}: damaged in the archive: {reason}; get the archive again, or leave it out")


def place_of(path: Path) -> tuple[SourceRoot, str]:
    """Return `(folder, file name)` of an archive. If `path` is a symbolic link, the link is followed."""
    place = path.resolve() if path.is_symlink() else path
    return SourceRoot(place.parent), place.name


def _stem(name: str) -> str:
    ending = next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)]
