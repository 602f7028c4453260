"""Pack files: where a stager takes the files of a pack from: its folder, or a store.

Each hands over the sha256 of what it wrote, which the stager compares with the manifest's.
"""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, Protocol

from packer.errors import CorruptPack, InvalidRequest, NoObject, ObjectChanged
from packer.files.digest import FolderDigest, entries, opened_folder
from packer.files.folder_handle import FolderHandle
from packer.files.safe_paths import open_beneath, open_file
from packer.files.storage_errors import failing
from packer.files.tree_writer import TreeWriter
from packer.pack import manifest as manifests
from packer.pack.manifest import Manifest, Part
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_readers import PartOpener, check_part
from packer.pack.stored_head import check_unchanged, read_manifest
from packer.staging.capacity import SpaceNeeded
from packer.staging.staged_copies import StagedFile
from packer.staging.user_folder import UserFolder
from packer.stores.store import Store
from packer.stores.url import URLPath

_BLOCK_BYTES = 1 << 20
ROOM = "+room"  # behind the name of what holds the space for a folder; names in a manifest have no +


class PackFiles(Protocol):
    """The files of one pack.

    manifest: of the pack as it was found. origin: of a copy that is made of it: its folder without links, or its URL.
    """

    manifest: Manifest
    origin: Path

    def where(self, file: StagedFile) -> str:
        """A file's place, for messages."""

    def check(self, part: Part, file: StagedFile) -> None:
        """Raise CorruptPack where a part is known not to be as large as the manifest says."""

    def need(self, file: StagedFile, block_bytes: int) -> SpaceNeeded:
        """What the copy of a file takes, in blocks of that size; raises CorruptPack."""

    def copy(self, file: StagedFile, name: str, place: UserFolder, *, block_bytes: int) -> str:
        """Fill the file `name` in the place's work folder, whose space is taken; returns the sha256, in hex.

        Raises CorruptPack, StorageError.
        """


def pack_files(pack: Path) -> PackFiles:
    """The files of the pack in a folder, or at a URL; raises InvalidRequest, CorruptPack, StoreError."""
    return _StoredFiles(pack) if isinstance(pack, URLPath) else _FolderFiles(pack)


def in_blocks(size_bytes: int, block_bytes: int) -> int:
    """A size, rounded up to whole blocks."""
    return -(-size_bytes // block_bytes) * block_bytes


class _FolderFiles:
    def __init__(self, pack: Path) -> None:
        self._pack = pack
        self.manifest = manifests.read(pack)
        check_mostly_holes(pack, self.manifest)
        self.origin = pack.resolve()

    def where(self, file: StagedFile) -> str:
        return str(self._pack / file.name)

    def check(self, part: Part, file: StagedFile) -> None:
        check_part(self._pack / part.name, part, is_folder=file.is_folder)

    def need(self, file: StagedFile, block_bytes: int) -> SpaceNeeded:
        if not file.is_folder:
            return SpaceNeeded(in_blocks(file.bytes, block_bytes), 1)
        sizes = [size for _, size in entries(self._pack / file.name)]
        if sum(size or 0 for size in sizes) != file.bytes:
            raise CorruptPack(f"{self._pack / file.name}: files are cut, changed or missing; copy or pack it again")
        return SpaceNeeded(sum(in_blocks(size or 0, block_bytes) for size in sizes), len(sizes) + 2)

    def copy(self, file: StagedFile, name: str, place: UserFolder, *, block_bytes: int) -> str:
        source = self._pack / file.name
        if not file.is_folder:
            return _copy_file(source, place.work_path(name), size_bytes=file.bytes)
        reserved = place.work_path(name + ROOM)
        return _copy_folder(source, place.work, name, reserved=reserved, block_bytes=block_bytes)


def _copy_file(source: Path, target: Path, *, size_bytes: int) -> str:
    """Copy a file of that size, whose space is taken; one that has grown would take more, up to all that is free."""
    digest = hashlib.sha256()
    with open_file(source) as file, failing(target, "write"), target.open("r+b", buffering=0) as filled:
        found = os.fstat(file.fileno()).st_size
        if found != size_bytes:
            raise CorruptPack(
                f"{source}: cut or changed: expected {size_bytes:,} bytes, found {found:,}; copy or pack it again"
            )
        left = size_bytes
        while block := _read(source, file, min(_BLOCK_BYTES, left)):
            left -= len(block)
            digest.update(block)
            rest = memoryview(block)
            while rest:
                rest = rest[filled.write(rest) :]
    return digest.hexdigest()


def _read(source: Path, file: BinaryIO, most_bytes: int) -> bytes:
    with failing(source, "read"):
        return file.read(most_bytes)


def _copy_folder(source: Path, target: FolderHandle, name: str, *, reserved: Path, block_bytes: int) -> str:
    """Copy a folder with all that is in it to a new one in `target`; returns its sha256 as files/digest.py has it.

    reserved: the path of a file that holds the space; before each file it is shortened by what that takes, in whole
    blocks.
    """
    digest = FolderDigest()
    left = reserved.stat().st_size
    with opened_folder(source) as root, TreeWriter.inside(target, name) as tree:
        for path, size in entries(source):
            components = path.split(b"/")
            if size is None:
                tree.make_folder(components)
                digest.add_folder(path)
                continue
            with failing(source / os.fsdecode(path), "read"), os.fdopen(open_beneath(root, path), "rb") as file:
                data = file.read(size)  # no more than was counted, should it grow
            left = max(0, left - in_blocks(len(data), block_bytes))
            with failing(reserved, "give back space"):
                os.truncate(reserved, left)
            tree.write(components, data)
            digest.add_file(path, len(data), hashlib.sha256(data).digest())
    return digest.hexdigest()


class _StoredFiles:
    def __init__(self, pack: URLPath) -> None:
        self._store = Store(pack.url)
        self._stored, self.manifest = read_manifest(self._store)
        self.origin: Path = pack
        if PartOpener(self.manifest.format, self.manifest.schema).is_folder:
            raise InvalidRequest(
                f"{pack}: parts of the format {self.manifest.format} are folders of files, which are not fetched one "
                "by one; packer convert packs it again as lmdb, hdf5 or pth"
            )

    def where(self, file: StagedFile) -> str:
        return str(self._store.url / file.name)

    def check(self, part: Part, file: StagedFile) -> None:
        """Told when it is fetched."""

    def need(self, file: StagedFile, block_bytes: int) -> SpaceNeeded:
        return SpaceNeeded(in_blocks(file.bytes, block_bytes), 1)

    def copy(self, file: StagedFile, name: str, place: UserFolder, *, block_bytes: int) -> str:
        path = place.work_path(name)
        with failing(path, "open"):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = self._store.fetch(file.name, descriptor, bytes=file.bytes)
        except (NoObject, ObjectChanged) as error:
            check_unchanged(self._store, self._stored)
            raise CorruptPack(
                f"{self.where(file)}: missing, or of another size than the {file.bytes:,} bytes that the manifest "
                "says; put the pack there again"
            ) from error
        finally:
            os.close(descriptor)
        if found.sha256 != file.sha256:
            check_unchanged(self._store, self._stored)
        return found.sha256
