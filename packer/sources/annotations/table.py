"""Table: images listed by a CSV, TSV, JSON Lines or Parquet table with a column of image paths.

The source is the table, or a folder or an archive that contains `metadata.csv`, `.tsv`, `.jsonl` or `.parquet`, as in
Hugging Face's imagefolder. Image paths are relative to the folder of the table. If all folders with tables have names
of splits (`train/metadata.csv`), the folder becomes the field `split`. Otherwise folder names are ignored.

Fields of a sample with N boxes:
* key: the relative path of the image, or the text in `key_column`.
* image: the bytes of the file. Each column `NAME_file_name` is another field of pixels. So is each column of paths
  whose name contains a word for masks or depth.
* label: the column `label` or `class`. Numbers are not changed. A text becomes its position among the sorted classes.
* boxes: float32 (N, 4), from the columns xmin, ymin, xmax, ymax in px. With boxes, box_labels replaces label.
* split: from folders, or from a column `split`.
* Each other column: a number, a text or json (packer.sources.annotations._table_cell_kinds). Hidden: files.

By default, each row is a sample, in the order of the table. With `group_by`, all rows with the same value in that
column form a sample. Samples are then ordered by their first rows. If the cells of a column are equal within every
sample, the field contains one value per sample. Otherwise the field contains one value per row. If the table has boxes,
numbers per row belong to the boxes. A row without a box has four empty box cells.

EXIF may rotate an image. The boxes then refer either to the stored or to the upright pixels: those whose size the
columns width and height contain. Without these columns, and for masks and depth, `labels_orientation` decides.
Not supported: URLs, files outside the folder, lists of files (`file_names`), bytes in Parquet.
"""

import math
import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._field_names import FieldNames
from packer.sources._file_pattern import IMAGE_SUFFIXES, is_image
from packer.sources._message_texts import counted, described, listed, shown, suffix_of
from packer.sources._name_words import (
    DEPTHS,
    has_labels,
    numbered_classes,
    ordered_splits,
    split_rank,
    words,
)
from packer.sources._small_file_source import FileRole, FileSample, ListedSource
from packer.sources._text_value_parsers import box_edges
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_scan import scan
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources._trees.open_tree import open_tree
from packer.sources.annotations._table_cell_kinds import (
    NUMBERS,
    Cell,
    Kind,
    PathPattern,
    column_place,
    is_empty,
    value_of,
)
from packer.sources.annotations._table_rows import SUFFIXES, TableRows, Texts, first_columns

SPECIFICITY = 40
_NAMES = ("metadata.csv", "metadata.tsv", "metadata.jsonl", "metadata.parquet")
_OTHER_IMAGES = (".gif", ".heic", ".avif", ".jp2", ".tga", ".jxl")  # formats that convert refuses
_PATHS = ("file_name", "filename", "image", "image_path", "img_path", "path", "filepath", "file_path", "file", "img")
_LABELS = ("label", "class")
_BOXES = (("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"), ("x1", "y1", "x2", "y2"))
_RESERVED = (
    *("key", "image", "label", "labels", "split", "boxes", "box_labels"),
    *("files", "orientation", "matrix", "source_size"),
)
_DTYPES: Mapping[Kind, str] = {"int": "int64", "float": "float64", "bool": "bool"}
_PROBED = 100  # rows in which to search for paths
_START_BYTES = 1 << 16
_MOST_CLASSES = 100_000
_SHOWN = 20
_FILES = Field("files", "json", "json", hidden=True)


class _ValueColumn(NamedTuple):
    field: Field
    place: int
    kind: Kind
    classes: Mapping[str, int]
    is_per_row: bool

    def value(self, rows: Sequence[Sequence[Cell]]) -> Any:
        if not self.is_per_row:
            return self._value(rows[0][self.place])
        values = [self._value(cells[self.place]) for cells in rows]
        return values if self.field.dtype is None else np.array(values, self.field.dtype).reshape(-1)

    def _value(self, cell: Cell) -> Any:
        return np.int64(self.classes[cell]) if self.classes else value_of(cell, self.kind)


