"""Sample values: the values and shapes of one sample as plain JSON values, for the page.

The page draws shapes over the first image, as stored or as trained. Their coordinates are in px of this image, and
(0, 0) is the corner of its first pixel. A number that is not finite becomes null, and so does a shape that contains it.
"""

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.browse.sample_images import Training
from packer.formats.base import Record
from packer.geometry import View
from packer.inspect.palette import as_hex
from packer.inspect.tile import shape_corners, shape_forms
from packer.inspect.value_drawing import shape_colors
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import PIXEL_KINDS, Field, Schema

_MOST_SHAPES = 2000  # of one field
_MOST_NUMBERS = 20_000  # of one value
_MOST_CHARACTERS = 1 << 18
_EXACT = 1 << 53  # numbers of JavaScript are float64


class SampleValues:
    """Makes the values of the samples of a pack. Thread-safe. The methods raise CorruptRecord."""

    def __init__(self, decoder: SampleDecoder) -> None:
        self._decoder = decoder
        self._forms = shape_forms(decoder.schema)
        related = (starts for name in self._forms if (starts := decoder.schema.starts_of(name)) is not None)
        labels = (labels for name in self._forms if (labels := _labels_of(decoder.schema, name)) is not None)
        drawn = {*decoder.images[:1], *self._forms, *(field.name for field in (*related, *labels))}
        self._drawn = SampleDecoder(decoder.pack, [name for name in decoder.schema.names if name in drawn])

    def sample(self, row: int, training: Training | None = None) -> dict[str, Any]:
        """Return {"fields", "overlays"} of a sample. `training` moves shapes to px of the first image as trained."""
        decoder = self._decoder
        with decoder.pack.record(row, decoder.stored) as read:
            record = decoder.completed(row, read)
            view = training.views(decoder, row, record)[0] if training is not None else None
            values = _values(decoder, row, record, view)
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
            value = _indented(bytes(record[name][:_MOST_CHARACTERS]))
        elif name in values:
            value = _plain(values[name])
        return {
            "name": name,
            "kind": field.kind,
            "crc32": f"{self._decoder.pack.index.crc32(row, name):08x}",
            "bytes": len(record[name]) if name in record else np.asarray(values[name], field.dtype).nbytes,
            "size": size,
            "value": value,
        }

    def _labels(self, name: str, values: dict[str, Any]) -> list[str] | None:
        """Return the class names of the shapes of a field, None if no field contains their classes."""
        field = _labels_of(self._decoder.schema, name)
        if field is None or field.classes is None:
            return None
        numbers = values[field.name][:_MOST_SHAPES].tolist()
        return [field.classes[at] if 0 <= at < len(field.classes) else str(at) for at in numbers]

    def _overlays(self, values: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the shapes of each field, with the colors of `packer view -o`."""
        found = []
        for name, (form, rank) in self._forms.items():
            shapes = shape_corners(self._decoder.schema, name, values)
            found.append(
                {
                    "field": name,
                    "form": form,
                    "colors": [as_hex(color) for color in shape_colors(form, rank)],
                    "total": len(shapes),
                    "shapes": [_corner_list(shape) for shape in shapes[:_MOST_SHAPES]],
                    "labels": self._labels(name, values),
                }
            )
        return found


def _values(decoder: SampleDecoder, row: int, record: Record, view: View | None = None) -> dict[str, Any]:
    """Return the decoded values of all fields except pixels, JSON and bytes. `view` moves the shapes."""
    return {
        field.name: decoder.decode(row, field, record[field.name], view=view)
        if field.name in record
        else decoder.indexed(row, field)
        for field in decoder.schema
        if field.kind not in (*PIXEL_KINDS, "json", "bytes")
    }


def _labels_of(schema: Schema, name: str) -> Field | None:
    """Return the field that contains a class for each row of field `name`, or None."""
    return next((field for field in schema if field.of == name and field.kind == "number" and field.classes), None)


def _corner_list(shape: npt.NDArray[Any]) -> list[list[float]] | None:
    if not np.isfinite(shape).all():
        return None
    points: list[list[float]] = np.round(shape, 2).tolist()
    return points


def _indented(data: bytes) -> str:
    """Return a JSON text with one value per line. Text that is cut off or not valid does not change."""
    try:
        return json.dumps(json.loads(data), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")


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
