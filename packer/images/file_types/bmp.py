"""BMP: header, the size of the file that follows from it, and a palette that makes decoders return indices.

Layout: Windows BITMAPFILEHEADER with BITMAPCOREHEADER (12 bytes) or BITMAPINFOHEADER (40 bytes and longer).
"""

import struct

from packer.images.file_types._header_record import Buffer, Header, damaged

MAGIC = b"BM"

_PLAIN, _FIELDS = 0, 3  # BI_RGB, BI_BITFIELDS; truncation of run-length data cannot be detected
_BITS = (1, 4, 8, 16, 24, 32)


def header(buffer: Buffer) -> Header:
    """Parse the header of a BMP file. Raise DamagedImage or struct.error if it is damaged."""
    (size,) = struct.unpack_from("<I", buffer, 14)
    if size == 12:
        width, height, planes, bits = struct.unpack_from("<HHHH", buffer, 18)
        compression = _PLAIN
    elif 40 <= size <= 124:
        width, height, planes, bits, compression = struct.unpack_from("<iiHHI", buffer, 18)
    else:
        raise damaged("bmp", f"its info header has {size} bytes, expected 12 or 40 to 124")
    if planes != 1 or bits not in _BITS or compression not in (_PLAIN, _FIELDS):
        raise damaged("bmp", f"{planes} planes of {bits} bit with compression {compression} are not supported")
    channels, palette = (4 if bits == 32 else 3), False
    if bits <= 8:
        at, count, entry = _table(buffer)
        table = bytes(buffer[at : at + count * entry])
        is_gray = table[0::entry] == table[1::entry] == table[2::entry]
        channels = 1 if is_gray else 3
        palette = not is_gray or table[0::entry] != (b"\0\xff" if bits == 1 else bytes(range(count)))
    return Header("bmp", abs(height), width, channels, palette=palette, bits=min(bits, 8))


def _table(buffer: Buffer) -> tuple[int, int, int]:
    """Return the offset, the number of entries, and the bytes per entry of a color table for up to 8 bits."""
    (size,) = struct.unpack_from("<I", buffer, 14)
    (bits,) = struct.unpack_from("<H", buffer, 24 if size == 12 else 28)
    colors = struct.unpack_from("<I", buffer, 46)[0] if size > 12 else 0
    (start,) = struct.unpack_from("<I", buffer, 10)
    at, entry = 14 + size, 3 if size == 12 else 4
    count = colors if 0 < colors <= 1 << bits else 1 << bits
    return at, min(count, max(0, min(start, len(buffer)) - at) // entry), entry  # pixels begin at `start`


def with_indices(buffer: Buffer) -> Buffer:
    """Return a copy of the file with a palette of grays, so that a decoder returns the indices as gray values."""
    at, count, entry = _table(buffer)
    changed = bytearray(buffer)
    for part in range(3):
        changed[at + part : at + count * entry : entry] = bytes(range(count))
    return changed


def check_end(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if the file is shorter than its rows, which are padded to a multiple of 4 bytes each."""
    (start,) = struct.unpack_from("<I", buffer, 10)
    (size,) = struct.unpack_from("<I", buffer, 14)
    (bits,) = struct.unpack_from("<H", buffer, 24 if size == 12 else 28)
    needed = start + (found.width * bits + 31) // 32 * 4 * found.height
    if len(buffer) < needed:
        raise damaged("bmp", f"it is cut: {len(buffer)} bytes, expected {needed}")
