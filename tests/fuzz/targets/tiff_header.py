"""TIFF directories, of 32 and 64 bit, and the tags that OpenCV must not see."""

from collections.abc import Iterator

import cv2
import numpy as np

from packer.images.file_types import check_end, tiff
from tests.fuzz.headers import check_header
from tests.fuzz.target import Disagreement
from tests.support import image_files

TOKENS = (
    b"II*\0",
    b"MM\0*",
    b"II+\0\x08\0\0\0",
    b"MM\0+\0\x08\0\0",
    b"\x00\x01",
    b"\x01\x01",
    b"\x11\x01",
    b"\x52\x01",
)


def seeds() -> Iterator[bytes]:
    small = image_files.colors(height=5, width=7)
    yield image_files.with_pillow(small, "TIFF")
    yield image_files.with_pillow(small[:, :, 0].copy(), "TIFF")
    yield image_files.with_opencv(small, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, 5)
    yield image_files.with_opencv(small[:, :, 0].astype(np.float32), ".tiff")
    yield image_files.with_orientation(image_files.with_pillow(small, "TIFF"), 6)
    yield image_files.with_pillow(small, "TIFF", big_tiff=True)
    yield image_files.with_pillow(np.dstack([small, small[:, :, 0]]), "TIFF", tiffinfo={338: 2})


def check(data: bytes) -> None:
    found = check_header(
        data, compare=False
    )  # Pillow takes the last of a tag that stands there twice, libtiff the first
    if found.format == "tiff":
        check_end(data, found)
        stored = tiff.as_stored(data)
        if (again := tiff.header(stored))._replace(orientation=1) != found._replace(orientation=1):
            raise Disagreement(f"{found}, and as it is stored {again}")
