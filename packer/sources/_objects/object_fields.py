"""Object fields: which field each entry of a sample becomes, as the user says it or as a few samples suggest.

A sample is a dict (its entries have names), a tuple or a list (they have places), or one value. Places say nothing of
what stands in them, so that the user names each: `fields={"image": "image", "label": "number"}` for (picture, class).
Each value has to be of its field's kind, so that a picture and a class in each other's place are refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.schema import DTYPES, KEY, KINDS, PIXEL_KINDS, ROW_KINDS, Field, Shape
from packer.sources._field_names import FieldNames
from packer.sources._name_words import DEPTHS, IMAGES, has_labels, words
from packer.sources._objects import object_values
from packer.sources._objects.object_class import said
from packer.sources._objects.object_values import Axes, as_array, is_picture_object, is_undecoded, listed_numbers
from packer.sources._parse.folder_listing import listed, shown
from packer.sources._records.record_fields import kind_of_bytes

FieldsAsked = Mapping[str, str | Field] | Sequence[str] | None
_OWN = (KEY, "files", "orientation", "matrix", "source_size")  # fields that packer makes
_WIDE_MASK = "mask:uint16"  # as in sidecars and features
_LEAST_SIDE = 8  # of an array that is taken for a picture unasked
_MOST_COLUMN = 16  # numbers of a sample that are kept in the index
_SHOWN = 3


@dataclass(frozen=True)
class ObjectField:
    """One field of the samples. entry: what a sample calls it: a name, a place, or None for the sample itself.

    take: the value as a source gives it, of one that a sample holds; raises BadInput.
    """

    field: Field
    entry: str | int | None
    take: Callable[[Any], Any]

    def of(self, sample: Any) -> Any:
        """The field's value of a sample; raises BadInput."""
        try:
            return self.take(entry_of(sample, self.entry))
        except BadInput as error:
            raise BadInput(f"field {self.field.name!r}: {error.message}") from error

    def is_rounded(self, sample: Any) -> bool:
        """Whether the field's value of a sample is a place that its dtype does not hold exactly."""
        if self.field.kind not in ("boxes", "points"):
            return False
        with suppress(BadInput):  # told when the sample is packed
            array = _array(entry_of(sample, self.entry))
            return object_values.is_rounded(array, self.field) and not np.array_equal(
                array, self.of(sample).astype(array.dtype).reshape(array.shape), equal_nan=True
            )
        return False


def entry_of(sample: Any, entry: str | int | None) -> Any:
    """What a sample holds there; raises BadInput where it holds nothing."""
    if entry is None:
        return sample
    is_there = entry in sample if isinstance(entry, str) and isinstance(sample, Mapping) else _has_place(sample, entry)
    if not is_there:
        raise BadInput(f"the sample has no {entry!r}: it is {described(sample)}")
    return sample[entry]


def described(sample: object) -> str:
    """A sample for messages: a dict with its names, a tuple with what it holds."""
    if isinstance(sample, Mapping):
        return f"a dict of {listed([str(name) for name in sample])}"
    if isinstance(sample, list | tuple):
        return f"({', '.join(_said_value(value) for value in sample)})"
    return _said_value(sample)


def fields_of(
    samples: Sequence[Any],
    asked: FieldsAsked,
    *,
    declared: Mapping[str, Field],
    axes: Axes,
    without: str | None = None,
) -> list[ObjectField]:
    """The fields of some samples, in order.

    asked: name -> kind or Field; names alone for those of a dict to take; None for all of a dict. declared: what the
    library that the samples come from says of a name, where the user does not. without: the entry that is the key.
    Raises InvalidRequest for what cannot be told or does not fit.
    """
    first = samples[0]
    wanted = _named(first, asked)
    if wanted is None:
        names = [name for name in _names_of(samples) if name != without]
        taken = FieldNames(_OWN)
        wanted = [(_free_name(name, taken), name, None) for name in names]
    fields = []
    for own, entry, kind in wanted:
        by_library = declared.get(entry) if isinstance(entry, str) else None
        said_of_it = kind if kind is not None or by_library is None else replace(by_library, name=own)
        fields.append(_field(own, entry, said_of_it, samples, axes))
    if not fields:
        raise InvalidRequest(f"the samples have no field to pack: sample 0 is {described(first)}")
    return fields


