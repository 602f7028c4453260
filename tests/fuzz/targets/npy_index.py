""".npy files of an index, compared with NumPy's reader."""

import io
from collections.abc import Iterator

import numpy as np

from packer.files.npy_arrays import map_file
from tests.fuzz.scratch import written
from tests.fuzz.target import Disagreement
from tests.support import image_files

TOKENS = (
    b"\x93NUMPY\x01\0",
    b"'descr': '<i8'",
    b"'|u1'",
    b"'<f4'",
    b"False",
    b"True",
    b"(0, 1)",
    b"999999999999999999",
    b", }",
)
MOST_BYTES = 1024


def seeds() -> Iterator[bytes]:
    for dtype, shape in (("<i8", (3,)), ("|u1", (4, 2)), ("<f4", (0,)), ("|b1", (5,)), ("<u2", (2, 0))):
        yield image_files.npy(np.zeros(shape, dtype))


def check(data: bytes) -> None:
    path = written("fuzz.npy", data)
    found, _ = map_file(path, len(data))
    expected = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    if found.shape != expected.shape or found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
        raise Disagreement(f"{found.shape} {found.dtype}, and of NumPy {expected.shape} {expected.dtype}")
