"""Table rows: access to the rows of CSV, TSV, JSON Lines and Parquet files. Each access parses one row.

To save memory, an object stores the bytes of the file and 16 bytes per row, not the parsed rows.

Python's csv module reads CSV with `strict`. Cells in double quotes may contain separators, newlines and doubled quotes.
Lines end in LF or CRLF. Blank lines and a BOM are ignored. The separator of a .tsv is a tab. The separator of a .csv is
the first of comma, semicolon and tab that the first line contains. The first line contains the column names. JSON Lines
contain one object per line; the members of the object are the columns.

pyarrow reads Parquet. Each row is converted to a JSON list: dates, times and decimals become texts, categories become
their values, columns of bytes are skipped. Only read Parquet files from trusted sources.
"""

import csv
import io
import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from packer.errors import BadInput, printable
from packer.layouts.json_text import json_value
from packer.registry import import_or_explain
from packer.sources._field_names import check_gaps
from packer.sources._message_texts import suffix_of
from packer.sources._trees.file_tree import FileTree
from packer.sources.annotations._table_cell_kinds import Cell, ColumnCells

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_CSV = (".csv", ".tsv")
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_MOST_COLUMNS = 10_000
_MOST_BYTES = 4 << 30  # rows of a Parquet file, converted to JSON
_BLOCK_ROWS = 4096


