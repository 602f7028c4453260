"""Table columns: the kind of the cells of a column, and the file that a cell names.

| cells of a column                                       | kind                                 |
|---------------------------------------------------------|--------------------------------------|
| whole numbers within int64                              | int                                  |
| finite decimal numbers, `nan`, `inf`                    | float                                |
| numbers and empty cells (CSV) or null (JSON)            | float; an empty cell is NaN          |
| JSON: true and false                                    | bool                                 |
| JSON: texts                                             | text                                 |
| JSON: lists, objects, null among texts, different kinds | json                                 |
| CSV: all others                                         | text                                 |

No value is rounded: `007`, `+49 30`, `1_000` and `1e999` are texts and make their column text. Whole numbers beyond
2^53 never become floats. Spaces around a number are ignored. Texts are verbatim, also `NA` and `None`.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from packer.errors import InvalidRequest, printable
from packer.files.safe_paths import components

Kind = Literal["int", "float", "bool", "text", "json"]
Cell = Any  # a text (CSV), or a value of JSON; None for a member that an object does not have

NUMBERS = ("int", "float", "bool")
_INT = re.compile(" *-?(?:[1-9][0-9]{0,18}|0) *")
_FLOAT = re.compile(
    r" *-?(?:(?:[1-9][0-9]*|0)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)? *| *(?:nan|NaN|NAN|-?inf|-?Infinity) *"
)
_EXACT = 1 << 53  # all whole numbers up to here are float64
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://|(?:data|file|https?):|[A-Za-z]:/", re.IGNORECASE)  # or a drive
_COLUMN = re.compile(r"\{([^{}]*)\}")
_PLAIN = re.compile(r"[\w\- ][\w.\- ]*(?:/[\w\- ][\w.\- ]*)*", re.ASCII)  # paths without a part that begins with a dot
_MOST_PLAIN = 250
_SHOWN = 80


class Column(NamedTuple):
    """A column: its kind, the kind of its cells that are not empty, how many are empty, and its least and most number.

    bounds: Without NaN; empty if the column has no numbers.
    """

    name: str
    kind: Kind
    filled: Kind
    gaps: int = 0
    bounds: tuple[float, ...] = ()


class ColumnCells:
    """Finds the kind of a column from its cells, which are added in blocks."""

    def __init__(self, *, is_csv: bool) -> None:
        """Begin without cells. is_csv: the cells are texts, and a number is a text too."""
        self._is_csv = is_csv
        self._types: set[type] = set()
        self._ints: tuple[int, ...] = ()
        self._floats: tuple[float, ...] = ()
        self._count = 0

    def add(self, cells: Sequence[Cell]) -> None:
        """Add cells."""
        values = [cell for cell in cells if cell] if self._is_csv else [cell for cell in cells if cell is not None]
        self._count += len(values)
        if self._is_csv:
            if str in self._types:
                return
            are_ints = all(map(_INT.fullmatch, values))
            values = list(map(int if are_ints else _number_or_text, values))
        self._types.update(map(type, values))
        self._ints = _bounds([*self._ints, *(value for value in values if type(value) is int)])
        floats = (value for value in values if type(value) is float and not math.isnan(value))
        self._floats = _bounds([*self._floats, *floats])

    def column(self, name: str, *, rows: int) -> Column:
        """Return the column of a table with so many rows; rows without a cell are empty."""
        least, most = self._ints or (0, 0)
        is_exact = least >= -_EXACT and most <= _EXACT
        gaps = rows - self._count
        other: Kind = "text" if self._is_csv else "json"
        filled = other
        if self._types == {int} and least >= -(1 << 63) and most < 1 << 63:
            filled = "int"
        elif self._types and self._types <= {int, float} and is_exact:
            filled = "float"
        elif self._types == {bool}:
            filled = "bool"
        elif self._types == {str}:
            filled = "text"
        kind = filled
        if gaps and filled != "float":  # no other kind of number has a value for an empty cell
            kind = "float" if filled == "int" and is_exact else other
        return Column(name, kind, filled, gaps, _bounds([*self._ints, *self._floats]))


def _bounds(numbers: Sequence[Any]) -> tuple[Any, ...]:
    return (min(numbers), max(numbers)) if numbers else ()


def _number_or_text(cell: str) -> int | float | str:
    if _INT.fullmatch(cell):
        return int(cell)
    if not _FLOAT.fullmatch(cell) or cell.strip(" -").isdecimal():  # a whole number with more digits than int64
        return cell
    number = float(cell)
    return number if math.isfinite(number) or "n" in cell.lower() else cell  # `nan` and `inf`, but not `1e999`


def is_empty(cell: Cell) -> bool:
    """Return whether a cell has no value."""
    return cell is None or cell == ""


def value_of(cell: Cell, kind: Kind) -> Cell:
    """Return the value of a cell in a field of a kind."""
    if kind == "int":
        return np.int64(int(cell))
    if kind == "float":
        return np.float64(np.nan if is_empty(cell) else float(cell))
    return np.bool_(cell) if kind == "bool" else cell


class PathPattern:
    """The path of a file: the cell of one column, or a pattern with the cells of several, such as `train/{id}.jpg`.

    Attributes:
        places: The positions of these columns.
    """

    def __init__(self, text: str, columns: Sequence[str]) -> None:
        """Find the columns. Raises InvalidRequest for a column that the table does not have."""
        pieces = ["", text, ""] if text in columns else _COLUMN.split(text)
        if len(pieces) == 1:
            pieces = ["", text, ""]
        self._texts = pieces[::2]
        self.places = tuple(column_place(name, columns) for name in pieces[1::2])

    def is_empty(self, cells: Sequence[Cell]) -> bool:
        """Return whether a row has no value in one of the columns."""
        return any(is_empty(cells[place]) for place in self.places)

    def path(self, cells: Sequence[Cell], folder: str) -> str:
        """Return the path below the root that a row of a table in a folder names; raises as `checked_path` does."""
        if self._texts == ["", ""]:
            return checked_path(cells[self.places[0]], folder)
        if self.is_empty(cells):
            raise InvalidRequest("an empty cell: not a part of a path")
        pairs = zip(self._texts, [*(str(cells[place]) for place in self.places), ""], strict=True)
        return checked_path("".join(text + cell for text, cell in pairs), folder)


def column_place(name: str, columns: Sequence[str]) -> int:
    """Return the position of a column. Raises InvalidRequest for a column that the table does not have."""
    if name not in columns:
        more = f" and {len(columns) - 20} more" if len(columns) > 20 else ""
        raise InvalidRequest(
            f"no column {printable(name)!r}; there are: {', '.join(map(printable, columns[:20]))}{more}"
        )
    return columns.index(name)


def checked_path(cell: Cell, folder: str) -> str:
    r"""Return the path below the root that a cell of a table in a folder names.

    URLs and files outside the folder are errors. A `\` separates folders; `./` and `//` are ignored.

    Raises:
        InvalidRequest: The cell contains another path, or none.
    """
    if isinstance(cell, str) and len(cell) <= _MOST_PLAIN and _PLAIN.fullmatch(cell):
        return f"{folder}/{cell}" if folder else cell
    text = cell.replace("\\", "/") if isinstance(cell, str) else ""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or text.startswith("/") or _URL.match(text):
        found = "an empty cell" if is_empty(cell) else printable(str(cell))[:_SHOWN]
        raise InvalidRequest(f"{found}: not a relative path below the folder of the table")
    name = "/".join([folder, *parts] if folder else parts)
    components(name)
    return name
