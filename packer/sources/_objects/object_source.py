"""Object source: the samples of a Python object: a torch Dataset, a list, anything that gives one after the other.

They lie nowhere on disk, so that what a folder's files say must come from elsewhere: keys are given or are numbers,
sizes are the mean of the samples looked at, and whether an object is the same when a conversion goes on after a kill is
told by keys or a fingerprint, and by those samples.

An object is read by one thread at a time, since nothing says that its `__getitem__` may be called by several: it may
hold an open file. What is made of a sample (PNG, checks) is made by all threads.
"""

import copy
import hashlib
import json
import os
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.images import file_suffixes
from packer.schema import KEY, PIXEL_KINDS, Field, Schema
from packer.sources import base
from packer.sources._name_words import ordered_splits
from packer.sources._objects import object_values
from packer.sources._objects.object_fields import FieldsAsked, ObjectField, described, entry_of, fields_of
from packer.sources._objects.object_rows import ObjectRows
from packer.sources._objects.object_values import Axes, is_picture_object
from packer.sources._parse.folder_listing import counted, listed
from packer.sources._records.record_source import beside_first_picture, is_path

KIND = "object"
_FILES = Field("files", "json", "json", hidden=True)
_MOST_PROBED_BYTES = 256 << 20  # of the samples that are looked at
_AS_FILES = (*PIXEL_KINDS, "text", "bytes")  # of what extract makes a file