class _RowsOfSamples(Sequence[FileSample]):
    """The samples of a table. Each access creates a sample from its rows, so that only rows use memory.

    Attributes:
        others: Name of a pixel field other than `image` -> pattern of its path.
        paths: The relative path of the image of each row.
        keys: The key of each row.
        rows: The row numbers, grouped by sample.
        starts: The position in `rows` of the first row of each sample, followed by the length of `rows`.
    """

    def __init__(self, table: TableRows, others: Mapping[str, PathPattern]) -> None:
        self.table = table
        self.others = others
        self.paths = Texts()
        self.keys = self.paths
        self.rows: Sequence[int] = range(len(table))
        self.starts: Sequence[int] = range(len(table) + 1)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> FileSample:  # type: ignore[override]
        row = self.rows[self.starts[number]]
        paths = {"image": self.paths[row]}
        if self.others:
            cells, folder = self.table[row], self.table.folder_of(row)
            paths |= {name: pattern.path(cells, folder) for name, pattern in self.others.items()}
        return FileSample(self.keys[row], paths, row=number)

    def members(self, number: int) -> list[int]:
        """Return the row numbers of the sample at position `number`."""
        return list(self.rows[self.starts[number] : self.starts[number + 1]])

    def group(self, numbers: "array[int]") -> None:
        """Merge rows into samples. `numbers` contains the number of the sample of each row, from 0."""
        found = np.frombuffer(numbers, np.int64)
        self.rows = array("q", np.argsort(found, kind="stable").tobytes())
        self.starts = array("q", accumulate(np.bincount(found).tolist(), initial=0))

    def keep(self, numbers: Sequence[int]) -> None:
        """Keep only the samples at the sorted positions `numbers`."""
        members = list(map(self.members, numbers))
        self.rows = array("q", chain.from_iterable(members))
        self.starts = array("q", accumulate(map(len, members), initial=0))

    def first_double(self, texts: Texts) -> tuple[int, int] | None:
        """Return the first rows of two samples whose texts are equal, or None. `texts` contains one text per row."""
        rows = [self.rows[start] for start in self.starts[:-1]]
        hashes = np.fromiter((hash(texts[row]) for row in rows), np.int64, len(rows))  # smaller than the texts
        hashes.sort()
        seen: dict[str, int] = {}
        for row in rows if (hashes[1:] == hashes[:-1]).any() else ():
            first = seen.setdefault(texts[row], row)
            if first != row:
                return first, row
        return None


