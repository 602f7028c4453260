"""Sample values: the values and shapes of one sample as plain JSON values, for the page.

The page draws shapes over the first stored image. Their coordinates are in px of it, where (0, 0) is the corner of the
first pixel. A number that is not finite is null, and a shape with a corner that is not finite.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.formats.base import Record
from packer.inspect.tile import corners, shape_forms
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import PIXEL_KINDS, Field, Schema

_MOST_SHAPES = 2000  # of one field
_MOST_NUMBERS = 20_000  # of one value
_MOST_CHARACTERS = 1 << 18
_EXACT = 1 << 53  # numbers of JavaScript are float64


class SampleValues:
    """Makes the values of the samples of a pack. Thread-safe. The methods raise CorruptRecord."""

    def __init__(self, decoder: SampleDecoder) -> None:
        """Use a decoder of all fields of an open pack."""
        self._decoder = decoder
        self._forms = shape_forms(decoder.schema)
        related = (starts for name in self._forms if (starts := decoder.schema.starts_of(name)) is not None)
        labels = (labels for name in self._forms if (labels := _labels_of(decoder.schema, name)) is not None)
        drawn = {*decoder.images[:1], *self._forms, *(field.name for field in (*related, *labels))}
        self._drawn = SampleDecoder(decoder.pack, [name for name in decoder.schema.names if name in drawn])

    def sample(self, row: int) -> dict[str, Any]:
        """Return {"fields", "overlays"} of a sample."""
        decoder = self._decoder
        with decoder.pack.record(row, decoder.stored) as read:
            record = decoder.completed(row, read)
            values = _values(decoder, row, record)
            fields = [self._field(row, field, record, values) for field in decoder.schema]
            return {"fields": fields, "overlays": self._overlays(values)}

    def overlays(self, row: int) -> dict[str, Any]:
        """Return {"size", "overlays"} of a sample: height and width of its first image, and all shapes."""
        decoder = self._drawn
        with decoder.pack.record(row, decoder.stored) as read:
            record = decoder.completed(row, read)
            sizes = [list(decoder.stored_image(row, name, record[name]).shape[:2]) for name in decoder.images]
            return {"size": sizes[0] if sizes else None, "overlays": self._overlays(_values(decoder, row, record))}

    def _field(self, row: int, field: Field, record: Record, values: dict[str, Any]) -> dict[str, Any]:
        name = field.name
        size, value = None, None
        if field.kind in PIXEL_KINDS:
            size = list(self._decoder.stored_image(row, name, record[name]).shape[:2])
        elif field.kind == "json":
            value = bytes(record[name][:_MOST_CHARACTERS]).decode("utf-8", "replace")
        elif name in values:
            value = _plain(values[name])
        return {
            "name": name,
            "kind": field.kind,
            "crc32": f"{self._decoder.pack.index.crc32(row, name):08x}",
            "bytes": len(record[name]) if name in record else np.asarray(values[name], field.dtype).nbytes,
            "size": size,
            "value": value,
            "labels": self._labels(name, values) if name in self._forms else None,
        }

    def _labels(self, name: str, values: dict[str, Any]) -> list[str] | None:
        """Return the class names of the shapes of a field, None if no field contains their classes."""
        field = _labels_of(self._decoder.schema, name)
        if field is None or field.classes is None:
            return None
        numbers = values[field.name][:_MOST_SHAPES].tolist()
        return [field.classes[at] if 0 <= at < len(field.classes) else str(at) for at in numbers]

    def _overlays(self, values: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"boxes": [], "points": [], "grasps": [], "outlines": [], "cut": {}}
        for name, (form, rank) in self._forms.items():
            field = self._decoder.schema[name]
            starts = self._decoder.schema.starts_of(name)
            shapes = corners(form, values[name], values[starts.name] if starts is not None else None)
            if len(shapes) > _MOST_SHAPES:
                found["cut"][name] = len(shapes)
            shift = 0.0 if form == "boxes" or field.edges else 0.5
            lists = [_corner_list(shape + shift) for shape in shapes[:_MOST_SHAPES]]
            if form == "points":
                points = [each[0] if each is not None else None for each in lists]
                found["points"].append({"field": name, "rank": rank, "points": points})
                continue
            labels = self._labels(name, values)
            for at, each in enumerate(lists):
                item: dict[str, Any] = {"field": name, "rank": rank}
                if form == "boxes":
                    item["box"] = [*each[0], *each[2]] if each is not None else None
                    item["label"] = labels[at] if labels is not None and at < len(labels) else None
                else:
                    item["corners" if form == "grasps" else "points"] = each
                found[form].append(item)
        return found


def _values(decoder: SampleDecoder, row: int, record: Record) -> dict[str, Any]:
    """Return the decoded values of a sample that are not pixels, JSON or bytes."""
    return {
        field.name: decoder.decode(row, field, record[field.name])
        if field.name in record
        else decoder.indexed(row, field)
        for field in decoder.schema
        if field.kind not in (*PIXEL_KINDS, "json", "bytes")
    }


def _labels_of(schema: Schema, name: str) -> Field | None:
    """Return the field that contains the classes of the rows of a field."""
    return next((field for field in schema if field.of == name and field.kind == "number" and field.classes), None)


def _corner_list(shape: npt.NDArray[Any]) -> list[list[float]] | None:
    if not np.isfinite(shape).all():
        return None
    points: list[list[float]] = np.round(shape.astype(np.float64), 2).tolist()
    return points


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in value.tolist()] if value.size <= _MOST_NUMBERS else None
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and abs(value) > _EXACT:
        return str(value)
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else value
