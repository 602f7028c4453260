"""Point clouds: the depth image has the size and the dtype, and nothing warns."""

import warnings
from collections.abc import Iterator
from pathlib import Path

from packer.sources.grasp import _point_cloud as point_cloud
from tests.fuzz.target import Disagreement

TOKENS = (
    b"DATA ascii\n",
    b"DATA binary\n",
    b"nan",
    b"-inf",
    b"1e400",
    b".",
    b"-.5",
    b"123456789012345",
    b"\x0b",
    b"\x0c",
    b"\r\n",
)
MOST_BYTES = 1024
_PATH = Path("fuzz.txt")
_HEAD = b"# .PCD v.7\nFIELDS x y z rgb index\nDATA ascii\n"


def seeds() -> Iterator[bytes]:
    yield _HEAD + b"1.5 -2 3 0 0\n4 5 6.25 NaN 7\n"
    yield _HEAD + b"0.1 0.2 0.3 2.3e-38 3\r\n\n1 2 3 4\n1 1 1 1 11\n"
    yield b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x04\0\0\0\x03"


def check(data: bytes) -> None:
    if data[:1] == b"\x89":
        point_cloud.png_size(data, _PATH)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        depth = point_cloud.read_depth(data, _PATH, height=3, width=4)
    if depth.shape != (3, 4) or depth.dtype != "float32":
        raise Disagreement(f"{depth.shape} {depth.dtype}")
