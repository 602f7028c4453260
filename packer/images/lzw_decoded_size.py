"""LZW decoded size: computes how many bytes a compressed stream decodes to, without decoding it.

Layout: TIFF 6.0 section 13: codes of 9 to 12 bit, the most significant bit first. Code 256 clears the table, and 257
ends the data. The width of a code depends only on the number of codes since the last clear. All codes up to the next
clear are therefore extracted at once. The string of a code is one byte longer than that of its parent. Pointer doubling
adds the lengths.
"""

import numpy as np
import numpy.typing as npt

from packer.images.file_types._header_record import Buffer, damaged

_CLEAR, _END, _FIRST = 256, 257, 258
# libtiff's decoder has 4096 + 1024 entries, for encoders that clear the table late
_MOST_CODES = 4096 + 1024 - _FIRST
_STEPS = 8
_NUMBERS = np.arange(_MOST_CODES)
# codes become one bit wider at the entries 511, 1023 and 2047 ("early change")
_WIDTHS = 9 + np.searchsorted([254, 766, 1790], _NUMBERS, side="right")
_ENDS = np.cumsum(_WIDTHS)
_MASKS = ((1 << _WIDTHS) - 1).astype(np.int64)
_STARTS = [_ENDS - _WIDTHS + phase for phase in range(8)]
_BYTES = [start >> 3 for start in _STARTS]
_SHIFTS = [(24 - (start & 7) - _WIDTHS).astype(np.int64) for start in _STARTS]  # a code is within three bytes
# each clear costs a pass over a full table; encoders clear when the table is full
_SPARE_CLEARS, _CLEAR_STORED_BYTES, _CLEAR_DECODED_BYTES = 64, 512, 4096


def decoded_size(stream: Buffer, what: str, *, most: int) -> int:
    """Return the number of bytes that a stream decodes to.

    Args:
        stream: The stream.
        what: Name of the stream in messages.
        most: Largest number of bytes to which it may decode.

    Raises:
        DamagedImage: The stream does not begin with a clear, decodes to more than `most` bytes, or contains a code that
            has no entry yet. Or it has the lowest bit first, like streams of libtiff before 1989.
    """
    if len(stream) < 2 or stream[0] != 0x80 or stream[1] > 0x7F:
        old = len(stream) > 1 and not stream[0] and stream[1] & 1
        found = "is of the old kind, with the lowest bit first" if old else "does not begin with a clear code"
        raise damaged("tiff", f"{what}: its LZW data {found}")
    window = np.zeros(len(stream) + 2, np.int64)
    window[:-2] = np.frombuffer(stream, np.uint8)
    window = window[:-2] << 16 | window[1:-1] << 8 | window[2:]
    bits, at, size = 8 * len(stream), 9, 0
    most_clears = _SPARE_CLEARS + len(stream) // _CLEAR_STORED_BYTES + most // _CLEAR_DECODED_BYTES
    for _ in range(most_clears):
        codes = _codes(window, at, bits)
        marks = (codes ^ _CLEAR) < 2  # 256 and 257
        count = int(marks.argmax()) if marks.any() else len(codes)
        size += _size(codes[:count], what)
        if size > most:
            raise damaged("tiff", f"{what}: its LZW data decode to more than {most} bytes")
        if count == len(codes):
            if count == _MOST_CODES:
                raise damaged("tiff", f"{what}: its LZW data have {count} codes without a clear")
            return size
        if codes[count] == _END:
            return size
        at += int(_ENDS[count])
    raise damaged("tiff", f"{what}: its LZW data have more than {most_clears} clear codes, the limit")


def _codes(window: npt.NDArray[np.int64], at: int, bits: int) -> npt.NDArray[np.int64]:
    """Return the codes from bit `at` on, which are wrong after the next clear. `window` has 24 bits from each byte."""
    count = int(np.searchsorted(_ENDS, bits - at, side="right"))
    start, phase = at >> 3, at & 7
    codes: npt.NDArray[np.int64] = window[start:].take(_BYTES[phase][:count])
    codes >>= _SHIFTS[phase][:count]
    codes &= _MASKS[:count]
    return codes


def _size(codes: npt.NDArray[np.int64], what: str) -> int:
    """Return the number of bytes that the codes between two clears decode to; raise DamagedImage."""
    # entry 258 + k exists from code k + 1 on: the string of code k and one byte
    parents = codes - _FIRST
    if (parents >= _NUMBERS[: len(codes)]).any():
        raise damaged("tiff", f"{what}: its LZW data contain a code that is not defined yet")
    size, longer = len(codes), parents[parents >= 0]
    for _ in range(_STEPS):  # few strings of photographs are long
        if not len(longer):
            return size
        size += len(longer)
        longer = parents[longer]
        longer = longer[longer >= 0]
    return size + int(_lengths(parents)[longer].sum())


def _lengths(parents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the length of each code's string, then 0. `parents` are positions of prefixes, or negative numbers."""
    count = len(parents)
    lengths = np.ones(count + 1, np.int64)
    lengths[count] = 0  # parent of literals
    parents = np.append(np.where(parents < 0, count, parents), count)
    while (parents != count).any():
        lengths += lengths[parents]
        parents = parents[parents]
    return lengths
