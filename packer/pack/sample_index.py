"""Index: keys, checksums and numbers of all samples as mapped arrays, the same for every format.

The index contains no part numbers and no offsets: `reader.Pack.locate` computes the part of a sample, and the part
finds its records.

| file | dtype and shape | content |
|---|---|---|
| index/keys.npy | uint8 [k] | UTF-8 bytes of all keys, one after another |
| index/key_ends.npy | uint64 [n] | end of each key in keys.npy |
| index/key_order.npy | uint64 [n] | sample indices, sorted by the bytes of their keys |
| index/crc32.npy | uint32 [n, fields] | zlib.crc32 of each encoded value, fields in schema order |
| index/number-<field>.npy | [n] or [n, k] | values of a number field of fixed shape, flattened |
"""

import hashlib
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, CorruptPack, InvalidRequest, UnknownKey
from packer.files.fsync import make_folder, sync, write_file
from packer.files.npy_arrays import map_file, npy_header
from packer.files.storage_errors import failing
from packer.pack.manifest import INDEX, IndexFile, Manifest
from packer.schema import Field, Schema


def file_dtypes(schema: Schema) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the files with one entry per sample: name without .npy -> dtype, and shape of one entry, such as ()."""
    files: dict[str, tuple[str, tuple[int, ...]]] = {"key_ends": ("<u8", ()), "crc32": ("<u4", (len(schema),))}
    for field in schema:
        if field.is_column:
            dtype = np.dtype(field.dtype).newbyteorder("<").str
            files[f"number-{field.name}"] = (dtype, (_width(field),) if field.shape else ())
    return files


def _width(field: Field) -> int:
    return math.prod(length or 0 for length in field.shape or ())


def crc32_problem(found: int, expected: int) -> str:
    """Return the message for a value whose crc32 is not the expected one."""
    return f"damaged record: crc32 {found:08x}, the index has {expected:08x}; pack again from the source"


class Index:
    """The mapped index of one pack.

    Attributes:
        positions: field -> position in the schema.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Open the index of the pack in `folder`. Compares the size and crc32 of each file; raises CorruptPack."""
        self._folder = folder / INDEX
        self._count = manifest.samples
        self._schema = manifest.schema
        self.positions = {name: at for at, name in enumerate(manifest.schema.names)}
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
                f"{path}: damaged index file: crc32 {found:08x}, the manifest has {file.crc32:08x}; run packer "
                "index, or copy it again"
            )
        return array

    def _check_shapes(self) -> None:
        expected: dict[str, tuple[str, tuple[int, ...]]] = {
            name: (dtype, (self._count, *shape)) for name, (dtype, shape) in file_dtypes(self._schema).items()
        }
        expected["key_order"] = ("<u8", (self._count,))
        found = {name: (array.dtype.str, array.shape) for name, array in self._arrays.items()}
        if found.get("key_ends") == expected["key_ends"]:
            expected["keys"] = ("|u1", (int(self._arrays["key_ends"][-1]) if self._count else 0,))
        if found != expected:
            raise CorruptPack(f"{self._folder}: index files do not fit the schema; run packer index, or pack again")

    def __len__(self) -> int:
        return self._count

    def key(self, index: int) -> str:
        """Return the key of a sample, 0 <= index < len; raises CorruptPack."""
        return self._key_bytes(index).decode("utf-8", "surrogateescape")

    def _key_bytes(self, index: int) -> bytes:
        start = int(self._ends[index - 1]) if index else 0
        end = int(self._ends[index])
        if not start <= end <= len(self._keys):
            raise CorruptPack(f"{self._folder}: key ends are not in order at sample {index}; copy or pack it again")
        return self._keys[start:end].tobytes()

    def index_of(self, key: str) -> int:
        """Return the index of the sample with this key; raises UnknownKey, whose message suggests a similar key."""
        found = self.find(key)
        if found is None:
            raise UnknownKey(f"no sample with key {key!r}; {self._like(key)}packer info --keys lists them")
        return found

    def _like(self, text: str) -> str:
        """Return a sentence for the message that suggests the first key that contains the text, or ""."""
        wanted, keys = text.encode("utf-8", "surrogatepass"), self._keys.tobytes()
        at = keys.find(wanted) if wanted else -1
        while at >= 0:
            key = self.key(int(np.searchsorted(self._ends, at, side="right")))
            if text in key:  # not across two keys
                return f"did you mean {key!r}? "
            at = keys.find(wanted, at + 1)
        return ""

    def find(self, key: str) -> int | None:
        """Return the index of the sample with this key, or None."""
        try:
            wanted = key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a surrogate that no bytes decode to
            return None
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._key_bytes(self._sorted(middle)) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < self._count and self._key_bytes(found := self._sorted(low)) == wanted:
            return found
        return None

    def _sorted(self, position: int) -> int:
        index = int(self._order[position])
        if index >= self._count:
            raise CorruptPack(f"{self._folder}: key order points outside the pack; run packer index, or pack again")
        return index

    def describe(self, index: int, name: str) -> str:
        """Return "(sample INDEX, key KEY, field NAME)", for messages."""
        return f"(sample {index}, key {self.key(index)!r}, field {name!r})"

    def crc32(self, index: int, name: str) -> int:
        """Return the stored crc32 of one encoded value."""
        return int(self._crc32[index, self.positions[name]])

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a read-only array [n, *shape] of a number field of fixed shape; raises UnknownKey for other fields."""
        array = self._arrays.get(f"number-{name}")
        if array is None:
            columns = [field.name for field in self._schema if field.is_column]
            raise UnknownKey(f"no column {name!r}; columns: {', '.join(columns) or 'none'}")
        return array.reshape(self._count, *(length or 0 for length in self._schema[name].shape or ()))


