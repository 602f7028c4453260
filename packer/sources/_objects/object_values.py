"""Object values: the value that a Python object gives for a field, as a source gives it.

| kind                | taken                                                                                      |
|---------------------|--------------------------------------------------------------------------------------------|
| image               | bytes or path of a file (kept), uint8 (H, W), (H, W, 1 or 3), (1 or 3, H, W), PIL picture    |
| mask                | the same of one channel; whole numbers of any type that fit 8 bit; palettes as indices;    |
|                     | as mask:uint16 those that fit 16                                                           |
| depth               | the same of one channel, in uint16 or floats                                               |
| number              | numbers of Python, NumPy, torch, lists of them                                             |
| points, boxes       | the same, (..., 2) and (N, 4); floats are rounded to float32, as of every source           |
| text                | str                                                                                        |
| json                | what JSON has; tuples and arrays become lists                                              |
| bytes               | bytes, or the path of a file                                                               |

NumPy arrays, torch tensors and PIL pictures are told by the names of their classes: no library is imported for it.
Pixels that are floats are refused for an image: ToTensor has scaled them, and packing would have to guess by how much.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.schema import Field
from packer.sources._objects.object_class import is_a, said
from packer.sources._parse.folder_listing import counted, listed
from packer.sources._text_values import check_boxes
from packer.sources.base import read_file
from packer.system.exact_casts import cast_exactly

Axes = Literal["auto", "hwc", "chw"]
_COLOURS = (1, 3)
_EXACT_FLOAT = 2.0**53  # up to which float64 holds every whole number
DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")  # of PIL pictures with more than 8 bit


def is_picture_object(value: object) -> bool:
    """Whether it is a picture of PIL."""
    return is_a(value, "PIL.Image", "Image")


def is_undecoded(value: object) -> bool:
    """Whether it is a picture as Hugging Face gives it undecoded: its bytes, or the path where they are."""
    return isinstance(value, Mapping) and value.keys() == {"bytes", "path"}


def as_array(value: object) -> npt.NDArray[Any] | None:
    """The array that a value is: of NumPy, or a tensor; None for anything else. Raises BadInput for another dtype."""
    if is_a(value, "torch", "Tensor"):
        tensor: Any = value
        try:
            value = tensor.detach().cpu().numpy()
        except TypeError as error:
            raise BadInput(f"a tensor of {tensor.dtype}, which NumPy does not have: {error}") from error
    if not isinstance(value, np.ndarray | np.generic):
        return None
    if isinstance(value, np.ma.MaskedArray) and (masked := int(np.ma.getmaskarray(value).sum())):
        raise BadInput(
            f"{_form(value)} with {counted(masked, 'masked value')}, which no field has: fill them, .filled(value)"
        )
    array = np.asarray(value)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def file_bytes(value: object) -> bytes | None:
    """The bytes of a file that the value is or names; None for pixels. Raises BadInput for one that is not there."""
    if is_undecoded(value) and isinstance(value, Mapping):
        inner = value["bytes"] if value["bytes"] is not None else value["path"]
        if inner is None:
            raise BadInput("neither bytes nor a path: an empty picture")
        return file_bytes(inner)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        return read_file(Path(value))
    return None


def picture(value: object, kind: str, axes: Axes, *, is_wide: bool = False) -> Any:
    """Bytes of a file as they are, else the pixels as the kind has them; raises BadInput. is_wide: a uint16 mask."""
    data = file_bytes(value)
    if data is not None:
        return data
    array = _opened(value, kind) if is_picture_object(value) else as_array(value)
    if array is None:
        raise BadInput(f"expected a picture (bytes, a path, an array or a PIL picture), found {said(value)}")
    pixels = _in_place(array, kind, axes)
    if kind == "depth":
        return _depth(pixels)
    if pixels.dtype.kind == "f":
        raise BadInput(
            f"{_form(array)} is no {kind}: expected 8 bit; ToTensor and Normalize scale pixels to floats: take them "
            f"out of the data set's transform (training scales them again), or pack the numbers: kind number"
        )
    if pixels.dtype.kind not in "uib" or (kind == "image" and pixels.dtype != np.uint8):
        raise BadInput(f"{_form(array)} is no {kind}: expected uint8, which packer never makes by narrowing")
    try:
        return np.ascontiguousarray(cast_exactly(pixels, np.uint16 if is_wide else np.uint8))
    except BadInput as error:
        hint = "; masks of 16 bit are of kind mask:uint16" if not is_wide else ""
        raise BadInput(f"a mask with values beyond {16 if is_wide else 8} bit: {error.message}{hint}") from error


def numbers(value: object, field: Field) -> Any:
    """A number or an array of the field's dtype; raises BadInput for what it does not hold exactly, but for places.

    A name is the number of its class.
    """
    if isinstance(value, str) and field.classes is not None:
        value = class_number(value, field)
    array = as_array(value)
    if array is None:
        array = listed_numbers(value)
    if array is None or array.dtype.kind not in "biuf":
        raise BadInput(f"expected {'numbers' if field.shape else 'a number'}, found {said(value)}: {value!r:.40}")
    if not array.size and field.shape and field.shape[0] is None and array.ndim != len(field.shape):
        array = array.reshape(0, *(length or 0 for length in field.shape[1:]))  # an empty list has no columns
    if is_rounded(array, field):
        with np.errstate(over="ignore"):
            places = array.astype(field.dtype)
        lost = np.isinf(places) & np.isfinite(array)
        if lost.any():
            raise BadInput(f"{array[lost].flat[0]:g} is beyond {field.dtype}: no place in a picture")
        array = places
    if field.kind == "boxes":
        check_boxes(array)
    cast = cast_exactly(array, field.dtype or array.dtype)
    check_classes(field, cast)
    return cast if cast.ndim else cast[()]


def class_number(value: object, field: Field) -> Any:
    """The number of a class by its name; raises BadInput."""
    name, classes = text(value), field.classes or ()
    if name not in classes:
        raise BadInput(f"{name!r:.60}: expected one of {listed(classes)}")
    return np.int64(classes.index(name))


def is_rounded(array: npt.NDArray[Any], field: Field) -> bool:
    """Whether numbers are places in px, which every source rounds to the float of their field: 0.1 has no float32."""
    return field.kind in ("boxes", "points") and array.dtype.kind == "f" and array.dtype != field.dtype


def check_classes(field: Field, values: npt.NDArray[Any]) -> None:
    """Raise BadInput where a label is no class."""
    if field.kind != "number" or field.classes is None or not values.size:
        return
    count = len(field.classes)
    low, high = int(values.min()), int(values.max())
    if low >= 0 and high < count:
        return
    wrong = low if low < 0 else high
    hint = ": no label, as test splits have it; leave the field out with fields=" if wrong == -1 else ""
    raise BadInput(f"label {wrong}{hint}: expected 0 to {count - 1}, of {count} classes")


def listed_numbers(value: object) -> npt.NDArray[Any] | None:
    """The array that a number or lists of numbers are; None for what is none, and where no dtype holds them exactly.

    Lists of different lengths are no array, nor are floats beside whole numbers that float64 rounds.
    """
    if isinstance(value, bool | int | float):
        return _array_of(value)
    if not isinstance(value, list | tuple):
        return None
    inner = [as_array(each) for each in value]
    return _array_of([each if array is None else array for each, array in zip(value, inner, strict=True)])


def _array_of(value: object) -> npt.NDArray[Any] | None:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):  # lists of different lengths; a number beyond 64 bits
        return None
    if array.dtype.kind == "f" and (np.abs(array) > _EXACT_FLOAT).any() and not all(map(_is_exact, _numbers_in(value))):
        return None
    return array if array.dtype.kind in "biuf" else None


def _numbers_in(value: object) -> Iterator[object]:
    """The numbers of lists in lists."""
    if isinstance(value, list | tuple | np.ndarray) and np.ndim(value):
        for each in value:
            yield from _numbers_in(each)
    else:
        yield value


def _is_exact(number: object) -> bool:
    """Whether a float64 holds it: not a whole number of more than 53 bits, as of identities."""
    return not isinstance(number, int | np.integer) or int(float(number)) == int(number)


def text(value: object) -> str:
    """A text; raises BadInput for anything else."""
    if not isinstance(value, str):
        raise BadInput(f"expected a text, found {said(value)}: {value!r:.40}")
    return str(value)


def json_value(value: object) -> Any:
    """What JSON can hold, tuples and arrays as lists; raises BadInput."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    array = as_array(value)
    if array is not None:
        return array.tolist()
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {str(name): json_value(each) for name, each in value.items()}
    raise BadInput(f"expected what JSON has, found {said(value)}")


