"""Strict check: damage in the data of a picture file, JPEG apart, that OpenCV does not report.

| format | what is compared |
|---|---|
| PNG | the crc32 of each chunk; zlib's checksum is OpenCV's to compare |
| TIFF | each strip and tile, decoded to its exact length: see packer.decoders.tiff_data |
| WebP | the last bytes of the picture are needed to decode it: see `_check_webp` |
| PNM as text | every sample is there, a number in range |
| BMP, binary PNM, npy | nothing: plain samples behind a header that gives their length |

JPEG has one outcome for all decoders and is strict whenever it is decoded: see packer.decoders.libjpeg.
"""

from collections.abc import Callable

from packer.decoders import png, pnm, tiff_data, webp
from packer.decoders.header import Buffer, Header, damaged
from packer.registry import import_or_explain


def check_data(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage where the data of a file, not a JPEG, are not what its header announces."""
    check = _CHECKS.get(found.format)
    if check is not None:
        check(buffer, found)


def _check_webp(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage where the file can do without the last bytes of its picture.

    libwebp reads a picture as far as its last pixel needs, and fails where the data end before. Data that were cut and
    filled up, or changed in the middle, decode to other pixels without an error, but hardly ever end where they should.
    """
    shorter = webp.shortened(buffer)
    if shorter is not None and import_or_explain("packer.decoders.opencv", "decoding pictures").decodes(shorter):
        raise damaged("webp", f"the last {webp.SPARE_BYTES} bytes of its picture are not needed to decode it")


_CHECKS: dict[str, Callable[[Buffer, Header], None]] = {
    "png": lambda buffer, _: png.check_chunks(buffer),
    "tiff": tiff_data.check,
    "webp": _check_webp,
    "pnm": pnm.check_text,
}
