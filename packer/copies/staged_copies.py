"""Staged copies: complete or partial copies of packs in memory or another folder, and reading packs from them.

The copies are in the `OwnedFolder` `<base>/packer-<uid>/`. It contains:
    <digest>/             Verified files of the pack whose packer.json has this sha256.
    <digest>/packer.json  Arrives last. With it, the folder is a complete pack.
    <digest>.origin       The path or URL of the pack.
    <digest>-ycc420/      The pack recoded to ycc420. It has an .origin too.
    .<digest>-ycc420.partial/  An unfinished recoded copy. After a kill, the next process continues it.
    .work/                Files that are being copied or removed.

A process that changes the `OwnedFolder` holds its lock. A process that reads a copy has a lease on `<digest>/`.
"""

import hashlib
import os
import re
import stat
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from packer import codecs
from packer.conversion.work_folder_layout import DONE, NAMES
from packer.copies.leased_folder import CODEC, Lease, NewFile, OwnedFolder, copy_name, exclusive, lease
from packer.copies.pack_files import PackFile, extra_files, index_files, part_files
from packer.errors import CorruptPack, InvalidRequest, Locked, StorageError, UnsafePath, printable
from packer.files.digest import part_bytes
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.files.terminal_output import shell_word
from packer.files.work_folder import beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.derived_pack import FolderRecipe
from packer.pack.manifest import EXTRAS, INDEX, Manifest
from packer.pack.reader import Pack, VerifyMode
from packer.pack.unlisted_files import PACK_NAMES
from packer.stores.url import URLPath, path_or_url
from packer.system.machine_limits import Machine

_ORIGIN = ".origin"


