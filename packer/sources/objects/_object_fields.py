"""Object fields: the field for each entry of a sample, declared by the user or guessed from a few samples.

A sample is a dict (its entries have names), a tuple or a list (its entries have positions), or one value. Positions
have no meaning, so the user names each entry: `fields={"image": "image", "label": "number"}`.
A value whose kind is not the kind of its field is an error. This finds swapped entries, such as a class in place of an
image.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.schema import DTYPES, KEY, KINDS, PIXEL_KINDS, ROW_KINDS, Field
from packer.sources._field_names import FieldNames
from packer.sources._message_texts import counted, listed, shown
from packer.sources._name_words import DEPTHS, IMAGES, has_labels, words
from packer.sources.objects._isinstance_without_import import type_name
from packer.sources.objects._object_values import (
    DEEP_MODES,
    Axes,
    as_array,
    field_value,
    file_bytes,
    is_pil_image,
    is_undecoded,
    number_array,
    sound_values,
)
from packer.sources.records._record_fields import kind_of_bytes

FieldsRequest = Mapping[str, str | Field] | Sequence[str] | None
Entry = str | int | None  # a name, a position, or None for the sample itself
_OWN = (KEY, "files", "orientation", "matrix", "source_size")  # fields that packer adds
_WIDE_MASK = "mask:uint16"
_LEAST_SIDE = 8  # smaller arrays without a stated kind are not images
_MOST_COLUMN = 16  # larger arrays are not stored in the index


class ObjectField(NamedTuple):
    """A field, and the name or position of the entry in a sample that contains its value."""

    field: Field
    entry: Entry

    def value_in(self, sample: Any, axes: Axes) -> Any:
        """Return the value of the field in a sample. Raise BadInput if the value has another kind."""
        try:
            return field_value(entry_of(sample, self.entry), self.field, axes)
        except BadInput as error:
            raise BadInput(f"field {self.field.name!r}: {error.message}") from error


def values_in(sample: Any, fields: Iterable[ObjectField], axes: Axes, *, name: str) -> dict[str, Any]:
    """Return field name -> value for a sample. The message of a BadInput begins with `name`, the name of the sample."""
    try:
        return {each.field.name: each.value_in(sample, axes) for each in fields}
    except (BadInput, InvalidRequest, OSError) as error:
        raise BadInput(f"{name}: {error if isinstance(error, OSError) else error.message}") from error


def entry_of(sample: Any, entry: Entry) -> Any:
    """Return an entry of a sample. Raise BadInput if the sample does not contain the entry."""
    if entry is None:
        return sample
    if isinstance(entry, str):
        has_entry = isinstance(sample, Mapping) and entry in sample
    else:
        has_entry = isinstance(sample, list | tuple) and entry < len(sample)
    if not has_entry:
        raise BadInput(f"the sample does not have {entry!r}: it is {described(sample)}")
    return sample[entry]


def described(sample: object) -> str:
    """Return a description for messages: the names in a dict, the values of a tuple, or the type of another object."""
    if isinstance(sample, Mapping):
        return f"a dict of {listed(str(name) for name in sample)}"
    if isinstance(sample, list | tuple):
        return f"({', '.join(described(value) if np.isscalar(value) else type_name(value) for value in sample)})"
    return f"{type_name(sample)} {shown(repr(sample))}" if isinstance(sample, int | float) else type_name(sample)


def fields_of(
    samples: Sequence[Any], request: FieldsRequest, *, declared: Mapping[str, Field], axes: Axes, key_entry: str | None
) -> list[ObjectField]:
    """Return the fields of a Python object, in order. `samples` are its first samples.

    Args:
        samples: The samples to inspect. The first sample determines whether entries have names.
        request: A dict of name -> kind or Field, or names of entries of a dict. None for all entries of a dict.
        declared: Fields that the library of the object declares, by entry name. The kinds of `request` precede them.
        axes: The order of the axes of images that are arrays.
        key_entry: The entry with the key, or None. It becomes a field only if `request` contains it.

    Raises:
        InvalidRequest: A kind is ambiguous, or a value does not have the stated kind.
    """
    fields = []
    for name, entry, kind in _choices(samples, request, key_entry):
        if kind is None and isinstance(entry, str) and entry in declared:
            kind = replace(declared[entry], name=name)
        try:
            values = [entry_of(sample, entry) for sample in samples]
            field = kind if isinstance(kind, Field) else _field(name, kind or _kind_of(name, values), values, axes)
        except BadInput as error:
            raise InvalidRequest(f"field {name!r}: {error.message}") from error
        if field.name in _OWN:
            raise InvalidRequest(f"field {field.name!r} is packer's own; choose another name for it")
        fields.append(ObjectField(field, entry))
    if not fields:
        raise InvalidRequest(f"the samples have no field to pack: sample 0 is {described(samples[0])}")
    return fields


def _choices(
    samples: Sequence[Any], request: FieldsRequest, key_entry: str | None
) -> list[tuple[str, Entry, str | Field | None]]:
    """Return name, entry and stated kind (None without one) of each field."""
    first = samples[0]
    if request is None and isinstance(first, Mapping):
        names = FieldNames(_OWN)
        return [(_free_name(name, names), name, None) for name in _common_names(samples) if name != key_entry]
    if request is None and not isinstance(first, list | tuple) and _is_image(first):
        request = ["image"]
    entries: list[Entry] = [None]
    if isinstance(first, Mapping):
        entries = list(request or ())
    elif isinstance(first, list | tuple):
        entries = list(range(len(first)))
    has_kinds = isinstance(request, Mapping) or not isinstance(first, list | tuple)
    if request is None or not has_kinds or len(request) != len(entries):
        raise InvalidRequest(
            f"sample 0 is {described(first)}: state name and kind of its {counted(len(entries), 'value')}, such as "
            'fields={"image": "image", "label": "number"}'
        )
    kinds: Iterable[tuple[str, str | Field | None]] = (
        request.items() if isinstance(request, Mapping) else [(name, None) for name in request]
    )
    return [
        (kind.name if isinstance(kind, Field) else name, entry, kind)
        for entry, (name, kind) in zip(entries, kinds, strict=True)
    ]


def _common_names(samples: Sequence[Any]) -> list[str]:
    """Return the entry names, in the order of the first sample. InvalidRequest if a sample has other names."""
    for number, sample in enumerate(samples):
        if not isinstance(sample, Mapping) or not all(isinstance(name, str) for name in sample):
            raise InvalidRequest(f"a sample is {described(sample)}, expected a dict with names as sample 0")
        if sample.keys() != samples[0].keys():
            other = sorted(sample.keys() ^ samples[0].keys())
            raise InvalidRequest(
                f"samples have different names: only sample {number} of the first samples, or only sample 0, has "
                f"{listed(other)}; select names that all samples have: fields=[...]"
            )
    return list(samples[0])


def _free_name(name: str, names: FieldNames) -> str:
    try:
        Field(name, "bytes", "encoded")
    except InvalidRequest:
        return names.of_entry(name)
    return names.of_entry(name, name)


# ---- kind that neither the user nor the library states


def _kind_of(name: str, values: Sequence[Any]) -> str:
    """Return the kind of the values of one entry. Raise BadInput if they have several kinds."""
    kinds = {_kind_of_value(name, value) for value in values}
    if kinds == {"bytes"}:
        found = kind_of_bytes([file_bytes(value) or b"" for value in values], name)
        return "bytes" if found == "text" else found
    if kinds == {"number", "json"}:  # lists, some of them of different lengths
        return "json"
    if len(kinds) > 1:
        raise BadInput(f"values of several kinds ({', '.join(sorted(kinds))}); state one with fields=")
    return kinds.pop()


def _kind_of_value(name: str, value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview) or is_undecoded(value):
        return "bytes"
    if isinstance(value, str):
        return "text"
    if is_pil_image(value):
        is_mask = has_labels(name) and value.mode in ("L", "P", "1")
        return "depth" if value.mode in DEEP_MODES else "mask" if is_mask else "image"
    array = as_array(value)
    if array is not None:
        return _kind_of_array(name, array)
    if number_array(value) is not None:
        return "number"
    if isinstance(value, Mapping | list | tuple):
        return "json"
    raise BadInput(
        f"values of {type_name(value)}, which has no kind of its own; leave the field out with fields=, state its kind "
        f"({', '.join(KINDS)}), or let the data set return another type"
    )


def _kind_of_array(name: str, array: npt.NDArray[Any]) -> str:
    sides = [length for length in array.shape if length not in (1, 3)]
    has_channels = array.ndim == 3 and (array.shape[0] in (1, 3) or array.shape[2] in (1, 3))
    if not (array.ndim == 2 or has_channels) or len(sides) != 2 or min(sides) < _LEAST_SIDE:
        return "number"
    kind = array.dtype.kind
    if kind in "ui" and has_labels(name) and array.size == sides[0] * sides[1]:
        return "mask"
    if kind in "uif" and DEPTHS & set(words(name)) and array.dtype != np.uint8:
        return "depth"
    is_scaled = kind == "f" and (has_channels or bool(IMAGES & set(words(name))))
    return "image" if array.dtype == np.uint8 or is_scaled else "number"  # reading a scaled image is an error


def _is_image(value: Any) -> bool:
    try:
        return _kind_of("image", [value]) in PIXEL_KINDS
    except BadInput:
        return False


# ---- field of a known kind


def _field(name: str, kind: str, values: Sequence[Any], axes: Axes) -> Field:
    if kind not in (*KINDS, _WIDE_MASK):
        raise BadInput(f"unknown kind {kind!r:.80}; expected one of {', '.join(KINDS)}, {_WIDE_MASK}, or a Field")
    kind, _, dtype = kind.partition(":")
    if kind in PIXEL_KINDS:
        return _image_field(Field(name, kind, "encoded", dtype=dtype or None), values, axes)
    if kind == "boxes":
        return Field(name, kind, "raw", dtype="float32", shape=(None, 4))
    if kind in ROW_KINDS:
        return _number_field(name, kind, values)
    return Field(name, kind, "encoded" if kind == "bytes" else kind)


def _image_field(field: Field, values: Sequence[Any], axes: Axes) -> Field:
    """Return `field` with its codec: files are stored unchanged, pixels as PNG, and depth pixels as .npy."""
    sound = sound_values(partial(field_value, field=field, axes=axes), values)
    if any(isinstance(value, bytes) for value in sound):
        return field
    dtypes = sorted({value.dtype.name for value in sound})
    if len(dtypes) > 1:
        raise BadInput(f"values of {' and '.join(dtypes)}; a field has one dtype: make them equal")
    shape = (None, None, 3) if field.kind == "image" else (None, None)
    return replace(field, codec="npy" if field.kind == "depth" else "png", dtype=dtypes[0], shape=shape)


def _number_field(name: str, kind: str, values: Sequence[Any]) -> Field:
    """Return a field of numbers or points. None in its shape is an axis of varying length, or the first of lists."""
    arrays = sound_values(_array, values)
    filled = [array for array in arrays if array.size] or arrays
    dtype = np.result_type(*(array.dtype for array in filled)).name
    rank = filled[0].ndim
    is_refused = any(array.ndim != rank for array in filled) or dtype not in DTYPES
    if kind == "points":
        is_refused |= any(array.size and (rank < 2 or array.shape[-1] != 2) for array in filled)
    if is_refused:
        expected = "(..., 2), x and y of each point" if kind == "points" else "one dtype and one number of axes"
        shapes = " and ".join(dict.fromkeys(str(array.shape) for array in filled))
        raise BadInput(f"{dtype} {shapes}: expected {expected}")
    if rank == 0:
        is_label = name == "label" and np.dtype(dtype).kind in "iu"
        return Field(name, "number", "number", dtype="int64" if is_label else dtype, shape=())
    lengths = zip_longest(*(array.shape for array in arrays if array.ndim == rank))
    first, *others = (each[0] if len(set(each)) == 1 else None for each in lengths)
    if kind == "points":
        return Field(name, kind, "raw", dtype="float32", shape=(None, *others[:-1], 2))
    if any(isinstance(value, list | tuple) for value in values):
        first = None
    if None not in (first, *others) and np.prod([length or 0 for length in (first, *others)]) <= _MOST_COLUMN:
        return Field(name, "number", "number", dtype=dtype, shape=(first, *others))
    is_open = None in (first, *others)
    return Field(name, "number", f"raw:{dtype}", dtype=dtype, shape=(first if is_open else None, *others))


def _array(value: Any) -> npt.NDArray[Any]:
    array = number_array(value)
    if array is None:
        raise BadInput(f"{type_name(value)} is not a number: {value!r:.60}")
    return array
