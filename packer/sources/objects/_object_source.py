"""Object source: the samples of a Python object: a torch Dataset, a list, an iterable.

An object has no files. The user gives keys, or keys are numbers. The size of a sample is the mean size of the inspected
samples. A conversion resumes only if the inspected samples, and the keys or the fingerprint, are unchanged.

One thread at a time reads the object, because the `__getitem__` of a dataset with an open file may not be thread-safe.
All threads encode and check the samples.
"""

import copy
import hashlib
import json
import os
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.schema import KEY, PIXEL_KINDS, Field, Schema
from packer.sources import base
from packer.sources._extract_destinations import FILES, extracted_paths, is_file
from packer.sources._message_texts import counted, listed
from packer.sources._name_words import ordered_splits
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.base import probe_indices
from packer.sources.objects._object_fields import FieldsRequest, ObjectField, described, entry_of, fields_of, values_in
from packer.sources.objects._object_rows import ObjectRows
from packer.sources.objects._object_values import Axes, is_pil_image, sound_values
from packer.sources.records._record_source import beside_first_image

KIND = "object"
KeyRequest = str | Sequence[str] | Callable[[int], str] | None
_MOST_PROBED_BYTES = 256 << 20  # limit for all inspected samples


@dataclass(frozen=True)
class ObjectData:
    """An object and the properties that its library, such as datasets, declares.

    Attributes:
        data: The object that returns samples.
        name: The name of the object in messages and in the manifest.
        declared: Entry of a sample -> field. The kinds of other entries are guessed from values.
        columns: The names for which `data[name]` returns the entries of all samples.
        fingerprint: A text that changes when the samples change. None if unknown.
        classes: The class names of the field `label`.
        frame: The value of `Source.frame`: the pixels that labels refer to if EXIF rotates an image.
    """

    data: Any
    name: str
    declared: Mapping[str, Field] = field(default_factory=dict)
    columns: Sequence[str] = ()
    fingerprint: str | None = None
    classes: Sequence[str] = ()
    frame: base.Frame = "stored"