class StagedCopy:
    """The copy of one pack. The copy may be complete, partial, or not exist.

    Args:
        place: The folder of this user's copies.
        digest: The sha256 of the pack's packer.json.
        codec: The codec of the images in a recoded copy; None for a copy of the files.

    Attributes:
        folder: The folder of the copy.
        partial: The work folder of an unfinished recoded copy.
    """

    def __init__(self, place: OwnedFolder, digest: str, codec: str | None = None) -> None:
        name = copy_name(digest, codec)
        self.place = place
        self.digest = digest
        self.codec = codec
        self.folder = place.folder / name
        self.partial = beside(self.folder)
        self._origin = f"{name}{_ORIGIN}"

    @classmethod
    def of(cls, place: OwnedFolder, manifest: Manifest, codec: str | None = None) -> "StagedCopy":
        """Return the copy, which need not exist, of the pack with this manifest. `codec` is that of a recoded copy."""
        return cls(place, hashlib.sha256(manifest.to_bytes()).hexdigest(), codec)

    # ---- what is in it

    def missing(self, manifest: Manifest, numbers: Sequence[int]) -> list[PackFile]:
        """Return the files that the copy does not contain, but needs for the parts `numbers`.

        If these parts make the copy complete, the list also contains the extras, and packer.json as the last file.
        """
        parts = part_files(manifest)
        chosen = [parts[number] for number in numbers]
        missing = [file for file in (*index_files(manifest), *chosen) if not self._has(file)]
        if all(self._has(part) for part in parts if part not in chosen):
            last = PackFile(manifests.NAME, len(manifest.to_bytes()), self.digest)
            missing += [file for file in (*extra_files(manifest), last) if not self._has(file)]
        return missing

    def _has(self, file: PackFile) -> bool:
        folder, found = self.place.folder, []
        try:
            for name in (self.folder.name, *file.name.split("/")):
                folder = folder / name
                found.append(os.stat(folder, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return False
        status = found.pop()
        if not all(stat.S_ISDIR(above.st_mode) for above in found):
            raise UnsafePath(f"{self.folder}: expected a copy of a pack, found a link or a file; remove it")
        if file.is_folder:
            return stat.S_ISDIR(status.st_mode)
        return stat.S_ISREG(status.st_mode) and status.st_size == file.bytes

    def found(self, manifest: Manifest) -> dict[str, Path]:
        """Return a dict from names to paths of the parts in the copy, and of the index folder if it is complete."""
        names = [part.name for part in part_files(manifest) if self._has(part)]
        if all(self._has(file) for file in index_files(manifest)):
            names.append(INDEX)
        return {name: self.folder / name for name in names}

    def origin(self) -> Path | None:
        """Return the path or URL of the copied pack. None if a process was killed before it wrote this path."""
        with self.place.opened() as folder:
            text = folder.read_file(self._origin)
        return path_or_url(os.fsdecode(text)) if text else None

    def describe(self) -> dict[str, object]:
        """Return a dict with path, origin, codec, bytes, whole, parts and in_use, which `packer stage --list` prints.

        "whole" is True for a complete copy. In an unfinished recoded copy, "parts" counts the finished parts.
        """
        there = [path for path in (self.folder, self.partial) if os.path.lexists(path)]
        listed = self.folder if self.folder in there else self.partial / DONE
        with failing(listed, "list the folder"):
            names = os.listdir(listed) if os.path.lexists(listed) else []
        with self.place.opened() as top, exclusive(top, self.folder.name) as is_free:
            return {
                "path": str(self.folder),
                "origin": os.fsdecode(self.origin() or ""),
                "codec": self.codec,
                "bytes": sum(part_bytes(path) for path in there),
                "whole": manifests.NAME in names,
                "parts": len(set(names) - {INDEX, EXTRAS, manifests.NAME}),
                "in_use": not is_free,
            }

    def lease(self) -> Lease | None:
        """Return a lease on the copy. None if the copy does not exist. Raises UnsafePath, StorageError."""
        if not self.place.exists():
            return None
        with self.place.opened() as top:
            return lease(top, self.folder.name)

    # ---- changing it, with the lock of the place held

    def begin(self, origin: Path) -> None:
        """Make the folder of the copy if it does not exist, and write the path or URL of the pack."""
        self._opened().close()
        self.note_origin(origin)

    def note_origin(self, origin: Path) -> None:
        """Write the path or URL of the pack into the `.origin` file."""
        self.place.work.write_file(_ORIGIN, os.fsencode(origin))
        self.place.work.replace(_ORIGIN, self.place.held, self._origin)

    def _opened(self) -> FolderHandle:
        return self.place.held.make_folder(self.folder.name)

    def add(self, file: PackFile, copied: NewFile | str) -> None:
        """Move a checked file or folder into the copy. `copied` is the new file, or the name of a folder in `.work`."""
        *above, name = file.name.split("/")
        with ExitStack() as opened:
            folder = opened.enter_context(self._opened())
            for inner in above:
                folder = opened.enter_context(folder.make_folder(inner))
            status = folder.status(name)
            if file.is_folder or (status is not None and stat.S_ISDIR(status.st_mode)):
                folder.remove(name)
            if isinstance(copied, NewFile):
                copied.publish(folder, name).close()
            else:
                self.place.work.publish(copied, folder, name)

    def take_back(self, files: Sequence[PackFile]) -> None:
        """Remove these files from the copy. Do nothing if a lease on the copy exists."""
        with exclusive(self.place.held, self.folder.name) as is_free, ExitStack() as opened:
            for file in files if is_free else ():
                *above, name = file.name.split("/")
                folder = opened.enter_context(self._opened())
                for inner in above:
                    folder = opened.enter_context(folder.folder(inner))
                folder.remove(name)

    def remove_empty_folders(self) -> None:
        """Remove the folders of the index, the extras and the copy itself if they are empty."""
        with self._opened() as folder:
            for name in (INDEX, EXTRAS):
                with suppress(StorageError):  # it is not empty, or does not exist
                    folder.remove_empty_folder(name)
        with suppress(StorageError):
            self.place.held.remove_empty_folder(self.folder.name)
            self.place.held.remove(self._origin)

    def remove_partial(self) -> int:
        """Remove the unfinished recoded copy. Return its size in bytes, 0 if it does not exist.

        Raises UnsafePath if the folder contains unknown files.
        """
        size = 0
        if os.path.lexists(self.partial):
            size = part_bytes(self.partial)
            with work_folder(self.partial, NAMES) as work:
                work.clear()
        if not os.path.lexists(self.folder):
            self.place.held.remove(self._origin)
        return size

    def remove(self, *, force: bool = False) -> int:
        """Remove the copy in one step. Return its size in bytes.

        Args:
            force: True removes the copy although a dataset reads it. Its memory is free when the dataset is closed.

        Raises:
            Locked: If a dataset reads the copy and `force` is False.
            UnsafePath: If the copy contains files that are not part of a pack.
        """
        name, held = self.folder.name, self.place.held
        size = self.remove_partial()
        with exclusive(held, name) as is_free:
            if not is_free and not force:
                raise Locked(f"{self.folder}: a data set reads this copy; wait for it to end, or --force")
            if held.status(name) is None:
                return size
            size += part_bytes(self.folder)
            with self._opened() as folder:
                for inner in folder.names():
                    if not re.fullmatch(PACK_NAMES, inner):
                        raise UnsafePath(f"{folder.path / inner}: packer did not make it; move it away")
            held.remove(self._origin)
            held.publish(name, self.place.work, name)
        self.place.work.remove(name)
        return size


def copies(place: OwnedFolder) -> list[StagedCopy]:
    """Return all copies in the folder `place`, also unfinished ones, sorted by name."""
    return [StagedCopy(place, digest, codec) for digest, codec in place.copies()]


def copies_of(place: OwnedFolder, pack: Path, codec: str | None = None) -> list[StagedCopy]:
    """Return the copies of a pack and of earlier packs at its path or URL. `pack` may also be the folder of a copy.

    If `codec` is not None, only copies recoded to this codec are returned. The store of a URL is not contacted.
    """
    found = [copy for copy in copies(place) if codec in (None, copy.codec)]
    if isinstance(pack, URLPath):
        return [copy for copy in found if copy.origin() == pack]
    where = pack.resolve()
    own = StagedCopy.of(place, manifests.read(pack)).digest if (pack / manifests.NAME).exists() else None
    return [copy for copy in found if copy.digest == own or where in (copy.folder, copy.origin())]


# ---- reading a staged pack


@dataclass(frozen=True)
class StagedRecipe(FolderRecipe):
    """Recipe that opens a pack or its staged copy. `stage` and `codec` are the arguments of `open_staged`."""

    stage: str | None = None
    codec: str | None = None

    def _opened(self, verify: VerifyMode, *, isolate_damaged: bool) -> Pack:
        if isolate_damaged or (self.stage is None and self.codec is None):  # a conversion reads the pack itself
            return super()._opened(verify, isolate_damaged=isolate_damaged)
        return open_staged(self.path, stage=self.stage, codec=self.codec, verify=verify)


def open_staged(folder: Path, *, stage: str | None, codec: str | None = None, verify: str = "first") -> Pack:
    """Open a pack. Parts that are staged are read from the staged copy.

    The sha256 of packer.json identifies the copy. The open pack has a lease on the copy.

    Args:
        folder: The pack.
        stage: "auto" for shared memory, or the folder of `packer stage --to`. None reads no copy.
        codec: Open the recoded copy that `packer stage --as` made. If it does not exist, an error is raised, because
            the pixels of the pack differ. None opens the pack itself.
        verify: The argument `verify` of `Pack`.

    Raises:
        InvalidRequest: If the recoded copy does not exist, or if `Pack` raises this error.
        UnsafePath: If the folder of the copies belongs to another user. With "auto" and without `codec`, a warning
            replaces this error, and no copy is read.
    """
    if codec is not None:
        return _open_recoded(folder, stage, codec, verify)
    if stage is None or (stage == "auto" and not Machine().shared_memory.is_dir()):
        return Pack(folder, verify=verify)
    manifest = manifests.read_pack(folder)
    try:
        copy = StagedCopy.of(OwnedFolder.of(stage, Machine()), manifest)
        held = copy.lease()
    except UnsafePath as error:
        if stage != "auto":
            raise
        warnings.warn(printable(f"{folder}: read where it is, not from memory: {error}"), RuntimeWarning, stacklevel=2)
        held = None
    if held is None:
        return Pack(folder, verify=verify)
    try:
        pack = Pack(folder, verify=verify, copies=copy.found(manifest), on_close=held.close)
    except BaseException:
        held.close()
        raise
    if pack.manifest != manifest:
        pack.close()
        raise CorruptPack(f"{folder}: replaced by another pack while it was opened; open it again")
    return pack


def check_codec(codec: str) -> None:
    """Raise InvalidRequest if `codec` is not the name of a codec."""
    if not re.fullmatch(CODEC, codec):
        raise InvalidRequest(f"{codec!r}: expected a codec of images, such as ycc420")
    codecs.check(codec)


def _open_recoded(folder: Path, stage: str | None, codec: str, verify: str) -> Pack:
    check_codec(codec)
    if stage is None:
        raise InvalidRequest(
            f'{folder}: stage_as={codec!r} is for a staged copy: give stage="auto", or the folder of --to'
        )
    manifest = manifests.read_pack(folder)
    copy = StagedCopy.of(OwnedFolder.of(stage, Machine()), manifest, codec)
    held = copy.lease()
    if held is None:
        to = "" if stage == "auto" else f" --to {shell_word(stage)}"
        raise InvalidRequest(
            f"{folder}: no copy of it as {codec} in {copy.place.folder}, and its own pixels differ; make one: "
            f"packer stage {shell_word(str(folder))} --as {codec}{to}"
        )
    try:
        pack = Pack(copy.folder, verify=verify, on_close=held.close)
    except BaseException:
        held.close()
        raise
    source = pack.manifest.options.get("source")
    if not isinstance(source, dict) or source.get("pack_id") != manifest.pack_id:
        pack.close()
        raise CorruptPack(f"{copy.folder}: not made of {folder}; release it (packer stage --release), and stage again")
    return pack
