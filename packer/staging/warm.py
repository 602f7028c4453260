"""Warming: parts of a pack read into the page cache, and how much of them the cache holds."""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from packer.files.digest import entries, opened_folder
from packer.files.open_beneath import open_beneath
from packer.files.storage import failing, open_file
from packer.pack.index import FOLDER as INDEX
from packer.pack.manifest import Manifest
from packer.pack.reader import check_part
from packer.staging.staged_copies import StagedFile, parts_of

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
        found = resident_bytes(path, descriptor)
        if found is None:
            return None
        total += found
    return total


def resident_bytes(path: Path, descriptor: int) -> int | None:
    """Bytes of an open file that are in memory, by mincore(2); raises StorageError.

    None where the system has no such call, or the file is another's: the kernel then says that all of it is.
    """
    status = os.fstat(descriptor)
    if os.geteuid() not in (0, status.st_uid):
        return None
    if not status.st_size:
        return 0
    mincore = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)
    if mincore is None:
        return None
    with failing(path, "map"), mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapped, np.uint8)
        address, size = ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(mapped))
        failed = mincore(address, size, ctypes.c_void_p(pages.ctypes.data))
        del view  # else the file could not be unmapped
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return min(int((pages & 1).sum()) * mmap.PAGESIZE, status.st_size)
