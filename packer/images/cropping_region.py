"""Cropping region: the MCUs of a JPEG that libjpeg-turbo 3 is asked for, where a box of its image is wanted.

libjpeg-turbo 3 (`tj3SetCroppingRegion`) reads the entropy-coded data down to the region's last row, and transforms,
enlarges and converts the region's MCUs alone. It begins at whole MCUs, and ends where it is told. What a pixel is made
of lies in its own MCU and, with subsampled chroma, beside the pixel (packer.images.lossless_jpeg_crop), so one pixel
more on each side gives the pixels of the whole image; and 16 px a row do, because components of 1 or 2 samples a row
are enlarged in another way.

What follows the region is not read, so this is for bytes that a checksum vouches for. The scale is 8/8 and chroma is
filtered: libjpeg-turbo's other upsampling has had faults beside skipped rows (its ChangeLog, 2.1.4 and before), as
have samplings other than 4:4:4, 4:2:2 and 4:2:0.
"""

from packer.images import lossless_jpeg_crop
from packer.images.headers._header_record import Buffer, Header
from packer.images.headers.jpeg import END
from packer.images.lossless_jpeg_crop import FULL_SCALE, Box, span

_MCUS = {(8, 8), (8, 16), (16, 16)}
_FEWEST_COLUMNS_PX = 16


def around(buffer: Buffer, found: Header, box: Box) -> Box | None:
    """The region, (top, left, height, width) in px, that has all pixels of `box`.

    None where the file does not end with an end marker, has restart intervals, several scans or another sampling, and
    where too little would be left out.
    """
    scan = found.scan
    if scan is None or scan.intervals is not None or scan.mcu not in _MCUS or buffer[-2:] != END:
        return None
    top, left, height, width = box
    first, last = span(top, height, scan.mcu[0], eighths=FULL_SCALE)
    begin, end = span(left, width, scan.mcu[1], eighths=FULL_SCALE)
    while begin and min(end * scan.mcu[1], found.width) - begin * scan.mcu[1] < _FEWEST_COLUMNS_PX:
        begin -= 1
    top, left = first * scan.mcu[0], begin * scan.mcu[1]
    height = min(last * scan.mcu[0], found.height) - top
    width = min(end * scan.mcu[1], found.width) - left
    left_out = found.height * found.width - height * width
    return (top, left, height, width) if left_out >= lossless_jpeg_crop.WORTH_PX else None
