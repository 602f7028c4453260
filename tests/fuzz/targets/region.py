"""Regions of JPEGs: a box of a file that decodes strictly has the pixels that the whole has there."""

from collections.abc import Iterator

import numpy as np

from packer.errors import PackerError
from packer.images import DecodeOptions, decode, sniff
from packer.images.region_decoder import decode_region
from tests.fuzz import words
from tests.fuzz.target import Disagreement
from tests.support import image_files, restart_jpegs

TOKENS = (*words.RESTARTS, b"\xff\xda", b"\xff\xc0\x00\x11\x08")
_MOST_PX = 1 << 18
_HEAD = 5  # bytes before the file: the box, each in 255ths, and the scale


def seeds() -> Iterator[bytes]:
    files = [
        restart_jpegs.jpeg("420", height=160, width=160, mcus=5, table=table, quality=10) for table in (True, False)
    ]
    files += [
        image_files.jpeg(image_files.colors(height=150, width=160), sampling=name, quality=10)
        for name in ("420", "444")
    ]
    for file in files:
        yield bytes((0, 0, 60, 60, 8)) + file
        yield bytes((140, 80, 80, 50, 4)) + file


def check(data: bytes) -> None:
    head, file = data[:_HEAD].ljust(_HEAD, b"\0"), data[_HEAD:]
    found = sniff(file)
    if found.height * found.width > _MOST_PX:
        return
    top, left = head[0] * (found.height - 1) // 255, head[1] * (found.width - 1) // 255
    height, width = 1 + head[2] * (found.height - top - 1) // 255, 1 + head[3] * (found.width - left - 1) // 255
    try:
        whole = decode(file, "image")
    except PackerError:
        whole = None
    eighths = 8 if head[4] == 8 else 1 + head[4] % 8
    sound = whole is not None  # what is not is never trusted
    region = decode_region(
        file, found, box=(top, left, height, width), eighths=eighths, options=DecodeOptions(trusted=sound)
    )
    if whole is None or region.eighths != 8:
        return
    at, along = top - region.top, left - region.left
    shown = region.pixels[max(at, 0) :, max(along, 0) :][:height, :width]  # beyond the box chroma may lack a neighbor
    if min(at, along) < 0 or not np.array_equal(shown, whole[top : top + height, left : left + width]):
        raise Disagreement(f"box {(top, left, height, width)} of {found} has other pixels than the whole")
