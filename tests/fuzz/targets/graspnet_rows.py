"""GraspNet rows: what is read is finite, of a whole object, and as many rows as the file says."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.sources.grasp.graspnet_rect import COLUMNS, read_graspnet_rows
from tests.fuzz import words
from tests.fuzz.target import Disagreement

TOKENS = (*words.NPY, b"(1, 7)", b"(0, 7)", b"\x00\x00\xc0\x7f", b"\xff\xff\x7f\x7f")
_PATH = Path("fuzz.npy")


def seeds() -> Iterator[bytes]:
    for dtype, count in (("<f4", 3), ("<f8", 1), (">f8", 2), ("<f4", 0)):
        file = io.BytesIO()
        np.save(file, np.arange(count * COLUMNS).reshape(count, COLUMNS).astype(dtype))
        yield file.getvalue()


def check(data: bytes) -> None:
    found = read_graspnet_rows(data, _PATH)
    sound = np.isfinite(found.rows).all() and np.isfinite(found.corners).all() and found.dropped >= 0
    if not sound or len(found.rows) != len(found.corners) or found.rows.shape[1] != COLUMNS:
        raise Disagreement(f"{found}")
