"""Array fields: the field for each array, chosen by the dtype and shape of the rows and by the name of the array.

| rows                                                        | field                                         |
|-------------------------------------------------------------|-----------------------------------------------|
| uint8 (H, W, 3), (3, H, W), (H, W) or (H, W, 1)             | image in RGB or gray, or mask (by the name)   |
| floats or uint16, (H, W)                                    | depth                                         |
| bytes of any length                                         | encoded images, texts or other bytes          |
| whole numbers or texts in an array with a name for labels   | label: int64, and classes from the texts or   |
|                                                             | from the names of an HDF5 enumeration         |
| floats (k, 4, 2) in `bounding_boxes`, as GG-CNN stores them | grasps                                        |
| other numbers                                               | numbers                                       |
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.schema import PIXEL_KINDS, Field
from packer.sources._message_texts import counted, shown
from packer.sources._name_words import DEPTHS, has_labels, is_image_word, words
from packer.sources.arrays._stored_array import StoredArray
from packer.sources.records._record_fields import RecordField, decoded, kind_of_bytes, typed_features

AXES = ("auto", "hwc", "chw")
IMAGE_NAMES = ("image", "images", "img", "imgs", "x", "rgb", "data", "pixels", "picture", "pictures", "photos")
LABEL_NAMES = ("label", "labels", "y", "target", "targets", "class", "classes", "category")
LEAST_SIDE = 8  # px; smaller rows are images only if an option declares it
WHOLE_NUMBERS: tuple[Any, ...] = ("whole numbers", ())
_LABEL_MAPS = ("y", "target", "targets", "class", "classes", "sal")  # has_labels contains the other names
_RECTANGLES = "bounding_boxes"  # of GG-CNN: corners as (y, x), zeros after the last rectangle
_DEPTHS = ("uint16", "float16", "float32", "float64")
_PLANES = ("uint8", "uint16")  # dtypes of images, masks or depth
_MOST_CHANNELS = 4
_MOST_COLUMN = 16  # limit of numbers per sample in the index
_MOST_CLASSES = 100_000
_PROBES = 16

Axes = Literal["hw", "hwc", "chw"]


class ArrayColumn(NamedTuple):
    """A field, and how its values are read from arrays.

    Attributes:
        field: The field of the schema.
        entry: The name of the arrays with the values. It is equal in all tables.
        value: A function that converts a stored row to the value of the field.
        kind: The kind in the syntax of the option `features`.
        note: A note for the user about the field; empty for no note.
        is_unclear: True if another kind is as likely as `kind`.
    """

    field: Field
    entry: str
    value: Callable[[Any], Any]
    kind: str = ""
    note: str | None = None
    is_unclear: bool = False

    def typed(self) -> str:
        """Return the field in the syntax of the option `features`."""
        invalid = "" if self.field.invalid is None else f"{self.field.invalid:g}"
        return f"{self.field.name}={':'.join(filter(None, [self.entry, self.kind, invalid]))}"


def described(array: StoredArray) -> str:
    """Return path, dtype and shape of an array as text for messages."""
    noun = "texts" if array.is_text else f"lists of {array.dtype.name}" if array.is_ragged else array.dtype.name
    return f"{array.path} {noun} {array.shape}"


def form(array: StoredArray, *, is_label: bool = False) -> tuple[Any, ...]:
    """Return the properties that must be equal in all arrays of one field, such as dtype and shape of a row.

    If `is_label` is true, the dtypes of whole numbers are ignored, because labels become int64.
    """
    if array.is_text or array.is_ragged:
        return array.is_text, array.is_ragged, "" if array.is_text else array.dtype.name
    if is_label and array.dtype.kind in "iu" and math.prod(array.shape[1:]) == 1:
        return WHOLE_NUMBERS
    return array.dtype.newbyteorder("=").name, array.shape[1:]


def is_label_map(entry: str) -> bool:
    """Return whether an array with the name `entry` usually contains images whose pixels are class numbers."""
    return has_labels(entry) or entry.lower() in _LABEL_MAPS


def may_be_images(array: StoredArray, *, is_main: bool) -> bool:
    """Return whether rows are bytes of any length, or images or depth with at least 8 px for both sides.

    If `is_main` is true, the array defines the samples. One side of its images may then have 1 or 3 px.
    """
    if array.is_text or array.is_ragged:
        return array.is_ragged and array.dtype.name == "uint8"
    shape = array.shape[1:]
    sides = sorted(length for length in shape if length not in (1, 3))
    is_flat = len(shape) in (2, 3) and len(sides) == 2 and sides[0] >= LEAST_SIDE
    is_narrow = len(shape) == 3 and len(sides) < 2 and max(shape) >= LEAST_SIDE
    return array.dtype.name in ("uint8", *_DEPTHS) and (is_flat or (is_main and is_narrow))


def usual_name(array: StoredArray, entry: str, *, is_main: bool, is_label: bool) -> str:
    """Return the usual field name for an array, such as `image`. Return an empty string to keep the name `entry`.

    `is_main` is true for the array that defines the samples, `is_label` for the array of labels.
    """
    if is_label:
        return "label"
    if entry.lower() == _RECTANGLES and _are_rectangles(array):
        return "grasps"
    if is_main and array.dtype.name == "uint8" and entry != "rgb" and not is_label_map(entry):  # rgb, as grasp sets do
        return "image"
    return "depth" if entry.lower() == "depth_inpainted" else ""


def column_of(
    field: RecordField, arrays: Sequence[StoredArray], *, is_main: bool, is_declared: bool, axes: str
) -> ArrayColumn:
    """Return the column of a field.

    Args:
        field: Name, entry and optional kind of the field.
        arrays: The array of the entry in each table.
        is_main: True if the entry defines the samples, or if the field is `image`.
        is_declared: True if the user declared the field.
        axes: The order of the axes of a row with three axes, one of `AXES`.

    Raises:
        InvalidRequest: Rows do not fit the kind, or both (H, W, C) and (C, H, W) are possible.
        BadInput: The arrays have enumerations with different names.
    """
    entry, array = field.entries[0], arrays[0]
    if array.is_text:
        return _text_column(field, arrays)
    if array.is_ragged:
        return _ragged_column(field, array)
    if field.kind in ("text", "json", "bytes"):
        raise _misfit(field, array, "numbers")
    if field.kind is None and entry.lower() == _RECTANGLES and _are_rectangles(array):
        points = Field(field.name, "points", "raw", dtype="float32", shape=(None, 4, 2))
        return ArrayColumn(points, entry, _rectangles, note=f"{entry}: corners are (y, x) in GG-CNN: stored as (x, y)")
    must_be_image = field.kind in PIXEL_KINDS or (is_declared and field.name == "image" and field.kind is None)
    if must_be_image or (field.kind is None and (is_main or may_be_images(array, is_main=False))):
        is_open = not (is_main or is_declared)
        column = _image_column(field, array, is_open=is_open, axes=axes)
        if column is not None:
            return column
    if must_be_image:
        is_one = len(array.shape) == 3 and array.shape[2] <= _MOST_CHANNELS
        instead = "numpy.stack makes rows of single images" if is_one else f"{field.name}={entry}:numbers"
        if field.kind == "mask" and array.dtype.name == "uint16":
            instead = f"{field.name}={entry}:mask:uint16 packs masks of 16 bit"
        raise _misfit(field, array, f"uint8 (H, W), (H, W, 3) or (3, H, W), depth uint16 or floats (H, W); {instead}")
    if field.name == "label" and form(array, is_label=True) == WHOLE_NUMBERS:
        return _label_column(entry, arrays)
    return _number_column(field, array)


def _misfit(field: RecordField, array: StoredArray, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"option features: {field.shown()}: {described(array)} is not {field.kind or field.name}; expected {expected}"
    )


# ---- images


def _image_column(field: RecordField, array: StoredArray, *, is_open: bool, axes: str) -> ArrayColumn | None:
    """Return the column of images, masks or depth, or None if the rows have another shape or dtype."""
    entry, dtype = field.entries[0], array.dtype.newbyteorder("=").name
    order = _axes_of(array, axes)
    channels = 0 if order is None else 1 if order == "hw" else array.shape[1 if order == "chw" else 3]
    is_map = channels == 1 and field.name != "image" and is_label_map(entry)
    kind = field.kind or ("mask" if is_map else "depth" if dtype in _DEPTHS else "image")
    dtypes = {"image": ("uint8",), "mask": ("uint8", field.dtype), "depth": _DEPTHS}
    if order is None or dtype not in dtypes[kind] or (kind != "image" and channels != 1):
        return None
    notes = ["stored as (3, H, W)"] if order == "chw" and channels > 1 else []
    if kind == "image":
        notes.append("assumed to be RGB" if channels > 1 else "gray: three equal channels")
        if channels > 1 and is_label_map(entry):
            notes.append("named as labels, taken as an image, whose values geometries mix; a mask has one channel")
    shape = (None, None, 3) if kind == "image" else (None, None)
    dtype = field.dtype or dtype if kind == "mask" else dtype
    codec = "npy" if kind == "depth" else "png"
    made = Field(field.name, kind, codec, dtype=dtype, shape=shape, invalid=field.invalid)
    is_named = is_map or entry.lower() in IMAGE_NAMES or is_image_word(entry) or DEPTHS.intersection(words(entry))
    is_unclear = is_open and channels == 1 and dtype in _PLANES and not is_named
    return ArrayColumn(
        made,
        entry,
        partial(_pixels, axes=order, is_gray=channels == 1, is_image=kind == "image"),
        "mask:uint16" if made.is_wide_mask else kind,
        f"{entry}: {', '.join(notes)}" if notes else None,
        bool(is_unclear),
    )


def _axes_of(array: StoredArray, axes: str) -> Axes | None:
    """Return the order of a row's axes, or None if rows are not images. Raise InvalidRequest if two orders fit."""
    shape = array.shape[1:]
    if len(shape) == 2:
        return "hw" if shape[1] > _MOST_CHANNELS else None  # the rows of one image in color
    fits: list[Axes] = []
    if len(shape) == 3:
        fits += ["hwc"] if shape[2] in (1, 3) and axes != "chw" else []
        fits += ["chw"] if shape[0] in (1, 3) and axes != "hwc" else []
    if len(fits) > 1:
        raise InvalidRequest(f"{described(array)} may be (H, W, C) or (C, H, W): use --axes hwc or --axes chw")
    return fits[0] if fits else None


