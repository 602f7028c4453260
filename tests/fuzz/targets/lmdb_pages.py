"""LMDB pages: a mapped file walked without the library, whatever its pages say."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from packer.formats.lmdb import Reader
from tests.fuzz import words
from tests.fuzz.checks import records, tree_of
from tests.fuzz.scratch import written
from tests.support import built_packs

_SAMPLES = 3
MOST_BYTES = 1 << 15
TOKENS = (*words.LMDB, b"packer")


def seeds() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.lmdb"
        built_packs.write_part(path, built_packs.records(_SAMPLES))
        whole = path.read_bytes()
        yield whole
        yield _with_small_pages(whole)
        built_packs.write_part(
            path.with_name("b.lmdb"), [built_packs.record(row, blob=bytes(1500)) for row in range(9)]
        )
        yield path.with_name("b.lmdb").read_bytes()


def _with_small_pages(whole: bytes) -> bytes:
    """The same said of pages of 512 bytes, so that there are many in a small file; nothing else fits."""
    changed = bytearray(whole)
    for meta in (0, 512):
        changed[meta : meta + 152] = whole[:152]
        changed[meta + 40 : meta + 44] = (512).to_bytes(4, "little")
    return bytes(changed)


def check(data: bytes) -> None:
    if not data:
        return
    with tree_of(data) as tree:
        tree.value_of(b"packer")
        for number in (*range(64), (1 << 64) - 1):
            value = tree.value(number)
            if value is not None:
                bytes(value)
                value.release()
    records(Reader(written("fuzz.lmdb", data), built_packs.SCHEMA, samples=_SAMPLES), _SAMPLES)
