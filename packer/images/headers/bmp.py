"""BMP headers and the size that follows from them.

Layout: Windows BITMAPFILEHEADER with BITMAPCOREHEADER (12 bytes) or BITMAPINFOHEADER (40 bytes and longer).
"""

import struct

from packer.images.headers._header_record import Buffer, Header, damaged

MAGIC = b"BM"

_PLAIN, _FIELDS = 0, 3  # BI_RGB, BI_BITFIELDS; the run-length forms 1 and 2 can end early without a trace
_BITS = (1, 4, 8, 16, 24, 32)


def header(buffer: Buffer) -> Header:
    """The header of a BMP file; raises DamagedImage or struct.error where it is cut or broken."""
    (size,) = struct.unpack_from("<I", buffer, 14)
    if size == 12:
        width, height, planes, bits = struct.unpack_from("<HHHH", buffer, 18)
        compression, colours, entry = _PLAIN, 0, 3
    elif 40 <= size <= 124:
        width, height, planes, bits, compression = struct.unpack_from("<iiHHI", buffer, 18)
        (colours,) = struct.unpack_from("<I", buffer, 46)
        entry = 4
    else:
        raise damaged("bmp", f"its info header has {size} bytes, expected 12 or 40 to 124")
    if planes != 1 or bits not in _BITS or compression not in (_PLAIN, _FIELDS):
        raise damaged("bmp", f"{planes} planes of {bits} bit with compression {compression} are not supported")
    channels, palette = (4 if bits == 32 else 3), bits <= 8
    if palette:
        count = colours if 0 < colours <= 1 << bits else 1 << bits
        table = bytes(buffer[14 + size : 14 + size + count * entry])
        channels = 1 if table[0::entry] == table[1::entry] == table[2::entry] else 3
    return Header("bmp", abs(height), width, channels, palette=palette, bits=min(bits, 8))


def check_end(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage where the file is shorter than its rows, each padded to 4 bytes."""
    (start,) = struct.unpack_from("<I", buffer, 10)
    (size,) = struct.unpack_from("<I", buffer, 14)
    (bits,) = struct.unpack_from("<H", buffer, 24 if size == 12 else 28)
    needed = start + (found.width * bits + 31) // 32 * 4 * found.height
    if len(buffer) < needed:
        raise damaged("bmp", f"it is cut: {len(buffer)} bytes, expected {needed}")