def _pixels(row: npt.NDArray[Any], *, axes: Axes, is_gray: bool, is_image: bool) -> npt.NDArray[Any]:
    """Return a row as (H, W, 3) if `is_image`, else as (H, W). If `is_gray`, the row has one channel."""
    pixels = row.transpose(1, 2, 0) if axes == "chw" else row
    if is_gray:
        pixels = pixels.reshape(pixels.shape[:2])
        pixels = np.broadcast_to(pixels[:, :, None], (*pixels.shape, 3)) if is_image else pixels
    return np.ascontiguousarray(pixels)


# ---- labels, texts and numbers


def _label_column(entry: str, arrays: Sequence[StoredArray]) -> ArrayColumn:
    """Return the column of int64 labels. The names of an enumeration that starts at 0 become the classes."""
    names = arrays[0].value_names
    other = next((array for array in arrays if array.value_names != names), None)
    if other is not None:
        raise BadInput(
            f"{shown(other.path)} and {shown(arrays[0].path)} have different enumerations of the labels; write them "
            "with one enumeration, or make a pack of each"
        )
    is_counted = list(names) == list(range(len(names)))
    classes = tuple(names.values()) if names and is_counted else None
    note = None
    if names:
        note = f"{entry}: {counted(len(names), 'name')} of its enumeration" + (
            ", the classes" if classes else " skipped: classes have the numbers 0, 1, 2 ..."
        )
    field = Field("label", "number", "number", dtype="int64", shape=(), classes=classes)
    return ArrayColumn(field, entry, partial(_class_number, count=len(classes or ())), note=note)


