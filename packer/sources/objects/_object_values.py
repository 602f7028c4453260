"""Object values: conversion of the values in samples of a Python object to values of fields.

| kind          | accepted values                                                                            |
|---------------|--------------------------------------------------------------------------------------------|
| image         | bytes or path of a file (kept), uint8 (H, W), (H, W, 1 or 3), (1 or 3, H, W), PIL image    |
| mask          | as image, with one channel; whole numbers of any dtype that fit 8 bits; palette indices;   |
|               | as mask:uint16 whole numbers that fit 16 bits                                              |
| depth         | as image, with one channel, uint16 or floats                                               |
| number        | numbers of Python, NumPy and torch, lists of numbers                                       |
| points, boxes | as number, (..., 2) and (N, 4); floats are rounded to float32, as in every source          |
| text          | str                                                                                        |
| json          | what JSON can contain; tuples and arrays become lists                                      |
| bytes         | bytes, or the path of a file                                                               |

Float images are an error, because the factor that scaled the pixels, for example in ToTensor, is unknown.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.schema import PIXEL_KINDS, ROW_KINDS, Field
from packer.sources._message_texts import listed
from packer.sources._text_value_parsers import check_boxes
from packer.sources.base import read_file
from packer.sources.objects._isinstance_without_import import is_a, type_name
from packer.system.exact_casts import cast_exactly, form, round_floats

Axes = Literal["auto", "hwc", "chw"]
DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")  # modes of PIL with more than 8 bits
_CHANNELS = {"image": (1, 3), "mask": (1,), "depth": (1,)}
_DTYPE_KINDS = {"image": "u", "mask": "uib", "depth": "uif"}
_DEPTH_DTYPES = ("uint8", "uint16", "float16", "float32", "float64")
_EXACT_FLOAT = 2.0**53  # float64 represents every whole number up to this limit

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


def field_value(value: object, field: Field, axes: Axes) -> Any:
    """Convert a value to the kind of `field`. Raise BadInput if the value is not of that kind."""
    if field.kind in PIXEL_KINDS:
        return _pixels(value, field, axes)
    if field.kind in ROW_KINDS:
        return _numbers(value, field)
    if field.kind == "json":
        return _json(value)
    is_text = field.kind == "text"
    found = value if is_text else file_bytes(value)
    if not isinstance(found, str if is_text else bytes):
        expected = "a text" if is_text else "bytes or the path of a file"
        raise BadInput(f"expected {expected}, found {type_name(value)}: {value!r:.40}")
    return str(found) if is_text else found


def sound_values(make: Callable[[_Item], _Made], items: Iterable[_Item]) -> list[_Made]:
    """Return `make(item)` for each item. Skip items for which `make` raises BadInput.

    If all items fail, raise the first BadInput. The conversion reports skipped items when it packs their samples.
    """
    made, errors = [], []
    for item in items:
        try:
            made.append(make(item))
        except BadInput as error:
            errors.append(error)
    if errors and not made:
        raise errors[0]
    return made


def is_pil_image(value: object) -> bool:
    """Return whether a value is a PIL image."""
    return is_a(value, "PIL.Image", "Image")


def is_undecoded(value: object) -> bool:
    """Return whether a value is an undecoded image of Hugging Face: a dict with the entries bytes and path."""
    return isinstance(value, Mapping) and value.keys() == {"bytes", "path"}


def as_array(value: object) -> npt.NDArray[Any] | None:
    """Return an array or a tensor as an array in native byte order. Return None for any other value.

    Raises:
        BadInput: NumPy does not support the dtype, or the array is masked.
    """
    if is_a(value, "torch", "Tensor"):
        tensor: Any = value
        try:
            value = tensor.detach().cpu().numpy()
        except TypeError as error:
            raise BadInput(f"a tensor of {tensor.dtype}, which NumPy does not have: {error}") from error
    if not isinstance(value, np.ndarray | np.generic):
        return None
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise BadInput(f"{form(value)} with masked values, which no field can store: call .filled(value)")
    array = np.asarray(value)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def number_array(value: object) -> npt.NDArray[Any] | None:
    """Convert a number, a list or an array to an array.

    Return None for other values, for nested lists of different lengths, and if no dtype represents all numbers exactly.
    """
    array = as_array(value)
    if array is None and isinstance(value, bool | int | float | list | tuple):
        if isinstance(value, list | tuple):
            inner = [as_array(each) for each in value]
            value = [each if found is None else found for each, found in zip(value, inner, strict=True)]
        try:
            array = np.asarray(value)
        except (ValueError, OverflowError):  # lists of different lengths; a number beyond 64 bits
            return None
        if array.dtype.kind == "f" and (np.abs(array) > _EXACT_FLOAT).any():
            given = np.asarray(value, object)  # Python compares whole numbers with floats exactly
            if not ((given == array.astype(object)) | np.isnan(array)).all():
                return None
    return array if array is not None and array.dtype.kind in "biuf" else None


def file_bytes(value: object) -> bytes | None:
    """Return `value` if it is bytes, or the content of the file if it is a path. Return None for other values.

    Raises `BadInput` if the file cannot be read.
    """
    if is_undecoded(value) and isinstance(value, Mapping):
        value = value["bytes"] if value["bytes"] is not None else value["path"]
        if value is None:
            raise BadInput("an undecoded image without bytes and path")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return read_file(Path(value)) if isinstance(value, str | os.PathLike) else None


def _pixels(value: Any, field: Field, axes: Axes) -> Any:
    """Return the bytes of a file, or pixels with the dtype and axes of the kind."""
    data = file_bytes(value)
    if data is not None:
        return data
    kind = field.kind
    if is_pil_image(value):
        axes = "hwc"
        if kind == "image" and value.mode not in DEEP_MODES:
            value = value.convert("RGB")
        value = np.asarray(value)
    array = as_array(value)
    if array is None:
        raise BadInput(f"expected an image (bytes, a path, an array or a PIL image), found {type_name(value)}")
    pixels = _channels_last(array, kind, axes)
    if array.dtype.kind not in _DTYPE_KINDS[kind] or (kind == "image" and array.dtype != np.uint8):
        hint = "; remove ToTensor and Normalize, which scale pixels to floats, or use the kind number"
        expected = "uint16 or floats" if kind == "depth" else "uint8, which packer never makes by narrowing"
        raise BadInput(f"{form(array)} is not of kind {kind}: expected {expected}{hint * (array.dtype.kind == 'f')}")
    dtype: npt.DTypeLike = "uint16" if field.is_wide_mask else "uint8"
    if kind == "depth":
        dtype = array.dtype if array.dtype.name in _DEPTH_DTYPES else "uint16"  # PIL's mode I has 32 bits for 16
    try:
        return np.ascontiguousarray(cast_exactly(pixels, dtype))
    except BadInput as error:
        hint = "; masks of 16 bits are of kind mask:uint16" if dtype == "uint8" else ""
        raise BadInput(f"{kind}: {error.message}{hint}") from error


def _channels_last(array: npt.NDArray[Any], kind: str, axes: Axes) -> npt.NDArray[Any]:
    pixels = array[:, :, None] if array.ndim == 2 else array
    if array.ndim == 3 and axes != "hwc":
        has_first, has_last = array.shape[0] in (1, 3), array.shape[2] in (1, 3)
        if axes == "auto" and has_first and has_last:
            raise BadInput(f"{form(array)} may be (H, W, C) or (C, H, W): set axes='hwc' or axes='chw'")
        pixels = np.moveaxis(array, 0, 2) if axes == "chw" or has_first else array
    if pixels.ndim != 3 or not pixels.size or pixels.shape[2] not in _CHANNELS[kind]:
        expected = "(H, W), (H, W, 3) or (3, H, W)" if kind == "image" else "(H, W)"
        raise BadInput(f"{form(array)} is not of kind {kind}: expected {expected}")
    if kind != "image":
        return pixels[:, :, 0]
    return pixels if pixels.shape[2] == 3 else np.repeat(pixels, 3, axis=2)


def _numbers(value: object, field: Field) -> Any:
    """Convert a value to the dtype of the field. Round boxes and points to it. Other numbers must remain equal.

    The name of a class becomes its number.
    """
    if isinstance(value, str) and field.classes is not None:
        if value not in field.classes:
            raise BadInput(f"{value!r:.60}: expected one of {listed(field.classes)}")
        value = field.classes.index(value)
    array = number_array(value)
    if array is None:
        raise BadInput(f"expected {'numbers' if field.shape else 'a number'}, found {type_name(value)}: {value!r:.40}")
    if not array.size and field.shape and field.shape[0] is None and array.ndim != len(field.shape):
        array = array.reshape(0, *(length or 0 for length in field.shape[1:]))  # an empty list has no columns
    dtype = field.dtype or array.dtype
    if field.kind != "number" and array.dtype.kind == "f":
        array = round_floats(array, dtype)
    if field.kind == "boxes":
        check_boxes(array)
    array = cast_exactly(array, dtype)
    if field.kind == "number" and field.classes is not None and array.size:
        wrong = array[(array < 0) | (array >= len(field.classes))]
        if wrong.size:
            hint = "; test splits without labels have -1: leave the field out with fields=" if wrong[0] == -1 else ""
            raise BadInput(f"label {wrong[0]}: expected 0 to {len(field.classes) - 1}{hint}")
    return array if array.ndim else array[()]


def _json(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {str(name): _json(each) for name, each in value.items()}
    array = as_array(value)
    if array is None or array.dtype.kind not in "biufU":
        raise BadInput(f"expected what JSON can contain, found {type_name(value)}")
    return array.tolist()
