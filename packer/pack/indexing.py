"""How an index is written: one piece per part while packing, then merged file by file into the pack's index.

A piece is a folder of plain binary files, named as the index's files but without header, beside the parts. Merging
reads one file at a time, so memory does not grow with the number of parts.
"""

import hashlib
import math
import shutil
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from packer.errors import BadInput, Refused
from packer.pack.index import FOLDER, file_dtypes
from packer.pack.manifest import IndexFile
from packer.pack.npy import write_header
from packer.pack.storage import failing, make_folder, sync
from packer.schema import Schema

_COPY_BYTES = 4 << 20


class Piece:
    """Collects the index entries of one part; `save` writes them."""

    def __init__(self, schema: Schema) -> None:
        self._files = file_dtypes(schema)
        self._widths = {
            field.name: np.dtype(field.dtype).itemsize * math.prod(length or 0 for length in field.shape or ())
            for field in schema
            if field.is_column
        }
        self._data = {name: bytearray() for name in (*self._files, "keys")}

    def add(self, key: bytes, crc32s: Sequence[int], numbers: Mapping[str, bytes | bytearray | memoryview]) -> None:
        """One sample: its key, the crc32 of each value in schema order, the encoded value of each column."""
        self._data["keys"] += key
        self._data["key_ends"] += len(self._data["keys"]).to_bytes(8, "little")
        for crc32 in crc32s:
            self._data["crc32"] += crc32.to_bytes(4, "little")
        for name, width in self._widths.items():
            if len(numbers[name]) != width:
                raise Refused(f"field {name!r}: a column's value has {len(numbers[name])} bytes, expected {width}")
            self._data[f"number-{name}"] += numbers[name]

    def save(self, folder: Path) -> None:
        """Write the piece into a new folder, synced; raises StorageFailed."""
        make_folder(folder)
        for name, data in self._data.items():
            with failing(folder / name, "write"):
                (folder / name).write_bytes(data)
            sync(folder / name)
        sync(folder)


def merge(pieces: Sequence[Path], folder: Path, schema: Schema) -> tuple[IndexFile, ...]:
    """Write `folder`/index from the pieces in order; raises BadInput where two samples have one key."""
    target = folder / FOLDER
    make_folder(target)
    ends = _joined_ends(pieces)
    files = [_write(target / "key_ends.npy", "<u8", ends.shape, [ends])]
    keys = b"".join(_read(piece / "keys") for piece in pieces)
    files.append(_write(target / "keys.npy", "|u1", (len(keys),), [np.frombuffer(keys, np.uint8)]))
    order = _order(keys, ends)
    files.append(_write(target / "key_order.npy", "<u8", order.shape, [order]))
    for name, (dtype, shape) in file_dtypes(schema).items():
        if name != "key_ends":
            sources = [piece / name for piece in pieces]
            files.append(_write(target / f"{name}.npy", dtype, (len(ends), *shape), sources))
    sync(target)
    return tuple(sorted(files, key=lambda file: file.name))


def _joined_ends(pieces: Sequence[Path]) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    ends = [np.frombuffer(_read(piece / "key_ends"), "<u8") for piece in pieces]
    starts = np.cumsum([0, *(int(part[-1]) if len(part) else 0 for part in ends)])
    joined = [part + np.uint64(start) for part, start in zip(ends, starts, strict=False)]
    return np.concatenate([np.empty(0, "<u8"), *joined])


def _read(path: Path) -> bytes:
    with failing(path, "read"):
        return path.read_bytes()


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


def _write(path: Path, dtype: str, shape: tuple[int, ...], blocks: Sequence[Any]) -> IndexFile:
    """An .npy file from arrays or from files of raw data, synced."""
    with failing(path, "write"), path.open("wb") as file:
        tee = _Tee(file)
        write_header(tee, dtype, shape)  # type: ignore[arg-type]
        for block in blocks:
            if isinstance(block, Path):
                with block.open("rb") as source:
                    shutil.copyfileobj(source, tee, _COPY_BYTES)
            else:
                tee.write(np.ascontiguousarray(block).data)
    sync(path)
    return IndexFile(path.name, tee.size, tee.crc32, tee.sha256.hexdigest())
