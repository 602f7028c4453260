"""HDF5 arrays: h5py lists the arrays of a file and the positions of their bytes, and packer reads the bytes.

| storage of an array    | reading                                                                              |
|------------------------|--------------------------------------------------------------------------------------|
| contiguous             | one pread(2) per row                                                                 |
| in chunks              | all chunks of some rows together; packer decodes deflate, lzf, shuffle, fletcher32   |
| of variable length     | references of 16 bytes: uint32 length, uint64 address, uint32 index in a global heap |

packer reads the bytes itself, because HDF5 inflates chunks without a size limit and can hang on a damaged heap. packer
compares each position with the file size, and each size with the shape of the array. HDF5 File Format Specification
3.0 defines the global heap (III.E) and the filters (VI.A). The layout of lzf is that of liblzf in h5py.
"""

import math
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, PackerError
from packer.files.hdf5_safety import H5_ERRORS, is_hard_link, lies_elsewhere, open_read_only
from packer.sources._message_texts import shown
from packer.sources.arrays._stored_array import ArrayForm, BlockedArray, Kept, SpanArray, StoredArray, Unread
from packer.sources.base import Extent
from packer.sources.records._random_access_files import RecordFiles

_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
_HEAP = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")
_LEAST_HEAP_BYTES = 4096
_HEAPS = 64  # number of cached heap tables
_MOST_NAMES = 10_000
_MOST_NAME_BYTES = 1000
_MOST_DEPTH = 32
_MOST_REFERENCES = 1 << 26
_ADDRESS_BYTES = (8, 8)  # of an address and of a size in a file
_PRIME = 65535


def arrays(files: RecordFiles, number: int) -> Iterator[StoredArray | Unread]:
    """Yield the arrays of the file at position `number` in `files`. Raise BadInput if the file is damaged."""
    file = files.open(number)
    try:
        with open_read_only(Path(f"/dev/fd/{file.descriptor}")) as opened:
            has_long_addresses = opened.id.get_create_plist().get_sizes() == _ADDRESS_BYTES
            for name, dataset in _walk(opened.id):
                path = f"{file.name}/{name}"
                if dataset is None:
                    yield Unread(path, "is a link")
                    continue
                try:
                    yield _array(dataset, path, files, number, has_long_addresses=has_long_addresses)
                except _UnreadArray as error:
                    yield Unread(path, str(error))
    except PackerError:
        raise
    except (*H5_ERRORS, OSError) as error:
        reason = shown(" ".join(str(error).split())[:200])
        raise BadInput(f"{file.path}: is damaged, or not an HDF5 file: {reason}; get the file again") from error


