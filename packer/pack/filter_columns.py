"""Filter columns: the values of a pack that a row filter reads. All of them come from the index."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from packer.errors import CorruptPack
from packer.pack.sample_index import Index
from packer.schema import KEY, PIXEL_KINDS, Field, Schema

Kind = Literal["number", "class", "text"]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
_Column = Callable[[], npt.NDArray[Any]]

_BLOCK = 1 << 16  # samples whose texts are read at once, which bounds the memory
_PIECE = 8  # bytes of a text that are compared at once


class Columns:
    """Columns of numbers by name. A column has one number per sample, or one per row, such as a box.

    Attributes:
        kinds: name of a column -> kind, which is number, class or text.
        groups: name of a column of rows -> field to whose rows it belongs. A filter contains these names in `any(...)`.
        row_kinds: name of a column of rows -> kind.
    """

    def __init__(self, schema: Schema, index: Index) -> None:
        self._schema = schema
        self._index = index
        self.kinds: dict[str, Kind] = {}
        self.groups: dict[str, str] = {}
        self.row_kinds: dict[str, Kind] = {}
        self._columns: dict[str, _Column] = {}
        self._of_rows: dict[str, RowColumns] = {}

    def _add(self, name: str, column: _Column, kind: Kind = "number") -> None:
        self.kinds[name] = kind
        self._columns[name] = column

    def _add_sides(self, prefix: str, sizes: _Column) -> None:
        """Add columns for width, height and area. `sizes` returns height and width, [n, 2]."""
        sides: dict[str, _Column] = {"width": lambda: sizes()[:, 1], "height": lambda: sizes()[:, 0]}
        for each, column in (sides | {"area": cache(partial(_area, sizes))}).items():
            if prefix or each not in self.kinds:
                self._add(f"{prefix}{each}", column)

    def classes(self, name: str) -> Sequence[str]:
        """Return the class names of a column of kind class."""
        return self._schema[name].classes or ()

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return the numbers [n] of a column of kind number or class. A bool becomes 0 or 1."""
        numbers = self._columns[name]()
        return numbers.view(np.uint8) if numbers.dtype == np.bool_ else numbers

    def of(self, name: str) -> "Columns":
        """Return the columns that contain the name: these, or those of the rows of a field.

        Args:
            name: the name of a column in `kinds` or `row_kinds`, or of the field with the rows.
        """
        return self._of_rows.get(self.groups.get(name, name), self)

    def of_sample(self, row: int) -> slice:
        """Return where a column contains the numbers of the sample `row`."""
        return slice(row, row + 1)

    def spread(self, mask: Mask) -> Mask:
        """Return a bool for each number of a column: the value of `mask`, bool (samples,), for its sample."""
        return mask

    def any(self, mask: Mask) -> Mask:
        """Return bool (samples,): True for a sample if `mask` is true for one of its numbers."""
        return mask


def _area(sizes: _Column) -> npt.NDArray[Any]:
    high, wide = sizes().T
    area: npt.NDArray[Any] = np.multiply(wide, high, dtype=np.uint64 if wide.dtype == np.uint32 else None)
    return area


