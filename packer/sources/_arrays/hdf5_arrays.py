"""HDF5 arrays: h5py lists the arrays of a file and the places of their bytes; packer reads the bytes.

| how an array is stored | how it is read                                                                       |
|------------------------|--------------------------------------------------------------------------------------|
| contiguous             | one pread(2) per row                                                                 |
| in chunks              | those of some rows at once; deflate, lzf, shuffle and fletcher32 undone here         |
| of variable length     | references of 16 bytes: uint32 length, uint64 address, uint32 index in a global heap |

HDF5 inflates a chunk without a limit (1.5 MB to 1.5 GB), under a lock. packer checks each place that h5py or the file
names against the file, and each size against the shape of the array. Layouts: HDF5 File Format
Specification 3.0, III.E (global heap), VI.A (filters); lzf: liblzf as h5py registers it.
"""

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, PackerError
from packer.files.hdf5_storage import H5_ERRORS, is_hard_link, lies_elsewhere, open_read_only
from packer.sources._arrays.array_source import LeftOut, is_known_dtype
from packer.sources._arrays.stored_array import (
    BlockedArray,
    Kept,
    PlainArray,
    StoredArray,
    TextArray,
)
from packer.sources._parse.folder_listing import shown
from packer.sources.base import Extent
from packer.sources.records._random_access_files import RecordFiles

_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
_HEAP = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")
_LEAST_HEAP_BYTES = 4096
_HEAPS = 64  # whose tables of contents are kept
_MOST_ARRAYS = 10_000
_MOST_BLOCKS = 1 << 23  # of the arrays of one file together
_MOST_DEPTH = 32
_MOST_NAME_BYTES = 1000
_MOST_LENGTHS = 8
_MOST_LINKS = 100  # that are named
_MOST_REFERENCES = 1 << 26
_ADDRESS_BYTES = (8, 8)  # of the addresses and sizes in a file
_PRIME = 65535
_KNOWN = {4: "szip", 5: "nbit", 6: "scaleoffset", 307: "bzip2", 32001: "blosc", 32004: "lz4", 32008: "bitshuffle"}
_KNOWN |= {32013: "zfp", 32015: "zstd", 32026: "blosc2"}


def arrays(files: RecordFiles, number: int) -> tuple[list[StoredArray], list[LeftOut]]:
    """The arrays of one file, and those that are not read; raises BadInput."""
    opened = files.open(number)
    try:
        with open_read_only(Path(f"/dev/fd/{opened.descriptor}")) as file:
            return _Listing(files, number, file.id.get_create_plist().get_sizes()).read(file.id)
    except PackerError:
        raise
    except (*H5_ERRORS, OSError) as error:
        reason = shown(" ".join(str(error).split())[:200])
        raise BadInput(f"{opened.path}: is damaged, or no HDF5 file: {reason}; get the file again") from error


class _UnreadArray(Exception):
    """An array that is not read, and why."""


