"""Pack columns: the values of a pack that a row filter reads. All come from the index."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from packer.pack.sample_index import Index
from packer.schema import KEY, PIXEL_KINDS, Schema

Kind = Literal["number", "class", "text"]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

_BLOCK = 1 << 16  # rows whose texts are searched at once, which bounds the memory
_PIECE = 8  # bytes of a text that are compared at once


class PackColumns:
    """The values of all samples of one pack, by name.

    Attributes:
        kinds: name -> kind, for each name that a filter may contain. These are the key, texts, number fields of shape
            (), and `len(FIELD)`, `FIELD.width` and `FIELD.height`. `width` and `height` are those of the first image,
            unless fields have these names. Packs of version 1 have no texts, counts and sizes.
    """

    def __init__(self, schema: Schema, index: Index) -> None:
        self._schema = schema
        self._index = index
        self.kinds: dict[str, Kind] = {KEY: "text"}
        self._columns: dict[str, partial[npt.NDArray[Any]]] = {}
        for field in schema:
            if field.is_column and not field.shape:
                self._add(field.name, partial(index.column, field.name), "class" if field.classes else "number")
            elif field.kind == "text" and index.has_values(field.name):
                self.kinds[field.name] = "text"
            if f"count-{field.name}" in index.arrays:
                self._add(f"len({field.name})", partial(index.counts, field.name))
        for field in schema:
            if field.kind in PIXEL_KINDS and f"size-{field.name}" in index.arrays:
                for axis, side in enumerate(("height", "width")):
                    column = partial(self._sides, field.name, axis)
                    self._add(f"{field.name}.{side}", column)
                    if side not in self.kinds:
                        self._add(side, column)

    def _add(self, name: str, column: "partial[npt.NDArray[Any]]", kind: Kind = "number") -> None:
        self.kinds[name] = kind
        self._columns[name] = column

    def _sides(self, name: str, axis: int) -> npt.NDArray[Any]:
        return self._index.sizes(name)[:, axis]

    def classes(self, name: str) -> Sequence[str]:
        """Return the class names of a name of kind class."""
        return self._schema[name].classes or ()

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return the numbers [n] of a name of kind number or class. A bool becomes 0 or 1."""
        numbers = self._columns[name]()
        return numbers.view(np.uint8) if numbers.dtype == np.bool_ else numbers

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
