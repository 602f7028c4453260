"""TFRecord: files of tf.train.Example. TensorFlow is not needed.

Fields: key, and one field for each feature that the option `features` names. The key is the number of the record in its
file. If there are several files, the file name precedes the number. Without the option, packer parses a few records to
choose the fields, and a note shows the equivalent option. Image files, texts and bytes are not changed. The feature
`image/encoded` becomes the field image, and `image/class/label` becomes label.

Listing checks the checksum of each record header; reading checks that of the data. An index next to a file (`.idx`,
`.tfindex`, `.index`) has a line `offset length` per record. It is used if it covers the complete file. Files may be
compressed with gzip or zlib. packer.layouts.tfrecord_frames and packer.layouts.example describe the layout.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.layouts import example
from packer.layouts.tfrecord_frames import FRAME_BYTES, HEAD, begins, checksums, is_head
from packer.sources._field_names import FieldNames
from packer.sources._message_texts import counted, listed, shown
from packer.sources.records._random_access_files import HeaderReader, OpenFile, UnpackedFile
from packer.sources.records._record_fields import RecordField, decoded, in_order, kind_of_bytes
from packer.sources.records._record_source import MOST_BYTES, RecordSource

SPECIFICITY = -1
_INDEXES = (".idx", ".tfindex", ".index")
_USUAL = {"image/encoded": "image", "image/class/label": "label", "image_raw": "image", "jpg": "image", "png": "image"}


class Source(RecordSource):
    """A TFRecord file, or a folder of TFRecord files."""

    kind = "tfrecord"
    title = "TFRecord"
    noun = "TFRecord file"
    expected = "names that end in .tfrecord, with at least one record"
    may_be_packed = True
    file_name = re.compile(
        r"\.(?:tfrecords?|tfrec|records?)(?:[-._]\d+(?:-of-\d+)?)?(?:\.(?:gz|gzip|zlib))?$|-\d{5}-of-\d{5}(?:\.gz)?$",
        re.IGNORECASE,
    )

    def __init__(
        self, root: Path, *, features: Sequence[str] = (), named_splits: bool = False, follow_links: bool = False
    ) -> None:
        """Find all records. Raises BadInput for damaged files.

        Raises InvalidRequest for files without records, or if no record has a feature of the option `features`. If
        `named_splits` is false, files of several splits also raise InvalidRequest.
        """
        self._list(root, features=features, named_splits=named_splits, follow_links=follow_links)

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
        if parsed.list_names:
            raise BadInput(
                f"is a SequenceExample: packer does not read its feature lists {listed(sorted(parsed.list_names))}; "
                "write each list as features of an Example"
            )
        return dict(parsed.features)

    def unused(self, entries: Mapping[str, Any]) -> list[str]:
        return [name for name in super().unused(entries) if not _is_empty(entries[name])]

    def _parse_some(self) -> tuple[dict[str, list[Any]], int]:
        found, count = super()._parse_some()
        self._empty = {name for name, values in found.items() if any(map(_is_empty, values))}
        filled = {name: [value for value in values if not _is_empty(value)] for name, values in found.items()}
        return {name: values for name, values in filled.items() if values}, count

    def guess(self, found: Mapping[str, Sequence[Any]], count: int) -> Sequence[RecordField]:
        """Return a field for each feature that has one bytes value or numbers in every parsed record.

        Numbers are a list if the feature is empty in some records. `image/class/label` becomes a field even if some
        records do not have this feature. Reading a record without the feature is an error.
        """
        names = FieldNames()
        usual = {_USUAL[name]: name for name in reversed(_USUAL) if name in found}
        called = {name: field for field, name in sorted(usual.items())}
        fields: list[RecordField] = []
        skipped: list[str] = []
        for name in [*called, *sorted(found.keys() - called.keys())]:
            values = found[name]
            is_single = all(len(value) == 1 for value in values)
            is_bytes = isinstance(values[0], list)
            may_be_absent = name in called or name in self._empty
            is_rare = len(values) < count
            if not name or (is_bytes and (is_rare or not is_single)) or (is_rare and is_single and not may_be_absent):
                skipped.append(name)
            else:
                are_many = name in self._empty and not is_bytes and name not in called
                own = names.of_entry(name, called.get(name, ""))
                fields.append(RecordField(own, (name,), "numbers" if are_many else None))
        absent = sorted({*skipped, *(self._empty - found.keys())})
        reason = f"not every record looked at has one value of bytes, or numbers of one type: {listed(absent)}"
        if not fields:
            raise InvalidRequest(f"{shown(str(self.root))}: the records have no feature that can be packed: {reason}")
        if absent:
            self.notes.append(f"features skipped: {reason}; --feature declares some")
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

    def images(self, values: Sequence[Any]) -> Sequence[Any]:
        return [data for value in values if isinstance(value, list) for data in value[:1]]

    def value_of(self, field: RecordField, entries: Mapping[str, Any]) -> Any:
        name = field.entries[0]
        found = entries.get(name)
        if field.kind not in ("number", "numbers"):
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
                f"declare {field.name}=...:numbers with --feature, or leave {field.name} out there"
            )
        return numbers[0]


def _spans(index: bytes, size: int) -> list[tuple[int, int]]:
    """Return (offset, length) of each record in an index, or [] if the index does not cover `size` bytes."""
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


def _is_empty(value: Any) -> bool:
    """Return whether a feature has a name but no value."""
    return isinstance(value, list) and not value


def _described(found: Any) -> str:
    if found is None or _is_empty(found):
        return "none"
    return counted(len(found), "value") + (" of bytes" if isinstance(found, list) else f" of {found.dtype}")
