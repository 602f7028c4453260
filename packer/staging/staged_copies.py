"""Staged copies: what of a pack is staged, found by the digest of its manifest, and the lock that keeps it.

A reader holds a shared lock on its copy, which nobody removes as long as it is read.
"""

import errno
import fcntl
import hashlib
import os
import re
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packer import codecs
from packer.conversion.work_folder_names import DONE, NAMES
from packer.errors import CorruptPack, InvalidRequest, Locked, StorageError, UnsafePath, printable
from packer.files.digest import part_bytes
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.files.terminal_output import shell_word
from packer.files.work_folder import beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import EXTRAS, INDEX, Manifest
from packer.pack.part_readers import PartOpener
from packer.pack.reader import Pack
from packer.pack.unlisted_files import PACK_NAMES
from packer.staging.user_folder import CODEC, UserFolder, copy_name
from packer.stores.url import URLPath, path_or_url
from packer.system.machine_limits import Machine

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def take(folder: Path) -> int | None:
    """A descriptor that holds a lease on `folder` until it is closed, by the process and by all that inherit it.

    None where there is no such folder. Raises UnsafePath where it is something else, StorageError.
    """
    descriptor = _open(folder)
    if descriptor is None:
        return None
    with failing(folder, "lock"):
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits for the few moments that a release takes to rename it
    if _is_there(descriptor, folder):
        return descriptor
    os.close(descriptor)
    return None


@contextmanager
def unread(folder: Path) -> Iterator[bool]:
    """Whether nobody has a lease on `folder`; if so, nobody gets one inside the block. Raises as `take` does."""
    descriptor = _open(folder)
    if descriptor is None:
        yield True
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        yield is_free
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int | None:
    with failing(folder, "open"):
        try:
            return os.open(folder, _FOLDER)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise UnsafePath(f"{folder}: expected a folder, found a link or a file; remove it") from error
            raise


