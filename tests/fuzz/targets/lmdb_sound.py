"""LMDB files that the library wrote, of any content: the walk without the library finds what the library finds."""

import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path

import lmdb

from packer.formats.lmdb import BTree
from tests.fuzz import scratch
from tests.fuzz.target import Disagreement

MOST_BYTES = 512
_MOST_BYTES_OF_A_KEY = 511
_ENGINE = {"lib_version": 0} if int(lmdb.__version__.split(".")[0]) >= 3 else {}  # the engine that packer writes with
_WIDTHS = (0, 1, 8, 40, 200, 1000, 2030, 2031, 2040, 4080, 9000, 70_000)


def seeds() -> Iterator[bytes]:
    yield bytes((0, 1, 0, 2, 0, 3, 0, 4))
    yield bytes(value for row in range(120) for value in (0, 5 + row % 5))
    yield bytes(value for row in range(100) for value in (64 + row % 128, row))


def _entries(data: bytes) -> dict[bytes, bytes]:
    """Two bytes each: how the key is made, and how long the value is."""
    entries: dict[bytes, bytes] = {}
    for number, (kind, width) in enumerate(zip(data[::2], data[1::2], strict=False)):
        if kind < 64:
            key = number.to_bytes(8, "big")
        elif kind < 128:
            key = bytes((kind, number & 255)) * (1 + kind * 7 % 250)
        else:
            key = (number * kind).to_bytes(8, "big")
        entries[key[:_MOST_BYTES_OF_A_KEY]] = bytes((number & 255,)) * (_WIDTHS[width % len(_WIDTHS)] + width % 3)
    return entries


def check(data: bytes) -> None:
    entries = _entries(data)
    with tempfile.TemporaryDirectory(dir=scratch.folder()) as folder:
        path = Path(folder) / "a.lmdb"
        with lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 26, sync=False, **_ENGINE) as env:
            for start in range(0, len(data), 64):
                with env.begin(write=True) as transaction:
                    for key in list(entries)[start : start + 64]:
                        transaction.put(key, entries[key])
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            tree = BTree(path, mapped)
            try:
                if tree.count != len(entries):
                    raise Disagreement(f"{tree.count} entries, {len(entries)} were written")
                for key, value in entries.items():
                    if tree.value_of(key) != value or (
                        len(key) == 8 and bytes(tree.value(int.from_bytes(key, "big"))) != value
                    ):
                        raise Disagreement(f"another value of key {key.hex()}")
                for key in (b"", b"\0", b"\xff" * 9, b"packer", *(key + b"\0" for key in list(entries)[:9])):
                    if key not in entries and tree.value_of(key) is not None:
                        raise Disagreement(f"a value of key {key.hex()}, which is not there")
            finally:
                tree.close()
