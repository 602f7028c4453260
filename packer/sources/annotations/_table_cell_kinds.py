"""Table columns: detection of the kind of values in a column, and file paths in cells.

| cells of a column                                       | kind                                 |
|---------------------------------------------------------|--------------------------------------|
| whole numbers within int64                              | int                                  |
| finite decimal numbers, `nan`, `inf`                    | float                                |
| numbers and empty cells (CSV) or null (JSON)            | float; an empty cell is NaN          |
| JSON: true and false                                    | bool                                 |
| JSON: texts                                             | text                                 |
| JSON: lists, objects, null among texts, different kinds | json                                 |
| CSV: all others                                         | text                                 |

No value is rounded. Cells such as `007`, `+49 30`, `1_000` and `1e999` are texts, and one such cell makes the column a
text column. Integers beyond 2^53 never become floats. Spaces around a number are ignored. Texts are not changed, and
`NA` and `None` are also texts.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from packer.errors import InvalidRequest, printable
from packer.files.safe_paths import components
from packer.sources._message_texts import listed

Kind = Literal["int", "float", "bool", "text", "json"]
Cell = Any  # a text (CSV), or a JSON value; None: a JSON object has no member with the name of the column

NUMBERS = ("int", "float", "bool")
_INT = re.compile(" *-?(?:[1-9][0-9]{0,18}|0) *")
_FLOAT = re.compile(
    r" *-?(?:(?:[1-9][0-9]*|0)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)? *| *(?:nan|NaN|NAN|-?inf|-?Infinity) *"
)
_EXACT = 1 << 53  # float64 can store all integers up to this number
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://|(?:data|file|https?):|[A-Za-z]:/", re.IGNORECASE)  # or C:/
_COLUMN = re.compile(r"\{([^{}]*)\}")
_PLAIN = re.compile(r"[\w\- ][\w.\- ]*(?:/[\w\- ][\w.\- ]*)*", re.ASCII)  # paths without a part that begins with a dot
_MOST_PLAIN = 250
_SHOWN = 80


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        kind: The kind of all cells, including empty cells.
        filled: The kind of the cells that are not empty.
        gaps: The number of empty cells.
        bounds: (smallest, largest number) without NaN. Empty: the column contains no numbers.
    """

    name: str
    kind: Kind
    filled: Kind
    gaps: int = 0
    bounds: tuple[float, ...] = ()


class ColumnCells:
    """A detector of the kind of a column. `add` receives its cells in blocks, `column` returns the kind."""

    def __init__(self, *, is_csv: bool) -> None:
        """Begin without cells. With `is_csv`, all cells are texts, and texts such as `12` count as numbers."""
        self._is_csv = is_csv
        self._types: set[type] = set()
        self._ints: tuple[int, ...] = ()
        self._floats: tuple[float, ...] = ()
        self._count = 0

    def add(self, cells: Sequence[Cell]) -> None:
        """Add a block of cells to the column."""
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
        """Return the column `name` of a table with `rows` rows. Cells that were not added are empty."""
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
        if gaps and filled != "float":  # only float can represent an empty cell, as NaN
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
    """Return whether a cell is None or an empty text."""
    return cell is None or cell == ""


def value_of(cell: Cell, kind: Kind) -> Cell:
    """Return a cell as np.int64, np.float64 (NaN if empty) or np.bool_ for kinds of numbers, otherwise unchanged."""
    if kind == "int":
        return np.int64(int(cell))
    if kind == "float":
        return np.float64(np.nan if is_empty(cell) else float(cell))
    return np.bool_(cell) if kind == "bool" else cell


class PathPattern:
    """A rule that computes a file path from the cells of a row.

    Attributes:
        places: The positions of the columns that the path contains.
    """

    def __init__(self, text: str, columns: Sequence[str]) -> None:
        """Parse `text`: the name of one column, or a pattern with column names in braces, such as `train/{id}.jpg`.

        Raise InvalidRequest if a column is not in `columns`, the columns of the table.
        """
        pieces = ["", text, ""] if text in columns else _COLUMN.split(text)
        if len(pieces) == 1:
            pieces = ["", text, ""]
        self._texts = pieces[::2]
        self.places = tuple(column_place(name, columns) for name in pieces[1::2])

    def is_empty(self, cells: Sequence[Cell]) -> bool:
        """Return whether at least one cell that the path needs is empty. `cells` are all cells of a row."""
        return any(is_empty(cells[place]) for place in self.places)

    def path(self, cells: Sequence[Cell], folder: str) -> str:
        """Return the path for the row `cells` of a table in `folder`, as `checked_path` returns it for a cell."""
        if self._texts == ["", ""]:
            return checked_path(cells[self.places[0]], folder)
        if self.is_empty(cells):
            raise InvalidRequest("an empty cell: not a part of a path")
        pairs = zip(self._texts, [*(str(cells[place]) for place in self.places), ""], strict=True)
        return checked_path("".join(text + cell for text, cell in pairs), folder)


def column_place(name: str, columns: Sequence[str]) -> int:
    """Return the position of the column `name` in `columns`. Raise InvalidRequest if the column is absent."""
    if name not in columns:
        raise InvalidRequest(f"no column {printable(name)!r}; there are: {listed(columns)}")
    return columns.index(name)


def checked_path(cell: Cell, folder: str) -> str:
    r"""Return the path in a cell of a table in `folder`, relative to the root. The cell is relative to `folder`.

    A `\` separates folders like a slash. `./` and repeated slashes are ignored.

    Raises:
        InvalidRequest: The cell is empty, or contains a URL, an absolute path or `..`.
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