def _is_there(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


# ---- copies

_ORIGIN = ".origin"


@dataclass(frozen=True)
class StagedFile:
    """A file of a pack, or a part that is a folder: relative path, size, sha256, and the samples of a part."""

    name: str
    bytes: int
    sha256: str
    samples: int = 0
    is_folder: bool = False


class StagedCopy:
    """The copy of one pack, whole, in part, or not there.

    digest: of the pack. codec: that its images are in, in a copy that is a pack of its own; None for the very pack.
    partial: where that one is made.
    """

    def __init__(self, place: UserFolder, digest: str, codec: str | None = None) -> None:
        name = copy_name(digest, codec)
        self.place = place
        self.digest = digest
        self.codec = codec
        self.folder = place.folder / name
        self.partial = beside(self.folder)
        self._origin = place.folder / f"{name}{_ORIGIN}"

    @classmethod
    def of(cls, place: UserFolder, manifest: Manifest, codec: str | None = None) -> "StagedCopy":
        """The copy of the pack with that manifest: the sha256 of its packer.json is in its name."""
        return cls(place, hashlib.sha256(manifest.to_bytes()).hexdigest(), codec)

    def missing(self, manifest: Manifest, numbers: Sequence[int]) -> list[StagedFile]:
        """What still has to be copied so that these parts are there; for the last of all parts, all the rest too."""
        index = [StagedFile(f"{INDEX}/{file.name}", file.bytes, file.sha256) for file in manifest.index]
        parts = parts_of(manifest)
        chosen = [parts[number] for number in numbers]
        lacking = [file for file in (*index, *chosen) if not self._has(file)]
        if all(self._has(part) for part in parts if part not in chosen):
            extras = (StagedFile(f"{EXTRAS}/{file.name}", file.bytes, file.sha256) for file in manifest.extras)
            last = StagedFile(manifests.NAME, len(manifest.to_bytes()), self.folder.name)
            lacking += [file for file in (*extras, last) if not self._has(file)]
        return lacking

    def _has(self, file: StagedFile) -> bool:
        *above, last = (self.folder / file.name).relative_to(self.place.folder).parts
        folder, found = self.place.folder, []
        try:
            for name in (*above, last):
                folder = folder / name
                found.append(os.stat(folder, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return False
        status = found.pop()
        if not all(stat.S_ISDIR(folder.st_mode) for folder in found):
            raise UnsafePath(f"{self.folder}: expected a copy of a pack, found a link or a file; remove it")
        if file.is_folder:
            return stat.S_ISDIR(status.st_mode)
        return stat.S_ISREG(status.st_mode) and status.st_size == file.bytes

    def found(self, manifest: Manifest) -> dict[str, Path]:
        """Where the parts that are there lie, by name, and the folder of the index."""
        names = [part.name for part in parts_of(manifest) if self._has(part)]
        if all(self._has(StagedFile(f"{INDEX}/{file.name}", file.bytes, file.sha256)) for file in manifest.index):
            names.append(INDEX)
        return {name: self.folder / name for name in names}

    def begin(self, origin: Path) -> None:
        """Make the folder where it is not there, and note where the pack lies; only under the place's lock."""
        self._opened().close()
        self.note_origin(origin)

    def note_origin(self, origin: Path) -> None:
        """Note where the pack lies; only under the place's lock."""
        self.place.work.write_file(_ORIGIN, os.fsencode(origin))
        self.place.work.replace(_ORIGIN, self.place.held, self._origin.name)

    def _opened(self) -> FolderHandle:
        return self.place.held.make_folder(self.folder.name)

    def settle(self) -> None:
        """Remove folders that nothing was put into."""
        with self._opened() as folder:
            for name in (INDEX, EXTRAS):
                with suppress(StorageError):  # it is not empty, or not there
                    folder.remove_empty_folder(name)
        with suppress(StorageError):
            self.place.held.remove_empty_folder(self.folder.name)
            self.place.held.remove(self._origin.name)

    def remove_partial(self) -> int:
        """Remove what an unfinished making has left, and return its bytes; only under the place's lock.

        Raises UnsafePath where something lies in it that packer did not make.
        """
        size = 0
        if os.path.lexists(self.partial):
            size = part_bytes(self.partial)
            with work_folder(self.partial, NAMES) as work:
                work.clear()
        if not os.path.lexists(self.folder):
            self.place.held.remove(self._origin.name)
        return size

    def add(self, file: StagedFile, copied: str) -> None:
        """Put what was copied and checked in its place; copied: its name in .work."""
        *above, name = file.name.split("/")
        with ExitStack() as opened:
            folder = opened.enter_context(self._opened())
            for inner in above:
                folder = opened.enter_context(folder.make_folder(inner))
            status = folder.status(name)
            if file.is_folder or (status is not None and stat.S_ISDIR(status.st_mode)):
                folder.remove(name)
                self.place.work.publish(copied, folder, name)
            else:
                self.place.work.replace(copied, folder, name)

    def take_back(self, files: Sequence[StagedFile]) -> None:
        """Remove what was added, unless somebody reads it."""
        with unread(self.folder) as is_free, ExitStack() as opened:
            for file in files if is_free else ():
                *above, name = file.name.split("/")
                folder = opened.enter_context(self._opened())
                for inner in above:
                    folder = opened.enter_context(folder.folder(inner))
                folder.remove(name)

    def remove(self, *, force: bool = False) -> int:
        """Remove the copy, in one step for those who look for it, and return its bytes; only under the place's lock.

        Raises Locked where a data set reads it, unless it is forced: the memory is free then when that has ended;
        UnsafePath where something lies in it that is of no pack.
        """
        name = self.folder.name
        made = self.remove_partial()
        with unread(self.folder) as is_free:
            if not is_free and not force:
                raise Locked(f"{self.folder}: a data set reads this copy; wait for it to end, or --force")
            if self.place.held.status(name) is None:
                return made
            size = made + part_bytes(self.folder)
            with self._opened() as folder:
                for inner in folder.names():
                    if not re.fullmatch(PACK_NAMES, inner):
                        raise UnsafePath(f"{folder.path / inner}: packer did not make it; move it away")
            self.place.held.remove(self._origin.name)
            self.place.held.publish(name, self.place.work, name)
        self.place.work.remove(name)
        return size

    def origin(self) -> Path | None:
        """Where the pack was that this is a copy of; None where a stager was killed before it noted that."""
        with self.place.opened() as folder:
            text = folder.read_file(self._origin.name)
        return path_or_url(os.fsdecode(text)) if text else None

    def describe(self) -> dict[str, object]:
        """Path, origin, codec, bytes, whether it is whole, parts, and whether it is in use, for `packer stage --list`.

        Of one in the making, parts are those that are finished.
        """
        there = [path for path in (self.folder, self.partial) if os.path.lexists(path)]
        listed = self.folder if self.folder in there else self.partial / DONE
        with failing(listed, "list the folder"):
            names = os.listdir(listed) if os.path.lexists(listed) else []
        with unread(self.folder) as is_free:
            return {
                "path": str(self.folder),
                "origin": os.fsdecode(self.origin() or ""),
                "codec": self.codec,
                "bytes": sum(part_bytes(path) for path in there),
                "whole": manifests.NAME in names,
                "parts": len(set(names) - {INDEX, EXTRAS, manifests.NAME}),
                "in_use": not is_free,
            }


def parts_of(manifest: Manifest) -> list[StagedFile]:
    """The parts of a pack, in order."""
    is_folder = PartOpener(manifest.format, manifest.schema).is_folder
    return [StagedFile(part.name, part.bytes, part.sha256, part.samples, is_folder) for part in manifest.parts]


def copies(place: UserFolder) -> Iterator[StagedCopy]:
    """All copies in a place."""
    for digest, codec in place.copies():
        yield StagedCopy(place, digest, codec)


def copies_of(place: UserFolder, pack: Path, codec: str | None = None) -> list[StagedCopy]:
    """The copies of the pack at `pack`, of one that was there before, or the copy with that path itself.

    codec: only those that were made in it; None for all.
    """
    if isinstance(pack, URLPath):  # which is not asked: a copy may be released when the store is out of reach
        return [copy for copy in copies(place) if codec in (None, copy.codec) and copy.origin() == pack]
    where = pack.resolve()
    own = StagedCopy.of(place, manifests.read(pack)).digest if (pack / manifests.NAME).exists() else None
    every = (copy for copy in copies(place) if codec in (None, copy.codec))
    return [copy for copy in every if copy.digest == own or where in (copy.folder, copy.origin())]


# ---- reading a staged pack


def open_staged(folder: Path, *, stage: str | None, codec: str | None = None, verify: str = "first") -> Pack:
    """An open pack. stage: "auto" or a folder that was given to `packer stage --to`; None for no copy.

    codec: open the copy that was made with --as, whose images are in it: a pack of its own. Its pixels are not those
    of the pack, so neither is read in the place of the other: where it is not there, InvalidRequest is raised.

    The copy is that of this very pack: it is found by the sha256 of packer.json, in a folder that only this user can
    write to. As long as the pack is open it holds a lease on the copy. Where that folder is not this user's own, as
    when another one made it, "auto" warns and reads the pack itself; else UnsafePath is raised. Raises as Pack does.
    """
    if codec is not None:
        return _open_recoded(folder, stage, codec, verify)
    if stage is None or (stage == "auto" and not Machine().shared_memory.is_dir()):
        return Pack(folder, verify=verify)
    manifest = manifests.read(folder)
    try:
        place = UserFolder.of(stage, Machine())
        copy = StagedCopy.of(place, manifest)
        descriptor = take(copy.folder) if place.is_there() else None
    except UnsafePath as error:
        if stage != "auto":
            raise
        warnings.warn(printable(f"{folder}: read where it is, not from memory: {error}"), RuntimeWarning, stacklevel=2)
        descriptor = None
    if descriptor is None:
        return Pack(folder, verify=verify)
    try:
        pack = Pack(folder, verify=verify, copies=copy.found(manifest), on_close=partial(os.close, descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    if pack.manifest != manifest:
        pack.close()
        raise CorruptPack(f"{folder}: another pack took its place while it was opened; open it again")
    return pack


def check_codec(codec: str) -> None:
    """Raise InvalidRequest where that is no codec that a copy could be named by."""
    if not re.fullmatch(CODEC, codec):
        raise InvalidRequest(f"{codec!r}: expected a codec of images, such as ycc420")
    codecs.check(codec)


def _open_recoded(folder: Path, stage: str | None, codec: str, verify: str) -> Pack:
    check_codec(codec)
    if stage is None:
        raise InvalidRequest(
            f'{folder}: stage_as={codec!r} is for a staged copy; say where it is: stage="auto", or the folder that '
            "--to named"
        )
    manifest = manifests.read(folder)
    place = UserFolder.of(stage, Machine())
    copy = StagedCopy.of(place, manifest, codec)
    descriptor = take(copy.folder) if place.is_there() else None
    if descriptor is None:
        to = "" if stage == "auto" else f" --to {shell_word(stage)}"
        raise InvalidRequest(
            f"{folder}: no copy of it as {codec} in {place.folder}, and its own pixels are others; make one: "
            f"packer stage {shell_word(str(folder))} --as {codec}{to}"
        )
    try:
        pack = Pack(copy.folder, verify=verify, on_close=partial(os.close, descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    source = pack.manifest.options.get("source")
    if not isinstance(source, dict) or source.get("pack_id") != manifest.pack_id:
        pack.close()
        raise CorruptPack(f"{copy.folder}: not made of {folder}; release it (packer stage --release), and stage again")
    return pack
