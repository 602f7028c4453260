"""Stager: copies a pack, or parts of it, once for all who ask; or warms the page cache where a copy does not fit.

Space is taken by posix_fallocate and files are filled by plain writes: a disk or memory that is full is an error then,
not the SIGBUS that a write to a mapped file would end in. The sha256 of each file is computed on the way.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packer.errors import CorruptPack, InvalidRequest, Locked, PackerError, StorageError, StoreError, UnsafePath
from packer.files.digest import entries, opened_folder
from packer.files.fsync import sync_part
from packer.files.page_cache import resident_bytes
from packer.files.safe_paths import open_beneath, open_file
from packer.files.storage_errors import failing
from packer.pack import manifest as manifests
from packer.pack.manifest import INDEX, Manifest
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_readers import check_part
from packer.staging import capacity
from packer.staging.capacity import SpaceKept, SpaceNeeded
from packer.staging.pack_files import ROOM, PackFiles, pack_files
from packer.staging.staged_copies import StagedCopy, StagedFile, copies, parts_of
from packer.staging.user_folder import UserFolder
from packer.stores.url import URLPath
from packer.system.machine_limits import Machine
from packer.system.parallel import ordered_map, usable_cores

_BLOCK_BYTES = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def reserve(path: Path, size_bytes: int) -> None:
    """A new file of that size whose space is taken; raises StorageError."""
    with failing(path, "take the space for a copy"):
        descriptor = os.open(path, _NEW_FILE, 0o600)
        try:
            if size_bytes:  # else it is EINVAL
                os.posix_fallocate(descriptor, 0, size_bytes)
        finally:
            os.close(descriptor)


# ---- stage

_MOST_THREADS = 4  # they share one memory, or one disk


@dataclass(frozen=True)
class StageOptions:
    """What is wanted: numbers of the parts (None for all), what stays free (None for capacity.DEFAULT), and where."""

    to: str = "auto"
    parts: tuple[int, ...] | None = None
    keep: SpaceKept | None = None
    machine: Machine = Machine()

    def numbers(self, manifest: Manifest) -> Sequence[int]:
        """The numbers of the parts; raises InvalidRequest for one that the pack does not have."""
        count = len(manifest.parts)
        beyond = [number for number in self.parts or () if not 0 <= number < count]
        if beyond:
            raise InvalidRequest(f"part {beyond[0]}: the pack has parts 0 to {count - 1}; packer info shows how many")
        return range(count) if self.parts is None else sorted(set(self.parts))


@dataclass(frozen=True)
class Staged:
    """What was done. path: the folder to open: the copy where it is whole, else the pack.

    how: "copied", "recoded" (see recoded_copy.py), "there" (somebody did it before), "in memory" (the pack itself is)
    or "warmed". parts: how many are staged now. reason: why it is not a copy. resident_bytes: of a warmed pack, None
    where the system does not tell.
    """

    path: Path
    how: str
    parts: int
    copied_bytes: int = 0
    reason: str = ""
    resident_bytes: int | None = None
    notes: tuple[str, ...] = ()


def _silent() -> None:
    pass


def _uncounted(samples: int, size: int) -> None:
    pass


@dataclass(frozen=True)
class Hooks:
    """Called while it goes on: before waiting for another stager, and after each file with its samples and bytes."""

    waiting: Callable[[], None] = _silent
    progress: Callable[[int, int], None] = _uncounted


def stage_or_warm(pack: Path, options: StageOptions, hooks: Hooks) -> Staged:
    """Stage, and with `to` "auto" warm the page cache where no copy can be made. Raises as `stage` does."""
    if options.to != "auto":
        return stage(pack, options, hooks)
    if not isinstance(pack, URLPath):
        manifest = manifests.read(pack)
        mount = options.machine.mount(pack)
        if mount is not None and mount.in_memory:
            return Staged(pack, "in memory", len(options.numbers(manifest)), reason="the pack lies in memory already")
    shared = options.machine.shared_memory
    found = options.machine.mount(shared) if shared.is_dir() else None
    if found is None or not found.in_memory:
        if isinstance(pack, URLPath):
            raise InvalidRequest(f"{shared}: not in memory on this machine; say --to DIR, a folder for the copy")
        return warmed(pack, options, hooks, reason=f"{shared}: not in memory on this machine")
    try:
        return stage(pack, options, hooks)
    except StoreError:
        raise
    except (StorageError, UnsafePath) as error:
        if isinstance(pack, URLPath):
            raise
        return warmed(pack, options, hooks, reason=str(error))


def warmed(pack: Path, options: StageOptions, hooks: Hooks, *, reason: str = "") -> Staged:
    """Read what fits of the parts into the page cache; raises CorruptPack, StorageError."""
    if isinstance(pack, URLPath):
        raise InvalidRequest(f"{pack}: --warm is for a pack on a disk of this machine; without it, it is copied here")
    manifest = manifests.read(pack)
    check_mostly_holes(pack, manifest)
    chosen = options.numbers(manifest)
    count, resident = warm(
        pack, manifest, chosen, room_bytes=capacity.free_memory(options.keep, options.machine), progress=hooks.progress
    )
    notes = (f"only {count} of {len(chosen)} parts fit into the memory that is free",) if count < len(chosen) else ()
    return Staged(pack, "warmed", count, reason=reason, resident_bytes=resident, notes=notes)


def stage(pack: Path, options: StageOptions, hooks: Hooks) -> Staged:
    """Copy the parts that are not there yet, under a lock: of many that ask at once, one copies.

    Raises StorageError where they do not fit, before anything is written, CorruptPack where the pack is damaged,
    UnsafePath where the place is not this user's own; whatever was copied until then is removed again.
    """
    source = pack_files(pack)
    manifest = source.manifest
    if isinstance(pack, URLPath) and options.parts is not None:
        raise InvalidRequest(
            f"{pack}: --parts is for a pack on a disk: the others are read where they are, which is there"
        )
    chosen = options.numbers(manifest)
    place = UserFolder.of(options.to, options.machine)
    copy = StagedCopy.of(place, manifest)
    if place.is_there() and not copy.missing(manifest, chosen):
        place.sweep()
        return _result(pack, copy, manifest, options)
    work = _Work(source, copy, options)
    if not place.is_there():  # so that a refusal does not even make the folder
        work.check(copy.missing(manifest, chosen))
    with place.locked(hooks.waiting):
        notes = remove_replaced(copy, source.origin)
        files = copy.missing(manifest, chosen)
        if files:
            work.check(files)
            work.copy(files, hooks)
    done = _result(pack, copy, manifest, options)
    how = "copied" if files else "there"
    return replace(done, how=how, copied_bytes=sum(file.bytes for file in files), notes=(*notes, *done.notes))


def _result(pack: Path, copy: StagedCopy, manifest: Manifest, options: StageOptions) -> Staged:
    whole = not copy.missing(manifest, range(len(manifest.parts)))
    count = sum(part.name in copy.found(manifest) for part in manifest.parts)
    return Staged(copy.folder if whole else pack, "there", count, notes=tuple(warnings(copy.place.base, options)))


def warnings(base: Path, options: StageOptions) -> list[str]:
    """What may surprise of a place: that it is no memory, or may be swapped."""
    mount = options.machine.mount(base)
    if mount is None or not mount.in_memory:
        return [f"{base}: lies on {mount.kind if mount else 'a file system of unknown kind'}, not in memory"]
    if options.machine.has_swap() and "noswap" not in mount.options:
        return [f"{base}: the system may swap it to a disk; mount it with noswap, or swapoff -a"]
    return []


def remove_replaced(copy: StagedCopy, origin: Path) -> list[str]:
    """Remove copies of what was at the same path before the pack was made anew; says what was done."""
    notes = []
    for other in copies(copy.place):
        if other.digest != copy.digest and other.origin() == origin:
            try:
                notes.append(f"{other.folder}: removed, {other.remove():,} bytes: a copy of what the pack was before")
            except Locked:
                notes.append(f"{other.folder}: kept: a copy of what the pack was before, which a data set reads")
    return notes


class _Work:
    """Copying files of one pack."""

    def __init__(self, source: PackFiles, copy: StagedCopy, options: StageOptions) -> None:
        self._source = source
        self._copy = copy
        self._options = options
        mount = options.machine.mount(copy.place.base)
        self._block_bytes = mount.block_bytes if mount is not None else 4096

    def check(self, files: Sequence[StagedFile]) -> None:
        """Raise CorruptPack where a part is not as large as it should be, StorageError where there is no room."""
        wanted = {file.name: file for file in files}
        for part in self._source.manifest.parts:
            if part.name in wanted:
                self._source.check(part, wanted[part.name])
        needs = [self._need(file) for file in files]
        need = SpaceNeeded(
            sum(need.bytes for need in needs), sum(need.files for need in needs) + 5
        )  # folders, the origin
        capacity.check(self._copy.place.base, need, self._options.keep, self._options.machine)

    def _need(self, file: StagedFile) -> SpaceNeeded:
        return self._source.need(file, self._block_bytes)

    def copy(self, files: Sequence[StagedFile], hooks: Hooks) -> None:
        """Reserve the space of all, then copy, compare and put each into its place; packer.json is the last."""
        self._copy.begin(self._source.origin)
        added = []
        try:
            for file in files:
                reserve(self._path(self._reserved(file)), self._need(file).bytes if file.is_folder else file.bytes)
            for file in ordered_map(self._copied, files, threads=min(_MOST_THREADS, usable_cores())):
                self._copy.add(file, self._filled(file))
                added.append(file)
                hooks.progress(file.samples, file.bytes)
        except PackerError:
            self._copy.take_back(added)
            raise
        finally:
            self._copy.settle()

    def _reserved(self, file: StagedFile) -> str:
        return self._filled(file) + (ROOM if file.is_folder else "")

    def _filled(self, file: StagedFile) -> str:
        return file.name.replace("/", "+")

    def _path(self, name: str) -> Path:
        return self._copy.place.work_path(name)

    def _copied(self, file: StagedFile) -> StagedFile:
        """Copy one file into the work folder; raises CorruptPack where its sha256 is not the manifest's."""
        name, place = self._filled(file), self._copy.place
        found = self._source.copy(file, name, place, block_bytes=self._block_bytes)
        if found != file.sha256:
            raise CorruptPack(
                f"{self._source.where(file)}: damaged: sha256 {found[:16]}..., the manifest says "
                f"{file.sha256[:16]}...; packer verify names the samples; copy or pack it again"
            )
        if file.is_folder:
            place.work.remove(self._reserved(file))
        sync_part(self._path(name))
        return file


