"""HDF5 arrays: those that the listing of an HDF5 file names, read without HDF5's library.

| how an array is stored | how it is read                                                                       |
|------------------------|--------------------------------------------------------------------------------------|
| contiguous             | one pread(2) per row                                                                 |
| in chunks              | those of some rows at once; deflate, lzf, shuffle and fletcher32 undone here         |
| of variable length     | references of 16 bytes: uint32 length, uint64 address, uint32 index in a global heap |

So that neither the library's lock nor its state is in the way of threads and forks. Every place that the listing or the
file names is checked against the file, every size against what the array's shape leaves. Layouts: HDF5 File Format
Specification 3.0, III.E (global heap), VI.A (filters); lzf: liblzf as h5py registers it.
"""

import json
import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.files.npy_arrays import dtype_of
from packer.sources._arrays.array_source import LeftOut, is_known_dtype
from packer.sources._arrays.stored_array import (
    BlockedArray,
    Kept,
    PlainArray,
    StoredArray,
    TextArray,
)
from packer.sources._parse.folder_listing import shown
from packer.sources._records.random_access_files import RecordFiles
from packer.sources.base import Extent

if TYPE_CHECKING:
    from packer.system.isolated_program import IsolatedProgram

_LISTING = "packer.sources._arrays.hdf5_listing"
_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
_HEAP = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")
_LEAST_HEAP_BYTES = 4096
_HEAPS = 64  # whose tables of contents are kept
_MOST_LENGTHS = 8
_MOST_REFERENCES = 1 << 26
_ADDRESS_BYTES = (8, 8)  # of the addresses and sizes in a file
_PRIME = 65535


def listing_program() -> "IsolatedProgram":
    """What lists one file after the other; a context manager."""
    from packer.system.isolated_program import IsolatedProgram  # subprocess and sockets, only where there is HDF5

    return IsolatedProgram(_LISTING)


def arrays(files: RecordFiles, number: int, *, program: "IsolatedProgram") -> tuple[list[StoredArray], list[LeftOut]]:
    """The arrays of one file, and those that are not read; raises BadInput."""
    from packer.system.isolated_program import ProgramEnded  # as above

    file = files.open(number)
    try:
        answer = program.ask(file.descriptor)
    except ProgramEnded as error:
        raise BadInput(f"{file.path}: HDF5 does not read it: {shown(str(error))}; get the file again") from error
    return listed_arrays(files, number, answer)


def listed_arrays(files: RecordFiles, number: int, answer: bytes) -> tuple[list[StoredArray], list[LeftOut]]:
    """As `arrays`, of what the listing program answered."""
    path = files.path(number)
    name = files.files[number].name
    head, _, tables = answer.partition(b"\n")
    try:
        listing = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: HDF5 does not read it: {shown(str(error))}; get the file again") from error
    if "error" in listing:
        raise BadInput(f"{path}: is damaged, or no HDF5 file: {shown(listing['error'])}; get the file again")
    found: list[StoredArray] = []
    left = [LeftOut(f"{name}/{link}", "is a link") for link in listing["links"]]
    at = 0
    for one in listing["arrays"]:
        container, _, last = one["path"].rpartition("/")
        place = f"{name}/{container}" if container else name
        table = None
        if "blocks" in one:
            size = one["blocks"] * 24
            table = np.frombuffer(tables[at : at + size], "<i8").reshape(-1, 3)
            at += size
        try:
            found.append(_array(files, number, place, last, one, table=table, sizes=tuple(listing["sizes"])))
        except _UnreadArray as error:
            left.append(LeftOut(f"{name}/{one['path']}", str(error)))
    return found, left


class _UnreadArray(Exception):
    """An array that is not read, and why."""


def _array(
    files: RecordFiles,
    number: int,
    container: str,
    name: str,
    said: dict[str, Any],
    *,
    table: npt.NDArray[np.int64] | None,
    sizes: tuple[int, ...],
) -> StoredArray:
    if "refused" in said:
        raise _UnreadArray(said["refused"])
    kind, shape = said["kind"], tuple(said["shape"])
    is_reference = kind.startswith("ragged")
    inner = dtype_of(said["dtype"])
    dtype = _REFERENCE if is_reference else inner
    if len(shape) > _MOST_LENGTHS or (kind != "text" and not is_known_dtype(inner)):
        raise _UnreadArray(f"is {inner} {shape}, which no field can hold")
    stored: StoredArray
    if table is not None:
        block = tuple(said["block"])
        stored = ChunkedArray(
            container, name, files=files, number=number, dtype=dtype, shape=shape, block=block, table=table,
            filters=tuple(said["filters"]),
        )  # fmt: skip
    else:
        stored = PlainArray(
            container, name, files=files, number=number, offset=said["offset"], dtype=dtype, shape=shape
        )
    if kind == "text":
        if len(shape) > 1:
            raise _UnreadArray("is an array of several texts per row")
        return TextArray(stored)
    if not is_reference:
        stored.value_names = tuple((str(name), int(value)) for name, value in said.get("names", {}).items())
        return stored
    if len(shape) > 1 or sizes != _ADDRESS_BYTES or shape[0] > _MOST_REFERENCES:
        raise _UnreadArray("is of variable length in several dimensions, or in a file with short addresses")
    return RaggedArray(stored, files=files, number=number, dtype=inner, is_text=kind == "ragged text")


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
        filters: tuple[str, ...],
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
                    data = _UNDO[self._filters[number]](data, self._bytes, self.dtype.itemsize)
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


_UNDO: dict[str, Callable[[bytes, int, int], bytes]] = {
    "deflate": _inflate,
    "shuffle": _unshuffle,
    "fletcher32": _checked,
    "lzf": undo_lzf,
}


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
