"""Table rows: the rows of a CSV, TSV or JSON Lines file, each found again by the bytes that it has in the file.

The file's bytes are kept, 16 bytes per row beside them, and nothing that was parsed: a million parsed rows would take
ten times as much. A row is parsed when it is asked for.

CSV is what Python's csv module reads with `strict`: cells in double quotes may hold separators, newlines and doubled
quotes; lines end in LF or CRLF, also both in one file; blank lines are passed over; a BOM is no part of the first name.
The separator is a tab in a .tsv, else a comma, or where the first line has none, a semicolon or a tab. The first line
names the columns. JSON Lines is one object per line, whose members are the columns.
"""

import csv
import io
from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packer.errors import BadInput, printable
from packer.layouts.json_text import json_value

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_MOST_COLUMNS = 10_000
_SHOWN = 40  # characters of what stands in a file, in a message

Cell = Any  # a str of CSV; of JSON what that has, and None for a member that is not there


@dataclass(frozen=True)
class TableRows:
    """One table. path: for messages. separator: of CSV, None of JSON. listed: whether rows are JSON lists, not objects.

    members: cells that the lines of JSON have together; None where each row has a cell per column.
    starts, ends: of each row in `data`.
    """

    path: Path
    data: bytes
    columns: tuple[str, ...]
    separator: str | None = None
    listed: bool = False
    members: int | None = None
    starts: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def cell_count(self) -> int:
        """How many cells the file holds."""
        return len(self) * len(self.columns) if self.members is None else self.members

    def cells(self, row: int) -> Sequence[Cell]:
        """The cells of a row, one per column."""
        raw = self.data[self.starts[row] : self.ends[row]]
        if self.separator is not None:
            return next(csv.reader([raw.decode()], delimiter=self.separator, strict=True))
        return self._members(json_value(raw.decode(), finite=False))

    def all_cells(self) -> Iterator[Sequence[Cell]]:
        """The cells of every row, in order: faster than one by one."""
        if self.separator is None:
            yield from map(self.cells, range(len(self)))
            return
        first = self.starts[0] if len(self) else len(self.data)
        for _, _, cells in _csv_rows(self.path, self.data, self.separator, at=first):
            yield cells

    def line(self, row: int) -> int:
        """The line of the file that a row begins in, counted from 1; of a Parquet file, the row."""
        return self.data.count(b"\n", 0, self.starts[row]) + 1

    def where(self, row: int) -> str:
        """How a message names a row."""
        return f"{printable(str(self.path))}: {'row' if self.listed else 'line'} {self.line(row)}"

    def _members(self, value: Any) -> Sequence[Cell]:
        if self.listed:
            found: list[Cell] = value
            return found
        return [value.get(name) for name in self.columns]


def read_csv(path: Path, data: bytes) -> TableRows:
    """The rows of a CSV or TSV file; raises BadInput that names the line."""
    _check_text(path, data)
    separator = _separator(path, data)
    rows = _csv_rows(path, data, separator, at=_text_start(data))
    header = next(rows, None)
    if header is None:
        raise BadInput(f"{printable(str(path))}: is empty; expected a first line that names the columns")
    columns = tuple(name.strip() for name in header[2])
    _check_columns(path, columns)
    table = TableRows(path, data, columns, separator)
    for start, end, cells in rows:
        if len(cells) != len(columns):
            line = data.count(b"\n", 0, start) + 1
            raise BadInput(
                f"{printable(str(path))}: line {line}: has {len(cells)} cells, the first line names "
                f"{len(columns)} columns; mend the line (a cell that holds {separator!r} needs double quotes)"
            )
        table.starts.append(start)
        table.ends.append(end)
    return table


