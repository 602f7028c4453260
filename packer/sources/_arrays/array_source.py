"""Array source: base of the sources whose samples are the rows of large arrays, one array per field.

Which arrays belong together is told by where they lie and by their names, or said by the user:

| what there is                                          | what it is                                               |
|--------------------------------------------------------|----------------------------------------------------------|
| `x` and `y` in one file or group                       | a table: row i of each is sample i                       |
| `train_images`, `x_val`, `test/rgb`, train.h5          | the word is the split, what is left the array: images    |
| train_x.h5 with `x`, train_y.h5 with `y`               | one table, since the arrays have other names             |
| a.h5 and b.h5, each with `x` and `y`                   | two tables, one after the other                          |

The key of a sample is its row, behind the table's name where there are several. The constructor reads no pixel, but the
names of classes where labels are texts, and a few rows of what may be encoded pictures.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.images import file_suffixes
from packer.schema import DTYPES, KEY, PIXEL_KINDS, Field, Schema
from packer.sources import base
from packer.sources._arrays.stored_array import StoredArray
from packer.sources._field_names import FieldNames
from packer.sources._name_words import DEPTHS, has_labels, ordered_splits, split_rank, words
from packer.sources._parse.folder_listing import are_empty, counted, described, listed, shown
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources._records.record_fields import (
    RecordField,
    about_unmoved,
    decoded,
    escaped,
    kind_of_bytes,
    parse_fields,
    shows_labels,
)
from packer.sources._records.record_source import FILES, LAYOUTS, beside_first_picture, is_path, opened

AXES = ("auto", "hwc", "chw")
_IMAGES = ("image", "images", "img", "imgs", "x", "rgb", "data", "pixels", "picture", "pictures", "photos")
_LABELS = ("label", "labels", "y", "target", "targets", "class", "classes", "category")
_KEPT_NAMES = ("rgb",)  # as the sets of grasps call their pictures
_ONE_PER_PICTURE = ("label", "labels", "target", "targets")  # `y` beside `x`, too; elsewhere it may be an axis
_LABEL_MAPS = ("y", "target", "targets", "class", "classes", "sal")  # has_labels knows the others
_USUAL = {"depth_inpainted": "depth"}
_RECTANGLES = "bounding_boxes"  # of GG-CNN: corners as (y, x), behind the last one zeros
_DEPTHS = ("uint16", "float16", "float32", "float64")
_MOST_CHANNELS = 4
_LEAST_SIDE = 8  # of what is taken for a picture unasked
_MOST_COLUMN = 16  # numbers of a sample that are kept in the index
_MOST_ROWS = 1 << 31
_MOST_CLASSES = 100_000
_PROBES = 16

PictureAxes = Literal["hw", "hwc", "chw"]


class LeftOut(NamedTuple):
    """An array that is none of the samples'. path: as messages call it."""

    path: str
    reason: str


@dataclass
class _NamedArray:
    """An array with what its names say. entry: what it is called in every split."""

    array: StoredArray
    entry: str
    split: str | None


class _Table(NamedTuple):
    """Arrays of the same samples, by entry."""

    name: str
    split: str | None
    arrays: dict[str, StoredArray]


class _ArrayColumn(NamedTuple):
    """How the rows of an entry become a field."""

    field: Field
    entry: str
    value: Callable[[Any], Any]
    note: str | None = None


@dataclass(frozen=True)
class _PictureRows:
    """Rows of pixels as (H, W, 3) or (H, W). axes: as they are stored."""

    axes: PictureAxes
    colours: int
    is_image: bool

    def __call__(self, row: npt.NDArray[Any]) -> npt.NDArray[Any]:
        plane = row.transpose(1, 2, 0) if self.axes == "chw" else row
        plane = plane[:, :, 0] if plane.ndim == 3 and self.colours == 1 else plane
        if self.is_image and plane.ndim == 2:
            plane = np.broadcast_to(plane[:, :, None], (*plane.shape, 3))
        return np.ascontiguousarray(plane)


@dataclass(frozen=True)
class _Numbers:
    """Rows of numbers without dimensions of one."""

    shape: tuple[int, ...]

    def __call__(self, row: npt.NDArray[Any]) -> Any:
        return row.reshape(self.shape) if self.shape else row.reshape(-1)[0]


@dataclass(frozen=True)
class _ClassNumber:
    """A label as int64: a whole number as it is, a text by its place among the classes."""

    numbers: dict[str, int] | None = None

    def __call__(self, row: Any) -> np.int64:
        if self.numbers is not None:
            if row not in self.numbers:
                raise BadInput(f"label {row!r:.60} was not there when the file was listed; it changed, run again")
            return _int64(self.numbers[row])
        number = int(np.asarray(row).reshape(-1)[0])
        if number >= 1 << 63:
            raise BadInput(f"label {number} is beyond int64")
        return _int64(number)


def _int64(number: int) -> np.int64:
    value: np.int64 = np.int64(number)
    return value


@dataclass(frozen=True)
class _Encoded:
    """Bytes of any length, as the field's kind has them."""

    field: RecordField

    def __call__(self, row: bytes) -> Any:
        return decoded(self.field, row)


def _as_it_is(row: Any) -> Any:
    return row


