"""The end record of a part, JSON in ASCII."""

from collections.abc import Iterator
from pathlib import Path

from packer.formats._columns import check_end, end_record
from tests.support import built_packs

TOKENS = (b'"fields": [', b'"samples": ', b"1e999", b"[[[[", b"true", b"\\ud800", b"9" * 30, b"NaN")
MOST_BYTES = 1 << 14


def seeds() -> Iterator[bytes]:
    yield end_record(built_packs.SCHEMA, 3)


def check(data: bytes) -> None:
    check_end(Path("fuzz.npz"), data, schema=built_packs.SCHEMA, samples=3)
