"""Bombs: what a small pack may cost, whatever it says: 512 MiB, 5 s of CPU time, and an exit code from 2 to 5.

Each bomb is met by every command that reads packs, and by a data set and a Loader, in processes that the kernel ends
when they go beyond (see bounded.py). Exit code 1 is a traceback; a signal is the kernel's, or a crash.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import bombs
import bounded
import pytest
from hostile import Case, lay_out

_PLAIN = (0, 2, 3, 4, 5)
_MOST_SECONDS = 1500.0


def run(folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """What the program says of each operation."""
    program = Path(__file__).with_name("bounded.py")
    command = [sys.executable, str(program), *map(str, folders)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_MOST_SECONDS, check=True, text=True)
    yield from map(json.loads, done.stdout.splitlines())


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
    assert done == len(cases) * len(bounded.OPERATIONS)


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
    """One of each sort; the others are for the full run."""
    wanted = (
        "manifest: 31 MiB of empty lists",
        "manifest: packs of packs of packs",
        "source: bytes of 400 digits",
        "lmdb: a fan of three levels",
        "bmp: a file of 1 TiB",
        "hdf5: big-endian",
    )
    check(tmp_path, [case for case in bombs.cases() if case.name in wanted])


@pytest.mark.full
@pytest.mark.parametrize("number", range(12))
def test_the_other_bombs_are_refused_within_bounds(tmp_path: Path, number: int) -> None:
    check(tmp_path, bombs.cases()[number::12])


def test_names_of_bombs_are_unique() -> None:
    names = [case.name for case in bombs.cases()]
    assert len(set(names)) == len(names)
