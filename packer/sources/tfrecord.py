"""TFRecord: files of tf.train.Example, as TensorFlow, vahidk's tfrecord and DALI read them; neither is needed.

Fields: key (the number of the record in its file, behind the file's name where there are several), and one for each
feature that `features` names, else for those that a few records suggest, which are shown as such an option: pictures,
texts and bytes as they are, one number or a list of them (`image/encoded` is called image, `image/class/label` label).
Of a feature list of a SequenceExample, the numbers of all its steps, and beside them where each step begins.
Of the layout see packer.layouts.tfrecord_frames and packer.layouts.example.
The first checksum is compared when files are listed, the second whenever a record is read. An index beside a file
(`.idx`, `.tfindex`, `.index`: a line `offset length` per record) is taken where it covers the file without a gap;
otherwise the records are walked. A file that is compressed with gzip or zlib is walked unpacked.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.layouts import example
from packer.layouts.tfrecord_frames import FRAME_BYTES, HEAD, begins, checksums, is_head
from packer.schema import Field, check_field_count
from packer.sources import base
from packer.sources._field_names import FieldNames
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources._records.random_access_files import (
    HeaderReader,
    RecordFile,
    check_no_pointer,
    is_packed,
    is_pointer,
    open_records,
)
from packer.sources._records.record_fields import (
    KINDS,
    STARTS,
    PhotoSizes,
    RecordField,
    decoded,
    escaped,
    first_photos,
    in_order,
    is_gray_beside,
    kind_of_bytes,
    number_of,
    parse_fields,
)
from packer.sources._records.record_source import RecordSource

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_NAME = re.compile(
    r"\.(?:tfrecords?|tfrec|records?)(?:[-._]\d+(?:-of-\d+)?)?(?:\.(?:gz|gzip|zlib))?$|-\d{5}-of-\d{5}(?:\.gz)?$", re.I
)
_INDEXES = (".idx", ".tfindex", ".index")
_MOST_BYTES = 1 << 30  # of one record
_START_BYTES = 64
_USUAL = {"image/encoded": "image", "image/class/label": "label", "image_raw": "image", "jpg": "image", "png": "image"}


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(RecordSource):
    """One TFRecord file, or a folder of them."""

    kind = "tfrecord"
    noun = "TFRecord file"

    def __init__(
        self, root: Path, *, features: Sequence[str] = (), layout: str = "auto", follow_links: bool = False
    ) -> None:
        """Find every record.

        Raises InvalidRequest where there is no TFRecord file and for a feature that no record has, BadInput for what
        git-lfs left and for data that do not unpack.
        """
        asked = parse_fields(features, (*KINDS, STARTS))
        names = self._open(root, follow_links=follow_links, layout=layout)
        chosen = names if root.is_file() else [name for name in names if _NAME.search(name)]
        files: list[RecordFile] = []
        self._tables: list[str] = []
        for name in chosen:
            files.append(self._list(name, len(files), names))
        if not len(self) and not self.unread:
            raise self._none_found(names, "names that end in .tfrecord, with at least one record")
        taken = {*chosen, *self._tables}
        self._take(files)
        self._fields = self._settled_fields(asked)
        self._settle(_described(self._fields), [name for name in names if name not in taken])
        self.notes.append(f"{counted(len(self), 'record')} in {counted(len(files), 'TFRecord file')}")
        said = ",".join(field.shown() for field in self._fields)
        how = "as asked" if asked else "guessed from a few records; --features says it otherwise"
        self.notes.append(f"--features {shell_word(said)} ({how})")

    @classmethod
    def recognise_content(cls, folder: SourceRoot, names: Sequence[str]) -> str | None:
        """How many files there are, if the first of them begins with a record."""
        chosen = names if len(names) == 1 else [name for name in names if _NAME.search(name)]
        for name in chosen:
            start = folder.start(name, _START_BYTES)
            if (is_pointer(start) and _NAME.search(name)) or begins(start) or (is_packed(start) and _NAME.search(name)):
                return f"TFRecord: {counted(len(chosen), 'file')}"
            if start:
                return None
        return None

    # ---- finding records

    def _list(self, name: str, number: int, names: Sequence[str]) -> RecordFile:
        start = self.folder.start(name, _START_BYTES)
        check_no_pointer(start, self.folder.root / name)
        packed = is_packed(start) and not begins(start)
        on_disk, file = open_records(self.folder, name, is_packed=packed)
        for index in _index_names(name):
            if (
                not packed
                and (index in names or self._is_beside(index))
                and self._take_index(index, number, on_disk.size)
            ):
                break
        else:
            self._walk(HeaderReader(file), name, number, size=None if packed else on_disk.size)
        return RecordFile(name, on_disk.size, packed)

    def _is_beside(self, name: str) -> bool:
        """Whether an index lies beside a file that the user named alone."""
        return self.root.is_file() and (self.folder.root / name).is_file()

    def _take_index(self, name: str, number: int, size: int) -> bool:
        """Take the records of an index; False where it does not cover the file."""
        try:
            lines = self.folder.read(name).decode("ascii").splitlines()
            pairs = [(int(first), int(second)) for first, second in (line.split() for line in lines if line.strip())]
        except ValueError:
            pairs = []
        at = 0
        for offset, length in pairs:
            if offset != at or not FRAME_BYTES <= length <= _MOST_BYTES:
                break
            at += length
        if at != size or not pairs:
            self.notes.append(f"{shown(name)}: does not cover its file: not used, the records were found anew")
            return False
        for offset, length in pairs:
            self._add(number, offset, length)
        self._tables.append(name)
        return True

    def _walk(self, file: HeaderReader, name: str, number: int, *, size: int | None) -> None:
        """Find the records of a file up to its end, or to the first bytes that are none. size: None where unknown."""
        at = records = 0
        while head := file.read(at, HEAD.size):
            where = f"record {records} at byte {at}"
            if len(head) < HEAD.size:
                self._end(name, at, f"{where} is cut", is_cut=True)
                return
            length, _ = HEAD.unpack(head)
            if not is_head(head) or length > _MOST_BYTES - FRAME_BYTES:
                self._end(name, at, f"{where} does not begin as one: its length is damaged", is_cut=False)
                return
            after = at + FRAME_BYTES + length
            if len(file.read(after - 4, 4)) < 4 if size is None else after > size:
                self._end(
                    name, at, f"{where} is cut: it has {length} bytes of data, which go on behind the end", is_cut=True
                )
                return
            self._add(number, at, after - at)
            at = after
            records += 1

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.folder.root / name for name in self._tables)

    # ---- what records hold

    def _settled_fields(self, asked: Sequence[RecordField]) -> list[RecordField]:
        found: dict[str, list[Any]] = {}
        looked = 0
        unread: set[str] = set()  # lists of a SequenceExample, by name
        stepped: set[str] = set()
        empty: set[str] = set()  # features without a value, of which nothing says the type
        damaged: list[str] = []
        for index, record in self._probes():
            try:
                parsed = example.parse(self._data(index, record))
                values = _entries(parsed)
            except BadInput as error:
                damaged.append(error.message)
                continue
            looked += 1
            unread.update(name for name, steps in parsed.lists.items() if _are_unread(steps))
            stepped.update(name for name in parsed.lists if name in values and name not in parsed.features)
            empty.update(name for name in parsed.features if name not in values)
            for name, value in values.items():
                found.setdefault(name, []).append(value)
            if not asked:
                check_field_count(len(found))
        if not looked:
            raise BadInput(f"{damaged[0] if damaged else self.root}: no record can be read; get the files again")
        wanted = list(asked)
        self._known = None if asked else {*found, *unread}
        if not asked:
            wanted = self._guessed(found, looked, stepped, empty)
        if not asked and (bare := empty - found.keys()):
            self.notes.append(f"features left out, since no record looked at has a value: {listed(sorted(bare))}")
        left_out = unread - found.keys()  # where other records have it as numbers, the records that do not are errors
        if left_out:
            self.notes.append(
                f"feature lists left out, since their steps are no numbers of one type: {listed(sorted(left_out))}; "
                "frames of a video, say, are samples of their own: write an Example for each"
            )
        self._note_steps(wanted, stepped)
        for field in asked:
            if field.kind == STARTS:
                _check_starts(field, asked, stepped)
            if field.entries[0] not in found:
                if field.entries[0] in unread:
                    raise InvalidRequest(
                        f"option features: {field.entries[0]!r} is a feature list whose steps are no numbers of one "
                        "type, which no field holds; leave it out"
                    )
                raise InvalidRequest(
                    f"option features: no feature {field.entries[0]!r} in the records looked at; there are: "
                    f"{listed(sorted(found)) or 'none'}"
                )
        bytes_of = {field.entries[0]: _bytes_of(found[field.entries[0]]) for field in wanted}
        first, photos = first_photos(bytes_of.values())
        first_entry = "" if first < 0 else list(bytes_of)[first]
        settled = [_with_kind(field, found[field.entries[0]], photos) for field in wanted]
        pictures = [field for field in settled if field.kind == "image"]
        if not asked and len(pictures) == 1 and "image" not in [field.name for field in settled]:
            settled[settled.index(pictures[0])] = replace(pictures[0], name="image")
        self._gray = [
            field
            for field, given in zip(settled, wanted, strict=True)
            if given.kind is None and field.kind == "image" and field.entries[0] != first_entry
            if is_gray_beside(bytes_of[field.entries[0]], photos)
        ]
        return settled

    def _note_steps(self, fields: Sequence[RecordField], stepped: Set[str]) -> None:
        """Say of the feature lists that are packed how their steps are found again. stepped: those that there are."""
        starts = {field.entries[0]: field.name for field in fields if field.kind == STARTS}
        for field in fields:
            name = field.entries[0]
            if field.kind == STARTS or name not in stepped:
                continue
            if name in starts:
                self.notes.append(
                    f"feature list {shown(name)}: {field.name} are the numbers of all steps, {starts[name]} where each "
                    f"begins: numpy.split({field.name}, {starts[name]})[1:] gives them"
                )
            else:
                self.notes.append(
                    f"feature list {shown(name)}: its steps are joined, where a step ends is not kept; "
                    f"{shell_word(f'{field.name}_starts={escaped(name)}:{STARTS}')} in --features keeps it"
                )

    def _guessed(
        self, found: Mapping[str, list[Any]], looked: int, stepped: Set[str], empty: Set[str]
    ) -> list[RecordField]:
        """A field for each feature that all records looked at have: one value of bytes, or numbers.

        Numbers of which a record has the name and no value are a list. Those called as labels are taken anyway: a
        record without its label is an error. stepped: feature lists; empty: names that a record has without a value.
        """
        fields: list[RecordField] = []
        names = FieldNames()
        usual = {_USUAL[name]: name for name in reversed(_USUAL) if name in found}
        named = {name: field for field, name in sorted(usual.items())}
        order = list(named)
        left: list[str] = []
        for name in [*order, *sorted(name for name in found if name not in named)]:
            values = found[name]
            is_bytes = isinstance(values[0], list)
            is_single = all(len(value) == 1 for value in values)
            is_rare = len(values) < looked and name not in named and name not in stepped and name not in empty
            if not name or (is_bytes and (len(values) < looked or not is_single)) or (is_rare and is_single):
                left.append(name)
                continue
            are_listed = name in stepped or (name in empty and not is_bytes and name not in named)
            own = names.of_entry(name, named.get(name, ""))
            fields.append(RecordField(own, (name,), "numbers" if are_listed else None))
            if name in stepped:
                fields.append(RecordField(names.of_entry(f"{own}_{STARTS}"), (name,), STARTS))
        if not fields:
            what = f": not every record has one value of {listed(left)}" if left else ""
            raise InvalidRequest(
                f"{shown(str(self.root))}: the records have no feature that can be packed{what}; expected features of "
                "bytes that each record has once, or of numbers"
            )
        if left:
            self.notes.append(
                f"features left out, since not every record has one value: {listed(left)}; --features takes some"
            )
        return in_order(fields)

    def _data(self, index: int, record: bytes) -> bytes:
        """The Example of a frame; raises BadInput where its checksums say that it is damaged."""
        if not begins(record) or HEAD.unpack_from(record)[0] != len(record) - FRAME_BYTES:
            raise BadInput(f"{self.where(index)}: no record begins there; the file changed or its index is another's")
        found, stored = checksums(record)
        if found != stored:
            raise BadInput(
                f"{self.where(index)}: damaged: masked crc32c {found:08x}, the file says {stored:08x}; "
                "get the file again, or --on-error skip leaves the record out"
            )
        return record[HEAD.size : -4]

    def _values(self, index: int, record: bytes) -> base.Sample:
        try:
            parsed = example.parse(self._data(index, record))
            entries = _entries(parsed)
            values = {field.name: _value(field, entries, parsed.lists) for field in self._fields}
        except BadInput as error:
            where = self.where(index)
            raise BadInput(error.message if error.message.startswith(where) else f"{where}: {error.message}") from error
        if self._known is not None and (unknown := (entries.keys() | parsed.lists.keys()) - self._known):
            untaken = [name for name in unknown if name in entries or _are_unread(parsed.lists[name])]
            if untaken:  # and not lists without a step alone
                values[base.UNTAKEN] = untaken
        return values


def _index_names(name: str) -> list[str]:
    stem = str(PurePosixPath(name).with_suffix(""))
    return [f"{path}{suffix}" for path in (name, stem) for suffix in _INDEXES]


def _entries(found: example.Example) -> dict[str, Any]:
    """Features by name, and of a SequenceExample the numbers of all steps, one after the other."""
    joined = {name: _joined(steps) for name, steps in found.lists.items()}
    steps = {name: numbers for name, numbers in joined.items() if numbers is not None}
    there = {name: value for name, value in found.features.items() if not isinstance(value, list) or value}
    return {**steps, **there}


def _joined(steps: Sequence[example.Values]) -> example.Numbers | None:
    """The numbers of all steps; None where steps hold anything else, numbers of two types, or nothing of a type."""
    filled = [step for step in steps if len(step)] or [step for step in steps if not isinstance(step, list)]
    arrays: list[npt.NDArray[Any]] = [step for step in filled if not isinstance(step, list)]
    if not arrays or len(arrays) < len(filled) or len({array.dtype for array in arrays}) > 1:
        return None
    return np.concatenate(arrays)


def _are_unread(steps: Sequence[example.Values]) -> bool:
    return _joined(steps) is None and any(len(step) for step in steps)


def _described(fields: Sequence[RecordField]) -> list[Field]:
    """As the schema has them: starts say whose they are."""
    named = {field.entries[0]: field.name for field in fields if field.kind == "numbers"}
    made = [(field, field.field) for field in fields]
    return [replace(one, starts=named[field.entries[0]]) if field.kind == STARTS else one for field, one in made]


def _check_starts(field: RecordField, asked: Sequence[RecordField], stepped: Set[str]) -> None:
    """Raise InvalidRequest unless the entry is a feature list whose numbers are packed once."""
    name = field.entries[0]
    if name not in stepped:
        raise InvalidRequest(
            f"option features: {field.shown()}: {name!r} is no feature list of numbers; there are: "
            f"{listed(sorted(stepped)) or 'none'}"
        )
    beside = [other for other in asked if other.entries[0] == name and other is not field]
    if [other.kind for other in beside] != ["numbers"]:
        raise InvalidRequest(
            f"option features: {field.shown()}: where steps begin is of their numbers: say {name}=... once as numbers "
            f"beside it, such as x={escaped(name)}:numbers"
        )


def _bytes_of(values: Sequence[Any]) -> list[bytes]:
    """The values of a feature that holds bytes; empty for one that holds numbers."""
    return [data for value in values if isinstance(value, list) for data in value[:1]]


def _with_kind(field: RecordField, values: Sequence[Any], photos: PhotoSizes) -> RecordField:
    """The field with the kind that the values have, where the user did not say it; raises InvalidRequest."""
    if field.kind == STARTS:
        return field.with_dtype("int64")
    are_bytes = {isinstance(value, list) for value in values}
    numeric = field.kind in ("number", "numbers")
    if len(are_bytes) > 1 or (field.kind and numeric == are_bytes.pop()):
        raise InvalidRequest(
            f"option features: {field.shown()}: {field.entries[0]} holds {'bytes' if numeric else 'numbers'}"
        )
    first = values[0]
    if isinstance(first, list):
        kind = field.kind or kind_of_bytes(_bytes_of(values), field.entries[0], photos)
        return replace(field, kind=kind)
    dtypes = Counter(value.dtype.name for value in values if len(value))
    is_one = all(len(value) == 1 for value in values)
    kind = field.kind or ("number" if is_one else "numbers")
    return RecordField(field.name, field.entries, kind, dtypes.most_common(1)[0][0] if dtypes else first.dtype.name)


def _value(field: RecordField, entries: Mapping[str, Any], lists: Mapping[str, Sequence[example.Values]]) -> Any:
    """The field of one record; raises BadInput where it does not hold it so. lists: its feature lists."""
    name = field.entries[0]
    steps = lists.get(name, ())
    if name not in entries and _are_unread(steps):
        raise BadInput(f"feature list {name!r}: expected steps of numbers of one type, found others")
    if field.kind == STARTS:
        return np.cumsum([0, *map(len, steps)], dtype=np.int64)[:-1]
    if field.kind in ("number", "numbers"):
        found = entries.get(name)
        if found is None:
            found = np.zeros(0, field.dtype)
        if isinstance(found, list) or found.dtype != field.dtype:
            raise BadInput(f"feature {name!r}: expected {field.dtype} numbers, found {_type_of(found)}")
        return number_of(found, field.name) if field.kind == "number" else found
    found = entries.get(name)
    if not isinstance(found, list) or len(found) != 1:
        raise BadInput(f"feature {name!r}: expected one value of bytes, found {_type_of(found)}")
    return decoded(field, found[0])


def _type_of(found: Any) -> str:
    if found is None:
        return "none"
    return counted(len(found), "value") + (" of bytes" if isinstance(found, list) else f" of {found.dtype}")
