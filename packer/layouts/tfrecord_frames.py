"""TFRecord frames: what stands around each record of a TFRecord file, and the lines of its index.

Layout of a record (tensorflow/core/lib/io/record_writer.h), little-endian:
    u64 length, u32 masked crc32c of these 8 bytes, the data, u32 masked crc32c of them
An index (vahidk's and DALI's tfrecord2idx) is a text: a line `offset length` for each record, frame included.
"""

import struct

from packer.layouts.crc32c import masked_crc32c

HEAD = struct.Struct("<QI")
FRAME_BYTES = 16  # of a record, besides its data
_CRC = struct.Struct("<I")


def begins(start: bytes) -> bool:
    """Whether a file begins with a record."""
    return len(start) >= HEAD.size and is_head(start[: HEAD.size])


def is_head(head: bytes) -> bool:
    """Whether the length of a record is what its checksum says."""
    return bool(masked_crc32c(head[:8]) == HEAD.unpack(head)[1])


def checksums(record: bytes) -> tuple[int, int]:
    """Of a whole record: the masked crc32c of its data, and the one that it says."""
    return masked_crc32c(record[HEAD.size : -_CRC.size]), _CRC.unpack_from(record, len(record) - _CRC.size)[0]


def frame(data: bytes) -> tuple[bytes, bytes]:
    """What stands before some data in a file, and what behind them."""
    length = len(data).to_bytes(8, "little")
    return length + _CRC.pack(masked_crc32c(length)), _CRC.pack(masked_crc32c(data))


def index_line(offset: int, data_bytes: int) -> bytes:
    """Of the index, for a record of so much data."""
    return b"%d %d\n" % (offset, data_bytes + FRAME_BYTES)
