"""Record source: the base of all sources whose samples are records in large files: TFRecord, RecordIO, tar, LMDB.

A subclass declares the names and first bytes of its files (`file_name`, `begins`). Its method `find` lists the records
of a file, and `entries` parses the bytes of a record. The constructor of the subclass calls `_list`.

`SampleEntry.extent` is the place of a record. The hidden field `files` contains the paths that `extract` writes.

The constructor reads each file once to find the records, then parses a few records for the schema. It keeps 20 bytes
per record in memory. Reading a file stops at the first bytes that are not a record. An incomplete last record is
skipped. Other bytes are listed in `unread`. They are an error, unless the user skips bad samples.
"""

import re
from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.schema import KEY, PIXEL_KINDS, Field, Schema, check_field_count
from packer.sources import base
from packer.sources._extract_destinations import FILES, extracted_paths, is_file
from packer.sources._message_texts import counted, described, listed, shown
from packer.sources._name_words import ordered_splits, split_rank
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_scan import scan
from packer.sources._trees.folder_tree import EMPTY, SourceRoot
from packer.sources.records._random_access_files import (
    OpenFile,
    RecordFile,
    RecordFiles,
    UnpackedFile,
    check_no_pointer,
    is_packed,
    is_pointer,
    open_records,
)
from packer.sources.records._record_fields import (
    KINDS,
    RecordField,
    are_gray,
    parse_fields,
    typed_features,
)

IMAGE = Field("image", "image", "encoded")
LABEL = Field("label", "number", "number", dtype="int64", shape=())
MOST_BYTES = 1 << 30  # limit for one record
_START_BYTES = 512
_PROBES = 32


