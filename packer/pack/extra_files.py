"""Extra files: files of the source that belong to no sample (tables, backgrounds, lists), stored byte for byte.

| file | dtype and shape | content |
|---|---|---|
| extras/paths.npy | uint8 [p] | relative POSIX paths, one after another, in UTF-8; other bytes are unchanged |
| extras/path_ends.npy | uint64 [n] | end of each path in paths.npy |
| extras/data.npy | uint8 [d] | bytes of the files, one file after another |
| extras/data_ends.npy | uint64 [n] | end of each file in data.npy |

A pack without extra files has no folder `extras`. Only `extract`, `verify` and a conversion of the pack read the
folder. If the extra files of a source are together larger than `--extras`, all of them are skipped. Their number is
then in the notes and in the manifest.
"""

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, CorruptPack, InvalidRequest
from packer.files.fsync import make_folder, sync_folder
from packer.files.npy_arrays import map_file
from packer.files.safe_paths import components
from packer.pack.manifest import EXTRAS, IndexFile, Manifest
from packer.pack.sample_index import write_array
from packer.schema import Buffer
from packer.sources._message_texts import counted, listed
from packer.sources._trees.file_tree import FileState
from packer.sources._trees.folder_tree import HOW_TO_FOLLOW, LinkLeadsOut
from packer.sources.base import Source

_DTYPES = {"paths": "|u1", "path_ends": "<u8", "data": "|u1", "data_ends": "<u8"}


def write_extras(folder: Path, sizes: Mapping[str, int], contents: Iterable[Buffer]) -> tuple[IndexFile, ...]:
    """Write `folder`/extras and sync it; raises StorageError.

    Args:
        sizes: relative path -> size of the file in bytes. If it is empty, nothing is written.
        contents: bytes of each file, in the order of `sizes`.

    Returns:
        The entry of each written file for the manifest.
    """
    if not sizes:
        return ()
    target = folder / EXTRAS
    make_folder(target)
    paths = [path.encode("utf-8", "surrogateescape") for path in sizes]
    columns = {"data": (contents, list(sizes.values())), "path": (paths, [len(path) for path in paths])}
    files = []
    for name, (blocks, lengths) in columns.items():
        values = target / ("paths.npy" if name == "path" else "data.npy")
        files.append(write_array(values, "|u1", (sum(lengths),), blocks))
        ends = [np.cumsum(lengths, dtype="<u8")]
        files.append(write_array(target / f"{name}_ends.npy", "<u8", (len(lengths),), ends))
    sync_folder(target)
    return tuple(sorted(files, key=lambda file: file.name))


