"""Stager: copies a pack, or some of its parts, once for all processes, or reads parts into the page cache.

The blocks of a file are reserved before the file is written. So full memory or a full disk raises an error. Otherwise,
SIGBUS could end a process that writes to a mapped file. The sha256 is computed during the copy.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packer.copies import capacity
from packer.copies.capacity import SpaceKept, SpaceNeeded
from packer.copies.copy_sources import FolderFiles, RemoteFiles, open_files
from packer.copies.leased_folder import OwnedFolder
from packer.copies.pack_files import PackFile, in_blocks, part_files
from packer.copies.staged_copies import StagedCopy, copies
from packer.errors import CorruptPack, InvalidRequest, Locked, PackerError, StorageError, StoreError, UnsafePath
from packer.files.digest import entries, opened_folder
from packer.files.safe_paths import open_beneath, open_file
from packer.files.storage_errors import failing
from packer.pack import manifest as manifests
from packer.pack.manifest import INDEX, Manifest
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_readers import check_part
from packer.stores.url import URLPath
from packer.system.machine_limits import Machine
from packer.system.parallel import ordered_map, usable_cores

_READ_BYTES = 1 << 20
_MOST_THREADS = 4  # they share one memory, or one disk
_OTHER_FILES = 5  # folders of a copy, and the note of its origin


@dataclass(frozen=True)
class StageOptions:
    """Options of `packer stage`.

    Attributes:
        to: "auto" for shared memory, or a folder.
        parts: Numbers of the parts to copy; None for all.
        keep: Space that stays free; None for `capacity.DEFAULT`.
        machine: Limits of this machine, and its folder of shared memory.
    """

    to: str = "auto"
    parts: tuple[int, ...] | None = None
    keep: SpaceKept | None = None
    machine: Machine = Machine()

    def numbers(self, manifest: Manifest) -> Sequence[int]:
        """Return the numbers of the parts, sorted. Raises InvalidRequest for a part that the pack does not have."""
        count = len(manifest.parts)
        beyond = [number for number in self.parts or () if not 0 <= number < count]
        if beyond:
            raise InvalidRequest(f"part {beyond[0]}: the pack has parts 0 to {count - 1}; packer info shows how many")
        return range(count) if self.parts is None else sorted(set(self.parts))


@dataclass(frozen=True)
class Staged:
    """The result of `packer stage`.

    Attributes:
        path: The folder to open: the copy if the copy is complete, else the pack.
        how: "copied", "recoded", "there" (copied before), "in memory" (the pack itself is in memory) or "warmed".
        parts: The total number of staged parts.
        copied_bytes: The bytes that this call copied, or read into the page cache.
        reason: Why the pack was not copied, if `how` is "in memory" or "warmed"; empty otherwise.
        notes: Lines for the user.
    """

    path: Path
    how: str
    parts: int
    copied_bytes: int = 0
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hooks:
    """Functions that are called while a pack is staged.

    Attributes:
        waiting: Called before waiting for another process that stages.
        progress: Called after each file with its number of samples and its bytes.
    """

    waiting: Callable[[], None] = lambda: None
    progress: Callable[[int, int], None] = lambda samples, size: None


def stage_or_warm(pack: Path, options: StageOptions, hooks: Hooks) -> Staged:
    """Stage a pack. If `options.to` is "auto" and a copy is not possible, read the pack into the page cache instead.

    A remote pack cannot be read into the page cache. In this case, and for other errors, raise the error of `stage`.
    """
    if options.to != "auto":
        return stage(pack, options, hooks)
    is_remote = isinstance(pack, URLPath)
    if not is_remote:
        manifest = manifests.read_pack(pack)
        mount = options.machine.mount(pack)
        if mount is not None and mount.in_memory:
            return Staged(pack, "in memory", len(options.numbers(manifest)), reason="the pack is in memory already")
    shared = options.machine.shared_memory
    found = options.machine.mount(shared) if shared.is_dir() else None
    if found is None or not found.in_memory:
        if is_remote:
            raise InvalidRequest(f"{shared}: not in memory on this machine; give --to DIR, a folder for the copy")
        return warmed(pack, options, hooks, reason=f"{shared}: not in memory on this machine")
    try:
        return stage(pack, options, hooks)
    except StoreError:
        raise
    except (StorageError, UnsafePath) as error:
        if is_remote:
            raise
        return warmed(pack, options, hooks, reason=str(error))


def stage(pack: Path, options: StageOptions, hooks: Hooks) -> Staged:
    """Copy the parts that are not staged yet, and return the result. Only one process copies; others wait for it.

    Raises:
        StorageError: If the parts do not fit. The check comes before the first write.
        CorruptPack: If the pack is damaged. The files that this call copied are removed.
        UnsafePath: If the folder of the copies belongs to another user.
    """
    source, manifest = open_files(pack)
    if isinstance(pack, URLPath) and options.parts is not None:
        raise InvalidRequest(f"{pack}: --parts is for a pack in a folder: its other parts are read from there")
    chosen = options.numbers(manifest)
    place = OwnedFolder.of(options.to, options.machine)
    copy = StagedCopy.of(place, manifest)
    if place.exists() and not copy.missing(manifest, chosen):
        place.sweep()
        return _result(pack, copy, manifest)
    origin = pack if isinstance(pack, URLPath) else pack.resolve()
    with place.locked(hooks.waiting):
        notes = remove_replaced(copy, origin)
        files = copy.missing(manifest, chosen)
        if files:
            work = _Work(source, manifest, copy, options)
            work.check(files)
            work.copy(files, origin, hooks)
    done = _result(pack, copy, manifest)
    how = "copied" if files else "there"
    return replace(done, how=how, copied_bytes=sum(file.bytes for file in files), notes=tuple(notes))


def _result(pack: Path, copy: StagedCopy, manifest: Manifest) -> Staged:
    is_complete = not copy.missing(manifest, range(len(manifest.parts)))
    count = sum(part.name in copy.found(manifest) for part in manifest.parts)
    return Staged(copy.folder if is_complete else pack, "there", count)


def remove_replaced(copy: StagedCopy, origin: Path) -> list[str]:
    """Remove the copies of earlier packs at `origin`, except those in use. Return a note on each of these copies."""
    notes = []
    for other in copies(copy.place):
        if other.digest != copy.digest and other.origin() == origin:
            try:
                notes.append(f"{other.folder}: removed, {other.remove():,} bytes: a copy of an earlier pack")
            except Locked:
                notes.append(f"{other.folder}: kept: a copy of an earlier pack, which a data set reads")
    return notes


class _Work:
    """Copies files of one pack to its staged copy."""

    def __init__(
        self, source: RemoteFiles | FolderFiles, manifest: Manifest, copy: StagedCopy, options: StageOptions
    ) -> None:
        self._source = source
        self._manifest = manifest
        self._copy = copy
        self._options = options
        mount = options.machine.mount(copy.place.base)
        self._block_bytes = mount.block_bytes if mount is not None else 4096

    def check(self, files: Sequence[PackFile]) -> None:
        """Raise CorruptPack if the size of a part differs from the manifest, StorageError if the files do not fit."""
        if isinstance(self._source, FolderFiles):
            names = {file.name for file in files}
            for part, file in zip(self._manifest.parts, part_files(self._manifest), strict=True):
                if part.name in names:
                    check_part(self._source.pack / part.name, part, is_folder=file.is_folder)
        needs = [self._need(file) for file in files]
        need = SpaceNeeded(sum(need.bytes for need in needs), sum(need.files for need in needs) + _OTHER_FILES)
        capacity.check(self._copy.place.base, need, self._options.keep, self._options.machine)

    def _need(self, file: PackFile) -> SpaceNeeded:
        if file.is_folder and isinstance(self._source, FolderFiles):
            return self._source.need(file, self._block_bytes)
        return SpaceNeeded(in_blocks(file.bytes, self._block_bytes), 1)

    def copy(self, files: Sequence[PackFile], origin: Path, hooks: Hooks) -> None:
        """Copy the files in parallel, but the last file after all others. After an error, remove the copied files."""
        self._copy.begin(origin)
        added: list[PackFile] = []

        def copied(file: PackFile) -> PackFile:
            self._copy_file(file)
            added.append(file)
            return file

        try:
            for some in (files[:-1], files[-1:]):
                for file in ordered_map(copied, some, threads=min(_MOST_THREADS, usable_cores())):
                    hooks.progress(file.samples, file.bytes)
        except PackerError:
            self._copy.take_back(added)
            raise
        finally:
            self._copy.remove_empty_folders()

    def _copy_file(self, file: PackFile) -> None:
        """Copy one file into the copy. Raises CorruptPack if its sha256 differs from the manifest."""
        name, place = file.name.replace("/", "+"), self._copy.place
        if file.is_folder and isinstance(self._source, FolderFiles):
            self._check_sum(file, self._source.copy_folder(file, place.work, name))
            self._copy.add(file, name)
            return
        new = place.new_file(name)
        if new is None:
            raise Locked(f"{place.folder}: another process writes {name}; wait for it to end")
        with new:
            with failing(place.folder, f"reserve {file.bytes:,} bytes for a copy"):
                new.allocate(file.bytes)
            self._check_sum(file, self._source.fetch(file, new.descriptor).sha256)
            self._copy.add(file, new)

    def _check_sum(self, file: PackFile, found: str) -> None:
        if found != file.sha256:
            self._source.check_unchanged()
            raise CorruptPack(
                f"{self._source.where(file)}: damaged: expected sha256 {file.sha256[:16]}..., found {found[:16]}...; "
                "packer verify names the samples; copy or pack it again"
            )


# ---- warming the page cache


def warmed(pack: Path, options: StageOptions, hooks: Hooks, *, reason: str = "") -> Staged:
    """Read the index and as many parts as fit into the page cache. `reason` says why the pack was not copied.

    Raises CorruptPack and StorageError, and InvalidRequest for a remote pack.
    """
    if isinstance(pack, URLPath):
        raise InvalidRequest(f"{pack}: --warm is for a pack in a folder; without it, the pack is copied here")
    manifest = manifests.read_pack(pack)
    check_mostly_holes(pack, manifest)
    parts, chosen = part_files(manifest), options.numbers(manifest)
    left = capacity.free_memory(options.keep, options.machine) - sum(file.bytes for file in manifest.index)
    if left >= 0:
        for file in manifest.index:
            with open_file(pack / INDEX / file.name) as opened:
                _read_all(pack / INDEX / file.name, opened.fileno())
    done: list[PackFile] = []
    for number in chosen:
        part = parts[number]
        left -= part.bytes
        if left < 0:
            break
        path = pack / part.name
        check_part(path, manifest.parts[number], is_folder=part.is_folder)
        for descriptor in _descriptors(path, part):
            _read_all(path, descriptor)
        hooks.progress(part.samples, part.bytes)
        done.append(part)
    is_short = len(done) < len(chosen)
    notes = (f"only {len(done)} of {len(chosen)} parts fit into the free memory",) if is_short else ()
    size = sum(part.bytes for part in done)
    return Staged(pack, "warmed", len(done), size, reason, notes)


def _descriptors(path: Path, part: PackFile) -> Iterator[int]:
    """Yield an open descriptor for each file of a part. The descriptor is closed before the next file."""
    if not part.is_folder:
        with open_file(path) as file:
            yield file.fileno()
        return
    with opened_folder(path) as root:
        for name, size in entries(path):
            if size is not None:
                with failing(path / os.fsdecode(name), "open"):
                    descriptor = open_beneath(root, name)
                try:
                    yield descriptor
                finally:
                    os.close(descriptor)


def _read_all(path: Path, descriptor: int) -> None:
    with failing(path, "read"):
        while os.read(descriptor, _READ_BYTES):
            pass
