"""HDF5: one .h5 file per part with plain arrays, which any HDF5 library reads.

Layout of `part-00000.h5` (oldest file format that fits; contiguous, no filters, no time stamps):

| name                | content                                                                                       |
|---------------------|-----------------------------------------------------------------------------------------------|
| `/<field>`          | little-endian [n, *shape], for fields whose encoded values all have one size                  |
| `/<field>/data`     | uint8, the encoded values end to end, for every other field                                   |
| `/<field>/offsets`  | int64 little-endian [n + 1]: value i is data[offsets[i]:offsets[i + 1]]                       |
| attribute `packer`  | of the root: fixed-length string, JSON {"fields": [names in order], "samples": n};            |
|                     | written last                                                                                  |

bool has the HDF5 type that h5py uses for it, an enumeration of int8.

h5py lays out the file and finds the arrays. This module writes their bytes, and reads them from a mapping of the file.
So HDF5's global lock does not delay other threads. Arrays behind links, with filters or in external files are refused.
"""

import os
from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from packer.errors import CorruptPack, PackerError, StorageError
from packer.files.hdf5_safety import H5_ERRORS, is_hard_link, is_one_piece, open_read_only
from packer.formats._column_part import (
    MOST_END_BYTES,
    Array,
    ArraySpan,
    ColumnReader,
    ColumnWriter,
    Contents,
    MappedRecords,
    arrays,
    check_end,
    end_record,
    mapping,
    reason,
    write_at,
)
from packer.schema import Field

SUFFIX = ".h5"
_END = "packer"
_LIBVER = ("earliest", "v108")  # readable by every HDF5 since 1.8


class Writer(ColumnWriter):
    """Creates the arrays with h5py, then writes their bytes without HDF5."""

    def _save(self, contents: Contents) -> None:
        try:
            with h5py.File(self.path, "w", libver=_LIBVER, locking=False) as file:
                for name in dict.fromkeys(array.field for array, _ in contents if array.role == "data"):
                    file.create_group(name)
                offsets = [_make(file, array, len(content)) for array, content in contents]
        except H5_ERRORS as error:
            raise StorageError(f"{self.path}: cannot make the part: {reason(error)}; free space there") from error
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for offset, (_, content) in zip(offsets, contents, strict=True):
                if offset is not None:
                    with memoryview(content) as view:
                        write_at(descriptor, view, offset)
        finally:
            os.close(descriptor)
        try:
            with h5py.File(self.path, "r+", libver=_LIBVER, locking=False) as file:
                file.attrs.create(_END, np.bytes_(end_record(self.schema, self._samples)))
        except H5_ERRORS as error:
            raise StorageError(f"{self.path}: cannot end the part: {reason(error)}; free space there") from error


def _make(file: Any, array: Array, size_bytes: int) -> int | None:
    """Create an array with space for its bytes. Return the offset of this space, or None for an empty array."""
    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    options.set_layout(h5py.h5d.CONTIGUOUS)
    options.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    options.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    options.set_obj_track_times(False)
    space = h5py.h5s.create_simple(tuple(size_bytes if length is None else length for length in array.shape))
    made = h5py.h5d.create(file.id, array.name("/").encode(), _h5_type(array), space, options)
    offset: int | None = made.get_offset()
    return offset


def _h5_type(array: Array) -> Any:
    return h5py.h5t.py_create(array.dtype, logical=True)


