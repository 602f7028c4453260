"""Table cell types: what the cells of each column of a table are: numbers, texts, truth values, or JSON of any kind.

| cells of a column                                              | kind                                      |
|----------------------------------------------------------------|-------------------------------------------|
| whole numbers within int64                                     | int                                       |
| finite decimal numbers, `nan`, `inf`                           | float                                     |
| numbers, and cells that are empty (CSV) or null (JSON)         | float, NaN where nothing stands           |
| JSON: true and false                                           | bool                                      |
| JSON: text                                                     | text                                      |
| JSON: lists, objects, null beside others, different kinds      | json                                      |
| CSV: anything else                                             | text                                      |

Nothing is lost: `007`, `+49 30`, `1_000` and `1e999` stay text, and so do all other cells of their column; whole
numbers beyond 2^53 never become floats. Blanks around a number are passed over; texts are verbatim, `NA` and `None`
too.
"""

import math
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from packer.sources._parse.table_rows import Cell

Kind = Literal["int", "float", "bool", "text", "json"]
NUMBERS = ("int", "float", "bool")
_INT = re.compile(" *-?(?:[1-9][0-9]{0,18}|0) *")
_FLOAT = re.compile(
    r" *-?(?:(?:[1-9][0-9]*|0)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)? *| *(?:nan|NaN|NAN|-?inf|-?Infinity) *"
)
_INT64 = range(-(1 << 63), 1 << 63)
_EXACT = range(-(1 << 53), (1 << 53) + 1)  # whole numbers that a float64 holds


class Column(NamedTuple):
    """gaps: how many cells are empty, or null. filled: the kind of the others by themselves."""

    name: str
    kind: Kind
    filled: Kind
    gaps: int = 0


class ColumnOfText:
    """Finds the kind of a column of CSV."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._may_be = 0  # 0 int, 1 float, 2 text
        self._ints_are_exact = True  # of those that would become floats
        self._gaps = 0
        self._count = 0

    def take(self, cells: Sequence[Cell]) -> None:
        """Look at some more cells."""
        self._count += len(cells)
        filled = [cell for cell in cells if cell]
        self._gaps += len(cells) - len(filled)
        if self._may_be == 2:
            return
        whole = [cell for cell in filled if _INT.fullmatch(cell)]
        if len(whole) < len(filled):
            others = filled if not whole else [cell for cell in filled if not _INT.fullmatch(cell)]
            self._may_be = 1 if all(map(_is_float, others)) else 2
        numbers = [int(cell) for cell in whole if len(cell) > 15]
        if any(number not in _EXACT for number in numbers):
            self._ints_are_exact = False
        if any(number not in _INT64 for number in numbers):
            self._may_be = 2

    def found(self) -> Column:
        """The column."""
        filled = self._may_be
        if self._gaps == self._count or (filled == 1 and not self._ints_are_exact):
            filled = 2
        whole = filled
        if filled == 0 and self._gaps:
            whole = 1 if self._ints_are_exact else 2
        kinds: tuple[Kind, ...] = ("int", "float", "text")
        return Column(self._name, kinds[whole], kinds[filled], self._gaps)


class ColumnOfValues:
    """Finds the kind of a column of JSON."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._types: set[type] = set()
        self._gaps = 0
        self._in_int64 = True
        self._ints_are_exact = True

    def take(self, cells: Sequence[Cell]) -> None:
        """Look at some more cells."""
        found = set(map(type, cells))
        self._types |= found
        if type(None) in found:
            self._gaps += sum(cell is None for cell in cells)
        if int in found and (self._in_int64 or self._ints_are_exact):
            numbers = [cell for cell in cells if type(cell) is int]
            least, most = min(numbers), max(numbers)
            self._in_int64 = self._in_int64 and least in _INT64 and most in _INT64
            self._ints_are_exact = self._ints_are_exact and least in _EXACT and most in _EXACT

    def found(self) -> Column:
        """The column."""
        types = self._types - {type(None)}
        filled: Kind = "json"
        if types == {int} and self._in_int64:
            filled = "int"
        elif types and types <= {int, float} and self._ints_are_exact:
            filled = "float"
        elif types == {bool}:
            filled = "bool"
        elif types == {str}:
            filled = "text"
        kind = filled
        if self._gaps and filled not in ("float", "json"):  # text has no null, and whole numbers no NaN
            kind = "float" if filled == "int" and self._ints_are_exact else "json"
        return Column(self._name, kind, filled, self._gaps)


def value_of(cell: Cell, kind: Kind) -> Cell:
    """The value of a cell, as a field of that kind has it."""
    if kind == "int":
        return np.int64(int(cell))
    if kind == "float":
        return np.float64(np.nan if cell is None or cell == "" else float(cell))
    return np.bool_(cell) if kind == "bool" else cell


def _is_float(cell: str) -> bool:
    if not _FLOAT.fullmatch(cell):
        return False
    if cell.strip(" -").isdecimal():  # a whole number beyond int64, which a float would round
        return False
    return "n" in cell.lower() or abs(float(cell)) < math.inf
