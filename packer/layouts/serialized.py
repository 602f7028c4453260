"""Serialized: plain values as pickle, MessagePack or pyarrow.serialize wrote them; the first bytes say which."""

from typing import Any, Literal

import numpy as np

from packer.errors import BadInput
from packer.layouts import arrow_payload, msgpack

Serializer = Literal["pyarrow", "msgpack", "pickle"]
_PAIR = 2
# lists and maps with something in them; a pickle begins with 0x80, or with an ASCII letter
_MSGPACK = frozenset((*range(0x81, 0xA0), *range(0xDC, 0xE0)))


def serializer_of(value: bytes) -> Serializer:
    """Which of them wrote a value, if any did."""
    if arrow_payload.is_payload(value):
        return "pyarrow"
    return "msgpack" if value and value[0] in _MSGPACK else "pickle"


def loads(value: bytes) -> Any:
    """The value: None, bool, int, float, str, bytes, tuple, list, dict, NumPy arrays and scalars.

    Raises BadInput for what is none, MissingPackage for one of pyarrow where that is absent.
    """
    from packer.layouts import pickled  # the table of all opcodes, which looking at a folder does without

    return {"pyarrow": arrow_payload, "msgpack": msgpack, "pickle": pickled}[serializer_of(value)].loads(value)


def pair(value: Any) -> tuple[bytes, int]:
    """Picture and label of an unpickled value, by their types; raises BadInput."""
    if not isinstance(value, (tuple, list)) or len(value) != _PAIR:
        raise BadInput(f"expected a pair of picture and label, found {type(value).__name__}")
    image, label = (_unwrapped(part) for part in value)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 1:
        image = image.tobytes()
    if isinstance(image, str):  # bytes of Python 2
        image = image.encode("latin-1", "replace")
    whole = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
    if not isinstance(image, bytes) or not whole or not -(1 << 63) <= int(label) < 1 << 63:
        raise BadInput(
            f"expected a picture and a whole number as its label, found {type(image).__name__} and "
            f"{type(label).__name__}"
        )
    return image, int(label)


def _unwrapped(value: Any) -> Any:
    """What a list or array of one holds: thecml/pytorch-lmdb stores batches of one."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        return value[0]
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu" and value.dtype != np.uint8:
        return value.reshape(-1)[0]
    return value
