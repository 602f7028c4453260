"""pth: one .pth file per part, a dict of plain tensors: torch.load(part, weights_only=True, mmap=True) opens it.

The dict, in this order (fields in schema order):
    "packer.json"        uint8: the end record, JSON {"fields": [names in order], "samples": n}
    "<field>"            [n, *shape], for fields whose encoded values all have one size (numbers, fixed raw)
    "<field>.data"       uint8: the encoded values end to end, for every other field
    "<field>.offsets"    int64 [n + 1]: value i is data[offsets[i]:offsets[i + 1]]
No field name has a dot in it, so no two of these names are ever the same.

Layout of the file (torch/serialization.py: a zip archive in which every entry is stored, not compressed):
    archive/data.pkl     the dict; which tensor lies in which storage, its dtype and shape
    archive/data/<k>     the storage of the k-th tensor of the dict, from 0, little-endian: torch numbers storages as it
                         meets them, and each tensor has its own
    archive/byteorder    "little"
    archive/...          version, .format_version, .storage_alignment, .data/serialization_id
The reader never looks into data.pkl: the k-th array of the layout is data/<k>, and its size must be exactly right.
"""

import gc
import mmap
import sys
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, cast

from packer.errors import CorruptPack, StorageError
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
)
from packer.layouts.zip_archive import ZIP_ERRORS, Archive
from packer.schema import Schema
from packer.system.parallel import ordered_map

SUFFIX = ".pth"
_END = "packer.json"
_WANTED = {"data.pkl", "byteorder"}
_OTHERS = {"version", ".format_version", ".storage_alignment", ".data/serialization_id"}


class Writer(base.Writer):
    """Spools the values of each field, then lets torch save them as tensors over the mapped spools."""

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
            _save(self.path, end_record(self.schema, self._spools.samples), contents)
        self.close()

    def close(self) -> None:
        self._spools.close()


class _Sink:
    """What torch saves into: a plain file. An error waits here, since C++ between us must not see it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: memoryview) -> int:
        """Write all of it, unless an earlier write failed."""
        done = 0
        try:
            while self.error is None and done < len(data):
                done += self._file.write(data[done:])
        except OSError as error:
            self.error = error
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered."""


def _save(path: Path, end: bytes, contents: Sequence[tuple[Array, Content]]) -> None:
    import torch  # 1 s that reading must not take

    tensors = {_END: torch.frombuffer(bytearray(end), dtype=torch.uint8)}
    for array, content in contents:
        dtype = getattr(torch, array.dtype.newbyteorder("=").name)
        shape = tuple(length if length is not None else len(content) for length in array.shape)
        flat = torch.frombuffer(content, dtype=dtype) if len(content) else torch.empty(0, dtype=dtype)
        # interned, for a pickle refers back to a text that is the same object, and so would depend on whose it is
        tensors[sys.intern(array.name("."))] = flat.reshape(shape)
    with path.open("r+b", buffering=0) as file:
        sink = _Sink(file)
        # an open file: its name, unlike a path's, does not get into the archive
        save = partial(torch.save, f=cast(IO[bytes], sink))
        try:
            # in a thread of its own: signals are handled in the main one, and torch would make of an interrupt that
            # comes up in the sink a failed write
            deque(ordered_map(save, [tensors], threads=2), maxlen=0)
        except RuntimeError as error:
            raise StorageError(f"{path}: cannot write: {reason(error)}; free space or choose another folder") from error
        if sink.error is not None:
            raise sink.error
    if any(isinstance(content, mmap.mmap) for _, content in contents):
        # torch 2.6 keeps what it saved in a cycle, and with it the space of the spools on the disk
        del tensors, flat
        gc.collect()


class Reader(base.Reader):
    """Finds the storages in the zip's directory, unpickling nothing; values are slices of the mapped file."""

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        super().__init__(path, schema, samples=samples, readahead=readahead)
        with opening(path), path.open("rb") as file, mapping(path, file.fileno(), readahead=readahead) as mapped:
            self._rows = MappedRecords(path, mapped, schema=schema, places=self._places(mapped, file))

    def _places(self, mapped: mmap.mmap, file: IO[bytes]) -> dict[Array, ArraySpan]:
        wanted = [array for name in self.schema.names for array in arrays(self.schema, name, self.samples)]
        storages = {f"data/{number}" for number in range(1 + len(wanted))}
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
        storages_of = ((array, entries[f"data/{number}"]) for number, array in enumerate(wanted, 1))
        places = {array: ArraySpan(entry.offset, entry.size_bytes) for array, entry in storages_of}
        for array, place in places.items():
            if array.size_bytes not in (None, place.size_bytes):
                raise CorruptPack(
                    f"{self.path}: {array.name('.')} has {place.size_bytes} bytes, expected {array.size_bytes}; "
                    "pack again"
                )
        return places

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        return self._rows.read(row, names)

    def values(self, rows: Sequence[int], name: str) -> Sequence[memoryview]:
        return self._rows.values(rows, name)

    def close(self) -> None:
        self._rows.close()
