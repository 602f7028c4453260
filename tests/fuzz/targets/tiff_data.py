"""Damaged data in the strips of sound TIFFs: what is taken has the pixels that Pillow reads."""

import functools
import io
import struct
import zlib
from collections.abc import Iterator

import cv2
import numpy as np
from PIL import Image

from packer.images import decode, validate
from tests.fuzz.target import Disagreement
from tests.support import image_files

_COMPRESSIONS = (1, 5, 8, 32773)  # none, LZW, Deflate, PackBits
_REFUSALS = (OSError, ValueError, SyntaxError, EOFError, IndexError, struct.error, zlib.error)


@functools.cache
def _file(form: int) -> tuple[bytes, int, int]:
    """A file, and the first byte and the end of its strips."""
    compression = _COMPRESSIONS[form % len(_COMPRESSIONS)]
    pixels = image_files.colors(height=24, width=32)
    pixels[4:20] = pixels[4, 0]  # something that is shorter when compressed
    if form >= len(_COMPRESSIONS):
        pixels = pixels[:, :, 0].copy()
    file = image_files.with_opencv(pixels, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, compression)
    with Image.open(io.BytesIO(file)) as image:
        offsets, sizes = image.tag_v2[273], image.tag_v2[279]
    return file, min(offsets), max(map(sum, zip(offsets, sizes, strict=True)))


def seeds() -> Iterator[bytes]:
    """A form, then changes of three bytes: the place of a byte, and what it is XORed with."""
    for form in range(2 * len(_COMPRESSIONS)):
        yield bytes((form,))
        yield bytes((form, 0, 40, 0))
        yield bytes((form, 3, 7, 0, 0, 11, 0))


def check(data: bytes) -> None:
    if not data or data[0] >= 2 * len(_COMPRESSIONS):
        return
    file, start, end = _file(data[0])
    damaged = bytearray(file)
    for high, low, mask in zip(data[1::3], data[2::3], data[3::3], strict=False):
        damaged[start + (high << 8 | low) % (end - start)] ^= mask
    found = bytes(damaged)
    validate(found, "image")
    pixels = decode(found, "image")
    try:
        with Image.open(io.BytesIO(found)) as image:
            expected = np.asarray(image.convert("RGB"))
    except _REFUSALS as error:
        raise Disagreement(f"TIFF with compression {_COMPRESSIONS[data[0] % 4]}: Pillow refuses it: {error}") from error
    if not np.array_equal(pixels, expected):
        raise Disagreement(f"TIFF with compression {_COMPRESSIONS[data[0] % 4]}: Pillow reads other pixels")