class ObjectSource(base.Source):
    """The samples of a Python object. `root` is the object's name in angle brackets, such as `<list>`."""

    kind = KIND
    left_out = ()

    def __init__(
        self, data: ObjectData, rows: ObjectRows, *, fields: FieldsRequest, key: KeyRequest, axes: Axes
    ) -> None:
        """Inspect the first samples, and choose the fields.

        Args:
            data: The object.
            rows: Access to its samples.
            fields: Name -> kind or Field, or names of entries. None for all entries of a dict.
            key: The name of an entry, a sequence of all keys, a function of an index, or None for numbers as keys.
            axes: The order of the axes of images that are arrays.

        Raises:
            BadInput: Two samples have the same key, or no inspected sample is readable.
            InvalidRequest: The fields are ambiguous, or two reads of a sample return different values.
        """
        self.root = Path(f"<{data.name}>")
        self.folder = SourceRoot(self.root)
        self.folder.is_local = False
        self.frame = data.frame
        self._data = data
        self._objects = rows
        self.is_sequential = rows.is_sequential
        self._axes = axes
        self._lock = threading.Lock()
        self._rows: Sequence[int] = range(len(rows))
        self._key_entry = key if isinstance(key, str) else None
        self._keys = self._all_keys(key)
        self._stream_keys: dict[int, str] = {}  # row -> key, for sequential rows with a key entry
        self._stream_rows: dict[str, int] = {}
        if not len(rows):
            raise BadInput(f"{self.root}: no samples to pack: its length is 0")
        samples = self._first_samples()
        try:
            found = fields_of(
                list(samples.values()), fields, declared=data.declared, axes=axes, key_entry=self._key_entry
            )
            self._fields = [self._with_classes(each) for each in found]
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.root}: {error.message}") from error
        first = next(iter(samples.values()))
        self._names = frozenset(first) if fields is None and isinstance(first, Mapping) else None
        every = [each.field for each in self._fields]
        has_files = any(map(is_file, every))
        self.schema = Schema((Field(KEY, "text", "text"), *every, *([FILES] if has_files else [])))
        self.companions = beside_first_image(self.schema)
        self._images = [each.name for each in every if each.kind in PIXEL_KINDS]
        self._options = {} if axes == "auto" else {"axes": axes}
        probes = dict(sound_values(lambda row: (row, self._values(row, samples[row])), samples))
        self._mean_bytes = max(1, sum(map(weight, probes.values())) // len(probes))
        self._digest = _digest(probes.values())
        self.decodes = any(isinstance(values[name], np.ndarray) for values in probes.values() for name in self._images)
        if self._options and not self.decodes:
            raise InvalidRequest(f"{self.root}: option axes is for images that are arrays: the samples have none")
        if rows.is_sequential:
            self.resume_reason = "an iterable returns its samples from the start"
        elif self._keys is None and data.fingerprint is None:
            self.resume_reason = "the object may be another one; key= or fingerprint= identifies it"
        self.notes = self._notes(probes)

    # ---- called by the constructor

    def _all_keys(self, key: KeyRequest) -> list[str] | None:
        """Return the keys of all samples. None: keys are numbers, or an iterable returns them with the samples."""
        count = len(self._objects)
        if key is None or (isinstance(key, str) and self._objects.is_sequential):
            return None
        if isinstance(key, str):
            rows = self._rows_with(key)
            values: Iterable[Any] = (entry_of(self._read(row, rows), key) for row in range(count))
        elif callable(key):
            values = map(key, range(count))
        elif len(key) == count:
            values = key
        else:
            raise InvalidRequest(f"{self.root}: key has {counted(len(key), 'text')}, there are {count} samples")
        keys = [_key_text(value, f"{self.root}[{row}]") for row, value in enumerate(values)]
        first: dict[str, int] = {}
        places = enumerate(keys)
        repeated = [f"{text} ([{one}], [{row}])" for row, text in places if (one := first.setdefault(text, row)) != row]
        if repeated:
            raise BadInput(f"{self.root}: {counted(len(repeated), 'key')} of several samples: {listed(repeated)}")
        return keys

    def _rows_with(self, entry: Any) -> ObjectRows:
        """Return rows that contain `entry`. If the object has this column, read no other columns."""
        if entry in self._data.columns:
            return ObjectRows([{entry: value} for value in self._data.data[entry]], len(self._objects))
        return self._objects

    def _first_samples(self) -> dict[int, Any]:
        """Return row -> sample for the readable samples to inspect: at most 16, and fewer if they are large."""
        samples: dict[int, Any] = {}

        def inspect(row: int) -> None:
            if sum(map(weight, samples.values())) <= _MOST_PROBED_BYTES:
                samples[row] = self._read(row)

        sound_values(inspect, probe_indices(len(self._objects), is_sequential=self.is_sequential))
        return samples

    def _with_classes(self, each: ObjectField) -> ObjectField:
        """Add class names to the field `label` or `split`. Return other fields unchanged."""
        found, classes = each.field, tuple(self._data.classes)
        if (found.name, found.kind) == ("split", "text"):
            classes = self._split_names(each)
        elif replace(found, codec="number") != Field("label", "number", "number", "int64", ()) or not classes:
            return each
        return each._replace(field=Field(found.name, "number", "number", "int64", (), classes=classes))

    def _split_names(self, each: ObjectField) -> tuple[str, ...]:
        if self._objects.is_sequential:
            raise InvalidRequest(
                "field 'split': name the splits of an iterable, by a Field of kind number with classes=, or leave it "
                "out with fields="
            )
        names, rows = set(), self._rows_with(each.entry)
        for row in self._rows:
            with suppress(BadInput):  # packing the sample reports the error
                names.add(each.value_in(self._read(row, rows), self._axes))
        return ordered_splits(names)

    def _notes(self, probes: Mapping[int, base.Sample]) -> list[str]:
        """Return the notes. Raise InvalidRequest if a second read of an inspected sample returns different values."""
        fields = ", ".join(f"{each.field.name} ({each.field.kind})" for each in self._fields)
        notes = [f"{counted(len(self), 'sample')}: {fields}"]
        if self.resume_reason is not None:
            notes.append(f"an interrupted run cannot resume: {self.resume_reason}")
        if not self._objects.restart():
            return [*notes, "its samples come only once, so packer cannot check whether random transforms change them"]
        for row, values in probes.items():
            if _digest([values]) != _digest([self._values(row, self._read(row))]):
                raise InvalidRequest(
                    f"{self.root}{self._place(row)}: returns another sample each time, because of random transforms or "
                    "a shuffled order; pass the data set without them (packer.geometry crops and flips in training)"
                )
        return notes

    # ---- samples

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        row = self._rows[self.checked(index)]
        with self._lock:
            self._objects.expect(self._rows[index : index + self._objects.ahead])
            sample = self._read(row)
            values = self._values(index, sample)
            if self._key_entry is not None and self._keys is None:
                self._note_key(row, sample)
        found: base.Sample = {KEY: self.key(index), **values}
        if FILES in self.schema.fields:
            found[FILES.name] = extracted_paths(self.key(index), row, filter(is_file, self.schema), values)
        return found

    def _read(self, row: int, rows: ObjectRows | None = None) -> Any:
        try:
            return (self._objects if rows is None else rows).read(row)
        except OSError as error:  # from file access of the object; PIL raises OSError for damaged images
            raise BadInput(f"{self.root}[{row}]: cannot be read: {error}") from error

    def _values(self, index: int, sample: Any) -> base.Sample:
        name = base.sample_name(self, index)
        if self._names is not None and isinstance(sample, Mapping) and not sample.keys() <= self._names:
            more = listed(sorted(map(repr, sample.keys() - self._names)))
            raise BadInput(f"{name}: only later samples have {more}: select what all samples have, fields=[...]")
        return values_in(sample, self._fields, self._axes, name=name)

    def _note_key(self, row: int, sample: Any) -> None:
        """Store the key of a sample of an iterable. Raise BadInput if an earlier sample has the same key."""
        key = _key_text(entry_of(sample, self._key_entry), f"{self.root}[{row}]")
        if self._stream_rows.setdefault(key, row) != row:
            raise BadInput(f"{self.root}[{row}]: key {key!r} is that of an earlier sample")
        self._stream_keys[row] = key

    def key(self, index: int) -> str:
        row = self._rows[self.checked(index)]
        return self._keys[row] if self._keys is not None else self._stream_keys.get(row, f"{row:08d}")

    def entry(self, index: int) -> base.SampleEntry:
        key = self.key(index)
        return base.SampleEntry(key, (), key, place=self._place(index))

    def _place(self, index: int) -> str:
        row, key = self._rows[self.checked(index)], self.key(index)
        return f"[{row}]" if key == f"{row:08d}" else f"[{row}] ({key})"

    def subset(self, rows: Sequence[int]) -> "ObjectSource":
        if self._objects.is_sequential:
            raise InvalidRequest(
                f"{self.root}: an iterable is packed in its own order: pass a list, or order='stored' to packer.convert"
            )
        chosen = copy.copy(self)
        chosen._rows = array("q", (self._rows[self.checked(row)] for row in rows))
        return chosen

    def provenance(self) -> base.Provenance:
        content = hashlib.sha256(self._digest)
        for index in range(len(self)):
            content.update(os.fsencode(self.key(index)) + b"\0")
        fingerprint = self._data.fingerprint
        content.update((fingerprint or "").encode())
        identity = content.digest() + json.dumps(self.schema.to_json(), sort_keys=True).encode()
        if self.resume_reason is not None:
            identity += os.urandom(16)  # no other run has an equal identity
        size = self._mean_bytes * len(self)
        origin = {"kind": KIND, "of": self._data.name, "samples": len(self), "files": 0, "bytes": size}
        origin |= {"digest": content.hexdigest()} | ({} if fingerprint is None else {"fingerprint": fingerprint})
        return base.Provenance(
            sizes=np.full(len(self), self._mean_bytes, np.int64),
            files=0,
            digest=content.hexdigest(),
            identity=identity,
            origin=origin,
            asked={"kind": KIND, "options": self._options},
        )


def _key_text(value: object, where: str) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    raise BadInput(f"{where}: its key is {described(value)}, expected a text or a whole number")


def weight(value: object) -> int:
    """Return the approximate size of a value in bytes."""
    if isinstance(value, Mapping):
        return sum(map(weight, value.values()))
    if isinstance(value, list | tuple):
        return 8 + sum(map(weight, value))
    if isinstance(value, bytes | bytearray | memoryview | str):
        return len(value)
    if is_pil_image(value):
        image: Any = value
        return int(image.width * image.height * len(image.getbands()))
    size = getattr(value, "nbytes", 8)
    return size if isinstance(size, int) else 8


def _digest(samples: Iterable[base.Sample]) -> bytes:
    """Return the sha256 of the bytes of all values. Equal bytes give equal digests, also for NaN."""
    content = hashlib.sha256()
    for values in samples:
        for name, value in values.items():
            if isinstance(value, np.ndarray | np.generic):
                content.update(f"{name}\0{value.dtype}{value.shape}\0".encode())
                content.update(np.ascontiguousarray(value).tobytes())
            elif isinstance(value, bytes):
                content.update(f"{name}\0{len(value)}\0".encode() + value)
            else:
                content.update(f"{name}\0{json.dumps(value, sort_keys=True)}\0".encode())
    return content.digest()