class Texts:
    """A list of texts. It stores all texts in one array, which needs less memory than a list of str."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = array("q", [0])

    def append(self, text: str) -> None:
        """Add a text at the end."""
        self._data += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._data))

    def __getitem__(self, number: int) -> str:
        return self._data[self._ends[number] : self._ends[number + 1]].decode("utf-8", "surrogatepass")


class FileRows:
    """The rows of one table file, a sequence of lists of cells.

    Attributes:
        columns: The names of the columns.
        skipped_columns: The names of columns of bytes. Rows do not contain these columns.
        cell_count: The number of cells in all rows.
        are_in_order: True: all rows have the same columns in the same order (CSV, Parquet). False: JSON objects.
    """

    def __init__(self, path: Path, data: bytes, cells: dict[str, ColumnCells]) -> None:
        """Find the position of each row in a file, and check each row.

        Args:
            path: The path of the file, for error messages. The suffix of the path decides the format.
            data: The bytes of the file.
            cells: Column name -> cells. The constructor adds the cells of the file to this dict.

        Raises:
            BadInput: The file is not a valid table. The message contains the line number.
            MissingPackage: The file is Parquet, and pyarrow is not installed.
        """
        self._path = path
        self._starts, self._ends = array("q"), array("q")
        self._separator: str | None = None
        self.columns: tuple[str, ...] = ()
        self.skipped_columns: tuple[str, ...] = ()
        self.cell_count = 0
        rows: Iterator[tuple[int, int, Any]]
        if suffix_of(path.name) in _CSV:
            self._separator = _separator(path, data)
            rows = _csv_rows(path, data, self._separator, at=_text_start(path, data))
            self.columns = tuple(name.strip() for name in next(rows, (0, 0, []))[2])
        elif suffix_of(path.name) == ".parquet":
            self.columns, self.skipped_columns, data = _parquet_as_json(path, data)
            rows = _json_rows(path, data, list, at=0)
        else:
            rows = _json_rows(path, data, dict, at=_text_start(path, data))
        self._data = data
        _check_columns(path, self.columns)
        columns = dict.fromkeys(self.columns)
        self.are_in_order = bool(columns)
        while block := list(islice(rows, _BLOCK_ROWS)):
            starts, ends, values = zip(*block, strict=True)
            self._starts.extend(starts)
            self._ends.extend(ends)
            by_column = (
                zip(self.columns, zip(*values, strict=True), strict=True) if self.are_in_order else _by_name(values)
            )
            for name, column in by_column:
                columns[name] = None
                cells.setdefault(name, ColumnCells(is_csv=self._separator is not None)).add(column)
                self.cell_count += len(column)
            _check_columns(path, columns)
        self.columns = tuple(columns)
        if not columns and not self.skipped_columns:
            raise BadInput(f"{printable(str(path))}: is empty; expected rows with named columns")

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> Sequence[Cell]:
        """Return the cells of a row in the order of the columns."""
        text = self._data[self._starts[row] : self._ends[row]].decode()
        if self._separator is not None:
            return next(csv.reader([text], delimiter=self._separator, strict=True))
        found = json_value(text, finite=False)
        return [found.get(name) for name in self.columns] if isinstance(found, dict) else found

    def __iter__(self) -> Iterator[Sequence[Cell]]:
        """Yield the cells of each row in order. For CSV, this is faster than access by row number."""
        if self._separator is None:
            return (self[row] for row in range(len(self)))
        file = io.BytesIO(self._data)
        file.seek(self._starts[0] if len(self) else len(self._data))
        return filter(None, csv.reader((line.decode() for line in file), delimiter=self._separator, strict=True))

    def where(self, row: int) -> str:
        """Return the file path and line number of a row, for error messages."""
        return _line(self._path, self._data, self._starts[row])


class TableRows:
    """The rows of all tables of a data set, numbered from 0 in the order of the tables.

    Attributes:
        names: The relative paths of the tables.
        headers: The names of the columns. All tables have the same columns.
        columns: The kind and value range of each column, in the order of `headers`.
        skipped_columns: The names of columns of bytes. Rows do not contain these columns.
    """

    def __init__(self, tree: FileTree, names: Sequence[str]) -> None:
        """Read the tables with the relative paths `names` in the data set `tree`.

        Raises:
            BadInput: A file is not a table, the columns of two tables differ, or most cells are empty.
            MissingPackage: A table is Parquet, and pyarrow is not installed.
        """
        self.names = tuple(names)
        self._folders = [name.rpartition("/")[0] for name in names]
        cells: dict[str, ColumnCells] = {}
        self._files = [FileRows(tree.root / name, tree.read(name, is_table=True), cells) for name in names]
        self._firsts = [0, *accumulate(map(len, self._files))]
        first = self._files[0]
        self.headers, self.skipped_columns = first.columns, first.skipped_columns
        for name, file in zip(names, self._files, strict=True):
            are_same = file.columns == first.columns or (
                not file.are_in_order and set(file.columns) == set(self.headers)
            )
            if not are_same or suffix_of(name) != suffix_of(names[0]):
                found, expected = (printable(", ".join(columns))[:200] for columns in (file.columns, self.headers))
                raise BadInput(
                    f"{printable(str(tree.root / name))}: columns {found}; expected the format and the columns of "
                    f"{printable(names[0])}: {expected}; change one table, or pack each one alone"
                )
            file.columns = self.headers
        count = sum(file.cell_count for file in self._files)
        advice = "write rare columns as one column of objects"
        check_gaps(tree.root, len(self), names=len(self.headers), values=count, advice=advice)
        none = ColumnCells(is_csv=suffix_of(names[0]) in _CSV)
        self.columns = tuple(cells.get(name, none).column(name, rows=len(self)) for name in self.headers)

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, row: int) -> Sequence[Cell]:
        """Return the cells of a row in the order of the columns."""
        number = self._file_of(row)
        return self._files[number][row - self._firsts[number]]

    def __iter__(self) -> Iterator[tuple[str, Sequence[Cell]]]:
        """Yield (folder of the table, cells of the row) for each row in order."""
        for folder, file in zip(self._folders, self._files, strict=True):
            for cells in file:
                yield folder, cells

    def folder_of(self, row: int) -> str:
        """Return the relative path of the folder with the table that contains a row."""
        return self._folders[self._file_of(row)]

    def where(self, row: int) -> str:
        """Return the file path and line number of a row, for error messages."""
        number = self._file_of(row)
        return self._files[number].where(row - self._firsts[number])

    def _file_of(self, row: int) -> int:
        return bisect_right(self._firsts, row) - 1


def first_columns(name: str, start: bytes) -> tuple[str, ...]:
    """Return the column names in the first bytes `start` of a table file, or () if the bytes are not a table."""
    path = Path(name)
    try:
        if suffix_of(name) in _CSV:
            rows = _csv_rows(path, start, _separator(path, start), at=_text_start(path, start))
            return tuple(column.strip() for column in next(rows, (0, 0, []))[2])
        return tuple(next(_json_rows(path, start, dict, at=_text_start(path, start)), (0, 0, {}))[2])
    except BadInput:  # reading the table raises it again
        return ()


def _csv_rows(path: Path, data: bytes, separator: str, *, at: int) -> Iterator[tuple[int, int, list[str]]]:
    """Yield (start, end, cells) for each row from the byte `at` on. Start and end are the byte offsets of the row."""
    file = io.BytesIO(data)  # shares the bytes
    file.seek(at)
    reader = csv.reader((line.decode() for line in file), delimiter=separator, strict=True)
    width = 0
    try:
        for cells in reader:
            end = file.tell()
            if cells:
                width = width or len(cells)
                if len(cells) != width:
                    raise BadInput(
                        f"{_line(path, data, at)}: {len(cells)} cells, expected {width} as in the first line; a cell "
                        f"that contains {separator!r} needs double quotes"
                    )
                yield at, end, cells
            at = end
    except UnicodeDecodeError as error:
        raise BadInput(f"{_line(path, data, at)}: is not UTF-8; save the file as UTF-8") from error
    except csv.Error as error:
        advice = "correct its double quotes and the ends of its lines (LF or CRLF)"
        raise BadInput(f"{_line(path, data, at)}: is not CSV: {printable(str(error))}; {advice}") from error


def _json_rows(path: Path, data: bytes, kind: type, *, at: int) -> Iterator[tuple[int, int, Any]]:
    """Yield (start, end, value) for each line that is not blank, from byte `at` on. Values have the type `kind`."""
    while at < len(data):
        newline = data.find(b"\n", at)
        end = newline if newline >= 0 else len(data)
        if data[at:end].strip():
            try:
                found = json_value(data[at:end].decode(), finite=False)
            except UnicodeDecodeError as error:
                raise BadInput(f"{_line(path, data, at)}: is not UTF-8; save the file as UTF-8") from error
            except (ValueError, RecursionError) as error:
                raise BadInput(f"{_line(path, data, at)}: is not JSON: {printable(str(error))}") from error
            if not isinstance(found, kind):
                raise BadInput(f"{_line(path, data, at)}: expected one object {{...}} per line")
            yield at, end, found
        at = end + 1


def _by_name(objects: Iterable[dict[str, Cell]]) -> Iterable[tuple[str, list[Cell]]]:
    """Yield (member name, values of this member in all objects)."""
    found: dict[str, list[Cell]] = {}
    for members in objects:
        for name, cell in members.items():
            found.setdefault(name, []).append(cell)
    return found.items()


def _line(path: Path, data: bytes, at: int) -> str:
    """Return the file path and the line number of the byte offset `at`, for error messages."""
    line = data.count(b"\n", 0, at) + 1
    return f"{printable(str(path))}: line {line}"


def _text_start(path: Path, data: bytes) -> int:
    if data.startswith(_UTF_16):
        raise BadInput(f"{printable(str(path))}: is UTF-16; save it as UTF-8")
    return len(_BOM) if data.startswith(_BOM) else 0


def _separator(path: Path, data: bytes) -> str:
    line = data[: data.find(b"\n") + 1] or data
    found = "," if b"," in line else ";" if b";" in line else "\t" if b"\t" in line else ","
    return "\t" if suffix_of(path.name) == ".tsv" else found


def _check_columns(path: Path, columns: Iterable[str]) -> None:
    """Raise BadInput for too many columns, or for two columns with the same name."""
    names = list(columns)
    if len(names) > _MOST_COLUMNS:
        raise BadInput(f"{printable(str(path))}: {len(names)} columns, expected at most {_MOST_COLUMNS}")
    if len(set(names)) < len(names):
        name = next(name for place, name in enumerate(names) if name in names[:place])
        raise BadInput(f"{printable(str(path))}: two columns are called {printable(name)[:40]!r}; rename one of them")


def _parquet_as_json(path: Path, data: bytes) -> tuple[tuple[str, ...], tuple[str, ...], bytes]:
    """Return (column names, names of skipped columns of bytes, rows as lines of JSON) of a Parquet file."""
    pyarrow: Any = import_or_explain("pyarrow", "a table in a Parquet file")
    parquet: Any = import_or_explain("pyarrow.parquet", "a table in a Parquet file")
    found = bytearray()
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        skipped = tuple(field.name for field in file.schema_arrow if _has_bytes(pyarrow.types, field.type))
        names = tuple(name for name in file.schema_arrow.names if name not in skipped)
        _check_columns(path, names)
        for batch in file.iter_batches(batch_size=_BLOCK_ROWS // 4, columns=list(names)):
            for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                found += json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
            if len(found) > _MOST_BYTES:
                raise BadInput(f"{printable(str(path))}: more than {_MOST_BYTES >> 30} GiB as text; split the file")
    except BadInput:
        raise
    except (
        OSError,
        ValueError,
        OverflowError,
        KeyError,
        TypeError,
        pyarrow.ArrowException,
        pyarrow.ArrowInvalid,
    ) as error:
        cause = printable(" ".join(str(error).split())[:200])
        raise BadInput(f"{printable(str(path))}: pyarrow cannot read this Parquet file: {cause}") from error
    return names, skipped, bytes(found)


def _has_bytes(types: Any, kind: Any) -> bool:
    if types.is_dictionary(kind):
        return _has_bytes(types, kind.value_type)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return True
    return any(_has_bytes(types, kind.field(place).type) for place in range(kind.num_fields))