class Reader(ColumnReader):
    """Compares the arrays in the file with the schema when it opens the file. Values are slices of the mapped file."""

    def _open(self, *, readahead: bool) -> MappedRecords:
        try:
            with open_read_only(self.path) as file:
                check_end(self.path, self._end(file.id), schema=self.schema, samples=self.samples)
                self._check_names(file.id, set(self.schema.names))
                places = dict(place for field in self.schema for place in self._places(file.id, field))
                # map the descriptor that was checked: the path may lead to another file by now
                with mapping(self.path, file.id.get_vfd_handle(), readahead=readahead) as mapped:
                    return MappedRecords(self.path, mapped, schema=self.schema, places=places)
        except PackerError:
            raise
        except H5_ERRORS as error:
            raise CorruptPack(f"{self.path}: cannot open the part: {reason(error)}; copy or pack it again") from error

    def _end(self, root: Any) -> bytes:
        """Return the end record. Raises CorruptPack if it does not exist or is not a short string of fixed length."""
        if not h5py.h5a.exists(root, _END.encode()):
            raise self._refusal("the part is not complete: it has no attribute 'packer'")
        attribute = h5py.h5a.open(root, _END.encode())
        kind, shape = attribute.get_type(), attribute.shape
        text = isinstance(kind, h5py.h5t.TypeStringID) and not kind.is_variable_str()
        if not text or shape != () or kind.get_size() > MOST_END_BYTES:
            raise self._refusal("the attribute 'packer' is not a short text of fixed length")
        value = np.zeros((), f"S{kind.get_size()}")
        attribute.read(value)
        return bytes(value[()])

    def _check_names(self, group: Any, expected: set[str]) -> None:
        """Raise CorruptPack unless a group has exactly the `expected` names and all are hard links into this file."""
        count = group.get_num_objs()
        names = {group.get_objname_by_idx(at) for at in range(count if count == len(expected) else 0)}
        if names != {name.encode() for name in expected}:
            raise self._refusal(f"expected the names {', '.join(sorted(expected)):.200}, found others")
        for name in names:
            if not is_hard_link(group, name):
                raise self._refusal(f"{name.decode()} is a link to another place")

    def _places(self, root: Any, field: Field) -> Sequence[tuple[Array, ArraySpan]]:
        wanted = arrays(self.schema, field.name, self.samples)
        group = root
        if wanted[0].role != "values":
            group = self._child(root, field.name, h5py.h5o.TYPE_GROUP)
            self._check_names(group, {array.role for array in wanted})
        names = [field.name if array.role == "values" else array.role for array in wanted]
        datasets = [self._child(group, name, h5py.h5o.TYPE_DATASET) for name in names]
        return [(array, self._place(dataset, array)) for array, dataset in zip(wanted, datasets, strict=True)]

    def _child(self, group: Any, name: str, kind: int) -> Any:
        if h5py.h5o.get_info(group, name.encode()).type != kind:
            raise self._refusal(f"{name} is not a {'group' if kind == h5py.h5o.TYPE_GROUP else 'dataset'}, as expected")
        return h5py.h5o.open(group, name.encode())

    def _place(self, dataset: Any, array: Array) -> ArraySpan:
        """Return offset and size of `dataset` in the file.

        Raises CorruptPack if the dataset is not contiguous, or if its dtype or shape is not that of `array`.
        """
        if not is_one_piece(dataset.get_create_plist()):
            raise self._refusal(f"{array.name('/')} is not stored in one piece in the file itself")
        if not dataset.get_type().equal(_h5_type(array)):
            raise self._refusal(f"{array.name('/')} does not hold {array.dtype}")
        space = dataset.get_space()
        shape: tuple[int, ...] = space.get_simple_extent_dims() if space.is_simple() else ()
        fits = len(shape) == len(array.shape) and space.get_simple_extent_type() == h5py.h5s.SIMPLE
        if not fits or any(want not in (None, have) for want, have in zip(array.shape, shape, strict=True)):
            raise self._refusal(f"{array.name('/')} has shape {shape}, expected {array.shape}")
        size_bytes = array.size_bytes if array.size_bytes is not None else shape[0]
        offset = dataset.get_offset()
        if offset is None and size_bytes:
            raise self._refusal(f"the bytes of {array.name('/')} were never written")
        return ArraySpan(offset or 0, size_bytes)

    def _refusal(self, what: str) -> CorruptPack:
        return CorruptPack(f"{self.path}: {what}; pack again")
