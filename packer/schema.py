"""Schema: the fields of a sample, with the kind, dtype, shape and codec of each field.

| kind   | decoded value                                                                               |
|--------|---------------------------------------------------------------------------------------------|
| image  | uint8 (H, W, 3), RGB, 0-255                                                                 |
| depth  | (H, W), dtype as stored (float32, float16, uint16); `invalid` marks pixels without a depth  |
| mask   | uint8 (H, W): class indices, or 0 and 255; int32 if stored as uint16, for example object ids |
| points | float32 (..., 2): x, y in source pixels; (0, 0) is the center of the first pixel, or its    |
|        | upper left corner if `edges` is true                                                        |
| boxes  | float32 (N, 4): x0, y0, x1, y1 in source pixels; a full image has 0, 0, width, height       |
| number | a scalar or an array, in the index if its shape is fixed; geometries scale only `box_areas` |
| text   | str                                                                                         |
| json   | a value that `json` can encode                                                              |
| bytes  | bytes, kept verbatim                                                                        |

A field may name a related field, with `of`, `starts` or `into` (see `Field`). `convert` checks that the lengths of
related fields agree. If the schema does not contain the named field, the relation is ignored. By convention:

| field                                  | kind, dtype, shape                   | relation                          |
|----------------------------------------|--------------------------------------|-----------------------------------|
| boxes                                  | boxes float32 (None, 4)              |                                   |
| box_labels, with the names as classes  | number int64 (None,)                 | of boxes                          |
| box_crowd, box_difficult, ...          | number uint8 (None,)                 | of boxes                          |
| box_areas, in square source pixels     | number float (None,)                 | of boxes                          |
| polygons                               | points float32 (None, 2), edges      |                                   |
| polygon_starts                         | number int64 (None,)                 | starts polygons                   |
| polygon_box                            | number int64 (None,)                 | of polygon_starts, into boxes     |
| keypoints                              | points float32 (None, K, 2)          | of boxes                          |
| keypoint_visibility                    | number uint8 (None, K)               | of boxes                          |
| oriented_boxes                         | points float32 (None, 4, 2), edges   | of boxes                          |
"""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from dataclasses import field as member
from functools import cached_property
from typing import Any, NamedTuple

from packer.errors import InvalidRequest, UnknownKey

KINDS = ("image", "depth", "mask", "points", "boxes", "number", "text", "json", "bytes")
PIXEL_KINDS = ("image", "depth", "mask")
MASK_DTYPES = ("uint8", "uint16")  # stored dtypes of a mask
ROW_KINDS = ("points", "boxes", "number")  # kinds whose values may consist of rows
DTYPES = (
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "bool"),
)
KEY = "key"  # the field that names a sample
MOST_FIELDS = 10_000
USUAL_PIXELS = 100_000_000  # default limit of one image
MOST_PIXELS = 1_000_000_000  # largest limit, near the limit of OpenCV
_MOST_LENGTHS = 8
_MOST_VALUES = 1 << 40  # numbers in a value of a fixed shape; products of lengths fit into 64 bits
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")

Value = Any  # decoded value of a kind; see the table above
Shape = tuple[int | None, ...]
Buffer = bytes | bytearray | memoryview  # encoded value
FixedArray = tuple[str, tuple[int, ...]]  # NumPy name of a dtype, and a shape without None


def parse_codec(text: str) -> tuple[str, str | None]:
    """Return `(name, argument)`: `("raw", "float16")` for `raw:float16`, and `("png", None)` for `png`."""
    name, _, argument = text.partition(":")
    return name, argument or None


class StoredForm(NamedTuple):
    """Byte layout of the encoded values of a field. The codec sets the layout, and formats use it.

    Attributes:
        array: `(dtype, shape)` if each value is a little-endian array in C order without a header, otherwise None.
        suffixes: function that returns the possible file suffixes of an encoded value, the most common suffix first.
            An empty tuple shows that the value is not the content of a file.
        list_dtype: NumPy dtype name if each value is a little-endian 1-D array of any length, otherwise None.
    """

    array: FixedArray | None
    suffixes: Callable[[Buffer], tuple[str, ...]]
    list_dtype: str | None = None


