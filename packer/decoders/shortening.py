"""Shortening: of a JPEG without restart intervals, the one that ends below a part of its picture, pixel for pixel.

The shorter file is the same with another height in its frame: libjpeg decodes as many rows of MCUs, passes over the
rest of the scan, and warns of that when it finds the end marker. Rows above the part cannot be left out: each MCU is
coded as a difference from the one before it. How far a pixel looks around itself, see packer.decoders.cutting.

What libjpeg says of a whole file when its data is damaged, it says most often at the end: bytes are left, or missing.
A shortened file does not get there, so this is for bytes that a checksum vouches for.
"""

from typing import NamedTuple

from packer.decoders import cutting
from packer.decoders.cutting import Box, span
from packer.decoders.header import Buffer, Header
from packer.decoders.jpeg import END
from packer.scratch import Scratch

_MOST_BYTES_PER_PX = 2  # of a file that is copied; there is something else in longer ones


class Rows(NamedTuple):
    """The upper rows of a picture: how many px of its full height, and where the file says how many there are."""

    height: int
    size_at: int


def rows(buffer: Buffer, found: Header, box: Box, eighths: int) -> Rows | None:
    """The rows that have to be decoded for a box, (top, left, height, width), at scale eighths / 8.

    None where the file cannot be shortened or too little would be left out, and where it does not end with an end
    marker: it lacks one, or has a tail that would be copied for nothing.
    """
    scan = found.scan
    if scan is None or scan.intervals is not None or buffer[-2:] != END:
        return None
    if len(buffer) > _MOST_BYTES_PER_PX * found.height * found.width:
        return None
    _, last = span(box[0], box[2], scan.mcu[0] * eighths // 8, eighths=eighths)
    kept = last * scan.mcu[0]
    return Rows(kept, scan.size_at) if (found.height - kept) * found.width >= cutting.WORTH_PX else None


def shortened(buffer: Buffer, kept: Rows, scratch: Scratch) -> memoryview:
    """The file with a picture of these rows, in the scratch's memory."""
    size = len(buffer)
    file = scratch.file(size)[1][:size]
    file[:] = buffer
    file[kept.size_at : kept.size_at + 2] = kept.height.to_bytes(2, "big")
    return file
