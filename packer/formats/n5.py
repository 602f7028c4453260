"""N5: a container of arrays in blocks per part, which tensorstore, z5py, zarr-python 2 and Java's N5 open.

Layout of `part-00000/` (see also `_foreign_part`):
    data.n5/attributes.json            {"n5": "4.0.0"}
    data.n5/<field>/attributes.json    dimensions, blockSize, dataType, compression raw
    data.n5/<field>/.../<k>            block k (packer.layouts.n5_blocks): some rows of the array [n, *shape]; the last
                                       one is as short as what is left
    values.npz                         numbers, once more as the codec has them; every field that is no such array

An array of N5 has one shape and one dtype, so a field is one where its encoded values are the numbers of one shape:
codec raw, which images get here unless the user names another, of the one shape that they all have. Those of other
shapes are refused when a conversion is planned. What N5 has no place for (keys, texts, JSON, points of any number,
float16, an image whose codec the user named) is in values.npz alone. bool is uint8.
The array of the field in the slot image is called `image`, that of the label `label`, others as their field; `_` is
put behind a name that is taken.

Blocks are not compressed, since a row of one that is would cost unpacking all of it. They have 64 rows: fewer of large
images, so that tools can hold one, and more of small values, which would be a file for each 64 of them.
A block is mapped when a value of it is read, its size compared first, and up to 256 of a part stay mapped. N5 is
big-endian and packer little: numbers of several bytes are turned on the way; images of 8 bits are read as they are.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from packer.errors import InvalidRequest
from packer.formats import base
from packer.formats._foreign_part import IMAGE, LABEL, TABLE, ForeignLayout, ForeignReader, ForeignWriter, Places
from packer.formats._part_folder_reader import PartFolderReader
from packer.layouts import n5_blocks
from packer.layouts.n5_blocks import Attributes
from packer.schema import Schema

SUFFIX = ""
_DATA, _ATTRIBUTES = "data.n5", "attributes.json"
_ROWS = 64
_MOST_BYTES = 64 << 20  # of a block of several rows
_LEAST_BYTES = 1 << 20  # of a block, where that takes more than 64 rows
_MOST_MAPPED = 256  # blocks of a part; a process has some 65 000 mappings
_STORED_AS = {name: name for name in n5_blocks.DTYPES} | {"bool": "uint8"}


class BlockedField(NamedTuple):
    """How the values of a field lie in N5. dtype: as the codec has them; stored: as N5 has them."""

    name: str
    dtype: np.dtype[np.generic]
    stored: np.dtype[np.generic]
    shape: tuple[int, ...]
    rows: int

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    def block(self, number: int, samples: int) -> tuple[int, ...]:
        """The shape of a block of an array of so many samples."""
        return (min(self.rows, samples - number * self.rows), *self.shape)

    def block_bytes(self, number: int, samples: int) -> int:
        """The size of a block's file."""
        lengths = self.block(number, samples)
        return len(n5_blocks.block_header(lengths)) + lengths[0] * self.row_bytes

    def path(self, number: int) -> str:
        """A block's file, below the part."""
        return f"{_DATA}/{self.name}/{n5_blocks.block_path((number, *(0 for _ in self.shape)))}"

    def attributes(self, samples: int) -> Attributes:
        return Attributes((samples, *self.shape), (self.rows, *self.shape), self.stored, "raw")


def blocked(schema: Schema) -> dict[str, BlockedField]:
    """The fields that are arrays of N5; hidden ones are none."""
    found: dict[str, BlockedField] = {}
    for field in schema:
        array = None if field.hidden else schema.stored_form(field.name).array
        if array is None or array[0] not in _STORED_AS or 0 in array[1]:
            continue
        taken = {each.name for each in found.values()} | {other.slot for other in schema if other is not field}
        called = field.slot or field.name
        name = next(name for name in (called + "_" * number for number in count()) if name not in taken)
        dtype, stored = np.dtype(array[0]).newbyteorder("<"), np.dtype(_STORED_AS[array[0]]).newbyteorder(">")
        one = BlockedField(name, dtype, stored, array[1], 1)
        found[field.name] = one._replace(rows=_rows(one.row_bytes))
    return found


