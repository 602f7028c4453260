"""Bombs: what a small pack may cost, whatever it says: 512 MiB, 5 s of CPU time, and an exit code from 2 to 5.

Each bomb is met by every command that reads packs, and by a data set and a Loader, in processes that the kernel ends
when they go beyond (see bounded.py). Exit code 1 is a traceback; a signal is the kernel's, or a crash.
"""

import json
import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from packer.errors import CorruptPack
from packer.formats.lmdb import BTree
from tests.support import bomb_packs, bounded_program, built_packs, warm_python
from tests.support.hostile_packs import Case, lay_out

_PLAIN = (0, 2, 3, 4, 5)
_MOST_SECONDS = 1500.0


def run(folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """What the program says of each operation."""
    code = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    with warm_python.started(code, bounded_program.__file__, *map(str, folders)) as program:
        output, errors = program.communicate(timeout=_MOST_SECONDS)
    assert program.returncode == 0, errors
    yield from map(json.loads, output.splitlines())


def check(root: Path, cases: list[Case]) -> None:
    """Everything that must hold for these packs."""
    places = list(lay_out(root, cases))
    known = {place.name: case for place, case in zip(places, cases, strict=True)}
    faults, done = [], 0
    for found in run(places):
        case = known[found["place"]]
        done += 1
        fault = fault_of(case, found)
        if fault:
            faults.append(f"{case.name}: {found['operation']}: {fault}")
    assert not faults, "\n".join(faults)
    assert done == len(cases) * len(bounded_program.OPERATIONS)


def fault_of(case: Case, found: dict[str, Any]) -> str:
    """What is wrong with one outcome."""
    if found["signal"]:
        return f"ended by {found['signal']} after {found['seconds']:.1f} s of CPU time: {found['said'][-300:]}"
    if found["code"] not in _PLAIN or "Traceback" in found["said"]:
        return f"exit code {found['code']}: {found['said'][-600:]}"
    if found["operation"] == "sample" and case.expect != "any" and (found["code"] == 0) != (case.expect == "same"):
        return f"expected {case.expect}, found exit code {found['code']}: {found['said'][-300:]}"
    return ""


def test_bombs_are_refused_within_bounds(tmp_path: Path) -> None:
    """A manifest, through every command; the others are for the full run."""
    wanted = ("manifest: 900 levels",)
    check(tmp_path, [case for case in bomb_packs.cases() if case.name in wanted])


@pytest.mark.full
@pytest.mark.parametrize("number", range(12))
def test_the_other_bombs_are_refused_within_bounds(tmp_path: Path, number: int) -> None:
    check(tmp_path, bomb_packs.cases()[number::12])


def test_a_file_of_a_terabyte_is_refused_unread(tmp_path: Path) -> None:
    (case,) = (case for case in bomb_packs.cases() if case.name == "bmp: a file of 1 TiB")
    (place,) = lay_out(tmp_path, [case])
    with pytest.raises(CorruptPack, match="holes"):
        built_packs.values(place / "pack")


def test_names_of_bombs_are_unique() -> None:
    names = [case.name for case in bomb_packs.cases()]
    assert len(set(names)) == len(names)


PAGES: dict[str, tuple[Callable[[], Callable[[Path], None]], str]] = {
    "a fan": (lambda: bomb_packs.fan_in(3), "keys are not in order|two parents"),
    "a fan whose keys rise": (bomb_packs.narrow_fan_in, "two parents"),
    "a circle": (lambda: bomb_packs.circle(32), "two parents|is not a branch"),
    "keys over each other": (bomb_packs.overlapping_keys, "outside page|overlap"),
}


@pytest.mark.parametrize("what", PAGES)
def test_pages_are_refused_whatever_number_of_entries_they_claim(tmp_path: Path, what: str) -> None:
    make, message = PAGES[what]
    path = tmp_path / "a.lmdb"
    make()(path)
    data = bytearray(path.read_bytes())
    for page in (0, 1):
        struct.pack_into("<Q", data, (page << 16) + 88 + 32, 1 << 40)
    path.write_bytes(data)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        pytest.raises(CorruptPack, match=message),
    ):
        BTree(path, mapped)
