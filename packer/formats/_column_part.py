"""Column part: base of the formats that keep one or two arrays per field in a container file (hdf5 and pth).

A field whose codec declares numbers of one fixed shape is one little-endian array [n, *shape]. Any other field is two
arrays. `data`, uint8, contains the values end to end. `offsets`, int64 [n + 1], contains the bounds of the values:
value i is data[offsets[i]:offsets[i + 1]]. The end record, JSON in ASCII, lists the fields and the number of samples.

A Writer collects the values of each field until the part is finished. It keeps 1 MiB of a field in memory and writes
more to a temporary file in the folder of the part. The temporary file has no name, so it disappears with the process.
A Reader returns slices of the mapped file. It checks a copy of the offsets, which later changes of the file cannot
reach.
"""

import errno
import json
import math
import mmap
import os
import re
from abc import abstractmethod
from array import array as number_array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from packer.errors import CorruptPack, InvalidRequest, PackerError, StorageError
from packer.formats import base
from packer.schema import Schema

MOST_END_BYTES = 60_000  # an HDF5 attribute holds less than 64 KiB


class Array(NamedTuple):
    """One array of a part.

    Attributes:
        field: Name of the field.
        role: "values" for a field whose values have one size, else "data" or "offsets".
        dtype: Little-endian dtype.
        shape: Shape of the complete array. It is (None,) for `data`, because only the file contains its length.
    """

    field: str
    role: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]

    @property
    def size_bytes(self) -> int | None:
        """Size of the complete array in bytes; None for `data`, because only the file contains its length."""
        known = [length for length in self.shape if length is not None]
        return math.prod(known) * self.dtype.itemsize if len(known) == len(self.shape) else None

    def name(self, separator: str) -> str:
        """Return the name of the array in the file: `field` for the role "values", else field, separator and role."""
        return self.field if self.role == "values" else f"{self.field}{separator}{self.role}"


def arrays(schema: Schema, name: str, samples: int) -> tuple[Array, ...]:
    """Return the arrays that store the field `name`: one array of the role "values", or two, "data" and "offsets"."""
    fixed = schema.stored_form(name).array
    if fixed is not None:
        dtype, shape = fixed
        return (Array(name, "values", np.dtype(dtype).newbyteorder("<"), (samples, *shape)),)
    data = Array(name, "data", np.dtype("u1"), (None,))
    return (data, Array(name, "offsets", np.dtype("<i8"), (samples + 1,)))


def all_arrays(schema: Schema, samples: int) -> list[Array]:
    return [array for name in schema.names for array in arrays(schema, name, samples)]


def reason(error: Exception) -> str:
    """Return the message of a library's error as one short line; for a failed write of HDF5, the text of its errno."""
    code = re.search(r"\berrno = (\d+)", str(error))
    return os.strerror(int(code[1])) if code else " ".join(str(error).split())[:200]


def end_record(schema: Schema, samples: int) -> bytes:
    return json.dumps({"fields": list(schema.names), "samples": samples}, sort_keys=True).encode("ascii")


def check_end(path: Path, found: bytes, *, schema: Schema, samples: int, most_bytes: int = MOST_END_BYTES) -> None:
    """Raise CorruptPack if the end record `found` differs from the manifest or is larger than `most_bytes`."""
    try:
        end = json.loads(found) if len(found) <= most_bytes else None
    except (ValueError, RecursionError) as error:
        raise CorruptPack(f"{path}: the end record is damaged: {found!r:.60}; pack again") from error
    if end != {"fields": list(schema.names), "samples": samples}:
        raise CorruptPack(
            f"{path}: the part does not match the manifest: expected {samples} samples of "
            f"{', '.join(schema.names):.200}, found end record {found!r:.200}; pack again"
        )


# ---- reading

_MACHINE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM, errno.EIO)


def is_machine_error(error: OSError) -> bool:
    """Return True if the machine caused the error: permissions, limits, a failing disk. False if the pack caused it."""
    return error.errno in _MACHINE_ERRORS


class ArraySpan(NamedTuple):
    """Offset and size in bytes of an array in the file."""

    offset: int
    size_bytes: int