class _Listing:
    """The arrays of one file while h5py has it open."""

    def __init__(self, files: RecordFiles, number: int, sizes: tuple[int, int]) -> None:
        """sizes: bytes of an address and of a size in this file."""
        self._files, self._number, self._sizes = files, number, sizes
        self._blocks = 0

    def read(self, root: Any) -> tuple[list[StoredArray], list[LeftOut]]:
        """As `arrays`."""
        name = self._files.files[self._number].name
        found: list[StoredArray] = []
        links: list[LeftOut] = []
        unread: list[LeftOut] = []
        for path, dataset in _walk(root):
            if dataset is None:
                links.append(LeftOut(f"{name}/{path}", "is a link"))
                continue
            try:
                found.append(self._array(dataset, *f"{name}/{path}".rsplit("/", 1)))
            except _UnreadArray as error:
                unread.append(LeftOut(f"{name}/{path}", str(error)))
        return found, links[:_MOST_LINKS] + unread

    def _array(self, dataset: Any, container: str, name: str) -> StoredArray:
        space = dataset.get_space()
        shape = space.get_simple_extent_dims() if space.get_simple_extent_type() == h5py.h5s.SIMPLE else ()
        if not shape or not all(shape):
            raise _UnreadArray("is no array, or an empty one")
        kind, dtype = _dtype(dataset.get_type())
        if len(shape) > _MOST_LENGTHS or (kind != "text" and not is_known_dtype(dtype)):
            raise _UnreadArray(f"is {dtype} {shape}, which no field can hold")
        is_reference = kind.startswith("ragged")
        if is_reference and (len(shape) > 1 or self._sizes != _ADDRESS_BYTES or shape[0] > _MOST_REFERENCES):
            raise _UnreadArray("is of variable length in several dimensions, or in a file with short addresses")
        if kind == "text" and len(shape) > 1:
            raise _UnreadArray("is an array of several texts per row")
        stored = self._stored(dataset, container, name, _REFERENCE if is_reference else dtype, shape)
        if kind == "text":
            return TextArray(stored)
        if is_reference:
            return RaggedArray(
                stored, files=self._files, number=self._number, dtype=dtype, is_text=kind == "ragged text"
            )
        if isinstance(dataset.get_type(), h5py.h5t.TypeEnumID):
            names = h5py.check_enum_dtype(np.dtype(dataset.get_type().dtype)) or {}  # none where it is a bool
            stored.value_names = tuple((name, int(value)) for name, value in names.items())
        return stored

    def _stored(
        self, dataset: Any, container: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> StoredArray:
        """The array as its bytes lie; raises _UnreadArray, and BadInput where they are not in the file."""
        options = dataset.get_create_plist()
        if lies_elsewhere(options):
            raise _UnreadArray("its bytes lie in other files, which are not followed")
        filters = tuple(_filter(options.get_filter(number)[0]) for number in range(options.get_nfilters()))
        if options.get_layout() == h5py.h5d.CONTIGUOUS and not filters:
            offset = dataset.get_offset()
            if offset is None:
                raise _UnreadArray("was never written")
            size, there = math.prod(shape) * dtype.itemsize, dataset.get_storage_size()
            # HDF5 gives zeros behind the array's end, and the file has other bytes there
            if there != size and dtype != _REFERENCE:
                raise _UnreadArray(f"is damaged: {size} bytes by its shape, {there} by its layout")
            return PlainArray(
                container, name, files=self._files, number=self._number, offset=offset, dtype=dtype, shape=shape
            )
        if options.get_layout() != h5py.h5d.CHUNKED:
            raise _UnreadArray("lies in the header of the file (compact); write it as an ordinary array")
        block = options.get_chunk()
        table = self._table(dataset, shape, block)
        if (table[:, 1] == 0).any() and not _fills_with_zeros(options, dataset):
            raise _UnreadArray("blocks were never written, and are filled with another value than 0")
        return ChunkedArray(
            container, name, files=self._files, number=self._number, dtype=dtype, shape=shape, block=block,
            table=table, filters=filters,
        )  # fmt: skip

    def _table(self, dataset: Any, shape: tuple[int, ...], block: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Offset, size (0: never written) and mask of the filters left out, of each block in the order of the grid."""
        grid = [-(-length // step) for length, step in zip(shape, block, strict=True)]
        self._blocks += math.prod(grid)
        if self._blocks > _MOST_BLOCKS:
            raise _UnreadArray(f"the file has more than {_MOST_BLOCKS} blocks; write it in larger ones")
        table = np.zeros((math.prod(grid), 3), np.int64)
        faults: list[str] = []

        def note(info: Any) -> None:
            if not info.size:
                faults.append(f"a block of no bytes at {info.chunk_offset}")
                return
            place = 0
            for at, step, length in zip(info.chunk_offset, block, grid, strict=True):
                if at // step >= length:
                    return  # behind the edge, as an array that was made smaller has some
                place = place * length + at // step
            if table[place, 1]:
                faults.append(f"two blocks at {info.chunk_offset}")
            table[place] = info.byte_offset, info.size, info.filter_mask

        dataset.chunk_iter(note)
        if faults:
            raise ValueError(f"the index of an array's blocks has {faults[0]}")
        return table


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Path and data set of each array, by names in order, once however many names it has; None for a link."""
    seen: set[Any] = set()
    pending = [(root, "", 0)]
    count = 0
    while pending:
        group, prefix, depth = pending.pop()
        inner = []
        for name in sorted(group):
            count += 1
            if count > _MOST_ARRAYS:
                raise ValueError(f"more than {_MOST_ARRAYS} names")
            if len(name) > _MOST_NAME_BYTES or depth > _MOST_DEPTH:
                raise ValueError("names that are longer or deeper than any of a data set")
            path = prefix + name.decode("utf-8", "backslashreplace")
            if not is_hard_link(group, name):
                yield path, None
                continue
            info = h5py.h5o.get_info(group, name)
            if (info.fileno, info.addr) in seen:
                continue
            seen.add((info.fileno, info.addr))
            child = h5py.h5o.open(group, name)
            if info.type == h5py.h5o.TYPE_GROUP:
                inner.append((child, f"{path}/", depth + 1))
            elif info.type == h5py.h5o.TYPE_DATASET:
                yield path, child
        pending.extend(reversed(inner))


def _dtype(kind: Any) -> tuple[str, np.dtype[Any]]:
    """Whether values are `numbers`, `text`, `ragged` or `ragged text`, and their dtype; raises _UnreadArray."""
    if isinstance(kind, h5py.h5t.TypeStringID):
        if kind.is_variable_str():
            return "ragged text", np.dtype(np.uint8)
        return "text", np.dtype(f"S{kind.get_size()}")
    if isinstance(kind, h5py.h5t.TypeVlenID):
        inner, dtype = _dtype(kind.get_super())
        if inner != "numbers":
            raise _UnreadArray("holds lists of what is no number")
        return "ragged", np.dtype(np.uint8) if dtype == np.int8 else dtype
    if isinstance(kind, h5py.h5t.TypeEnumID):
        return "numbers", np.dtype(np.dtype(kind.dtype).str)
    if isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        dtype = np.dtype(kind.dtype)
        if h5py.h5t.py_create(dtype).equal(kind):
            return "numbers", dtype
    raise _UnreadArray("holds what is neither numbers nor texts")


def _filter(number: int) -> "_Undo":
    if number not in _UNDO:
        name = _KNOWN.get(number, f"filter {number}")
        raise _UnreadArray(f"is compressed with {name}; packer reads gzip and lzf: h5repack -f GZIP=4 writes it so")
    return _UNDO[number]


def _fills_with_zeros(options: Any, dataset: Any) -> bool:
    if options.fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        return True
    value = np.zeros((), dataset.dtype)
    if value.dtype.hasobject:
        return False
    options.get_fill_value(value)
    return not any(value.tobytes())


# ---- chunks


class ChunkedArray(BlockedArray):
    """Chunks of one size, each through the same filters; those at the edge are whole."""

    def __init__(
        self,
        container: str,
        name: str,
        *,
        files: RecordFiles,
        number: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        block: tuple[int, ...],
        table: npt.NDArray[np.int64],
        filters: "tuple[_Undo, ...]",
    ) -> None:
        """table: offset, size and filter mask of each block. Raises BadInput where they do not lie in the file."""
        super().__init__(container, name, dtype=dtype, shape=shape, block=block)
        self._files, self._number, self._filters = files, number, filters
        self._table = table
        offsets, sizes = table[:, 0], table[:, 1]
        limit = files.files[number].size
        self._bytes = int(np.prod(block, dtype=object)) * dtype.itemsize
        is_outside = (sizes < 0) | (offsets < 0) | (offsets > limit) | (sizes > limit) | (offsets + sizes > limit)
        if is_outside.any() or int(sizes.sum()) > limit or len(table) != int(np.prod(self.grid, dtype=object)):
            raise BadInput(f"{files.path(number)}: {self.path}: its chunks do not fit in the file; get the file again")
        self._count_missing(files.path(number), there=int((sizes > 0).sum()))

    def _block(self, place: tuple[int, ...]) -> npt.NDArray[Any] | None:
        at = 0
        for coordinate, length in zip(place, self.grid, strict=True):
            at = at * length + coordinate
        offset, size, mask = (int(value) for value in self._table[at])
        if not size:
            return None
        data = self._files.read(self._number, offset, size)
        try:
            for number in reversed(range(len(self._filters))):
                if not mask >> number & 1:
                    data = self._filters[number](data, self._bytes, self.dtype.itemsize)
        except (ValueError, zlib.error) as error:
            raise BadInput(f"chunk {place} at byte {offset} is damaged: {error}; get the file again") from error
        if len(data) != self._bytes:
            raise BadInput(f"chunk {place} at byte {offset} has {len(data)} bytes, expected {self._bytes}")
        return np.frombuffer(data, self.dtype).reshape(self.block)

    def extent(self, index: int) -> Extent:
        size = self.row_bytes
        return Extent(self._files.files[self._number].name, index * size, size)

    def forget(self) -> None:
        super().forget()
        self._files.forget()


def _inflate(data: bytes, expected: int, itemsize: int) -> bytes:
    decoder = zlib.decompressobj()
    out: bytes = decoder.decompress(data, expected + 8)  # a checksum may stand behind the values
    if not decoder.eof:
        raise ValueError("its deflate data do not end where they should")
    return out


def _unshuffle(data: bytes, expected: int, itemsize: int) -> bytes:
    count = len(data) // itemsize
    planes = np.frombuffer(data, np.uint8, count * itemsize).reshape(itemsize, count)
    return bytes(planes.T.tobytes()) + data[count * itemsize :]


def _checked(data: bytes, expected: int, itemsize: int) -> bytes:
    """Without the checksum at the end; raises ValueError for another one. Fletcher's, of 16 bit words."""
    if len(data) < 4:
        raise ValueError("it has no checksum")
    body, stored = data[:-4], struct.unpack("<I", data[-4:])[0]
    words = np.frombuffer(body + bytes(len(body) % 2), ">u2").astype(np.uint64)
    weights = np.arange(len(words), 0, -1, dtype=np.uint64) % _PRIME
    sums = int(words.sum()) % _PRIME, int((words * weights % _PRIME).sum()) % _PRIME
    swapped = struct.unpack(">I", data[-4:])[0]  # as HDF5 before 1.6.3 wrote it
    if not any(
        (value & 0xFFFF) % _PRIME == sums[0] and (value >> 16) % _PRIME == sums[1] for value in (stored, swapped)
    ):
        raise ValueError(f"checksum {sums[1]:04x}{sums[0]:04x}, the file says {stored:08x}")
    return body


def undo_lzf(data: bytes, expected: int, itemsize: int) -> bytes:
    """What lzf compressed to these bytes; raises ValueError for more than `expected`, and for what is none."""
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            control = data[at]
            at += 1
            if control < 32:  # so many bytes and one as they are
                if at + control >= end:
                    raise ValueError("its lzf data are cut")
                out += data[at : at + control + 1]
                at += control + 1
            else:
                length = control >> 5
                if length == 7:
                    length += data[at]
                    at += 1
                back = ((control & 31) << 8 | data[at]) + 1
                at += 1
                start = len(out) - back
                if start < 0:
                    raise ValueError("its lzf data refer to what is before them")
                piece = out[start : start + length + 2]
                out += (piece * ((length + 2) // len(piece) + 1))[: length + 2]
            if len(out) > expected + 8:
                raise ValueError(f"its lzf data have more than {expected} bytes")
    except IndexError as error:
        raise ValueError("its lzf data are cut") from error
    return bytes(out)


_Undo = Callable[[bytes, int, int], bytes]
_UNDO: dict[int, _Undo] = {1: _inflate, 2: _unshuffle, 3: _checked, 32000: undo_lzf}


# ---- variable length


class RaggedArray(StoredArray):
    """Values of any length, in the global heaps of a file: bytes, numbers or texts."""

    def __init__(
        self, references: StoredArray, *, files: RecordFiles, number: int, dtype: np.dtype[Any], is_text: bool
    ) -> None:
        """Raises BadInput where the values have more bytes together than the file."""
        self.container, self.name, self.shape, self.dtype = (
            references.container,
            references.name,
            references.shape,
            dtype,
        )
        self._files, self._number, self._is_text = files, number, is_text
        self._heaps: Kept[dict[int, tuple[int, int]]] = Kept(_HEAPS)
        self._references = np.array([references.row(index) for index in range(self.shape[0])], _REFERENCE)
        references.forget()
        total = int(self._references["length"].sum(dtype=np.uint64)) * dtype.itemsize
        if total > files.files[number].size:
            raise BadInput(
                f"{files.path(number)}: {self.path} is damaged: its values have {total} bytes together, the file "
                f"{files.files[number].size}"
            )

    @property
    def is_text(self) -> bool:
        return self._is_text

    @property
    def is_ragged(self) -> bool:
        return not self._is_text

    @property
    def row_bytes(self) -> int:
        return _REFERENCE.itemsize

    def row(self, index: int) -> Any:
        at = self._span(index)
        data = self._files.read(self._number, at.offset, at.size) if at.size else b""
        if self._is_text:
            try:
                return data.rstrip(b"\0").decode("utf-8")
            except ValueError as error:
                raise BadInput(f"{self.path}: row {index} is no text: {error}") from error
        if self.dtype.name == "uint8":
            return data
        return np.frombuffer(data, self.dtype).astype(self.dtype.newbyteorder("="), copy=False)

    def extent(self, index: int) -> Extent:
        size = int(self._references["length"][index]) * self.dtype.itemsize
        try:
            return self._span(index)
        except BadInput:
            return Extent(self._files.files[self._number].name, 0, size)  # whoever reads it is told

    def files(self, index: int) -> tuple[str, ...]:
        return self.all_files()

    def all_files(self) -> tuple[str, ...]:
        return (self._files.files[self._number].name,)

    def _span(self, index: int) -> Extent:
        """Where the value lies; raises BadInput where no heap has it."""
        length, address, number = (int(self._references[name][index]) for name in ("length", "address", "index"))
        name = self._files.files[self._number].name
        size = length * self.dtype.itemsize
        if not size:
            return Extent(name, 0, 0)
        found = self._heaps.get(address, lambda: self._heap(address)).get(number)
        if found is None or found[1] < size:
            raise BadInput(f"{self.path}: row {index}: no value of {size} bytes in the heap at byte {address}; damaged")
        return Extent(name, found[0], size)

    def _heap(self, address: int) -> dict[int, tuple[int, int]]:
        """Number -> place and size of each object of a global heap; raises BadInput."""
        limit = self._files.files[self._number].size
        if not 0 <= address <= limit - _HEAP.size:
            raise BadInput(f"{self.path}: a heap at byte {address}, the file has {limit}; damaged")
        magic, version, size = _HEAP.unpack(self._files.read(self._number, address, _HEAP.size))
        if magic != b"GCOL" or version != 1 or not _LEAST_HEAP_BYTES <= size <= limit - address:
            raise BadInput(f"{self.path}: no heap begins at byte {address}; damaged")
        found = {}
        at, end = address + _HEAP.size, address + size
        while at + _OBJECT.size <= end:
            number, _, length = _OBJECT.unpack(self._files.read(self._number, at, _OBJECT.size))
            at += _OBJECT.size
            if number == 0:  # what is free, up to the end
                break
            if length > end - at:
                raise BadInput(f"{self.path}: an object of {length} bytes at byte {at} of a heap; damaged")
            found[number] = (at, length)
            at += -(-length // 8) * 8
        return found

    def forget(self) -> None:
        self._heaps.forget()
        self._files.forget()
