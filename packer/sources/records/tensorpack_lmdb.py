"""Tensorpack LMDB: datapoints of a dataflow with numbers as keys, as tensorpack's LMDBSerializer writes them.

Fields: key (the number), and one field for each component that `features` names. The name of a component is its
position (0, 1 ...), or its key if datapoints are dicts. Without `features`, packer parses a few records, and each
component that all of them contain becomes a field. Components are image files, pixels, texts, numbers and arrays of
numbers. The values are read without `pickle` (packer.layouts.serialized).

Layout: the key is the number in 8 decimal digits. The value is a list of components, serialized by pickle, MessagePack
with msgpack-numpy, or pyarrow.serialize (TENSORPACK_SERIALIZE). `__keys__` is serialized in the same way. `__len__` is
absent.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.images import file_suffixes
from packer.layouts import serialized
from packer.layouts.json_text import json_value
from packer.schema import Field
from packer.sources import base
from packer.sources._field_names import FieldNames
from packer.sources._message_texts import listed, shown
from packer.sources._name_words import has_labels
from packer.sources.records._lmdb_source import LMDBSource
from packer.sources.records._record_fields import RecordField, are_gray, decoded, in_order, kind_of_bytes
from packer.system.exact_casts import cast_exactly

SPECIFICITY = -1
PIXEL_ORDERS = ("bgr", "rgb")
_COLOR, _DIMENSIONS = 3, 8
_NUMBER_TYPES = (bool, int, float, np.generic, np.ndarray)


class Source(LMDBSource):
    """An LMDB of tensorpack, or a folder of LMDBs."""

    kind = "tensorpack-lmdb"
    title = "LMDB of tensorpack's datapoints"
    entry_noun = "component"

    def __init__(
        self,
        root: Path,
        *,
        features: Sequence[str] = (),
        pixel_order: str = "bgr",
        named_splits: bool = False,
        follow_links: bool = False,
    ) -> None:
        """Find all records.

        Args:
            root: An LMDB, or a folder of LMDBs.
            features: The fields, each FIELD=COMPONENT or FIELD=COMPONENT:KIND.
            pixel_order: The order of channels in arrays of pixels, `bgr` or `rgb`.
            named_splits: True adds the field split. False: file names of several splits raise InvalidRequest.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.

        Raises:
            InvalidRequest: No LMDB has this layout, or no record has a component of `features`.
            BadInput: The LMDB is damaged.
            MissingPackage: pyarrow is needed and absent.
        """
        base.check_choice("pixel_order", pixel_order, PIXEL_ORDERS)
        self._is_bgr = pixel_order == "bgr"
        self._list(root, features=features, named_splits=named_splits, follow_links=follow_links)

    @classmethod
    def parse(cls, value: bytes) -> dict[str, Any]:
        found = serialized.loads(value)
        if isinstance(found, (list, tuple)):
            return {str(place): component for place, component in enumerate(found)}
        if isinstance(found, dict) and all(isinstance(name, (str, bytes)) for name in found):
            return {name if isinstance(name, str) else name.decode("latin-1"): part for name, part in found.items()}
        raise BadInput(f"expected a list of components, found {type(found).__name__}")

    def choose_fields(self) -> Sequence[Field]:
        self._pixel_fields: set[str] = set()
        fields = super().choose_fields()
        self.decodes = bool(self._pixel_fields)
        if self.decodes:
            order = "blue, green, red" if self._is_bgr else "red, green, blue"
            self.notes.append(f"arrays of pixels, taken as {order}: stored as PNG; --pixel-order changes it")
        return fields

    def guess(self, found: Mapping[str, Sequence[Any]], count: int) -> Sequence[RecordField]:
        """Return a field per component of all parsed records. The only image is named image, the only integer label."""
        kinds = {name: _kind_of(name, values[0]) for name, values in found.items() if len(values) == count}
        if not kinds:
            raise InvalidRequest(f"{shown(str(self.root))}: the records have no component that can be packed")
        if absent := found.keys() - kinds.keys():
            self.notes.append(
                f"components skipped, because not every record has them: {listed(sorted(absent))}; --feature takes some"
            )
        images = [name for name, kind in kinds.items() if kind == "image"]
        whole = [name for name, kind in kinds.items() if kind == "number" and _is_whole(found[name][0])]
        usual = {group[0]: called for group, called in ((images, "image"), (whole, "label")) if len(group) == 1}
        names = FieldNames(usual.values())
        return in_order([RecordField(usual.get(name) or names.of_entry(name), (name,)) for name in kinds])

    def typed(self, field: RecordField, values: Sequence[Any]) -> RecordField:
        name = field.entries[0]
        called = "" if field.name == "image" else name  # a field that the user names image is not a mask
        kinds = {field.kind} if field.kind else {_kind_of(called, value) for value in values}
        if len(kinds) > 1:
            raise InvalidRequest(
                f"component {name!r} is {' or '.join(sorted(map(str, kinds)))}: declare it with --feature"
            )
        field = replace(field, kind=kinds.pop())
        if field.kind in ("number", "numbers"):
            return _typed_numbers(field, values)
        if field.kind in ("image", "mask") and any(
            isinstance(value, np.ndarray) and value.ndim > 1 for value in values
        ):
            self._pixel_fields.add(field.name)
        return field

    def images(self, values: Sequence[Any]) -> Sequence[Any]:
        files = [value if _bytes(value) is None else _bytes(value) for value in values]
        return [value for value in files if isinstance(value, (bytes, np.ndarray))]

    def value_of(self, field: RecordField, entries: Mapping[str, Any]) -> Any:
        name = field.entries[0]
        if name not in entries:
            raise BadInput(f"component {name!r} is not there; there are: {listed(entries)}")
        try:
            return self._value(field, entries[name])
        except BadInput as error:
            raise BadInput(f"component {name!r}: {error.message}") from error

    def _value(self, field: RecordField, value: Any) -> Any:
        if field.kind in ("number", "numbers"):
            return _numbers(value, field)
        if field.kind == "json":
            return _plain(value)
        if field.kind in ("image", "mask", "depth") and isinstance(value, np.ndarray) and value.ndim > 1:
            return self._pixels(field, value)
        if field.kind == "text" and isinstance(value, str):
            return value
        data = _bytes(value)
        if data is None:
            raise BadInput(f"expected {field.kind}, found {_described(value)}")
        return decoded(field, data)

    def _pixels(self, field: RecordField, value: "np.ndarray[Any, Any]") -> Any:
        array = value[:, :, 0] if value.ndim == _COLOR and value.shape[2] == 1 else value
        is_gray = array.ndim == _COLOR - 1
        if field.kind == "image" and array.dtype == np.uint8 and array.ndim == _COLOR and array.shape[2] == _COLOR:
            return np.ascontiguousarray(array[:, :, ::-1] if self._is_bgr else array)
        if field.kind == "image" and array.dtype == np.uint8 and is_gray:
            return np.ascontiguousarray(np.repeat(array[:, :, None], _COLOR, axis=2))
        if field.kind == "mask" and array.dtype.name in ("uint8", field.dtype) and is_gray:
            return array
        raise BadInput(f"expected the pixels of a {field.kind}, found {_described(value)}")


def _kind_of(name: str, value: Any) -> str:
    data = _bytes(value)
    if data is not None and (isinstance(value, bytes) or file_suffixes(data)):
        return kind_of_bytes([data], name)
    if isinstance(value, np.ndarray) and value.ndim > 1 and value.dtype == np.uint8:
        if are_gray([value]) and has_labels(name):
            return "mask"
        return "image" if _is_image(value) else "numbers"
    if isinstance(value, np.ndarray) and value.ndim > 0:
        return "numbers"
    if isinstance(value, _NUMBER_TYPES):
        return "number"
    return "text" if isinstance(value, str) else "json"


def _is_image(array: "np.ndarray[Any, Any]") -> bool:
    return array.ndim == _COLOR - 1 or (array.ndim == _COLOR and array.shape[2] in (1, _COLOR))


def _typed_numbers(field: RecordField, values: Sequence[Any]) -> RecordField:
    """Return the field with the dtype and the number of dimensions of `values`."""
    arrays = [np.asarray(value) for value in values if isinstance(value, _NUMBER_TYPES)]
    arrays = [array for array in arrays if array.dtype.kind in "biuf"]
    if not arrays:
        raise InvalidRequest(f"option features: {field.shown()}: the records that were parsed contain no numbers there")
    dtype = np.result_type(*{array.dtype for array in arrays})
    if field.kind == "number":
        return replace(field, dtype="int64" if dtype.kind in "biu" else dtype.name)
    (dimensions, *more) = {array.ndim for array in arrays}
    if more or not 0 < dimensions <= _DIMENSIONS:
        raise InvalidRequest(f"option features: {field.shown()}: arrays of several numbers of dimensions, or of none")
    return replace(field, dtype=dtype.name, dimensions=dimensions)


def _numbers(value: Any, field: RecordField) -> Any:
    """Convert numbers to the dtype of the field. Raise BadInput if a number or the dimensions would change."""
    dimensions = field.dimensions if field.kind == "numbers" else 0
    if not isinstance(value, _NUMBER_TYPES) or np.ndim(value) != dimensions:
        raise BadInput(f"expected {field.dtype} of {dimensions} dimensions, found {_described(value)}")
    try:
        found = cast_exactly(value, str(field.dtype))
    except InvalidRequest as error:
        raise BadInput(error.message) from error
    return found if dimensions else found[()]


def _plain(value: Any) -> Any:
    """Convert a value to types of JSON."""
    if not _are_keys_texts(value):
        raise BadInput("a dict with keys that are not texts, which JSON does not have")
    try:
        return json_value(json.dumps(value), finite=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"JSON does not have this: {error}") from error


def _are_keys_texts(value: Any) -> bool:
    """Return whether all dict keys in a value are texts, because `json` would convert other keys to texts."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _are_keys_texts(inner) for key, inner in value.items())
    return not isinstance(value, (list, tuple)) or all(map(_are_keys_texts, value))


def _bytes(value: Any) -> bytes | None:
    """Return the bytes of a bytes object or a 1-D uint8 array, or None for any other value."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1:
        return value.tobytes()
    return value if isinstance(value, bytes) else None


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _described(value: Any) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype} {value.shape}"
    return type(value).__name__
