"""WebP headers: RIFF chunks, VP8, VP8L, VP8X, EXIF."""

from collections.abc import Iterator

import numpy as np
import pictures

from fuzz.headers import check_header

TOKENS = (b"RIFF", b"WEBP", b"VP8 ", b"VP8L", b"VP8X\x0a\0\0\0", b"EXIF", b"ALPH", b"ANIM", b"\x9d\x01\x2a", b"II*\0")


def seeds() -> Iterator[bytes]:
    small = pictures.colours(height=5, width=7)
    yield pictures.with_pillow(small, "WEBP")
    yield pictures.with_pillow(small, "WEBP", lossless=True)
    yield pictures.with_pillow(np.dstack([small, small[:, :, 0]]), "WEBP")
    yield pictures.oriented(8, "WEBP", small)


def check(data: bytes) -> None:
    check_header(data)
