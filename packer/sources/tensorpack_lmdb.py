"""Tensorpack LMDB: datapoints of a dataflow under numbers, as tensorpack's LMDBSerializer writes them.

Fields: key (the number), and one for each component that `features` names by its place (0, 1 ...), or by its name where
datapoints are dicts, else for every component that a few records have in common: pictures in files and pixels, texts,
numbers and arrays of them. The values are read without `pickle` (packer.layouts.serialized).
Layout: key = the number in 8 decimal digits; value = a list of components by pickle, by MessagePack with msgpack-numpy,
or by pyarrow.serialize, as TENSORPACK_SERIALIZE said; `__keys__` alike besides, and no `__len__`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.images import file_suffixes
from packer.layouts import serialized
from packer.layouts.json_text import json_value
from packer.schema import Field, check_field_count
from packer.sources import base
from packer.sources._field_names import FieldNames
from packer.sources._name_words import has_labels
from packer.sources._parse.folder_listing import listed, shown
from packer.sources._records.numbered_lmdb import NumberedLMDB
from packer.sources._records.record_fields import (
    PhotoSizes,
    RecordField,
    decoded,
    first_photos,
    in_order,
    is_gray_beside,
    kind_of_bytes,
    parse_fields,
    shows_labels,
)

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
PIXEL_ORDERS = ("bgr", "rgb")
_COLOUR, _DIMENSIONS = 3, 8
_NUMBERS = "biuf"


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(NumberedLMDB):
    """One LMDB of tensorpack, or a folder of them."""

    kind = "tensorpack-lmdb"
    layout = "tensorpack's datapoints"

    def __init__(
        self,
        root: Path,
        *,
        features: Sequence[str] = (),
        pixel_order: str = "bgr",
        layout: str = "auto",
        follow_links: bool = False,
    ) -> None:
        """Find every record.

        Raises InvalidRequest where there is no such LMDB and for a component that no record has, BadInput for a damaged
        one, and for what git-lfs left, MissingPackage where pyarrow is needed and absent.
        """
        asked = parse_fields(features)
        base.check_choice("pixel_order", pixel_order, PIXEL_ORDERS)
        self._is_bgr = pixel_order == "bgr"
        self._list_numbered(root, follow_links=follow_links, layout=layout)
        self._components = self._settled_fields(asked)
        self._fields = [field for field, _ in self._components]
        self._settle([made for _, made in self._components], self._others)
        said = ",".join(field.shown() for field, _ in self._components)
        how = "as asked" if asked else "guessed from a few records; --features says it otherwise"
        self.notes.append(f"--features {shell_word(said)} ({how})")
        if self.decodes:
            order = "blue, green, red" if self._is_bgr else "red, green, blue"
            self.notes.append(
                f"arrays that are pictures, taken as {order}: stored as PNG; --pixel-order says otherwise"
            )

    @classmethod
    def _check_record(cls, key: bytes, value: bytes) -> None:
        if not key.isdigit():
            raise BadInput("the key is no number")
        _components(value)

    def _settled_fields(self, asked: Sequence[RecordField]) -> list[tuple[RecordField, Field]]:
        found: dict[str, list[Any]] = {}
        looked, damaged = 0, ""
        for _, record in self._probes():
            try:
                components = _components(record)
            except BadInput as error:
                damaged = error.message
                continue
            looked += 1
            for name, value in components.items():
                found.setdefault(name, []).append(value)
            if not asked:
                check_field_count(len(found))
        if not looked:
            raise BadInput(f"{shown(str(self.root))}: no record can be read: {damaged}; get the file again")
        for field in asked:
            if field.entries[0] not in found:
                raise InvalidRequest(
                    f"option features: no component {field.entries[0]!r} in the records looked at; there are: "
                    f"{listed(found)}"
                )
        self._known = None if asked else set(found)
        first, photos = _first_photos(found)
        whole = {name: _kind_of(name, each[0], photos) for name, each in found.items() if len(each) == looked}
        fields = list(asked) or _guessed(whole, found)
        if not fields:
            raise InvalidRequest(f"{shown(str(self.root))}: the records have no component that can be packed")
        if not asked and (left := found.keys() - whole.keys()):
            self.notes.append(
                f"components left out, since not every record has them: {listed(sorted(left))}; --features takes some"
            )
        settled = []
        for field in fields:
            values = found[field.entries[0]]
            kinds = {field.kind} if field.kind else {_kind_of(field.entries[0], value, photos) for value in values}
            if "image" in kinds | {field.name}:
                kinds -= {"mask"}  # gray of few values, here and there, or what the user calls an image
                kinds = kinds or {"image"}
            if len(kinds) > 1:
                raise InvalidRequest(
                    f"component {field.entries[0]!r} is {' or '.join(sorted(kinds))}: say which in --features, or "
                    "leave it out"
                )
            settled.append(_settled(replace(field, kind=kinds.pop()), values))
        self._gray = [
            made
            for given, (made, _) in zip(fields, settled, strict=True)
            if given.kind is None and made.kind == "image" and photos and made.entries[0] != first
            if all(map(_is_gray, found[made.entries[0]]))
        ]
        self.decodes = any(_is_pixels(field, found[field.entries[0]]) for field, _ in settled)
        return settled

    def _values(self, index: int, record: bytes) -> base.Sample:
        try:
            components = _components(record)
            values = {field.name: self._value(field, made, components) for field, made in self._components}
        except BadInput as error:
            raise BadInput(f"{self.where(index)}: {error.message}") from error
        if self._known is not None and (unknown := components.keys() - self._known):
            values[base.UNTAKEN] = list(unknown)
        return values

    def _value(self, field: RecordField, made: Field, components: Mapping[str, Any]) -> Any:
        """The field of one record; raises BadInput where it does not hold it so."""
        name = field.entries[0]
        if name not in components:
            raise BadInput(f"component {name!r} is not there; there are: {listed(components)}")
        value = components[name]
        if field.kind in ("number", "numbers"):
            return _numbers(name, value, made)
        if field.kind == "json":
            if not _are_keys_texts(value):
                raise BadInput(f"component {name!r}: a dict with keys that are no texts, which JSON has none of")
            try:
                return json_value(json.dumps(value), finite=False)
            except (TypeError, ValueError) as error:
                raise BadInput(f"component {name!r} is nothing that JSON holds: {error}") from error
        if field.kind in ("image", "mask", "depth") and isinstance(value, np.ndarray) and value.ndim > 1:
            return self._pixels(name, field, value)
        if field.kind == "text" and isinstance(value, str):
            return value
        data = _bytes(value)
        if data is None:
            raise BadInput(f"component {name!r}: expected {field.kind}, found {_described(value)}")
        return decoded(field, data)

    def _pixels(self, name: str, field: RecordField, value: "np.ndarray[Any, Any]") -> Any:
        """Pixels as the schema has them; raises BadInput."""
        kind = field.kind
        array = value[:, :, 0] if value.ndim == _COLOUR and value.shape[2] == 1 else value
        if kind == "image" and array.dtype == np.uint8 and array.ndim == _COLOUR and array.shape[2] == _COLOUR:
            return np.ascontiguousarray(array[:, :, ::-1] if self._is_bgr else array)
        if kind == "image" and array.dtype == np.uint8 and array.ndim == _COLOUR - 1:
            return np.ascontiguousarray(np.repeat(array[:, :, None], _COLOUR, axis=2))
        if kind == "mask" and array.dtype.name in ("uint8", field.dtype) and array.ndim == _COLOUR - 1:
            return array
        raise BadInput(f"component {name!r}: expected the pixels of a {kind}, found {_described(value)}")


def _components(value: bytes) -> dict[str, Any]:
    """The components of a datapoint, by place or name; raises BadInput."""
    found = serialized.loads(value)
    if isinstance(found, (list, tuple)):
        return {str(place): component for place, component in enumerate(found)}
    if isinstance(found, dict) and all(isinstance(name, (str, bytes)) for name in found):
        return {name if isinstance(name, str) else name.decode("latin-1"): part for name, part in found.items()}
    raise BadInput(f"expected a list of components, found {type(found).__name__}")


def _guessed(kinds: Mapping[str, str], found: Mapping[str, list[Any]]) -> list[RecordField]:
    """A field for each component: the only picture is image, the only whole number label."""
    pictures = [name for name, kind in kinds.items() if kind == "image"]
    whole = [name for name, kind in kinds.items() if kind == "number" and _is_whole(found[name][0])]
    usual = {group[0]: called for group, called in ((pictures, "image"), (whole, "label")) if len(group) == 1}
    names = FieldNames(usual.values())
    return in_order([RecordField(usual.get(name) or names.of_entry(name), (name,)) for name in kinds])


def _first_photos(found: Mapping[str, list[Any]]) -> tuple[str, PhotoSizes]:
    """The first component whose values are photos, arrays or files, and (height, width) of these; "" for none."""
    for name, values in found.items():
        is_photo = all(isinstance(value, np.ndarray) and _is_gray(value) is not None for value in values)
        if is_photo and not all(_is_gray(value) and shows_labels(value) for value in values):
            return name, [value.shape[:2] for value in values]
    files = ([data for value in values if (data := _bytes(value)) is not None] for values in found.values())
    number, sizes = first_photos(files)
    return ("" if number < 0 else list(found)[number]), sizes


def _is_gray(value: Any) -> bool | None:
    """Whether a value is pixels or a picture file of one channel; None where it is no picture."""
    if isinstance(value, np.ndarray) and value.ndim > 1:
        is_colour = value.ndim == _COLOUR and value.shape[2] == _COLOUR
        is_gray = value.ndim == _COLOUR - 1 or (value.ndim == _COLOUR and value.shape[2] == 1)
        return is_gray if value.dtype == np.uint8 and (is_gray or is_colour) else None
    data = _bytes(value)
    return None if data is None else is_gray_beside([data], [(0, 0)]) or None


def _kind_of(name: str, value: Any, photos: PhotoSizes) -> str:
    data = _bytes(value)
    if data is not None and (isinstance(value, bytes) or file_suffixes(data)):
        return kind_of_bytes([data], name, photos)
    if isinstance(value, np.ndarray) and value.ndim > 0:
        is_gray = _is_gray(value)
        if is_gray and (has_labels(name) or (photos and shows_labels(value))):
            return "mask"
        return "numbers" if is_gray is None else "image"
    if isinstance(value, (bool, int, float, np.generic, np.ndarray)):
        return "number"
    return "text" if isinstance(value, str) else "json"


def _settled(field: RecordField, values: Sequence[Any]) -> tuple[RecordField, Field]:
    """The field as asked and as the schema has it; raises InvalidRequest."""
    if field.kind not in ("number", "numbers"):
        return field, field.field
    numbers = [value for value in values if isinstance(value, (bool, int, float, np.generic, np.ndarray))]
    arrays = [array for array in map(np.asarray, numbers) if array.dtype.kind in _NUMBERS]
    dtypes = {array.dtype for array in arrays}
    dtype = np.result_type(*dtypes) if dtypes else np.dtype("int64")
    dtype = np.dtype("int64") if dtype.kind == "b" and field.kind == "number" else dtype
    if not arrays:
        raise InvalidRequest(f"option features: {field.shown()}: the records looked at hold no numbers there")
    if field.kind == "number":
        dtype = np.dtype("int64") if dtype.kind in "iu" else dtype
        return field, Field(field.name, "number", "number", dtype=dtype.name, shape=())
    (dimensions, *more) = {array.ndim for array in arrays}
    if more or not 0 < dimensions <= _DIMENSIONS:
        raise InvalidRequest(f"option features: {field.shown()}: arrays of several numbers of dimensions, or of none")
    shape = (None,) * dimensions
    return field, Field(field.name, "number", f"raw:{dtype.name}", dtype=dtype.name, shape=shape)


def _numbers(name: str, value: Any, made: Field) -> Any:
    """A number or an array, in the dtype of the field; raises BadInput where it does not hold it exactly."""
    shape = made.shape or ()
    if not isinstance(value, (bool, int, float, np.generic, np.ndarray)):
        raise BadInput(f"component {name!r}: expected numbers, found {_described(value)}")
    try:
        array = np.asarray(value)
        found = array.astype(made.dtype)
        same = np.array_equal(found, array, equal_nan=array.dtype.kind == "f") and _come_back(found, array)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"component {name!r}: {error}") from error
    if array.ndim != len(shape) or not same:
        raise BadInput(
            f"component {name!r}: expected {made.dtype} of {len(shape)} dimensions, found {_described(value)}"
        )
    return found if shape else found[()]


def _are_keys_texts(value: Any) -> bool:
    """Whether all keys of a value's dicts are texts: `json` makes texts of numbers."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _are_keys_texts(inner) for key, inner in value.items())
    return not isinstance(value, (list, tuple)) or all(map(_are_keys_texts, value))


def _come_back(found: "np.ndarray[Any, Any]", array: "np.ndarray[Any, Any]") -> bool:
    """Whether whole numbers are the same ones as numbers of another type: NumPy compares them as floats."""
    if array.dtype.kind not in "iu":
        return True
    with np.errstate(invalid="ignore"):
        return np.array_equal(found.astype(array.dtype), array)


def _is_pixels(field: RecordField, values: Sequence[Any]) -> bool:
    """Whether the pictures of a field are arrays, some of them at least."""
    arrays = [value for value in values if isinstance(value, np.ndarray) and value.ndim > 1]
    return field.kind in ("image", "mask") and bool(arrays)


def _bytes(value: Any) -> bytes | None:
    """Bytes, and those of an array of one dimension; None for anything else."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1:
        return value.tobytes()
    return value if isinstance(value, bytes) else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _described(value: Any) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype} {value.shape}"
    return type(value).__name__
