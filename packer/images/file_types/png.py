"""PNG: header, chunks, and a change of the file, after which OpenCV returns stored samples.

Layout: PNG specification, third edition: section 5 (datastream, chunks, crc32), 11.2.1 (IHDR), 11.3.2.7 (eXIf),
11.3.2.1 (acTL, frames of an animation).
"""

import struct
import zlib
from collections.abc import Iterator

from packer.images.file_types import exif
from packer.images.file_types._header_record import Buffer, Header, damaged

MAGIC = b"\x89PNG\r\n\x1a\n"

_GRAY, _RGB, _PALETTE, _GRAY_ALPHA, _RGB_ALPHA = 0, 2, 3, 4, 6
_CHANNELS = {_GRAY: 1, _RGB: 3, _PALETTE: 3, _GRAY_ALPHA: 2, _RGB_ALPHA: 4}
_BITS = {_GRAY: (1, 2, 4, 8, 16), _PALETTE: (1, 2, 4, 8)}
_NEEDED = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_MAX_CHUNKS = 1_000_000  # 1 GiB in chunks of 8 KiB has 131 072


def header(buffer: Buffer) -> Header:
    """Parse the header of a PNG file. Raise DamagedImage or struct.error if it is damaged."""
    length, name, width, height, bits, color, method, filters, lace = struct.unpack_from(">I4sIIBBBBB", buffer, 8)
    if name != b"IHDR" or length != 13 or bits not in _BITS.get(color, (8, 16)) or color not in _CHANNELS:
        raise damaged("png", f"its first chunk is {name!r} with color type {color}, {bits} bit, expected a valid IHDR")
    if method or filters or lace > 1:
        raise damaged("png", f"unknown compression {method}, filter {filters} or interlace {lace}")
    orientation = 1
    for chunk, at, size in chunks(buffer):
        if chunk == b"eXIf":
            orientation = exif.orientation(buffer, at, at + size)
        elif chunk == b"acTL" and struct.unpack_from(">I", buffer, at)[0] != 1:
            raise damaged("png", "animations are not supported, expected one image")
    return Header(
        "png",
        height,
        width,
        _CHANNELS[color],
        "uint16" if bits == 16 else "uint8",
        orientation,
        palette=color == _PALETTE,
        bits=bits,
    )


def chunks(buffer: Buffer) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, data offset, data length) of each complete chunk, up to and including IEND."""
    at, end = 8, len(buffer)
    for _ in range(_MAX_CHUNKS):
        if at + 12 > end:
            return
        length, name = struct.unpack_from(">I4s", buffer, at)
        if at + 12 + length > end:
            return
        yield name, at + 8, length
        if name == b"IEND":
            return
        at += 12 + length
    raise damaged("png", f"it has more than {_MAX_CHUNKS} chunks, the limit")


def check_end(buffer: Buffer, _: Header) -> None:
    """Raise DamagedImage unless the file contains the chunk IDAT and ends with the chunk IEND."""
    names = [name for name, _, _ in chunks(buffer)]
    if names[-1] != b"IEND" or b"IDAT" not in names:
        raise damaged("png", f"it is cut: {len(names)} whole chunks of {len(buffer)} bytes do not lead to IEND")


def check_chunks(buffer: Buffer) -> None:
    """Raise DamagedImage if the crc32 of a chunk is wrong."""
    with memoryview(buffer) as view:
        for name, at, length in chunks(buffer):
            found = zlib.crc32(view[at - 4 : at + length])
            (stored,) = struct.unpack_from(">I", buffer, at + length)
            if found != stored:
                raise damaged("png", f"chunk {name!r} at byte {at} has crc32 {found:08x}, expected {stored:08x}")


def bare(buffer: Buffer, *, as_gray: bool = False) -> Buffer:
    """Return the file without chunks that do not define samples: profiles, EXIF, transparency.

    libpng prints warnings about profiles, and OpenCV converts transparency to a channel. If `as_gray` is True, the
    color type of a palette file becomes gray. A decoder then returns the indices. Indices of fewer than 8 bits are
    scaled to 0-255.
    """
    parts = [(name, at, length) for name, at, length in chunks(buffer)]
    wanted = [part for part in parts if part[0] in _NEEDED and not (as_gray and part[0] == b"PLTE")]
    if wanted == parts:
        return buffer
    pieces = [MAGIC, *(bytes(buffer[at - 8 : at + length + 4]) for _, at, length in wanted)]
    if as_gray:
        first = b"IHDR" + bytes(buffer[16:25]) + bytes([_GRAY]) + bytes(buffer[26:29])
        pieces[1] = struct.pack(">I", 13) + first + struct.pack(">I", zlib.crc32(first))
    return b"".join(pieces)
