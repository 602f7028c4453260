"""Index writer: one PartIndex per part while packing, then merged file by file into the pack's index.

A piece is one file, brought to disk with one fsync. Layout: for each of keys, key_ends, crc32 and the number columns,
in the order of `file_dtypes`: uint64 little-endian length in bytes, then the data as in the index's file of that name,
without its header. Merging copies piece by piece, so memory does not grow with the number of parts.
"""

import hashlib
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.files.file_io import failing, make_folder, sync, write_file
from packer.files.npy_arrays import npy_header
from packer.pack.index import FOLDER, file_dtypes
from packer.pack.manifest import IndexFile
from packer.schema import Schema


class PartIndex:
    """Collects the index entries of one part; `save` writes them."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._widths = {
            field.name: np.dtype(field.dtype).itemsize * math.prod(length or 0 for length in field.shape or ())
            for field in schema
            if field.is_column
        }
        self._data = {name: bytearray() for name in _names(schema)}

    def add(self, key: bytes, crc32s: Sequence[int], numbers: Mapping[str, bytes | bytearray | memoryview]) -> None:
        """One sample: its key, the crc32 of each value in schema order, the encoded value of each column."""
        self._data["keys"] += key
        self._data["key_ends"] += len(self._data["keys"]).to_bytes(8, "little")
        for crc32 in crc32s:
            self._data["crc32"] += crc32.to_bytes(4, "little")
        for name, width in self._widths.items():
            if len(numbers[name]) != width:
                raise InvalidRequest(
                    f"field {name!r}: a column's value has {len(numbers[name])} bytes, expected {width}"
                )
            self._data[f"number-{name}"] += numbers[name]

    def save(self, path: Path) -> None:
        """Write the piece into a new file, synced; raises StorageError."""
        sections = (self._data[name] for name in _names(self._schema))
        write_file(path, b"".join(len(data).to_bytes(8, "little") + data for data in sections))


def merge(pieces: Sequence[Path], folder: Path, schema: Schema) -> tuple[IndexFile, ...]:
    """Write `folder`/index from the pieces in order; raises BadInput where two samples have one key."""
    target = folder / FOLDER
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


@dataclass(frozen=True)
class _Section:
    """A range of a piece's file."""

    path: Path
    start: int
    size: int

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
            raise BadInput(f"key {text!r}: samples {one} and {other} have it; keys must be unique, rename one")
    return np.asarray(order, "<u8")


class _Tee:
    """Writes to a file while computing what the manifest says of it."""

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
    """A new .npy file from arrays, bytes or sections of pieces, synced; raises StorageError."""
    with failing(path, "write"), path.open("xb") as file:
        tee = _Tee(file)
        tee.write(npy_header(dtype, shape))
        for block in blocks:
            data = block.read() if isinstance(block, _Section) else block
            tee.write(np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data)
    sync(path)
    return IndexFile(path.name, tee.size, tee.crc32, tee.sha256.hexdigest())