def _rectangles(row: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Grasps as (n, 4, 2) x, y of GG-CNN's (k, 4, 2) y, x, of which those behind the first one of zeros are padding."""
    # source: dougsm/ggcnn, dataset_processing/grasp.py of 2018: _bb_text_to_no, to_array, load_from_array
    empty = np.flatnonzero(row.reshape(len(row), -1).max(axis=1) == 0)
    found = row[: int(empty[0]) if len(empty) else len(row)]
    return np.ascontiguousarray(found[:, :, ::-1], np.float32)


class ArraySource(base.Source):
    """See the module; a subclass calls `_open`, lists its arrays, and then calls `_settle`."""

    holds_records = True
    noun: ClassVar[str]  # of what it reads, such as `HDF5 file`
    colour_note: ClassVar[str]  # what is taken for granted of pixels
    notes: list[str]
    left_out: list[tuple[str, str]]

    _folder: SourceRoot

    # ---- while it is made

    def _open(self, root: Path, *, follow_links: bool, layout: str, axes: str) -> list[str]:
        """Relative paths of everything that is there, in order; raises InvalidRequest, BadInput."""
        base.check_choice("layout", layout, LAYOUTS)
        base.check_choice("axes", axes, AXES)
        self.root = root
        self.follow_links = follow_links
        self._layout, self._axes = layout, axes
        self._folder, names, notes = opened(root, follow_links=follow_links)
        self.notes = notes
        self.left_out = []
        return names

    def _none_found(self, names: Sequence[str], expected: str) -> InvalidRequest:
        found = f"found {described(names)}" if names else "there is no file in it"
        found += ", all empty" if are_empty(self._folder, names) else ""
        return InvalidRequest(f"{shown(str(self.root))}: no {self.noun}s: {found}; expected {expected}")

    def _settle(
        self,
        arrays: Sequence[StoredArray],
        left: Sequence[LeftOut],
        *,
        image_key: str,
        label_key: str,
        features: Sequence[str],
        extras: Sequence[str],
    ) -> None:
        """Take the arrays: which table and field each is of. Raises InvalidRequest, BadInput."""
        asked = parse_fields(features)
        placed = [_placed(array) for array in arrays if array.shape and array.shape[0]]
        left = [*left, *(LeftOut(one.path, "has no rows") for one in arrays if not (one.shape and one.shape[0]))]
        wanted = {"image_key": image_key, "label_key": label_key} | {f.shown(): f.entries[0] for f in asked}
        for option, key in wanted.items():
            if key:
                placed = _chosen(placed, key, option=option if option.endswith("_key") else "features")
        fields = [
            *(RecordField(name, (key,)) for name, key in (("image", image_key), ("label", label_key)) if key),
            *asked,
        ]
        tables = _tables(placed)
        if not tables:
            found = f": {listed(f'{path} ({reason})' for path, reason in left)}" if left else ""
            raise InvalidRequest(f"{shown(str(self.root))}: no array with rows in the {self.noun}s{found}")
        main = fields[0].entries[0] if fields else _main_entry(tables)
        if not fields and main is not None:
            self._check_pieces(tables, main)
        if not asked and main is not None:
            self._check_first_axis(tables, main)
        if main is None:
            there = listed(_described(array) for table in tables for array in table.arrays.values())
            others = f"; left out: {listed(f'{path} ({reason})' for path, reason in left)}" if left else ""
            raise InvalidRequest(
                f"{shown(str(self.root))}: no array looks like pictures of at least {_LEAST_SIDE} px, one per row: "
                f"found {there}{others}; name it with --image-key, or name all fields with --features; pictures in "
                "arrays of their own are not read: numpy.stack makes rows of them"
            )
        with_main = [table for table in tables if main in table.arrays]
        if fields:
            option = "image_key" if image_key else "label_key" if label_key else "features"
            self._check_lacks(tables, with_main, main, option=option)
        self._main_entry = main
        self._tables = self._settled_splits(with_main)
        self._check_alike(main, is_label=bool(fields) and fields[0].name == "label")
        self._counts = [table.arrays[main].shape[0] for table in self._tables]
        self._ends = list(accumulate(self._counts))
        if self._ends[-1] > _MOST_ROWS:
            raise BadInput(f"{shown(str(self.root))}: {self._ends[-1]} rows, expected at most {_MOST_ROWS}")
        columns = self._columns_of(fields, main, keys_only=not asked)
        self._columns = columns
        used = {column.entry for column in columns}
        self._extras = list(extras)
        self._settle_schema()
        entries = dict.fromkeys(entry for table in tables for entry in table.arrays if entry not in used)
        faults = {entry: self._fault(entry) for entry in entries}
        unused = []
        for table in tables:
            for entry, array in table.arrays.items():
                if main not in table.arrays:
                    unused.append(LeftOut(array.path, f"is {_shape_text(array)}, without {main!r} beside it"))
                elif entry not in used:
                    why = f": {faults[entry]}" if faults[entry] else ", and no field"
                    unused.append(LeftOut(array.path, f"is {_shape_text(array)}{why}"))
        self._note([*left, *unused], was_asked=bool(asked))
        for table in tables:
            for array in table.arrays.values():
                array.forget()  # what was opened for a look

    def _settle_schema(self) -> None:
        fields = [Field(KEY, "text", "text"), *(column.field for column in self._columns)]
        if self._split_names:
            fields.append(Field("split", "number", "number", dtype="int64", shape=(), classes=self._split_names))
        if any(_is_file(field) for field in fields):
            fields.append(FILES)
        self.schema = Schema(tuple(fields))
        self.decodes = any(isinstance(column.value, _PictureRows) for column in self._columns)
        self._first_picture = next((one.name for one in self.schema if one.kind in PIXEL_KINDS), None)
        # the sizes of samples are those of pictures, whatever was named first
        largest = (column.entry for column in self._columns if column.field.name == self._first_picture)
        self._sized_entry = next(largest, self._main_entry)
        self.companions = beside_first_picture(self.schema)

    def _settled_splits(self, tables: list[_Table]) -> list[_Table]:
        """The tables in the order of their splits, whose names are kept."""
        self._split_names: tuple[str, ...] = ()
        words = [table.split for table in tables]
        there = sorted({word for word in words if word})
        if self._layout == "unchecked" or (self._layout == "auto" and len(there) <= 1):
            return tables
        if self._layout == "auto":
            counts = {word: sum(_rows_of(table) for table in tables if table.split == word) for word in there}
            found = ", ".join(f"{word} {count}" for word, count in counts.items())
            raise InvalidRequest(
                f"{shown(str(self.root))}: the arrays are of several splits ({found}); say --layout split, which packs "
                f"all with the field split, or name the arrays of one: --image-key {shell_word(_first(tables).path)}"
            )
        self._split_names = ordered_splits({word or "other" for word in words})
        return sorted(tables, key=lambda table: self._split_names.index(table.split or "other"))

    def _check_lacks(self, tables: Sequence[_Table], with_main: Sequence[_Table], main: str, *, option: str) -> None:
        """Raise InvalidRequest where a table has other arrays of the samples, but not the one that was named.

        Tables that have no array in common with those that do are of something else. A name that is a path (`a/labels`)
        asks for nothing in other groups.
        """
        common = {entry for table in with_main for entry in table.arrays}
        group = main.rpartition("/")[0]
        for table in tables:
            there = [array for entry, array in table.arrays.items() if entry in common]
            there = [one for one in there if not group or f"/{one.container}".endswith(f"/{group}")]
            if main in table.arrays or not there:
                continue
            array = with_main[0].arrays[main]
            flag = f"--{option.replace('_', '-')}"
            typed = array.path if option != "features" else f"FIELD={escaped(array.path)}"
            raise InvalidRequest(
                f"option {option}: {shown(str(self.root))}: no array {main!r} beside {_described(there[0])}, expected "
                f"one with as many rows, as {_described(array)}; add it, move the rows without it elsewhere, or "
                f"take those of one place alone: {flag} {shell_word(typed)}"
            )

    def _check_alike(self, main: str, *, is_label: bool) -> None:
        """Raise BadInput where tables hold different things under one name."""
        form = _label_form if is_label else _form
        first = self._tables[0]
        for table in self._tables[1:]:
            array, other = first.arrays[main], table.arrays[main]
            if form(array) != form(other):
                raise BadInput(
                    f"{shown(str(self.root))}: {_described(array)} and {_described(other)} cannot be one field; "
                    "give one of them with --image-key, or pack them apart"
                )

    def _check_pieces(self, tables: Sequence[_Table], main: str) -> None:
        """Raise InvalidRequest where one array of pictures may be cut into numbered pieces, which nothing tells."""
        table = next((table for table in tables if main in table.arrays), None)
        if table is None:
            return
        form = _form(table.arrays[main])
        names = [
            entry
            for entry, array in table.arrays.items()
            if _without_numbers(entry) == _without_numbers(main) and _form(array) == form
        ]
        if len(names) > 1:
            typed = ",".join(f"{FieldNames().of_entry(name)}={escaped(name)}" for name in names)
            raise InvalidRequest(
                f"{shown(str(self.root))}: {listed(names)} may be pieces of one array, or several pictures of each "
                "row: for pieces write each, with the arrays of its rows, into a file of its own, such as 0.npz and "
                f"1.npz; for pictures of one row say --features {shell_word(typed)}, with the other fields"
            )

    def _check_first_axis(self, tables: Sequence[_Table], main: str) -> None:
        """Raise InvalidRequest where labels count the last axis of the pictures, as MATLAB writes them."""
        for table in tables:
            array = table.arrays.get(main)
            if array is None or array.is_ragged or len(array.shape) < 3:
                continue
            counts = {entry: one.shape[0] for entry, one in table.arrays.items() if entry.lower() in _LABELS}
            is_colours = len(array.shape) == 4 and array.shape[3] in (1, 3) and array.shape[2] not in (1, 3)
            if not is_colours and counts and set(counts.values()) == {array.shape[-1]} != {array.shape[0]}:
                label = table.arrays[next(iter(counts))]
                raise InvalidRequest(
                    f"{shown(str(self.root))}: {_described(array)} has {array.shape[0]} rows, and {_described(label)} "
                    "a value for each place of its last axis, which MATLAB's order of axes has for the samples: save "
                    "numpy.moveaxis(array, -1, 0), or leave the labels out: --features "
                    f"{shell_word(f'image={main}')}"
                )

    def _all_arrays(self, used: set[str] | None) -> Iterator[StoredArray]:
        """Every array of the tables, of these entries."""
        for table in self._tables:
            yield from (array for entry, array in table.arrays.items() if used is None or entry in used)

    # ---- which fields

    def _columns_of(self, asked: Sequence[RecordField], main: str, *, keys_only: bool) -> list[_ArrayColumn]:
        """keys_only: whether the user named image and label alone, so that the other fields are guessed."""
        columns = [self._column(field, main, was_asked=True) for field in asked]
        if asked and not keys_only:
            return columns
        taken = {column.entry for column in columns}
        names = FieldNames(column.field.name for column in columns)
        if names.taken == {"label"}:
            self._check_pictures(main)
        label = None if "label" in names.taken else self._guessed_label()
        order = [main, *([label] if label else []), *sorted(self._common)]
        for entry in dict.fromkeys(order):
            if entry in taken:
                continue
            name = self._guessed_name(entry, label=label, main=main, names=names)
            columns.append(self._column(RecordField(name, (entry,)), main, was_asked=False))
        return columns

    @cached_property
    def _common(self) -> set[str]:
        """Entries that each table has with as many rows as its pictures."""
        return {entry for entry in self._tables[0].arrays if self._fault(entry) is None}

    def _fault(self, entry: str, *, is_label: bool = False) -> str | None:
        """Why an entry can be no field, with the array that it is for; None where it can be one.

        is_label: whether it becomes the label, an int64 of whatever whole numbers the files hold.
        """
        form = _label_form if is_label else _form
        first: StoredArray | None = None
        for table, count in zip(self._tables, self._counts, strict=True):
            main, array = table.arrays[self._main_entry], table.arrays.get(entry)
            if array is None:
                return f"no array {entry!r} beside {main.path}"
            if array.shape[0] != count:
                return f"{array.path} has {counted(array.shape[0], 'row')}, {main.path} {count}"
            if first is not None and form(array) != form(first):
                return f"{_described(array)} and {_described(first)} cannot be one field"
            first = first or array
        return None

    def _check_pictures(self, main: str) -> None:
        """Raise InvalidRequest where the labels alone were named, and no pictures beside them fit."""
        pictures = _main_entry(self._tables)
        if pictures is None or any(_may_be_pictures(self._tables[0].arrays[entry]) for entry in self._common):
            return
        raise InvalidRequest(
            f"{shown(str(self.root))}: the pictures {pictures!r} cannot go with {main!r}: {self._fault(pictures)}; "
            f"expected a row for each of {main!r}, alike in every file; write them so, or pack the labels alone: "
            f"--features {shell_word(f'label={escaped(main)}')}"
        )

    def _guessed_label(self) -> str | None:
        """The array of the labels, or none; raises InvalidRequest for one label per picture of another number."""
        main = self._main_entry
        found = next((name for name in _LABELS if name != main and self._fault(name, is_label=True) is None), None)
        names = (*_ONE_PER_PICTURE, *(("y",) if main.lower() == "x" else ()))
        if found is not None:
            return found
        for table, count in zip(self._tables, self._counts, strict=True):
            for name in names:
                array = table.arrays.get(name)
                if array is None or array.shape[0] == count or _label_form(array) != _WHOLE_NUMBERS or name == main:
                    continue
                raise InvalidRequest(
                    f"{shown(str(self.root))}: {_described(array)} has {counted(array.shape[0], 'row')}, expected "
                    f"{count}, as {_described(table.arrays[main])} has; which picture a label is of cannot be told: "
                    "write a label for each picture, or leave the labels out: --features "
                    f"{shell_word(f'image={escaped(main)}')}"
                )
        return None

    def _guessed_name(self, entry: str, *, label: str | None, main: str, names: FieldNames) -> str:
        array = self._tables[0].arrays[entry]
        usual = _USUAL.get(entry.lower(), "")
        is_image = array.is_ragged or array.dtype.name == "uint8"
        is_kept = entry in _KEPT_NAMES or _is_label_map(entry)
        if entry == main and is_image and not is_kept and "image" not in names.taken:
            usual = "image"
        if entry.lower() == _RECTANGLES and _are_rectangles(array) and "grasps" not in names.taken:
            usual = "grasps"
        if entry == label and "label" not in names.taken:
            usual = "label"
        return names.of_entry(entry, usual)

    def _column(self, asked: RecordField, main: str, *, was_asked: bool) -> _ArrayColumn:
        entry = asked.entries[0]
        fault = self._fault(entry, is_label=asked.name == "label")
        if fault:
            raise InvalidRequest(
                f"option features: {asked.shown()}: {fault}; expected in every file and split a row for each of "
                f"{main!r}, of one type; those that have: {listed(sorted(self._common))}"
            )
        array = self._tables[0].arrays[entry]
        if array.is_text:
            return self._text_column(asked, entry)
        if array.is_ragged:
            return self._ragged_column(asked, array, entry)
        if asked.kind in ("text", "json", "bytes"):
            raise InvalidRequest(f"option features: {asked.shown()}: {entry} holds numbers: {_described(array)}")
        if asked.kind is None and entry.lower() == _RECTANGLES and _are_rectangles(array):
            field = Field(asked.name, "points", "raw", dtype="float32", shape=(None, 4, 2))
            return _ArrayColumn(
                field, entry, _rectangles, f"{entry}: corners are (y, x) as of GG-CNN: stored as (x, y)"
            )
        is_main = entry == main or asked.name == "image"
        if asked.kind in PIXEL_KINDS or (asked.kind is None and (is_main or self._seems_picture(array, entry))):
            column = self._picture_column(asked, array, entry, main, must=was_asked)
            if column is not None:
                return column
        if asked.name == "label" and _label_form(array) == _WHOLE_NUMBERS:
            return self._label_column(entry)
        return _number_column(asked, array, entry)

    def _label_column(self, entry: str) -> _ArrayColumn:
        """Whole numbers of any width as int64, with the names that an enumeration has for them as classes."""
        arrays = [table.arrays[entry] for table in self._tables]
        classes, note = None, None
        if any(array.value_names for array in arrays):
            reason = _no_classes(arrays)
            named = sorted((number, name) for name, number in _first_named(arrays).value_names)
            if reason is None:
                classes = tuple(name for _, name in named)
                note = f"{entry}: {counted(len(classes), 'class')}, by the names of its enumeration"
            else:
                said = listed(f"{number} {name}" for number, name in named)
                note = f"{entry}: the names of its enumeration ({said}) are left out: {reason}"
        field = Field("label", "number", "number", dtype="int64", shape=(), classes=classes)
        return _ArrayColumn(field, entry, _ClassNumber(), note)

    def _seems_picture(self, array: StoredArray, entry: str) -> bool:
        shape = tuple(length for length in array.shape[1:] if length not in (1, 3))
        is_flat = array.dtype.kind == "u" and array.dtype.itemsize <= 2
        return len(shape) == 2 and min(shape) >= _LEAST_SIDE and (is_flat or array.dtype.kind == "f")

    def _picture_column(
        self, asked: RecordField, array: StoredArray, entry: str, main: str, *, must: bool
    ) -> _ArrayColumn | None:
        """None where rows are no pictures and nobody said that they are; raises InvalidRequest where somebody did."""
        axes = self._picture_axes(array)
        dtype = array.dtype.newbyteorder("=").name
        colours = 0 if axes is None else 1 if axes == "hw" else array.shape[1 if axes == "chw" else 3]
        kind = asked.kind
        if kind is None:
            is_map = colours == 1 and asked.name != "image" and _is_label_map(entry)
            if colours == 1 and not is_map and not must and entry != main:
                is_map = _has_few_values(array) and not DEPTHS.intersection(words(entry))
            kind = "mask" if is_map else "depth" if dtype in _DEPTHS else "image"
        fits = (
            axes is not None
            and (dtype in ("uint8", asked.dtype if kind == "mask" else None) or kind == "depth")
            and (kind == "image" or colours == 1)
            and (kind != "depth" or dtype in _DEPTHS)
        )
        if axes is None or not fits:
            if must and (asked.kind in PIXEL_KINDS or asked.name == "image"):
                is_one = len(array.shape) == 3 and array.shape[2] <= _MOST_CHANNELS
                typed = f"{asked.name}={escaped(entry)}"
                instead = (
                    "is it one picture? numpy.stack makes rows of several"
                    if is_one
                    else f"--features {shell_word(f'{typed}:numbers')} packs the numbers as they are"
                )
                if kind == "mask" and dtype == "uint16":
                    instead = f"--features {shell_word(f'{typed}:mask:uint16')} takes masks of 16 bit"
                raise InvalidRequest(
                    f"option features: {asked.name}={entry}: {_described(array)} is no {kind}: expected rows of uint8 "
                    f"(H, W), (H, W, 3) or (3, H, W), of a depth uint16 or floats (H, W); {instead}"
                )
            return None
        notes = []
        if axes == "chw" and colours > 1:
            notes.append("stored as (3, H, W)")
        if kind == "image":
            notes.append(self.colour_note if colours > 1 else "gray: three equal channels")
            if colours > 1 and _is_label_map(entry):
                notes.append("named as labels, taken as an image, whose values geometries mix; a mask has one channel")
        codec = "npy" if kind == "depth" else "png"
        shape = (None, None, 3) if kind == "image" else (None, None)
        dtype = asked.dtype or dtype if kind == "mask" else dtype
        field = Field(asked.name, kind, codec, dtype=dtype, shape=shape, invalid=asked.invalid)
        note = f"{entry}: {', '.join(notes)}" if notes else None
        return _ArrayColumn(field, entry, _PictureRows(axes, colours, kind == "image"), note)

    def _picture_axes(self, array: StoredArray) -> PictureAxes | None:
        """Raises InvalidRequest where rows may be (H, W, C) and (C, H, W)."""
        shape = array.shape[1:]
        if len(shape) == 2:
            return "hw" if shape[1] > _MOST_CHANNELS else None  # the row of one picture in colours is no picture
        if len(shape) != 3:
            return None
        last, first = shape[2] in (1, 3), shape[0] in (1, 3)
        if self._axes != "auto":
            fits = last if self._axes == "hwc" else first
            return ("hwc" if self._axes == "hwc" else "chw") if fits else None
        if last and first:
            raise InvalidRequest(
                f"option axes: {_described(array)} may be (H, W, C) and (C, H, W) in each row; say which: "
                "--axes hwc or --axes chw"
            )
        return "hwc" if last else "chw" if first else None

    def _text_column(self, asked: RecordField, entry: str) -> _ArrayColumn:
        if asked.name != "label" or asked.kind == "text":
            if asked.kind not in (None, "text"):
                raise InvalidRequest(f"option features: {asked.shown()}: {entry} holds texts")
            return _ArrayColumn(Field(asked.name, "text", "text"), entry, _as_it_is)
        found: set[str] = set()
        for table in self._tables:
            array = table.arrays[entry]
            found.update(array.row(index) for index in range(array.shape[0]))
            if len(found) > _MOST_CLASSES:
                raise InvalidRequest(
                    f"{array.path}: more than {_MOST_CLASSES} different labels; as texts: --features "
                    f"{shell_word(f'label={escaped(entry)}:text')}"
                )
        classes = tuple(sorted(found))
        field = Field(asked.name, "number", "number", dtype="int64", shape=(), classes=classes)
        numbers = {name: number for number, name in enumerate(classes)}
        note = f"{entry}: {counted(len(classes), 'class')} by name, numbered in the order of the names"
        return _ArrayColumn(field, entry, _ClassNumber(numbers), note)

    def _ragged_column(self, asked: RecordField, array: StoredArray, entry: str) -> _ArrayColumn:
        if array.dtype.name != "uint8":
            if asked.kind not in (None, "numbers"):
                raise InvalidRequest(f"option features: {asked.shown()}: {entry} holds lists of {array.dtype.name}")
            field = RecordField(asked.name, (entry,), "numbers", array.dtype.newbyteorder("=").name)
            return _ArrayColumn(field.field, entry, _as_it_is)
        if asked.kind in ("number", "numbers"):
            raise InvalidRequest(f"option features: {asked.shown()}: {entry} holds bytes")
        step = max(1, array.shape[0] // _PROBES)
        values = []
        for index in range(0, array.shape[0], step):
            try:
                values.append(array.row(index))
            except BadInput:
                continue  # whoever packs the sample is told
        kind = asked.kind or kind_of_bytes(values, entry)
        field = RecordField(asked.name, (entry,), kind, asked.dtype if kind == "mask" else None)
        return _ArrayColumn(field.field, entry, _Encoded(field))

    # ---- what is said of it

    def _note(self, left: Sequence[LeftOut], *, was_asked: bool) -> None:
        arrays = list(self._all_arrays({column.entry for column in self._columns}))
        files = {name for array in arrays for name in array.all_files()} if len(self._tables) < 100 else set()
        where = f" in {counted(len(files), self.noun)}" if files and self.noun != "N5 data set" else ""
        self.notes.append(f"{counted(len(self), 'row')}{where}")
        if self._split_names:
            counts = dict.fromkeys(self._split_names, 0)
            for table, count in zip(self._tables, self._counts, strict=True):
                counts[table.split or "other"] += count
            self.notes.append("splits: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
        self.notes.extend(shown(column.note) for column in self._columns if column.note)
        missing = [(array.path, array.missing_blocks) for array in arrays if array.missing_blocks]
        self.notes.extend(f"{shown(path)}: {counted(count, 'block')} never written: zeros" for path, count in missing)
        if left:
            self.notes.append(f"arrays left out: {listed(f'{path} ({reason})' for path, reason in left)}")
        kinds = {column.field.kind for column in self._columns}
        if not kinds & set(PIXEL_KINDS):
            main = self._tables[0].arrays[self._main_entry]
            self.notes.append(
                f"no picture: {shown(_described(main))} is packed otherwise; pictures are rows of uint8 (H, W, 3), "
                "(3, H, W) or (H, W), depth those of floats and uint16 (H, W)"
            )
        if not was_asked and not any(column.field.name == "label" for column in self._columns):
            there = (name for name in _LABELS if any(name in table.arrays for table in self._tables))
            faults = (self._fault(name, is_label=True) for name in there)
            why = next((fault for fault in faults if fault), None)
            self.notes.append(f"no labels{f': {shown(why)}' if why else ''}")
        said = ",".join(_shown_field(column) for column in self._columns)
        how = "as asked" if was_asked else "guessed from names and shapes; --features says it otherwise"
        self.notes.append(f"--features {shell_word(said)} ({how})")
        if kinds & set(PIXEL_KINDS):
            self.notes += about_unmoved(
                self.schema,
                "a mask is moved where it is uint8 (N, H, W), or uint16 and named as FIELD=ENTRY:mask:uint16",
            )

    # ---- what packer asks

    def invalid_option(self, name: str, values: Mapping[str, str]) -> str | None:
        fields = {column.field.name: column.field for column in self._columns if column.field.kind == "depth"}
        if name not in fields:
            return None
        named = {each: replace(fields[each], invalid=float(value)) for each, value in values.items() if each in fields}
        said = [column._replace(field=named.get(column.field.name, column.field)) for column in self._columns]
        return f"--features {shell_word(','.join(map(_shown_field, said)))}"

    @property
    def folder(self) -> SourceRoot:
        return self._folder

    def __len__(self) -> int:
        return self._ends[-1]

    def _row(self, index: int) -> tuple[int, int]:
        """The number of the table, and the row in it."""
        number = bisect_right(self._ends, self.checked(index))
        return number, index - (self._ends[number] - self._counts[number])

    def key(self, index: int) -> str:
        number, row = self._row(index)
        return f"{row:08d}" if len(self._tables) == 1 else f"{self._stems[number]}/{row:08d}"

    @cached_property
    def _stems(self) -> list[str]:
        """A name for each table: of its split where no other has it, else of its file."""
        words = [table.split or table.name for table in self._tables]
        found = words if len(set(words)) == len(words) else [table.name for table in self._tables]
        return found if len(set(found)) == len(found) else [f"{number:05d}" for number in range(len(found))]

    def __getitem__(self, index: int) -> base.Sample:
        sample: base.Sample = {KEY: self.key(index)}
        for column in self._columns:
            sample[column.field.name] = self._value(index, column)
        if self._split_names:
            sample["split"] = self._split_of(index)
        if FILES in self.schema.fields:
            sample[FILES.name] = self._paths(index, sample)
        return sample

    def _split_of(self, index: int) -> np.int64:
        return _int64(self._split_names.index(self._tables[self._row(index)[0]].split or "other"))

    def _value(self, index: int, column: _ArrayColumn) -> Any:
        number, row = self._row(index)
        try:
            return column.value(self._tables[number].arrays[column.entry].row(row))
        except BadInput as error:
            where = self.where(index)
            message = error.message
            raise BadInput(message if message.startswith(where) else f"{where}: {column.entry}: {message}") from error

    def value(self, index: int, name: str) -> Any:
        if name == KEY:
            return self.key(index)
        column = next((column for column in self._columns if column.field.name == name), None)
        return self[index][name] if column is None else self._value(index, column)

    def _array(self, index: int) -> tuple[StoredArray, int]:
        """The array of the pictures that the sample is in, and the row."""
        number, row = self._row(index)
        return self._tables[number].arrays[self._main_entry], row

    def files(self, index: int) -> tuple[Path, ...]:
        number, row = self._row(index)
        arrays = self._tables[number].arrays
        entries = dict.fromkeys([self._main_entry, *(column.entry for column in self._columns)])
        names = dict.fromkeys(name for entry in entries for name in arrays[entry].files(row))
        return tuple(self._folder.root / name for name in names)

    def extent(self, index: int) -> base.Extent:
        number, row = self._row(index)
        return self._tables[number].arrays[self._sized_entry].extent(row)

    def more_files(self) -> Sequence[str]:
        used = {self._main_entry, *(column.entry for column in self._columns)}
        return sorted({name for array in self._all_arrays(used) for name in array.all_files()})

    def tables_read(self) -> Sequence[Mapping[str, StoredArray]]:
        """The arrays of each table, by their names without the split."""
        return [table.arrays for table in self._tables]

    def stem(self, index: int) -> Path:
        return self._folder.root / self.key(index)

    def where(self, index: int, path: str | None = None) -> str:
        array, row = self._array(index)
        file = self._folder.root / array.extent(row).name
        return f"{file}: row {row} of {shown(array.name)} ({shown(self.key(index))})"

    def content(self, index: int, name: str, path: str) -> Any:
        return self.value(index, name)

    def extras(self) -> Sequence[str]:
        return self._extras

    def _paths(self, index: int, sample: base.Sample) -> dict[str, str]:
        """What `extract` calls the values that are files."""
        key = self.key(index)
        stem = key if is_path(key) else f"{index:08d}"
        paths = {}
        for field in self.schema:
            if _is_file(field):
                middle = "" if field.name == self._first_picture else f".{field.name}"
                paths[field.name] = f"{stem}{middle}{_suffix(field, sample[field.name])}"
        return paths


# ---- names


def _placed(array: StoredArray) -> _NamedArray:
    """The split is said by the array's own name, else by the last part of its path that says one."""
    words = array.name.replace("-", "_").replace(".", "_").split("_")
    found = [word for word in words if split_rank(word) is not None]
    rest = "_".join(word for word in words if word and word not in found[:1])
    if found and rest:
        return _NamedArray(array, rest, found[0].lower())
    for part in reversed(PurePosixPath(array.container).parts):
        for word in part.replace("-", "_").replace(".", "_").split("_"):
            if split_rank(word) is not None:
                return _NamedArray(array, array.name, word.lower())
    return _NamedArray(array, array.name, None)


def _chosen(placed: list[_NamedArray], key: str, *, option: str) -> list[_NamedArray]:
    """The arrays of the splits in which there is one of that name, which becomes its entry; raises InvalidRequest."""
    if any(one.entry == key for one in placed):
        return placed
    found = [one for one in placed if one.array.name == key or f"/{one.array.path}".endswith(f"/{key}")]
    if not found:
        there = listed(dict.fromkeys(one.array.path for one in placed))
        raise InvalidRequest(f"option {option}: no array {key!r}; there are: {there or 'none'}")
    splits = {one.split for one in found}
    return [replace(one, entry=key if one in found else one.entry) for one in placed if one.split in splits]


def _tables(placed: Sequence[_NamedArray]) -> list[_Table]:
    """Arrays by where they lie and their split; those of one split are one table where no name comes twice."""
    groups: dict[tuple[str | None, str], dict[str, StoredArray]] = {}
    for one in placed:
        group = groups.setdefault((one.split, one.array.container), {})
        entry = one.entry if one.entry not in group else one.array.name
        group[entry] = one.array
    tables = []
    for split in dict.fromkeys(split for split, _ in groups):
        mine = {container: arrays for (word, container), arrays in groups.items() if word == split}
        names = [entry for arrays in mine.values() for entry in arrays]
        if len(set(names)) == len(names):
            joined = {entry: array for arrays in mine.values() for entry, array in arrays.items()}
            tables.append(_Table(split or next(iter(mine)), split, joined))
        else:
            tables.extend(_Table(_stem(container), split, arrays) for container, arrays in mine.items())
    return tables


def _without_numbers(name: str) -> str:
    """`images_#` for `images_0` and `images_11`."""
    return re.sub("[0-9]+", "#", name)


def _stem(container: str) -> str:
    parts = [PurePosixPath(part).stem or part for part in PurePosixPath(container).parts]
    return "/".join(parts) or "arrays"


def _main_entry(tables: Sequence[_Table]) -> str | None:
    """The array that the pictures are guessed to be in."""
    best: tuple[int, int, str] | None = None
    for table in tables:
        for entry, array in table.arrays.items():
            if not _may_be_pictures(array):
                continue
            is_named = entry.lower() in _IMAGES
            rank = _IMAGES.index(entry.lower()) if is_named else len(_IMAGES) + (array.dtype.name != "uint8")
            rank += 2 * len(_IMAGES) * _is_label_map(entry)
            candidate = (rank, -array.shape[0], entry)
            best = candidate if best is None else min(best, candidate)
    return best[2] if best else None


def _is_label_map(entry: str) -> bool:
    return has_labels(entry) or entry.lower() in _LABEL_MAPS


def _may_be_pictures(array: StoredArray) -> bool:
    if array.is_text:
        return False
    if array.is_ragged:
        return str(array.dtype.name) == "uint8"
    sides = [length for length in array.shape[1:] if length not in (1, 3)]
    ranks = len(array.shape) - 1
    is_small = array.dtype.name in ("uint8", "uint16", "float16", "float32", "float64")
    square = ranks == 3 and len(sides) < 2 and max(array.shape[1:]) >= _LEAST_SIDE
    return is_small and ((ranks in (2, 3) and len(sides) == 2 and min(sides) >= _LEAST_SIDE) or square)


# ---- fields


def _number_column(asked: RecordField, array: StoredArray, entry: str) -> _ArrayColumn:
    """One number, or an array of them: of few in the index, of many with the record."""
    shape = tuple(length for length in array.shape[1:] if length != 1)
    dtype = array.dtype.newbyteorder("=").name
    if asked.kind == "number" and shape:
        raise InvalidRequest(f"option features: {asked.shown()}: {_described(array)} has more than one number per row")
    if not shape:
        return _ArrayColumn(Field(asked.name, "number", "number", dtype=dtype, shape=()), entry, _Numbers(()))
    is_short = int(np.prod(shape)) <= _MOST_COLUMN
    field = Field(asked.name, "number", f"raw:{dtype}", dtype=dtype, shape=shape if is_short else (None, *shape[1:]))
    return _ArrayColumn(field, entry, _Numbers(shape))


def _has_few_values(array: StoredArray) -> bool:
    """Whether some rows have so few values each that they may be labels."""
    try:
        return all(shows_labels(array.row(at)) for at in range(0, array.shape[0], max(1, array.shape[0] // _PROBES)))
    except BadInput:  # whoever packs the sample is told
        return False


def _are_rectangles(array: StoredArray) -> bool:
    return len(array.shape) == 4 and array.shape[2:] == (4, 2) and str(array.dtype.kind) in "iuf"


def _is_file(field: Field) -> bool:
    return field.kind in (*PIXEL_KINDS, "bytes")


def _suffix(field: Field, value: Any) -> str:
    if isinstance(value, bytes):
        return (file_suffixes(value) or (".bin",))[0]
    return ".npy" if field.kind == "depth" else ".png"


def _shown_field(column: _ArrayColumn) -> str:
    kind = "mask:uint16" if column.field.is_wide_mask else column.field.kind
    kind = "numbers" if kind == "number" and column.field.shape else kind
    is_label = isinstance(column.value, _ClassNumber)
    invalid = f":{column.field.invalid:g}" if column.field.invalid is not None else ""
    said = "" if is_label or kind == "points" else f":{kind}{invalid}"
    return f"{column.field.name}={escaped(column.entry)}{said}"


def _form(array: StoredArray) -> tuple[Any, ...]:
    """What arrays of one field have in common."""
    if array.is_text or array.is_ragged:
        return array.is_text, array.is_ragged, array.dtype.kind if array.is_text else array.dtype.name
    return array.dtype.newbyteorder("=").name, array.shape[1:]


_WHOLE_NUMBERS: tuple[Any, ...] = ("whole numbers", ())


def _label_form(array: StoredArray) -> tuple[Any, ...]:
    """What arrays of labels have in common: those of whole numbers all become int64, (N,) and (N, 1)."""
    is_one = not (array.is_text or array.is_ragged) and all(length == 1 for length in array.shape[1:])
    return _WHOLE_NUMBERS if is_one and array.dtype.kind in "iu" else _form(array)


def _first_named(arrays: Sequence[StoredArray]) -> StoredArray:
    return next(array for array in arrays if array.value_names)


def _no_classes(arrays: Sequence[StoredArray]) -> str | None:
    """Why the names of an enumeration are no classes; None where they are. Raises BadInput where files name otherwise.

    Classes are the names of 0, 1, 2 ..., one for each number that is there.
    """
    first = _first_named(arrays)
    known = {number: name for name, number in first.value_names}
    for array in arrays:
        if array.value_names and dict(array.value_names) != dict(first.value_names):
            found, other = (
                listed(f"{number} {name}" for name, number in sorted(one.value_names, key=lambda pair: pair[1]))
                for one in (array, first)
            )
            raise BadInput(
                f"{shown(array.path)}: its enumeration names the labels {found}, that of {shown(first.path)} {other}; "
                "one number would be two classes: write them with one enumeration, or pack them apart"
            )
        if not array.value_names:
            return f"{array.path} has none"
    if sorted(known) != list(range(len(first.value_names))):
        return "classes are the names of 0, 1, 2 ..., each with one; the numbers stay as they are"
    for array in arrays:
        for index in range(array.shape[0]):
            try:
                number = int(np.asarray(array.row(index)).reshape(-1)[0])
            except BadInput:
                continue  # whoever packs the sample is told
            if number not in known:
                return f"row {index} of {array.path} is {number}, which has none"
    return None


def _described(array: StoredArray) -> str:
    return f"{array.path} {_shape_text(array)}"


def _shape_text(array: StoredArray) -> str:
    noun = "texts" if array.is_text else f"lists of {array.dtype.name}" if array.is_ragged else array.dtype.name
    return f"{noun} {array.shape}"


def _first(tables: Sequence[_Table]) -> StoredArray:
    arrays = tables[0].arrays
    main = _main_entry(tables[:1])
    return arrays[main] if main else next(iter(arrays.values()))


def _rows_of(table: _Table) -> int:
    return _first([table]).shape[0]


def is_known_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether a field can hold numbers of that type."""
    return str(dtype.newbyteorder("=").name) in DTYPES
