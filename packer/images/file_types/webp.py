"""WebP: header, the size of the file that it states, and a shortened file for the strict check.

Layout: WebP container specification (RIFF, VP8, VP8L, VP8X); RFC 6386 section 9.1 (VP8 frame); WebP lossless section 3.
"""

import struct

from packer.images.file_types import exif
from packer.images.file_types._header_record import Buffer, Header, damaged

MAGIC = b"RIFF"  # and WEBP at byte 8

SPARE_BYTES = 8  # libwebp adds up to 4 bytes after the last pixel; libvpx adds 4
_LEAST_BYTES = 64  # smallest shortened image

_ANIMATED, _ALPHA = 0x02, 0x10


def header(buffer: Buffer) -> Header:
    """Parse the header of a WebP file. Raise DamagedImage or struct.error if it is damaged."""
    (size,) = struct.unpack_from("<I", buffer, 4)
    end, at, orientation, alpha = min(8 + size, len(buffer)), 12, 1, False
    image: Header | None = None
    while at + 8 <= end:
        name, length = struct.unpack_from("<4sI", buffer, at)
        if name == b"VP8X":
            alpha = bool(_extended(buffer, at + 8) & _ALPHA)
        elif name == b"EXIF":
            orientation = exif.orientation(buffer, at + 8, min(at + 8 + length, end))
        elif name in (b"VP8 ", b"VP8L") and image is None:
            image = (_lossy if name == b"VP8 " else _lossless)(buffer, at + 8)
        at += 8 + length + (length & 1)
    if image is None:
        raise damaged("webp", "it does not contain a still image")
    channels = 4 if alpha else image.channels
    return Header("webp", image.height, image.width, channels, orientation=orientation, lossy=image.lossy)


def _extended(buffer: Buffer, at: int) -> int:
    flags = buffer[at]
    if flags & _ANIMATED:
        raise damaged("webp", "animations are not supported, expected one image")
    return flags


def _lossy(buffer: Buffer, at: int) -> Header:
    start, width, height = struct.unpack_from("<3sHH", buffer, at + 3)
    if start != b"\x9d\x01\x2a":
        raise damaged("webp", f"its VP8 frame starts with {start.hex()}, expected 9d012a")
    return Header("webp", height & 0x3FFF, width & 0x3FFF, 3, lossy=True)


def _lossless(buffer: Buffer, at: int) -> Header:
    mark, bits = struct.unpack_from("<BI", buffer, at)
    if mark != 0x2F:
        raise damaged("webp", f"its VP8L data starts with 0x{mark:02x}, expected 0x2f")
    return Header("webp", (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, 4 if bits >> 28 & 1 else 3)


def check_end(buffer: Buffer, _: Header) -> None:
    """Raise DamagedImage if the file is shorter than the size in its RIFF header."""
    (size,) = struct.unpack_from("<I", buffer, 4)
    if len(buffer) < 8 + size:
        raise damaged("webp", f"it is cut: {len(buffer)} bytes, expected {8 + size}")


def shortened(buffer: Buffer) -> bytes | None:
    """Return the file up to SPARE_BYTES before the end of its image data, or None if the image is too small."""
    (size,) = struct.unpack_from("<I", buffer, 4)
    at = 12
    while at + 8 <= min(8 + size, len(buffer)):
        name, length = struct.unpack_from("<4sI", buffer, at)
        if name in (b"VP8 ", b"VP8L"):
            kept = length - SPARE_BYTES
            if kept < _LEAST_BYTES:
                return None
            chunk = struct.pack("<4sI", name, kept) + bytes(buffer[at + 8 : at + 8 + kept]) + b"\0" * (kept & 1)
            body: bytes = b"WEBP" + bytes(buffer[12:at]) + chunk
            return MAGIC + struct.pack("<I", len(body)) + body
        at += 8 + length + (length & 1)
    return None
