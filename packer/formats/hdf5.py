"""HDF5: one .h5 file per part with plain arrays, read by any HDF5 library.

Layout of `part-00000.h5` (oldest file format that fits; contiguous, no filters, no time stamps):
    /<field>          little-endian [n, *shape], for fields whose encoded values all have one size (numbers, fixed raw)
    /<field>/data     uint8, the encoded values end to end, for every other field
    /<field>/offsets  int64 little-endian [n + 1]: value i is data[offsets[i]:offsets[i + 1]]
    attribute packer  of the root: fixed-length string, JSON {"fields": [names in order], "samples": n}; written last
bool is the enumeration of int8 that h5py makes. The values of an array of one size are the stored numbers themselves.

The library lays the file out and names the places of the arrays. Their bytes go through plain writes and, when reading,
through a mapping: HDF5's global lock is in neither way, and links, filters and foreign files are never followed.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from packer.errors import CorruptPack, PackerError, StorageError
from packer.files.hdf5_safety import H5_ERRORS, is_hard_link, is_one_piece, open_read_only
from packer.formats import base
from packer.formats._columns import (
    MOST_END_BYTES,
    Array,
    ArraySpan,
    Content,
    MappedRecords,
    Spools,
    arrays,
    check_end,
    end_record,
    mapping,
    opening,
    reason,
    write_at,
)
from packer.schema import Field, Schema

SUFFIX = ".h5"
_END = "packer"
_LIBVER = ("earliest", "v108")  # what every HDF5 since 1.8 reads


class Writer(base.Writer):
    """Spools the values of each field, then lays the file out and fills it in."""

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        super().__init__(path, schema, payload_bytes=payload_bytes)
        self._spools = Spools(path, schema)

    @classmethod
    def scratch_bytes(cls, payload_bytes: int) -> int:
        return payload_bytes  # the spools: all values once more

    def write(self, record: base.Record) -> None:
        self._spools.append(record)

    def finish(self) -> None:
        if self._spools.finished:
            return
        with self._spools.finishing() as contents:
            places = self._lay_out([(array, len(content)) for array, content in contents])
            self._fill(places, contents)
            self._end()
        self.close()

    def _lay_out(self, sizes: Sequence[tuple[Array, int]]) -> list[int | None]:
        """Make the file with all arrays in their places; None for one without bytes. Raises StorageError."""
        try:
            with h5py.File(self.path, "w", libver=_LIBVER, locking=False) as file:
                for field in self.schema:
                    if any(array.field == field.name and array.role == "data" for array, _ in sizes):
                        file.create_group(field.name)
                return [_make(file, array, size_bytes) for array, size_bytes in sizes]
        except H5_ERRORS as error:
            raise StorageError(f"{self.path}: cannot make the part: {reason(error)}; free space there") from error

    def _fill(self, places: Sequence[int | None], contents: Sequence[tuple[Array, Content]]) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for place, (_, content) in zip(places, contents, strict=True):
                if place is not None:
                    with memoryview(content) as view:
                        write_at(descriptor, view, place)
        finally:
            os.close(descriptor)

    def _end(self) -> None:
        try:
            with h5py.File(self.path, "r+", libver=_LIBVER, locking=False) as file:
                file.attrs.create(_END, np.bytes_(end_record(self.schema, self._spools.samples)))
        except H5_ERRORS as error:
            raise StorageError(f"{self.path}: cannot end the part: {reason(error)}; free space there") from error

    def close(self) -> None:
        self._spools.close()


def _make(file: Any, array: Array, size_bytes: int) -> int | None:
    """An array whose bytes are allocated, not written; returns where they will lie."""
    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    options.set_layout(h5py.h5d.CONTIGUOUS)
    options.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    options.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    options.set_obj_track_times(False)
    space = h5py.h5s.create_simple(tuple(size_bytes if length is None else length for length in array.shape))
    made = h5py.h5d.create(file.id, array.name("/").encode(), _h5_type(array), space, options)
    place: int | None = made.get_offset()
    return place


def _h5_type(array: Array) -> Any:
    return h5py.h5t.py_create(array.dtype, logical=True)


class Reader(base.Reader):
    """Walks the file once, against the layout and nothing else; values are slices of the mapped file."""

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        super().__init__(path, schema, samples=samples, readahead=readahead)
        with opening(path):
            try:
                with open_read_only(path) as file:
                    check_end(path, self._end(file.id), schema=schema, samples=samples)
                    self._check_names(file.id, set(schema.names))
                    places = dict(place for field in schema for place in self._places(file.id, field))
                    # the file that was walked is the one that is mapped, whatever the path names by now
                    with mapping(path, file.id.get_vfd_handle(), readahead=readahead) as mapped:
                        self._rows = MappedRecords(path, mapped, schema=schema, places=places)
            except PackerError:
                raise
            except H5_ERRORS as error:
                raise CorruptPack(f"{path}: cannot open the part: {reason(error)}; copy or pack it again") from error

    def _end(self, root: Any) -> bytes:
        """The end record; only a fixed-length string is read."""
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
        """Exactly these names, each a hard link: nothing leads out of the file."""
        count = group.get_num_objs()
        names = {group.get_objname_by_idx(at) for at in range(count if count == len(expected) else 0)}
        if names != {name.encode() for name in expected}:
            raise self._refusal(f"expected the names {', '.join(sorted(expected)):.200}, found others")
        for name in names:
            if not is_hard_link(group, name):
                raise self._refusal(f"{name.decode()} is a link to somewhere else")

    def _places(self, root: Any, field: Field) -> list[tuple[Array, ArraySpan]]:
        wanted = arrays(self.schema, field.name, self.samples)
        group = root
        if wanted[0].role != "values":
            group = self._child(root, field.name, h5py.h5o.TYPE_GROUP)
            self._check_names(group, {array.role for array in wanted})
        found = []
        for array in wanted:
            name = field.name if array.role == "values" else array.role
            found.append((array, self._place(self._child(group, name, h5py.h5o.TYPE_DATASET), array)))
        return found

    def _child(self, group: Any, name: str, kind: int) -> Any:
        if h5py.h5o.get_info(group, name.encode()).type != kind:
            raise self._refusal(f"{name} is not what the layout has under that name")
        return h5py.h5o.open(group, name.encode())

    def _place(self, dataset: Any, array: Array) -> ArraySpan:
        """Where the bytes lie, once nothing but plain contiguous numbers of the right shape is left."""
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

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        return self._rows.read(row, names)

    def values(self, rows: Sequence[int], name: str) -> Sequence[memoryview]:
        return self._rows.values(rows, name)

    def close(self) -> None:
        self._rows.close()
