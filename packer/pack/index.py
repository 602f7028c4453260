"""Index: what is known of every sample without opening a part, as mapped arrays. The same for every format.

index/keys.npy          uint8 [k]           UTF-8 bytes of all keys, one after another
index/key_ends.npy      uint64 [n]          end of each key in keys.npy
index/key_order.npy     uint64 [n]          sample indices, sorted by the bytes of their keys
index/crc32.npy         uint32 [n, fields]  zlib.crc32 of each encoded value, fields in schema order
index/number-<field>.npy  [n] or [n, k]     one per number field of fixed shape, flattened
"""

import math
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadIndex, CorruptPack, UnknownKey
from packer.files.npy_arrays import map_file
from packer.pack.manifest import IndexFile, Manifest
from packer.schema import Field, Schema

FOLDER = "index"


def file_dtypes(schema: Schema) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name without .npy -> little-endian dtype and shape of one sample's entry, for the files with an entry each."""
    files: dict[str, tuple[str, tuple[int, ...]]] = {"key_ends": ("<u8", ()), "crc32": ("<u4", (len(schema),))}
    for field in schema:
        if field.is_column:
            dtype = np.dtype(field.dtype).newbyteorder("<").str
            files[f"number-{field.name}"] = (dtype, (_width(field),) if field.shape else ())
    return files


def _width(field: Field) -> int:
    return math.prod(length or 0 for length in field.shape or ())


class Index:
    """The mapped index of one pack; its size is checked, and each file's crc32, when it is opened."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder / FOLDER
        self._count = manifest.samples
        self._schema = manifest.schema
        self.positions = {name: at for at, name in enumerate(manifest.schema.names)}  # of fields in the schema
        self._arrays = {file.name.removesuffix(".npy"): self._open(file) for file in manifest.index}
        self._check_shapes()
        self._keys: npt.NDArray[np.uint8] = self._arrays["keys"]
        self._ends: npt.NDArray[np.uint64] = self._arrays["key_ends"]
        self._order: npt.NDArray[np.uint64] = self._arrays["key_order"]
        self._crc32: npt.NDArray[np.uint32] = self._arrays["crc32"]

    def _open(self, file: IndexFile) -> npt.NDArray[Any]:
        path = self._folder / file.name
        if not os.path.lexists(path):
            raise CorruptPack(f"{path}: missing index file; run packer index, or copy the pack again")
        array, mapped = map_file(path, file.bytes)
        found = zlib.crc32(mapped)
        if found != file.crc32:
            raise CorruptPack(
                f"{path}: damaged index file: crc32 {found:08x}, the manifest says {file.crc32:08x}; run packer "
                "index, or copy it again"
            )
        return array

    def _check_shapes(self) -> None:
        expected: dict[str, tuple[str, tuple[int, ...]]] = {
            name: (dtype, (self._count, *shape)) for name, (dtype, shape) in file_dtypes(self._schema).items()
        }
        expected["key_order"] = ("<u8", (self._count,))
        found = {name: (array.dtype.str, array.shape) for name, array in self._arrays.items()}
        if found.get("key_ends") == expected["key_ends"]:  # only then its last entry is a count
            expected["keys"] = ("|u1", (int(self._arrays["key_ends"][-1]) if self._count else 0,))
        if found != expected:
            raise CorruptPack(f"{self._folder}: index files do not fit the schema; run packer index, or pack again")

    def __len__(self) -> int:
        return self._count

    def key(self, index: int) -> str:
        """The key of a sample, 0 <= index < len."""
        return self._key_bytes(index).decode("utf-8", "surrogateescape")

    def _key_bytes(self, index: int) -> bytes:
        start = int(self._ends[index - 1]) if index else 0
        end = int(self._ends[index])
        if not start <= end <= len(self._keys):
            raise CorruptPack(f"{self._folder}: key ends are not in order at sample {index}; copy or pack it again")
        return self._keys[start:end].tobytes()

    def index_of(self, key: str) -> int:
        """The index of the sample with that key, by bisection; raises UnknownKey."""
        try:
            wanted = key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:  # a surrogate that no bytes decode to
            raise UnknownKey(f"no sample with key {key!r}; packer info --keys lists them") from error
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._key_bytes(self._sorted(middle)) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < self._count and self._key_bytes(found := self._sorted(low)) == wanted:
            return found
        raise UnknownKey(f"no sample with key {key!r}; packer info --keys lists them")

    def _sorted(self, position: int) -> int:
        index = int(self._order[position])
        if index >= self._count:
            raise CorruptPack(f"{self._folder}: key order points outside the pack; run packer index, or pack again")
        return index

    def describe(self, index: int, name: str) -> str:
        """Sample, key and field, for messages."""
        return f"(sample {index}, key {self.key(index)!r}, field {name!r})"

    def crc32(self, index: int, name: str) -> int:
        """The stored crc32 of one encoded value."""
        return int(self._crc32[index, self.positions[name]])

    def column(self, name: str) -> npt.NDArray[Any]:
        """All values of a number field of fixed shape: a read-only view [n, *shape]; raises UnknownKey."""
        array = self._arrays.get(f"number-{name}")
        if array is None:
            columns = [field.name for field in self._schema if field.is_column]
            raise UnknownKey(f"no column {name!r}; columns: {', '.join(columns) or 'none'}")
        return array.reshape(self._count, *(length or 0 for length in self._schema[name].shape or ()))

    def check_index(self, index: int) -> int:
        """A sample index in range, negative ones counted from the end; raises BadIndex."""
        if not -self._count <= index < self._count:
            raise BadIndex(f"sample index {index} is outside the pack of {self._count} samples")
        return index + self._count if index < 0 else index
