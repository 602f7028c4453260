"""Label files: Cornell's rectangles, Jacquard's rows; strict and lenient agree wherever strict reads."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.sources.grasp._label_files import Labels, corners, read_rectangles, read_rows
from tests.fuzz import words
from tests.fuzz.target import Disagreement, refusable

TOKENS = (*words.TEXT, *words.NUMBERS, b";")
_PATH = Path("fuzz.txt")


def seeds() -> Iterator[bytes]:
    yield b"1 2\n3 4\n5 6\n7 8\n"
    yield b"253.0 319.7\r\n309 324\r\nNaN NaN\n307 350\n"
    yield b"1.5;2;45;20;10\n3;4;-90.0;1e1;.5\n"


def check(data: bytes) -> None:
    for columns, separator in ((2, None), (5, ";")):
        lenient = read_rows(data, _PATH, columns=columns, separator=separator, strict=False)
        _check_finite(lenient)
        with refusable():
            _check_same(read_rows(data, _PATH, columns=columns, separator=separator, strict=True), lenient)
        if columns == 5:
            with np.errstate(all="ignore"):
                corners(lenient.values)
    lenient = read_rectangles(data, _PATH, strict=False)
    _check_finite(lenient)
    _check_same(read_rectangles(data, _PATH, strict=True), lenient)


def _check_finite(found: Labels) -> None:
    if not np.isfinite(found.values.astype(np.float32)).all() or found.dropped < 0:
        raise Disagreement(f"{found}")


def _check_same(strict: Labels, lenient: Labels) -> None:
    if strict.total != lenient.total or not np.array_equal(strict.values, lenient.values):
        raise Disagreement(f"strict {strict}, lenient {lenient}")
