"""Damage to the one part of a pack, each time read in a child of its own."""

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

from packer.errors import CorruptPack, PackerError
from packer.pack.reader import Pack
from tests.support import built_packs
from tests.support.child_processes import Outcome, child

_TOGETHER = 20
Place = Callable[[random.Random, int], int]


def read_all(folder: Path, expected: Sequence[built_packs.Record], verify: str = "first") -> str:
    """What reading a damaged pack comes to: every record is the original, or raises CorruptPack."""
    try:
        pack = Pack(folder, verify=verify)
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
    built_packs.make_pack(
        folder, [built_packs.record(row, blob=bytes([row]) * 100) for row in range(40)], format=format, parts=1
    )
    (part,) = folder.glob("part-*")
    return part


def anywhere(rng: random.Random, size: int) -> int:
    """A place among so many bytes."""
    return rng.randrange(size)


def flips(folder: Path, number: int, *, seed: int, place: Place = anywhere, verify: str = "first") -> Counter[str]:
    """How reading ends after each of many single flips in the part.

    A child reads many damaged packs, one after the other; where it does not end well, each has a child of its own.
    """
    expected = built_packs.values(folder)
    (part,) = folder.glob("part-*")
    files = files_of(part)
    whole = {file: file.read_bytes() for file in files}
    ends = list(accumulate(map(len, whole.values())))
    rng, planned, found = random.Random(seed), list[tuple[Path, int, int]](), Counter[str]()
    for _ in range(number):
        at, mask = place(rng, ends[-1]), rng.choice([0xFF, 1 << rng.randrange(8)])
        file = files[bisect_right(ends, at)]
        planned.append((file, at - ends[bisect_right(ends, at)] + len(whole[file]), mask))

    def read(flipped: Sequence[tuple[Path, int, int]]) -> Outcome:
        try:
            reading = partial(read_all, folder, expected, verify)
            return child(lambda: [_read_flipped(*one, reading) for one in flipped], timeout_seconds=20)
        finally:
            for file in {file for file, *_ in flipped}:
                file.write_bytes(whole[file])

    for first in range(0, number, _TOGETHER):
        together = planned[first : first + _TOGETHER]
        outcome = read(together)
        if outcome.kind == "value":
            found.update(outcome.value)
            continue
        found[f"{together}, together: {outcome}"] += 1
        for one in together:
            alone = read([one])
            found[alone.value[0] if alone.kind == "value" else f"{one}: {alone}"] += 1
    return found


def _read_flipped(file: Path, at: int, mask: int, read: Callable[[], str]) -> str:
    built_packs.flip(file, at, mask)
    try:
        return read()
    finally:
        built_packs.flip(file, at, mask)


def files_of(part: Path) -> list[Path]:
    """The files of a part, which may be a folder."""
    return sorted(path for path in part.rglob("*") if path.is_file()) if part.is_dir() else [part]


def check_flips(found: Counter[str], least: int) -> None:
    """No signal, no hang, no foreign exception, never a wrong byte; and at least so many flips were noticed."""
    assert set(found) <= {"refused", "intact", "CorruptPack", "CorruptRecord"}, found
    assert found["refused"] + found["CorruptPack"] > least, found


def cuts(part: Path, records: Sequence[built_packs.Record], format: str) -> Iterator[tuple[Path, int, Outcome]]:
    """How reading a part ends after each cut of each of its files; its value: whether all records are as they were."""
    for file in files_of(part):
        whole = file.read_bytes()
        for size in {*range(0, len(whole), 512), min(1, len(whole)), max(0, len(whole) - 1)} - {len(whole)}:
            file.write_bytes(whole[:size])
            yield file, size, child(lambda: built_packs.read_records(part, len(records), format) == records)
        file.write_bytes(whole)
