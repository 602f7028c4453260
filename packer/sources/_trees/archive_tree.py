"""Archive tree: the files in an archive by relative path, read where they lie; nothing is unpacked to disk.

What could not be unpacked on every file system, or leads out of where it is unpacked, is refused when the archive is
listed, all of it at once: paths that are absolute or hold `..`, links, devices, names that come twice or differ in case
or the spelling of accents only, a file that is a folder too. So an archive is either the folder that it was made of, or
an error. Where everything lies in one folder of the archive's own name (`photos.zip` with `photos/`), that folder is
the root, as it is for whoever unpacks the archive beside itself; `__MACOSX` and the like are no other folder. So it is
where the Finder packed one folder with folders in it, and the archive was renamed.
"""

import zlib
from array import array
from bisect import bisect_left
from pathlib import Path
from posixpath import dirname
from typing import NamedTuple

from packer.errors import BadInput, InvalidRequest, printable
from packer.files.safe_paths import components, folded
from packer.sources._parse.folder_listing import clutter_kind
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources._trees.file_tree import Contents, FileState, FileTree
from packer.sources.records._random_access_files import OpenFile, RecordFile, RecordFiles

ENDINGS = (".tar.gz", ".tgz", ".tar", ".zip")
_FINDER = ("__MACOSX",)  # beside what the Finder packs: one folder is what was meant, whatever the archive is called
_SHOWN = 20  # culprits in one message
_START_INPUT_BYTES = 1 << 10  # of compressed bytes at least that the first bytes of a member are made of
_MOST_UNPACKED_BYTES = 1 << 30  # of a compressed table, which is read whole
_BARE = -zlib.MAX_WBITS


class Packed(NamedTuple):
    """What a zip file says of its members beside where they lie, row by row. is_deflated: 0 or 1 each."""

    unpacked_bytes: "array[int]"
    crc32: "array[int]"
    is_deflated: "array[int]"