def _class_number(row: Any, *, count: int = 0) -> np.int64:
    """Return a label as int64. Raise BadInput if `count` is not 0 and the label is not in [0, count)."""
    number = int(np.asarray(row).reshape(-1)[0])
    if number >= 1 << 63 or (count and not 0 <= number < count):
        raise BadInput(f"label {number} is not one of {count or 1 << 63} classes")
    return np.int64(number)


def _text_number(row: str, *, numbers: Mapping[str, int]) -> np.int64:
    if row not in numbers:
        raise BadInput(f"label {row!r:.60} was not there when the file was listed; the file changed, run again")
    return np.int64(numbers[row])


def _text_column(field: RecordField, arrays: Sequence[StoredArray]) -> ArrayColumn:
    entry = field.entries[0]
    if field.kind not in (None, "text"):
        raise _misfit(field, arrays[0], "texts")
    if field.name != "label" or field.kind == "text":
        return ArrayColumn(Field(field.name, "text", "text"), entry, _unchanged, "text")
    found: set[str] = set()
    for array in arrays:
        found.update(array.row(index) for index in range(array.shape[0]))
        if len(found) > _MOST_CLASSES:
            typed = typed_features([f"label={entry}:text"])
            raise InvalidRequest(f"{array.path}: more than {_MOST_CLASSES} different labels; pack texts: {typed}")
    classes = tuple(sorted(found))
    numbers = {name: number for number, name in enumerate(classes)}
    made = Field(field.name, "number", "number", dtype="int64", shape=(), classes=classes)
    note = f"{entry}: {counted(len(classes), 'class')} by name, numbered in the order of the names"
    return ArrayColumn(made, entry, partial(_text_number, numbers=numbers), note=note)