class ObjectSource(base.Source):
    """See the module. root: the object's name in angle brackets, such as `<list>`."""

    kind = KIND
    is_on_disk: ClassVar[bool] = False
    left_out = ()

    def __init__(
        self,
        rows: ObjectRows,
        name: str,
        *,
        fields: FieldsAsked = None,
        declared: Mapping[str, Field] | None = None,
        keys: Sequence[str] | None = None,
        key: str | None = None,
        fingerprint: str | None = None,
        classes: Sequence[str] = (),
        axes: Axes = "auto",
        frame: base.Frame = "stored",
        notes: Sequence[str] = (),
    ) -> None:
        """declared: fields by the names that samples call them, for those of which the user says nothing. keys: of each
        sample. key: the name of the entry that holds it, where samples come one after the other. classes: of `label`,
        where its field has none. frame: as of a source.

        Raises InvalidRequest where fields cannot be told, keys repeat, or reading a sample twice gives two.
        """
        self.root = Path(f"<{name}>")
        self.frame = frame
        self._objects = rows
        self._lock = threading.Lock()
        self._rows: Sequence[int] = range(len(rows))
        self._keys = keys
        self._key_entry = key
        self._keys_met: dict[int, str] = {}
        self._taken: set[str] = set()
        if not len(rows):
            raise BadInput(f"{self.root}: no samples to pack: its length is 0")
        samples = self._looked_at()
        try:
            given = fields_of([*samples.values()], fields, declared=declared or {}, axes=axes, without=key)
            given = [self._with_classes(one, classes) for one in given]
        except InvalidRequest as error:
            raise InvalidRequest(f"{self.root}: {error.message}") from error
        self._fields = given
        first = next(iter(samples.values()))
        self._names = frozenset(first) if fields is None and isinstance(first, Mapping) else None
        every = [Field(KEY, "text", "text"), *(one.field for one in given)]
        if any(one.field.kind in _AS_FILES for one in given):
            every.append(_FILES)
        self.schema = Schema(tuple(every))
        self.companions = beside_first_picture(self.schema)
        self._main = next((one.name for one in self.schema if one.kind in PIXEL_KINDS), None)
        probed = self._probed(samples)
        self._mean_bytes = max(1, sum(map(_bytes_of, probed.values())) // len(probed))
        self._fingerprint = fingerprint
        self._seen = _digest(probed.values())
        pictures = [values[one.field.name] for values in probed.values() for one in _pictures(given)]
        self.decodes = any(isinstance(value, np.ndarray) for value in pictures)
        self._settle_axes(axes)
        again = self._check_same(probed)
        self.resume_reason = self._why_not_resumed()
        self.notes = [*self._found(), *self._rounded(samples), *notes, *again]

    def _with_classes(self, one: ObjectField, of_labels: Sequence[str]) -> ObjectField:
        """The field with class names: of splits that are texts, those of all samples; raises InvalidRequest."""
        field, classes, take = one.field, tuple(of_labels), object_values.numbers
        if (field.name, field.kind) == ("split", "text"):
            classes, take = self._splits(one), object_values.class_number
        elif replace(field, codec="number") != Field("label", "number", "number", "int64", ()) or not classes:
            return one
        field = Field(field.name, "number", "number", field.dtype or "int64", (), classes=classes)
        return replace(one, field=field, take=partial(take, field=field))

    def _splits(self, one: ObjectField) -> tuple[str, ...]:
        """The names of the splits."""
        if self._objects.is_sequential:
            raise InvalidRequest(
                "field 'split': the splits have to be known before the samples of an iterable come: say them with "
                "fields=, by a Field of kind number with classes=, or leave the field out"
            )
        names = set()
        for row in self._rows:
            with suppress(BadInput):  # reported when the sample is packed
                names.add(one.of(self._read(row)))
        return ordered_splits(names)

    def _settle_axes(self, axes: Axes) -> None:
        self._options = {} if axes == "auto" else {"axes": axes}
        if self._options and not self.decodes:
            raise InvalidRequest(f"{self.root}: option axes is for pictures that are arrays: the samples hold none")

    def _looked_at(self) -> dict[int, Any]:
        """A few samples as the object gives them, those that can be read; fewer where they are large."""
        samples: dict[int, Any] = {}
        unread: list[BadInput] = []  # told when they are packed
        room = _MOST_PROBED_BYTES
        for index in self._objects.probes():
            try:
                samples[index] = self._read(index)
            except BadInput as error:
                unread.append(error)
                continue
            room -= _weight(samples[index])
            if room < 0:
                break
        if not samples:
            raise unread[0]
        return samples

    def _probed(self, samples: Mapping[int, Any]) -> dict[int, base.Sample]:
        """The values of those that are sound."""
        probed: dict[int, base.Sample] = {}
        unsound: list[BadInput] = []  # as above
        for index, sample in samples.items():
            try:
                probed[index] = self._values(index, sample)
            except BadInput as error:
                unsound.append(error)
        if not probed:
            raise unsound[0]
        return probed

    def _check_same(self, probed: Mapping[int, base.Sample]) -> list[str]:
        """Raise InvalidRequest where a sample is another when it is read again; a note where it comes only once."""
        if not self._objects.restart():
            return ["its samples come only once, so that nothing tells whether random transforms change them"]
        for index, values in probed.items():
            if _digest([values]) != _digest([self._values(index, self._read(index))]):
                raise InvalidRequest(
                    f"{self.where(index)}: gives another sample each time that it is read, and a pack would keep one "
                    "of them: random transforms do so, and a shuffled order; pass the data set without them "
                    "(transform=None; packer.geometry has random crops and flips for training)"
                )
        return []

    def _why_not_resumed(self) -> str | None:
        if self._objects.is_sequential:
            return "an iterable gives its samples from the start"
        if self._keys is None and self._fingerprint is None:
            return "nothing tells whether the objects are the same as then; key= or fingerprint= says so"
        return None

    def _found(self) -> list[str]:
        fields = ", ".join(f"{one.field.name} ({one.field.kind})" for one in self._fields)
        notes = [f"{counted(len(self), 'sample')}: {fields}"]
        if self.resume_reason is not None:
            notes.append(f"an interrupted run begins anew: {self.resume_reason}")
        kept = {one.field.name for one in _pictures(self._fields) if one.field.codec in ("png", "npy")}
        if kept:
            notes.append(
                f"{listed(sorted(kept))}: given as pixels, stored without loss (PNG; depth as .npy), larger than JPEG "
                "files: give the files' bytes or paths where there are files, or say codecs="
            )
        return notes

    def _rounded(self, samples: Mapping[int, Any]) -> list[str]:
        """The note on places that are rounded, as far as the samples that are looked at tell."""
        names = [one.field.name for one in self._fields if any(map(one.is_rounded, samples.values()))]
        return [f"{listed(names)}: rounded to float32, as places in pictures are"] if names else []

    # ---- what packer asks

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> base.Sample:
        row = self._rows[self.checked(index)]
        with self._lock:
            sample = self._read(row)
            values = self._values(index, sample)
            key = self._met_key(row, sample)
        sample = {KEY: key, **values}
        if _FILES in self.schema.fields:
            sample[_FILES.name] = self._paths(row, key, values)
        return sample

    def _read(self, row: int) -> Any:
        try:
            return self._objects.read(row)
        except OSError as error:  # of a file that the object reads; PIL says so of pictures that it cannot
            raise BadInput(f"{self.root}[{row}]: cannot be read: {error}") from error

    def _values(self, index: int, sample: Any) -> base.Sample:
        try:
            self._check_names(sample)
            return {one.field.name: one.of(sample) for one in self._fields}
        except (BadInput, InvalidRequest, OSError) as error:
            said = str(error) if isinstance(error, OSError) else error.message
            raise BadInput(f"{self.where(index)}: {said}") from error

    def _check_names(self, sample: Any) -> None:
        """Raise BadInput for an entry that no field takes, where all entries are fields."""
        if self._names is None or not isinstance(sample, Mapping) or sample.keys() <= self._names:
            return
        raise BadInput(
            f"it has {listed(sorted(map(repr, sample.keys() - self._names)))}, which the samples that were looked at "
            "lack: give it to all samples, or take what all have: fields=[...]"
        )

    def _met_key(self, row: int, sample: Any) -> str:
        """The sample's key, where it is known only once the sample is there."""
        if self._key_entry is None or self._keys is not None:
            return self._known_key(row)
        if row not in self._keys_met:
            key = key_text(entry_of(sample, self._key_entry), f"{self.root}[{row}]")
            if key in self._taken:
                raise BadInput(f"{self.root}[{row}]: key {key!r} is that of an earlier sample; give each its own")
            self._taken.add(key)
            self._keys_met[row] = key
        return self._keys_met[row]

    def _known_key(self, row: int) -> str:
        if self._keys is not None:
            return self._keys[row]
        return self._keys_met.get(row, f"{row:08d}")

    def key(self, index: int) -> str:
        return self._known_key(self._rows[self.checked(index)])

    def files(self, index: int) -> tuple[Path, ...]:
        self.checked(index)
        return ()

    def stem(self, index: int) -> Path:
        return self.root / self.key(index)

    def where(self, index: int, path: str | None = None) -> str:
        row = self._rows[self.checked(index)]
        key = self._known_key(row)
        return f"{self.root}[{row}]" if key == f"{row:08d}" else f"{self.root}[{row}] ({key})"

    def probes(self) -> Sequence[int]:
        return self._objects.probes() if self._objects.is_sequential else super().probes()

    def subset(self, rows: Sequence[int]) -> "ObjectSource":
        if self._objects.is_sequential:
            raise InvalidRequest(
                f"{self.root}: an iterable is packed in the order that it gives: say order='stored', or pass a list"
            )
        chosen = copy.copy(self)
        chosen._rows = array("q", (self._rows[self.checked(row)] for row in rows))
        return chosen

    def provenance(self) -> base.Provenance:
        content = hashlib.sha256(self._seen)
        for index in range(len(self)):
            content.update(os.fsencode(self.key(index)) + b"\0")
        if self._fingerprint is not None:
            content.update(self._fingerprint.encode())
        identity = content.digest() + json.dumps(self.schema.to_json(), sort_keys=True).encode()
        if self.resume_reason is not None:
            identity += os.urandom(16)  # of no other run
        named = {} if self._fingerprint is None else {"fingerprint": self._fingerprint}
        size = self._mean_bytes * len(self)
        origin = {"kind": KIND, "of": self.root.name[1:-1], "samples": len(self), "files": 0, "bytes": size}
        return base.Provenance(
            sizes=np.full(len(self), self._mean_bytes, np.int64),
            files=0,
            digest=content.hexdigest(),
            identity=identity,
            origin={**origin, "digest": content.hexdigest(), **named},
            asked={"kind": KIND, "options": self._options},
        )

    def _paths(self, row: int, key: str, values: base.Sample) -> dict[str, str]:
        """What `extract` calls the values that are files."""
        stem = key if is_path(key) else f"{row:08d}"
        paths = {}
        for one in self._fields:
            field = one.field
            if field.kind not in _AS_FILES:
                continue
            suffixes = _suffixes(field, values[field.name])
            is_main = field.name == self._main
            middle = "" if is_main else f".{field.name}"
            is_named = is_main and stem.lower().endswith(tuple(suffixes))
            paths[field.name] = stem if is_named else f"{stem}{middle}{suffixes[0]}"
        return paths


def key_text(value: object, where: str) -> str:
    """A key of what a sample holds: a text, or a whole number; raises BadInput."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    raise BadInput(f"{where}: its key is {described(value)}, expected a text or a whole number")


def _pictures(fields: Sequence[ObjectField]) -> list[ObjectField]:
    return [one for one in fields if one.field.kind in PIXEL_KINDS]


def _suffixes(field: Field, value: Any) -> tuple[str, ...]:
    if field.kind in ("text", "bytes"):
        return (".txt",) if field.kind == "text" else (".bin",)
    if isinstance(value, bytes):
        return tuple(file_suffixes(value)) or (".bin",)
    return (".npy",) if field.kind == "depth" else (".png",)


def _bytes_of(values: base.Sample) -> int:
    """About how large the values are."""
    return sum(_weight(value) for value in values.values())


def _weight(value: object) -> int:
    if isinstance(value, Mapping):
        return sum(map(_weight, value.values()))
    if isinstance(value, list | tuple):
        return 8 + sum(map(_weight, value))
    if isinstance(value, bytes | bytearray | memoryview | str):
        return len(value)
    if is_picture_object(value):
        picture: Any = value
        return int(picture.width * picture.height * len(picture.getbands()))
    size = getattr(value, "nbytes", 8)
    return size if isinstance(size, int) else 8


def _digest(samples: Iterable[base.Sample]) -> bytes:
    """Of all values, by their bytes, types and shapes: NaN equals itself."""
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
