"""Datum: Caffe's message of an image and its label, the value under each key of a Caffe LMDB.

Field numbers: 1 channels, 2 height, 3 width, 4 data, 5 label, 6 float_data, 7 encoded (absent: false).
Source: caffe.proto, message Datum.
"""

from typing import NamedTuple

from packer.errors import BadInput
from packer.images import file_suffixes
from packer.layouts import protobuf

_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _FLOATS, _ENCODED = range(1, 8)


class Datum(NamedTuple):
    """A parsed message.

    Attributes:
        channels: Channels of the image, 0 if the field is absent.
        height: Height in px, 0 if the field is absent.
        width: Width in px, 0 if the field is absent.
        data: An image file or pixels, see `is_encoded`; empty if the field is absent.
        label: The label, None if the field is absent.
        is_encoded: True if `data` is an image file. False if it contains uint8 pixels.
        has_floats: True if the message contains float_data, which is not parsed.
    """

    channels: int
    height: int
    width: int
    data: bytes
    label: int | None
    is_encoded: bool
    has_floats: bool


def parse(value: bytes) -> Datum:
    """Parse a message; raises BadInput if the bytes are not a Datum."""
    numbers: dict[int, int] = {}
    data, has_floats = b"", False
    for number, kind, content in protobuf.fields(memoryview(value)):
        if number == _DATA and isinstance(content, memoryview) and kind == protobuf.BYTES:
            data = bytes(content)
        elif number == _FLOATS and kind in (protobuf.BYTES, protobuf.FIXED32):
            has_floats = True
        elif number in (_CHANNELS, _HEIGHT, _WIDTH, _LABEL, _ENCODED) and isinstance(content, int):
            numbers[number] = protobuf.signed(content, 32)
        elif number <= _ENCODED:
            raise BadInput(f"not a Datum: field {number} has wire type {kind}")
    channels, height, width = (numbers.get(number, 0) for number in (_CHANNELS, _HEIGHT, _WIDTH))
    is_encoded = bool(numbers.get(_ENCODED, 0))
    if _ENCODED not in numbers and channels * height * width != len(data):
        is_encoded = bool(file_suffixes(data))  # as DALI does; Caffe would fail
    label = numbers.get(_LABEL)
    return Datum(channels, height, width, data, label, is_encoded=is_encoded, has_floats=has_floats)


def encoded(data: bytes, label: int, *, size: tuple[int, int, int] | None) -> tuple[bytes, int]:
    """Encode an image file and its label, with the bytes that protobuf writes.

    The fields label and encoded are always written: DALI requires the label. Without encoded, Caffe expects pixels.

    Args:
        data: The image file.
        label: An int32.
        size: Channels, height and width of the image. None omits them, as Caffe does for files that it does not decode.

    Returns:
        The encoded message, and the offset of the image file in it.
    """
    sizes = zip((_CHANNELS, _HEIGHT, _WIDTH), size or (), strict=False)
    before = b"".join(protobuf.integer(number, value) for number, value in sizes) + protobuf.head(_DATA, len(data))
    after = protobuf.integer(_LABEL, label) + protobuf.integer(_ENCODED, 1)
    return before + data + after, len(before)
