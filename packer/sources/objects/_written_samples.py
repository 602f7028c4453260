"""Written samples: the source of `packer.Writer`. It contains the samples that were written and are not yet encoded."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.schema import KEY, KINDS, Field, Schema
from packer.sources import base
from packer.sources._extract_destinations import FILES, extracted_paths, is_file
from packer.sources._message_texts import listed
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.objects._object_fields import ObjectField, described, fields_of, values_in
from packer.sources.objects._object_source import KIND, weight
from packer.sources.objects._object_values import Axes

_WIDE_MASK = "mask:uint16"


class WrittenSamples(base.Source):
    """Samples of a Writer. All methods except `add` are thread-safe.

    Attributes:
        keys: Key -> index of each sample of the pack, in order.
        bytes_in: The size in bytes of the values of all samples of this Writer.
    """

    kind = KIND
    notes = ()
    left_out = ()
    decodes = True

    def __init__(self, fields: Iterable[Field], axes: Axes) -> None:
        self.root = Path("<Writer>")
        self.folder = SourceRoot(self.root)
        self.folder.is_local = False
        self.schema = Schema(tuple(fields))
        self.keys: dict[str, int] = {}
        self.bytes_in = 0
        self._names: list[str] = []
        self._axes = axes
        self._fields = [ObjectField(each, each.name) for each in self.schema if each.name not in (KEY, FILES.name)]
        self._waiting: dict[int, tuple[base.Sample, int]] = {}  # values and their size, by index

    def resume(self, keys: Iterable[str], bytes_in: int) -> None:
        """Append the `keys` of samples that an earlier run stored, and add `bytes_in`, the size of their values."""
        for key in keys:
            self.keys[key] = len(self._names)
            self._names.append(key)
        self.bytes_in += bytes_in

    def values_of(self, sample: Mapping[str, Any], name: str) -> base.Sample:
        """Return a copy of the values of a sample. `name` begins the message of a BadInput for an invalid value."""
        if not isinstance(sample, Mapping):
            raise BadInput(f"{name}: expected a dict of values, found {described(sample)}")
        more = sample.keys() - {each.entry for each in self._fields}
        if more:
            raise BadInput(
                f"{name}: no field {listed(sorted(map(str, more)))}; fields: {listed(self.schema.names[1:])}"
            )
        values = values_in(sample, self._fields, self._axes, name=name)
        return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}

    def add(self, key: str, values: base.Sample) -> int:
        """Append a sample and return its size in bytes. Raise BadInput if an earlier sample has the same key."""
        if key in self.keys:
            raise BadInput(f"{self.root}: key {key!r:.200} is that of an earlier sample; choose another key")
        index, size = len(self._names), max(1, weight(values))
        self._waiting[index] = values, size
        self.keys[key] = index
        self._names.append(key)
        self.bytes_in += size
        return size

    def forget(self, index: int) -> int:
        """Remove the values of an encoded sample, and return their size in bytes."""
        return self._waiting.pop(index)[1]

    def __len__(self) -> int:
        return len(self._names)

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        key, (values, _) = self.key(index), self._waiting[index]
        found = {KEY: key, **values}
        if FILES in self.schema.fields:
            found[FILES.name] = extracted_paths(key, index, filter(is_file, self.schema), values)
        return found

    def key(self, index: int) -> str:
        return self._names[self.checked(index)]

    def entry(self, index: int) -> base.SampleEntry:
        key = self.key(index)
        return base.SampleEntry(key, (), key, place=f"[{index}] ({key})")

    def provenance(self) -> base.Provenance:
        content = hashlib.sha256(b"".join(os.fsencode(key) + b"\0" for key in self._names)).hexdigest()
        counts = {"samples": len(self), "files": 0, "bytes": self.bytes_in}
        origin = {"kind": KIND, "of": "Writer", **counts, "digest": content}
        return base.Provenance(np.zeros(0, np.int64), 0, content, content.encode(), origin, {})


def written_fields(
    sample: Mapping[str, Any], request: Mapping[str, str | Field], classes: Mapping[str, Sequence[str]], axes: Axes
) -> list[Field]:
    """Return the fields of the first sample of a Writer.

    Args:
        sample: The first sample. It decides the dtypes and shapes that `request` does not state.
        request: Field name -> kind or Field, as in `packer.convert`.
        classes: Name of a field of kind number -> names of its classes.
        axes: The order of the axes of images that are arrays.

    Raises:
        InvalidRequest: A value does not have the stated kind.
        BadInput: The sample has no value for a field.
    """
    request = dict(request)
    for name, names in classes.items():
        if request.get(name) != "number":
            raise InvalidRequest(f"classes of {name!r}: expected a field of kind number, found {request.get(name)!r}")
        request[name] = Field(name, "number", "number", "int64", (), classes=tuple(names))
    if request.get("split") == "text":
        raise InvalidRequest("field 'split': name the splits: fields={'split': 'number'}, classes={'split': [...]}")
    found = fields_of([sample], request, declared={}, axes=axes, key_entry=None)
    fields = [
        each.field if each.field.name == each.entry else replace(each.field, name=str(each.entry)) for each in found
    ]
    return [Field(KEY, "text", "text"), *fields, *([FILES] if any(map(is_file, fields)) else [])]


def kinds_and_codecs(fields: Mapping[str, str | Field]) -> tuple[dict[str, str | Field], dict[str, str]]:
    """Return name -> kind or Field, and name -> codec. A text that is not a kind is the codec of an image field."""
    codecs = {name: each for name, each in fields.items() if isinstance(each, str) and each not in (*KINDS, _WIDE_MASK)}
    return {name: "image" if name in codecs else each for name, each in fields.items()}, codecs
