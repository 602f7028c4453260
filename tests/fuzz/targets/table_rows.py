"""Tables: CSV, TSV and JSON Lines give the rows of Python's csv and json modules, and each row by its bytes."""

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packer.errors import BadInput
from packer.sources._parse.table_cell_types import ColumnOfText, ColumnOfValues, value_of
from packer.sources._parse.table_paths import PathPattern, checked
from packer.sources._parse.table_rows import TableRows, first_columns, read_csv, read_json_lines
from tests.fuzz.target import Disagreement

TOKENS = (
    b'"',
    b'""',
    b",",
    b";",
    b"\t",
    b"\r\n",
    b"\r",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"NaN",
    b"1e999",
    b"007",
    b"-9223372036854775809",
    b"9007199254740993",
    b"../a.png",
    b"C:\\a.png",
    b"https://x/a.png",
    b'{"file_name":"a.png"}\n',
    b"null",
    b"[" * 40,
    b"\xe2\x80\xa8",
    b"\x00",
)
MOST_BYTES = 2048


def seeds() -> Iterator[bytes]:
    yield b"\x00file_name,label\na.png,cat\n"
    yield b'\x00\xef\xbb\xbffile_name;n\r\n"a;""b.png";1\r\n\r\nc.png;007'
    yield b'\x01file_name\tn\n"a\nb.png"\t1.5\n./x//y.png\t-0\n'
    yield b'\x02{"file_name": "a.png", "n": 1}\n\n{"file_name": "b\\\\c.png", "box": [1, 2.5], "n": null}\r\n'


def check(data: bytes) -> None:
    if not data:
        return
    name = ("x.csv", "x.tsv", "x.jsonl")[data[0] % 3]
    data = data[1:]
    first = first_columns(name, data)
    table = read_json_lines(Path(name), data) if name == "x.jsonl" else read_csv(Path(name), data)
    rows = list(table.all_cells())
    if rows != [table.cells(row) for row in range(len(table))] and "nan" not in repr(rows):
        raise Disagreement("a row by its bytes is another than in its order")
    expected = _json(data) if name == "x.jsonl" else _csv(table, data)
    if repr(expected) != repr([list(row) for row in rows]):
        raise Disagreement(f"{expected!r:.200}, found {rows!r:.200}")
    if name != "x.jsonl" and first and first != table.columns and not data.startswith(b'"'):
        _check_first(first, table)
    _check_columns(table, rows)
    _check_paths(table, rows)


def _csv(table: TableRows, data: bytes) -> list[list[str]]:
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="\n")
    rows = [row for row in csv.reader(text, delimiter=table.separator or ",", strict=True) if row]
    return rows[1:]


def _json(data: bytes) -> list[list[Any]]:
    values = [json.loads(line) for line in data.decode("utf-8-sig").split("\n") if line.strip(" \t\r\x0b\x0c")]
    columns = list(dict.fromkeys(name for value in values for name in value))
    return [[value.get(name) for name in columns] for value in values]


def _check_first(first: Sequence[str], table: TableRows) -> None:
    """The header by its first line is the header, unless that goes on in the next."""
    if b"\n" not in table.data[: table.starts[0] - 1 if len(table) else len(table.data)].rstrip(b"\r\n"):
        raise Disagreement(f"{first} in the first line, {table.columns} in the table")


def _check_columns(table: TableRows, rows: Sequence[Sequence[Any]]) -> None:
    for at, name in enumerate(table.columns):
        cells = [row[at] for row in rows]
        column: ColumnOfText | ColumnOfValues = ColumnOfText(name) if table.separator else ColumnOfValues(name)
        column.take(cells[:1])
        column.take(cells[1:])
        kind = column.found().kind
        for cell in cells:
            value = value_of(cell, kind)
            if kind == "int" and int(value) != int(cell):
                raise Disagreement(f"{cell!r} became {value}")
            if kind == "float" and cell not in ("", None) and not math.isnan(value) and value != float(cell):
                raise Disagreement(f"{cell!r} became {value}")


def _check_paths(table: TableRows, rows: Sequence[Sequence[Any]]) -> None:
    pattern = PathPattern("a/{" + table.columns[0] + "}.jpg", table.columns)
    for row in rows:
        for found in (*(checked(cell, "in") for cell in row), pattern.path(row[:1], "")):
            if bool(found.name) == bool(found.refused):
                raise Disagreement(f"{found}")
            if found.name and (found.name.startswith("/") or ".." in found.name.split("/") or "\0" in found.name):
                raise Disagreement(f"{found} leads out")
            if not found.refused.isprintable():
                raise BadInput(found.refused)  # which the judge takes for a finding
