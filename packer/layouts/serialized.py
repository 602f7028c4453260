"""Serialized: plain values that pickle, MessagePack or pyarrow.serialize wrote; the first bytes show which.

Layout of arrays in MessagePack: msgpack_numpy.py, a map of nd, type, kind, shape and data.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from packer.errors import BadInput
from packer.files.npy_arrays import dtype_of
from packer.layouts import pyarrow_serialized
from packer.registry import import_or_explain

Serializer = Literal["pyarrow", "msgpack", "pickle"]
# lists and maps with something in them; a pickle begins with 0x80, or with an ASCII letter
_MSGPACK = frozenset((*range(0x81, 0xA0), *range(0xDC, 0xE0)))
_MOST_DEPTH = 32  # of MessagePack
_KINDS = "biuf"
_SURROGATE = re.compile("[\udc80-\udcff]")


def serializer_of(value: bytes) -> Serializer:
    """Return the serializer that wrote a value, by the first bytes; "pickle" if no other matches."""
    if pyarrow_serialized.is_payload(value):
        return "pyarrow"
    return "msgpack" if value and value[0] in _MSGPACK else "pickle"


def loads(value: bytes) -> Any:
    """Read the value: None, bool, int, float, str, bytes, tuple, list, dict, NumPy arrays and scalars.

    Raises BadInput for anything else, MissingPackage if pyarrow or msgpack is needed and absent.
    """
    from packer.layouts import pickled  # imports a large table, which is not always needed

    readers = {"pyarrow": pyarrow_serialized.loads, "msgpack": msgpack_value, "pickle": pickled.loads}
    return readers[serializer_of(value)](value)


def msgpack_value(data: bytes) -> Any:
    """Read MessagePack: None, bool, int, float, str, bytes, list, dict, NumPy arrays and scalars.

    Texts that are not UTF-8 become bytes: older writers of msgpack store bytes as text. Raises BadInput for extensions
    and damage, MissingPackage without msgpack.
    """
    msgpack = import_or_explain("msgpack", "MessagePack")
    try:
        return _plain(msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogateescape"), _MOST_DEPTH)
    except BadInput:
        raise
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInput(f"damaged: not MessagePack of plain values: {error}") from error


def _plain(value: Any, depth: int) -> Any:
    """Return the value with arrays instead of maps of msgpack-numpy, and bytes instead of texts that are not UTF-8."""
    if depth == 0:
        raise BadInput(f"MessagePack of values in values, {_MOST_DEPTH} deep")
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape") if _SURROGATE.search(value) else value
    if isinstance(value, list):
        return [_plain(item, depth - 1) for item in value]
    if isinstance(value, dict):
        found = {}
        for key, item in value.items():
            if not isinstance(key, (str, bytes, int)):
                raise BadInput(f"MessagePack with a key that is a {type(key).__name__}")
            found[_plain(key, depth - 1)] = _plain(item, depth - 1)
        named = {key.encode() if isinstance(key, str) else key: item for key, item in found.items()}
        return _array(named) if b"nd" in named else found
    if value is not None and not isinstance(value, (bool, int, float, bytes)):
        raise BadInput(f"MessagePack with an extension ({type(value).__name__}), expected plain values")
    return value


def _array(found: Mapping[Any, Any]) -> Any:
    """Return the array that a map of msgpack-numpy describes, or a scalar if its `nd` is false; raises BadInput."""
    kind, data = found.get(b"type"), found.get(b"data")
    kind = kind.decode("latin-1") if isinstance(kind, bytes) else kind
    data = data.encode() if isinstance(data, str) else data  # from a writer without bytes
    if not isinstance(kind, str) or not isinstance(data, bytes):
        raise BadInput("an array of msgpack-numpy without its type or its data, or of a structured dtype")
    try:
        dtype = dtype_of(kind)
    except ValueError as error:
        raise BadInput(f"an array of msgpack-numpy: {error}") from None
    if dtype.kind not in _KINDS:
        raise BadInput(f"an array of dtype {kind[:40]}: expected numbers")
    values = np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))
    if not found[b"nd"]:
        if values.size != 1:
            raise BadInput(f"{values.size} numbers of msgpack-numpy: expected one")
        return values[0]
    shape = found.get(b"shape")
    if not isinstance(shape, list) or any(type(length) is not int or length < 0 for length in shape) or len(shape) > 8:
        raise BadInput("an array of msgpack-numpy without a shape")
    return values.reshape(shape)


def pair(value: Any) -> tuple[bytes, int]:
    """Return (image file, label) of a result of `loads`; raise BadInput unless it is a pair of bytes and an int64.

    The image may be text of Python 2 or a uint8 array. Image and label may each be in a list or array of one.
    """
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise BadInput(f"expected a pair of image and label, found {type(value).__name__}")
    image, label = (_unwrapped(part) for part in value)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 1:
        image = image.tobytes()
    if isinstance(image, str):  # bytes of Python 2
        image = image.encode("latin-1", "replace")
    whole = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
    if not isinstance(image, bytes) or not whole or not -(1 << 63) <= int(label) < 1 << 63:
        raise BadInput(
            f"expected an image and a whole number as its label, found {type(image).__name__} and "
            f"{type(label).__name__}"
        )
    return image, int(label)


def _unwrapped(value: Any) -> Any:
    """Return the item of a list, tuple or array of one item, as thecml/pytorch-lmdb stores; else the value."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        return value[0]
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu" and value.dtype != np.uint8:
        return value.reshape(-1)[0]
    return value
