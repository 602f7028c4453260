"""N5: the attributes and a block of a data set."""

from collections.abc import Iterator

import numpy as np

from packer.sources.arrays.n5 import Source
from tests.fuzz import scratch
from tests.fuzz.checks import check_samples
from tests.support import foreign_files as foreign

TOKENS = (b"\0\0\0\4", b"\x1f\x8b\x08\0", b"BZh9", b"\xfd7zXZ\0", b'"dimensions"', b'"raw"', b'"float64"', b"\0\1")
_SIDE = 9
_END = b"\0--\0"  # between the attributes and the block


def seeds() -> Iterator[bytes]:
    pixels = np.arange(2 * _SIDE * _SIDE, dtype=np.uint8).reshape(2, _SIDE, _SIDE)
    for compression in ("raw", "gzip", "bzip2", "xz"):
        path = scratch.folder() / compression
        foreign.n5_dataset(path, pixels, block=(2, _SIDE, _SIDE), compression=compression)
        yield (path / "attributes.json").read_bytes() + _END + (path / "0/0/0").read_bytes()


def check(data: bytes) -> None:
    said, _, block = data.partition(_END)
    root = scratch.folder() / "set"
    file = root / "0/0/0"
    file.parent.mkdir(parents=True, exist_ok=True)
    (root / "attributes.json").write_bytes(said)
    file.write_bytes(block)
    check_samples(Source(root), most=3)
