"""TFRecord: files of tf.train.Example, as TensorFlow, vahidk's tfrecord and DALI read them; neither is needed.

Fields: key (the number of the record in its file, after the name of the file if there are several), and one for each
feature that `features` names, otherwise for the features of a few records, which a note shows as that option: images,
texts and bytes as they are, one number or a list of numbers (`image/encoded` is called image, `image/class/label`
label). For a feature list of a SequenceExample: the numbers of all its steps, and where each step begins.
packer.layouts.tfrecord_frames and packer.layouts.example have the layout.
The first checksum of a record is compared when files are listed, the second whenever the record is read. An index next
to a file (`.idx`, `.tfindex`, `.index`: a line `offset length` per record) is used if it covers the file without a gap;
otherwise the file is read. A file that gzip or zlib compressed is read unpacked.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.layouts import example
from packer.layouts.tfrecord_frames import FRAME_BYTES, HEAD, begins, checksums, is_head
from packer.schema import Field
from packer.sources._field_names import FieldNames
from packer.sources._message_texts import counted, listed, shown
from packer.sources.records._random_access_files import HeaderReader, OpenFile, UnpackedFile
from packer.sources.records._record_fields import KINDS, STARTS, RecordField, decoded, escaped, in_order, kind_of_bytes
from packer.sources.records._record_source import MOST_BYTES, RecordSource

SPECIFICITY = -1
_INDEXES = (".idx", ".tfindex", ".index")
_USUAL = {"image/encoded": "image", "image/class/label": "label", "image_raw": "image", "jpg": "image", "png": "image"}


class _Steps(NamedTuple):
    """A feature list: the numbers of all steps, if they are of one type, and where each step begins."""

    numbers: example.Numbers | None
    starts: npt.NDArray[np.int64]
    is_unreadable: bool  # whether steps contain anything else


class Source(RecordSource):
    """One TFRecord file, or a folder of them."""

    kind = "tfrecord"
    title = "TFRecord"
    noun = "TFRecord file"
    expected = "names that end in .tfrecord, with at least one record"
    kinds = (*KINDS, STARTS)
    may_be_packed = True
    file_name = re.compile(
        r"\.(?:tfrecords?|tfrec|records?)(?:[-._]\d+(?:-of-\d+)?)?(?:\.(?:gz|gzip|zlib))?$|-\d{5}-of-\d{5}(?:\.gz)?$",
        re.IGNORECASE,
    )

    def __init__(
        self, root: Path, *, features: Sequence[str] = (), layout: str = "auto", follow_links: bool = False
    ) -> None:
        """Find every record; raises InvalidRequest, also for a feature that no record has, and BadInput."""
        self._list(root, features=features, layout=layout, follow_links=follow_links)

    @classmethod
    def begins(cls, start: bytes) -> bool:
        return begins(start)

    # ---- finding records

    def find(self, name: str, file: OpenFile | UnpackedFile, size: int | None) -> None:
        for place in (name, str(PurePosixPath(name).with_suffix(""))) if size is not None else ():
            for suffix in _INDEXES:
                lines = self._table(f"{place}{suffix}")
                if lines is None:
                    continue
                spans = _spans(lines, size or 0)
                for offset, length in spans:
                    self._add(offset, length)
                if spans:
                    return
                self.tables.pop()
                self.notes.append(f"{shown(place + suffix)}: does not cover its file: not used")
        self._walk(HeaderReader(file), name, size)

    def _walk(self, file: HeaderReader, name: str, size: int | None) -> None:
        """Add the records up to the end, or up to the first bytes that are not a record."""
        at = records = 0
        while head := file.read(at, HEAD.size):
            where = f"record {records} at byte {at}"
            if len(head) < HEAD.size:
                self._end(name, at, f"{where} is cut", is_cut=True)
                return
            length, _ = HEAD.unpack(head)
            if not is_head(head) or length > MOST_BYTES - FRAME_BYTES:
                self._end(name, at, f"{where} does not begin as one: its length is damaged", is_cut=False)
                return
            after = at + FRAME_BYTES + length
            if len(file.read(after - 4, 4)) < 4 if size is None else after > size:
                self._end(name, at, f"{where} is cut: its {length} bytes of data go on after the end", is_cut=True)
                return
            self._add(at, after - at)
            at = after
            records += 1

    # ---- what records contain

    def entries(self, index: int, record: bytes) -> dict[str, Any]:
        if not begins(record) or HEAD.unpack_from(record)[0] != len(record) - FRAME_BYTES:
            raise BadInput("no record begins there; the file changed or its index is of another file")
        found, stored = checksums(record)
        if found != stored:
            raise BadInput(
                f"damaged: masked crc32c {found:08x}, the file has {stored:08x}; get the file again, or use "
                "--on-error skip"
            )
        parsed = example.parse(record[HEAD.size : -4])
        lists = {name: _steps(each) for name, each in parsed.lists.items()}
        return {**lists, **{name: each for name, each in parsed.features.items() if _has(each) or name not in lists}}

    def unused(self, entries: Mapping[str, Any]) -> list[str]:
        return [name for name in super().unused(entries) if _has(entries[name])]

    def choose_fields(self) -> Sequence[Field]:
        fields = super().choose_fields()
        owners = {field.entries[0]: field.name for field in self._fields if field.kind == "numbers"}
        have_starts = {field.entries[0] for field in self._fields if field.kind == STARTS}
        for field in self._fields:
            name = field.entries[0]
            if name in self._lists - have_starts:
                line = shell_word(f"{field.name}_starts={escaped(name)}:{STARTS}")
                self.notes.append(
                    f"feature list {shown(name)}: its steps are joined; {line} in --features keeps where they begin"
                )
        return [
            replace(made, starts=owners[field.entries[0]]) if field.kind == STARTS else made
            for field, made in zip(self._fields, fields, strict=True)
        ]

    def _parse_some(self) -> tuple[dict[str, list[Any]], int]:
        found, count = super()._parse_some()
        self._empty = {name for name, values in found.items() if any(map(_is_empty, values))}
        found = {name: each for name, values in found.items() if (each := list(filter(_has, values)))}
        lists = {name for name, values in found.items() if any(isinstance(each, _Steps) for each in values)}
        self._lists = {name for name in lists if _numbers(found[name])}
        self._unreadable = sorted(lists - self._lists)
        return found, count

    def guess(self, found: Mapping[str, Sequence[Any]], count: int) -> Sequence[RecordField]:
        """Return a field for each feature that all records have: one value of bytes, or numbers.

        Numbers are a list if some record has the name and no value. Labels by their name are a field in any case: a
        record without its label is an error.
        """
        names = FieldNames()
        usual = {_USUAL[name]: name for name in reversed(_USUAL) if name in found}
        called = {name: field for field, name in sorted(usual.items())}
        fields: list[RecordField] = []
        skipped: list[str] = []
        for name in [*called, *sorted(found.keys() - called.keys() - set(self._unreadable))]:
            values = _numbers(found[name]) if name in self._lists else found[name]
            is_single = all(len(value) == 1 for value in values)
            is_bytes = isinstance(values[0], list)
            may_be_absent = name in called or name in self._lists or name in self._empty
            is_rare = len(values) < count
            if not name or (is_bytes and (is_rare or not is_single)) or (is_rare and is_single and not may_be_absent):
                skipped.append(name)
            else:
                are_many = name in self._lists or (name in self._empty and not is_bytes and name not in called)
                own = names.of_entry(name, called.get(name, ""))
                fields.append(RecordField(own, (name,), "numbers" if are_many else None))
                if name in self._lists:
                    fields.append(RecordField(names.of_entry(f"{own}_{STARTS}"), (name,), STARTS))
        absent = sorted({*skipped, *self._unreadable, *(self._empty - found.keys())})
        reason = f"not every record looked at has one value of bytes, or numbers of one type: {listed(absent)}"
        if not fields:
            raise InvalidRequest(f"{shown(str(self.root))}: the records have no feature that can be packed: {reason}")
        if absent:
            self.notes.append(f"features left out: {reason}; --features takes some")
        fields = in_order(fields)
        images = [
            field
            for field in fields
            if isinstance(found[field.entries[0]][0], list)
            and kind_of_bytes(self.images(found[field.entries[0]]), field.entries[0]) == "image"
        ]
        if len(images) == 1 and "image" not in usual:
            fields = [replace(field, name="image") if field is images[0] else field for field in fields]
        return fields

    def typed(self, field: RecordField, values: Sequence[Any]) -> RecordField:
        name = field.entries[0]
        if field.kind == STARTS:
            self._check_starts(field)
            return replace(field, dtype="int64")
        if name in self._unreadable:
            raise InvalidRequest(f"option features: {name!r} is a feature list of other steps than numbers of one type")
        values = _numbers(values) if name in self._lists else values
        are_bytes = {isinstance(value, list) for value in values}
        is_numeric = field.kind in ("number", "numbers")
        if len(are_bytes) > 1 or (field.kind and is_numeric == are_bytes.pop()):
            raise InvalidRequest(
                f"option features: {field.shown()}: {name} contains {'bytes' if is_numeric else 'numbers'}"
            )
        if isinstance(values[0], list):
            return replace(field, kind=field.kind or kind_of_bytes(self.images(values), name))
        dtypes = Counter(value.dtype.name for value in values if len(value))
        kind = field.kind or ("number" if all(len(value) == 1 for value in values) else "numbers")
        dtype = dtypes.most_common(1)[0][0] if dtypes else values[0].dtype.name
        return RecordField(field.name, field.entries, kind, dtype)

    def _check_starts(self, field: RecordField) -> None:
        """Raise InvalidRequest unless the entry is a feature list whose numbers are one field."""
        name = field.entries[0]
        if name not in self._lists:
            raise InvalidRequest(
                f"option features: {field.shown()}: {name!r} is not a feature list of numbers; there are: "
                f"{listed(sorted(self._lists)) or 'none'}"
            )
        kinds = [other.kind for other in self._asked if other.entries[0] == name and other != field]
        if self._asked and kinds != ["numbers"]:
            raise InvalidRequest(
                f"option features: {field.shown()}: starts need the numbers of the list in one field: type {name}=... "
                f"once as numbers, such as x={escaped(name)}:numbers"
            )

    def images(self, values: Sequence[Any]) -> Sequence[Any]:
        return [data for value in values if isinstance(value, list) for data in value[:1]]

    def value_of(self, field: RecordField, entries: Mapping[str, Any]) -> Any:
        name = field.entries[0]
        found = entries.get(name)
        if isinstance(found, _Steps):
            if found.is_unreadable:
                raise BadInput(f"feature list {name!r}: expected steps of numbers of one type, found others")
            found = found.starts if field.kind == STARTS else found.numbers
        elif field.kind == STARTS:
            return np.zeros(0, np.int64)
        if field.kind not in ("number", "numbers", STARTS):
            if not isinstance(found, list) or len(found) != 1:
                raise BadInput(f"feature {name!r}: expected one value of bytes, found {_described(found)}")
            return decoded(field, found[0])
        numbers = np.zeros(0, field.dtype) if found is None or _is_empty(found) else found
        if isinstance(numbers, list) or numbers.dtype != field.dtype:
            raise BadInput(f"feature {name!r}: expected {field.dtype} numbers, found {_described(found)}")
        if field.kind != "number":
            return numbers
        if len(numbers) != 1:
            raise BadInput(
                f"field {field.name!r}: expected one number, found {len(numbers) or 'none'}; use --on-error skip, "
                f"declare {field.name}=...:numbers in --features, or leave {field.name} out there"
            )
        return numbers[0]


def _spans(index: bytes, size: int) -> list[tuple[int, int]]:
    """Return the offsets and lengths of an index; empty if it does not cover a file of this size."""
    try:
        lines = index.decode("ascii").splitlines()
        spans = [(int(first), int(second)) for first, second in (line.split() for line in lines if line.strip())]
    except ValueError:
        return []
    at = 0
    for offset, length in spans:
        if offset != at or not FRAME_BYTES <= length <= MOST_BYTES:
            return []
        at += length
    return spans if at == size else []


def _steps(steps: Sequence[example.Values]) -> _Steps:
    filled = [step for step in steps if len(step)] or [step for step in steps if not isinstance(step, list)]
    arrays: list[npt.NDArray[Any]] = [step for step in filled if not isinstance(step, list)]
    is_sound = len(arrays) == len(filled) and len({array.dtype for array in arrays}) == 1
    starts = np.cumsum([0, *map(len, steps)], dtype=np.int64)[:-1]
    return _Steps(np.concatenate(arrays) if is_sound else None, starts, not is_sound and any(map(len, filled)))


def _has(value: Any) -> bool:
    """Whether a feature or a feature list contains anything, at least a type of numbers."""
    if isinstance(value, _Steps):
        return value.numbers is not None or value.is_unreadable
    return not _is_empty(value)


def _is_empty(value: Any) -> bool:
    """Whether a feature has a name only."""
    return isinstance(value, list) and not value


def _numbers(values: Sequence[Any]) -> list[Any]:
    """Return the numbers of feature lists that have some, and other values as they are."""
    found = [value.numbers if isinstance(value, _Steps) else value for value in values]
    return [value for value in found if value is not None]


def _described(found: Any) -> str:
    if found is None or _is_empty(found):
        return "none"
    return counted(len(found), "value") + (" of bytes" if isinstance(found, list) else f" of {found.dtype}")
