"""protobuf: the fields of one encoded message, read and written without a schema compiler.

Wire format: a tag, varint `number << 3 | type`, then a varint (type 0), 8 bytes (1), a length and as many bytes (2), or
4 bytes (5). Groups (3, 4) are refused. Source: protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MOST_NUMBER = (1 << 29) - 1
_SIZES = {FIXED64: 8, FIXED32: 4}


def fields(message: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield (number, type, content) of each field in the order of the message; raises BadInput for a damaged message.

    The type is VARINT, FIXED64, BYTES or FIXED32. The content is an int for VARINT, else a view of the message.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= _MOST_NUMBER:
            raise BadInput(f"no sound message: field number {number} at byte {at}")
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = varint(message, at)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise BadInput(f"no sound message: wire type {kind} at byte {at}")
        if size > end - at:
            raise BadInput(f"no sound message: a field of {size} bytes at byte {at}, {end - at} are left")
        yield number, kind, message[at : at + size]
        at += size


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the unsigned 64-bit number at the offset `at`, and the offset of the next byte; raises BadInput."""
    value = shift = 0
    for place in range(at, min(at + 10, len(message))):
        byte = message[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, place + 1
        shift += 7
    raise BadInput(f"no sound message: a number at byte {at} does not end")


def signed(value: int, bits: int = 64) -> int:
    """Return the signed value of a varint in two's complement; `bits` is 32 for an int32 field, 64 for int64."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def packed_varints(content: memoryview) -> npt.NDArray[np.int64]:
    """Return the numbers of a packed int64 list; raises BadInput."""
    data = np.frombuffer(content, np.uint8)
    if not len(data):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(data < 128)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    if not len(ends) or ends[-1] != len(data) - 1 or (ends - starts).max() > 9:
        raise BadInput("no sound message: a list of numbers that does not end where it should")
    places = (np.arange(len(data)) - np.repeat(starts, ends - starts + 1)).astype(np.uint64)
    parts = (data & 127).astype(np.uint64) << (places * np.uint64(7))
    return np.add.reduceat(parts, starts).astype(np.int64)


# ---- writing

_MOST_AT_ONCE = 1 << 14  # numbers; each needs 100 bytes of memory
_SHIFTS = 7 * np.arange(10, dtype=np.uint64)
_SHORT = tuple(bytes((value,)) for value in range(128))


def number(value: int) -> bytes:
    """Return a number as a varint; a negative one in two's complement of 64 bits, as in int32 and int64 fields."""
    if 0 <= value < 128:  # most tags and lengths
        return _SHORT[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def packed(values: npt.NDArray[np.int64]) -> bytes:
    """Return the varints of a packed int64 list."""
    if len(values) < 32:  # NumPy is slower for short lists
        return b"".join(map(number, values.tolist()))
    return b"".join(_varints(values[at : at + _MOST_AT_ONCE]) for at in range(0, len(values), _MOST_AT_ONCE))


def _varints(values: npt.NDArray[np.int64]) -> bytes:
    rest = values.view(np.uint64)[:, None] >> _SHIFTS
    is_there = rest != 0
    is_there[:, 0] = True
    places = (rest & np.uint64(127)).astype(np.uint8)
    places[:, :-1] |= is_there[:, 1:].astype(np.uint8) << 7
    return bytes(places[is_there].tobytes())


def integer(field: int, value: int) -> bytes:
    """Return the encoded field of number `field` with a varint as content."""
    return number(field << 3 | VARINT) + number(value)


def head(field: int, size: int) -> bytes:
    """Return the tag and length of the field of number `field`: text, bytes or a message of `size` bytes."""
    return number(field << 3 | BYTES) + number(size)


def delimited(field: int, content: bytes) -> bytes:
    """Return the encoded field of number `field`, with text, bytes or a message as content."""
    return head(field, len(content)) + content
