"""Columns: arrays per field, n samples long, which hdf5, pth and bmp write through spools and read through a mapping.

A field whose encoded values are, as its codec says, the numbers of one fixed shape and nothing else (codec `number`, or
`raw` with a fixed shape) is one typed little-endian array [n, *shape]. Any other is `data`, uint8, its values end to
end, and `offsets`, int64 [n + 1]: value i is data[offsets[i]:offsets[i + 1]]. The end record, JSON in ASCII, says which
fields there are and how many samples.

Writing: the values are gathered field by field until the part is finished, with flat memory. What a field has beyond
1 MiB goes to a temporary file without a name in the folder of the part: it is gone with the process, however that ends,
and takes its space from the disk that must hold the part anyway.

Reading: values are slices of the mapped file, and no library stands in the way of a read. Offsets are copied when a
part is opened, 8 bytes a sample: what was checked then is what is used, though the file should change, and nothing of
it is mapped that is not a value.
"""

import errno
import json
import math
import mmap
import os
import re
from array import array as number_array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from packer.errors import CorruptPack, InvalidRequest, PackerError, StorageError
from packer.formats.base import Record
from packer.schema import Schema

MOST_END_BYTES = 60_000  # an HDF5 attribute holds less than 64 KiB


class Array(NamedTuple):
    """One array of a part. role: "values" of a field of one size, else "data" or "offsets".

    shape: that of the whole array; None is a length that the file tells.
    """

    field: str
    role: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the whole array, where the file does not tell."""
        known = [length for length in self.shape if length is not None]
        return math.prod(known) * self.dtype.itemsize if len(known) == len(self.shape) else None

    def name(self, separator: str) -> str:
        """`field` for values, else `field`, the separator, and the role."""
        return self.field if self.role == "values" else f"{self.field}{separator}{self.role}"


def arrays(schema: Schema, name: str, samples: int) -> tuple[Array, ...]:
    """The arrays of one field: values, or data and offsets."""
    fixed = schema.stored_form(name).array
    if fixed is not None:
        dtype, shape = fixed
        return (Array(name, "values", np.dtype(dtype).newbyteorder("<"), (samples, *shape)),)
    data = Array(name, "data", np.dtype("u1"), (None,))
    return (data, Array(name, "offsets", np.dtype("<i8"), (samples + 1,)))


def reason(error: Exception) -> str:
    """What a library says, as one short line; of HDF5's report of a failed write, no more than what the system said."""
    told = re.search(r"\berrno = (\d+)", str(error))
    return os.strerror(int(told[1])) if told else " ".join(str(error).split())[:200]


def end_record(schema: Schema, samples: int) -> bytes:
    """What a complete part ends with."""
    return json.dumps({"fields": list(schema.names), "samples": samples}, sort_keys=True).encode("ascii")


def check_end(path: Path, found: bytes, *, schema: Schema, samples: int) -> None:
    """Raise CorruptPack unless the end record says what the manifest does."""
    try:
        end = json.loads(found) if len(found) <= MOST_END_BYTES else None
    except (ValueError, RecursionError) as error:
        raise CorruptPack(f"{path}: the end record is damaged: {found!r:.60}; pack again") from error
    if end != {"fields": list(schema.names), "samples": samples}:
        raise CorruptPack(
            f"{path}: the part does not hold what the manifest says: expected {samples} samples of "
            f"{', '.join(schema.names):.200}, found end record {found!r:.200}; pack again"
        )


# ---- reading

OF_THE_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM, errno.EIO)


class ArraySpan(NamedTuple):
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


# ---- writing

SPOOL_NAME = ".spool-"  # what its name begins with, on a file system that has no files without names
_MOST_BUFFERED = 1 << 20
Content = bytearray | mmap.mmap


class Spool:
    """The part's values for one field, in order."""

    def __init__(self, schema: Schema, name: str, folder: Path) -> None:
        self.field = schema[name]
        self.value_bytes = arrays(schema, name, 1)[0].size_bytes  # None where values differ in length
        self._schema = schema
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._written = 0
        self._buffer = bytearray()
        self._ends = number_array("q", [0])

    def add(self, value: bytes) -> None:
        """Take one value; nothing is written yet, so nothing can fail."""
        self._buffer += value
        if self.value_bytes is None:
            self._ends.append(self._written + len(self._buffer))

    def settle(self) -> None:
        """Write what is buffered when it is much; raises OSError, and may be called again then."""
        if len(self._buffer) > _MOST_BUFFERED:
            self._flush()

    def _flush(self) -> None:
        if self._file is None:
            import tempfile  # which brings random and shutil; a part that is not spooled does without

            self._file = tempfile.TemporaryFile(  # noqa: SIM115  closed in close()
                dir=self._folder, prefix=SPOOL_NAME, buffering=0
            )
        with memoryview(self._buffer) as view:
            write_at(self._file.fileno(), view, self._written)
        self._written += len(self._buffer)
        self._buffer = bytearray()

    def contents(self, samples: int) -> list[tuple[Array, Content]]:
        """Each array of the field with its bytes. Raises OSError."""
        content: Content = self._buffer
        if self._file is not None:
            self._flush()
            # a private mapping: writable, as torch wants it, though nobody writes to it
            content = mmap.mmap(self._file.fileno(), self._written, access=mmap.ACCESS_COPY)
        wanted = arrays(self._schema, self.field.name, samples)
        every = (content, bytearray(np.asarray(self._ends, "<i8").tobytes()))
        return list(zip(wanted, every, strict=False))

    def close(self) -> None:
        """Give memory and file back."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._buffer = bytearray()


class Spools:
    """All fields of one part, whose file is made, empty, as soon as this is: no other writer can take its name."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path = path
        self.schema = schema
        self.samples = 0
        self.finished = False
        self._closed = False
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

    def append(self, record: Record) -> None:
        """Take one record; raises InvalidRequest for a value that has not the size its schema fixes, and
        StorageError.
        """
        self._check_open()
        values = [bytes(record[spool.field.name]) for spool in self._spools]
        for spool, value in zip(self._spools, values, strict=True):
            if spool.value_bytes not in (None, len(value)):
                raise InvalidRequest(
                    f"{self.path}: row {self.samples}, field {spool.field.name!r}: expected {spool.value_bytes} bytes "
                    f"for {spool.field.codec} of shape {spool.field.shape}, found {len(value)}; correct the schema"
                )
        for spool, value in zip(self._spools, values, strict=True):
            spool.add(value)
        self.samples += 1
        with self.failing():
            for spool in self._spools:
                spool.settle()

    @contextmanager
    def finishing(self) -> Iterator[list[tuple[Array, Content]]]:
        """The arrays to be written into the part's file, in schema order; an error leaves that empty again."""
        self._check_open()
        with self.failing():
            try:
                yield [item for spool in self._spools for item in spool.contents(self.samples)]
            except BaseException:
                with suppress(OSError):  # without its end the part is not complete anyway
                    os.truncate(self.path, 0)
                raise
        self.finished = True

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Turn an OSError of the block into StorageError."""
        try:
            yield
        except PackerError:  # some of them are OSErrors too
            raise
        except OSError as error:
            cause = os.strerror(error.errno) if error.errno else reason(error)  # HDF5 writes a report into strerror
            raise StorageError(f"{self.path}: cannot write: {cause}; free space or choose another folder") from error

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(f"{self.path}: the part is closed; write it anew")

    def close(self) -> None:
        """Give memory and files back; may be called twice."""
        self._closed = True
        for spool in self._spools:
            spool.close()


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of `data` at a place in a file, whatever one call takes; raises OSError."""
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done : done + (8 << 20)], offset + done)
