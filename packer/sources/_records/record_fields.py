"""Record fields: which entry of a record becomes which field, as the user says it or as a few records suggest.

The user types FIELD=ENTRY or FIELD=ENTRY:KIND, such as `image=image/encoded` or `mask=seg.png:mask`; where samples
differ in what they call it, `image=jpg;png`. An entry is a feature of a tf.train.Example, or a suffix in a tar file. A
`,`, `;` or backslash in the name of one stands behind a backslash: `x_y=x\\;y`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, DamagedImage, InvalidRequest, PackerError
from packer.files.terminal_output import shell_word
from packer.images import decode, sniff
from packer.layouts.json_text import json_value
from packer.schema import MASK_DTYPES, MOST_PIXELS, Field
from packer.sources._field_names import RESERVED
from packer.sources._name_words import DEPTHS, IMAGES, has_coordinates, has_labels, words
from packer.sources._parse.folder_listing import listed, shown

KINDS = ("image", "mask", "depth", "text", "json", "bytes", "number", "numbers")
STARTS = "starts"  # of a feature list: where each step begins; a kind of those sources alone that have such lists
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
PhotoSizes: TypeAlias = Sequence[tuple[int, int]]
_FORMS = {"png", "jpg", "jpeg", "webp", "bmp", "encoded", "bytes", "raw"}
_FEW_VALUES = 16  # of a picture of labels
_FEW_PIXELS = 4096  # of a picture, all over it


@dataclass(frozen=True)
class RecordField:
    """name: of the field. entries: what a record may call it. kind: one of KINDS; None where the records tell.

    dtype: of numbers, once it is known; of a mask that may have 16 bit, uint16. invalid: of a depth, the value of a
      pixel without a measurement.
    """

    name: str
    entries: tuple[str, ...]
    kind: str | None = None
    dtype: str | None = None
    invalid: float | None = None

    @classmethod
    def parse(cls, text: str, kinds: Sequence[str] = KINDS) -> "RecordField":
        """From what the user types; raises InvalidRequest. kinds: those that there are."""
        name, equals, rest = text.partition("=")
        entry, colon, kind = rest.rpartition(":")
        invalid = dtype = None
        if colon and entry.endswith(":mask") and kind in MASK_DTYPES:
            dtype, entry, kind = kind, entry.removesuffix(":mask"), "mask"
        if colon and entry.endswith(":depth") and _NUMBER.fullmatch(kind):
            invalid, entry, kind = float(kind), entry.removesuffix(":depth"), "depth"
        if not colon or kind not in kinds:
            entry, kind = rest, ""
        entries = tuple(map(_unescaped, _pieces(entry, ";")))
        if not equals or not all(entries):
            raise InvalidRequest(
                f"option features: {text!r}: expected FIELD=FEATURE or FIELD=FEATURE:KIND, such as "
                f"image=image/encoded, depth=FEATURE:depth:0, where 0 is no measurement, or mask=FEATURE:mask:uint16 "
                f"for 16 bit; kinds are {', '.join(kinds)}; \\, and \\; are of a feature's name"
            )
        if name in RESERVED:
            raise InvalidRequest(f"option features: {text!r}: the field {name!r} is packer's own; choose another name")
        return cls(name, entries, kind or None, dtype, invalid)

    def shown(self) -> str:
        """As the user would type it."""
        kind = f":{self.kind}" if self.kind else ""
        dtype = f":{self.dtype}" if self.kind == "mask" and self.dtype else ""
        invalid = f":{self.invalid:g}" if self.invalid is not None else ""
        return f"{self.name}={';'.join(map(escaped, self.entries))}{kind}{dtype}{invalid}"

    @property
    def field(self) -> Field:
        """As the schema has it; raises InvalidRequest for a name that no field can have."""
        if self.kind == "number":
            return Field(self.name, "number", "number", dtype=self.dtype, shape=())
        if self.kind in ("numbers", STARTS):
            return Field(self.name, "number", f"raw:{self.dtype}", dtype=self.dtype, shape=(None,))
        codec = self.kind if self.kind in ("text", "json") else "encoded"
        dtype = self.dtype if self.kind == "mask" else None
        return Field(self.name, self.kind or "bytes", codec, dtype=dtype, invalid=self.invalid)

    def with_dtype(self, dtype: str) -> "RecordField":
        """The same for numbers of that type."""
        return replace(self, dtype=dtype)


def split_fields(text: str) -> list[str]:
    """The fields of what the user types in one line, FIELD=ENTRY,FIELD=ENTRY."""
    return [piece.strip() for piece in _pieces(text, ",") if piece.strip()]


def _pieces(text: str, mark: str) -> list[str]:
    """What stands between marks, but for those behind a backslash."""
    pieces = [""]
    for piece in re.findall(r"\\.|[^\\]|\\$", text, re.DOTALL):
        if piece == mark:
            pieces.append("")
        else:
            pieces[-1] += piece
    return pieces


def escaped(entry: str) -> str:
    """The name of an entry as the user types it."""
    return re.sub(r"[\\,;]", r"\\\g<0>", entry)


def _unescaped(typed: str) -> str:
    return re.sub(r"\\([\\,;])", r"\1", typed)


def parse_fields(texts: Sequence[str], kinds: Sequence[str] = KINDS) -> list[RecordField]:
    """All fields that the user asks for; raises InvalidRequest, also where two have one name. kinds: as of `parse`."""
    found = [RecordField.parse(text, kinds) for text in texts]
    names = [field.name for field in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"option features: the field {twice[0]!r} stands there twice; rename one")
    return found


def kind_of_bytes(values: Sequence[bytes], entry: str, photos: PhotoSizes = ()) -> str:
    """What some values of one entry are: image, mask or depth for pictures, text for UTF-8 without control characters.

    photos: of the same records, see `first_photos`. Pictures of one channel whose entry is named as
    labels, such as `seg.png`, are masks, which are never interpolated, and so are those beside photos that have few
    values each; of 16 bit they stay bytes. An array (.npy) is a depth where its name says so or its size is that of
    its photo: boxes and embeddings are arrays, too. Where most values are pictures, all are meant to be: one that is
    none is a bad sample when it is packed, not a reason to look at none.
    """
    everything = values
    values = _pictures(values) or values
    kinds = {_picture_kind(value) for value in values}
    if len(kinds) == 1 and (kind := kinds.pop()):
        if kind == "depth":
            is_depth = not has_labels(entry) and _may_be_depth(values, entry, photos)
            return "depth" if is_depth and not (photos and _are_wide_labels(values, entry)) else "bytes"
        if has_labels(entry) or (photos and all(map(_has_few_values, values))):
            return "mask" if all(map(_may_be_mask, values)) else "image"
        return kind
    if all(_is_text(value) for value in everything) and any(everything):
        return "text"
    return "bytes"


def in_order(fields: Sequence[RecordField]) -> list[RecordField]:
    """Guessed fields, those first whose names say the picture that the others belong to."""
    return sorted(fields, key=lambda field: (field.name != "image", not _says_picture(field.name)))


def _says_picture(name: str) -> bool:
    said = set(words(name)) - _FORMS
    return bool(said) and said <= IMAGES


def decoded(field: RecordField, data: bytes) -> Any:
    """The value that the bytes of an entry are: a str for text, what JSON holds, else the bytes; raises BadInput."""
    if field.kind not in ("text", "json"):
        return data
    try:
        text = data.decode("utf-8")
        return text if field.kind == "text" else json_value(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"field {field.name!r}: {data[:20]!r} is no {'UTF-8' if field.kind == 'text' else 'JSON'}: "
            f"{error}; say {field.name}=...:bytes in --features"
        ) from error


def first_photos(entries: Iterable[Sequence[bytes]]) -> tuple[int, PhotoSizes]:
    """Which entry is the first whose pictures are photos, by their many values, and their sizes; -1 for none."""
    for number, values in enumerate(map(_pictures, entries)):
        if values and all(_picture_kind(data) == "image" and not _has_few_values(data) for data in values):
            return number, _sizes(values)
    return -1, ()


def are_pictures(values: Sequence[bytes]) -> bool:
    """Whether most are pictures that packer reads, by their headers: the others are bad samples then."""
    return bool(_pictures(values)) or not values


def _pictures(values: Sequence[bytes]) -> list[bytes]:
    """Those of some values that are pictures, where most are; else none."""
    found = [value for value in values if _picture_kind(value)]
    return found if 2 * len(found) > len(values) else []


def is_gray_beside(values: Sequence[bytes], photos: PhotoSizes) -> bool:
    """Whether pictures of one channel, or with a palette, lie beside photos, so that they may be labels; or some of
    them, with few values, beside others.
    """
    if not photos or {_picture_kind(value) for value in values} != {"image"}:
        return False
    return all(map(_may_be_mask, values)) or any(map(_has_few_values, values))


def about_gray(gray: Sequence[RecordField], fields: Sequence[RecordField]) -> list[str]:
    """A note on each field whose pictures lie gray beside photos and were taken for images. fields: all."""
    lines = []
    for field in gray:
        said = ",".join((replace(one, kind="mask") if one.name == field.name else one).shown() for one in fields)
        lines.append(
            f"{shown(field.name)}: pictures of one channel or with a palette, all or some, beside photos, taken as "
            "images: geometries and --resize mix their values; where these are labels, say --features "
            f"{shell_word(said)}"
        )
    return lines


def looks_like_labels(data: bytes) -> bool:
    """Whether a picture that lost nothing has at most 16 values or colours, as a label map has."""
    try:
        if sniff(data, MOST_PIXELS).lossy:
            return False
        colours = decode(data, "image").reshape(-1, 3).astype(np.uint32) @ np.asarray([1 << 16, 1 << 8, 1], np.uint32)
    except PackerError:  # what cannot be read is no evidence; packing it says what is wrong
        return False
    few = colours[:: max(1, len(colours) // _FEW_PIXELS)]  # of a photo they are enough to tell
    return len(np.unique(few)) <= _FEW_VALUES and len(np.unique(colours)) <= _FEW_VALUES


def about_few_colours(name: str, instead: str) -> str:
    """The note on pictures that look like label maps and were taken as images. instead: what to do where they are."""
    return (
        f"{shown(name)}: pictures of at most {_FEW_VALUES} colours, as label maps have, taken as images: geometries "
        f"and --resize mix their colours; where these are labels, {instead}"
    )


def about_unmoved(fields: Iterable[Field], else_moved: str = "") -> list[str]:
    """The note that what is no picture stays as it is. else_moved: what would be moved, where anything would."""
    found = [
        field
        for field in fields
        if field.kind in ("number", "text", "json", "bytes") and not field.hidden and not _is_no_place(field)
    ]
    has_x = any(field.name == "x" for field in found)
    names = [field.name for field in found if has_x or field.name != "y" or not _is_single(field)]  # y alone: a label
    if not names:
        return []
    return [
        f"{listed(names)}: stored as they are: no geometry moves them, nor --resize: boxes, points or pixels among "
        f"them stay behind their picture{f'; {else_moved}' if else_moved else ''}"
    ]


def _is_no_place(field: Field) -> bool:
    """Whether a field is of no place in a picture: row numbers, and single numbers and texts that no word says are."""
    if field.starts is not None or field.into is not None:
        return True
    return _is_single(field) and not has_coordinates(field.name)


def _is_single(field: Field) -> bool:
    return field.kind == "text" or (field.kind == "number" and field.shape == ())


def _picture_kind(data: bytes) -> str | None:
    try:
        found = sniff(data, MOST_PIXELS)
    except DamagedImage:
        return None
    is_depth = found.channels == 1 and found.dtype in ("uint16", "float32", "float64")
    return "depth" if is_depth else "image"


def _may_be_mask(data: bytes) -> bool:
    found = sniff(data, MOST_PIXELS)
    return found.channels == 1 or found.palette


def shows_labels(pixels: npt.NDArray[Any]) -> bool:
    """Whether the pixels of one channel may be labels: they have few values."""
    return len(np.unique(pixels)) <= _FEW_VALUES


def _has_few_values(data: bytes) -> bool:
    try:
        return _may_be_mask(data) and shows_labels(decode(data, "mask"))
    except PackerError:  # what cannot be read is no evidence; packing it says what is wrong
        return False


def _are_wide_labels(values: Sequence[bytes], entry: str) -> bool:
    """Whether pictures of 16 bit or floats, whose name says no depth, have so few values that they may be labels."""
    if DEPTHS.intersection(words(entry)):
        return False
    try:
        return all(shows_labels(decode(data, "depth")) for data in values)
    except PackerError:  # as above
        return False


def _may_be_depth(values: Sequence[bytes], entry: str, photos: PhotoSizes) -> bool:
    if any(sniff(data, MOST_PIXELS).format != "npy" for data in values) or DEPTHS.intersection(words(entry)):
        return True
    found = _sizes(values)
    return found == list(photos) if len(found) == len(photos) else set(found) <= set(photos)


def _sizes(values: Sequence[bytes]) -> list[tuple[int, int]]:
    return [(header.height, header.width) for header in (sniff(data, MOST_PIXELS) for data in values)]


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\n\r\t" for character in text)


def number_of(values: Any, name: str) -> Any:
    """The one number of a list; raises BadInput where it has another length."""
    if len(values) != 1:
        instead = (
            f"{name}=...:numbers in --features takes lists of any length"
            if len(values)
            else f"--features without {name} packs them"  # a list would make lists of all that have one, labels too
        )
        raise BadInput(
            f"field {name!r}: expected one number, found {len(values) or 'none'}; --on-error skip leaves such records "
            f"out, {instead}"
        )
    return np.asarray(values)[0]