@dataclass(frozen=True)
class Field:
    """Description of one named value of each sample. Rows are the first axis of a value.

    Attributes:
        kind: One of `KINDS`; the table of the module lists the decoded value of each kind.
        codec: Name and optional argument of the codec: `encoded`, `jpeg:95`, `raw:float16`.
        dtype: NumPy dtype name of the decoded value; None if the encoded bytes contain the dtype.
        shape: Shape of the decoded value. A None inside the tuple is a length that differs between samples. If
            `shape` itself is None, the encoded bytes contain the shape.
        classes: Class names of a number or mask: value 3 means `classes[3]`. For points, names along the second axis.
        invalid: Value of a depth pixel without a measurement; None if no value is special.
        hidden: True if a Dataset returns the field only when the user requests it by name, False if it always does.
        max_pixels: Most pixels of one decoded image; None for `USUAL_PIXELS`.
        slot: Name of the field in records of another tool, such as `image` or `label`; None if the tool has no name.
        of: Name of a field with equally many rows. Row i of this field describes row i of that field. `box_labels`
            has `of="boxes"`.
        starts: Name of a field whose rows form consecutive groups. Value i is the row at which group i starts; value
            0 is 0. `polygon_starts` has `starts="polygons"`, whose rows are the points of all polygons.
        into: Name of a field. Each value is a row number of that field. `polygon_box` has `into="boxes"`: value i is
            the row of the box of polygon i.
        edges: True if points use the coordinates of boxes, where (0, 0) is the corner of the first pixel. False if
            (0, 0) is the center of the first pixel.
    """

    name: str
    kind: str
    codec: str
    dtype: str | None = None
    shape: Shape | None = None
    classes: tuple[str, ...] | None = None
    invalid: float | None = None
    hidden: bool = False
    max_pixels: int | None = None
    slot: str | None = None
    of: str | None = None
    starts: str | None = None
    into: str | None = None
    edges: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidRequest(
                f"field name {self.name!r:.80}: expected a letter, then at most 63 letters, digits or '_'; rename it"
            )
        if self.kind not in KINDS:
            raise InvalidRequest(
                f"field {self.name!r}: unknown kind {self.kind!r:.80}; expected one of {', '.join(KINDS)}"
            )
        if self.dtype is not None and self.dtype not in DTYPES:
            raise InvalidRequest(
                f"field {self.name!r}: unknown dtype {self.dtype!r:.80}; expected one of {', '.join(DTYPES)}"
            )
        if self.invalid is not None and not abs(self.invalid) <= sys.float_info.max:
            raise InvalidRequest(f"field {self.name!r}: invalid is {self.invalid}, expected a finite number or none")
        if self.max_pixels is not None and not 1 <= self.max_pixels <= MOST_PIXELS:
            raise InvalidRequest(f"field {self.name!r}: max_pixels is {self.max_pixels}, expected 1 to {MOST_PIXELS}")
        if self.slot is not None and not _NAME.fullmatch(self.slot):
            raise InvalidRequest(f"field {self.name!r}: slot {self.slot!r:.80}: expected a name such as image")
        if self.shape is not None and not _is_shape(self.shape):
            raise InvalidRequest(
                f"field {self.name!r}: bad shape {self.shape!r:.80}; expected at most 8 lengths, each >= 0"
            )
        if self.edges and self.kind != "points":
            raise InvalidRequest(f"field {self.name!r}: edges is for points, not for kind {self.kind}")
        for relation, other in self.relations:
            if not _NAME.fullmatch(other) or other == self.name:
                raise InvalidRequest(
                    f"field {self.name!r}: {relation} {other!r:.80}: expected the name of another field"
                )
        if self.of is not None and not self.has_rows:
            raise InvalidRequest(
                f"field {self.name!r}: of {self.of!r}: a field whose rows belong to another's needs a shape whose "
                f"first length is None, found {self.shape}"
            )
        if (self.starts or self.into) is not None and not self._counts_rows:
            raise InvalidRequest(
                f"field {self.name!r}: {'starts' if self.starts else 'into'} {self.starts or self.into!r}: row numbers "
                f"are a number of shape (None,) and a whole dtype, found {self.kind} {self.dtype} {self.shape}"
            )

    @property
    def codec_name(self) -> str:
        """Name of the codec: `jpeg` for `jpeg:95`."""
        return parse_codec(self.codec)[0]

    @property
    def codec_argument(self) -> str | None:
        """Argument of the codec: `95` for `jpeg:95`, None for `jpeg`."""
        return parse_codec(self.codec)[1]

    @property
    def pixel_limit(self) -> int:
        """Most pixels that one decoded image may have: `max_pixels`, or the default."""
        return USUAL_PIXELS if self.max_pixels is None else self.max_pixels

    @property
    def is_wide_mask(self) -> bool:
        """True if the values of a mask are stored as uint16."""
        return self.kind == "mask" and (self.codec_argument or self.dtype) == "uint16"

    @property
    def pixel_dtype(self) -> str:
        """NumPy dtype name of an image, depth or mask in a sample.

        The dtype of a depth is float32. The dtype of a 16-bit mask is int32, because torch supports few operations on
        uint16. Otherwise, the dtype is uint8.
        """
        if self.kind == "depth":
            return "float32"
        return "int32" if self.is_wide_mask else "uint8"

    @property
    def has_rows(self) -> bool:
        """True if the number of rows differs between samples: the first length of the shape is None."""
        if self.shape is None:
            return self.kind == "boxes"
        return self.kind in ROW_KINDS and bool(self.shape) and self.shape[0] is None

    @property
    def is_area(self) -> bool:
        """True if the field contains areas in square pixels, which a geometry scales. Its name must be `box_areas`."""
        return (self.name, self.kind) == ("box_areas", "number") and self.has_rows and "float" in (self.dtype or "")

    @property
    def moves(self) -> bool:
        """True if a geometry changes the coordinates or areas in the field."""
        return self.kind in ("points", "boxes") or self.is_area

    @property
    def is_row_column(self) -> bool:
        """True if the field has one number for each row of another field. The index contains these numbers."""
        return self.kind == "number" and self.shape == (None,) and self.of is not None and self.into is None

    @property
    def _counts_rows(self) -> bool:
        dtype = self.codec_argument or self.dtype or ""
        return self.kind == "number" and self.shape == (None,) and dtype.startswith(("int", "uint"))

    @property
    def relations(self) -> tuple[tuple[str, str], ...]:
        """Pairs `(relation, name of the related field)`; a relation is `of`, `starts` or `into`."""
        found = (("of", self.of), ("starts", self.starts), ("into", self.into))
        return tuple((relation, name) for relation, name in found if name is not None)

    @property
    def is_column(self) -> bool:
        """True if the index of the pack contains the field as one array over all samples."""
        return self.kind == "number" and self.dtype is not None and self.shape is not None and None not in self.shape

    def to_json(self) -> dict[str, Any]:
        """Return name, kind, codec, and each attribute that differs from the default, for the manifest."""
        given = {name: value for name, value in vars(self).items() if value != _DEFAULTS[name]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Field":
        """Return the field that `to_json` describes. Unknown attributes or wrong types raise InvalidRequest."""
        if not isinstance(data, Mapping):
            raise InvalidRequest(f"field description is not a mapping: {data!r:.80}")
        for name, value in data.items():
            if type(value) not in _MEMBERS.get(name, ()):  # type(), since true is an int
                raise InvalidRequest(
                    f"field description has an unknown or ill-typed member {name!r:.80}: {value!r:.80}"
                )
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        if not all(isinstance(name, str) for name in given.get("classes", ())):
            raise InvalidRequest("field description has classes that are not text")
        try:
            return cls(**given)
        except TypeError as error:
            raise InvalidRequest(f"field description lacks name, kind or codec: {data!r:.80}") from error


_DEFAULTS = {each.name: each.default for each in fields(Field)}
_MEMBERS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "kind": (str,),
    "codec": (str,),
    "dtype": (str,),
    "shape": (list,),
    "classes": (list,),
    "invalid": (int, float),
    "hidden": (bool,),
    "max_pixels": (int,),
    "slot": (str,),
    "of": (str,),
    "starts": (str,),
    "into": (str,),
    "edges": (bool,),
}