_Wanted = tuple[str, str | int | None, str | Field | None]


def _named(first: Any, asked: FieldsAsked) -> list[_Wanted] | None:
    """Field name, entry and kind of each, as the user says it; None where all of a dict are taken."""
    is_tuple, is_dict = isinstance(first, list | tuple), isinstance(first, Mapping)
    if isinstance(asked, Mapping):
        if is_dict:
            return [(_name_of(kind, name), name, kind) for name, kind in asked.items()]
        entries: list[str | int | None] = [*range(len(first))] if is_tuple else [None]
        if len(asked) != len(entries):
            raise InvalidRequest(
                f"fields has {len(asked)} names, a sample {len(entries)} values: {described(first)}; name each of them"
            )
        return [(_name_of(kind, name), at, kind) for at, (name, kind) in zip(entries, asked.items(), strict=True)]
    if is_dict:
        return None if asked is None else [(name, name, None) for name in asked]
    if is_tuple:
        raise InvalidRequest(
            f"sample 0 is {described(first)}, whose places have no names: say what they are, such as "
            'fields={"image": "image", "label": "number"}'
        )
    if asked is not None and len(asked) != 1:
        raise InvalidRequest(f"fields has {len(asked)} names, sample 0 is one value: {described(first)}")
    if asked is None and not _is_picture(first):
        raise InvalidRequest(
            f'sample 0 is one value without a name: {described(first)}; say what it is: fields={{"x": "number"}}'
        )
    return [(asked[0] if asked else "image", None, None)]


def _is_picture(value: Any) -> bool:
    return _guessed("image", [value]) in PIXEL_KINDS


def _name_of(kind: str | Field, name: str) -> str:
    return kind.name if isinstance(kind, Field) else name


def _names_of(samples: Iterable[Any]) -> list[str]:
    """The names of all samples, in the order of the first; raises InvalidRequest where they have others."""
    names: list[str] | None = None
    for number, sample in enumerate(samples):
        there = list(sample) if isinstance(sample, Mapping) else None
        if there is None or not all(isinstance(name, str) for name in there):
            raise InvalidRequest(f"a sample is {described(sample)}, expected a dict with names as sample 0")
        if names is not None and set(there) != set(names):
            other = sorted(set(there) ^ set(names))
            raise InvalidRequest(
                f"samples have different names: {listed(other)} of sample {number} of those looked at, or of the "
                "first, alone; take those that all have: fields=[...]"
            )
        names = names or there
    return names or []


def _free_name(name: str, taken: FieldNames) -> str:
    """The name itself where it can be a field's."""
    try:
        Field(name, "bytes", "encoded")
    except InvalidRequest:
        return taken.of_entry(name)
    return taken.of_entry(name, name)


def _has_place(sample: Any, entry: str | int) -> bool:
    return isinstance(entry, int) and isinstance(sample, list | tuple) and entry < len(sample)


def _field(
    name: str, entry: str | int | None, said_of_it: str | Field | None, samples: Sequence[Any], axes: Axes
) -> ObjectField:
    """The field of one entry; raises InvalidRequest, BadInput."""
    try:
        values = [entry_of(sample, entry) for sample in samples]
        if isinstance(said_of_it, Field):
            field = said_of_it
        else:
            field = _settled(name, said_of_it or _guessed(name, values), values, axes)
    except BadInput as error:
        raise InvalidRequest(f"field {name!r}: {error.message}") from error
    if field.name in _OWN:
        raise InvalidRequest(f"field {field.name!r} is packer's own; choose another name for it")
    return ObjectField(field, entry, _taker(field, axes))


def _taker(field: Field, axes: Axes) -> Callable[[Any], Any]:
    if field.kind in PIXEL_KINDS:
        return partial(object_values.picture, kind=field.kind, axes=axes, is_wide=field.is_wide_mask)
    if field.kind in ROW_KINDS:
        return partial(object_values.numbers, field=field)
    takers: dict[str, Callable[[Any], Any]] = {
        "text": object_values.text,
        "json": object_values.json_value,
        "bytes": object_values.kept_bytes,
    }
    return takers[field.kind]


