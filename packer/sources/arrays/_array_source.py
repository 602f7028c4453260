"""Array source: the base of the sources whose samples are the rows of large arrays, with one array per field.

Names and containers determine which arrays belong together, unless the user names the arrays:

| arrays                                            | meaning                                                       |
|---------------------------------------------------|---------------------------------------------------------------|
| `x` and `y` in one file or group                  | a table: row i of each array is sample i                      |
| `train_images`, `x_val`, `test/rgb`, train.h5     | splits train, val, test. The rest of a name is the entry name |
| train_x.h5 with `x`, train_y.h5 with `y`          | one table, because the arrays have different names            |
| a.h5 and b.h5, each with `x` and `y`              | two tables, one after the other                               |

Arrays with the same entry name become one field (packer.sources.arrays._array_fields). The key of a sample is its row
number. If there are several tables, the table name precedes the number. The constructor reads labels that are texts,
and a few rows of bytes, but does not read images.

The source of a file format declares suffixes and first bytes, and lists the arrays of a file in `_arrays_in`. The
source n5 overrides `_list`, because its arrays are folders. Each array is a `StoredArray`.
"""

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.schema import DTYPES, KEY, PIXEL_KINDS, Field, Schema
from packer.sources import base
from packer.sources._extract_destinations import FILES, extracted_paths
from packer.sources._field_names import FieldNames
from packer.sources._message_texts import counted, described, listed, shown
from packer.sources._name_words import ordered_splits, split_rank
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.arrays import _array_fields as fields
from packer.sources.arrays._array_fields import LABEL_NAMES, ArrayColumn, form
from packer.sources.arrays._stored_array import StoredArray, Unread
from packer.sources.records._random_access_files import RecordFile, RecordFiles, check_magic, is_pointer
from packer.sources.records._record_fields import RecordField, parse_fields, typed_features
from packer.sources.records._record_source import beside_first_image, opened

_START_BYTES = 512
_ONE_PER_IMAGE = ("label", "labels", "target", "targets")
_MOST_DIMENSIONS = 8
_MOST_ROWS = 1 << 31


class _Table(NamedTuple):
    """Arrays by entry name. Row i of each array belongs to the same sample. `split` is None without a split."""

    name: str
    split: str | None
    arrays: dict[str, StoredArray]