def _rows(row_bytes: int) -> int:
    """How many rows a block has."""
    return max(min(_ROWS, _MOST_BYTES // row_bytes), _LEAST_BYTES // row_bytes, 1)


def _held(schema: Schema) -> tuple[str, ...]:
    """Arrays, but for numbers: a file for the label of a sample would be opened for 8 bytes."""
    return tuple(name for name in blocked(schema) if schema[name].kind != "number")


LAYOUT = ForeignLayout("N5 readers", _DATA, (), _held, has_places=False)


class Writer(ForeignWriter):
    """Appends each value to the last block of its array."""

    layout = LAYOUT
    codecs = {"image": "raw", "mask": "raw", "depth": "raw"}
    one_shape = True
    order = "stored"  # rows of an array are read at random
    slots = (IMAGE._replace(is_file=False), LABEL)

    @classmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        return {name: field.name for name, field in blocked(schema).items()}

    def _begin(self, payload_bytes: int) -> None:
        self._blocked = blocked(self.schema)
        self._open: dict[str, IO[bytes]] = {}  # of each array the last block
        for name, field in self._blocked.items():
            if field.block_bytes(0, 1) > n5_blocks.MOST_FILE_BYTES:
                raise InvalidRequest(
                    f"{self.path}: a value of {name} has {field.row_bytes:,} bytes, a block of N5 at most "
                    f"{n5_blocks.MOST_FILE_BYTES:,}; use hdf5"
                )
            os.makedirs((self.path / field.path(0)).parent)

    def _check(self, values: Mapping[str, bytes]) -> None:
        for name, field in self._blocked.items():
            if len(values[name]) != field.row_bytes:
                raise InvalidRequest(
                    f"{self.path}: row {self._samples}, field {name!r}: expected {field.row_bytes} bytes for "
                    f"{field.dtype} of shape {field.shape}, found {len(values[name])}; correct the schema"
                )

    def _append(self, row: int, values: Mapping[str, bytes]) -> None:
        for name, field in self._blocked.items():
            number, within = divmod(row, field.rows)
            if not within:
                self._end_block(name)
                self._open[name] = self._make(field.path(number))
                self._open[name].write(n5_blocks.block_header((field.rows, *field.shape)))
            self._open[name].write(_turned(values[name], field.dtype))

    def _end_block(self, name: str) -> None:
        """Close the last block of an array, whose header must be true by now."""
        file = self._open.pop(name, None)
        if file is not None:
            file.close()
            self._files.remove(file)

    def _complete(self) -> None:
        for name, field in self._blocked.items():
            if name in self._open:
                self._open[name].seek(0)
                last = (self._samples - 1) // field.rows
                self._open[name].write(n5_blocks.block_header(field.block(last, self._samples)))
            self._end_block(name)
            said = n5_blocks.dataset_attributes(field.attributes(self._samples))
            self._make(f"{_DATA}/{field.name}/{_ATTRIBUTES}").write(said)
        (self.path / _DATA).mkdir(exist_ok=True)
        self._make(f"{_DATA}/{_ATTRIBUTES}").write(n5_blocks.root_attributes())


def _turned(value: base.Buffer, dtype: np.dtype[np.generic]) -> base.Buffer:
    """The numbers of a value in the other order of bytes."""
    if dtype.itemsize == 1:
        return value
    turned: bytes = np.frombuffer(value, dtype).byteswap().tobytes()
    return turned


class _Spans(NamedTuple):
    """What a read of a value needs to know of its array. folder: the path of a block without its number."""

    folder: bytes
    dtype: np.dtype[np.generic]
    rows: int
    row_bytes: int
    header_bytes: int

    @classmethod
    def of(cls, field: BlockedField) -> "_Spans":
        header_bytes = field.block_bytes(0, 1) - field.row_bytes
        return cls(field.path(0)[:-1].encode(), field.dtype, field.rows, field.row_bytes, header_bytes)


class Reader(ForeignReader):
    """Reads a value from its block; see the module."""

    layout = LAYOUT

    @classmethod
    def side_files(cls, schema: Schema) -> Sequence[str]:
        folders = (_DATA, *(f"{_DATA}/{field.name}" for field in blocked(schema).values()))
        return [f"{folder}/{_ATTRIBUTES}" for folder in folders]

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        self._fields = blocked(schema)
        self._mapped: dict[bytes, memoryview] = {}
        self._lock = threading.Lock()
        self._spans = {name: _Spans.of(self._fields[name]) for name in _held(schema)}
        super().__init__(path, schema, samples=samples, readahead=readahead)

    def _data(self, folder: int, places: Places, *, readahead: bool) -> memoryview:
        """Nothing: a block is opened when a value of it is read."""
        self._folder = PartFolderReader(self.path)
        return memoryview(b"")

    def _value(self, view: memoryview, name: str, row: int) -> base.Buffer:
        if name not in self._columns:
            return super()._value(view, name, row)
        folder, dtype, rows, row_bytes, header_bytes = self._spans[name]
        number, within = divmod(row, rows)
        path = b"%s%d" % (folder, number)
        block = self._mapped.get(path)
        if block is None:
            size = header_bytes + min(rows, self.samples - number * rows) * row_bytes
            block = self._map(path, size)
        start = header_bytes + within * row_bytes
        return _turned(block[start : start + row_bytes], dtype)

    def _map(self, path: bytes, size: int) -> memoryview:
        """A block; the one that was mapped longest ago makes room."""
        block = self._folder.mapped(path, size)
        with self._lock:
            while len(self._mapped) >= _MOST_MAPPED:
                del self._mapped[next(iter(self._mapped))]
            self._mapped[path] = block
        return block

    def files(self) -> Iterator[bytes]:
        yield TABLE.encode()
        yield f"{_DATA}/{_ATTRIBUTES}".encode()
        for field in self._fields.values():
            yield f"{_DATA}/{field.name}/{_ATTRIBUTES}".encode()
            for number in range(-(-self.samples // field.rows)):
                yield field.path(number).encode()

    def close(self) -> None:
        super().close()
        with self._lock:
            self._mapped.clear()
        self._folder.close()
