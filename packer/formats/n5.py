"""N5: one N5 container per part, with arrays in blocks. tensorstore, z5py, zarr-python 2 and Java's N5 open it.

Layout of `part-00000/` (see also `_foreign_part`):

| file                              | content                                                                         |
|-----------------------------------|---------------------------------------------------------------------------------|
| `data.n5/attributes.json`         | {"n5": "4.0.0"}                                                                 |
| `data.n5/<field>/attributes.json` | dimensions, blockSize, dataType, compression raw                                |
| `data.n5/<field>/.../<k>`         | block k (packer.layouts.n5_blocks): some rows of the array [n, *shape]; the     |
|                                   | last block has the remaining rows                                               |
| values.npz                        | every field that is not an array of N5, and the numbers, which readers get from |
|                                   | here: a block would be opened for 8 bytes                                       |

An N5 array has one shape and one dtype. So a field is an array if its encoded values are numbers of one shape. This is
the case for images with the codec raw, the default of this format. Images of several shapes are refused before a
conversion. N5 cannot store keys, texts, JSON, lists of any length, float16, and images of other codecs. bool is stored
as uint8. The array of the slot `image` or `label` has the name of the slot. Other arrays have the name of their field.
`_` is appended to a name that is taken.

Blocks are not compressed, because a read of one row would decompress the complete block. A block has 64 rows. It has
fewer rows if images are large, so that tools can hold a block in memory, and more rows if values are small. A block is
mapped when one of its values is read, and up to 256 blocks of a part stay mapped. N5 is big-endian: a read returns a
copy with swapped bytes, and numbers of 8 bits without a copy.
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
from packer.formats._folder_part import TABLE
from packer.formats._folder_part_files import PartFiles
from packer.formats._foreign_part import IMAGE, LABEL, ForeignLayout, ForeignReader, ForeignWriter, Places
from packer.layouts import n5_blocks
from packer.layouts.n5_blocks import Attributes
from packer.schema import Schema

SUFFIX = ""
_DATA, _ATTRIBUTES = "data.n5", "attributes.json"
_ROWS = 64
_MOST_BYTES = 64 << 20  # of a block of several rows
_LEAST_BYTES = 1 << 20  # of a block
_MOST_MAPPED = 256  # blocks of a part; a process has about 65 000 mappings
_STORED_AS = {name: name for name in n5_blocks.DTYPES} | {"bool": "uint8"}


class BlockedField(NamedTuple):
    """A field that is an array of N5.

    Attributes:
        name: Name of the array.
        dtype: Dtype of the encoded values, little-endian.
        stored: Dtype in N5, big-endian.
        shape: Shape of one value.
        rows: Number of values of a full block.
    """

    name: str
    dtype: np.dtype[np.generic]
    stored: np.dtype[np.generic]
    shape: tuple[int, ...]
    rows: int

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    def block(self, number: int, samples: int) -> tuple[int, ...]:
        """Return the shape (rows, *shape) of block `number`, counted from 0, in an array of `samples` rows."""
        return (min(self.rows, samples - number * self.rows), *self.shape)

    def block_bytes(self, number: int, samples: int) -> int:
        """Return the size in bytes of the file of block `number`, in an array of `samples` rows."""
        lengths = self.block(number, samples)
        return len(n5_blocks.block_header(lengths)) + lengths[0] * self.row_bytes

    def path(self, number: int) -> str:
        """Return the path of the file of block `number`, relative to the part."""
        return f"{_DATA}/{self.name}/{n5_blocks.block_path((number, *(0 for _ in self.shape)))}"

    def attributes(self, samples: int) -> Attributes:
        return Attributes((samples, *self.shape), (self.rows, *self.shape), self.stored, "raw")


def blocked(schema: Schema) -> dict[str, BlockedField]:
    """Return field name -> N5 array, for the fields that become arrays. Hidden fields do not become arrays."""
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
    return max(min(_ROWS, _MOST_BYTES // row_bytes), _LEAST_BYTES // row_bytes, 1)


def _held(schema: Schema) -> tuple[str, ...]:
    """Return the fields whose values are read from blocks: all arrays except those of kind "number"."""
    return tuple(name for name in blocked(schema) if schema[name].kind != "number")


LAYOUT = ForeignLayout("N5 readers", _DATA, (), _held, has_places=False)


class Writer(ForeignWriter):
    """Appends each value to the last block of its array. When a block is full, a new block begins."""

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
        self._last: dict[str, IO[bytes]] = {}  # the last block of each array
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
                self._last[name] = self._make(field.path(number))
                self._last[name].write(n5_blocks.block_header((field.rows, *field.shape)))
            self._last[name].write(_swapped(values[name], field.dtype))

    def _end_block(self, name: str) -> None:
        """Close the file of the last block of an array, if the array has a block."""
        file = self._last.pop(name, None)
        if file is not None:
            file.close()
            self._owned.remove(file)

    def _complete(self) -> None:
        for name, field in self._blocked.items():
            if name in self._last:
                self._last[name].seek(0)
                last = (self._samples - 1) // field.rows
                self._last[name].write(n5_blocks.block_header(field.block(last, self._samples)))
            self._end_block(name)
            attributes = n5_blocks.dataset_attributes(field.attributes(self._samples))
            self._make(f"{_DATA}/{field.name}/{_ATTRIBUTES}").write(attributes)
        (self.path / _DATA).mkdir(exist_ok=True)
        self._make(f"{_DATA}/{_ATTRIBUTES}").write(n5_blocks.root_attributes())


def _swapped(value: base.Buffer, dtype: np.dtype[np.generic]) -> base.Buffer:
    """Return a value with the bytes of each number in reverse order, or unchanged if numbers have one byte."""
    if dtype.itemsize == 1:
        return value
    swapped: bytes = np.frombuffer(value, dtype).byteswap().tobytes()
    return swapped


class _Spans(NamedTuple):
    """Constants for reading the values of a field.

    Attributes:
        folder: Path of a block without its number, relative to the part.
        dtype: Dtype of the values.
        rows: Rows per block.
        row_bytes: Size of a row in bytes.
        header_bytes: Size of the header of a block's file in bytes.
    """

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
    """Returns values of held fields from mapped blocks, and all others as slices of values.npz."""

    layout = LAYOUT
    _folder: PartFiles | None = None

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
        """Return an empty buffer, because this format has no file of all values. `_value` maps the blocks."""
        self._folder = PartFiles(self.path, folder)
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
        return _swapped(block[start : start + row_bytes], dtype)

    def _map(self, path: bytes, size: int) -> memoryview:
        """Map the file of a block and return it. If too many blocks are mapped, release the oldest."""
        if self._folder is None:
            raise InvalidRequest(f"{self.path}: the reader is closed; open it again")
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
        if self._folder is not None:
            self._folder.close()
