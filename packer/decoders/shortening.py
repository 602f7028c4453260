"""Shortening: of a JPEG without restart intervals, the one that ends below a part of its picture, pixel for pixel.

The shorter file is the same with another height in its frame: libjpeg decodes as many rows of MCUs, passes over the
rest of the scan, and warns of that when it finds the end marker. Rows above the part cannot be left out: each MCU is
coded as a difference from the one before it. How far a pixel looks around itself, see packer.decoders.cutting.

What libjpeg says of a whole file when its data is damaged, it says most often at the end: bytes are left, or missing.
A shortened file does not get there, so this is for bytes that a checksum vouches for.
"""

from packer.decoders import cutting
from packer.decoders.cutting import Box, span
from packer.decoders.header import Buffer, Header
from packer.decoders.jpeg import END
from packer.scratch import Scratch

_MOST_BYTES_PER_PX = 2  # of a file that is copied; there is something else in longer ones


def height(buffer: Buffer, found: Header, box: Box, eighths: int) -> int | None:
    """How many px of the full height have to be decoded for a box, (top, left, height, width), at scale eighths / 8.

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
    return kept if (found.height - kept) * found.width >= cutting.WORTH_PX else None


def shortened(buffer: Buffer, found: Header, kept: int, scratch: Scratch) -> memoryview:
    """The file with a picture of that height, in the scratch's memory; found.scan is there."""
    size = len(buffer)
    file = scratch.file(size)[1][:size]
    file[:] = buffer
    if found.scan is not None:
        at = found.scan.size_at
        file[at : at + 2] = kept.to_bytes(2, "big")
    return file