def read_json_lines(path: Path, data: bytes) -> TableRows:
    """The rows of a JSON Lines file; raises BadInput that names the line."""
    _check_text(path, data)
    starts, ends = array("q"), array("q")
    columns: dict[str, None] = {}
    at = _text_start(data)
    number = members = 0
    while at < len(data):
        number += 1
        newline = data.find(b"\n", at)
        end = newline if newline >= 0 else len(data)
        if data[at:end].strip():
            found = _parsed(path, data[at:end], number)
            if not isinstance(found, dict):
                raise BadInput(f"{printable(str(path))}: line {number}: expected an object {{...}} per line")
            columns |= dict.fromkeys(found)
            members += len(found)
            check_count(path, columns)
            starts.append(at)
            ends.append(end)
        at = end + 1
    if not columns:
        raise BadInput(f"{printable(str(path))}: has no rows; expected an object {{...}} per line")
    return TableRows(path, data, tuple(columns), members=members, starts=starts, ends=ends)


def first_columns(name: str, start: bytes) -> tuple[str, ...]:
    """The names of the columns as far as the first bytes of a file tell them; none where they do not."""
    end = start.find(b"\n")
    line = (start if end < 0 else start[:end]).removeprefix(_BOM)
    try:
        if not name.lower().endswith((".csv", ".tsv")):
            found = json_value(line, finite=False)
            return tuple(found) if isinstance(found, dict) else ()
        rows = csv.reader([line.decode()], delimiter=_separator(Path(name), start), strict=True)
        return tuple(cell.strip() for cell in next(rows, []))
    except (ValueError, RecursionError, csv.Error):  # whoever reads it as a table says what is wrong
        return ()


def _text_start(data: bytes) -> int:
    return len(_BOM) if data.startswith(_BOM) else 0


def _csv_rows(path: Path, data: bytes, separator: str, *, at: int) -> Iterator[tuple[int, int, list[str]]]:
    """First byte, last byte + 1 and cells of every row that is not blank, from a place on."""
    lines = _Lines(data, at)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    start = lines.at
    try:
        for cells in reader:
            if cells:
                yield start, lines.at, cells
            start = lines.at
    except UnicodeDecodeError as error:
        raise BadInput(_not_utf_8(path, data, start)) from error
    except csv.Error as error:
        line = data.count(b"\n", 0, start) + 1
        raise BadInput(
            f"{printable(str(path))}: line {line}: no CSV: {printable(str(error))}; mend its double quotes and the "
            "ends of its lines (LF or CRLF)"
        ) from error


class _Lines:
    """The lines of a file for csv.reader; at: where the next one begins."""

    def __init__(self, data: bytes, at: int) -> None:
        self.at = at
        self._file = io.BytesIO(data)  # shares the bytes
        self._file.seek(at)

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._file.readline()
        if not line:
            raise StopIteration
        text = line.decode()
        self.at += len(line)
        return text


def _separator(path: Path, data: bytes) -> str:
    if path.suffix.lower() == ".tsv":
        return "\t"
    end = data.find(b"\n")
    line = data if end < 0 else data[:end]
    return "," if b"," in line else ";" if b";" in line else "\t" if b"\t" in line else ","


def _check_text(path: Path, data: bytes) -> None:
    if data.startswith(_UTF_16):
        raise BadInput(f"{printable(str(path))}: is UTF-16; expected UTF-8; save it again as UTF-8")


def check_count(path: Path, columns: Collection[str]) -> None:
    """Raise BadInput for more columns than a table may have."""
    if len(columns) > _MOST_COLUMNS:
        raise BadInput(f"{printable(str(path))}: {len(columns)} columns, expected at most {_MOST_COLUMNS}")


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    check_count(path, columns)
    if len(set(columns)) < len(columns):
        twice = next(name for at, name in enumerate(columns) if name in columns[:at])
        raise BadInput(
            f"{printable(str(path))}: two columns are called {printable(twice)[:_SHOWN]!r}; rename one of them"
        )


def _parsed(path: Path, raw: bytes, line: int) -> Any:
    """One line of JSON; raises BadInput."""
    try:
        return json_value(raw.decode(), finite=False)
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{printable(str(path))}: line {line}: is not UTF-8: {error.reason}; save the file as UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{printable(str(path))}: line {line}: no JSON: {printable(str(error))}; expected an object per line"
        ) from error


def _not_utf_8(path: Path, data: bytes, at: int) -> str:
    line = data.count(b"\n", 0, at) + 1
    return f"{printable(str(path))}: line {line}: is not UTF-8; save the file as UTF-8"