class ExtraFiles:
    """The extra files of one pack, mapped into memory. Iteration yields (relative path, content) of each file."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Open the extras of the pack in `folder` and compare their crc32; raises CorruptPack, StorageError."""
        self._folder = folder / EXTRAS
        arrays = {file.name.removesuffix(".npy"): self._open(file) for file in manifest.extras}
        if not arrays:
            arrays = {name: np.empty(0, dtype) for name, dtype in _DTYPES.items()}
        self._paths = self._slices(arrays, "paths", "path_ends")
        self._contents = self._slices(arrays, "data", "data_ends")
        if {name: array.dtype.str for name, array in arrays.items()} != _DTYPES or len(self) != len(self._contents):
            raise self._unfit()

    def _open(self, file: IndexFile) -> npt.NDArray[Any]:
        path = self._folder / file.name
        array, mapped = map_file(path, file.bytes)
        found = zlib.crc32(mapped)
        if found != file.crc32 or array.ndim != 1:
            raise CorruptPack(
                f"{path}: damaged file: crc32 {found:08x}, the manifest has {file.crc32:08x}; copy it again"
            )
        return array

    def _slices(self, arrays: dict[str, npt.NDArray[Any]], data: str, ends: str) -> list[memoryview]:
        if data not in arrays or ends not in arrays or arrays[ends].dtype.str != "<u8" or arrays[data].itemsize != 1:
            raise self._unfit()
        bounds = [0, *arrays[ends].tolist()]
        if bounds[-1] != len(arrays[data]) or any(end < start for start, end in zip(bounds, bounds[1:], strict=False)):
            raise self._unfit()
        view = arrays[data].data
        return [view[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]

    def _unfit(self) -> CorruptPack:
        return CorruptPack(f"{self._folder}: its files do not fit each other; copy or pack it again")

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def sizes(self) -> dict[str, int]:
        """Relative path -> size of the file in bytes. Paths are not checked: a hostile pack may contain any path."""
        return {path: len(content) for path, content in self}

    def __iter__(self) -> Iterator[tuple[str, memoryview]]:
        """Yield (relative path, content) of each file, in order."""
        for path, content in zip(self._paths, self._contents, strict=True):
            yield bytes(path).decode("utf-8", "surrogateescape"), content


# ---- choosing the files of a source


@dataclass(frozen=True)
class ChosenExtras:
    """The extra files of a conversion.

    Attributes:
        sizes: relative path -> size in bytes of each chosen file, in the order of the source.
        left: number of skipped files, and the bytes of files that were skipped because of the limit of `choose_extras`.
        notes: lines for the user.
        identity: modification time of each chosen file in ns, to detect that the source changed.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    left: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()
    identity: tuple[int, ...] = ()

    def contents(self, source: Source) -> Iterator[Buffer]:
        """Yield the bytes of the files, in order; raises BadInput for a file that changed or is unreadable."""
        for path, size_bytes in self.sizes.items():
            data = source.read_file(path, is_table=True)
            if len(data) != size_bytes:
                raise BadInput(
                    f"{source.folder.root / path}: changed during the conversion: expected {size_bytes} bytes, "
                    f"found {len(data)}; run again"
                )
            yield data


def choose_extras(source: Source, *, most_bytes: int) -> ChosenExtras:
    """Choose all extra files of a source, or none if they are together larger than `most_bytes`.

    These files are always skipped: links out of the folder, devices, unreadable files, and names that `extract` would
    refuse. Skipped files give a note.

    Args:
        source: the source.
        most_bytes: limit for all files together; 0 chooses none.
    """
    if not most_bytes:
        return _limited(ChosenExtras(), most_bytes)
    sizes, odd, outside, times = {}, [], [], []
    for path in source.extras:
        try:
            found = _state(source, path)
        except LinkLeadsOut:
            outside.append(path)
            continue
        if found is None:
            odd.append(path)
        else:
            sizes[path] = found.size_bytes
            times.append(found.time_ns)
    notes = [f"{counted(len(odd), 'other file')} skipped, which are not readable: {listed(odd)}"] if odd else []
    if outside:
        files = counted(len(outside), "other file")
        notes.append(f"{files} skipped, reached by a link out of the folder: {listed(outside)}; {HOW_TO_FOLLOW}")
    return _limited(ChosenExtras(sizes, (len(odd) + len(outside), 0), tuple(notes), tuple(times)), most_bytes)


def _state(source: Source, path: str) -> FileState | None:
    """Return size and time of a file, or None if `extract` could not write it; raises LinkLeadsOut."""
    try:
        components(path)
        state = source.folder.state(path)
    except LinkLeadsOut:
        raise
    except (BadInput, InvalidRequest):
        return None
    if source.folder.contents is not None:
        return state
    return state if state.is_regular and os.access(source.folder.root / path, os.R_OK) else None


def _limited(found: ChosenExtras, most_bytes: int) -> ChosenExtras:
    total = sum(found.sizes.values())
    files = counted(len(found.sizes), "other file")
    if total > most_bytes:
        note = f"{files} skipped: {total:,} bytes, more than --extras allows ({most_bytes:,})"
        return ChosenExtras({}, (len(found.sizes) + found.left[0], total), (*found.notes, note))
    note = f"{files} without a sample packed, too: {total:,} bytes; --extras 0 skips them"
    return ChosenExtras(found.sizes, found.left, (*found.notes, *([note] if found.sizes else [])), found.identity)
