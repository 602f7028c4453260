"""Tables: CSV, TSV and JSON Lines give the rows of Python's csv and json modules, and each row by its bytes."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from packer.errors import InvalidRequest
from packer.sources.annotations._table_cell_kinds import ColumnCells, PathPattern, checked_path, value_of
from packer.sources.annotations._table_rows import FileRows, first_columns
from tests.fuzz import words
from tests.fuzz.target import Disagreement

TOKENS = (*words.TEXT, *words.JSON, *words.PATHS, b'"', b",", b";", b"\t", b"\r", b"\xff\xfe", b"9007199254740993")
TOKENS += (b"../a.png", b"C:\\a.png", b"https://x/a.png", b'{"file_name":"a.png"}\n')


def seeds() -> Iterator[bytes]:
    yield b"\x00file_name,label\na.png,cat\n"
    yield b'\x00\xef\xbb\xbffile_name;n\r\n"a;""b.png";1\r\n\r\nc.png;007'
    yield b'\x01file_name\tn\n"a\nb.png"\t1.5\n./x//y.png\t-0\n'
    yield b'\x02{"file_name": "a.png", "n": 1}\n\n{"file_name": "b\\\\c.png", "box": [1, 2.5], "n": null}\r\n'


def check(data: bytes) -> None:
    if not data:
        return
    path = Path(("x.csv", "x.tsv", "x.jsonl")[data[0] % 3])
    data = data[1:]
    first = first_columns(path.name, data)
    cells: dict[str, ColumnCells] = {}
    table = FileRows(path, data, cells)
    rows = list(table)
    if rows != [table[row] for row in range(len(table))] and "nan" not in repr(rows):
        raise Disagreement("a row by its bytes is another than in its order")
    expected = _json(data) if path.suffix == ".jsonl" else _csv(data, path.suffix)
    if repr(expected) != repr([list(row) for row in rows]):
        raise Disagreement(f"{expected!r:.200}, found {rows!r:.200}")
    if first != table.columns[: len(first)] or (path.suffix != ".jsonl" and first != table.columns):
        raise Disagreement(f"{first} in the first line, {table.columns} in the table")
    _check_columns(cells, table, rows)
    _check_paths(table, rows)


def _csv(data: bytes, suffix: str) -> list[list[str]]:
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="\n")
    line = data.partition(b"\n")[0]
    found = next((separator for separator in ",;\t" if separator.encode() in line), ",")
    rows = csv.reader(text, delimiter="\t" if suffix == ".tsv" else found, strict=True)
    return [row for row in rows if row][1:]


def _json(data: bytes) -> list[list[Any]]:
    values = [json.loads(line) for line in data.decode("utf-8-sig").split("\n") if line.strip(" \t\r\x0b\x0c")]
    columns = list(dict.fromkeys(name for value in values for name in value))
    return [[value.get(name) for name in columns] for value in values]


def _check_columns(found: Mapping[str, ColumnCells], table: FileRows, rows: Sequence[Sequence[Any]]) -> None:
    for place, name in enumerate(table.columns):
        kind = found[name].column(name, rows=len(table)).kind if rows else "text"
        for cell in (row[place] for row in rows):
            value = value_of(cell, kind)
            if kind == "int" and int(value) != int(cell):
                raise Disagreement(f"{cell!r} became {value}")
            if kind == "float" and cell not in ("", None) and not math.isnan(value) and value != float(cell):
                raise Disagreement(f"{cell!r} became {value}")


def _check_paths(table: FileRows, rows: Sequence[Sequence[Any]]) -> None:
    pattern = PathPattern("a/{" + table.columns[0] + "}.jpg", table.columns)
    for row in rows:
        for make in (*(partial(checked_path, cell, "in") for cell in row), partial(pattern.path, row[:1], "")):
            try:
                found = make()
            except InvalidRequest as error:
                if not error.message.isprintable():
                    raise Disagreement(ascii(error.message)) from error
                continue
            if not found or found.startswith("/") or ".." in found.split("/") or "\0" in found:
                raise Disagreement(f"{found!r} leads out")