def _ragged_column(field: RecordField, array: StoredArray) -> ArrayColumn:
    entry, dtype = field.entries[0], array.dtype.newbyteorder("=").name
    if (field.kind in ("number", "numbers")) if dtype == "uint8" else (field.kind not in (None, "numbers")):
        raise _misfit(field, array, "bytes" if dtype == "uint8" else f"lists of {dtype}")
    if dtype != "uint8":
        return ArrayColumn(RecordField(field.name, (entry,), "numbers", dtype).field, entry, _unchanged, "numbers")
    values = []
    for index in range(0, array.shape[0], max(1, array.shape[0] // _PROBES)):
        try:
            values.append(array.row(index))
        except BadInput:  # packing the sample raises the error
            continue
    kind = field.kind or kind_of_bytes(values, entry)
    record = RecordField(field.name, (entry,), kind, field.dtype if kind == "mask" else None)
    typed = "mask:uint16" if record.field.is_wide_mask else kind
    return ArrayColumn(record.field, entry, partial(decoded, record), typed)


def _number_column(field: RecordField, array: StoredArray) -> ArrayColumn:
    """Return the column of numbers. A pack stores up to 16 numbers of a sample in its index, more in a part."""
    shape = tuple(length for length in array.shape[1:] if length != 1)
    entry, dtype = field.entries[0], array.dtype.newbyteorder("=").name
    if field.kind == "number" and shape:
        raise _misfit(field, array, "one number per row; more than one number are numbers")
    if not shape:
        made = Field(field.name, "number", "number", dtype=dtype, shape=())
        return ArrayColumn(made, entry, partial(_numbers, shape=()), "number")
    is_short = math.prod(shape) <= _MOST_COLUMN
    made = Field(field.name, "number", f"raw:{dtype}", dtype=dtype, shape=shape if is_short else (None, *shape[1:]))
    return ArrayColumn(made, entry, partial(_numbers, shape=shape), "numbers")


def _numbers(row: npt.NDArray[Any], *, shape: tuple[int, ...]) -> Any:
    return row.reshape(shape) if shape else row.reshape(-1)[0]


def _unchanged(row: Any) -> Any:
    return row


def _are_rectangles(array: StoredArray) -> bool:
    return len(array.shape) == 4 and array.shape[2:] == (4, 2) and array.dtype.kind in "iuf"


def _rectangles(row: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Convert GG-CNN's corners (y, x) to (x, y). Rows of zeros fill the array after the last grasp and are removed."""
    # source: dougsm/ggcnn, dataset_processing/grasp.py of 2018: _bb_text_to_no, to_array, load_from_array
    empty = np.flatnonzero(row.reshape(len(row), -1).max(axis=1) == 0)
    found = row[: int(empty[0]) if len(empty) else len(row)]
    return np.ascontiguousarray(found[:, :, ::-1], np.float32)
