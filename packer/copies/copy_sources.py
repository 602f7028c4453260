"""Copy sources: read the files of a pack from a folder or a URL, to copy them."""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from packer.copies.capacity import SpaceNeeded
from packer.copies.pack_files import PackFile, in_blocks
from packer.errors import CorruptPack, DamagedObject, InvalidRequest, NoObject, ObjectChanged
from packer.files.digest import FolderDigest, entries, opened_folder
from packer.files.folder_handle import FolderHandle
from packer.files.safe_paths import open_beneath, open_file
from packer.files.storage_errors import failing
from packer.files.tree_writer import TreeWriter
from packer.pack import manifest as manifests
from packer.pack.manifest import Manifest
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_readers import PartOpener
from packer.pack.remote_head import RemoteIdentity, check_unchanged, read_manifest
from packer.stores.store import Fetched, Store
from packer.stores.url import URLPath

_BLOCK_BYTES = 1 << 20


class CopySource(Protocol):
    """The files of one pack, in a folder or behind a URL."""

    def where(self, file: PackFile | None) -> str:
        """Return the path or URL of a file, or of the pack if `file` is None. For messages."""

    def fetch(self, file: PackFile, descriptor: int, *, patience_seconds: float | None = None) -> Fetched:
        """Copy a file of the pack into an open file.

        Args:
            file: The file of the pack.
            descriptor: An open file whose beginning is overwritten.
            patience_seconds: How long to wait for a store that does not answer; None for the default of the store.

        Returns:
            The number of copied bytes and their sha256.

        Raises:
            CorruptPack: The size of the file is not the size in the manifest. The sha256 is not checked here.
            StoreError, StorageError: The file cannot be read or written.
        """

    def check_unchanged(self) -> None:
        """Raise ObjectChanged if another pack is at the URL now. For a pack in a folder, do nothing."""


# ---- behind a URL


@dataclass(frozen=True)
class RemoteFiles:
    """The files of a remote pack; implements `CopySource`."""

    store: Store
    pack: RemoteIdentity

    def where(self, file: PackFile | None) -> str:
        return str(self.store.url / file.name if file is not None else self.store.url)

    def fetch(self, file: PackFile, descriptor: int, *, patience_seconds: float | None = None) -> Fetched:
        store = self.store
        if patience_seconds is not None:
            store = replace(store, options=replace(store.options, patience_seconds=patience_seconds))
        try:
            return store.fetch(file.name, descriptor, bytes=file.bytes)
        except (NoObject, ObjectChanged) as error:
            self.check_unchanged()
            raise DamagedObject(
                f"{self.where(file)}: missing, or its size differs from the {file.bytes:,} bytes of the manifest; put "
                "the pack there again"
            ) from error

    def check_unchanged(self) -> None:
        check_unchanged(self.store, self.pack)


def check_no_folders(where: object, manifest: Manifest) -> None:
    """Raise InvalidRequest if the parts of a remote pack are folders. `where` is the URL in the message."""
    if manifest.parts and PartOpener(manifest.format, manifest.schema).is_folder:
        raise InvalidRequest(
            f"{where}: parts of the format {manifest.format} are folders of files, which are not downloaded one by "
            "one; packer convert packs it again as lmdb, hdf5 or pth"
        )


# ---- in a folder


@dataclass(frozen=True)
class FolderFiles:
    """The files of a pack in a folder; implements `CopySource`."""

    pack: Path

    def where(self, file: PackFile | None) -> str:
        return str(self.pack / file.name if file is not None else self.pack)

    def fetch(self, file: PackFile, descriptor: int, *, patience_seconds: float | None = None) -> Fetched:
        source, digest, at = self.pack / file.name, hashlib.sha256(), 0
        with open_file(source) as opened, failing(source, "copy"):
            found = os.fstat(opened.fileno()).st_size
            if found != file.bytes:
                raise CorruptPack(
                    f"{source}: cut or changed: expected {file.bytes:,} bytes, found {found:,}; copy or pack it again"
                )
            while block := opened.read(min(_BLOCK_BYTES, file.bytes - at)):  # no more, if the file grows
                digest.update(block)
                rest = memoryview(block)
                while rest:
                    written = os.pwrite(descriptor, rest, at)
                    at, rest = at + written, rest[written:]
        return Fetched(at, digest.hexdigest(), "")

    def check_unchanged(self) -> None:
        """Do nothing: if a file has changed, the sha256 of its copy is wrong."""

    def need(self, file: PackFile, block_bytes: int) -> SpaceNeeded:
        """Return the space for a copy of `file`, a part that is a folder. If its size is wrong, raise CorruptPack."""
        sizes = [size for _, size in entries(self.pack / file.name)]
        if sum(size or 0 for size in sizes) != file.bytes:
            raise CorruptPack(f"{self.pack / file.name}: files are cut, changed or missing; copy or pack it again")
        return SpaceNeeded(sum(in_blocks(size or 0, block_bytes) for size in sizes), len(sizes) + 2)

    def copy_folder(self, file: PackFile, target: FolderHandle, name: str) -> str:
        """Copy a part that is a folder to the new folder `name` in `target`. Return its sha256 (`files/digest.py`)."""
        source, digest = self.pack / file.name, FolderDigest()
        with opened_folder(source) as root, TreeWriter.inside(target, name) as tree:
            for path, size in entries(source):
                components = path.split(b"/")
                if size is None:
                    tree.make_folder(components)
                    digest.add_folder(path)
                    continue
                with failing(source / os.fsdecode(path), "read"), os.fdopen(open_beneath(root, path), "rb") as opened:
                    data = opened.read(size)  # no more than was counted, if it grows
                tree.write(components, data)
                digest.add_file(path, len(data), hashlib.sha256(data).digest())
            tree.sync()
        return digest.hexdigest()


def open_files(pack: Path) -> tuple[RemoteFiles | FolderFiles, Manifest]:
    """Return the files and the manifest of a pack in a folder or behind a URL.

    Raises InvalidRequest, CorruptPack, StoreError.
    """
    if isinstance(pack, URLPath):
        store = Store(pack.url)
        stored, manifest = read_manifest(store)
        manifests.with_parts(store.url, manifest)
        check_no_folders(pack, manifest)
        return RemoteFiles(store, stored), manifest
    manifest = manifests.read_pack(pack)
    check_mostly_holes(pack, manifest)
    return FolderFiles(pack), manifest
