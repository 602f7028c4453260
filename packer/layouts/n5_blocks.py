"""N5 blocks: the files of an N5 data set, and what attributes.json says of all of them.

Layout (N5 specification 4.0.0): the file of a block is `p0/p1/.../pn`, its place in the grid along each dimension; it
has, big-endian,
    u16 mode (0: of fixed shape), u16 number of dimensions, u32 length along each, the numbers
of which only the numbers are compressed. Dimensions are in column-major order: a NumPy array (N, H, W, C) has the
dimensions [C, W, H, N], and its bytes are those of C order. Here shapes and places are in NumPy's order. Blocks at the
edge are short or whole; one that is not there is zeros.
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
_LZMA_BYTES = 256 << 20  # of memory of its decoder
_HEAD = struct.Struct(">HH")
MOST_FILE_BYTES = (1 << 31) - 1  # of a block: Java's readers have it in one array
_VERSION = "4.0.0"


class Attributes(NamedTuple):
    """What a data set is: shape of the array and of a block, dtype as stored, name of the compression."""

    shape: tuple[int, ...]
    block: tuple[int, ...]
    dtype: np.dtype[Any]
    compression: str


def _unzip(data: bytes, most: int) -> bytes:
    decoder = zlib.decompressobj(32 + zlib.MAX_WBITS)  # gzip, or zlib as `useZlib` says
    return _whole(decoder.decompress(data, most), is_done=decoder.eof)


def _unbzip(data: bytes, most: int) -> bytes:
    decoder = bz2.BZ2Decompressor()
    return _whole(decoder.decompress(data, most), is_done=decoder.eof)


def _unxz(data: bytes, most: int) -> bytes:
    decoder = lzma.LZMADecompressor(memlimit=_LZMA_BYTES)
    return _whole(decoder.decompress(data, most), is_done=decoder.eof)


def _whole(data: bytes, *, is_done: bool) -> bytes:
    if not is_done:
        raise ValueError("its compressed data do not end where they should")
    return data


# compression -> what undoes it, for at most so many bytes
_UNPACK: dict[str, Callable[[bytes, int], bytes]] = {
    "raw": lambda data, most: data[:most],
    "gzip": _unzip,
    "bzip2": _unbzip,
    "xz": _unxz,
}
_ERRORS = (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError)


def as_dataset(text: bytes) -> dict[str, Any] | None:
    """The members of attributes.json of a data set; None for a group. Raises BadInput for text that is not JSON."""
    try:
        found = json_value(text, finite=False)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"its attributes.json is not JSON: {printable(str(error))}") from error
    keys = {"dimensions", "blockSize", "dataType"}
    return found if isinstance(found, dict) and keys <= found.keys() else None


def attributes(said: dict[str, Any]) -> Attributes:
    """What the members of `as_dataset` say; raises BadInput with the reason where no such array can be read."""
    shape, block, dtype = _lengths(said["dimensions"]), _lengths(said["blockSize"]), said["dataType"]
    if len(shape) != len(block):
        raise BadInput(f"has dimensions {shape[::-1]} and blocks {block[::-1]}")
    if dtype not in DTYPES:
        raise BadInput(f"is of type {dtype!r:.40}, expected one of {', '.join(DTYPES)}")
    compression = said.get("compression", {"type": said.get("compressionType", "raw")})
    kind = compression.get("type") if isinstance(compression, dict) else None
    if not isinstance(kind, str) or kind not in _UNPACK:
        raise BadInput(
            f"is compressed with {kind!r:.40}; packer reads {', '.join(_UNPACK)}: write it anew in one of them"
        )
    return Attributes(shape, block, np.dtype(dtype).newbyteorder(">"), kind)


def _lengths(value: Any) -> tuple[int, ...]:
    """Lengths of JSON, in NumPy's order; raises BadInput."""
    is_list = isinstance(value, list) and 1 <= len(value) <= _MOST_LENGTHS
    if is_list and 0 in value:
        raise BadInput(f"has lengths {value!r:.60}: it is empty")
    if not is_list or not all(type(length) is int and 1 <= length <= _MOST_LENGTH for length in value):
        raise BadInput(f"has lengths {value!r:.60}, expected at most {_MOST_LENGTHS}, each at least 1")
    return tuple(reversed(value))


def numbers(data: bytes, found: Attributes, place: tuple[int, ...]) -> npt.NDArray[Any]:
    """The numbers of the block at a place in the grid; raises BadInput with the reason where it holds none."""
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
            raise ValueError(f"a block of {lengths} at {place}, expected {found.block}, or what is left at the edge")
    size = math.prod(lengths) * found.dtype.itemsize
    stored = _UNPACK[found.compression](data[data_at:], size + 1)
    if len(stored) != size:
        raise ValueError(f"{len(stored)} bytes of numbers, expected {size} for {lengths}")
    return np.frombuffer(stored, found.dtype).reshape(lengths)


# ---- writing


def root_attributes() -> bytes:
    """attributes.json of a container."""
    return _json({"n5": _VERSION})


def dataset_attributes(found: Attributes) -> bytes:
    """attributes.json of a data set."""
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
    """The path of a block's file below its data set; place: in NumPy's order."""
    return "/".join(str(at) for at in reversed(place))


def block_header(lengths: Sequence[int]) -> bytes:
    """What stands before the numbers of a block; lengths: of it, in NumPy's order."""
    return _HEAD.pack(0, len(lengths)) + struct.pack(f">{len(lengths)}I", *reversed(lengths))