class _UnreadArray(Exception):
    """An array that packer cannot read, with the reason."""


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path, data set) once for each array, or (path, None) for a link. The names of a group are sorted."""
    seen: set[Any] = set()
    pending = [(root, "", 0)]
    count = 0
    while pending:
        group, prefix, depth = pending.pop()
        inner = []
        for name in sorted(group):
            count += 1
            if count > _MOST_NAMES or len(name) > _MOST_NAME_BYTES or depth > _MOST_DEPTH:
                raise ValueError("names that are more, longer or deeper than those of a data set")
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


def _array(dataset: Any, path: str, files: RecordFiles, number: int, *, has_long_addresses: bool) -> StoredArray:
    """Return the array of an HDF5 data set. `has_long_addresses` is true if addresses in the file have 8 bytes."""
    space, kind = dataset.get_space(), dataset.get_type()
    shape = space.get_simple_extent_dims() if space.get_simple_extent_type() == h5py.h5s.SIMPLE else ()
    if not shape or not all(shape):
        raise _UnreadArray("is not an array, or an empty one")
    dtype = _dtype(kind)
    if dtype is not None:
        stored = _stored(dataset, ArrayForm(path, files, number, dtype, shape))
        if isinstance(kind, h5py.h5t.TypeEnumID):
            names = h5py.check_enum_dtype(np.dtype(kind.dtype)) or {}  # empty for bool
            stored.value_names = dict(sorted((int(value), name) for name, value in names.items()))
        return stored
    is_text = isinstance(kind, h5py.h5t.TypeStringID)
    value = np.dtype(np.uint8) if is_text else _dtype(kind.get_super())
    if value is None or value.kind == "S":
        raise _UnreadArray("contains lists of other values than numbers")
    if len(shape) > 1 or not has_long_addresses or shape[0] > _MOST_REFERENCES:
        raise _UnreadArray("is of variable length in several dimensions, or in a file with short addresses")
    references = _stored(dataset, ArrayForm(path, files, number, _REFERENCE, shape))
    value = np.dtype(np.uint8) if value == np.int8 else value
    return RaggedArray(references, ArrayForm(path, files, number, value, shape), is_text=is_text)


def _dtype(kind: Any) -> np.dtype[Any] | None:
    """Return the dtype of numbers or texts of fixed length, or None for values of variable length."""
    if isinstance(kind, h5py.h5t.TypeVlenID) or (isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str()):
        return None
    is_enum = isinstance(kind, h5py.h5t.TypeEnumID)
    if is_enum or isinstance(kind, h5py.h5t.TypeStringID | h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        dtype: np.dtype[Any] = np.dtype(np.dtype(kind.dtype).str)
        if is_enum or h5py.h5t.py_create(dtype).equal(kind) or dtype.kind == "S":
            return dtype
    raise _UnreadArray("contains neither numbers nor texts")


def _stored(dataset: Any, form: ArrayForm) -> StoredArray:
    """Return an array whose rows all have the same size."""
    options = dataset.get_create_plist()
    if lies_elsewhere(options):
        raise _UnreadArray("its bytes are in other files, which are not followed")
    filters = [options.get_filter(number) for number in range(options.get_nfilters())]
    unknown = [
        f"filter {number} ({shown(name.decode(errors='replace'))})"
        for number, *_, name in filters
        if number not in _UNDO
    ]
    if unknown:
        raise _UnreadArray(
            f"is compressed with {unknown[0]}; packer reads gzip and lzf: h5repack -f GZIP=4 writes it so"
        )
    if options.get_layout() == h5py.h5d.CONTIGUOUS and not filters:
        offset = dataset.get_offset()
        if offset is None:
            raise _UnreadArray("was never written")
        size, present = math.prod(form.shape) * form.dtype.itemsize, dataset.get_storage_size()
        # beyond the end of the array, HDF5 returns zeros, but the file contains other bytes
        if present != size and form.dtype != _REFERENCE:
            raise _UnreadArray(f"is damaged: {size} bytes by its shape, {present} by its layout")
        return SpanArray(form._replace(offset=offset))
    if options.get_layout() != h5py.h5d.CHUNKED:
        raise _UnreadArray("is in the header of the file (compact); write it as an ordinary array")
    stored = ChunkedArray(form, dataset, block=options.get_chunk(), filters=[_UNDO[number] for number, *_ in filters])
    if stored.missing_blocks and not _fills_with_zeros(options, dataset):
        raise _UnreadArray("blocks were never written, and are filled with another value than 0")
    return stored


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
    """An array that is stored in chunks of equal shape and filters. A chunk at the edge also has the full shape."""

    def __init__(self, form: ArrayForm, dataset: Any, *, block: tuple[int, ...], filters: "Sequence[_Undo]") -> None:
        """List the chunks of shape `block`. Raise BadInput for chunks beyond the file, ValueError for a wrong index."""
        grid = [-(-length // step) for length, step in zip(form.shape, block, strict=True)]
        numbers = array("q")

        def append(info: Any) -> None:
            places = [at // step for at, step in zip(info.chunk_offset, block, strict=True)]
            if all(map(int.__lt__, places, grid)):  # a shrunken array has chunks outside its shape
                numbers.extend((_flat(places, grid), info.byte_offset, info.size, info.filter_mask))

        dataset.chunk_iter(append)
        table = np.array(numbers).reshape(-1, 4)
        table = table[np.argsort(table[:, 0])]
        self._places, self._table = table[:, 0].copy(), table[:, 1:].copy()
        offsets, sizes = self._table[:, 0], self._table[:, 1]
        if (np.diff(self._places) == 0).any() or not sizes.all():
            raise ValueError("the index of an array has two blocks at one place, or a block of no bytes")
        super().__init__(form, block=block, present=len(table))
        self._filters = filters
        self._bytes = math.prod(block) * self.dtype.itemsize
        limit = form.files.files[form.number].size
        if (offsets < 0).any() or (sizes > limit).any() or (offsets > limit - sizes).any() or sizes.sum() > limit:
            raise BadInput(f"{form.files.path(form.number)}: {self.path}: its chunks do not fit in the file")

    def _block(self, place: tuple[int, ...]) -> npt.NDArray[Any] | None:
        flat = _flat(place, self.grid)
        at = int(np.searchsorted(self._places, flat))
        if at == len(self._places) or self._places[at] != flat:
            return None
        offset, size, mask = map(int, self._table[at])
        data = self._files.read(self._number, offset, size)
        try:
            for number in reversed(range(len(self._filters))):
                if not mask >> number & 1:
                    data = self._filters[number](data, self._bytes, self.dtype.itemsize)
            if len(data) != self._bytes:
                raise ValueError(f"{len(data)} bytes, expected {self._bytes}")
        except (ValueError, zlib.error) as error:
            raise BadInput(f"chunk {place} at byte {offset} is damaged: {error}; get the file again") from error
        return np.frombuffer(data, self.dtype).reshape(self.block)


def _flat(place: Sequence[int], grid: Sequence[int]) -> int:
    number = 0
    for at, length in zip(place, grid, strict=True):
        number = number * length + at
    return number


def _inflate(data: bytes, expected: int, itemsize: int) -> bytes:
    decoder = zlib.decompressobj()
    out: bytes = decoder.decompress(data, expected + 8)  # a checksum may follow the values
    if not decoder.eof:
        raise ValueError("its deflate data do not end where they should")
    return out


def _unshuffle(data: bytes, expected: int, itemsize: int) -> bytes:
    count = len(data) // itemsize
    planes = np.frombuffer(data, np.uint8, count * itemsize).reshape(itemsize, count)
    return bytes(planes.T.tobytes()) + data[count * itemsize :]


def _checked(data: bytes, expected: int, itemsize: int) -> bytes:
    """Check and remove the Fletcher-32 checksum at the end of `data`. Raise ValueError if the checksum is wrong."""
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
        raise ValueError(f"checksum {sums[1]:04x}{sums[0]:04x}, expected {stored:08x}")
    return body


def undo_lzf(data: bytes, expected: int, itemsize: int) -> bytes:
    """Decompress lzf. Raise ValueError for damaged data, or for more than `expected` decompressed bytes."""
    out, at = bytearray(), 0
    try:
        while at < len(data) and len(out) <= expected + 8:
            control = data[at]
            at += 1
            if control < 32:  # control + 1 literal bytes
                if at + control >= len(data):
                    raise ValueError("its lzf data are cut")
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            start = len(out) - ((control & 31) << 8 | data[at]) - 1
            at += 1
            if start < 0:
                raise ValueError("its lzf data refer to bytes before them")
            piece = out[start : start + length + 2]
            out += (piece * ((length + 2) // len(piece) + 1))[: length + 2]
    except IndexError as error:
        raise ValueError("its lzf data are cut") from error
    if len(out) > expected + 8:
        raise ValueError(f"its lzf data have more than {expected} bytes")
    return bytes(out)


_Undo = Callable[[bytes, int, int], bytes]
_UNDO: dict[int, _Undo] = {1: _inflate, 2: _unshuffle, 3: _checked, 32000: undo_lzf}


# ---- variable length


class RaggedArray(StoredArray):
    """Rows of any length, stored in the global heaps of an HDF5 file. Each row is bytes, numbers or a text."""

    def __init__(self, references: StoredArray, form: ArrayForm, *, is_text: bool) -> None:
        """Read all references. Raise BadInput if the values together are larger than the file."""
        super().__init__(form)
        self.is_text, self.is_ragged = is_text, not is_text
        self._heaps: Kept[dict[int, tuple[int, int]]] = Kept(_HEAPS)
        self._references = np.array([references.row(index) for index in range(self.shape[0])], _REFERENCE)
        references.forget()
        total = int(self._references["length"].sum(dtype=np.uint64)) * self.dtype.itemsize
        if total > self._files.files[self._number].size:
            raise BadInput(
                f"{self._files.path(self._number)}: {self.path} is damaged: its values have {total} bytes together, "
                f"the file {self._files.files[self._number].size}"
            )

    def read(self, first: int, count: int) -> npt.NDArray[Any]:
        return self._references[first : first + count]

    def row(self, index: int) -> Any:
        at = self._span(index)
        data = self._files.read(self._number, at.offset, at.size) if at.size else b""
        if self.is_text:
            return self._text(index, data)
        if self.dtype.name == "uint8":
            return data
        return np.frombuffer(data, self.dtype).astype(self.dtype.newbyteorder("="), copy=False)

    def extent(self, index: int) -> Extent:
        try:
            return self._span(index)
        except BadInput:  # reading the row raises the error
            return Extent(self.files()[0], 0, int(self._references["length"][index]) * self.dtype.itemsize)

    def _span(self, index: int) -> Extent:
        length, address, number = (int(self._references[name][index]) for name in ("length", "address", "index"))
        size = length * self.dtype.itemsize
        if not size:
            return Extent(self.files()[0], 0, 0)
        found = self._heaps.get(address, lambda: self._heap(address)).get(number)
        if found is None or found[1] < size:
            raise BadInput(f"{self.path}: row {index}: no value of {size} bytes in the heap at byte {address}; damaged")
        return Extent(self.files()[0], found[0], size)

    def _heap(self, address: int) -> dict[int, tuple[int, int]]:
        """Return object number -> (position, size) for the global heap at byte `address`."""
        limit = self._files.files[self._number].size
        magic, version, size = b"", 0, 0
        if 0 <= address <= limit - _HEAP.size:
            magic, version, size = _HEAP.unpack(self._files.read(self._number, address, _HEAP.size))
        if magic != b"GCOL" or version != 1 or not _LEAST_HEAP_BYTES <= size <= limit - address:
            raise BadInput(f"{self.path}: no heap begins at byte {address}; damaged")
        found = {}
        at, end = address + _HEAP.size, address + size
        while at + _OBJECT.size <= end:
            number, _, length = _OBJECT.unpack(self._files.read(self._number, at, _OBJECT.size))
            at += _OBJECT.size
            if number == 0:  # free space, up to the end
                break
            if length > end - at:
                raise BadInput(f"{self.path}: an object of {length} bytes at byte {at} of a heap; damaged")
            found[number] = (at, length)
            at += -(-length // 8) * 8
        return found

    def forget(self) -> None:
        self._heaps.forget()
        super().forget()
