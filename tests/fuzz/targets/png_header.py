"""PNG headers and chunks, and the file without those that do not matter."""

from collections.abc import Iterator

import numpy as np

from packer.images.file_types import check_end, png
from tests.fuzz.headers import check_header
from tests.fuzz.target import Disagreement
from tests.support import image_files

TOKENS = (b"\x89PNG\r\n\x1a\n", b"IHDR", b"IDAT", b"IEND", b"PLTE", b"eXIf", b"tRNS", b"iCCP", b"II*\0", b"MM\0*")


def seeds() -> Iterator[bytes]:
    small = image_files.colors(height=5, width=7)
    yield image_files.with_pillow(small, "PNG")
    yield image_files.with_pillow(np.dstack([small, small[:, :, 0]]), "PNG")
    yield image_files.palette_png(image_files.grays(height=5, width=7) % 4, bits=2)
    yield image_files.oriented(3, "PNG", small)
    yield image_files.with_opencv(small[:, :, 0].astype(np.uint16), ".png")


def check(data: bytes) -> None:
    found = check_header(data)
    if found.format != "png":
        return
    check_end(data, found)
    bare = png.bare(data)
    if (again := png.header(bare))[1:4] != found[1:4]:
        raise Disagreement(f"{found}, and without the other chunks {again}")
    if found.palette:
        png.header(png.bare(data, as_gray=True))
    png.check_chunks(data)
