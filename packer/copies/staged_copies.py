"""Staged copies: complete or partial copies of packs in memory or another folder, and reading packs from them.

The copies are in the `OwnedFolder` `<base>/packer-<uid>/`. It contains:
    <digest>/             Verified files of the pack whose packer.json has this sha256.
    <digest>/packer.json  Arrives last. With it, the folder is a complete pack.
    <digest>.origin       The path or URL of the pack.
    <digest>-ycc420/      The pack recoded to ycc420. It has an .origin too.
    .<digest>-ycc420.partial/  Unfinished. After a kill, the next process continues it.
    .work/                Files that are being copied or removed.

A process that changes the folder holds its lock. A process that reads a copy has a lease on `<digest>/`.
"""

import hashlib
import os
import re
import stat
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from packer import codecs
from packer.conversion.work_folder_names import DONE, NAMES
from packer.copies.owned_folder import CODEC, Lease, NewFile, OwnedFolder, copy_name, exclusive, lease
from packer.copies.pack_files import PackFile, extra_files, index_files, part_files
from packer.errors import CorruptPack, InvalidRequest, Locked, StorageError, UnsafePath, printable
from packer.files.digest import part_bytes
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.files.terminal_output import shell_word
from packer.files.work_folder import beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import EXTRAS, INDEX, Manifest
from packer.pack.reader import Pack
from packer.pack.unlisted_files import PACK_NAMES
from packer.stores.url import URLPath, path_or_url
from packer.system.machine_limits import Machine

_ORIGIN = ".origin"


class StagedCopy:
    """The copy of one pack, which may be complete, partial, or not exist.

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
        """Return the copy of the pack with that manifest."""
        return cls(place, hashlib.sha256(manifest.to_bytes()).hexdigest(), codec)

    # ---- what is in it

    def missing(self, manifest: Manifest, numbers: Sequence[int]) -> list[PackFile]:
        """Return the files to copy for these parts; with the last parts also the extras, and packer.json at the end."""
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
        """Return the paths of the parts in the copy, by name, and of the folder of the index if it is complete."""
        names = [part.name for part in part_files(manifest) if self._has(part)]
        if all(self._has(file) for file in index_files(manifest)):
            names.append(INDEX)
        return {name: self.folder / name for name in names}

    def origin(self) -> Path | None:
        """Return the path or URL of the copied pack; None if a process was killed before it noted that."""
        with self.place.opened() as folder:
            text = folder.read_file(self._origin)
        return path_or_url(os.fsdecode(text)) if text else None

    def describe(self) -> dict[str, object]:
        """Return what `packer stage --list` prints. parts: of an unfinished recoded copy, those that are finished."""
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
        """Return a lease on the copy; None if it does not exist. Raises UnsafePath, StorageError."""
        if not self.place.exists():
            return None
        with self.place.opened() as top:
            return lease(top, self.folder.name)

    # ---- changing it, with the lock of the place held

    def begin(self, origin: Path) -> None:
        """Make the folder if it does not exist, and note the path of the pack."""
        self._opened().close()
        self.note_origin(origin)

    def note_origin(self, origin: Path) -> None:
        """Note the path of the pack."""
        self.place.work.write_file(_ORIGIN, os.fsencode(origin))
        self.place.work.replace(_ORIGIN, self.place.held, self._origin)

    def _opened(self) -> FolderHandle:
        return self.place.held.make_folder(self.folder.name)

    def add(self, file: PackFile, copied: NewFile | str) -> None:
        """Put a checked file in its place. copied: of a part that is a folder, its name in `.work`."""
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
        """Remove added files, unless the copy has a lease."""
        with exclusive(self.place.held, self.folder.name) as is_free, ExitStack() as opened:
            for file in files if is_free else ():
                *above, name = file.name.split("/")
                folder = opened.enter_context(self._opened())
                for inner in above:
                    folder = opened.enter_context(folder.folder(inner))
                folder.remove(name)

    def remove_empty_folders(self) -> None:
        """Remove folders in which no file has arrived."""
        with self._opened() as folder:
            for name in (INDEX, EXTRAS):
                with suppress(StorageError):  # it is not empty, or does not exist
                    folder.remove_empty_folder(name)
        with suppress(StorageError):
            self.place.held.remove_empty_folder(self.folder.name)
            self.place.held.remove(self._origin)

    def remove_partial(self) -> int:
        """Remove an unfinished recoded copy, and return its bytes; raises UnsafePath if it contains unknown files."""
        size = 0
        if os.path.lexists(self.partial):
            size = part_bytes(self.partial)
            with work_folder(self.partial, NAMES) as work:
                work.clear()
        if not os.path.lexists(self.folder):
            self.place.held.remove(self._origin)
        return size

    def remove(self, *, force: bool = False) -> int:
        """Remove the copy in one step, and return its bytes.

        Args:
            force: Remove it although a data set reads it; its memory is free when the data set is closed.

        Raises:
            Locked: If a data set reads the copy.
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
    """Return all copies in a place, also unfinished ones, sorted by name."""
    return [StagedCopy(place, digest, codec) for digest, codec in place.copies()]


def copies_of(place: OwnedFolder, pack: Path, codec: str | None = None) -> list[StagedCopy]:
    """Return the copies of the pack at a path or URL, of packs that were there before, and the copy with that path.

    codec: return only the copy that was recoded to it. A store is not contacted, since it may be out of reach.
    """
    found = [copy for copy in copies(place) if codec in (None, copy.codec)]
    if isinstance(pack, URLPath):
        return [copy for copy in found if copy.origin() == pack]
    where = pack.resolve()
    own = StagedCopy.of(place, manifests.read(pack)).digest if (pack / manifests.NAME).exists() else None
    return [copy for copy in found if copy.digest == own or where in (copy.folder, copy.origin())]


# ---- reading a staged pack


def open_staged(folder: Path, *, stage: str | None, codec: str | None = None, verify: str = "first") -> Pack:
    """Open a pack, and read the staged parts from the copy.

    The copy is identified by the sha256 of packer.json. The open pack has a lease on it.

    Args:
        folder: The pack.
        stage: "auto", or a folder that was given to `packer stage --to`; None for no copy.
        codec: Open the copy that `packer stage --as` made, with its images in this codec. The pack is never read
            instead, since its pixels differ.
        verify: See Pack.

    Raises:
        InvalidRequest: If the recoded copy does not exist. Also as Pack does.
        UnsafePath: If the place of the copy is not this user's own. With "auto", a copy of the files is then ignored
            with a warning.
    """
    if codec is not None:
        return _open_recoded(folder, stage, codec, verify)
    if stage is None or (stage == "auto" and not Machine().shared_memory.is_dir()):
        return Pack(folder, verify=verify)
    manifest = manifests.read(folder)
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
    """Raise InvalidRequest if a text is not a codec."""
    if not re.fullmatch(CODEC, codec):
        raise InvalidRequest(f"{codec!r}: expected a codec of images, such as ycc420")
    codecs.check(codec)


def _open_recoded(folder: Path, stage: str | None, codec: str, verify: str) -> Pack:
    check_codec(codec)
    if stage is None:
        raise InvalidRequest(
            f'{folder}: stage_as={codec!r} is for a staged copy: give stage="auto", or the folder of --to'
        )
    manifest = manifests.read(folder)
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
