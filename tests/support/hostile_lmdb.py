"""LMDB parts written by the bare library, with entries that are wrong."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lmdb

from tests.support import built_packs

SCHEMA = built_packs.SCHEMA


NAMES = list(SCHEMA.names)


def by_hand(path: Path, entries: dict[bytes, bytes], **options: Any) -> None:
    """A part written by the bare library."""
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 24, **options) as env,
        env.begin(write=True) as txn,
    ):
        for key, value in entries.items():
            txn.put(key, value)


def layout(records: Sequence[built_packs.Record]) -> dict[bytes, bytes]:
    """The documented layout: row * fields + position, 8 bytes big-endian; the end record."""
    entries = {}
    for row, record in enumerate(records):
        for position, name in enumerate(NAMES):
            entries[(row * len(NAMES) + position).to_bytes(8, "big")] = record[name]
    return {**entries, b"packer": json.dumps({"fields": NAMES, "samples": len(records)}).encode()}


def changed(**members: Any) -> dict[bytes, bytes]:
    """The layout of 3 records with another end record."""
    end = {"fields": NAMES, "samples": 3, **members}
    return {**layout(built_packs.records(3)), b"packer": json.dumps(end).encode()}


def without(entries: dict[bytes, bytes], *keys: bytes) -> dict[bytes, bytes]:
    """Some entries less."""
    return {key: value for key, value in entries.items() if key not in keys}


WHOLE = layout(built_packs.records(3))


WRONG = {
    "no end record": without(WHOLE, b"packer"),
    "an entry missing": without(WHOLE, (5).to_bytes(8, "big")),
    "an entry too many": {**WHOLE, b"zzz": b""},
    "end record empty": {**WHOLE, b"packer": b""},
    "end record no JSON": {**WHOLE, b"packer": b"{"},
    "end record no UTF-8": {**WHOLE, b"packer": b"\xff\xfe\xff"},
    "end record deep": {**WHOLE, b"packer": b"[" * 200_000},
    "end record a long number": {**WHOLE, b"packer": b"1" * 10_000},
    "end record a list": {**WHOLE, b"packer": b"[1]"},
    "other samples": changed(samples=4),
    "other fields": changed(fields=[*NAMES, "more"]),
    "another order": changed(fields=NAMES[::-1]),
    "a member more": changed(more=1),
}
