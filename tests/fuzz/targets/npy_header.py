"""npy as an image: header and pixels, compared with NumPy's reader."""

import io
from collections.abc import Iterator

import numpy as np

from packer.images.file_types import npy
from tests.fuzz import words
from tests.fuzz.headers import check_header
from tests.fuzz.target import Disagreement
from tests.support import image_files

TOKENS = (*words.NPY, b"\x93NUMPY\x03\0", b"(3, 4)", b"'>u2'", b"'<f8'")


def seeds() -> Iterator[bytes]:
    small = image_files.colors(height=3, width=4)
    for array in (
        small,
        small[:, :, 0],
        small.astype(">u2"),
        np.asfortranarray(small[:, :, 1].astype("<f4")),
        small > 9,
    ):
        yield image_files.npy(array)
    file = io.BytesIO()
    np.lib.format.write_array(file, small, version=(2, 0))
    yield file.getvalue()


def check(data: bytes) -> None:
    found = check_header(data, compare=False)
    if found.format != "npy":
        return
    pixels = npy.decode(data, found)
    try:
        expected = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except ValueError as error:
        raise Disagreement(f"NumPy does not read it: {error}") from error
    same = pixels.shape == expected.shape and pixels.dtype == expected.dtype.newbyteorder("=")
    if not same or pixels.tobytes() != expected.astype(pixels.dtype).tobytes():
        raise Disagreement(f"{pixels.shape} {pixels.dtype}, and of NumPy {expected.shape} {expected.dtype}")
