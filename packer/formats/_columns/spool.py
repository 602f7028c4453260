"""Spooling: the values of a part, gathered field by field until it is finished, with flat memory.

What a field has beyond 1 MiB goes to a temporary file without a name in the folder of the part: it is gone with the
process, however that ends, and takes its space from the disk that must hold the part anyway.
"""

import mmap
import os
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np

from packer.errors import InvalidRequest, PackerError, StorageError
from packer.formats._columns.layout import MOST_END_BYTES, Array, arrays, end_record, reason
from packer.formats.base import Record
from packer.schema import Schema

NAME = ".spool-"  # what the names begin with that a file system gives which cannot do without
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
        self._ends = array("q", [0])

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
            self._file = tempfile.TemporaryFile(  # noqa: SIM115  closed in close()
                dir=self._folder, prefix=NAME, buffering=0
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