def kept_bytes(value: object) -> bytes:
    """Bytes, or those of the file that is named; raises BadInput."""
    data = file_bytes(value)
    if data is None:
        raise BadInput(f"expected bytes or the path of a file, found {said(value)}")
    return data


def _opened(value: Any, kind: str) -> npt.NDArray[Any]:
    """The pixels of a PIL picture."""
    if kind == "image":
        if value.mode in DEEP_MODES:
            raise BadInput(f"a PIL picture of mode {value.mode} is no image: it has more than 8 bit; is it a depth?")
        return np.asarray(value if value.mode == "RGB" else value.convert("RGB"))
    array = np.asarray(value)
    if array.ndim != 2:
        raise BadInput(f"a PIL picture of mode {value.mode} is no {kind}: expected one channel (L, P, 1, I;16 or F)")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _in_place(array: npt.NDArray[Any], kind: str, axes: Axes) -> npt.NDArray[Any]:
    """(H, W, 3) for an image, (H, W) for others, of whichever order the axes have; raises BadInput."""
    if array.ndim == 3:
        order = axes if axes != "auto" else _order(array)
        if order is not None:
            array = np.moveaxis(array, 0, 2) if order == "chw" else array
    fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in _COLOURS)
    colours = array.shape[2] if array.ndim == 3 else 1
    if not fits or 0 in array.shape or (kind != "image" and colours != 1):
        expected = "(H, W), (H, W, 3) or (3, H, W)" if kind == "image" else "(H, W)"
        raise BadInput(f"{_form(array)} is no {kind}: expected {expected}")
    flat = array.reshape(array.shape[:2]) if colours == 1 else array
    if kind != "image":
        return np.ascontiguousarray(flat)
    return np.ascontiguousarray(np.repeat(flat[:, :, None], 3, axis=2) if flat.ndim == 2 else flat)


def _order(array: npt.NDArray[Any]) -> Axes | None:
    """Which axis is that of the colours; raises BadInput where it may be either."""
    first, last = array.shape[0] in _COLOURS, array.shape[2] in _COLOURS
    if first and last:
        raise BadInput(f"{_form(array)} may be (H, W, C) and (C, H, W); say which: axes='hwc' or axes='chw'")
    return "hwc" if last else "chw" if first else None


def _depth(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind == "i":  # PIL's mode I has 32 bit for the 16 of a file
        array = cast_exactly(array, np.uint16)
    if array.dtype.name not in ("uint8", "uint16", "float16", "float32", "float64"):
        raise BadInput(f"{_form(array)} is no depth: expected uint16 or floats (H, W)")
    return array


def _form(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape}"