class _Column(NamedTuple):
    start: int  # offset of the field's first byte
    width: int  # size of each value, if `offsets` is None
    offsets: memoryview | None  # of each value from `start`


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Return a `with` block that turns an OSError into StorageError if the machine caused it, else into CorruptPack."""
    try:
        yield
    except (CorruptPack, StorageError):
        raise
    except OSError as error:
        if is_machine_error(error):
            cause = os.strerror(error.errno or 0)
            raise StorageError(f"{path}: cannot open: {cause}; see its permissions and ulimit -n") from error
        raise CorruptPack(f"{path}: cannot open the part: {reason(error)}; copy or pack it again") from error


@contextmanager
def mapping(path: Path, descriptor: int, *, readahead: bool) -> Iterator[mmap.mmap]:
    """Return a `with` block that yields a read-only mapping of a file. The mapping stays open unless the block raises.

    Raises:
        CorruptPack: The file is empty.
        OSError: The file cannot be mapped.
    """
    if not os.fstat(descriptor).st_size:
        raise CorruptPack(f"{path}: the part is empty; copy or pack it again")
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    try:
        if not readahead:
            mapped.madvise(mmap.MADV_RANDOM)
        yield mapped
    except BaseException:
        mapped.close()  # the frames of the error may refer to it for long
        raise


class MappedRecords:
    """The values of fields whose arrays are in one mapped file."""

    def __init__(self, path: Path, mapped: mmap.mmap, *, schema: Schema, places: Mapping[Array, ArraySpan]) -> None:
        """Check the positions and the offsets of the arrays; raise CorruptPack if they are wrong.

        Args:
            path: The file, for messages.
            mapped: The complete file.
            schema: The fields.
            places: Offset and size of each array of the schema. The sizes of all arrays except `data` must be correct.
        """
        self._path = path
        for array, place in places.items():
            if place.offset < 0 or place.offset + place.size_bytes > len(mapped):
                raise CorruptPack(
                    f"{path}: {array.role} of field {array.field!r} is outside the file: {place.size_bytes} bytes at "
                    f"{place.offset}, the file has {len(mapped)}; copy or pack it again"
                )
        ordered = sorted(places.values(), key=lambda place: (place.offset, place.size_bytes))
        if any(one.offset + one.size_bytes > other.offset for one, other in pairwise(ordered) if other.size_bytes):
            raise CorruptPack(f"{path}: arrays overlap in the file; copy or pack it again")
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

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        """Return the named fields of one record as slices. The file stays mapped while a slice exists."""
        return {name: self.values((row,), name)[0] for name in names}

    def values(self, rows: Sequence[int], name: str) -> list[memoryview]:
        """Return the values of one field for many records, as slices of the mapping."""
        view = self._view
        if view is None:
            raise InvalidRequest(f"{self._path}: the reader is closed; open it again")
        start, width, offsets = self._columns[name]
        if offsets is None:
            return [view[start + row * width : start + (row + 1) * width] for row in rows]
        return [view[start + offsets[row] : start + offsets[row + 1]] for row in rows]

    def block(self, name: str, samples: int) -> memoryview:
        """Return the values of the first `samples` records as one slice. The values of the field must have one size."""
        start, width, _ = self._columns[name]
        return memoryview(b"") if self._view is None else self._view[start : start + samples * width]

    def close(self) -> None:
        """Release the mapping. The file stays mapped until its last slice is gone."""
        self._view = None


def _offsets(path: Path, mapped: mmap.mmap, *, name: str, place: ArraySpan, data_bytes: int) -> memoryview:
    """Return a copy of the offsets of a field. Raise CorruptPack unless they ascend from 0 to `data_bytes`."""
    found = np.frombuffer(mapped, "<i8", place.size_bytes // 8, place.offset).astype(np.int64)
    if found[0] != 0 or found[-1] != data_bytes or (found[1:] < found[:-1]).any():
        raise CorruptPack(f"{path}: the offsets of field {name!r} do not fit its data; copy or pack it again")
    return found.data


# ---- writing

SPOOL_NAME = ".spool-"  # start of the name on a file system without unnamed files
_MOST_BUFFERED = 1 << 20
Content = bytearray | mmap.mmap
Contents = list[tuple[Array, Content]]


class Spool:
    """The values of one field of a part, in order, in memory or in a temporary file.

    Attributes:
        value_bytes: Size of each value; None if the sizes differ.
    """

    def __init__(self, schema: Schema, name: str, folder: Path) -> None:
        """Create an empty spool. Its temporary file will be in `folder`."""
        self.field = schema[name]
        self.value_bytes = arrays(schema, name, 1)[0].size_bytes
        self._schema = schema
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._written = 0
        self._buffer = bytearray()
        self._ends = number_array("q", [0])

    def add(self, value: bytes) -> None:
        """Add one value to the buffer in memory. This writes no file, so it raises no OSError."""
        self._buffer += value
        if self.value_bytes is None:
            self._ends.append(self._written + len(self._buffer))

    def flush_if_large(self) -> None:
        """Write a buffer of more than 1 MiB to the temporary file. A call after an OSError tries again."""
        if len(self._buffer) > _MOST_BUFFERED:
            self._flush()

    def _flush(self) -> None:
        if self._file is None:
            import tempfile  # it imports random and shutil, which small parts do not need

            self._file = tempfile.TemporaryFile(  # noqa: SIM115  closed in close()
                dir=self._folder, prefix=SPOOL_NAME, buffering=0
            )
        with memoryview(self._buffer) as view:
            write_at(self._file.fileno(), view, self._written)
        self._written += len(self._buffer)
        self._buffer = bytearray()

    def contents(self, samples: int) -> Contents:
        """Return (array, its bytes) for each array of the field; raises OSError."""
        content: Content = self._buffer
        if self._file is not None:
            self._flush()
            # torch requires writable memory: a private mapping, which nothing writes to
            content = mmap.mmap(self._file.fileno(), self._written, access=mmap.ACCESS_COPY)
        ends = bytearray(np.asarray(self._ends, "<i8").tobytes())
        return list(zip(arrays(self._schema, self.field.name, samples), (content, ends), strict=False))

    def close(self) -> None:
        """Release the memory and the temporary file. A second call does nothing."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._buffer = bytearray()


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of `data` at an offset of a file; raises OSError."""
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done : done + (8 << 20)], offset + done)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Return a `with` block that turns an OSError into StorageError. The message names `path`, the part."""
    try:
        yield
    except PackerError:  # some of them are OSErrors too
        raise
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else reason(error)  # HDF5 writes a report into strerror
        raise StorageError(f"{path}: cannot write: {cause}; free space or choose another folder") from error


