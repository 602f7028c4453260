"""Pack columns: the values of a pack that a row filter reads. All come from the index."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from packer.errors import CorruptPack
from packer.pack.sample_index import Index
from packer.schema import DTYPES, KEY, PIXEL_KINDS, Field, Schema

Kind = Literal["number", "class", "text"]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

_BLOCK = 1 << 16  # samples whose texts or rows are read at once, which bounds the memory
_FEW = 16  # one row of so many is few: their samples are searched
_PIECE = 8  # bytes of a text that are compared at once


class Columns:
    """Numbers and classes by name.

    Attributes:
        kinds: name -> kind.
        groups: name of values of rows -> field to whose rows they belong. A filter contains these names in `any(...)`.
        row_kinds: name of values of rows -> kind.
    """

    def __init__(self, schema: Schema, index: Index) -> None:
        self._schema = schema
        self._index = index
        self.kinds: dict[str, Kind] = {}
        self.groups: dict[str, str] = {}
        self.row_kinds: dict[str, Kind] = {}
        self._columns: dict[str, partial[npt.NDArray[Any]]] = {}

    def _add(self, name: str, column: "partial[npt.NDArray[Any]]", kind: Kind = "number") -> None:
        self.kinds[name] = kind
        self._columns[name] = column

    def _add_sides(self, name: str, side: Callable[[str, int], npt.NDArray[Any]], prefix: str) -> None:
        """Add width, height and area. side: returns the width, with 1 the height, for `name`."""
        width, height = partial(side, name, 0), partial(side, name, 1)
        sides = {"width": width, "height": height, "area": partial(_area, width, height)}
        for each, column in sides.items():
            if prefix or each not in self.kinds:
                self._add(f"{prefix}{each}", column)

    def classes(self, name: str) -> Sequence[str]:
        """Return the class names of a name of kind class."""
        return self._schema[name].classes or ()

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return the numbers [n] of a name of kind number or class. A bool becomes 0 or 1."""
        numbers = self._columns[name]()
        return numbers.view(np.uint8) if numbers.dtype == np.bool_ else numbers

    def rows_of(self, lead: str, first: int = 0) -> "RowColumns":
        """Return the values of the rows of a field in a block of samples. first: the first sample."""
        return RowColumns(self._schema, self._index, lead, slice(first, first + _BLOCK))

    def blocks(self, name: str) -> "Iterator[Columns]":
        """Yield the columns with a name of `kinds` or `row_kinds`, in the order of the samples."""
        is_of_rows = name in self.groups
        for first in range(0, max(1, len(self._index)), _BLOCK) if is_of_rows else (0,):
            yield self.rows_of(self.groups[name], first) if is_of_rows else self

    def spread(self, mask: Mask) -> Mask:
        """Return the value of `mask`, which contains one for each sample, for each number of a column."""
        return mask

    def any(self, mask: Mask) -> Mask:
        """Return for each sample of the columns if `mask` is true for one of its numbers."""
        return mask


