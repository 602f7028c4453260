"""Extra files: files of the original tree that belong to no sample (tables, backgrounds, lists), kept byte for byte.

extras/paths.npy      uint8 [p]   relative POSIX paths, UTF-8 (other bytes as they are), one after another
extras/path_ends.npy  uint64 [n]  end of each path in paths.npy
extras/data.npy       uint8 [d]   the files' bytes, one file after another
extras/data_ends.npy  uint64 [n]  end of each file in data.npy

The folder is there only where there is such a file. Nothing reads it but extract, verify and a conversion of the pack.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import CorruptPack
from packer.files.file_io import make_folder, sync
from packer.files.npy_arrays import map_file
from packer.pack.index_writer import write_array
from packer.pack.manifest import IndexFile, Manifest
from packer.schema import Buffer

FOLDER = "extras"
_DTYPES = {"paths": "|u1", "path_ends": "<u8", "data": "|u1", "data_ends": "<u8"}


def write(folder: Path, sizes: Mapping[str, int], contents: Iterable[Buffer]) -> tuple[IndexFile, ...]:
    """Write `folder`/extras, synced: relative path -> bytes of each file, and the contents in that order.

    Returns what the manifest says of the files, nothing for no extras. Raises StorageError.
    """
    if not sizes:
        return ()
    target = folder / FOLDER
    make_folder(target)
    paths = [path.encode("utf-8", "surrogateescape") for path in sizes]
    ends = {"path_ends": [len(path) for path in paths], "data_ends": list(sizes.values())}
    files = [
        write_array(target / f"{name}.npy", "<u8", (len(sizes),), [np.cumsum(lengths, dtype="<u8")])
        for name, lengths in ends.items()
    ]
    files.append(write_array(target / "paths.npy", "|u1", (sum(map(len, paths)),), paths))
    files.append(write_array(target / "data.npy", "|u1", (sum(sizes.values()),), contents))
    sync(target)
    return tuple(sorted(files, key=lambda file: file.name))


class ExtraFiles:
    """The extras of one pack, mapped, each file's crc32 compared when they are opened."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Raises CorruptPack, StorageError."""
        self._folder = folder / FOLDER
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
                f"{path}: damaged file: crc32 {found:08x}, the manifest says {file.crc32:08x}; copy it again"
            )
        return array

    def _slices(self, arrays: dict[str, npt.NDArray[Any]], data: str, ends: str) -> list[memoryview]:
        """A view of the mapped file for each entry."""
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
        """Relative path, as the pack has it and not to be trusted -> bytes of each file."""
        return {path: len(content) for path, content in self}

    def __iter__(self) -> Iterator[tuple[str, memoryview]]:
        """Path and content of each file, in order."""
        for path, content in zip(self._paths, self._contents, strict=True):
            yield bytes(path).decode("utf-8", "surrogateescape"), content
