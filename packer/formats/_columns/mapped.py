"""Mapped records: slices of the mapped file of a part, once the offsets of its arrays are known.

No library stands in the way of a read. Offsets are copied when a part is opened, 8 bytes a sample: what was checked
then is what is used, though the file should change, and nothing of it is mapped that is not a value.
"""

import errno
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from packer.errors import CorruptPack, InvalidRequest, StorageError
from packer.formats._columns.layout import Array, reason
from packer.formats.base import Record
from packer.schema import Schema

OF_THE_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM, errno.EIO)


@dataclass(frozen=True)
class ArraySpan:
    """Where the bytes of an array lie in the file."""

    offset: int
    size_bytes: int


class _Column(NamedTuple):
    """One field: first byte, and either the size of each value or the offset of each."""

    start: int
    width: int
    offsets: memoryview | None


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into StorageError where the machine is at fault, else into CorruptPack."""
    try:
        yield
    except (CorruptPack, StorageError):
        raise
    except OSError as error:
        # h5py gives the errno of the system call as it is, and wraps what HDF5 itself finds without one
        if error.errno in OF_THE_MACHINE:
            cause = os.strerror(error.errno)
            raise StorageError(f"{path}: cannot open: {cause}; see its permissions and ulimit -n") from error
        raise CorruptPack(f"{path}: cannot open the part: {reason(error)}; copy or pack it again") from error


@contextmanager
def mapping(path: Path, descriptor: int, *, readahead: bool) -> Iterator[mmap.mmap]:
    """The whole file, read-only, unmapped when the block fails; raises OSError, CorruptPack for an empty one."""
    if not os.fstat(descriptor).st_size:
        raise CorruptPack(f"{path}: the part is empty; copy or pack it again")
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    try:
        if not readahead:
            mapped.madvise(mmap.MADV_RANDOM)
        yield mapped
    except BaseException:
        mapped.close()  # the error's frames may hold it for long
        raise


class MappedRecords:
    """The records of one mapped part."""

    def __init__(self, path: Path, mapped: mmap.mmap, *, schema: Schema, places: Mapping[Array, ArraySpan]) -> None:
        """places: of every array of the schema, sizes as the layout has them. Raises CorruptPack."""
        self._path = path
        for array, place in places.items():
            if place.offset < 0 or place.offset + place.size_bytes > len(mapped):
                raise CorruptPack(
                    f"{path}: {array.role} of field {array.field!r} lie outside the file: {place.size_bytes} bytes at "
                    f"{place.offset}, the file has {len(mapped)}; copy or pack it again"
                )
        ordered = sorted(places.values(), key=lambda place: (place.offset, place.size_bytes))
        if any(one.offset + one.size_bytes > other.offset for one, other in pairwise(ordered) if other.size_bytes):
            raise CorruptPack(f"{path}: arrays lie over each other in the file; copy or pack it again")
        roles = {(array.field, array.role): (array, place) for array, place in places.items()}
        self._columns: dict[str, _Column] = {}
        for name in schema.names:
            if (name, "values") in roles:
                array, place = roles[name, "values"]
                samples = array.shape[0] or 1
                self._columns[name] = _Column(place.offset, place.size_bytes // samples, None)
            else:
                data, (_, place) = roles[name, "data"][1], roles[name, "offsets"]
                offsets = _offsets(path, mapped, name=name, place=place, data_bytes=data.size_bytes)
                self._columns[name] = _Column(data.offset, 0, offsets)
        self._view: memoryview | None = memoryview(mapped)

    def read(self, row: int, names: Sequence[str]) -> Record:
        """Slices of the mapping, which live as long as they are held."""
        return {name: self.values((row,), name)[0] for name in names}

    def values(self, rows: Sequence[int], name: str) -> list[memoryview]:
        """As `read`, one field of many records."""
        view = self._view
        if view is None:
            raise InvalidRequest(f"{self._path}: the reader is closed; open it again")
        start, width, offsets = self._columns[name]
        if offsets is None:
            return [view[start + row * width : start + (row + 1) * width] for row in rows]
        return [view[start + offsets[row] : start + offsets[row + 1]] for row in rows]

    def close(self) -> None:
        """Let go of the file; it is unmapped with the last slice."""
        self._view = None


def _offsets(path: Path, mapped: mmap.mmap, *, name: str, place: ArraySpan, data_bytes: int) -> memoryview:
    """A copy of the offsets of one field, checked: 0 first, never falling, the size of the data last."""
    found = np.frombuffer(mapped, "<i8", place.size_bytes // 8, place.offset).astype(np.int64)
    if found[0] != 0 or found[-1] != data_bytes or (found[1:] < found[:-1]).any():
        raise CorruptPack(f"{path}: the offsets of field {name!r} do not fit its data; copy or pack it again")
    return found.data