def _is_shape(shape: Shape) -> bool:
    known = [length for length in shape if length is not None]
    if len(shape) > _MOST_LENGTHS or not all(type(length) is int and length >= 0 for length in known):
        return False
    return math.prod(max(length, 1) for length in known) <= _MOST_VALUES


MATRIX = Field("matrix", "number", "number", "float64", (2, 3), hidden=True)  # original to stored pixels


def check_field_count(count: int) -> None:
    """Raise InvalidRequest if `count` is more than `MOST_FIELDS`."""
    if count > MOST_FIELDS:
        raise InvalidRequest(f"{count} fields, expected at most {MOST_FIELDS}; choose some with --fields or --feature")


@dataclass(frozen=True)
class Schema:
    """Ordered fields of a pack. Duplicate names or more than 10,000 fields raise InvalidRequest.

    Attributes:
        fields: Fields in order.
        form_of: Function that returns the byte layout of a field. `packer.codecs.described` sets this function, because
            formats cannot import codecs. Comparisons and `to_json` ignore this attribute.
    """

    fields: tuple[Field, ...]
    form_of: Callable[[Field], StoredForm] | None = member(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_field_count(len(self.fields))
        names = self.names
        if len(set(names)) != len(names):
            raise InvalidRequest(f"field names are not unique: {', '.join(names):.200}")
        slots = [field.slot for field in self.fields if field.slot is not None]
        if len(set(slots)) != len(slots):
            raise InvalidRequest(f"two fields have one slot: {', '.join(slots):.200}")
        started = [field.starts for field in self.fields if field.starts is not None]
        if len(set(started)) != len(started):
            raise InvalidRequest(f"two fields contain the starts of one field: {', '.join(started):.200}")
        for field in self.fields:
            if field.name == KEY and (field.kind, field.codec) != ("text", "text"):  # the index contains keys as text
                raise InvalidRequest(
                    f"field 'key' has kind {field.kind!r} and codec {field.codec!r:.80}, expected text"
                )
        for field, relation, name in self.relations:
            self._check_relation(field, relation, self[name])

    def _check_relation(self, field: Field, relation: str, other: Field) -> None:
        """Raise InvalidRequest if `other` has no rows, or if both fields have an `of` relation."""
        if not other.has_rows:
            raise InvalidRequest(
                f"field {field.name!r}: {relation} {other.name!r}, whose shape is {other.shape}: expected rows, a "
                "shape whose first length is None"
            )
        if relation == "of" and other.of is not None:
            raise InvalidRequest(
                f"field {field.name!r}: of {other.name!r}, which is of {other.of!r} itself: use of {other.of!r}"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Field names, in order."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def relations(self) -> tuple[tuple[Field, str, str], ...]:
        """Tuples `(field, relation, name of the related field)`, without relations to fields outside the schema."""
        return tuple((field, *found) for field in self.fields for found in field.relations if found[1] in self)

    def __getstate__(self) -> dict[str, Any]:
        return {"fields": self.fields, "form_of": self.form_of}  # without cached properties

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {field.name: at for at, field in enumerate(self.fields)}

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Field:
        at = self._places.get(name)
        if at is not None:
            return self.fields[at]
        raise UnknownKey(f"no field {name!r}; there are: {', '.join(self.names):.1000}")

    def in_slot(self, slot: str) -> Field | None:
        """Return the field whose `slot` is `slot`, or None if no field has this slot."""
        return next((field for field in self.fields if field.slot == slot), None)

    def starts_of(self, name: str) -> Field | None:
        """Return the field whose `starts` is `name`, or None if the rows of field `name` form no groups."""
        return next((field for field in self.fields if field.starts == name), None)

    def select(self, names: Sequence[str]) -> "Schema":
        """Return a schema of the named fields, in the order of `names`. An unknown name raises UnknownKey."""
        return Schema(tuple(self[name] for name in names), self.form_of)

    def stored_form(self, name: str) -> StoredForm:
        """Return the byte layout of field `name`. If the schema has no `form_of`, raise InvalidRequest."""
        if self.form_of is None:
            raise InvalidRequest(
                f"field {name!r}: its codec was not asked; formats take packer.codecs.described(schema)"
            )
        if name not in self._forms:  # some formats call this for each value
            self._forms[name] = self.form_of(self[name])
        return self._forms[name]

    @cached_property
    def _forms(self) -> dict[str, StoredForm]:
        return {}

    def to_json(self) -> list[dict[str, Any]]:
        """Return the list of `Field.to_json()` of all fields."""
        return [field.to_json() for field in self.fields]

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]]) -> "Schema":
        """Return the schema that `to_json` describes. An invalid description raises InvalidRequest."""
        check_field_count(len(data))  # before each field of a hostile manifest is parsed
        return cls(tuple(Field.from_json(item) for item in data))
