"""Headers: detect the format of an image file by its first bytes, never by its name, and parse its header."""

import struct
from collections.abc import Callable
from typing import NamedTuple

from packer.errors import DamagedImage
from packer.images.file_types import bmp, jpeg, npy, png, pnm, tiff, webp
from packer.images.file_types._header_record import MAX_PIXELS, Buffer, Header


class ImageFormat(NamedTuple):
    """One image format.

    Attributes:
        starts: Possible first bytes. Each file of the format begins with one of them.
        suffixes: File suffixes, the usual one first.
        header: Parses the header. Raises DamagedImage, struct.error or IndexError for a damaged header.
        check_end: Raises DamagedImage if the file is shorter than its header requires. None for JPEG.
        start_at_8: Bytes that a file must contain from offset 8 on; empty for no condition.
    """

    starts: tuple[bytes, ...]
    suffixes: tuple[str, ...]
    header: Callable[[Buffer], Header]
    check_end: Callable[[Buffer, Header], None] | None
    start_at_8: bytes = b""


_FORMATS = (
    ImageFormat((jpeg.MAGIC,), (".jpg", ".jpeg", ".jpe", ".jfif"), jpeg.header, None),
    ImageFormat((png.MAGIC,), (".png",), png.header, png.check_end),
    ImageFormat(tiff.MAGICS, (".tiff", ".tif"), tiff.header, tiff.check_end),
    ImageFormat((bmp.MAGIC,), (".bmp",), bmp.header, bmp.check_end),
    ImageFormat((b"P1", b"P4"), (".pbm", ".pnm"), pnm.header, pnm.check_end),
    ImageFormat((b"P2", b"P5"), (".pgm", ".pnm"), pnm.header, pnm.check_end),
    ImageFormat((b"P3", b"P6"), (".ppm", ".pnm"), pnm.header, pnm.check_end),
    ImageFormat((npy.MAGIC,), (".npy",), npy.header, npy.check_end),
    ImageFormat((webp.MAGIC,), (".webp",), webp.header, webp.check_end, b"WEBP"),
)
_START_BYTES = 12
_CUT = (struct.error, IndexError, OverflowError)  # OverflowError: an offset of 64 bits


def sniff(buffer: Buffer, max_pixels: int = MAX_PIXELS) -> Header:
    """Parse the header of an image file, without decoding pixels and without a library.

    Args:
        buffer: The file.
        max_pixels: Largest number of pixels that is accepted.

    Raises:
        DamagedImage: The format is unknown, the header is truncated or contradictory, or the image exceeds a limit.
        OutOfMemory: The image has more than MAX_PIXELS pixels, which do not fit into the free memory.
    """
    if len(buffer) == 0:
        raise DamagedImage("cannot decode: the file is empty; replace the file or leave it out")
    format_of = _format(buffer)
    if format_of is None:
        raise DamagedImage(
            f"cannot decode: starts with {bytes(buffer[:8]).hex(' ')}, expected a JPEG, PNG, BMP, TIFF, WebP, PNM or "
            "npy file; replace the file or leave it out"
        )
    try:
        found = format_of.header(buffer)
    except _CUT as error:
        raise _cut(buffer) from error
    found.check_limits(max_pixels)
    return found


def file_suffixes(buffer: Buffer) -> tuple[str, ...]:
    """Return the suffixes of the format that has these first bytes, the usual one first. Return () if none has."""
    found = _format(buffer)
    return () if found is None else found.suffixes


def check_end(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if a file is shorter than its header `found` requires. A JPEG is not checked."""
    format_of = _format(buffer)
    if format_of is not None and format_of.check_end is not None:
        try:
            format_of.check_end(buffer, found)
        except _CUT as error:
            raise _cut(buffer) from error


def _format(buffer: Buffer) -> ImageFormat | None:
    start = bytes(buffer[:_START_BYTES])
    for each in _FORMATS:
        if start.startswith(each.starts) and (not each.start_at_8 or start[8:] == each.start_at_8):
            return each
    return None


def _cut(buffer: Buffer) -> DamagedImage:
    return DamagedImage(
        f"cannot decode: it ends inside its header, after {len(buffer)} bytes; replace the file or leave it out"
    )
