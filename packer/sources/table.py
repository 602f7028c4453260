"""Table: pictures that a table lists: CSV, TSV, JSON Lines or Parquet, by the paths in one of its columns.

Either the table itself is the root, and the pictures lie beside it by the paths in it; or it is `metadata.csv`,
`metadata.jsonl` or `metadata.parquet` in a folder or an archive, as of Hugging Face's imagefolder: then each folder may
have one, whose paths begin there, and folders named as splits (`train/metadata.csv`) become the field `split`. What the
folders are called otherwise says nothing: the tables do.

Fields: key (the picture's relative path, or the text of `key_column`), image, one more picture for each column
`NAME_file_name`, and for each that is called as masks or depth are and holds paths; label (of the column `label` or
`class`: numbers as they are, texts by their place among all, sorted); split (of folders, or of a column of that name);
a field for every other column (packer.sources._parse.table_cell_types: number, text or json). Columns xmin, ymin, xmax,
ymax are boxes (float32 (N, 4), as they are), and box_labels then takes the place of label. Hidden: files.

A sample is a row, in the table's order. With `group_by` it is all rows of one value in that column, in the order in
which each value comes first: what is the same in all rows of every sample is one value, everything else has one per
row, numbers `of` boxes where there are any. A row whose four cells of a box are all empty says that there is none.

EXIF: boxes lie over the picture of the size that the columns width and height state; where there are none,
`label_frame` says which. Masks and depth are placed as sidecars are, by --sidecar-frame. Masks are of 16 bit where one
of six that are opened is.
Not read: URLs, files outside of the folder, lists of files (`file_names`), bytes in Parquet.
"""

import math
import os
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest, PackerError
from packer.images import sniff
from packer.schema import MOST_PIXELS, Field, Schema
from packer.sources import base
from packer.sources._field_names import FieldNames
from packer.sources._name_words import DEPTHS, has_labels, ordered_splits, other_spelling, split_rank, words
from packer.sources._parse.folder_listing import counted, described, listed, scan, shown, suffix_of
from packer.sources._parse.source_file_access import LinkLeadsOut, SourceRoot
from packer.sources._parse.table_cell_types import NUMBERS, Kind, value_of
from packer.sources._parse.table_paths import PathPattern
from packer.sources._parse.table_rows import SUFFIXES, Cell, first_columns
from packer.sources._parse.table_set import TableSet, Texts
from packer.sources._text_values import box_edges
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.open_tree import open_tree

SPECIFICITY = 40
_NAMES = ("metadata.csv", "metadata.tsv", "metadata.jsonl", "metadata.parquet")
_PICTURES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_OTHER_PICTURES = (".gif", ".heic", ".avif", ".jp2", ".tga", ".jxl")  # which a table may name all the same
_PATHS = ("file_name", "filename", "image", "image_path", "img_path", "path", "filepath", "file_path", "file", "img")
_LABELS = ("label", "class")
_BOXES = (("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"), ("x1", "y1", "x2", "y2"))
_OURS = (
    "key",
    "image",
    "label",
    "labels",
    "split",
    "boxes",
    "box_labels",
    "files",
    "orientation",
    "matrix",
    "source_size",
)
_DTYPES: dict[Kind, str] = {"int": "int64", "float": "float64", "bool": "bool"}
_OPENED = 6  # masks that are opened to see how many bits they have
_PROBED = 100  # rows that are looked at to find the column of paths
_START_BYTES = 1 << 16
_MOST_CLASSES = 100_000
_SHOWN_COLUMNS = 20
_SHOWN_ROWS = 20
_FILES = Field("files", "json", "json", hidden=True)
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")

Pictures = Literal["image", "mask", "depth"]


def recognise(names: Sequence[str]) -> str | None:
    """None: the columns of a table tell it, see `Source.recognise_tables`."""
    return None


class _NamedFile(NamedTuple):
    """A field whose files a table names. places: of the columns that say where."""

    name: str
    kind: Pictures
    pattern: PathPattern
    places: tuple[int, ...]

    def path(self, cells: Sequence[Cell], folder: str) -> str:
        """Relative path; empty where the row names none."""
        return self.pattern.path([cells[at] for at in self.places], folder).name