def _area(width: Callable[[], npt.NDArray[Any]], height: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    wide, high = width(), height()
    area: npt.NDArray[Any] = np.multiply(wide, high, dtype=np.uint64 if wide.dtype == np.uint32 else None)
    return area


class PackColumns(Columns):
    """The values of all samples of one pack, by name.

    Attributes:
        kinds: name -> kind, for each name that a filter may contain. These are the key, texts, number fields of shape
            (), and `len(FIELD)`, `FIELD.width`, `FIELD.height` and `FIELD.area`. `width`, `height` and `area` are those
            of the first image, unless fields have these names. Packs of version 1 have no texts, counts and sizes.
    """

    def __init__(self, schema: Schema, index: Index) -> None:
        super().__init__(schema, index)
        self.kinds[KEY] = "text"
        for field in schema:
            if field.is_column and not field.shape:
                self._add(field.name, partial(index.column, field.name), "class" if field.classes else "number")
            elif field.kind == "text" and index.has_values(field.name):
                self.kinds[field.name] = "text"
            if f"count-{field.name}" in index.arrays:
                self._add(f"len({field.name})", partial(index.counts, field.name))
        for field in schema:
            if field.kind in PIXEL_KINDS and f"size-{field.name}" in index.arrays:
                self._add_sides(field.name, self._size, f"{field.name}.")
                self._add_sides(field.name, self._size, "")
        for lead in dict.fromkeys(_lead(field) for field in schema if _has_rows(field, index)):
            kinds = self.rows_of(lead).kinds
            self.row_kinds |= kinds
            self.groups |= dict.fromkeys(kinds, lead)

    def _size(self, name: str, axis: int) -> npt.NDArray[Any]:
        return self._index.sizes(name)[:, 1 - axis]

    def values(self, name: str, rows: Rows) -> list[int | float | str]:
        """Return the value of each row: a number, a text or the name of a class. A number without a class stays."""
        if self.kinds[name] == "text":
            return [self._index.value(row, name).decode("utf-8", "surrogateescape") for row in rows.tolist()]
        numbers: list[int | float] = self.numbers(name)[rows].tolist()
        classes = dict(enumerate(self.classes(name) if self.kinds[name] == "class" else ()))
        return [classes.get(int(number), number) for number in numbers] if classes else list(numbers)

    def ordered(self, rows: Rows, name: str, *, descending: bool = False) -> Rows:
        """Return the rows sorted by a number, the number of a class, or the bytes of a text. Equal rows keep order."""
        if self.kinds[name] == "text":
            texts = [self._index.value(row, name) for row in rows.tolist()]
            return rows[sorted(range(len(rows)), key=texts.__getitem__, reverse=descending)]
        step = -1 if descending else 1
        return rows[::step][np.argsort(self.numbers(name)[rows[::step]], kind="stable")][::step]

    def equals(self, name: str, texts: Sequence[str]) -> Mask:
        """Return the rows [n] whose text is one of `texts`; raises CorruptPack."""
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
        """Return the rows [n] whose text contains `text`; raises CorruptPack."""
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
        """Yield the first row of each block, the bytes of its texts, and the end of each text in these bytes."""
        data, ends = self._index.texts(name)
        start = 0
        for first in range(0, len(ends), _BLOCK):
            of_block = ends[first : first + _BLOCK].astype(np.int64)
            yield first, data[start : of_block[-1]], of_block - start
            start = int(of_block[-1])


def _lead(field: Field) -> str:
    """Return the field to whose rows the rows of a field belong."""
    return field.of or field.name


def _has_rows(field: Field, index: Index) -> bool:
    is_known = (field.kind, field.shape) in (("boxes", (None, 4)), ("number", (None,)))
    return is_known and (field.codec_argument or field.dtype) in DTYPES and index.has_values(field.name)


class RowColumns(Columns):
    """The values of the rows of a field in a block of samples, one after another, by name.

    Attributes:
        kinds: name -> kind. The names are number fields, and `FIELD.width`, `FIELD.height` and `FIELD.area` of boxes,
            in px of the stored image.
    """

    def __init__(self, schema: Schema, index: Index, lead: str, samples: slice) -> None:
        """Use the rows of the field `lead` and of the fields whose rows belong to it."""
        super().__init__(schema, index)
        self._samples = samples
        self._fields = [field for field in schema if _lead(field) == lead and _has_rows(field, index)]
        for field in self._fields:
            if field.kind == "boxes":
                self._add_sides(field.name, self._box_side, f"{field.name}.")
            else:
                self._add(field.name, partial(self._rows, field.name), "class" if field.classes else "number")

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of rows of each sample."""
        lengths, _, dtype = self._encoded_rows(self._fields[0])
        return lengths // dtype.itemsize

    def spread(self, mask: Mask) -> Mask:
        """Return the value of its sample for each row."""
        return np.repeat(mask[self._samples], self.counts)

    def any(self, mask: Mask) -> Mask:
        """Return for each sample if `mask` is true for one of its rows."""
        ends, rows = np.cumsum(self.counts), np.flatnonzero(mask)
        if len(rows) * _FEW > len(mask):
            starts = ends - self.counts
            return np.logical_or.reduceat(np.append(mask, False), starts) & (self.counts > 0)
        found = np.zeros(len(ends), np.bool_)
        found[np.searchsorted(ends, rows, side="right")] = True
        return found

    def _rows(self, name: str) -> npt.NDArray[Any]:
        """Return the rows of a field; raises CorruptPack if their number differs from that of another field."""
        lengths, data, dtype = self._encoded_rows(self._schema[name])
        if (lengths != self.counts * dtype.itemsize).any():
            raise CorruptPack(
                f"{self._index.where}: {name} and {self._fields[0].name} have different numbers of rows, expected one "
                f"for each; packer verify names the samples"
            )
        return np.frombuffer(data, dtype)

    def _encoded_rows(self, field: Field) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], np.dtype[Any]]:
        """Return the bytes of each value, all values, and the dtype of a row."""
        data, all_ends = self._index.texts(field.name)
        first = int(all_ends[self._samples.start - 1]) if self._samples.start else 0
        ends = all_ends[self._samples].astype(np.int64)
        dtype = np.dtype((np.dtype(field.codec_argument or field.dtype).newbyteorder("<"), (field.shape or ())[1:]))
        return np.diff(ends, prepend=first), data[first : ends[-1] if len(ends) else 0], dtype

    def _box_side(self, name: str, axis: int) -> npt.NDArray[Any]:
        x0, y0, x1, y1 = self._rows(name).T
        side: npt.NDArray[Any] = y1 - y0 if axis else x1 - x0
        if "matrix" in self._schema:  # it maps source pixels to stored pixels
            scales = np.abs(self._index.column("matrix")[self._samples, axis, :2])
            x_scale, y_scale = np.repeat(scales, self.counts, axis=0).T
            side = x_scale * np.abs(x1 - x0) + y_scale * np.abs(y1 - y0)
        return side


def _encoded(text: str) -> bytes:
    """Return the bytes of a text, or b"" if no pack can contain the text."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that no bytes decode to
        return b""


def _pieces(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.intp], length: int) -> npt.NDArray[np.bytes_]:
    """Return the `length` bytes from each start. A comparison ignores zeros at the end, so compare equal lengths."""
    windows = np.ndarray((max(len(data) - length + 1, 0),), f"S{length}", buffer=data, strides=(1,))
    return windows[starts]
