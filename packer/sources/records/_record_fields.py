"""Record fields: the mapping from entries of a record to fields, declared by the user or guessed from the records.

The user types FIELD=ENTRY or FIELD=ENTRY:KIND, such as `image=image/encoded` or `mask=seg.png:mask`. `image=jpg;png`
names two entries. Each sample must contain one of them. An entry is a feature of a tf.train.Example, a suffix in a tar
file, or a component of a tensorpack datapoint.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.images import sniff
from packer.layouts.json_text import json_value
from packer.schema import MASK_DTYPES, MOST_PIXELS, Field
from packer.sources._field_names import RESERVED
from packer.sources._name_words import DEPTHS, IMAGES, has_labels, words

KINDS = ("image", "mask", "depth", "text", "json", "bytes", "number", "numbers")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_FORMS = {"png", "jpg", "jpeg", "webp", "bmp", "encoded", "bytes", "raw"}
_WIDE = ("uint16", "float32", "float64")
_COLOR = 3  # channels of a color image, and dimensions of its array


@dataclass(frozen=True)
class RecordField:
    """A field and the entries that contain its values.

    Attributes:
        name: The name of the field.
        entries: The names of the entries. Each record contains one of the entries.
        kind: One of `KINDS`. None: the kind is guessed from the records.
        dtype: The dtype of numbers, or uint16 for a 16-bit mask. None for other kinds and 8-bit masks.
        invalid: The depth value that means no measurement. None if every value is a measurement.
        dimensions: The number of dimensions of a value of kind `numbers`.
    """

    name: str
    entries: tuple[str, ...]
    kind: str | None = None
    dtype: str | None = None
    invalid: float | None = None
    dimensions: int = 1

    @classmethod
    def parse(cls, text: str, kinds: Sequence[str] = KINDS) -> "RecordField":
        """Parse FIELD=ENTRY or FIELD=ENTRY:KIND. Raise InvalidRequest for another syntax or a kind not in `kinds`."""
        name, equals, rest = text.partition("=")
        entry, colon, kind = rest.rpartition(":")
        invalid = dtype = None
        if colon and entry.endswith(":mask") and kind in MASK_DTYPES:
            dtype, entry, kind = kind, entry.removesuffix(":mask"), "mask"
        if colon and entry.endswith(":depth") and _NUMBER.fullmatch(kind):
            invalid, entry, kind = float(kind), entry.removesuffix(":depth"), "depth"
        if not colon or kind not in kinds:
            entry, kind = rest, ""
        entries = tuple(entry.split(";"))
        if not equals or not all(entries):
            raise InvalidRequest(
                f"option features: {text!r}: expected FIELD=FEATURE or FIELD=FEATURE:KIND, such as "
                f"image=image/encoded, depth=FEATURE:depth:0 if 0 means no measurement, mask=FEATURE:mask:uint16 for "
                f"16 bits; kinds are {', '.join(kinds)}"
            )
        if name in RESERVED:
            raise InvalidRequest(f"option features: {text!r}: the field {name!r} is packer's own; choose another name")
        return cls(name, entries, kind or None, dtype, invalid)

    def shown(self) -> str:
        """Return the field in the syntax of the option `features`."""
        kind = f":{self.kind}" if self.kind else ""
        dtype = f":{self.dtype}" if self.kind == "mask" and self.dtype else ""
        invalid = f":{self.invalid:g}" if self.invalid is not None else ""
        return f"{self.name}={';'.join(self.entries)}{kind}{dtype}{invalid}"

    @property
    def field(self) -> Field:
        """Return the field of the schema. Raise InvalidRequest if the name is not valid."""
        if self.kind == "number":
            return Field(self.name, "number", "number", dtype=self.dtype, shape=())
        if self.kind == "numbers":
            shape = (None,) * self.dimensions
            return Field(self.name, "number", f"raw:{self.dtype}", dtype=self.dtype, shape=shape)
        codec = self.kind if self.kind in ("text", "json") else "encoded"
        dtype = self.dtype if self.kind == "mask" else None
        return Field(self.name, self.kind or "bytes", codec, dtype=dtype, invalid=self.invalid)

    @property
    def is_named(self) -> bool:
        """Return whether a name states the kind: a field name for images, or an entry name for labels or depth."""
        return _is_image_name(self.name) or any(has_labels(each) or says_depth(each) for each in self.entries)


def typed_features(texts: Iterable[str]) -> str:
    """Return the options of the command line that declare these fields: `--feature image=jpg --feature label=cls`."""
    return " ".join(f"--feature {shell_word(text)}" for text in texts)


def parse_fields(texts: Sequence[str], kinds: Sequence[str] = KINDS) -> list[RecordField]:
    """Parse all items of the option `features`. Raise InvalidRequest for wrong syntax or a repeated field name."""
    found = [RecordField.parse(text, kinds) for text in texts]
    names = [field.name for field in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"option features: the field {twice[0]!r} comes twice; rename one")
    return found


def in_order(fields: Sequence[RecordField]) -> list[RecordField]:
    """Sort guessed fields: the field `image` first, then other names of images, then the remaining fields."""
    return sorted(fields, key=lambda field: (field.name != "image", not _is_image_name(field.name)))


def _is_image_name(name: str) -> bool:
    found = set(words(name)) - _FORMS
    return bool(found) and found <= IMAGES


# ---- kinds of values


class _ImageFacts(NamedTuple):
    """Properties of an image. `is_gray`: one channel or a palette. `is_wide`: one channel of 16 bits or floats."""

    is_gray: bool
    is_wide: bool
    is_npy: bool


def says_depth(entry: str) -> bool:
    """Return whether the entry name contains a word for depth."""
    return not DEPTHS.isdisjoint(words(entry))


def kind_of_bytes(values: Sequence[bytes], entry: str) -> str:
    """Return the kind of the values of one entry: `image`, `mask`, `depth`, `text` or `bytes`.

    Values are images if most of them have an image header. One-channel images whose entry name is a word for labels,
    such as `seg.png`, are `mask`, or `bytes` if they have 16 bits. Arrays (.npy) are `depth` only if the entry name is
    a word for depth, because boxes and embeddings can be arrays. `text` is UTF-8 without control characters.
    """
    images = _images(values)
    if images and len({each.is_wide for each in images}) == 1:
        if images[0].is_wide:
            is_depth = says_depth(entry) or not all(each.is_npy for each in images)
            return "depth" if is_depth and not has_labels(entry) else "bytes"
        return "mask" if has_labels(entry) and all(each.is_gray for each in images) else "image"
    return "text" if all(map(_is_text, values)) and any(values) else "bytes"


def are_gray(values: Sequence[Any]) -> bool:
    """Return whether most values are images, and all these images have one channel or a palette."""
    images = _images(values)
    return bool(images) and all(each.is_gray for each in images)


def are_images(values: Sequence[bytes]) -> bool:
    """Return whether most values have the header of a supported image format. True for an empty sequence."""
    return bool(_images(values)) or not values


def _images(values: Sequence[Any]) -> list[_ImageFacts]:
    """Return the properties of the values that are images. If most values are not images, return an empty list."""
    found = [each for each in map(_image, values) if each]
    return found if 2 * len(found) > len(values) else []


def _image(value: Any) -> _ImageFacts | None:
    """Return the properties of an image file or an array of pixels, or None for any other value."""
    if isinstance(value, np.ndarray):
        is_gray = value.ndim == _COLOR - 1 or (value.ndim == _COLOR and value.shape[2] == 1)
        is_image = is_gray or (value.ndim == _COLOR and value.shape[2] == _COLOR)
        return _ImageFacts(is_gray, is_wide=False, is_npy=False) if is_image and value.dtype == np.uint8 else None
    try:
        header = sniff(value, MOST_PIXELS)
    except (DamagedImage, TypeError):
        return None
    is_wide = header.channels == 1 and header.dtype in _WIDE
    return _ImageFacts(header.channels == 1 or header.palette, is_wide, header.format == "npy")


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\n\r\t" for character in text)


def decoded(field: RecordField, data: bytes) -> Any:
    """Return the value of an entry: a str for kind `text`, the parsed value for `json`, bytes for other kinds.

    Raises BadInput if the bytes are not UTF-8 or JSON.
    """
    if field.kind not in ("text", "json"):
        return data
    try:
        text = data.decode("utf-8")
        return text if field.kind == "text" else json_value(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"field {field.name!r}: {data[:20]!r} is not {'UTF-8' if field.kind == 'text' else 'JSON'}: "
            f"{error}; type {field.name}=...:bytes in --feature"
        ) from error
