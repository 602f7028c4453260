"""TFRecord: a file of tf.train.Example per part, with its index. TensorFlow, vahidk's tfrecord and DALI read it.

Layout of `part-00000/` (see also `_foreign_part`):

| file              | content                                                                                         |
|-------------------|-------------------------------------------------------------------------------------------------|
| data.tfrecord     | frames (packer.layouts.tfrecord_frames) of Examples (packer.layouts.example), one feature per   |
|                   | field                                                                                           |
| data.tfrecord.idx | a line `offset length` for each record, as tfrecord2idx writes it                               |
| values.npz        | the places of values; whole numbers, which an Example contains as varints; hidden fields        |

A feature has the name of its field. The slot image is named `image/encoded`, the slot label `image/class/label`.
* Whole numbers of one shape (kind number), and int64 lists of any length, are an Int64List. A uint64 is stored as the
  int64 with the same bits.
* float32 numbers of one shape, and float32 lists of any length, are a FloatList.
* Any other value is a BytesList with one entry: the encoded value, unchanged.

Every record has every feature. Earlier versions of packer wrote lists of any length as bytes; such parts are readable.
"""

from collections.abc import Mapping

import numpy as np

from packer.errors import InvalidRequest
from packer.formats._foreign_part import IMAGE, LABEL, ForeignLayout, ForeignReader, ForeignWriter
from packer.layouts import example
from packer.layouts.tfrecord_frames import FRAME_BYTES, frame, index_line
from packer.schema import Schema

SUFFIX = ""
_DATA = "data.tfrecord"
_INDEX = "data.tfrecord.idx"
_CALLED = {"image": "image/encoded", "label": "image/class/label"}
_LISTS = ("int64", "float32")  # dtypes of lists that a feature holds
_VARINT_BYTES = 10
_FRAMING_BYTES = 64  # about, per record and per feature
_MOST_BYTES = (1 << 31) - (1 << 20)  # of one record: the limit of protobuf messages


def features(schema: Schema) -> dict[str, str]:
    """Return field name -> feature name. Hidden fields have no feature."""
    return {field.name: _CALLED.get(field.slot or "", field.name) for field in schema if not field.hidden}


def dtype_of(schema: Schema, name: str) -> np.dtype[np.generic] | None:
    """Return the dtype of the encoded numbers if the field's feature is a list of numbers. Return None for bytes."""
    form = schema.stored_form(name)
    if form.array is not None:
        dtype = np.dtype(form.array[0]).newbyteorder("<")
        is_whole = dtype.kind in "iub" and schema[name].kind == "number"
        return dtype if is_whole or dtype == np.dtype("<f4") else None
    is_list = form.list_dtype in _LISTS and schema[name].kind == "number"
    return np.dtype(form.list_dtype).newbyteorder("<") if is_list else None


def _held(schema: Schema) -> tuple[str, ...]:
    """Return all fields except hidden fields and fields of whole numbers."""
    dtypes = {name: dtype_of(schema, name) for name in features(schema)}
    return tuple(name for name, dtype in dtypes.items() if dtype is None or dtype.kind == "f")


def _held_before(schema: Schema) -> tuple[str, ...]:
    """Return the held fields of parts of earlier versions, which stored lists of whole numbers as bytes."""
    now = _held(schema)
    return tuple(name for name in features(schema) if name in now or schema.stored_form(name).array is None)


LAYOUT = ForeignLayout("TFRecord readers", _DATA, (_INDEX,), _held, held_before=_held_before)


class Writer(ForeignWriter):
    """Appends an Example for each record, and a line to the index."""

    layout = LAYOUT
    slots = (IMAGE, LABEL)

    @classmethod
    def part_bytes(cls, payload_bytes: int, values: int) -> int:
        return payload_bytes + values * _FRAMING_BYTES

    @classmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        return features(schema)

    @classmethod
    def notes(cls, schema: Schema) -> tuple[str, ...]:
        kept = [name for name in features(schema) if schema[name].kind == "number" and dtype_of(schema, name) is None]
        bare = f"{', '.join(kept)}: bytes in the layout of the codec raw, not a FloatList or Int64List"
        declared = (f"{called!r}: {_declaration(schema, name)}" for name, called in features(schema).items())
        return (
            *super().notes(schema),
            *([bare] if kept else []),
            f"for DALI (from nvidia.dali import tfrecord), any of these: features={{{', '.join(declared)}}}",
        )

    def _begin(self, payload_bytes: int) -> None:
        self._features = features(self.schema)
        self._dtypes = {name: dtype_of(self.schema, name) for name in self.schema.names}
        self._at = 0
        self._file, self._index = self._make(_DATA), self._make(_INDEX)

    def _check(self, values: Mapping[str, bytes]) -> None:
        size = sum(map(self._most_bytes, values, values.values()))
        if size > _MOST_BYTES:
            raise InvalidRequest(f"{self.path}: a record of {size:,} bytes, protobuf holds at most {_MOST_BYTES:,}")

    def _most_bytes(self, name: str, value: bytes) -> int:
        dtype = self._dtypes[name]
        return len(value) if dtype is None or dtype.kind == "f" else len(value) // dtype.itemsize * _VARINT_BYTES

    def _append(self, row: int, values: Mapping[str, bytes]) -> None:
        contents = {called: self._feature(name, values[name]) for name, called in self._features.items()}
        data, places = example.encoded(contents)
        head, tail = frame(data)
        self._file.writelines((head, data, tail))
        self._index.write(index_line(self._at, len(data)))
        start = self._at + len(head)
        self._place([(start + places[self._features[name]], len(values[name])) for name in self._held])
        self._at += len(data) + FRAME_BYTES

    def _feature(self, name: str, value: bytes) -> bytes | example.Numbers:
        dtype = self._dtypes[name]
        if dtype is None:
            return value
        numbers = np.frombuffer(value, dtype)
        return numbers.astype(np.float32) if dtype.kind == "f" else numbers.astype(np.int64)


def _declaration(schema: Schema, name: str) -> str:
    """Return the Python code that declares a feature for DALI's fn.readers.tfrecord."""
    dtype = dtype_of(schema, name)
    if dtype is None:
        return 'tfrecord.FixedLenFeature((), tfrecord.string, "")'
    array = schema.stored_form(name).array
    numbers = "tfrecord.float32, 0.0" if dtype.kind == "f" else "tfrecord.int64, 0"
    if array is None:
        return f"tfrecord.VarLenFeature({numbers})"
    return f"tfrecord.FixedLenFeature({list(array[1]) or [1]}, {numbers})"


class Reader(ForeignReader):
    """Returns slices of data.tfrecord and values.npz."""

    layout = LAYOUT
