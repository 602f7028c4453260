"""pth: one .pth file per part, a dict of plain tensors. torch.load(part, weights_only=True, mmap=True) opens it.

The dict, in this order (fields in schema order):

| name                | tensor                                                                                        |
|---------------------|-----------------------------------------------------------------------------------------------|
| `packer.json`       | uint8: the end record, JSON {"fields": [names in order], "samples": n}                        |
| `<field>`           | [n, *shape], for fields whose encoded values all have one size (numbers, fixed raw)           |
| `<field>.data`      | uint8: the encoded values end to end, for every other field                                   |
| `<field>.offsets`   | int64 [n + 1]: value i is data[offsets[i]:offsets[i + 1]]                                     |

Field names contain no dot, so these names are unique.

Layout of the file, a zip archive in which every entry is stored, not compressed:

| entry               | content                                                                                       |
|---------------------|-----------------------------------------------------------------------------------------------|
| `archive/data.pkl`  | the dict: the storage, dtype and shape of each tensor                                         |
| `archive/data/<k>`  | the storage of the k-th tensor of the dict, from 0, little-endian. torch numbers storages in  |
|                     | the order of the pickle, and each tensor has its own                                          |
| `archive/byteorder` | "little"                                                                                      |
| `archive/...`       | version, .format_version, .storage_alignment, .data/serialization_id                          |

The reader never reads data.pkl. It takes data/<k> as the k-th tensor of the dict, and its size must match exactly.
Source: torch/serialization.py.
"""

import gc
import mmap
import sys
from collections import deque
from functools import partial
from pathlib import Path
from typing import IO, cast

from packer.errors import CorruptPack, StorageError
from packer.formats._column_part import (
    MOST_END_BYTES,
    ArraySpan,
    ColumnReader,
    ColumnWriter,
    Contents,
    MappedRecords,
    all_arrays,
    check_end,
    end_record,
    mapping,
    reason,
)
from packer.layouts.zip_archive import ZIP_ERRORS, Archive
from packer.system.parallel import ordered_map

SUFFIX = ".pth"
_END = "packer.json"
_WANTED = {"data.pkl", "byteorder"}
_OTHERS = {"version", ".format_version", ".storage_alignment", ".data/serialization_id"}


class Writer(ColumnWriter):
    """Saves the arrays as tensors with torch, without a copy of their memory."""

    def _save(self, contents: Contents) -> None:
        _save(self.path, end_record(self.schema, self._samples), contents)


class _Sink:
    """A file for torch.save that stores an OSError in `error`, because the C++ code of torch would hide it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: memoryview) -> int:
        """Write `data`, or nothing after a failed write. Return the size of `data` in both cases, as torch expects."""
        done = 0
        try:
            while self.error is None and done < len(data):
                done += self._file.write(data[done:])
        except OSError as error:
            self.error = error
        return len(data)

    def flush(self) -> None:
        """Do nothing: the file has no buffer."""


def _save(path: Path, end: bytes, contents: Contents) -> None:
    import torch  # the import takes 1 s, which reading must not spend

    tensors = {_END: torch.frombuffer(bytearray(end), dtype=torch.uint8)}
    for array, content in contents:
        dtype = getattr(torch, array.dtype.newbyteorder("=").name)
        shape = tuple(length if length is not None else len(content) for length in array.shape)
        flat = torch.frombuffer(content, dtype=dtype) if len(content) else torch.empty(0, dtype=dtype)
        # interned, so that the bytes do not vary: a pickle stores a text that is the same object only once
        tensors[sys.intern(array.name("."))] = flat.reshape(shape)
    with path.open("r+b", buffering=0) as file:
        sink = _Sink(file)
        # an open file, because torch would write the name of a path into the archive
        save = partial(torch.save, f=cast(IO[bytes], sink))
        try:
            # in another thread: torch would turn an interrupt inside the sink into a failed write
            deque(ordered_map(save, [tensors], threads=2), maxlen=0)
        except RuntimeError as error:
            raise StorageError(f"{path}: cannot write: {reason(error)}; free space or choose another folder") from error
        if sink.error is not None:
            raise sink.error
    if any(isinstance(content, mmap.mmap) for _, content in contents):
        # torch 2.6 keeps saved tensors in a reference cycle, and with them the disk space of the spools
        del tensors, flat
        gc.collect()


class Reader(ColumnReader):
    """Finds the tensors in the directory of the zip file, without unpickling. Values are slices of the mapped file."""

    def _open(self, *, readahead: bool) -> MappedRecords:
        wanted = all_arrays(self.schema, self.samples)
        storages = {f"data/{number}" for number in range(1 + len(wanted))}
        with self.path.open("rb") as file, mapping(self.path, file.fileno(), readahead=readahead) as mapped:
            try:
                entries = Archive(mapped, file, wanted=storages | _WANTED, others=_OTHERS, in_folder=True).places()
                order = entries["byteorder"]
                if order.size_bytes != 6 or mapped[order.offset : order.offset + 6] != b"little":
                    raise ValueError("its numbers are not little-endian")
            except ZIP_ERRORS as error:
                raise CorruptPack(f"{self.path}: not a .pth part: {reason(error)}; copy or pack it again") from error
            end = entries["data/0"]
            found = mapped[end.offset : end.offset + min(end.size_bytes, MOST_END_BYTES + 1)]
            check_end(self.path, found, schema=self.schema, samples=self.samples)
            places = {}
            for number, array in enumerate(wanted, 1):
                entry = entries[f"data/{number}"]
                if array.size_bytes not in (None, entry.size_bytes):
                    raise CorruptPack(
                        f"{self.path}: {array.name('.')} has {entry.size_bytes} bytes, expected {array.size_bytes}; "
                        "pack again"
                    )
                places[array] = ArraySpan(entry.offset, entry.size_bytes)
            return MappedRecords(self.path, mapped, schema=self.schema, places=places)