# ---- the kind, where nobody said it


def _guessed(name: str, values: Sequence[Any]) -> str:
    """The kind of some values of one name; raises InvalidRequest where it cannot be told."""
    if any(value is None for value in values):
        raise InvalidRequest(
            f"field {name!r} is None in some samples, which no kind but json holds; fill it, leave it out with "
            "fields=, or say json"
        )
    kinds = {_kind_of(name, value) for value in values}
    if kinds == {"bytes"}:
        found = kind_of_bytes([object_values.kept_bytes(value) for value in values], name)
        return "bytes" if found == "text" else found
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {"number", "json"}:  # lists, some of them of different lengths
        return "json"
    raise InvalidRequest(
        f"field {name!r} is of several kinds ({', '.join(sorted(kinds))}) in the samples looked at, such as "
        f"{', '.join(dict.fromkeys(_said_value(value) for value in values[:_SHOWN]))}; say its kind with fields="
    )


def _kind_of(name: str, value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview) or is_undecoded(value):
        return "bytes"
    if isinstance(value, str):
        return "text"
    if is_picture_object(value):
        return (
            "depth"
            if value.mode in object_values.DEEP_MODES
            else "mask"
            if has_labels(name) and value.mode in ("L", "P", "1")
            else "image"
        )
    array = as_array(value)
    if array is not None:
        return _kind_of_array(name, array)
    if listed_numbers(value) is not None:
        return "number"
    if isinstance(value, Mapping | list | tuple):
        return "json"
    raise InvalidRequest(
        f"field {name!r} holds {said(value)}, which no kind holds ({', '.join(KINDS)}); leave it out with fields=, or "
        "have the data set give something else"
    )


def _kind_of_array(name: str, array: npt.NDArray[Any]) -> str:
    """Pictures are told by their shape and dtype; raises InvalidRequest for pixels that were scaled."""
    sides = [length for length in array.shape if length not in (1, 3)]
    colours = array.ndim == 3 and (array.shape[0] in (1, 3) or array.shape[2] in (1, 3))
    may_be = (array.ndim == 2 or colours) and len(sides) == 2 and min(sides) >= _LEAST_SIDE
    said_of_it = set(words(name))
    if not may_be or array.dtype.kind not in "uif":
        return "number"
    if has_labels(name) and array.ndim * len(sides) and array.size == sides[0] * sides[1] and array.dtype.kind in "ui":
        return "mask"
    if DEPTHS & said_of_it and array.dtype.name != "uint8":
        return "depth"
    if array.dtype == np.uint8:
        return "image"
    if array.dtype.kind == "f" and (colours or said_of_it & IMAGES):
        raise InvalidRequest(
            f"field {name!r} holds {array.dtype} {array.shape}: ToTensor and Normalize scale pixels to floats; take "
            f"them out of the data set's transform and give uint8 (training scales them again), or say what it is: "
            f'fields={{"{name}": "number"}}, or "depth" for distances'
        )
    return "number"


# ---- the field, once its kind is known


def _settled(name: str, kind: str, values: Sequence[Any], axes: Axes) -> Field:
    """The field of some values of a kind; raises InvalidRequest, BadInput."""
    is_wide = kind == _WIDE_MASK
    if is_wide:
        kind = "mask"
    if kind not in KINDS:
        raise InvalidRequest(
            f"field {name!r}: unknown kind {kind!r:.80}; expected one of {', '.join(KINDS)}, or a Field"
        )
    if kind in PIXEL_KINDS:
        take = partial(object_values.picture, kind=kind, axes=axes, is_wide=is_wide)
        return _picture_field(name, kind, _sound(take, values), is_wide=is_wide)
    if kind == "boxes":
        return Field(name, kind, "raw", dtype="float32", shape=(None, 4))
    if kind == "points":
        places = _sound(_array, values)
        ranks = {array.ndim for array in places if array.size} or {2}
        if len(ranks) != 1 or any(array.shape[-1] != 2 for array in places if array.size):
            raise InvalidRequest(f"field {name!r}: {_shapes(places)} are no points: expected (..., 2), x and y of each")
        inner = _common([array.shape for array in places if array.size], ranks.pop())
        return Field(name, kind, "raw", dtype="float32", shape=(None, *inner[1:-1], 2))
    if kind == "number":
        return _number_field(name, values)
    return Field(name, kind, "encoded" if kind == "bytes" else kind)


