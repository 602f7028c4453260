"""msgpack: plain values out of MessagePack, with the arrays of msgpack-numpy.

Extension types are refused. Texts that are no UTF-8 are bytes, as msgpack's older writers mix them.
Layout: github.com/msgpack/msgpack, spec.md; of arrays, msgpack_numpy.py: a map of nd, type, kind, shape and data.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from packer.errors import BadInput
from packer.files.npy_arrays import dtype_of

_MOST_DEPTH = 32
_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS = (">B", ">H", ">I")
_BIN, _STR, _ARRAY, _MAP = 0xC4, 0xD9, 0xDC, 0xDE  # the first code of each, with the shortest length
_KINDS = "biuf"


def loads(data: bytes) -> Any:
    """The value: None, bool, int, float, str, bytes, list, dict, NumPy arrays and scalars; raises BadInput."""
    reader = _Reader(data)
    try:
        value = reader.value(_MOST_DEPTH)
    except (struct.error, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"damaged: no MessagePack of plain values: {error}") from error
    if reader.at != len(data):
        raise BadInput(f"damaged: MessagePack that ends at byte {reader.at} of {len(data)}")
    return value


class _Reader:
    """at: the byte to go on at."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data

    def value(self, depth: int) -> Any:
        """The value that begins here; depth: how many more may lie in each other."""
        if depth == 0:
            raise BadInput(f"MessagePack of values in values, {_MOST_DEPTH} deep")
        code = self._number(">B")
        if code <= 0x7F or code >= 0xE0:
            return code if code <= 0x7F else code - 256
        if code <= 0x8F:
            return self._map(code & 15, depth)
        if code <= 0x9F:
            return self._list(code & 15, depth)
        if code <= 0xBF:
            return self._text(code & 31)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _NUMBERS:
            return self._number(_NUMBERS[code])
        of_length: Mapping[int, tuple[tuple[str, ...], Callable[[int], Any]]] = {
            _BIN: (_LENGTHS, self._bytes),
            _STR: (_LENGTHS, self._text),
            _ARRAY: (_LENGTHS[1:], lambda count: self._list(count, depth)),
            _MAP: (_LENGTHS[1:], lambda count: self._map(count, depth)),
        }
        for first, (lengths, read) in of_length.items():
            if first <= code < first + len(lengths):
                return read(self._number(lengths[code - first]))
        raise BadInput(f"MessagePack with the code {code:#04x}: an extension, expected plain values")

    def _number(self, form: str) -> Any:
        (found,) = struct.unpack_from(form, self._data, self.at)
        self.at += struct.calcsize(form)
        return found

    def _bytes(self, size: int) -> bytes:
        found = self._data[self.at : self.at + size]
        if len(found) < size:
            raise BadInput(f"damaged: MessagePack that is cut: {size} bytes were to follow, {len(found)} do")
        self.at += size
        return found

    def _text(self, size: int) -> str | bytes:
        found = self._bytes(size)
        try:
            return found.decode("utf-8")
        except UnicodeDecodeError:
            return found

    def _list(self, count: int, depth: int) -> list[Any]:
        self._check(count)
        return [self.value(depth - 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> Any:
        self._check(2 * count)
        found = {}
        for _ in range(count):
            key = self.value(depth - 1)
            if not isinstance(key, (str, bytes, int)):
                raise BadInput(f"MessagePack with a key that is a {type(key).__name__}")
            found[key] = self.value(depth - 1)
        named = {key.encode() if isinstance(key, str) else key: value for key, value in found.items()}
        return _array(named) if b"nd" in named else found

    def _check(self, count: int) -> None:
        """Each entry has a byte at least."""
        if count > len(self._data) - self.at:
            raise BadInput(f"damaged: MessagePack that is cut: {count} values were to follow")


def _array(found: Mapping[Any, Any]) -> Any:
    """What msgpack-numpy means: an array, or a scalar where nd is false; raises BadInput."""
    kind, data = found.get(b"type"), found.get(b"data")
    kind = kind.decode("latin-1") if isinstance(kind, bytes) else kind
    data = data.encode() if isinstance(data, str) else data  # of a writer that knows no bytes
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
