"""Copies: what of a pack is staged, found by the digest of its manifest."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packer import formats
from packer.errors import Locked
from packer.pack import manifest as manifests
from packer.pack.digest import part_bytes
from packer.pack.extras import FOLDER as EXTRAS
from packer.pack.index import FOLDER as INDEX
from packer.pack.manifest import Manifest
from packer.pack.storage import failing, make_folder, publish, remove, replace_file, write_file
from packer.staging.lease import unread
from packer.staging.place import Place

_ORIGIN = ".origin"


@dataclass(frozen=True)
class File:
    """A file of a pack, or a part that is a folder: relative path, size, sha256, and the samples of a part."""

    name: str
    bytes: int
    sha256: str
    samples: int = 0
    is_folder: bool = False


class Copy:
    """The copy of one pack, whole, in part, or not there."""

    def __init__(self, place: Place, digest: str) -> None:
        self.place = place
        self.folder = place.folder / digest
        self._origin = place.folder / f"{digest}{_ORIGIN}"

    @classmethod
    def of(cls, place: Place, manifest: Manifest) -> "Copy":
        """The copy of the pack with that manifest: with the sha256 of its packer.json as name."""
        return cls(place, hashlib.sha256(manifest.to_bytes()).hexdigest())

    def missing(self, manifest: Manifest, numbers: Sequence[int]) -> list[File]:
        """What still has to be copied so that these parts are there; for the last of all parts, all the rest too."""
        index = [File(f"{INDEX}/{file.name}", file.bytes, file.sha256) for file in manifest.index]
        parts = parts_of(manifest)
        chosen = [parts[number] for number in numbers]
        lacking = [file for file in (*index, *chosen) if not self._has(file)]
        if all(self._has(part) for part in parts if part not in chosen):
            extras = (File(f"{EXTRAS}/{file.name}", file.bytes, file.sha256) for file in manifest.extras)
            last = File(manifests.NAME, len(manifest.to_bytes()), self.folder.name)
            lacking += [file for file in (*extras, last) if not self._has(file)]
        return lacking

    def _has(self, file: File) -> bool:
        try:
            status = os.stat(self.folder / file.name, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if file.is_folder:
            return stat.S_ISDIR(status.st_mode)
        return stat.S_ISREG(status.st_mode) and status.st_size == file.bytes

    def found(self, manifest: Manifest) -> dict[str, Path]:
        """Where the parts that are there lie, by name, and the folder of the index."""
        names = [part.name for part in parts_of(manifest) if self._has(part)]
        if all(self._has(File(f"{INDEX}/{file.name}", file.bytes, file.sha256)) for file in manifest.index):
            names.append(INDEX)
        return {name: self.folder / name for name in names}

    def begin(self, origin: Path) -> None:
        """Make the folder where it is not there, and note where the pack lies; only under the place's lock."""
        make_folder(self.folder)
        make_folder(self.place.work)
        write_file(self.place.work / _ORIGIN, os.fsencode(origin))
        replace_file(self.place.work / _ORIGIN, self._origin)

    def settle(self) -> None:
        """Remove folders that nothing was put into."""
        for folder in (self.folder / INDEX, self.folder / EXTRAS, self.folder):
            with suppress(OSError):  # it is not empty, or not there
                os.rmdir(folder)
        if not self.folder.exists():
            remove(self._origin)

    def add(self, file: File, copied: Path) -> None:
        """Put what was copied and checked in its place."""
        target = self.folder / file.name
        make_folder(target.parent)
        if file.is_folder or target.is_dir():
            remove(target)
            publish(copied, target)
        else:
            replace_file(copied, target)

    def take_back(self, files: Sequence[File]) -> None:
        """Remove what was added, unless somebody reads it."""
        with unread(self.folder) as is_free:
            for file in files if is_free else ():
                remove(self.folder / file.name)

    def remove(self, *, force: bool = False) -> int:
        """Remove the copy, in one step for those who look for it, and return its bytes; only under the place's lock.

        Raises Locked where a data set reads it, unless it is forced: the memory is free then when that has ended.
        """
        with unread(self.folder) as is_free:
            if not is_free and not force:
                raise Locked(f"{self.folder}: a data set reads this copy; wait for it to end, or --force")
            size = part_bytes(self.folder)
            remove(self._origin)
            make_folder(self.place.work)
            publish(self.folder, self.place.work / self.folder.name)
        remove(self.place.work / self.folder.name)
        return size

    def origin(self) -> Path | None:
        """Where the pack was that this is a copy of; None where a stager was killed before it noted that."""
        try:
            return Path(os.fsdecode(self._origin.read_bytes()))
        except FileNotFoundError:
            return None

    def describe(self) -> dict[str, object]:
        """Path, origin, bytes, whether it is whole, parts, and whether it is in use, for `packer stage --list`."""
        with failing(self.folder, "list the folder"):
            names = os.listdir(self.folder)
        with unread(self.folder) as is_free:
            return {
                "path": str(self.folder),
                "origin": os.fsdecode(self.origin() or ""),
                "bytes": part_bytes(self.folder),
                "whole": manifests.NAME in names,
                "parts": len(set(names) - {INDEX, EXTRAS, manifests.NAME}),
                "in_use": not is_free,
            }


def parts_of(manifest: Manifest) -> list[File]:
    """The parts of a pack, in order."""
    is_folder = formats.load(manifest.format).Reader.is_folder
    return [File(part.name, part.bytes, part.sha256, part.samples, is_folder) for part in manifest.parts]


def copies(place: Place) -> Iterator[Copy]:
    """All copies in a place."""
    for digest in place.digests():
        yield Copy(place, digest)


def copies_of(place: Place, pack: Path) -> list[Copy]:
    """The copies of the pack at `pack`, of one that was there before, or the copy with that path itself."""
    where = pack.resolve()
    own = Copy.of(place, manifests.read(pack)).folder if (pack / manifests.NAME).exists() else None
    return [copy for copy in copies(place) if copy.folder in (own, where) or copy.origin() == where]
