"""WebP headers: RIFF chunks, VP8, VP8L, VP8X, EXIF."""

from collections.abc import Iterator

import numpy as np

from tests.fuzz.headers import check_header
from tests.support import image_files

TOKENS = (b"RIFF", b"WEBP", b"VP8 ", b"VP8L", b"VP8X\x0a\0\0\0", b"EXIF", b"ALPH", b"ANIM", b"\x9d\x01\x2a", b"II*\0")


def seeds() -> Iterator[bytes]:
    small = image_files.colors(height=5, width=7)
    yield image_files.with_pillow(small, "WEBP")
    yield image_files.with_pillow(small, "WEBP", lossless=True)
    yield image_files.with_pillow(np.dstack([small, small[:, :, 0]]), "WEBP")
    yield image_files.oriented(8, "WEBP", small)


def check(data: bytes) -> None:
    check_header(data)
