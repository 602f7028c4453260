"""BMP headers."""

from collections.abc import Iterator

import numpy as np

from tests.fuzz.headers import check_header
from tests.support import image_files

TOKENS = (b"BM", b"\x28\0\0\0", b"\x0c\0\0\0", b"\x6c\0\0\0", b"\x7c\0\0\0", b"\x01\0\x18\0", b"\x01\0\x08\0")


def seeds() -> Iterator[bytes]:
    small = image_files.colors(height=5, width=7)
    yield image_files.with_pillow(small, "BMP")
    yield image_files.with_pillow(small[:, :, 0].copy(), "BMP")
    yield image_files.with_pillow(np.dstack([small, small[:, :, 0]]), "BMP")
    yield b"BM" + bytes(8) + (26).to_bytes(4, "little") + b"\x0c\0\0\0\x03\0\x02\0\x01\0\x18\0" + bytes(24)


def check(data: bytes) -> None:
    check_header(data)