class Source(ListedSource):
    """A data set of images that a table lists."""

    kind = "table"
    _samples: _RowsOfSamples
    _listing: Sequence[str] | None = None  # the files of the folder, while the table is read
    _values: Sequence[_ValueColumn] = ()
    _classes: tuple[str, ...] = ()

    def __init__(
        self,
        root: Path | FileTree,
        *,
        image_column: str = "",
        label_column: str = "",
        key_column: str = "",
        group_by: str = "",
        missing: str = "error",
        labels_orientation: str = "auto",
        known_classes: Sequence[str] = (),
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """Read the table, or all tables in a folder.

        Args:
            root: The table, or a folder or an archive with tables.
            image_column: The column of image paths, or a path with column names in braces, such as `train/{id}.jpg`.
                Empty: the column is detected.
            label_column: The column of labels. Empty: `label` or `class`, if present.
            key_column: The column of keys. Empty: the image path is the key.
            group_by: The column in which all rows of a sample have the same value. Empty: each row is a sample.
            missing: For a sample without a file or label, `error` raises BadInput and `skip` skips the sample.
            labels_orientation: The pixels that boxes refer to if EXIF rotates the image: `stored` in the file, or
                `upright` after the rotation. `auto`: those whose size the columns width and height contain.
            known_classes: The class names in label order. Empty: all texts in the label column, sorted.
            own_splits: True: the splits come from folder names or the column `split`. False: no field `split`.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.

        Raises:
            InvalidRequest: A column does not exist, or packer cannot decide which column contains the image paths.
            BadInput: A table is not valid, a path leads out of the folder, a file is absent, or two samples have the
                same image. The message contains the line number.
            MissingPackage: A table is Parquet, and pyarrow is not installed.
        """
        base.check_choice("missing", missing, ("error", "skip"))
        frame = base.frame_of(labels_orientation)
        names, listing_notes = self._open_tables(root, follow_links=follow_links)
        self._table = TableRows(self.folder, names)
        self.tables = self._table.names
        if not len(self._table) and not self._table.skipped_columns:
            raise BadInput(f"{listed(str(self.folder.root / name) for name in self.tables)}: the table has no rows")
        self._main, others = self._image_patterns(image_column)
        self._samples = _RowsOfSamples(self._table, others)
        self._label = self._column("label_column", label_column) if label_column else self._usual(_LABELS)
        self._key = self._column("key_column", key_column) if key_column else None
        self._group = self._column("group_by", group_by) if group_by else None
        self._boxes, are_shares = self._box_columns()
        self._read_rows(is_skipping=missing == "skip")
        self._check_doubles()
        if known_classes:
            if not self._classes:
                raise InvalidRequest(f"{self._where}: the images have no labels; omit --classes-from")
            self._classes = numbered_classes(self._where, self._classes, known_classes)
        self.roles = [FileRole(name, name, "") for name in ("image", *others)]
        self.companions = list(others)
        self._build_schema(own_splits=own_splits)
        size = [place for place in (self._usual(["height"]), self._usual(["width"])) if place is not None]
        is_stated = len(size) == 2 and all(self._table.columns[place].kind == "int" for place in size)
        self._size = size if self._boxes and frame == "stated" and is_stated else []
        if self._boxes:
            self.frame = frame
        self.notes = [*listing_notes, *self._found(are_shares=are_shares)]
        self._listing = None  # a million names, which are not needed later

    # ---- columns

    def _open_tables(self, root: Path | FileTree, *, follow_links: bool) -> tuple[list[str], list[str]]:
        """Open the root. Return the relative paths of the tables, and notes for the user."""
        tree = open_tree(root, follow_links=follow_links, takes_files=True)
        self.folder, self.root = tree, tree.root
        if isinstance(root, Path) and root.is_file() and isinstance(tree, SourceRoot):
            self.root = root
            if suffix_of(root.name) not in SUFFIXES:
                raise InvalidRequest(f"{self._where}: is not a table: expected a name with {' '.join(SUFFIXES)}")
            return [root.name], []
        listing = scan(tree)
        self._listing = listing.names
        names = [name for name in listing.names if name.rpartition("/")[2].lower() in _NAMES]
        if not names:
            raise InvalidRequest(
                f"{self._where}: no table: found {described(listing.names)}, expected {', '.join(_NAMES)} in a folder; "
                "give the table as SOURCE if it has another name"
            )
        if len({name.rpartition("/")[0] for name in names}) < len(names):
            raise BadInput(f"{self._where}: several tables in one folder: {listed(names)}; give one of them as SOURCE")
        return names, listing.notes()

    @property
    def _where(self) -> str:
        return shown(str(self.root))

    def _column(self, option: str, name: str) -> int:
        try:
            return column_place(name, self._table.headers)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self._where}: option {option}: {error.message}") from error

    def _usual(self, names: Sequence[str]) -> int | None:
        """Return the position of the first of these column names that the table contains in any case, or None."""
        headers = [header.lower() for header in self._table.headers]
        return next((headers.index(name) for name in names if name in headers), None)

    def _image_patterns(self, image_column: str) -> tuple[PathPattern, dict[str, PathPattern]]:
        """Return the pattern of the image path, and field name -> pattern for the other pixel fields."""
        headers = self._table.headers
        with_paths = self._columns_of_paths()
        try:
            main = PathPattern(image_column or self._main_column(with_paths), headers)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self._where}: option image_column: {error.message}") from error
        others = {}
        fields = FieldNames(_RESERVED)
        for place, header in enumerate(headers):
            name = header.lower().removesuffix("_file_name")
            is_named = name not in ("", header.lower())
            is_other = is_named or (header in with_paths and _image_kind(header) != "image")
            if place not in main.places and is_other:
                others[fields.of_column(name if is_named else header)] = PathPattern(header, headers)
        return main, others

    def _columns_of_paths(self) -> list[str]:
        """Return the names of columns whose first cells are names of image files."""
        first = [cells for _, (_, cells) in zip(range(_PROBED), self._table, strict=False)]
        found = []
        for place, header in enumerate(self._table.headers):
            cells = [row[place] for row in first if not is_empty(row[place])]
            if cells and all(
                isinstance(cell, str) and cell.lower().endswith(IMAGE_SUFFIXES + _OTHER_IMAGES) for cell in cells
            ):
                found.append(header)
        return found

    def _main_column(self, with_paths: Sequence[str]) -> str:
        """Return the image column: `file_name`, a column with a usual name, or the only column of image paths."""
        headers = self._table.headers
        if not any(map(is_image, headers)):
            if "file_name" in headers:
                return "file_name"
            lower = [header.lower() for header in with_paths]
            found = [with_paths[lower.index(name)] for name in _PATHS if name in lower]
            images = [header for header in with_paths if _image_kind(header) == "image"] or with_paths
            if found or len(images) == 1:
                return (found or images)[0]
        names = f"names of images are in {listed(with_paths)}" if with_paths else "no column contains names of images"
        skipped = f"; bytes are not read: {listed(self._table.skipped_columns)}" if self._table.skipped_columns else ""
        raise InvalidRequest(
            f"which column names the image of a row? the first line names {listed(headers)}; {names}{skipped}; add "
            "--image-column COLUMN, or --image-column 'train/{id}.jpg' for paths that contain columns"
        )

    def _box_columns(self) -> tuple[tuple[int, ...], bool]:
        """Return the positions of xmin, ymin, xmax, ymax in px, or (), and whether the table has boxes in fractions."""
        for names in _BOXES:
            places = [place for place in (self._usual([name]) for name in names) if place is not None]
            if len(places) < len(names):
                continue
            columns = [self._table.columns[place] for place in places]
            for column in columns:
                if column.filled not in ("int", "float"):
                    raise BadInput(
                        f"{self._where}: column {shown(column.name)} of the boxes is not numeric; correct its cells, "
                        "or rename the column"
                    )
            are_shares = all(0 <= number <= 1 for column in columns for number in column.bounds)
            return ((), True) if are_shares else (tuple(places), False)
        return (), False

    # ---- rows

    def _read_rows(self, *, is_skipping: bool) -> None:
        """Read all rows once, and collect paths, keys, groups and classes.

        Raises:
            BadInput: A row is not valid, or a sample is incomplete, unless `is_skipping`: the sample is then skipped.
            InvalidRequest: The label column contains too many different texts.
        """
        samples, headers, label, group = self._samples, self._table.headers, self._label, self._group
        label_kind = self._table.columns[label].filled if label is not None else ""
        samples.keys = samples.paths if self._key is None else Texts()
        checked = [samples.paths] if self._key is None else [samples.paths, samples.keys]
        groups: dict[str, int] = {}
        numbers, firsts = array("q"), array("q")  # the sample of each row, and the first row of each sample
        places = array("q")  # positions of the files of each sample in the listing
        labels: set[str] = set()
        faults: list[tuple[int, str]] = []
        absent: dict[int, str] = {}  # sample -> reason
        for row, (folder, cells) in enumerate(self._table):
            paths: list[str] = []
            try:
                paths.append(self._main.path(cells, folder))
                for pattern in samples.others.values():
                    paths.append("" if pattern.is_empty(cells) else pattern.path(cells, folder))
            except InvalidRequest as error:
                faults.append((row, error.message))
            samples.paths.append(paths[0] if paths else "")
            if self._key is not None:
                samples.keys.append(_text(cells[self._key]))
                if is_empty(cells[self._key]):
                    faults.append((row, f"no key in column {shown(headers[self._key])}"))
            number = row
            if group is not None:
                if is_empty(cells[group]):
                    faults.append((row, f"no value in column {shown(headers[group])}"))
                number = groups.setdefault(_text(cells[group]), len(groups))
                numbers.append(number)
            if number == len(firsts):
                firsts.append(row)
                for name, path in zip(("image", *samples.others), paths, strict=False):
                    places.append(self._place(path) if path else -1)
                    if places[-1] < 0:
                        absent.setdefault(number, f"no such file: {path}" if path else f"no {name}")
            elif any(texts[row] != texts[firsts[number]] for texts in checked):
                faults.append((row, "another image or key than the first row of the same sample"))
            has_box = True
            if self._boxes:
                filled = sum(not is_empty(cells[place]) for place in self._boxes)
                has_box = filled > 0
                if 0 < filled < len(self._boxes):
                    faults.append((row, f"{filled} of the four cells of a box"))
            if label is None:
                continue
            if is_empty(cells[label]) or (label_kind == "float" and math.isnan(float(cells[label]))):
                if has_box:
                    absent.setdefault(number, f"no label in column {shown(headers[label])}")
            elif label_kind == "text":
                labels.add(cells[label])
                if len(labels) > _MOST_CLASSES:
                    raise InvalidRequest(
                        f"{self._where}: column {shown(headers[label])} has more than {_MOST_CLASSES} different texts, "
                        "which are not classes; name another column with --label-column"
                    )
        if faults:
            advice = "expected relative paths below the folder of the table, and complete rows"
            raise self._row_error(counted(len(faults), "fault"), faults, advice)
        if absent and not is_skipping:
            rows = [(firsts[number], reason) for number, reason in absent.items()]
            advice = "complete them, or skip them with --missing skip"
            raise self._row_error(f"{len(absent)} of {counted(len(firsts), 'sample')} incomplete", rows, advice)
        self._classes = tuple(sorted(labels))
        del groups, labels  # before more memory is needed
        if group is not None:
            samples.group(numbers)
        kept = [number for number in range(len(firsts)) if number not in absent] if absent else range(len(firsts))
        self.left_out = [(samples.keys[firsts[number]], absent[number]) for number in sorted(absent)]
        if absent:
            samples.keep(kept)
        self.extras = self._table.names
        if self._listing is not None:
            is_used = np.zeros(len(self._listing), bool)
            is_used[np.frombuffer(places, np.int64).reshape(-1, 1 + len(samples.others))[kept]] = True
            self.extras = [name for name, used in zip(self._listing, is_used.tolist(), strict=True) if not used]

    def _row_error(self, what: str, rows: Sequence[tuple[int, str]], advice: str) -> BadInput:
        lines = [f"{self._table.where(row)}: {reason}" for row, reason in rows[:_SHOWN]]
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        return BadInput(f"{self._where}: {what}: {'; '.join(lines)}{more}; {advice}")

    def _place(self, name: str) -> int:
        """Return -1 for an absent file, otherwise its position in `_listing`, or 0 without a listing."""
        if self._listing is not None:
            place = bisect_left(self._listing, name)
            return place if place < len(self._listing) and self._listing[place] == name else -1
        try:
            self.folder.state(name)
        except BadInput:  # for an existing link, reading the file raises the error again
            return 0 if os.path.lexists(self.folder.root / name) else -1
        return 0

    def _check_doubles(self) -> None:
        """Raise BadInput if two samples have the same image or key."""
        checked = {"image": self._samples.paths} | ({} if self._key is None else {"key": self._samples.keys})
        for what, texts in checked.items():
            double = self._samples.first_double(texts)
            if double is not None:
                column = shown(self._table.headers[self._main.places[0]])
                advice = "" if self._group is not None else f"; --group-by {column} makes one sample of several rows"
                first, row = map(self._table.where, double)
                raise BadInput(f"{row}: the same {what} as {first}: {shown(texts[double[1]])}{advice}")

    # ---- fields

    def _build_schema(self, *, own_splits: bool) -> None:
        columns, others = self._table.columns, self._samples.others
        varying = self._varying()
        patterns = (self._main, *others.values())
        used = {pattern.places[0] for pattern in patterns if len(pattern.places) == 1} | set(self._boxes)
        fields = [Field("key", "text", "text"), Field("image", "image", "encoded")]
        for name, pattern in others.items():
            kind = _image_kind(columns[pattern.places[0]].name)
            is_wide = kind == "mask" and len(self) > 0 and base.probed_mask_dtype(self, name) == "uint16"
            fields.append(Field(name, kind, "encoded", "uint16" if is_wide else None))
        if self._boxes:
            fields.append(Field("boxes", "boxes", "raw:float32", "float32", (None, 4)))
        if self._label is not None:
            is_per_row = bool(self._boxes) or self._label in varying
            name = "box_labels" if self._boxes else "labels" if is_per_row else "label"
            self._add_value(name, self._label, classes=self._classes, is_per_row=is_per_row)
        place = self._usual(("split",)) if own_splits else None
        self._splits = self._folder_splits() if own_splits else ()
        if self._splits:
            fields.append(Field("split", "number", "number", "int64", (), classes=self._splits))
        elif place is not None and columns[place].kind == "text" and not columns[place].gaps and place not in varying:
            names = {cells[place] for _, cells in self._table}
            if len(names) <= _MOST_CLASSES:
                self._add_value("split", place, classes=ordered_splits(names), is_per_row=False)
        used |= {value.place for value in self._values}
        names_of_fields = FieldNames([*_RESERVED, *others])
        for place, column in enumerate(columns):
            if place not in used and place != self._key:
                name = names_of_fields.of_column(column.name)
                self._add_value(name, place, classes=(), is_per_row=place in varying)
        self.schema = Schema((*fields, *(value.field for value in self._values), _FILES))

    def _add_value(self, name: str, place: int, *, classes: Sequence[str], is_per_row: bool) -> None:
        """Add the field for the column at `place`. If `is_per_row`, the field has one value per row of a sample."""
        column = self._table.columns[place]
        kind = column.filled if place == self._label else column.kind
        if classes or kind in NUMBERS:
            dtype = "int64" if classes else _DTYPES[kind]
            codec, shape = (f"raw:{dtype}", (None,)) if is_per_row else ("number", ())
            of = "boxes" if is_per_row and self._boxes else None
            field = Field(name, "number", codec, dtype, shape, classes=tuple(classes) or None, of=of)
        else:
            field_kind: Literal["text", "json"] = "text" if kind == "text" and not is_per_row else "json"
            field = Field(name, field_kind, field_kind)
        numbers = {text: number for number, text in enumerate(classes)}
        self._values = (*self._values, _ValueColumn(field, place, kind, numbers, is_per_row))

    def _varying(self) -> set[int]:
        found: set[int] = set()
        for number in range(len(self)) if self._group is not None else ():
            first, *others = (self._table[row] for row in self._samples.members(number))
            for cells in others:
                if cells != first:
                    found |= {place for place, cell in enumerate(cells) if cell != first[place]}
        return found

    def _folder_splits(self) -> tuple[str, ...]:
        """Return the folders of the tables in the order of splits. If a folder has no name of a split, return ()."""
        tops = {name.partition("/")[0] if "/" in name else "" for name in self._table.names}
        return ordered_splits(tops) if all(split_rank(top) is not None for top in tops) else ()

    def _found(self, *, are_shares: bool) -> list[str]:
        headers, columns = self._table.headers, self._table.columns
        main = listed(headers[place] for place in self._main.places)
        rows = f"{counted(len(self._table), 'row')} in {listed(self._table.names)}"
        notes = [f"{rows}: {counted(len(self), 'sample')}, image: column {main}"]
        for name, pattern in self._samples.others.items():
            notes.append(f"{name} ({self.schema[name].kind}): files that column {headers[pattern.places[0]]} names")
        if self._boxes:
            notes.append(f"boxes: columns {listed(headers[place] for place in self._boxes)}")
        if are_shares:
            notes.append("columns of boxes contain numbers from 0 to 1, shares of the image: kept as numbers")
        if self._splits:
            notes.append(f"splits: {listed(self._splits)}, the folders of the tables")
        for value in self._values:
            column, name = columns[value.place], value.field.name
            if value.place == self._label:
                notes.append(f"{name}: column {shown(column.name)}: {listed(self._classes) or 'numbers'}")
            elif column.name != name:
                notes.append(f"{name}: column {shown(column.name) or value.place + 1}")
            if column.gaps and value.field.kind == "number" and not value.classes:
                notes.append(f"{name}: {counted(column.gaps, 'empty cell')}: NaN")
        if self._table.skipped_columns:
            notes.append(f"columns of bytes, not read: {listed(self._table.skipped_columns)}")
        others = [name for name in self.extras if name not in self._table.names]
        return [*notes, *([f"{described(others, 'other file')} that no row names"] if others else [])]

    # ---- the contract of sources

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return one line with the names of the tables, or None if no table with image paths is found."""
        if len(names) == 1:
            return f"images of the table {shown(names[0])}" if suffix_of(names[0]) in SUFFIXES else None
        tables = [name for name in names if name.rpartition("/")[2].lower() in _NAMES]
        if not tables or not any(map(is_image, names)):
            return None
        for name in tables:
            if not name.lower().endswith(".parquet"):  # Parquet contains the column names at the end of the file
                columns = first_columns(name, tree.start(name, _START_BYTES))
                if not any(re.fullmatch("(?:.+_)?file_names?", column) for column in columns):
                    return None
        return f"images of {counted(len(tables), 'table')}: {listed(tables)}"

    def split_of(self, sample: FileSample) -> str:
        return sample.paths["image"].partition("/")[0]

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        values = [value for value in self._values if value.field.name in names]
        if len(values) < len(names):
            return super().read(index, names)
        _, rows, with_box = self._rows(self.checked(index))
        return {value.field.name: value.value(with_box if value.is_per_row else rows) for value in values}

    def listed_values(self, sample: FileSample) -> base.Sample:
        numbers, rows, with_box = self._rows(sample.row)
        values = {value.field.name: value.value(with_box if value.is_per_row else rows) for value in self._values}
        if self._boxes:
            boxes = [[float(cells[place]) for place in self._boxes] for cells in with_box]
            edges = np.array(boxes, np.float64).reshape(-1, 4)
            values["boxes"] = box_edges(edges, lambda box: self._table.where(numbers[box]))
        return values

    def _rows(self, sample: int) -> tuple[list[int], list[Sequence[Cell]], list[Sequence[Cell]]]:
        """Return the numbers of the rows with a box, all rows of the sample, and its rows with a box."""
        numbers = self._samples.members(sample)
        rows = [self._table[row] for row in numbers]
        if not self._boxes:
            return numbers, rows, rows
        boxed = [place for place, cells in enumerate(rows) if not is_empty(cells[self._boxes[0]])]
        return [numbers[place] for place in boxed], rows, [rows[place] for place in boxed]

    def stated_size(self, index: int) -> tuple[int, int] | None:
        if not self._size:
            return None
        cells = self._table[self._samples.members(self.checked(index))[0]]
        return int(cells[self._size[0]]), int(cells[self._size[1]])


def _image_kind(column: str) -> Literal["image", "mask", "depth"]:
    if DEPTHS.intersection(words(column)):
        return "depth"
    return "mask" if has_labels(column) else "image"


def _text(cell: Cell) -> str:
    return "" if cell is None else str(cell)
