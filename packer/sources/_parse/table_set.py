"""Table set: the tables of one data set as one table: rows numbered through, the columns of all of them.

Tables of one kind only; a column that a table does not have is empty in its rows. The text of many rows is kept in two
arrays (`Texts`), since a million str take ten times the bytes.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from packer.errors import BadInput, printable
from packer.sources._field_names import check_gaps
from packer.sources._parse.parquet_rows import read_parquet
from packer.sources._parse.table_cell_types import Column, ColumnOfText, ColumnOfValues
from packer.sources._parse.table_rows import Cell, TableRows, check_count, read_csv, read_json_lines
from packer.sources._trees.file_tree import FileTree

_BLOCK_ROWS = 4096  # whose columns are looked at together


class Texts:
    """Texts in order, each found by its number."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ends = array("q", [0])

    def append(self, text: str) -> None:
        """Add a text at the end."""
        self._data += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._data))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        return self._data[self._ends[number] : self._ends[number + 1]].decode("utf-8", "surrogatepass")


class TableSet:
    """names: relative paths of the tables, in order. columns: of all of them. bytes_columns: those that are left out.

    Raises BadInput as the readers of tables do, MissingPackage for a Parquet file without pyarrow.
    """

    def __init__(self, tree: FileTree, folder: Path, names: Sequence[str]) -> None:
        """folder: what the paths in messages begin with."""
        self.names = tuple(names)
        self.folders = tuple("" if "/" not in name else name.rpartition("/")[0] for name in names)
        kinds = sorted({PurePosixPath(name).suffix.lower() for name in names})
        if len(kinds) > 1:
            raise BadInput(
                f"{printable(str(folder))}: tables of several kinds ({', '.join(kinds)}): which of them counts? leave "
                "one kind there"
            )
        self.bytes_columns: tuple[str, ...] = ()
        self.tables: list[TableRows] = []
        for name in names:
            path, data = folder / name, tree.read(name, is_table=True)
            if kinds == [".parquet"]:
                table, left = read_parquet(path, data)
                self.bytes_columns = (*self.bytes_columns, *(each for each in left if each not in self.bytes_columns))
            else:
                table = read_csv(path, data) if kinds[0] in (".csv", ".tsv") else read_json_lines(path, data)
            self.tables.append(table)
        self._firsts = [sum(map(len, self.tables[:at])) for at in range(len(self.tables) + 1)]
        headers: dict[str, None] = {}
        for table in self.tables:
            headers |= dict.fromkeys(table.columns)
            check_count(folder, headers)
        self.headers = tuple(headers)
        cells = sum(table.cell_count for table in self.tables)
        advice = "write rare columns as one column of objects"
        check_gaps(folder, len(self), names=len(headers), values=cells, advice=advice)
        self.is_text = kinds[0] in (".csv", ".tsv")
        self._places = [_places(self.headers, table.columns) for table in self.tables]
        self.columns = self._found_columns()

    def __len__(self) -> int:
        return self._firsts[-1]

    def table_of(self, row: int) -> int:
        """The number of the table that a row is in."""
        return bisect_right(self._firsts, row) - 1

    def cells(self, row: int) -> Sequence[Cell]:
        """The cells of a row, one per column of the set."""
        at = self.table_of(row)
        return self._placed(at, self.tables[at].cells(row - self._firsts[at]))

    def all_cells(self) -> Iterator[tuple[int, Sequence[Cell]]]:
        """The number of its table and the cells of every row, in order."""
        for at, table in enumerate(self.tables):
            for cells in table.all_cells():
                yield at, self._placed(at, cells)

    def where(self, row: int) -> str:
        """How a message names a row."""
        at = self.table_of(row)
        return self.tables[at].where(row - self._firsts[at])

    def _placed(self, table: int, cells: Sequence[Cell]) -> Sequence[Cell]:
        places = self._places[table]
        if places is None:
            return cells
        empty = "" if self.is_text else None
        return [empty if place is None else cells[place] for place in places]

    def _found_columns(self) -> tuple[Column, ...]:
        kind: type[ColumnOfText] | type[ColumnOfValues] = ColumnOfText if self.is_text else ColumnOfValues
        found: list[ColumnOfText | ColumnOfValues] = [kind(name) for name in self.headers]
        block: list[Sequence[Cell]] = []
        for _, cells in self.all_cells():
            block.append(cells)
            if len(block) == _BLOCK_ROWS:
                _take(found, block)
                block = []
        _take(found, block)
        return tuple(column.found() for column in found)


def _take(columns: Sequence[ColumnOfText | ColumnOfValues], block: Sequence[Sequence[Cell]]) -> None:
    if block:
        for column, cells in zip(columns, zip(*block, strict=True), strict=True):
            column.take(cells)


def _places(headers: Sequence[str], columns: Sequence[str]) -> list[int | None] | None:
    """Where the cells of the set's columns are in a row of a table; None where they are the row."""
    if tuple(headers) == tuple(columns):
        return None
    known = {name: at for at, name in enumerate(columns)}
    return [known.get(name) for name in headers]