class PackColumns(Columns):
    """The values of all samples of one pack, by name.

    Attributes:
        kinds: name -> kind, for each name that a filter may contain. These are the key, texts, number fields of shape
            (), `len(FIELD)`, `FIELD.width`, `FIELD.height`, `FIELD.area`, and `incomplete`, which is 0 or 1. `width`,
            `height` and `area` are those of the first image. A field with the same name takes precedence. Packs of
            version 1 have no texts, counts and sizes.
    """

    def __init__(self, schema: Schema, index: Index, incomplete: Iterable[str] = ()) -> None:
        """Use the index of an open pack. `incomplete` contains the keys of its incomplete samples."""
        super().__init__(schema, index)
        self.kinds[KEY] = "text"
        for field in schema:
            if field.is_column and not field.shape:
                self._add(field.name, partial(index.column, field.name), "class" if field.classes else "number")
            elif field.kind == "text" and index.contains(field.name):
                self.kinds[field.name] = "text"
            if f"count-{field.name}" in index.arrays:
                self._add(f"len({field.name})", partial(index.counts, field.name))
        for field in schema:
            if field.kind in PIXEL_KINDS and f"size-{field.name}" in index.arrays:
                self._add_sides(f"{field.name}.", partial(index.sizes, field.name))
                self._add_sides("", partial(index.sizes, field.name))
        if "incomplete" not in self.kinds:
            self._add("incomplete", cache(partial(self.equals, KEY, tuple(incomplete))))
        leads: dict[str, list[Field]] = {}
        for field in schema:
            if _row_file(field) in index.arrays:
                leads.setdefault(field.of or field.name, []).append(field)
        for lead, fields in leads.items():
            rows = self._of_rows[lead] = RowColumns(schema, index, fields)
            self.row_kinds |= rows.kinds
            self.groups |= dict.fromkeys(rows.kinds, lead)

    def values(self, name: str, rows: Rows) -> list[int | float | str]:
        """Return the value of each row: a text, a class name, or a number. A number without a class stays a number."""
        if self.kinds[name] == "text":
            return list(self._index.texts_at(rows.tolist(), name))
        numbers: list[int | float] = self.numbers(name)[rows].tolist()
        classes = dict(enumerate(self.classes(name) if self.kinds[name] == "class" else ()))
        return [classes.get(int(number), number) for number in numbers] if classes else list(numbers)

    def ordered(self, rows: Rows, name: str, *, descending: bool = False) -> Rows:
        """Return the rows sorted by numbers, class numbers, or bytes of texts. NaN is last, and ties keep order."""
        if self.kinds[name] == "text":
            texts = [self._index.value(row, name) for row in rows.tolist()]
            return rows[sorted(range(len(rows)), key=texts.__getitem__, reverse=descending)]
        step = -1 if descending else 1
        ordered = rows[::step][np.argsort(self.numbers(name)[rows[::step]], kind="stable")][::step]
        is_nan = np.isnan(self.numbers(name)[ordered])
        return np.concatenate([ordered[~is_nan], ordered[is_nan]])

    def equals(self, name: str, texts: Sequence[str]) -> Mask:
        """Return bool (n,): True for the rows whose text is one of `texts`. Raises CorruptPack."""
        if name == KEY:  # keys are sorted in the index
            rows = [row for row in map(self._index.find, texts) if row is not None]
            return np.isin(np.arange(len(self._index)), rows)
        by_length: dict[int, list[bytes]] = {}
        for wanted in filter(None, map(_encoded, texts)):
            by_length.setdefault(len(wanted), []).append(wanted)
        found = np.zeros(len(self._index), np.bool_)
        for first, data, ends in self._blocks(name):
            lengths = np.diff(ends, prepend=0)
            found[first : first + len(ends)] = (lengths == 0) & ("" in texts)
            for length, values in by_length.items():
                alike = np.flatnonzero(lengths == length)
                alike = alike[np.isin(_pieces(data, ends[alike] - length, length), values)]
                found[first + alike] = True
        return found

    def contains(self, name: str, text: str) -> Mask:
        """Return bool (n,): True for the rows whose text contains `text`. Raises CorruptPack."""
        wanted = _encoded(text)
        found = np.full(len(self._index), text == "")
        for first, data, ends in self._blocks(name) if wanted else ():
            usual = np.bincount(data[:_BLOCK], minlength=256)
            rarest = min(range(len(wanted)), key=lambda at: usual[wanted[at]])
            starts = np.flatnonzero(data[rarest : max(len(data) - len(wanted) + 1 + rarest, 0)] == wanted[rarest])
            for at in range(0, len(wanted), _PIECE) if len(wanted) > 1 else ():
                piece = wanted[at : at + _PIECE]
                starts = starts[_pieces(data, starts + at, len(piece)) == piece]
            rows = np.searchsorted(ends, starts, side="right")
            found[first + rows[starts + len(wanted) <= ends[rows]]] = True  # not across two texts
        return found

    def _blocks(self, name: str) -> Iterator[tuple[int, npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        """Yield the first row of each block of texts, the bytes of these texts, and their ends in these bytes."""
        data, ends = self._index.texts(name)
        start = 0
        for first in range(0, len(ends), _BLOCK):
            of_block = ends[first : first + _BLOCK].astype(np.int64)
            yield first, data[start : of_block[-1]], of_block - start
            start = int(of_block[-1])


def _row_file(field: Field) -> str:
    return f"{'box_size' if field.kind == 'boxes' else 'row_values'}-{field.name}"


class RowColumns(Columns):
    """Columns with the rows of a field in all samples, one sample after another, by name.

    Attributes:
        kinds: name -> kind. The names are number fields, and `FIELD.width`, `FIELD.height` and `FIELD.area` of boxes,
            in px of the stored image.
    """

    def __init__(self, schema: Schema, index: Index, fields: Sequence[Field]) -> None:
        """Use these fields, which are all `of` one field, or that field itself."""
        super().__init__(schema, index)
        self._first = fields[0].name
        for field in fields:
            rows = partial(self._rows, field)
            if field.kind == "boxes":
                self._add_sides(f"{field.name}.", rows)
            else:
                self._add(field.name, rows, "class" if field.classes else "number")

    @cached_property
    def _samples(self) -> npt.NDArray[np.uint32]:
        """Sample index of each row."""
        return np.repeat(np.arange(len(self._index), dtype=np.uint32), self._index.counts(self._first))

    def of_sample(self, row: int) -> slice:
        """Return where a column contains the rows of the sample `row`."""
        return slice(*np.searchsorted(self._samples, [row, row + 1]).tolist())

    def spread(self, mask: Mask) -> Mask:
        """Return a bool for each row: the value of `mask`, bool (samples,), for its sample."""
        return mask[self._samples]

    def any(self, mask: Mask) -> Mask:
        """Return bool (samples,): True for a sample if `mask` is true for one of its rows."""
        found = np.zeros(len(self._index), np.bool_)
        found[self._samples[mask]] = True
        return found

    def _rows(self, field: Field) -> npt.NDArray[Any]:
        """Return the rows of a field. Raises CorruptPack if their number differs from that of the first field."""
        if not np.array_equal(self._index.counts(field.name), self._index.counts(self._first)):
            raise CorruptPack(
                f"{self._index.where}: {field.name} and {self._first} have different numbers of rows, expected one "
                f"for each; packer verify names the samples"
            )
        return self._index.arrays[_row_file(field)]


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that no bytes decode to
        return b""


def _pieces(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.intp], length: int) -> npt.NDArray[np.bytes_]:
    """Return the `length` bytes from each start. A comparison ignores zeros at the end, so compare equal lengths."""
    windows = np.ndarray((max(len(data) - length + 1, 0),), f"S{length}", buffer=data, strides=(1,))
    return windows[starts]
