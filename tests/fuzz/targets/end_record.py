"""The end record of a part, JSON in ASCII."""

from collections.abc import Iterator
from pathlib import Path

import packs

from packer.formats.stacking.layout import check_end, end_record

TOKENS = (b'"fields": [', b'"samples": ', b"1e999", b"[[[[", b"true", b"\\ud800", b"9" * 30, b"NaN")
MOST_BYTES = 1 << 14


def seeds() -> Iterator[bytes]:
    yield end_record(packs.SCHEMA, 3)


def check(data: bytes) -> None:
    check_end(Path("fuzz.npz"), data, schema=packs.SCHEMA, samples=3)
