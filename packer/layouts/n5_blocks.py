"""N5 blocks: the files of an N5 data set, and its attributes.json.

The file of a block is `p0/p1/.../pn`, its position in the grid along each dimension. Content, big-endian:

| type             | content                                     |
|------------------|---------------------------------------------|
| u16              | mode (0: of fixed shape)                    |
| u16              | number of dimensions                        |
| u32 each         | length along each dimension                 |
| the numbers      | compressed, unlike the header               |

Dimensions are in column-major order. A NumPy array (N, H, W, C) has the dimensions [C, W, H, N], and its bytes are
those of C order. In this module, shapes and positions are in NumPy's order. Blocks at the edge are short or complete;
an absent block is zeros.
Source: N5 specification 4.0.0.
"""

import bz2
import json
import lzma
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, printable
from packer.layouts.json_text import json_value

DTYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64")
_MOST_LENGTHS = 8
_MOST_LENGTH = 1 << 40
_LZMA_BYTES = 256 << 20  # memory of the decoder
_HEAD = struct.Struct(">HH")
MOST_FILE_BYTES = (1 << 31) - 1  # of a block, which is one array in Java
_VERSION = "4.0.0"


class Attributes(NamedTuple):
    """Shape of the array and of a complete block, stored dtype (big-endian), and name of the compression."""

    shape: tuple[int, ...]
    block: tuple[int, ...]
    dtype: np.dtype[Any]
    compression: str


# compression -> function that makes a decoder, with `decompress(data, most_bytes)` and `eof` of the standard library
_DECODERS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(32 + zlib.MAX_WBITS),  # gzip, or zlib (`useZlib`)
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=_LZMA_BYTES),
}
_COMPRESSIONS = ("raw", *_DECODERS)
_ERRORS = (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError)


def as_dataset(text: bytes) -> dict[str, Any] | None:
    """Return the members of a data set's attributes.json, or None for a group. Raises BadInput for other text."""
    try:
        found = json_value(text, finite=False)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"its attributes.json is not JSON: {printable(str(error))}") from error
    keys = {"dimensions", "blockSize", "dataType"}
    return found if isinstance(found, dict) and keys <= found.keys() else None


def attributes(members: dict[str, Any]) -> Attributes:
    """Return the attributes of a data set from the result of `as_dataset`; raises BadInput for other values."""
    shape, block, dtype = _lengths(members["dimensions"]), _lengths(members["blockSize"]), members["dataType"]
    if len(shape) != len(block):
        raise BadInput(f"has dimensions {shape[::-1]} and blocks {block[::-1]}")
    if dtype not in DTYPES:
        raise BadInput(f"is of type {dtype!r:.40}, expected one of {', '.join(DTYPES)}")
    compression = members.get("compression", {"type": members.get("compressionType", "raw")})
    kind = compression.get("type") if isinstance(compression, dict) else None
    if not isinstance(kind, str) or kind not in _COMPRESSIONS:
        raise BadInput(
            f"is compressed with {kind!r:.40}; packer reads {', '.join(_COMPRESSIONS)}: write it with one of them"
        )
    return Attributes(shape, block, np.dtype(dtype).newbyteorder(">"), kind)


def _lengths(value: Any) -> tuple[int, ...]:
    """Return lengths from JSON in NumPy's order; raises BadInput."""
    is_list = isinstance(value, list) and 1 <= len(value) <= _MOST_LENGTHS
    if is_list and 0 in value:
        raise BadInput(f"has lengths {value!r:.60}: it is empty")
    if not is_list or not all(type(length) is int and 1 <= length <= _MOST_LENGTH for length in value):
        raise BadInput(f"has lengths {value!r:.60}, expected at most {_MOST_LENGTHS}, each at least 1")
    return tuple(reversed(value))


def numbers(data: bytes, found: Attributes, place: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the numbers of the block at `place` in the grid, in the shape of the block; raises BadInput for damage."""
    try:
        return _numbers(data, found, place)
    except _ERRORS as error:
        raise BadInput(str(error)) from error


def _numbers(data: bytes, found: Attributes, place: tuple[int, ...]) -> npt.NDArray[Any]:
    ranks = len(found.shape)
    data_at = _HEAD.size + 4 * ranks
    if len(data) < data_at:
        raise ValueError(f"{len(data)} bytes, expected a header of {data_at}")
    mode, count = _HEAD.unpack_from(data)
    if mode != 0 or count != ranks:
        raise ValueError(f"mode {mode} and {count} dimensions, expected mode 0 (of fixed shape) and {ranks}")
    lengths = struct.unpack_from(f">{ranks}I", data, _HEAD.size)[::-1]
    for at, length, step, whole in zip(place, lengths, found.block, found.shape, strict=True):
        if not min(step, whole - at * step) <= length <= step:
            raise ValueError(f"a block of {lengths} at {place}, expected {found.block}, or the rest at the edge")
    size = math.prod(lengths) * found.dtype.itemsize
    stored = _unpacked(data[data_at:], found.compression, most_bytes=size + 1)
    if len(stored) != size:
        raise ValueError(f"{len(stored)} bytes of numbers, expected {size} for {lengths}")
    return np.frombuffer(stored, found.dtype).reshape(lengths)


def _unpacked(data: bytes, compression: str, *, most_bytes: int) -> bytes:
    if compression == "raw":
        return data[:most_bytes]
    decoder = _DECODERS[compression]()
    found: bytes = decoder.decompress(data, most_bytes)
    if not decoder.eof:
        raise ValueError("its compressed data do not end where they should")
    return found


# ---- writing


def root_attributes() -> bytes:
    """Return attributes.json of a container."""
    return _json({"n5": _VERSION})


def dataset_attributes(found: Attributes) -> bytes:
    """Return attributes.json of a data set."""
    return _json(
        {
            "dimensions": list(found.shape[::-1]),
            "blockSize": list(found.block[::-1]),
            "dataType": found.dtype.name,
            "compression": {"type": found.compression},
        }
    )


def _json(members: dict[str, Any]) -> bytes:
    return json.dumps(members, indent=2).encode("ascii") + b"\n"


def block_path(place: Sequence[int]) -> str:
    """Return the path of a block's file below its data set. `place` is in NumPy's order."""
    return "/".join(str(at) for at in reversed(place))


def block_header(lengths: Sequence[int]) -> bytes:
    """Return the header of a block. `lengths` are in NumPy's order."""
    return _HEAD.pack(0, len(lengths)) + struct.pack(f">{len(lengths)}I", *reversed(lengths))
