"""Point clouds: the depth image has the size and the dtype, and nothing warns."""

import warnings
from collections.abc import Iterator
from pathlib import Path

from packer.sources.grasp.cornell import read_depth
from tests.fuzz import words
from tests.fuzz.target import Disagreement

TOKENS = (*words.TEXT, *words.NUMBERS, b"DATA ascii\n", b"DATA binary\n", b".", b"123456789012345")
_PATH = Path("fuzz.txt")
_HEAD = b"# .PCD v.7\nFIELDS x y z rgb index\nDATA ascii\n"


def seeds() -> Iterator[bytes]:
    yield _HEAD + b"1.5 -2 3 0 0\n4 5 6.25 NaN 7\n"
    yield _HEAD + b"0.1 0.2 0.3 2.3e-38 3\r\n\n1 2 3 4\n1 1 1 1 11\n"


def check(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        depth = read_depth(data, _PATH, height=3, width=4)
    if depth.shape != (3, 4) or depth.dtype != "float32":
        raise Disagreement(f"{depth.shape} {depth.dtype}")