# ---- writing: one piece for each part during the conversion, then `merge` creates the index
#
# A piece is one file. For keys, key_ends, crc32 and each number column, in the order of `file_dtypes`, it contains the
# length in bytes (uint64, little-endian) and the data of the index file without its header.


class PartIndex:
    """Collects the index entries of one part in memory."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._widths = {
            field.name: np.dtype(field.dtype).itemsize * _width(field) for field in schema if field.is_column
        }
        self._data = {name: bytearray() for name in _names(schema)}
        self._crc32s = Struct(f"<{len(schema)}I")

    def add(self, key: bytes, crc32s: Sequence[int], numbers: Mapping[str, bytes | bytearray | memoryview]) -> None:
        """Add a sample; raises InvalidRequest for a number of another size.

        Args:
            key: UTF-8 bytes of the key.
            crc32s: crc32 of each encoded value, in schema order.
            numbers: encoded value of each number field of fixed shape.
        """
        self._data["keys"] += key
        self._data["key_ends"] += len(self._data["keys"]).to_bytes(8, "little")
        self._data["crc32"] += self._crc32s.pack(*crc32s)
        for name, width in self._widths.items():
            if len(numbers[name]) != width:
                raise InvalidRequest(f"field {name!r}: expected {width} bytes, found {len(numbers[name])}")
            self._data[f"number-{name}"] += numbers[name]

    def save(self, path: Path) -> None:
        """Write the entries to a new file (a piece) and sync it; raises StorageError."""
        sections = (self._data[name] for name in _names(self._schema))
        write_file(path, b"".join(len(data).to_bytes(8, "little") + data for data in sections))


def merge(pieces: Sequence[Path], folder: Path, schema: Schema) -> tuple[IndexFile, ...]:
    """Write and sync `folder`/index. pieces: the files that `PartIndex.save` wrote, in the order of the parts.

    Returns:
        The entries of the manifest.

    Raises:
        BadInput: two samples have the same key.
        StorageError: the files cannot be written.
    """
    target = folder / INDEX
    make_folder(target)
    sections = [_sections(piece, schema) for piece in pieces]
    ends = _joined_ends(sections)
    keys = b"".join(section["keys"].read() for section in sections)
    order = _order(keys, ends)
    files = [
        write_array(target / "key_ends.npy", "<u8", ends.shape, [ends]),
        write_array(target / "keys.npy", "|u1", (len(keys),), [np.frombuffer(keys, np.uint8)]),
        write_array(target / "key_order.npy", "<u8", order.shape, [order]),
    ]
    for name, (dtype, shape) in file_dtypes(schema).items():
        if name != "key_ends":
            blocks = [section[name] for section in sections]
            files.append(write_array(target / f"{name}.npy", dtype, (len(ends), *shape), blocks))
    sync(target)
    return tuple(sorted(files, key=lambda file: file.name))


def _names(schema: Schema) -> tuple[str, ...]:
    return ("keys", *file_dtypes(schema))


class _Section(NamedTuple):
    """A range of bytes in the file of a piece."""

    path: Path
    start: int
    size: int  # in bytes

    def read(self) -> bytes:
        with failing(self.path, "read"), self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.size)


def _sections(piece: Path, schema: Schema) -> dict[str, _Section]:
    found, at = {}, 0
    for name in _names(schema):
        size = int.from_bytes(_Section(piece, at, 8).read(), "little")
        found[name] = _Section(piece, at + 8, size)
        at += 8 + size
    return found


def _joined_ends(sections: Sequence[dict[str, _Section]]) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    ends = [np.frombuffer(section["key_ends"].read(), "<u8") for section in sections]
    starts = np.cumsum([0, *(int(part[-1]) if len(part) else 0 for part in ends)])
    joined = [part + np.uint64(start) for part, start in zip(ends, starts, strict=False)]
    return np.concatenate([np.empty(0, "<u8"), *joined])


def _order(keys: bytes, ends: "np.ndarray[Any, np.dtype[np.uint64]]") -> "np.ndarray[Any, np.dtype[np.uint64]]":
    bounds = [0, *ends.tolist()]
    names = [keys[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]
    order = sorted(range(len(names)), key=names.__getitem__)
    for one, other in zip(order, order[1:], strict=False):
        if names[one] == names[other]:
            text = names[one].decode("utf-8", "surrogateescape")
            raise BadInput(f"key {text!r}: samples {one} and {other} have it; rename one")
    return np.asarray(order, "<u8")


class _Tee:
    """Writes to a file, and computes its entry in the manifest."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        self.crc32 = 0
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> None:
        self._file.write(data)
        self.size += memoryview(data).nbytes
        self.crc32 = zlib.crc32(data, self.crc32)
        self.sha256.update(data)


def write_array(path: Path, dtype: str, shape: tuple[int, ...], blocks: Iterable[Any]) -> IndexFile:
    """Write a new .npy file and sync it; raises StorageError.

    Args:
        path: the new file.
        dtype: of the array.
        shape: of the array.
        blocks: the data in order: arrays, bytes, or sections of pieces.

    Returns:
        The entry of the manifest.
    """
    with failing(path, "write"), path.open("xb") as file:
        tee = _Tee(file)
        tee.write(npy_header(dtype, shape))
        for block in blocks:
            data = block.read() if isinstance(block, _Section) else block
            tee.write(np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data)
    sync(path)
    return IndexFile(path.name, tee.size, tee.crc32, tee.sha256.hexdigest())
