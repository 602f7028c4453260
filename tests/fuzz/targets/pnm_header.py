"""PNM headers: PBM, PGM and PPM, text and binary."""

from collections.abc import Iterator

import numpy as np

from tests.fuzz.headers import check_header
from tests.support import image_files

TOKENS = (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b" 255\n", b"65535\n", b"#", b"\n", b"\x0b", b"00000000")


def seeds() -> Iterator[bytes]:
    small = image_files.colors(height=3, width=4)
    yield image_files.with_pillow(small, "PPM")
    yield image_files.with_pillow(small[:, :, 0].copy(), "PPM")
    yield image_files.with_opencv(small[:, :, 0].astype(np.uint16), ".pgm")
    yield b"P1\n# a bitmap\n2 2\n1 0\n0 1\n"
    yield b"P3 1 1 255 1 2 3\n"
    yield b"P4 9 1 \xff\x80"


def check(data: bytes) -> None:
    check_header(data, compare=False)  # to Pillow `3#\n5` is one number, to netpbm and OpenCV two
