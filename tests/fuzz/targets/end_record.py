"""The end record of a part, JSON in ASCII."""

from collections.abc import Iterator
from pathlib import Path

from packer.formats._column_part import check_end, end_record
from tests.fuzz import words
from tests.support import built_packs

TOKENS = (*words.JSON, b'"fields": [', b'"samples": ', b"9" * 30)


def seeds() -> Iterator[bytes]:
    yield end_record(built_packs.SCHEMA, 3)


def check(data: bytes) -> None:
    check_end(Path("fuzz.npz"), data, schema=built_packs.SCHEMA, samples=3)