class _ColumnField(NamedTuple):
    """A field made of a column. place: of the column. classes: of texts. has_rows: whether it has a value per row."""

    field: Field
    place: int
    kind: Kind
    classes: dict[str, int] | None = None
    has_rows: bool = False

    def of(self, rows: Sequence[Sequence[Cell]]) -> Any:
        """The value of the rows of a sample."""
        if not self.has_rows:
            return self._one(rows[0][self.place])
        values = [self._one(cells[self.place]) for cells in rows]
        if self.field.kind != "number":
            return values
        return np.array(values, np.dtype(self.field.dtype)).reshape(-1)

    def _one(self, cell: Cell) -> Any:
        if self.classes is not None:
            return np.int64(self.classes[cell])
        return value_of(cell, self.kind)


class Source(base.Source):
    """Pictures that a table lists."""

    kind = "table"
    takes_files: ClassVar[bool] = True
    telling_options = ("key_column", "group_by")
    _listing: list[str] | None  # what lies in the folder; None of a table by itself

    def __init__(
        self,
        root: Path | FileTree,
        *,
        image_key: str = "",
        label_key: str = "",
        key_column: str = "",
        group_by: str = "",
        missing: str = "error",
        label_frame: str = "auto",
        known_classes: Sequence[str] = (),
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """Read the table, or the tables of a folder.

        known_classes: names of the labels in the order of their numbers; none for those that are found, sorted.
        own_splits: whether the samples have the splits of the folders, or of the column `split`.
        Raises InvalidRequest for columns that are not there; BadInput for a table that cannot be read, naming the
        line, for paths that lead elsewhere, files that are not there, and pictures that several rows name;
        MissingPackage for a Parquet file without pyarrow.
        """
        base.check_choice("missing", missing, ("error", "skip"))
        base.check_choice("label_frame", label_frame, ("auto", "stored", "upright"))
        self._is_skipping = missing == "skip"
        self._has_splits = own_splits
        names, notes = self._found_tables(root, follow_links=follow_links)
        self._tables = TableSet(self.folder, self.folder.root, names)
        self._headers = self._tables.headers
        self._places = {name: at for at, name in enumerate(self._headers)}
        if not len(self._tables) and not self._tables.bytes_columns:
            raise BadInput(f"{listed(map(str, self.tables()))}: the table has no rows")
        self._pictures = self._found_pictures(image_key)
        self._label = self._chosen("label_key", label_key) if label_key else self._usual(_LABELS)
        self._key = self._chosen("key_column", key_column) if key_column else None
        self._group = self._chosen("group_by", group_by) if group_by else None
        self._boxes = self._box_columns()
        self._walk()
        if known_classes:
            self._classes = self._numbered_as(tuple(known_classes))
        self._take_samples()
        self._settle_missing()
        self._check_unique()
        self._settle_schema()
        size = self._size_columns()
        self._size = size if self._boxes and label_frame == "auto" else None
        if self._boxes:
            self.frame = "stated" if label_frame == "auto" else "upright" if label_frame == "upright" else "stored"
        self.companions = [picture.name for picture in self._pictures[1:]]
        self._extras = self._unused()
        self.notes = [*notes, *self._found()]
        self._listing = None  # a million names, which nobody asks for any more

    # ---- while it is made

    def _found_tables(self, root: Path | FileTree, *, follow_links: bool) -> tuple[list[str], list[str]]:
        """Relative paths of the tables, and what listing the folder says."""
        tree = open_tree(root, follow_links=follow_links, takes_files=True)
        self._tree, self.root, self.follow_links = tree, tree.root, follow_links
        self._listing = None
        self._named = self.root
        if isinstance(root, Path) and root.is_file() and isinstance(tree, SourceRoot):
            self._named = root
            if suffix_of(root.name) not in SUFFIXES:
                raise InvalidRequest(
                    f"{shown(str(root))}: is no table: expected a name that ends in {' '.join(SUFFIXES)}"
                )
            return [root.name], []
        listing = scan(tree)
        self._listing = listing.names
        names = [name for name in listing.names if name.rpartition("/")[2].lower() in _NAMES]
        if not names:
            raise InvalidRequest(
                f"{shown(str(self.root))}: no table: found {described(listing.names)}, expected {', '.join(_NAMES)} in "
                "a folder; give the table itself where it is called otherwise"
            )
        folders = Counter(name.rpartition("/")[0] for name in names)
        twice = [name for name in names if folders[name.rpartition("/")[0]] > 1]
        if twice:
            raise BadInput(
                f"{shown(str(self.root))}: several tables in one folder: {listed(twice)}; which of them counts? give "
                "that one itself, or leave one there"
            )
        return names, listing.notes()

    def _chosen(self, option: str, name: str) -> int:
        """The place of the column that an option names."""
        if name in self._places:
            return self._places[name]
        raise InvalidRequest(
            f"{shown(str(self._named))}: option {option}: no column {shown(name)!r}; there are: {self._shown_columns()}"
        )

    def _shown_columns(self) -> str:
        more = f" and {len(self._headers) - _SHOWN_COLUMNS} more" if len(self._headers) > _SHOWN_COLUMNS else ""
        return ", ".join(map(shown, self._headers[:_SHOWN_COLUMNS])) + more

    def _usual(self, names: Sequence[str]) -> int | None:
        """The place of the first column that is called so, in letters of any case."""
        lower = {name.lower(): at for at, name in reversed(list(enumerate(self._headers)))}
        return next((lower[name] for name in names if name in lower), None)

    def _found_pictures(self, image_key: str) -> list[_NamedFile]:
        """The fields whose files the table names, the sample's picture first."""
        hold_paths = self._columns_of_paths()
        column = image_key or self._main_column(hold_paths)
        try:
            main = PathPattern(column, self._headers)
        except InvalidRequest as error:
            raise InvalidRequest(f"{shown(str(self._named))}: option image_key: {error.message}") from error
        found = [_NamedFile("image", "image", main, tuple(self._places[name] for name in main.columns))]
        fields = FieldNames(_OURS)
        for at, name in enumerate(self._headers):
            short = name.lower().removesuffix("_file_name")
            is_named = short != name.lower() and bool(short)
            if name in main.columns or not (is_named or (at in hold_paths and _picture_kind(name) != "image")):
                continue
            kind = _picture_kind(name)
            found.append(
                _NamedFile(fields.of_column(short if is_named else name), kind, PathPattern(name, self._headers), (at,))
            )
        return found

    def _columns_of_paths(self) -> list[int]:
        """The columns whose first cells are names of pictures."""
        suffixes = _PICTURES + _OTHER_PICTURES
        first = [cells for _, (_, cells) in zip(range(_PROBED), self._tables.all_cells(), strict=False)]
        found = []
        for at in range(len(self._headers)):
            cells = [row[at] for row in first if row[at] not in ("", None)]
            if cells and all(isinstance(cell, str) and cell.lower().endswith(suffixes) for cell in cells):
                found.append(at)
        return found

    def _main_column(self, hold_paths: Sequence[int]) -> str:
        if any(name.lower().endswith(_PICTURES) for name in self._headers):
            raise InvalidRequest(
                f"{shown(str(self._named))}: its first line names a picture, and no columns ({self._shown_columns()}); "
                "put a line with the columns' names first"
            )
        if "file_name" in self._places:
            return "file_name"
        there = {self._headers[at].lower(): at for at in reversed(hold_paths)}
        usual = next((there[name] for name in _PATHS if name in there), None)
        if usual is not None:
            return self._headers[usual]
        if len(hold_paths) == 1 or (hold_paths and _picture_kind(self._headers[hold_paths[0]]) == "image"):
            others = [at for at in hold_paths[1:] if _picture_kind(self._headers[at]) == "image"]
            if not others:
                return self._headers[hold_paths[0]]
        raise InvalidRequest(f"{shown(str(self._named))}: option image_key: {self._why_no_paths(hold_paths)}")

    def _why_no_paths(self, hold_paths: Sequence[int]) -> str:
        """What to do where the column of the paths is not found."""
        there = f"columns: {self._shown_columns()}"
        several = [name for name in self._headers if name.lower().endswith("file_names")]
        if several:
            return f"column {shown(several[0])} lists files: a sample has one picture; make a row for each ({there})"
        if hold_paths:
            return (
                f"several columns hold names of pictures: {listed(self._headers[at] for at in hold_paths)}; say which "
                "with --image-key COLUMN"
            )
        if self._tables.bytes_columns:
            return (
                f"no column of paths; {listed(self._tables.bytes_columns)}: bytes in the table itself are not read; "
                "in Python packer.convert takes what datasets.load_dataset makes of it"
            )
        return (
            "no column holds names of pictures; say which with --image-key COLUMN, or how the columns make the path: "
            f"--image-key 'train/{{id}}.jpg' ({there})"
        )

    def _box_columns(self) -> tuple[int, ...]:
        """The places of xmin, ymin, xmax, ymax; empty where there are none."""
        for names in _BOXES:
            places = [self._usual([name]) for name in names]
            found = tuple(at for at in places if at is not None)
            if len(found) == len(names):
                columns = [self._tables.columns[at] for at in found]
                if all(column.filled in ("int", "float") for column in columns):
                    return found
                strange = next(column for column in columns if column.filled not in ("int", "float"))
                raise BadInput(
                    f"{shown(str(self._named))}: column {shown(strange.name)} of the boxes holds what is no number; "
                    "mend it, or rename the columns"
                )
        return ()

    def _size_columns(self) -> tuple[int, int] | None:
        """The places of the columns height and width."""
        height, width = self._usual(["height"]), self._usual(["width"])
        if height is None or width is None:
            return None
        kinds = {self._tables.columns[at].kind for at in (height, width)}
        return (height, width) if kinds == {"int"} else None

    def _walk(self) -> None:
        """One pass over all rows: paths, keys, groups, classes, and what is wrong with any."""
        self._paths, self._keys = Texts(), Texts()
        self._windows = 0
        self._has_share_boxes = bool(self._boxes)
        groups: dict[Cell, int] = {}
        numbers = array("q")
        labels: set[Cell] = set()
        unlabelled, bare = array("q"), array("q")  # bare: without a box, either
        boxless: Counter[str] = Counter()  # what rows without a box have as their label
        wrong: list[tuple[int, str]] = []
        main = self._pictures[0]
        label, key, group, boxes = self._label, self._key, self._group, self._boxes
        is_class = label is not None and self._tables.columns[label].filled == "text"
        is_float = label is not None and self._tables.columns[label].filled == "float"
        for row, (table, cells) in enumerate(self._tables.all_cells()):
            folder = self._tables.folders[table]
            found = main.pattern.path([cells[at] for at in main.places], folder)
            self._paths.append(found.name)
            self._windows += found.is_windows
            if found.refused:
                wrong.append((row, found.refused))
            if key is not None:
                self._keys.append(_text(cells[key]))
            if group is not None:
                if cells[group] in ("", None):
                    wrong.append((row, "nothing in the column of --group-by"))
                numbers.append(groups.setdefault(_text(cells[group]), len(groups)))
            has_box = True
            if boxes:
                filled = [cells[at] for at in boxes if cells[at] not in ("", None)]
                has_box = bool(filled)
                if filled and len(filled) < len(boxes):
                    wrong.append((row, f"{len(filled)} of the four cells of a box"))
                elif filled and self._has_share_boxes:
                    self._has_share_boxes = all(0 <= float(cell) <= 1 for cell in filled)
            if label is not None:
                if cells[label] in ("", None) or (is_float and math.isnan(float(cells[label]))):
                    (unlabelled if has_box else bare).append(row)
                elif is_class:
                    labels.add(cells[label])
                    boxless.update([cells[label]] if not has_box else [])
                    if len(labels) > _MOST_CLASSES:
                        raise InvalidRequest(
                            f"{shown(str(self._named))}: column {shown(self._headers[label])} has more than "
                            f"{_MOST_CLASSES} different texts, which are no classes; say another with --label-key"
                        )
        if wrong:
            lines = [f"{self._tables.where(row)}: {reason}" for row, reason in wrong[:_SHOWN_ROWS]]
            raise BadInput(
                f"{shown(str(self._named))}: {counted(len(wrong), 'fault')} in its rows: {'; '.join(lines)}; expected "
                "paths below the folder of the table, and whole rows"
            )
        if self._has_share_boxes:
            self._boxes = ()
            unlabelled += bare
        self._boxless = boxless if self._boxes else Counter()
        self._classes = tuple(sorted(labels)) if is_class else ()
        self._unlabelled = frozenset(unlabelled)
        self._numbers = np.frombuffer(numbers, np.int64) if group is not None else None

    def _numbered_as(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """The known classes; raises BadInput where one that was found is not among them."""
        if not self._classes:
            raise InvalidRequest(f"{shown(str(self._named))}: no classes to number as in another pack")
        unknown = sorted(set(self._classes) - set(known))
        if unknown:
            raise BadInput(
                f"{shown(str(self._named))}: {counted(len(unknown), 'class')} that the pack of --classes-from does not "
                f"have: {listed(unknown)}; it has {listed(known)}; rename them, or number the classes anew"
            )
        return known

    def _take_samples(self) -> None:
        """The rows of each sample: one, or those of a group."""
        rows = np.arange(len(self._tables), dtype=np.int64)
        ends = rows + 1
        if self._numbers is not None:
            rows = np.argsort(self._numbers, kind="stable")
            ends = np.cumsum(np.bincount(self._numbers))
        self._rows, self._ends = rows, ends
        if self._group is not None:
            for sample in range(len(ends)):
                members = self._members(sample)
                first = self._paths[members[0]]
                other = next((row for row in members[1:] if self._paths[row] != first), None)
                if other is not None:
                    raise BadInput(
                        f"{self._tables.where(other)}: names {shown(self._paths[other])}, another row of the same "
                        f"{shown(self._headers[self._group])} names {shown(first)}: a sample has one picture; group by "
                        "the column of the paths"
                    )
                if self._key is not None and len({self._keys[row] for row in members}) > 1:
                    raise BadInput(
                        f"{self._tables.where(members[0])}: rows of one sample have different keys in "
                        f"{shown(self._headers[self._key])}; leave --key-column out, or group by it"
                    )

    def _members(self, sample: int) -> list[int]:
        if self._numbers is None:
            return [sample]
        start = int(self._ends[sample - 1]) if sample else 0
        rows: list[int] = self._rows[start : self._ends[sample]].tolist()
        return rows

    def _settle_missing(self) -> None:
        """Leave out the samples whose files or labels are not there, or raise BadInput that lists them."""
        label = shown(self._headers[self._label]) if self._label is not None else ""
        reasons: dict[int, str] = {}
        absent: dict[str, int] = {}
        for sample in range(len(self._ends)):
            members = self._members(sample)
            for name in self._file_names_of(members[0]):
                if not name:
                    reasons[sample] = "a column of files is empty"
                elif not self._is_there(name):
                    absent[name] = absent.get(name, 0) + len(members)
                    reasons[sample] = f"no such file: {name}"
            if self._unlabelled and any(row in self._unlabelled for row in members):
                reasons.setdefault(sample, f"no label in column {label}")
        if reasons and not self._is_skipping:
            texts = [reason for reason in reasons.values() if not reason.startswith("no such file")]
            said = []
            if absent:
                said.append(
                    f"{counted(sum(absent.values()), 'row')} of {len(self._tables)} name files that are not there: "
                    f"{listed(absent)}{self._about_absent(list(absent))}"
                )
            if texts:
                first = next(sample for sample, reason in reasons.items() if reason in texts)
                said.append(
                    f"{counted(len(texts), 'sample')} of {len(self._ends)} without what others have ({texts[0]}, such "
                    f"as line {self._tables.where(self._members(first)[0]).rpartition(' ')[2]})"
                )
            raise BadInput(
                f"{shown(str(self._named))}: {'; '.join(said)}; complete them, or say --missing skip, which leaves "
                "these rows out and lists them"
            )
        self.left_out = [(self._key_of(sample), reason) for sample, reason in reasons.items()]
        kept = [sample for sample in range(len(self._ends)) if sample not in reasons] if reasons else None
        self._samples = np.arange(len(self._ends)) if kept is None else np.array(kept, np.int64)

    def _about_absent(self, names: Sequence[str]) -> str:
        """A likely cause."""
        if self._listing is None:
            return ""
        archives = [name for name in self._listing if name.lower().endswith(_ARCHIVES)]
        if archives:
            return f" (unpack {listed(archives[:1])} beside the table)"
        return other_spelling(names, self._listing)

    def _is_there(self, name: str) -> bool:
        if self._listing is not None:
            at = bisect_left(self._listing, name)
            return at < len(self._listing) and self._listing[at] == name
        try:
            self.folder.state(name)
        except LinkLeadsOut:  # reading it says what to do
            return True
        except BadInput:
            return os.path.lexists(self.folder.root / name)  # as above: a link that leads nowhere
        return True

    def _check_unique(self) -> None:
        """Raise BadInput where two samples have one picture or one key."""
        twice = _first_double(self._paths, self._first_rows())
        if twice is not None:
            column = self._pictures[0].pattern.columns[0]
            advice = (
                ""
                if self._group is not None
                else (
                    f": --group-by {shown(column)} makes one sample of all rows of a picture, with a value of each for "
                    "every column"
                )
            )
            raise BadInput(
                f"{self._tables.where(twice[1])}: names {shown(self._paths[twice[1]])}, as line "
                f"{self._tables.where(twice[0]).rpartition(' ')[2]} does{advice}"
            )
        if self._key is not None:
            twice = _first_double(self._keys, self._first_rows())
            column = self._headers[self._key]
            if twice is not None:
                raise BadInput(
                    f"{self._tables.where(twice[1])}: the key {shown(self._keys[twice[1]])!r} in column "
                    f"{shown(column)} is that of another sample, too; keys are unique"
                )
            empty = next((row for row in self._first_rows() if not self._keys[row]), None)
            if empty is not None:
                raise BadInput(f"{self._tables.where(empty)}: the key in column {shown(column)} is empty")

    def _first_rows(self) -> list[int]:
        """The first row of every sample."""
        starts = np.concatenate([[0], self._ends[:-1]])
        rows: list[int] = self._rows[starts[self._samples]].tolist()
        return rows

    def _settle_schema(self) -> None:
        """The fields."""
        taken = {at for picture in self._pictures for at in picture.places if len(picture.pattern.columns) == 1}
        taken |= set(self._boxes)
        varying = self._varying()
        columns = self._tables.columns
        has_rows = self._group is not None
        splits = self._folder_splits() if self._has_splits else ()
        self._splits = splits
        values: list[_ColumnField] = []
        fields = [Field("key", "text", "text")]
        for number, picture in enumerate(self._pictures):
            dtype = "uint16" if picture.kind == "mask" and self._is_wide(number) else None
            fields.append(Field(picture.name, picture.kind, "encoded", dtype))
        if self._boxes:
            fields.append(Field("boxes", "boxes", "raw:float32", dtype="float32", shape=(None, 4)))
        if self._label is not None:
            taken.add(self._label)
            is_rows = bool(self._boxes) or (has_rows and self._label in varying)
            name = "box_labels" if self._boxes else "labels" if is_rows else "label"
            values.append(self._value(name, self._label, classes=self._classes, has_rows=is_rows))
        at = self._column_of_splits()
        if splits:
            fields.append(Field("split", "number", "number", "int64", (), classes=splits))
        elif at is not None and columns[at].kind == "text" and not columns[at].gaps and at not in varying:
            found = ordered_splits({cells[at] for _, cells in self._tables.all_cells()})
            if len(found) <= _MOST_CLASSES:
                taken.add(at)
                values.append(self._value("split", at, classes=found, has_rows=False))
        names = FieldNames([*_OURS, *(picture.name for picture in self._pictures)])
        for at, column in enumerate(columns):
            if at in taken or at == self._key:
                continue
            values.append(
                self._value(names.of_column(column.name), at, classes=(), has_rows=has_rows and at in varying)
            )
        self._values = values
        self.schema = Schema((*fields, *(value.field for value in values), _FILES))

    def _column_of_splits(self) -> int | None:
        """The place of the column `split`, else of one that is called so in other letters."""
        return self._places.get("split", self._usual(("split",))) if self._has_splits else None

    def _is_wide(self, picture: int) -> bool:
        """Whether some of a few masks have 16 bit; those of 8 bit are widened then."""
        for number in range(min(_OPENED, len(self))):
            name = self.file_names(number * len(self) // min(_OPENED, len(self)))[picture]
            with suppress(PackerError):  # the conversion names every file that is no picture
                header = sniff(self.read(name), MOST_PIXELS)
                if header.bits == 16 and header.channels == 1:
                    return True
        return False

    def _value(self, name: str, at: int, *, classes: Sequence[str], has_rows: bool) -> _ColumnField:
        """The field of a column. classes: of its texts."""
        column = self._tables.columns[at]
        kind: Kind = column.filled if at == self._label else column.kind
        of = "boxes" if has_rows and self._boxes and (classes or kind in NUMBERS) else None
        if classes or kind in NUMBERS:
            dtype = "int64" if classes else _DTYPES[kind]
            shape: tuple[int | None, ...] = (None,) if has_rows else ()
            codec = f"raw:{dtype}" if has_rows else "number"
            field = Field(name, "number", codec, dtype, shape, classes=tuple(classes) or None, of=of)
        else:
            is_text = kind == "text" and not has_rows
            field = Field(name, "text" if is_text else "json", "text" if is_text else "json")
        return _ColumnField(field, at, kind, {text: at for at, text in enumerate(classes)} or None, has_rows)

    def _varying(self) -> set[int]:
        """The columns that differ between the rows of a sample."""
        found: set[int] = set()
        open_columns = set(range(len(self._headers)))
        for sample in range(len(self)) if self._group is not None else ():
            members = self._members(int(self._samples[sample]))
            if len(members) > 1 and open_columns:
                rows = [self._tables.cells(row) for row in members]
                differing = {at for at in open_columns if any(cells[at] != rows[0][at] for cells in rows[1:])}
                found |= differing
                open_columns -= differing
        return found

    def _folder_splits(self) -> tuple[str, ...]:
        """Names of the splits that folders with tables are; none where they are no splits."""
        tops = {folder.partition("/")[0] for folder in self._tables.folders}
        if "" in tops or not all(split_rank(top) is not None for top in tops):
            return ()
        return ordered_splits(tops)

    def _unused(self) -> list[str]:
        """The tables, and what else lies in the folder."""
        if self._listing is None:
            return list(self._tables.names)
        used = bytearray(len(self._listing))
        for index in range(len(self)):
            for name in self.file_names(index):
                used[bisect_left(self._listing, name)] = 1
        return [name for name, is_used in zip(self._listing, used, strict=True) if not is_used]

    def _found(self) -> list[str]:
        """The notes."""
        main = self._pictures[0]
        rows = f"{counted(len(self._tables), 'row')} in {listed(self._tables.names)}: "
        notes = [f"{rows}{counted(len(self), 'sample')}, image: column {listed(main.pattern.columns)}"]
        for picture in self._pictures[1:]:
            notes.append(
                f"{picture.name} ({picture.kind}): files that column {shown(picture.pattern.columns[0])} names"
            )
        if self._label is not None and self._label_value is not None:
            value = self._label_value
            classes = counted(len(self._classes), "class") if value.classes else value.field.kind
            first = f": {listed(self._classes)}" if self._classes else ""
            notes.append(f"{value.field.name}: column {shown(self._headers[self._label])}, {classes}{first}")
        if self._splits:
            notes.append(f"splits: {listed(self._splits)}, the folders of the tables")
        if self._boxes:
            notes.append(f"boxes: columns {listed(self._headers[at] for at in self._boxes)}, as they are")
            if self._boxless:
                found = listed(f"{shown(name)} {count}" for name, count in sorted(self._boxless.items()))
                notes.append(
                    f"{counted(self._boxless.total(), 'row')} with a class and no box: {found}: a class as any other, "
                    "of which these rows are no object"
                )
        elif self._has_share_boxes:
            notes.append("columns of boxes hold numbers from 0 to 1, shares of the picture: kept as numbers, no boxes")
        fields = [(value.place, self._headers[value.place], value.field.name) for value in self._values]
        at = None if self._splits else self._column_of_splits()
        if at is not None and not any(value.field.name == "split" for value in self._values):
            column = self._tables.columns[at]
            why = (
                "holds what is no text"
                if column.kind != "text"
                else "has empty cells"
                if column.gaps
                else "differs between the rows of a sample"
            )
            notes.append(f"column {shown(self._headers[at])} {why}: no splits, a field like any other")
        renamed = [
            f"{shown(column) or f'column {at + 1}, which has no name,'} as {name}"
            for at, column, name in fields
            if not _is_alike(column, name)
        ]
        if renamed:
            notes.append(f"columns that are called otherwise as fields: {', '.join(renamed[:_SHOWN_COLUMNS])}")
        notes += list(self._about_cells())
        if self._windows:
            notes.append(f"{counted(self._windows, 'path')} with backslashes: taken as folders")
        if self._tables.bytes_columns:
            notes.append(f"columns of bytes, left out: {listed(self._tables.bytes_columns)}")
        if self._listing is not None:
            others = [name for name in self._extras if name not in self._tables.names]
            if others:
                notes.append(f"{described(others, 'other file')} that no row names")
        return notes

    def _about_cells(self) -> Iterator[str]:
        """What is odd in a column."""
        for value in self._values:
            column = self._tables.columns[value.place]
            if column.gaps and value.field.kind == "number" and value.place != self._label:
                yield f"{value.field.name}: {counted(column.gaps, 'cell')} empty: NaN"
            elif column.filled == "json" and value.field.kind == "json" and not value.has_rows:
                yield f"{value.field.name}: kept as JSON"

    @property
    def _label_value(self) -> _ColumnField | None:
        return next((value for value in self._values if value.place == self._label), None)

    # ---- what packer asks

    @property
    def named(self) -> Path:
        return self._named

    @classmethod
    def recognise_tables(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        tables = [name for name in names if name.rpartition("/")[2].lower() in _NAMES]
        if not tables or not any(name.lower().endswith(_PICTURES) for name in names):
            return None
        for name in tables:
            if not name.lower().endswith(".parquet"):  # whose columns stand at its end
                columns = first_columns(name, tree.start(name, _START_BYTES))
                if not any(re.fullmatch("(?:.+_)?file_names?", column) for column in columns):
                    return None
        return f"pictures that {counted(len(tables), 'table')} list{'s' if len(tables) == 1 else ''}: {listed(tables)}"

    @classmethod
    def recognise_file(cls, folder: SourceRoot, name: str) -> str | None:
        if suffix_of(name) not in SUFFIXES:
            return None
        return f"pictures that the table {shown(name)} lists"

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> base.Sample:
        rows = self._rows_of(index)
        members = self._members(int(self._samples[index]))
        names = self._file_names_of(members[0], rows[0])
        files = dict(zip((picture.name for picture in self._pictures), names, strict=True))
        sample: base.Sample = {"key": self.key(index), "files": files}
        sample |= {name: self.read(path) for name, path in files.items()}
        return sample | {name: make() for name, make in self._made(index, rows).items()}

    def value(self, index: int, name: str) -> Any:
        if name == "key":
            return self.key(index)
        at = next((at for at, picture in enumerate(self._pictures) if picture.name == name), None)
        if at is not None:
            return self.read(self.file_names(index)[at])
        made = self._made(index, self._rows_of(index))
        return made[name]() if name in made else super().value(index, name)

    def _made(self, index: int, rows: Sequence[Sequence[Cell]]) -> dict[str, Callable[[], Any]]:
        """What makes each field that is no file."""
        made: dict[str, Callable[[], Any]] = {}
        kept = rows
        if self._boxes:
            members = self._members(int(self._samples[index]))
            boxed = [at for at, cells in enumerate(rows) if cells[self._boxes[0]] not in ("", None)]
            kept = [rows[at] for at in boxed]
            made["boxes"] = partial(self._edges, kept, [members[at] for at in boxed])
        if self._splits:
            made["split"] = partial(self._split_of, self._members(int(self._samples[index]))[0])
        for value in self._values:
            made[value.field.name] = partial(value.of, kept if value.has_rows else rows)
        return made

    def _edges(self, rows: Sequence[Sequence[Cell]], numbers: Sequence[int]) -> npt.NDArray[np.float32]:
        """The boxes of rows; raises BadInput that names the line. numbers: of the rows in the set."""
        values = [[float(cells[at]) for at in self._boxes] for cells in rows]
        boxes = np.array(values, np.float64).reshape(-1, 4)
        return box_edges(boxes, lambda row: self._tables.where(numbers[row]))

    def _split_of(self, row: int) -> np.int64:
        folder = self._tables.folders[self._tables.table_of(row)]
        number: np.int64 = np.int64(self._splits.index(folder.partition("/")[0]))
        return number

    def _rows_of(self, index: int) -> list[Sequence[Cell]]:
        return [self._tables.cells(row) for row in self._members(int(self._samples[self.checked(index)]))]

    def key(self, index: int) -> str:
        return self._key_of(int(self._samples[self.checked(index)]))

    def _key_of(self, sample: int) -> str:
        row = self._members(sample)[0]
        return self._paths[row] if self._key is None else self._keys[row]

    def files(self, index: int) -> tuple[Path, ...]:
        return tuple(self.folder.root / name for name in self.file_names(index))

    def file_names(self, index: int) -> tuple[str, ...]:
        return self._file_names_of(self._members(int(self._samples[self.checked(index)]))[0])

    def _file_names_of(self, row: int, cells: Sequence[Cell] | None = None) -> tuple[str, ...]:
        """Relative paths of the pictures of a row."""
        main, *others = self._pictures
        if not others:
            return (self._paths[row],)
        cells = self._tables.cells(row) if cells is None else cells
        folder = self._tables.folders[self._tables.table_of(row)]
        return (self._paths[row], *(picture.path(cells, folder) for picture in others))

    def stem(self, index: int) -> Path:
        return (self.folder.root / self.file_names(index)[0]).with_suffix("")

    def stated_size(self, index: int) -> tuple[int, int] | None:
        if self._size is None:
            return None
        cells = self._rows_of(index)[0]
        return int(cells[self._size[0]]), int(cells[self._size[1]])

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.folder.root / name for name in self._tables.names)

    def extras(self) -> Sequence[str]:
        return self._extras


def _picture_kind(column: str) -> Pictures:
    """What the files are that a column of this name names."""
    if DEPTHS.intersection(words(column)):
        return "depth"
    return "mask" if has_labels(column) else "image"


def _text(cell: Cell) -> str:
    """A cell as a key, or as what groups rows."""
    return "" if cell is None else str(cell)


def _first_double(texts: Texts, rows: Sequence[int]) -> tuple[int, int] | None:
    """The first two rows with one text: by hash first, which takes 8 bytes each."""
    hashes = np.fromiter((hash(texts[row]) for row in rows), np.int64, len(rows))
    different, counts = np.unique(hashes, return_counts=True)
    suspects = set(different[counts > 1].tolist())
    seen: dict[str, int] = {}
    for row, key in zip(rows, hashes.tolist(), strict=True) if suspects else ():
        if key in suspects:
            first = seen.setdefault(texts[row], row)
            if first != row:
                return first, row
    return None


def _is_alike(column: str, field: str) -> bool:
    return column == field or field in ("label", "labels", "box_labels")
