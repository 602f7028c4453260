"""TFRecord frames: the bytes around each record of a TFRecord file, and the lines of its index.

A record, little-endian: u64 length, u32 masked crc32c of these 8 bytes, the data, u32 masked crc32c of the data.
An index is text: a line `offset length` for each record, frame included.

The checksum is CRC-32C (RFC 3720, appendix B.4; polynomial 0x1EDC6F41, here bit-reversed). If google-crc32c is
installed, it computes the checksum; a slow loop in Python is the fallback.
Source: tensorflow/core/lib/io/record_writer.h; tfrecord2idx of vahidk's tfrecord and of DALI.
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

from packer.schema import Buffer

HEAD = struct.Struct("<QI")
FRAME_BYTES = 16  # of a record without its data
_CRC = struct.Struct("<I")
_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF


def begins(start: bytes) -> bool:
    """Return True if `start`, the first bytes of a file, begins a record; False for fewer than 12 bytes."""
    return len(start) >= HEAD.size and is_head(start[: HEAD.size])


def is_head(head: bytes) -> bool:
    """Return True if `head`, the first 12 bytes of a record, contains a length with a correct checksum."""
    return bool(masked_crc32c(head[:8]) == HEAD.unpack(head)[1])


def checksums(record: bytes) -> tuple[int, int]:
    """Return the masked crc32c computed over the data of a record, and the checksum that the record stores."""
    return masked_crc32c(record[HEAD.size : -_CRC.size]), _CRC.unpack_from(record, len(record) - _CRC.size)[0]


def frame(data: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and the bytes after the data of a record."""
    length = len(data).to_bytes(8, "little")
    return length + _CRC.pack(masked_crc32c(length)), _CRC.pack(masked_crc32c(data))


def index_line(offset: int, data_bytes: int) -> bytes:
    """Return the line of the index for a record with `data_bytes` bytes of data."""
    return b"%d %d\n" % (offset, data_bytes + FRAME_BYTES)


def masked_crc32c(data: Buffer) -> int:
    """Return the crc32c in the form that TFRecord stores: rotated by 15 bits, plus a constant."""
    found = _compiled_or_own()(bytes(data))
    return ((found >> 15 | found << 17) + 0xA282EAD8) & _ONES


@lru_cache(maxsize=1)
def _compiled_or_own() -> Callable[[bytes], int]:
    with suppress(ImportError):
        module: Any = import_module("google_crc32c")
        if module.implementation == "c":
            value: Callable[[bytes], int] = module.value
            return value
    return crc32c


def crc32c(data: bytes) -> int:
    """Compute the checksum in Python; 0xE3069283 for b"123456789"."""
    table, state = _table(), _ONES
    for byte in data:
        state = state >> 8 ^ table[(state ^ byte) & 255]
    return state ^ _ONES


@lru_cache(maxsize=1)
def _table() -> list[int]:
    """Return the 256 entries of the table for a bytewise CRC."""
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (_POLYNOMIAL if value & 1 else 0) for value in table]
    return table
