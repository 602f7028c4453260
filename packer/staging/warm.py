"""Warming: parts of a pack read into the page cache, and how much of them the cache holds."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from packer.files.digest import entries, opened_folder
from packer.files.file_io import failing, open_file
from packer.files.safe_paths import open_beneath
from packer.pack.index import FOLDER as INDEX
from packer.pack.manifest import Manifest
from packer.pack.part_opener import check_part
from packer.staging.staged_copies import StagedFile, parts_of
from packer.system.page_cache import resident_bytes

_BLOCK_BYTES = 1 << 20


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
            _read(pack / INDEX / file.name)
    for number in numbers:
        left -= parts[number].bytes
        if left < 0:
            break
        path = pack / parts[number].name
        check_part(path, manifest.parts[number], is_folder=parts[number].is_folder)
        for descriptor in _descriptors(path, parts[number]):
            _read_all(path, descriptor)
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


def _read(path: Path) -> None:
    with open_file(path) as file:
        _read_all(path, file.fileno())


def _read_all(path: Path, descriptor: int) -> None:
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
