"""Headers: detect the format of an image file by its magic bytes, never by its name, and read its header."""

import struct
from collections.abc import Callable

from packer.errors import DamagedImage
from packer.images.headers import bmp, jpeg, npy, png, pnm, tiff, webp
from packer.images.headers._header_record import MAX_PIXELS, Buffer, Header

_READERS: tuple[tuple[bytes | tuple[bytes, ...], Callable[[Buffer], Header]], ...] = (
    (jpeg.MAGIC, jpeg.header),
    (png.MAGIC, png.header),
    (tiff.MAGICS, tiff.header),
    (bmp.MAGIC, bmp.header),
    (pnm.MAGICS, pnm.header),
    (npy.MAGIC, npy.header),
)
_CHECKS: dict[str, Callable[[Buffer, Header], None]] = {
    "png": png.check_end,
    "tiff": tiff.check_end,
    "bmp": bmp.check_end,
    "webp": webp.check_end,
    "pnm": pnm.check_end,
    "npy": npy.check_end,
}
_SUFFIXES: tuple[tuple[bytes | tuple[bytes, ...], tuple[str, ...]], ...] = (
    (jpeg.MAGIC, (".jpg", ".jpeg", ".jpe", ".jfif")),
    (png.MAGIC, (".png",)),
    (tiff.MAGICS, (".tiff", ".tif")),
    (bmp.MAGIC, (".bmp",)),
    ((b"P1", b"P4"), (".pbm", ".pnm")),
    ((b"P2", b"P5"), (".pgm", ".pnm")),
    ((b"P3", b"P6"), (".ppm", ".pnm")),
    (npy.MAGIC, (".npy",)),
    (webp.MAGIC, (".webp",)),
)
_CUT = (struct.error, IndexError, OverflowError)  # OverflowError: a 64 bit offset


def sniff(buffer: Buffer, max_pixels: int = MAX_PIXELS) -> Header:
    """What the header announces; no pixel is decoded and no library loaded. max_pixels: the most that it may announce.

    Raises DamagedImage for bytes of no known format, a cut or contradictory header, and an image beyond the limits.
    """
    if len(buffer) == 0:
        raise DamagedImage("cannot decode: the file is empty; replace the file or leave it out")
    try:
        found = _reader(bytes(buffer[:12]))(buffer)
    except _CUT as error:
        raise _cut(buffer) from error
    found.check_limits(max_pixels)
    return found


def file_suffixes(buffer: Buffer) -> tuple[str, ...]:
    """File suffixes that fit some bytes, the usual one first, by their magic bytes alone; empty for no known format."""
    start = bytes(buffer[:8])
    return next((suffixes for magic, suffixes in _SUFFIXES if start.startswith(magic)), ())


def check_end(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage where the file, not a JPEG, is shorter than its header and directories say."""
    try:
        _CHECKS[found.format](buffer, found)
    except _CUT as error:
        raise _cut(buffer) from error


def _reader(start: bytes) -> Callable[[Buffer], Header]:
    for magic, read in _READERS:
        if start.startswith(magic):
            return read
    if start.startswith(webp.MAGIC) and start[8:] == b"WEBP":
        return webp.header
    raise DamagedImage(
        f"cannot decode: starts with {start[:8].hex(' ')}, expected a JPEG, PNG, BMP, TIFF, WebP, PNM or npy file; "
        f"replace the file or leave it out"
    )


def _cut(buffer: Buffer) -> DamagedImage:
    return DamagedImage(
        f"cannot decode: it ends inside its header, after {len(buffer)} bytes; replace the file or leave it out"
    )
