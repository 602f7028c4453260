""".npy files of an index, compared with NumPy's reader."""

import io
from collections.abc import Iterator

import numpy as np

from packer.files.npy_arrays import map_file
from tests.fuzz import words
from tests.fuzz.scratch import written
from tests.fuzz.target import Disagreement
from tests.support import image_files

TOKENS = (*words.NPY, b"'<i8'", b"False")


def seeds() -> Iterator[bytes]:
    for dtype, shape in (("<i8", (3,)), ("|u1", (4, 2)), ("<f4", (0,)), ("|b1", (5,)), ("<u2", (2, 0))):
        yield image_files.npy(np.zeros(shape, dtype))


def check(data: bytes) -> None:
    path = written("fuzz.npy", data)
    found, _ = map_file(path, len(data))
    expected = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    if found.shape != expected.shape or found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
        raise Disagreement(f"{found.shape} {found.dtype}, and of NumPy {expected.shape} {expected.dtype}")
