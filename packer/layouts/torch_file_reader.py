"""Torch file reader: the tensor in a .pt or .pth file that torch.save wrote, read without torch and without unpickling.

A zip file whose entries are stored uncompressed, below one folder:

| entry        | content                                                                                              |
|--------------|------------------------------------------------------------------------------------------------------|
| `data.pkl`   | the storage, dtype, shape and strides of each tensor; packer.layouts.pickled reads it                |
| `data/<key>` | the numbers of a storage                                                                             |
| `byteorder`  | "little" or "big"; absent in older, little-endian files                                              |
| others       | version, and other entries that do not affect tensors                                                |

Names in the pickle are never imported. Values that are not tensors of numbers are refused. The crc32 of every entry
that is read is compared.
Source: torch/serialization.py, since torch 1.6.
"""

import io
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.layouts.zip_archive import ZIP_ERRORS, Archive, ArchiveEntry

_ZIP_MAGIC = b"PK\x03\x04"
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # start of files of torch before 1.6
_MOST_PICKLE_BYTES = 1 << 20
_ORDERS = {b"little": "<", b"big": ">"}


def read_tensor(data: bytes) -> npt.NDArray[Any]:
    """Return the tensor in a file as a read-only array; raise BadInput, without the path, for any other content."""
    if data[: len(_LEGACY)] == _LEGACY:
        raise BadInput("written by torch before 1.6, or in its old form; torch.load and torch.save it")
    if data[:4] != _ZIP_MAGIC:
        raise BadInput("it does not begin like a file of torch.save")
    try:
        entries = Archive(data, io.BytesIO(data), wanted=None, in_folder=True).places()
    except ZIP_ERRORS as error:
        raise BadInput(f"damaged: {' '.join(str(error).split())[:200]}") from error
    if "data.pkl" not in entries:
        raise BadInput("it is a zip file, but not of torch.save: no data.pkl in its folder")
    order = _ORDERS.get(bytes(_content(data, entries, "byteorder")) if "byteorder" in entries else b"little")
    if order is None:
        raise BadInput("damaged: its byteorder is neither little nor big")
    return _tensor(data, entries, order)


def _tensor(data: bytes, entries: dict[str, ArchiveEntry], order: str) -> npt.NDArray[Any]:
    from packer.layouts import pickled  # imports a large table, which is not always needed

    if entries["data.pkl"].size_bytes > _MOST_PICKLE_BYTES:
        raise BadInput(f"a pickle of {entries['data.pkl'].size_bytes} bytes, expected at most {_MOST_PICKLE_BYTES}")
    storages: dict[str, memoryview] = {}

    def storage(key: str) -> tuple[memoryview, str]:
        if key not in storages:
            storages[key] = _content(data, entries, f"data/{key}")
        return storages[key], order

    found = pickled.loads(bytes(_content(data, entries, "data.pkl")), storage=storage)
    if not isinstance(found, np.ndarray):
        raise BadInput(f"it holds a {type(found).__name__}, expected a tensor")
    return found


def _content(data: bytes, entries: dict[str, ArchiveEntry], name: str) -> memoryview:
    """Return the bytes of the entry `name`; raise BadInput if it is absent or its crc32 is wrong."""
    entry = entries.get(name)
    if entry is None:
        raise BadInput(f"damaged: no entry {name[:60]!r}")
    found = memoryview(data)[entry.offset : entry.offset + entry.size_bytes]
    if zlib.crc32(found) != entry.crc32:
        raise BadInput(f"damaged: the crc32 of {name[:60]!r} does not match the archive")
    return found
