"""Hostile parts of the formats of other tools: tables that lie of their files, and other things in their places."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from packer import formats
from tests.support.hostile_folders import OBJECT, PROGRAM, compressed, rewritten
from tests.support.hostile_packs import INSTEAD, Case, cases_of, in_part, instead, part_of

HOLE_BYTES = 1 << 40


def data_of(format: str) -> str:
    """The tool's file in a part."""
    found: str = formats.load(format).Reader.layout.data
    return found


def lying(row: int, column: int, value: int) -> Callable[[Path], None]:
    """The table says another offset (0) or size (1) of the values of a row."""

    def make(part: Path) -> None:
        with np.load(part / "values.npz") as found:
            places = found["foreign/places"].copy()
        places[row, :, column] = value
        rewritten(foreign__places=places)(part)

    return make


def swapped_rows(part: Path) -> None:
    """The values of one sample stand where those of another did: the same bytes, another order."""
    with np.load(part / "values.npz") as found:
        places = found["foreign/places"]
    rewritten(foreign__places=np.ascontiguousarray(places[[0, 2, 1]]))(part)


def in_data(format: str, change: Callable[[Path], Any]) -> Callable[[Path], None]:
    return lambda part: change(part / data_of(format))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def hole(path: Path) -> None:
    """A file that says it has a terabyte."""
    with path.open("r+b") as file:
        file.truncate(HOLE_BYTES)


TABLES: dict[str, Callable[[Path], Any]] = {
    "an offset below zero": lying(1, 0, -1),
    "an offset beyond": lying(1, 0, 1 << 62),
    "the last offset there is": lying(1, 0, (1 << 63) - 1),
    "a size beyond": lying(1, 1, 1 << 62),
    "the least size there is": lying(1, 1, -(1 << 63)),
    "no size": lying(1, 1, 0),
    "the header's bytes": lying(1, 0, 0),
    "another sample's values": swapped_rows,
    "places that are pickles": rewritten(foreign__places=OBJECT),
    "places that are a program": rewritten(foreign__places=PROGRAM),
    "places of another dtype": rewritten(foreign__places=np.zeros((3, 1, 2), ">i8")),
    "places of fewer rows": rewritten(foreign__places=np.zeros((2, 1, 2), "<i8")),
    "no places": rewritten(foreign__places=None),
    "labels that are pickles": rewritten(label=OBJECT),
    "an entry more": rewritten(more=np.zeros(3)),
    "compressed": compressed,
    "no zip": lambda part: (part / "values.npz").write_bytes(b"cos\nsystem\n(S'echo evil > evil'\ntR."),
}
OF_ANY = ("labels that are pickles", "an entry more", "compressed", "no zip")  # where values.npz has no places
FILES: dict[str, Callable[[Path], Any]] = {
    "of no bytes": lambda path: path.write_bytes(b""),
    "cut": cut,
    "of zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}
PLACES: dict[str, Callable[[Path], Any] | str] = {
    **INSTEAD,
    "a link to the same bytes": "elsewhere",
    "a device": "/dev/zero",
}


def cases() -> list[Case]:
    """All of them."""
    found = []
    for name in formats.names():
        if not formats.load(name).Writer.slots:
            continue
        found += cases_of(f"{name} sound", {"written again": in_part(rewritten())}, base=name, expect="same")
        if not formats.load(name).Reader.layout.has_places:
            found += cases_of(name, {key: in_part(TABLES[key]) for key in OF_ANY}, base=name)
            continue
        found += cases_of(name, {key: in_part(make) for key, make in TABLES.items()}, base=name)
        inside = {key: in_part(in_data(name, make)) for key, make in FILES.items()}
        found += cases_of(f"{name} file", inside, base=name)
        holes = {"a hole of a terabyte": in_data_of_pack(name, hole)}
        found += cases_of(f"{name} file", holes, base=name, expect="any")
        elsewhere = {key: instead(f"part-*/{data_of(name)}", what) for key, what in PLACES.items()}
        found += cases_of(f"{name} place", elsewhere, base=name)
    return found


def in_data_of_pack(format: str, change: Callable[[Path], Any]) -> Callable[[Path], None]:
    """In the tool's file, all hashes as they were: a terabyte could not be hashed."""
    return lambda pack: change(part_of(pack) / data_of(format))
