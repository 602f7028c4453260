"""Damage to the one part of a pack, each time read in a child of its own."""

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import packs
from children import Outcome, child

from packer import formats
from packer.errors import CorruptPack, PackerError
from packer.pack.opening import Pack


def read_all(folder: Path, expected: Sequence[packs.Record]) -> str:
    """What reading a damaged pack comes to: every record is the original, or raises CorruptPack."""
    try:
        pack = Pack(folder)
    except PackerError as error:
        return type(error).__name__
    refused = 0
    for index, record in enumerate(expected):
        try:
            with pack.record(index, pack.schema.names) as read:
                if {name: bytes(value) for name, value in read.items()} != record:
                    return "WRONG"
        except CorruptPack:
            refused += 1
    return "refused" if refused else "intact"


def small_pack(folder: Path, format: str) -> Path:
    """A pack of one small part, whose bytes are for a large part bookkeeping; returns the part."""
    packs.make_pack(folder, [packs.record(row, blob=bytes([row]) * 100) for row in range(40)], format=format, parts=1)
    (part,) = folder.glob("part-*")
    return part


def flips(folder: Path, number: int, *, seed: int) -> Counter[str]:
    """How reading ends after each of many single flips in the part."""
    expected = packs.values(folder)
    (part,) = folder.glob("part-*")
    files = files_of(part)
    ends = list(accumulate(file.stat().st_size for file in files))
    rng, found = random.Random(seed), Counter[str]()
    for _ in range(number):
        at, mask = rng.randrange(ends[-1]), rng.choice([0xFF, 1 << rng.randrange(8)])
        file = files[bisect_right(ends, at)]
        at -= ends[bisect_right(ends, at)] - file.stat().st_size
        packs.flip(file, at, mask)
        outcome = child(lambda: read_all(folder, expected), timeout_seconds=20)
        found[str(outcome.value) if outcome.kind == "value" else f"{file}: byte {at}, mask {mask}: {outcome}"] += 1
        packs.flip(file, at, mask)
    return found


def files_of(part: Path) -> list[Path]:
    """The files of a part, which may be a folder."""
    return sorted(path for path in part.rglob("*") if path.is_file()) if part.is_dir() else [part]


def check_flips(found: Counter[str], number: int) -> None:
    """No signal, no hang, no foreign exception, never a wrong byte; and the flips were really there."""
    assert set(found) <= {"refused", "intact", "CorruptPack", "CorruptRecord"}, found
    assert found["refused"] > number // 4, found


def cuts(part: Path, *, format: str, samples: int, step: int = 512) -> Iterator[tuple[int, Outcome]]:
    """How opening the reader itself ends after each cut: Pack would refuse the size before."""
    whole = part.read_bytes()
    for size in sorted({*range(0, len(whole), step), 1, len(whole) - 1}):
        part.write_bytes(whole[:size])
        yield size, child(opened(part, format=format, samples=samples))
    part.write_bytes(whole)


def opened(part: Path, *, format: str, samples: int) -> Callable[[], Any]:
    """A function that opens a part and reads its last row."""

    def run() -> list[int]:
        reader = formats.load(format).Reader(part, packs.SCHEMA, samples=samples)
        record = reader.read(samples - 1, packs.SCHEMA.names)
        return [len(bytes(value)) for value in record.values()]

    return run