class Found:
    """What a walk through an archive finds, judged when the walk is over."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rows: list[int] = []  # once settled: when each file was noted, counted from 0
        self.offsets = array("q")
        self.sizes = array("q")
        self.folders: set[str] = set()
        self.culprits: list[str] = []

    def add_file(self, name: str, offset: int, size: int) -> bool:
        """Note a file; False where its path is refused."""
        path = self._checked(name)
        if not path:
            return False
        self.names.append(path)
        self.offsets.append(offset)
        self.sizes.append(size)
        return True

    def add_folder(self, name: str) -> None:
        """Note a folder, whose name may end in slashes; `./` alone is the root."""
        if name.rstrip("/") not in ("", "."):
            path = self._checked(name.rstrip("/"))
            if path:
                self.folders.add(path)

    def refuse(self, name: str, reason: str) -> None:
        """Note a member that cannot be taken."""
        self.culprits.append(f"{printable(name)} ({reason})")

    def _checked(self, name: str) -> str:
        """The path without `./` in front; empty for one that is refused."""
        while name.startswith("./"):
            name = name[2:].lstrip("/")
        try:
            components(name)
        except InvalidRequest as error:
            self.refuse(name, "leads out of the archive" if _leads_out(name) else error.message)
            return ""
        return name

    def settle(self, path: Path, *, takes_root: bool = True) -> str:
        """Sort by name and add the folders that files imply; returns the folder that is the root, empty for none.

        takes_root: whether one folder that holds everything may be it. Raises BadInput naming what cannot be taken.
        """
        for name in self.names:
            at = name.rfind("/")
            while at >= 0 and name[:at] not in self.folders:
                self.folders.add(name[:at])
                at = name.rfind("/", 0, at)
        if not self.culprits:
            self._check_collisions()
        if self.culprits:
            more = f" and {len(self.culprits) - _SHOWN} more" if len(self.culprits) > _SHOWN else ""
            raise BadInput(
                f"{printable(str(path))}: holds what cannot be taken from {'an archive' if takes_root else 'a store'}: "
                f"{', '.join(self.culprits[:_SHOWN])}{more}; "
                + ("unpack it and give the folder, or make it again without" if takes_root else "take these out")
            )
        root = self._take_root(_stem(path.name)) if takes_root else ""
        order = sorted(range(len(self.names)), key=self.names.__getitem__)
        self.rows = order
        self.names = [self.names[row] for row in order]
        self.offsets = array("q", (self.offsets[row] for row in order))
        self.sizes = array("q", (self.sizes[row] for row in order))
        return root

    def _take_root(self, top: str) -> str:
        """What desktops leave behind beside the folder stays where it is, to be counted as such."""
        tops = {name.partition("/")[0] for name in (*self.names, *self.folders)}
        left = {name for name in tops - {top} if clutter_kind(name, is_folder=name in self.folders)}
        rest = tops - left
        if len(rest) == 1 and not left.isdisjoint(_FINDER) and any(map(rest.__contains__, map(dirname, self.folders))):
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
        """Look by hash first: a million names take a fraction of what they take as text."""
        seen: set[int] = set()
        twice = False
        for name in (*self.names, *self.folders):
            key = hash(folded(name))
            twice |= key in seen
            seen.add(key)
        if not twice:
            return
        known: dict[str, str] = {}  # folded path of a file or folder -> its name
        for name in (*self.names, *(f"{folder}/" for folder in sorted(self.folders))):
            path = folded(name.rstrip("/"))
            if path not in known:
                known[path] = name
            elif known[path].endswith("/"):
                self.refuse(name, f"differs from {printable(known[path])} in case or accents only")
            else:
                other = printable(known[path])
                self.refuse(name, "comes twice" if known[path] == name else f"is in the way of {other}")


class ArchiveTree(FileTree):
    """The files of one archive."""

    def __init__(
        self,
        path: Path,
        found: Found,
        *,
        root: str = "",
        file: OpenFile,
        is_packed: bool = False,
        packed: Packed | None = None,
    ) -> None:
        """found: settled. root: the folder in it that is the root. file: the archive, as it was listed.

        is_packed: whether the archive is compressed as a whole. packed: of a zip file, in the order of `found`.
        """
        self.path = path
        self.root = path / root if root else path
        self._names = found.names
        self._folders = sorted(found.folders)
        self._offsets = found.offsets
        self._sizes = found.sizes
        self._packed = packed
        self._time_ns = file.status.st_mtime_ns
        self._files = RecordFiles(file.folder, [RecordFile(file.name, file.size, is_packed)])
        self.unpacks_again = self._files.unpacks_again(
            (0, sum(place)) for place in zip(found.offsets, found.sizes, strict=True)
        )

    @property
    def contents(self) -> Contents:
        return Contents(self._names, self._folders)

    def read(self, name: str, *, is_table: bool = False) -> bytes:
        row = self._row(name)
        if not is_table:
            self.check_size(name, max(self._sizes[row], self._packed.unpacked_bytes[row] if self._packed else 0))
        data = self._files.read(0, self._offsets[row], self._sizes[row])
        return data if self._packed is None else self._unpacked(self._packed, row, name, data)

    def start(self, name: str, count: int) -> bytes:
        row = self._row(name)
        if self._packed is None or not self._packed.is_deflated[row]:
            return self._files.read(0, self._offsets[row], min(count, self._sizes[row]))
        data = self._files.read(0, self._offsets[row], min(_START_INPUT_BYTES + 2 * count, self._sizes[row]))
        try:
            return zlib.decompressobj(_BARE).decompress(data, count)
        except zlib.error as error:
            raise self._damaged(name, str(error)) from error

    def state(self, name: str) -> FileState:
        row = self._row(name)
        size = self._sizes[row] if self._packed is None else self._packed.unpacked_bytes[row]
        return FileState(size, self._time_ns, is_regular=True)

    def _row(self, name: str) -> int:
        row = bisect_left(self._names, name)
        if row == len(self._names) or self._names[row] != name:
            raise BadInput(f"{self.root / name}: cannot read: no such file in the archive; run again if it changed")
        return row

    def _unpacked(self, packed: Packed, row: int, name: str, data: bytes) -> bytes:
        """The bytes of a member of a zip file, as many as it says and of the sum that it says."""
        expected = packed.unpacked_bytes[row]
        if packed.is_deflated[row]:
            if expected > max(_MOST_UNPACKED_BYTES, self.most_bytes):
                raise self._damaged(name, f"unpacks to {expected} bytes, more than is held in memory")
            decoder = zlib.decompressobj(_BARE)
            try:
                data = decoder.decompress(data, expected + 1)
            except zlib.error as error:
                raise self._damaged(name, str(error)) from error
            if len(data) != expected or not decoder.eof:
                size = "more" if len(data) > expected else f"{len(data)}"
                raise self._damaged(name, f"unpacks to {size} bytes, the archive says {expected}")
        if zlib.crc32(data) != packed.crc32[row]:
            raise self._damaged(name, f"crc32 {zlib.crc32(data):08x}, the archive says {packed.crc32[row]:08x}")
        return data

    def _damaged(self, name: str, reason: str) -> BadInput:
        return BadInput(f"{self.root / name}: damaged in the archive: {reason}; get the archive again, or leave it out")


def place_of(path: Path) -> tuple[SourceRoot, str]:
    """The folder that an archive is read beneath, and its name there; a link that the user names is followed."""
    place = path.resolve() if path.is_symlink() else path
    return SourceRoot(place.parent), place.name


def _stem(name: str) -> str:
    """The name of an archive without what says that it is one."""
    ending = next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)]


def _leads_out(name: str) -> bool:
    return name.startswith("/") or ".." in name.split("/")
