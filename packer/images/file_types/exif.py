"""EXIF: the tag of the orientation, in a TIFF block that JPEG (APP1), PNG (eXIf) and WebP (EXIF) contain.

Layout: TIFF 6.0 section 2 (header and image file directory), EXIF 2.3 section 4.6.4, tag 0x0112.
"""

import struct

from packer.images.file_types._header_record import Buffer

_ORIENTATION = 0x0112
_SHORT = 3


def orientation(buffer: Buffer, at: int, end: int) -> int:
    """Return the orientation, 1 to 8, in the TIFF block from `at` to `end`. Return 1 if it is absent or invalid."""
    mark = bytes(buffer[at : at + 2])
    if mark not in (b"II", b"MM"):
        return 1
    order = "<" if mark == b"II" else ">"
    try:
        (first,) = struct.unpack_from(order + "I", buffer, at + 4)
        (count,) = struct.unpack_from(order + "H", buffer, at + first)
        place = at + first + 2
        for entry in range(place, min(place + 12 * count, end - 11), 12):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", buffer, entry)
            if tag == _ORIENTATION:
                return value if kind == _SHORT and 1 <= value <= 8 else 1
    except struct.error:
        return 1
    return 1