class ArraySource(base.Source):
    """A source whose samples are rows of arrays. A subclass sets `suffixes`, and defines `_arrays_in` or `_list`."""

    holds_records = True
    folder: SourceRoot
    noun: ClassVar[str]  # the word for a file in messages, such as `HDF5 file`
    title: ClassVar[str]  # the name of the format in messages
    suffixes: ClassVar[tuple[str, ...]] = ()
    magic: ClassVar[bytes] = b""
    most_files: ClassVar[int] = sys.maxsize  # folders with more files are not recognized
    notes: list[str]

    def __init__(
        self,
        root: Path,
        *,
        features: Sequence[str] = (),
        axes: str = "auto",
        named_splits: bool = False,
        follow_links: bool = False,
    ) -> None:
        """List the arrays.

        Args:
            root: A file, or a folder.
            features: FIELD=ARRAY or FIELD=ARRAY:KIND for each field. ARRAY is a name such as `images`. A path such as
                `train_images` or `train/images` selects only that split. Empty: the fields are inferred.
            axes: The order of the axes of a row with three axes, one of `AXES`.
            named_splits: True adds the field split. False: names of several splits raise InvalidRequest.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.

        Raises:
            InvalidRequest: No file has this format, an array is absent, or arrays have several possible meanings.
            BadInput: A file is damaged or a git-lfs pointer, or files contradict each other.
        """
        base.check_choice("axes", axes, fields.AXES)
        self.root = root
        self._axes = axes
        self.folder, names, self.notes = opened(root, follow_links=follow_links)
        self.left_out = []
        found, used = self._list(names)
        self.extras = [name for name in names if name not in used]
        skipped = [one if isinstance(one, Unread) else _why_unread(one) for one in found]
        self._select(
            [one for one, reason in zip(found, skipped, strict=True) if isinstance(one, StoredArray) and not reason],
            [one for one in skipped if one is not None],
            parse_fields(features),
            named_splits=named_splits,
        )

    # ---- what a format implements

    def _arrays_in(self, files: RecordFiles, number: int) -> Iterator[StoredArray | Unread]:
        """Yield the arrays of the file at position `number`. Raise BadInput if the file is damaged."""
        return iter(())

    def _list(self, names: Sequence[str]) -> tuple[list[StoredArray | Unread], set[str]]:
        """Return the arrays, and the names of the files that contain them."""
        own = names if self.root.is_file() else self.own_files(names)
        if not own:
            raise self._none_found(names, f"names that end in {' or '.join(self.suffixes[:2])}")
        files = RecordFiles(self.folder, [self._file(name) for name in own])
        return [one for number in range(len(own)) for one in self._arrays_in(files, number)], set(own)

    def _file(self, name: str) -> RecordFile:
        start = self.folder.start(name, _START_BYTES)
        check_magic(start, self.magic, self.folder.root / name, what=self.noun.removesuffix(" file"))
        return RecordFile(name, self.folder.status(name).st_size)

    def _none_found(self, names: Sequence[str], expected: str) -> InvalidRequest:
        found = f"found {described(names)}" if names else "there is no file in it"
        return InvalidRequest(f"{shown(str(self.root))}: no {self.noun}s: {found}; expected {expected}")

    @classmethod
    def own_files(cls, names: Sequence[str]) -> Sequence[str]:
        """Return the names with a suffix of the format. A single name is returned regardless of the suffix."""
        return names if len(names) == 1 else [name for name in names if name.lower().endswith(cls.suffixes)]

    @classmethod
    def begins(cls, start: bytes, path: Path) -> bool:
        """Return whether a file whose first bytes are `start` has the format of this source."""
        return start.startswith(cls.magic)

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return a text such as `HDF5: 3 files`. Return None if the first file does not have the format."""
        own = cls.own_files(names)
        if not 0 < len(own) <= cls.most_files or not isinstance(tree, SourceRoot):
            return None
        start = tree.start(own[0], _START_BYTES)
        is_pointed = is_pointer(start) and own[0].lower().endswith(cls.suffixes)
        is_own = is_pointed or cls.begins(start, tree.root / own[0])
        return f"{cls.title}: {counted(len(own), 'file')}" if is_own else None

    # ---- tables

    def _select(
        self,
        arrays: Sequence[StoredArray],
        skipped: Sequence[Unread],
        declared: Sequence[RecordField],
        *,
        named_splits: bool,
    ) -> None:
        """Group the arrays into tables and set the fields: `declared`, or inferred fields if `declared` is empty."""
        placed = [_placed(array) for array in arrays]
        for field in declared:
            placed = _renamed(placed, field.entries[0])
        tables = _tables(placed)
        main = declared[0].entries[0] if declared else _main_entry(tables)
        with_main = [table for table in tables if main in table.arrays]
        if main is None or not with_main:
            there = [fields.described(one.array) for one in placed] + [f"{path} ({reason})" for path, reason in skipped]
            raise self._error(
                f"no array looks like images of at least {fields.LEAST_SIDE} px, one per row: found "
                f"{listed(there) or 'none'}; declare the fields, such as --feature image=ARRAY; numpy.stack "
                "makes rows of single images"
            )
        self._main = main
        self._tables = self._in_splits(with_main, is_declared=named_splits)
        self._counts = [table.arrays[main].shape[0] for table in self._tables]
        self._ends = list(accumulate(self._counts))
        if self._ends[-1] > _MOST_ROWS:
            raise BadInput(f"{shown(str(self.root))}: {self._ends[-1]} rows, expected at most {_MOST_ROWS}")
        if declared:
            self._check_no_table_lacks(tables)
        if fault := self._fault(main, is_label=bool(declared) and declared[0].name == "label"):
            raise BadInput(f"{shown(str(self.root))}: {fault}; declare one, such as --feature image=ARRAY")
        columns = [self._column(field, is_declared=True) for field in declared]
        self._columns = columns or self._inferred_columns()
        self._set_schema()
        self._note_all(tables, skipped, is_declared=bool(declared))
        for array in arrays:
            array.forget()

    def _error(self, text: str) -> InvalidRequest:
        return InvalidRequest(f"{shown(str(self.root))}: {text}")

    def _in_splits(self, tables: list[_Table], *, is_declared: bool) -> list[_Table]:
        """Sort the tables by split. If not `is_declared`, raise InvalidRequest for tables of several splits."""
        self._split_names: tuple[str, ...] = ()
        self._split_rows = counts = Counter[str]()
        for table in tables:
            counts[table.split or "other"] += table.arrays[self._main].shape[0]
        named = sorted(counts.keys() - {"other"})
        if not is_declared and len(named) <= 1:
            return tables
        if not is_declared:
            rows = ", ".join(f"{word} {counts[word]}" for word in named)
            one = typed_features([f"image={tables[0].arrays[self._main].path}"])
            raise self._error(
                f"arrays of several splits ({rows}); use --named-splits, or declare the fields of one, such as {one}"
            )
        self._split_names = ordered_splits(set(counts))
        return sorted(tables, key=lambda table: self._split_names.index(table.split or "other"))

    def _check_no_table_lacks(self, tables: Sequence[_Table]) -> None:
        """Raise InvalidRequest if a table without the main array has an entry of the tables with the main array.

        The main array defines the samples. If the user names it by a path (`a/images`), only tables in `a` are checked.
        """
        common = {entry for table in self._tables for entry in table.arrays}
        group = self._main.rpartition("/")[0]
        for table in (table for table in tables if self._main not in table.arrays):
            for entry, array in table.arrays.items():
                if entry in common and (not group or f"/{array.container}".endswith(f"/{group}")):
                    raise self._error(
                        f"no array {self._main!r} next to {fields.described(array)}, expected one with as many rows; "
                        f"add it, or name one place: {shell_word(self._tables[0].arrays[self._main].path)}"
                    )

    def arrays(self, entries: set[str] | None = None) -> Iterator[StoredArray]:
        """Yield the arrays of all tables whose entry name is in `entries`. None yields all arrays."""
        for table in self._tables:
            yield from (array for entry, array in table.arrays.items() if entries is None or entry in entries)

    def _fault(self, entry: str, *, is_label: bool = False) -> str | None:
        """Return the reason why the arrays of an entry cannot become one field, or None if they can."""
        first: StoredArray | None = None
        for table, count in zip(self._tables, self._counts, strict=True):
            main, array = table.arrays[self._main], table.arrays.get(entry)
            if array is None:
                return f"no array {entry!r} next to {main.path}"
            if array.shape[0] != count:
                return f"{array.path} has {counted(array.shape[0], 'row')}, {main.path} {count}"
            first = first or array
            if form(array, is_label=is_label) != form(first, is_label=is_label):
                return f"{fields.described(array)} and {fields.described(first)} cannot be one field"
        return None

    # ---- fields

    def _inferred_columns(self) -> list[ArrayColumn]:
        """Return a column for each entry that has one row per image in all tables."""
        first, main = self._tables[0].arrays, self._main
        columns: list[ArrayColumn] = []
        names = FieldNames()
        label = self._label_entry()
        common = sorted(entry for entry in first if self._fault(entry) is None)
        for entry in dict.fromkeys(filter(None, [main, label, *common])):
            usual = fields.usual_name(first[entry], entry, is_main=entry == main, is_label=entry == label)
            columns.append(self._column(RecordField(names.of_entry(entry, usual), (entry,)), is_declared=False))
        if unclear := [fields.described(first[column.entry]) for column in columns if column.is_unclear]:
            line = typed_features(column.typed() for column in columns)
            raise self._error(
                f"cannot decide what images of one channel next to others are: {listed(unclear)}; declare all fields, "
                f"such as {line}; labels are of kind mask, or mask:uint16"
            )
        return columns

    def _column(self, field: RecordField, *, is_declared: bool) -> ArrayColumn:
        entry = field.entries[0]
        if fault := self._fault(entry, is_label=field.name == "label"):
            raise InvalidRequest(
                f"option features: {field.shown()}: {fault}; expected in every file and split a row for each of "
                f"{self._main!r}, of one type"
            )
        return fields.column_of(
            field,
            [table.arrays[entry] for table in self._tables],
            is_main=entry == self._main or field.name == "image",
            is_declared=is_declared,
            axes=self._axes,
        )

    def _label_entry(self) -> str | None:
        """Return the entry of the labels, or None. Raise InvalidRequest if the number of its rows is wrong."""
        for name in LABEL_NAMES:
            if name != self._main and self._fault(name, is_label=True) is None:
                return name
        for table, count in zip(self._tables, self._counts, strict=True):
            for name in _ONE_PER_IMAGE:
                array = table.arrays.get(name)
                if array is not None and name != self._main and array.shape[0] != count:
                    raise self._error(
                        f"{self._fault(name)}; declare the fields without it, such as "
                        f"{typed_features([f'image={self._main}'])}, or make the first axis count the samples"
                    )
        return None

    def _set_schema(self) -> None:
        found = [Field(KEY, "text", "text"), *(column.field for column in self._columns)]
        if self._split_names:
            found.append(Field("split", "number", "number", dtype="int64", shape=(), classes=self._split_names))
        if any(map(_is_file, found)):
            found.append(FILES)
        self.schema = Schema(tuple(found))
        images = [column for column in self._columns if column.field.kind in PIXEL_KINDS]
        self.decodes = any(column.field.codec != "encoded" for column in images)
        self.companions = beside_first_image(self.schema)
        self._first_image = images[0].field.name if images else None
        used = {self._main, *(column.entry for column in self._columns)}
        self.more_files = sorted({name for array in self.arrays(used) for name in array.files()})
        # the sizes of samples are those of images, whatever the user named first
        self._sized_entry = images[0].entry if images else self._main

    def _note_all(self, tables: Sequence[_Table], unread: Sequence[Unread], *, is_declared: bool) -> None:
        used = {column.entry for column in self._columns}
        arrays = list(self.arrays(used))
        self.notes.append(counted(len(self), "row"))
        if self._split_names:
            self.notes.append(f"splits: {listed(f'{name} {self._split_rows[name]}' for name in self._split_names)}")
        self.notes.extend(shown(column.note) for column in self._columns if column.note)
        self.notes.extend(
            f"{shown(array.path)}: {counted(array.missing_blocks, 'block')} never written: zeros"
            for array in arrays
            if array.missing_blocks
        )
        skipped = [f"{path} ({reason})" for path, reason in unread]
        entries = {entry for table in tables for entry in table.arrays}
        reasons = {entry: self._fault(entry) for entry in entries - used}
        for table in tables:
            for entry, array in table.arrays.items():
                if self._main not in table.arrays:
                    skipped.append(f"{fields.described(array)}: without {self._main!r} next to it")
                elif entry not in used:
                    skipped.append(f"{fields.described(array)}: {reasons[entry] or 'no --feature'}")
        if skipped:
            self.notes.append(f"arrays skipped: {listed(skipped)}")
        if self._first_image is None:
            main = self._tables[0].arrays[self._main]
            self.notes.append(
                f"no image: {shown(fields.described(main))} is packed otherwise; images are rows of uint8 (H, W, 3), "
                "(3, H, W) or (H, W), depth those of floats and uint16 (H, W)"
            )
        if not is_declared and "label" not in self.schema:
            self.notes.append("no labels")
        how = "as declared" if is_declared else "from names and shapes; --feature changes it"
        self.notes.append(f"{typed_features(column.typed() for column in self._columns)} ({how})")

    # ---- the contract of sources

    def __len__(self) -> int:
        return self._ends[-1]

    def _row(self, index: int) -> tuple[int, int]:
        """Return the position of the table, and the row number within the table."""
        number = bisect_right(self._ends, self.checked(index))
        return number, index - (self._ends[number] - self._counts[number])

    def key(self, index: int) -> str:
        number, row = self._row(index)
        return f"{row:08d}" if len(self._tables) == 1 else f"{self._stems[number]}/{row:08d}"

    @cached_property
    def _stems(self) -> list[str]:
        """Return a name for each table: the split, or the file if a split repeats. If a file repeats, use numbers."""
        for names in ([table.split or table.name for table in self._tables], [table.name for table in self._tables]):
            if len(set(names)) == len(names):
                return names
        return [f"{number:05d}" for number in range(len(self._tables))]

    def entry(self, index: int) -> base.SampleEntry:
        number, row = self._row(index)
        arrays, key = self._tables[number].arrays, self.key(index)
        entries = dict.fromkeys([self._main, *(column.entry for column in self._columns)])
        names = dict.fromkeys(name for entry in entries for name in arrays[entry].files(row))
        place = f"row {row} of {shown(arrays[self._main].name)}"
        return base.SampleEntry(key, tuple(names), key, arrays[self._sized_entry].extent(row), place)

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        sample: base.Sample = {KEY: self.key(index)}
        is_complete = FILES.name in names  # the paths depend on the values
        for column in self._columns:
            if is_complete or column.field.name in names:
                sample[column.field.name] = self._value(index, column)
        if self._split_names:
            split = self._tables[self._row(index)[0]].split or "other"
            sample["split"] = np.int64(self._split_names.index(split))
        if is_complete and FILES in self.schema.fields:
            sample[FILES.name] = extracted_paths(
                self.key(index), index, filter(_is_file, self.schema), sample, sniffs_bytes=True
            )
        return sample

    def _value(self, index: int, column: ArrayColumn) -> Any:
        number, row = self._row(index)
        try:
            return column.value(self._tables[number].arrays[column.entry].row(row))
        except BadInput as error:
            raise BadInput(f"{base.sample_name(self, index)}: {column.entry}: {error.message}") from error


def _why_unread(array: StoredArray) -> Unread | None:
    dtype = array.dtype.newbyteorder("=").name
    is_text_array = array.is_text and not array.is_ragged and len(array.shape) > 1
    if is_text_array or len(array.shape) > _MOST_DIMENSIONS or not (array.is_text or dtype in DTYPES):
        return Unread(array.path, f"is {dtype} {array.shape}, which no field can contain")
    return None if array.shape and array.shape[0] else Unread(array.path, "has no rows")


# ---- names


class _NamedArray(NamedTuple):
    """An array, its name without the word for a split, and the split in its path or None."""

    array: StoredArray
    entry: str
    split: str | None


def _words(name: str) -> list[str]:
    return name.replace("-", "_").replace(".", "_").split("_")


def _placed(array: StoredArray) -> _NamedArray:
    """Find the split in the name of the array, then in the folders of its path. The split is None without a result."""
    own = _words(array.name)
    found = [word for word in own if split_rank(word) is not None][:1]
    rest = "_".join(word for word in own if word and word not in found)
    if found and rest:
        return _NamedArray(array, rest, found[0].lower())
    above = (word for part in reversed(PurePosixPath(array.container).parts) for word in _words(part))
    split = next((word.lower() for word in above if split_rank(word) is not None), None)
    return _NamedArray(array, array.name, split)


def _renamed(placed: list[_NamedArray], key: str) -> list[_NamedArray]:
    """Set the entry `key` for arrays with that name or path. If they exist only in some splits, remove other splits."""
    if any(one.entry == key for one in placed):
        return placed
    found = [one for one in placed if one.array.name == key or f"/{one.array.path}".endswith(f"/{key}")]
    if not found:
        there = listed(dict.fromkeys(one.array.path for one in placed))
        raise InvalidRequest(f"option features: no array {key!r}; there are: {there or 'none'}")
    splits = {one.split for one in found}
    return [one._replace(entry=key) if one in found else one for one in placed if one.split in splits]


def _tables(placed: Sequence[_NamedArray]) -> list[_Table]:
    """Group arrays by split and container. Containers of one split form one table if all entries differ."""
    groups: dict[tuple[str | None, str], dict[str, StoredArray]] = {}
    for one in placed:
        group = groups.setdefault((one.split, one.array.container), {})
        group[one.entry if one.entry not in group else one.array.name] = one.array
    tables = []
    for split in dict.fromkeys(split for split, _ in groups):
        mine = {container: arrays for (word, container), arrays in groups.items() if word == split}
        joined = {entry: array for arrays in mine.values() for entry, array in arrays.items()}
        if len(joined) == sum(map(len, mine.values())):
            tables.append(_Table(split or next(iter(mine)), split, joined))
        else:
            tables.extend(_Table(_stem(container), split, arrays) for container, arrays in mine.items())
    return tables


def _stem(container: str) -> str:
    return "/".join(PurePosixPath(part).stem or part for part in PurePosixPath(container).parts) or "arrays"


def _main_entry(tables: Sequence[_Table]) -> str | None:
    """Return the entry of the images, or None. Preferred are usual names, then uint8, then the most rows."""
    ranks = [
        (
            fields.is_label_map(entry),
            fields.IMAGE_NAMES.index(entry.lower()) if entry.lower() in fields.IMAGE_NAMES else len(fields.IMAGE_NAMES),
            array.dtype.name != "uint8",
            -array.shape[0],
            entry,
        )
        for table in tables
        for entry, array in table.arrays.items()
        if fields.may_be_images(array, is_main=True)
    ]
    return min(ranks)[-1] if ranks else None


# ---- fields


def _is_file(field: Field) -> bool:
    return field.kind in (*PIXEL_KINDS, "bytes")