class RecordSource(base.Source):
    """A source of records. Subclasses declare the class attributes.

    Attributes:
        title: The name of the layout in messages.
        noun: The word for one file of the layout in messages.
        row: The word for a sample in messages.
        entry_noun: The word for a named value of a record in messages.
        expected: A description of valid files, for messages.
        file_name: A pattern that matches the names of record files in a folder.
        ignored: A pattern that matches the names of files that belong to no data set.
        may_be_packed: True if files may be compressed with gzip or zlib.
        fields: The fields of every data set. Empty if the records or the option `features` determine the fields.
        kinds: The kinds that the option `features` accepts.
        guessed: How fields are chosen without the option `features`, for messages.
    """

    holds_records = True
    title: ClassVar[str]
    noun: ClassVar[str]
    row: ClassVar[str] = "record"
    entry_noun: ClassVar[str] = "feature"
    expected: ClassVar[str]
    file_name: ClassVar[re.Pattern[str]]
    ignored: ClassVar[re.Pattern[str]] = re.compile(r"(?!)")
    may_be_packed: ClassVar[bool] = False
    fields: ClassVar[Sequence[Field]] = ()
    kinds: ClassVar[Sequence[str]] = KINDS
    guessed: ClassVar[str] = "guessed from a few records; --feature declares it"
    notes: list[str]
    left_out: list[tuple[str, str]]
    tables: list[str]
    unread: list[tuple[str, str]]

    folder: SourceRoot
    _files: RecordFiles
    _asked: Sequence[RecordField] = ()  # the option `features`
    _fields: Sequence[RecordField] = ()  # the fields of `features`; if empty, all entries are fields
    _splits: Sequence[int]  # the number of the split of each file
    _split_names: Sequence[str] = ()
    _firsts: "array[int]"  # the index of the first record of each file
    _parsed_entries: frozenset[str] | None = None  # entries found while parsing for the schema

    # ---- hooks of subclasses

    @classmethod
    @abstractmethod
    def begins(cls, start: bytes) -> bool:
        """Return whether a file has this layout, by its first bytes `start`: 512, or all of a shorter file."""

    @classmethod
    def is_own(cls, folder: SourceRoot, name: str) -> bool:
        """Return True if a file whose name or first bytes match is of this source. The default is True."""
        return True

    @abstractmethod
    def find(self, name: str, file: OpenFile | UnpackedFile, size: int | None) -> None:
        """Call `_add` for each record of a file. Call `_end` if bytes that are not a complete record follow.

        Args:
            name: The relative path of the file.
            file: The file, decompressed.
            size: The size in bytes. None for a compressed file.

        Raises:
            BadInput: The file cannot be read.
            InvalidRequest: The file has another layout.
        """

    @abstractmethod
    def entries(self, index: int, record: bytes) -> dict[str, Any]:
        """Return the values of a record by entry name. Raise BadInput if the record is damaged."""

    def choose_fields(self) -> Sequence[Field]:
        """Return the fields of the schema. Raise InvalidRequest or BadInput if no fields can be chosen."""
        if self.fields:
            return self.fields
        found, count = self._parse_some()
        for field in self._asked:
            if field.entries[0] not in found:
                raise InvalidRequest(
                    f"option features: no {self.entry_noun} {field.entries[0]!r} in the records looked at; there are: "
                    f"{listed(sorted(found)) or 'none'}"
                )
        self._parsed_entries = None if self._asked else frozenset(found)
        return self._typed(self._asked or self.guess(found, count), found)

    def guess(self, found: Mapping[str, Sequence[Any]], count: int) -> Sequence[RecordField]:
        """Return the fields to use without the option `features`. Raise InvalidRequest if they are ambiguous.

        `found` contains entry name -> values in the parsed records. `count` is the number of these records.
        """
        return ()

    def typed(self, field: RecordField, values: Sequence[Any]) -> RecordField:
        """Return `field` with kind and dtype. Raise InvalidRequest if `values` do not have the declared kind."""
        return field

    def images(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values that may be images: bytes of files, or arrays of pixels."""
        return [value for value in values if isinstance(value, bytes)]

    def value_of(self, field: RecordField, entries: Mapping[str, Any]) -> Any:
        """Return the value of a field from the entries of a record. Raise BadInput for an invalid value."""
        return entries[field.entries[0]]

    def unused(self, entries: Mapping[str, Any]) -> list[str]:
        """Return the names of entries that no record contained when a few records were parsed for the schema."""
        return [] if self._parsed_entries is None else list(entries.keys() - self._parsed_entries)

    def path_stem(self, index: int) -> str:
        """Return the path of the files that `extract` writes for a sample, without a suffix."""
        return self.key(index)

    # ---- recognition

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return a text such as `TFRecord: 3 TFRecord files`. Return None if no file has this layout."""
        if not isinstance(tree, SourceRoot):
            return None
        chosen = names if len(names) == 1 else list(filter(cls.file_name.search, names))
        for name in chosen:
            start = tree.start(name, _START_BYTES)
            may_be = is_pointer(start) or (cls.may_be_packed and is_packed(start))
            if (cls.begins(start) or (may_be and cls.file_name.search(name))) and cls.is_own(tree, name):
                return f"{cls.title}: {counted(len(chosen), cls.noun)}"
        return None

    # ---- listing

    def _list(self, root: Path, *, features: Sequence[str] = (), named_splits: bool, follow_links: bool) -> None:
        """Find every record and build the schema."""
        self._asked = parse_fields(features, self.kinds)
        self.root = root
        self.folder, names, self.notes = opened(root, follow_links=follow_links)
        self.left_out, self.unread = [], []
        self._numbers, self._offsets, self._sizes, self._ids = array("i"), array("q"), array("q"), array("q")
        self._names: list[str] = []
        self.tables = []
        chosen = names if root.is_file() else list(filter(self.file_name.search, names))
        files: list[RecordFile] = []
        for self._number, name in enumerate(chosen):
            start = self.folder.start(name, _START_BYTES)
            check_no_pointer(start, self.folder.root / name)
            packed = self.may_be_packed and is_packed(start) and not self.begins(start)
            on_disk, file = open_records(self.folder, name, is_packed=packed)
            self.find(name, file, None if packed else on_disk.size)
            files.append(RecordFile(name, on_disk.size, packed))
        if not len(self) and not self.unread:
            found = f"found {described(names)}" if names else "the folder is empty"
            raise InvalidRequest(f"{shown(str(root))}: no {self.noun}s: {found}; expected {self.expected}")
        self._check_files(files, named_splits=named_splits)
        fields = [Field(KEY, "text", "text"), *self.choose_fields()]
        if self._splits:
            fields.append(Field("split", "number", "number", dtype="int64", shape=(), classes=tuple(self._split_names)))
        if any(map(is_file, fields)):
            fields.append(FILES)
        self.schema = Schema(tuple(fields))
        self._files = RecordFiles(self.folder, files)  # closes the files that were read for the schema
        used = {*chosen, *self.tables}
        self.extras = [name for name in names if name not in used and not self.ignored.search(name)]
        self.companions = beside_first_image(self.schema)
        self.notes.append(f"{counted(len(self), self.row)} in {counted(len(files), self.noun)}")
        self.notes += self._about_fields()

    def _add(self, offset: int, size: int, key: str | int | None = None) -> None:
        """Add a record at `offset`. `key` is its name or number, or None if it has neither."""
        self._numbers.append(self._number)
        self._offsets.append(offset)
        self._sizes.append(size)
        if isinstance(key, str):
            self._names.append(key)
        elif key is not None:
            self._ids.append(key)

    def _end(self, name: str, at: int, reason: str, *, is_cut: bool) -> None:
        """Report that bytes from `at` on are not a record. If `is_cut`, they are an incomplete record and skipped."""
        key = f"{name}@{at}"
        if is_cut:
            self.left_out.append((key, reason))
            self.notes.append(f"{shown(name)}: {reason}; the records before it are packed")
        else:
            self.unread.append((key, reason))

    def _table(self, name: str) -> bytes | None:
        """Return the bytes of a file and add its name to `tables`, or return None if the file is absent."""
        if not (self.folder.root / name).is_file():
            return None
        self.tables.append(name)
        return self.folder.read(name)

    def _keep(self, rows: Sequence[int]) -> None:
        columns = (self._numbers, self._offsets, self._sizes, self._ids)
        self._numbers, self._offsets, self._sizes, self._ids = (
            array(column.typecode, (column[row] for row in rows)) if column else column for column in columns
        )
        self._names = [self._names[row] for row in rows] if self._names else []
        self._firsts = _firsts(self._numbers, len(self._firsts))

    def _name_by_file(self) -> None:
        """If two files contain records with equal names, prefix each record name with the file name."""
        if len(set(self._names)) < len(self._names) and len(self._stems) > 1:
            self._names = [
                f"{self._stems[number]}/{name}" for number, name in zip(self._numbers, self._names, strict=True)
            ]

    def _check_files(self, files: Sequence[RecordFile], *, named_splits: bool) -> None:
        """Raise BadInput if the records of a file are larger than the file. Assign the splits."""
        self._files = RecordFiles(self.folder, files)
        totals: Counter[int] = Counter()
        for number, size in zip(self._numbers, self._sizes, strict=True):
            totals[number] += size
        for number, total in totals.items():  # overlapping records could make a pack much larger than the file
            if total > files[number].size and not files[number].is_packed:
                raise BadInput(
                    f"{self.folder.root / files[number].name}: damaged: its records have {total} bytes together, "
                    f"the file {files[number].size}"
                )
        ends = zip(self._numbers, map(sum, zip(self._offsets, self._sizes, strict=True)), strict=True)
        self.folder.unpacks_again = self._files.unpacks_again(ends)
        names = [file.name for file in files]
        self._firsts = _firsts(self._numbers, len(files))
        self._stems = _stems(names)
        self._splits = self._split_numbers(names, is_declared=named_splits)
        if self.unread:
            reasons = listed(f"{key.rpartition('@')[0]}: {reason}" for key, reason in self.unread)
            self.unread_message = (
                f"{counted(len(self.unread), 'place')} with bytes that are not a record: {reasons}; get the files again"
            )
            if not len(self):
                raise BadInput(f"{shown(str(self.root))}: {self.unread_message}")

    def _split_numbers(self, names: Sequence[str], *, is_declared: bool) -> list[int]:
        """Return the split number of each file, or []. If not `is_declared`, several splits raise InvalidRequest."""
        tops = [PurePosixPath(name).name if len({*map(_top, names)}) == 1 else _top(name) for name in names]
        found = [_split_word(top) for top in tops]
        there = sorted({word for word in found if word})
        if not is_declared and len(there) <= 1:
            return []
        if not is_declared:
            counts = ", ".join(f"{word} {found.count(word)}" for word in there)
            raise InvalidRequest(
                f"{shown(str(self.root))}: the files seem to be of several splits ({counts}); give a folder or a file "
                "of one, or use --named-splits, which packs all with the field split"
            )
        splits = [word or "other" for word in found]
        self._split_names = ordered_splits(set(splits))
        return [self._split_names.index(name) for name in splits]

    # ---- choice of fields

    def _probes(self) -> Iterator[tuple[int, bytes]]:
        """Yield (index, bytes) of the first records and of records at regular distances."""
        total, half = len(self), _PROBES // 2
        for index in sorted({*range(min(half, total)), *(number * total // half for number in range(half))}):
            if self._sizes[index] <= self.folder.most_bytes:
                yield index, self.record(index)

    def _parse_some(self) -> tuple[dict[str, list[Any]], int]:
        """Parse a few records. Return entry name -> values, and the number of parsed records."""
        found: dict[str, list[Any]] = {}
        count, damage = 0, ""
        for index, record in self._probes():
            try:
                entries = self.entries(index, record)
            except BadInput as error:
                damage = damage or error.message
                continue
            count += 1
            for name, value in entries.items():
                found.setdefault(name, []).append(value)
            if not self._asked:
                check_field_count(len(found))
        if not count:
            raise BadInput(f"{shown(str(self.root))}: no {self.row} can be read: {damage}")
        return found, count

    def _typed(self, fields: Sequence[RecordField], found: Mapping[str, Sequence[Any]]) -> list[Field]:
        """Set kind and dtype of each field by its values in `found`."""
        values = [[value for entry in field.entries for value in found.get(entry, ())] for field in fields]
        typed = [self.typed(field, each) for field, each in zip(fields, values, strict=True)]
        undecided = [
            field
            for declared, field, each in zip(fields, typed, values, strict=True)
            if declared.kind is None and field.kind in ("image", "depth") and not field.is_named
            if are_gray(self.images(each))
        ]
        if undecided and sum(field.kind in PIXEL_KINDS for field in typed) > 1:
            line = typed_features(field.shown() for field in typed)
            raise InvalidRequest(
                f"{shown(str(self.root))}: cannot decide what images of one channel next to others are: "
                f"{listed(field.name for field in undecided)}; declare all fields, such as {line}; labels are of "
                "kind mask, or mask:uint16"
            )
        self._fields = typed
        return [field.field for field in typed]

    def _about_fields(self) -> Iterator[str]:
        for field in self._fields:
            if (field.name, field.kind) == ("image", "depth"):
                yield (
                    "image: images of one channel of 16 bits or floats: taken as a depth, float32 of shape "
                    "(1, H, W), and not as an image, which has 8 bits"
                )
        if self._fields:
            line = typed_features(field.shown() for field in self._fields)
            yield f"{line} ({'as asked' if self._asked else self.guessed})"

    # ---- the contract of sources

    def __len__(self) -> int:
        return len(self._offsets)

    def record(self, index: int) -> bytes:
        """Return the bytes of a sample's record. Raise BadInput if the record cannot be read."""
        at = self.checked(index)
        self.folder.check_size(self._files.files[self._numbers[at]].name, self._sizes[at])
        return self._files.read(self._numbers[at], self._offsets[at], self._sizes[at])

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        if all(name == KEY for name in names):
            return {KEY: self.key(index)}
        values = self._values(index, self.record(index))
        sample: base.Sample = {KEY: self.key(index), **values}
        if self._splits:
            sample["split"] = np.int64(self._splits[self._numbers[index]])
        if FILES in self.schema.fields:
            sample[FILES.name] = self.file_paths(index, values)
        return sample

    def _values(self, index: int, record: bytes) -> base.Sample:
        try:
            entries = self.entries(index, record)
            if not self._fields:
                return entries
            values = {field.name: self.value_of(field, entries) for field in self._fields}
        except BadInput as error:
            raise BadInput(f"{base.sample_name(self, index)}: {error.message}") from error
        if unused := self.unused(entries):
            values[base.UNTAKEN] = unused
        return values

    def key(self, index: int) -> str:
        at = self.checked(index)
        if self._names:
            return self._names[at]
        number = self._numbers[at]
        within = f"{self._ids[at] if self._ids else at - self._firsts[number]:08d}"
        return within if len(self._firsts) == 1 else f"{self._stems[number]}/{within}"

    def entry(self, index: int) -> base.SampleEntry:
        at, key = self.checked(index), self.key(index)
        extent = base.Extent(self._files.files[self._numbers[at]].name, self._offsets[at], self._sizes[at])
        return base.SampleEntry(key, (extent.name,), key, extent, f"record at byte {extent.offset}")

    def file_paths(self, index: int, values: base.Sample) -> dict[str, str]:
        """Return field name -> path that `extract` writes, for each value that is a file."""
        return extracted_paths(self.path_stem(index), index, filter(is_file, self.schema), values)


def opened(root: Path, *, follow_links: bool) -> tuple[SourceRoot, list[str], list[str]]:
    """Return the folder of a data set, the names of the files to read, and notes for the user.

    If `root` is a file, it is the only file to read. Raises InvalidRequest if `root` does not exist.
    """
    if root.is_file():
        if not root.stat().st_size:
            raise InvalidRequest(f"{shown(str(root))}: {EMPTY}")
        place = root.resolve() if root.is_symlink() else root  # a link as `root` is always followed
        return SourceRoot(place.parent, follow_links), [place.name], []
    if not root.is_dir():
        raise InvalidRequest(f"{shown(str(root))}: no such folder or file; give the data set")
    listing = scan(root, follow_links=follow_links)
    return SourceRoot(root, follow_links), listing.names, listing.notes()


def beside_first_image(schema: Schema) -> tuple[str, ...]:
    """Return the names of all image fields of a sample except the first."""
    return tuple(field.name for field in schema if field.kind in PIXEL_KINDS)[1:]


def _firsts(numbers: "array[int]", count: int) -> "array[int]":
    """Return the index of the first record of each file. `numbers` contains the file of each record, ascending."""
    return array("q", (bisect_right(numbers, number - 1) for number in range(count)))


def _stems(names: Sequence[str]) -> list[str]:
    """Return the paths without suffixes. If two of the results are equal, return the complete paths."""
    stems = [name[: -len("".join(PurePosixPath(name).suffixes)) or None] or name for name in names]
    return stems if len(set(stems)) == len(stems) else list(names)


def _top(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _split_word(name: str) -> str | None:
    """Return the split in a file name (`train` for `train-00000-of-00010.tfrecord`), or None."""
    for word in re.split(r"[-_.]", PurePosixPath(name).name):
        if word and split_rank(word) is not None:
            return word.lower()
    return None