def _picture_field(name: str, kind: str, values: Sequence[Any], *, is_wide: bool) -> Field:
    """Files are kept; pixels become PNG, or .npy where they are a depth."""
    arrays = [value for value in values if not isinstance(value, bytes)]
    if len(arrays) != len(values):
        return Field(name, kind, "encoded", dtype="uint16" if is_wide else None)
    dtypes = sorted({array.dtype.name for array in arrays})
    if len(dtypes) > 1:
        raise InvalidRequest(f"field {name!r} holds {' and '.join(dtypes)}; a field has one dtype: make them alike")
    shape: Shape = (None, None, 3) if kind == "image" else (None, None)
    return Field(name, kind, "npy" if kind == "depth" else "png", dtype=dtypes[0], shape=shape)


def _sound(take: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """What is made of those values that are sound; raises the BadInput of the first where none is."""
    made, refused = [], []
    for value in values:
        try:
            made.append(take(value))
        except BadInput as error:  # told when the sample is packed
            refused.append(error)
    if not made:
        raise refused[0]
    return made


def _array(value: Any) -> npt.NDArray[Any]:
    array = as_array(value)
    array = array if array is not None else listed_numbers(value)
    if array is None:
        raise BadInput(f"{said(value)} is no number: {value!r:.60}")
    return array


def _number_field(name: str, values: Sequence[Any]) -> Field:
    """One number, an array of one shape, or one whose lengths differ between samples; lists may be of any length."""
    arrays = _sound(_array, values)
    ranks = {array.ndim for array in arrays if array.size or array.ndim == 1} or {arrays[0].ndim}
    ranks = ranks - {1} if len(ranks) > 1 and not any(array.size for array in arrays if array.ndim == 1) else ranks
    if len(ranks) != 1:
        raise InvalidRequest(f"field {name!r}: {_shapes(arrays)}: a field has one number of axes; make them alike")
    filled = [array for array in arrays if array.size] or arrays
    dtype = np.result_type(*(array.dtype for array in filled)).name
    if dtype not in DTYPES:
        raise InvalidRequest(f"field {name!r} holds {dtype}; expected one of {', '.join(DTYPES)}")
    rank = ranks.pop()
    if rank == 0:
        is_label = name == "label" and np.dtype(dtype).kind in "iu"
        return Field(name, "number", "number", dtype="int64" if is_label else dtype, shape=())
    shape = _common([array.shape for array in arrays if array.ndim == rank], rank)
    is_list = any(isinstance(value, list | tuple) for value in values)
    if is_list:
        shape = (None, *shape[1:])
    if None not in shape and np.prod([length or 0 for length in shape]) <= _MOST_COLUMN:
        return Field(name, "number", "number", dtype=dtype, shape=shape)
    open_shape = shape if None in shape else (None, *shape[1:])
    return Field(name, "number", f"raw:{dtype}", dtype=dtype, shape=open_shape)


def _common(shapes: Sequence[tuple[int, ...]], rank: int) -> Shape:
    """Lengths that all shapes have; None where they differ."""
    lengths = zip_longest(*shapes) if shapes else [(None,)] * rank
    return tuple(each[0] if len(set(each)) == 1 else None for each in lengths)


def _shapes(arrays: Sequence[npt.NDArray[Any]]) -> str:
    return " and ".join(dict.fromkeys(str(array.shape) for array in arrays))


def _said_value(value: object) -> str:
    try:
        array = as_array(value)
    except BadInput:
        array = None
    if array is not None and array.ndim:
        return f"{said(value)} of {array.dtype} {array.shape}"
    return f"{said(value)} {shown(repr(value))}" if isinstance(value, int | float) else said(value)
