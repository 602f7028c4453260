"""crc32c: the checksum of TFRecord frames, CRC-32C (Castagnoli).

google-crc32c computes it where it is installed, in 3 us for a picture of 44 KB; elsewhere NumPy does, in 200 us, so
that TFRecord files can be read and written without a further package. A checksum over n bytes is linear in them: NumPy
takes it of all 64-byte rows of the data at once, a row per lane, and the results are then joined two by two.
Source: RFC 3720, appendix B.4 (polynomial 0x1EDC6F41, here bit-reversed); Mark Adler, crc32_combine in zlib.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.schema import Buffer

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_ROW_BYTES = 64
_SHORT_BYTES = 256  # below it lanes are too few to be worth it

_Words = npt.NDArray[np.uint32]


def _table() -> list[int]:
    """What each byte does to a checksum."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: Buffer) -> int:
    """The checksum of some bytes; 0xE3069283 for b"123456789"."""
    compiled = _compiled()
    return _by_numpy(data) if compiled is None else compiled(bytes(data))


@lru_cache(maxsize=1)
def _compiled() -> Callable[[bytes], int] | None:
    """google-crc32c's function, None where that is not installed or has no compiled part."""
    with suppress(ImportError):
        module: Any = import_module("google_crc32c")
        if module.implementation == "c":
            value: Callable[[bytes], int] = module.value
            return value
    return None


def _by_numpy(data: Buffer) -> int:
    rows = len(data) // _ROW_BYTES if len(data) >= _SHORT_BYTES else 0
    state = _ONES
    if rows:
        columns = np.frombuffer(data, "<u4", rows * _ROW_BYTES // 4).reshape(rows, -1).T.copy()
        columns[0, 0] ^= _ONES  # as if the state before were 0
        state = _joined(_rows(columns))
    for byte in bytes(data[rows * _ROW_BYTES :]):
        state = state >> 8 ^ _TABLE[(state ^ byte) & 255]
    return state ^ _ONES


def masked_crc32c(data: Buffer) -> int:
    """The checksum as TFRecord stores it: turned and moved, so that checksums of checksums do not vanish."""
    found = crc32c(data)
    return ((found >> 15 | found << 17) + 0xA282EAD8) & _ONES


def _rows(columns: _Words) -> _Words:
    """The state after each row, begun with 0; columns: the first four bytes of all rows, then the next four, ..."""
    low, high = _pair_tables()
    states = np.zeros(columns.shape[1], "<u4")
    for column in columns:
        states ^= column
        halves = states.view("<u2")
        states = low.take(halves[0::2]) ^ high.take(halves[1::2])
    return states


def _joined(states: _Words) -> int:
    """The state after all rows, begun with 0."""
    level = 0
    while len(states) > 1:
        if len(states) % 2:  # an empty row in front changes nothing
            states = np.concatenate([np.zeros(1, "<u4"), states])
        states = _moved(states[0::2], level) ^ states[1::2]
        level += 1
    return int(states[0])


def _moved(states: _Words, level: int) -> _Words:
    """States as they are 2^level rows of zeros later."""
    tables = _zero_tables(level)
    places = np.ascontiguousarray(states).view(np.uint8).reshape(-1, 4)
    found: _Words = tables[0].take(places[:, 0])
    for place in range(1, 4):
        found ^= tables[place].take(places[:, place])
    return found


@lru_cache(maxsize=1)
def _pair_tables() -> tuple[_Words, _Words]:
    """What four bytes in a state become, by the low and by the high two of them."""
    table = np.asarray(_TABLE, "<u4")

    def after(values: _Words, count: int) -> _Words:
        for _ in range(count):
            values = values >> np.uint32(8) ^ table[values & 255]
        return values

    halves = np.arange(1 << 16, dtype="<u4")
    return after(halves, 4), after(halves << np.uint32(16), 4)


@lru_cache(maxsize=64)
def _zero_tables(level: int) -> _Words:
    """What 2^level rows of zeros make of each byte of a state: 4 tables of 256."""
    if level == 0:
        values = (np.arange(256, dtype="<u4")[None, :] << (8 * np.arange(4, dtype=np.uint32))[:, None]).ravel()
        table = np.asarray(_TABLE, "<u4")
        for _ in range(_ROW_BYTES):
            values = values >> np.uint32(8) ^ table[values & 255]
        return values.reshape(4, 256)
    return _moved(_zero_tables(level - 1).ravel(), level - 1).reshape(4, 256)