# ---- containers


class ColumnWriter(base.Writer):
    """Collects the values of each field. The method `_save` of a subclass writes the arrays into its container file.

    The constructor creates the part as an empty file, so that no other writer can use its path.
    """

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        super().__init__(path, schema, payload_bytes=payload_bytes)
        self._samples = 0
        self._finished = self._closed = False
        if len(end_record(schema, 1 << 63)) > MOST_END_BYTES:
            raise InvalidRequest(
                f"{path}: the names of {len(schema)} fields do not fit this format; use lmdb, or --fields"
            )
        try:
            path.open("xb").close()
        except FileExistsError as error:
            raise InvalidRequest(f"{path}: a part must be new, found a file; remove it") from error
        except OSError as error:
            raise StorageError(f"{path}: cannot make the part: {error.strerror}; choose another folder") from error
        self._spools = [Spool(schema, name, path.parent) for name in schema.names]

    @classmethod
    def scratch_bytes(cls, payload_bytes: int) -> int:
        return payload_bytes  # the spools contain every value once more

    @abstractmethod
    def _save(self, contents: Contents) -> None:
        """Write the end record and the arrays, in schema order, into the part's file; raises OSError, StorageError."""

    def write(self, record: base.Record) -> None:
        self._check_open()
        values = [bytes(record[spool.field.name]) for spool in self._spools]
        for spool, value in zip(self._spools, values, strict=True):
            if spool.value_bytes not in (None, len(value)):
                raise InvalidRequest(
                    f"{self.path}: row {self._samples}, field {spool.field.name!r}: expected {spool.value_bytes} bytes "
                    f"for {spool.field.codec} of shape {spool.field.shape}, found {len(value)}; correct the schema"
                )
        for spool, value in zip(self._spools, values, strict=True):
            spool.add(value)
        self._samples += 1
        with writing(self.path):
            for spool in self._spools:
                spool.flush_if_large()

    def finish(self) -> None:
        if self._finished:
            return
        self._check_open()
        with writing(self.path):
            try:
                self._save([item for spool in self._spools for item in spool.contents(self._samples)])
            except BaseException:
                with suppress(OSError):  # the part has no end record, so it is incomplete anyway
                    os.truncate(self.path, 0)
                raise
        self._finished = True
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(f"{self.path}: the part is closed; write a new one")

    def close(self) -> None:
        self._closed = True
        for spool in self._spools:
            spool.close()


class ColumnReader(base.Reader):
    """Returns slices of the mapped file. The method `_open` of a subclass finds the arrays in its container file."""

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        super().__init__(path, schema, samples=samples, readahead=readahead)
        with opening(path):
            self._rows = self._open(readahead=readahead)

    @abstractmethod
    def _open(self, *, readahead: bool) -> MappedRecords:
        """Find and map all arrays; raises OSError, CorruptPack."""

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        return self._rows.read(row, names)

    def values(self, rows: Sequence[int], name: str) -> Sequence[memoryview]:
        return self._rows.values(rows, name)

    def close(self) -> None:
        self._rows.close()