# ---- warming the page cache


def warm(
    pack: Path, manifest: Manifest, numbers: Sequence[int], *, room_bytes: int, progress: Callable[[int, int], None]
) -> tuple[int, int | None]:
    """Read the index and these parts, one after the other, as long as they fit into room_bytes.

    Returns how many parts were read, and how many bytes of these the cache holds; None where the system does not tell.
    Raises CorruptPack, StorageError.
    """
    parts = parts_of(manifest)
    left = room_bytes - sum(file.bytes for file in manifest.index)
    done: list[StagedFile] = []
    if left >= 0:
        for file in manifest.index:
            _read_whole(pack / INDEX / file.name)
    for number in numbers:
        left -= parts[number].bytes
        if left < 0:
            break
        path = pack / parts[number].name
        check_part(path, manifest.parts[number], is_folder=parts[number].is_folder)
        for descriptor in _descriptors(path, parts[number]):
            _read_through(path, descriptor)
        done.append(parts[number])
        progress(parts[number].samples, parts[number].bytes)
    resident = [_resident(pack / part.name, part) for part in done]
    known = [size for size in resident if size is not None]
    return len(done), sum(known) if len(known) == len(resident) else None


def _descriptors(path: Path, part: StagedFile) -> Iterator[int]:
    """Each file of a part, open for reading until the next one."""
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


def _read_whole(path: Path) -> None:
    with open_file(path) as file:
        _read_through(path, file.fileno())


def _read_through(path: Path, descriptor: int) -> None:
    with failing(path, "read"):
        while os.read(descriptor, _BLOCK_BYTES):
            pass


def _resident(path: Path, part: StagedFile) -> int | None:
    total = 0
    for descriptor in _descriptors(path, part):
        with failing(path, "map"):
            found = resident_bytes(descriptor)
        if found is None:
            return None
        total += found
    return total
