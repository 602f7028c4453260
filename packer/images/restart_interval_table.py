"""Restart interval table: finds the offset of each interval of a JPEG, by a table in the file or by its markers.

At a restart marker (T.81 E.1.4: FF D0 to FF D7, in turn), the predictors are reset and the bits are aligned. The data
between two markers can therefore be decoded alone. packer's files contain the length of each interval, which avoids a
search through the data. The table is an APP11 segment, which other readers skip. Integers are big-endian.

| offset | type         | content                                                    |
|--------|--------------|------------------------------------------------------------|
| 0      | 2 bytes      | FF EB                                                      |
| 2      | uint16       | length of the segment from here on, 10 + S n               |
| 4      | 7 bytes      | `packer` and a zero byte                                   |
| 11     | uint8        | S: 2 or 4                                                  |
| 12     | uint(8 S)[n] | bytes of each interval with its marker, in scan order      |

n is the number of intervals in a row times the rows of MCUs, which are in the frame. If the table does not fit into a
segment, the file has none.

A wrong table can show another part of the image: if it is shifted by eight intervals, all its markers have the right
numbers. `bounds` therefore uses it only with table=True, after `check_table` has compared it with every marker of the
file. Otherwise, `bounds` searches the markers.
"""

import struct

import numpy as np
import numpy.typing as npt

from packer.images.file_types._header_record import Buffer, Header, Intervals, damaged
from packer.images.file_types.jpeg import END, TABLE
from packer.system.thread_scratch import ThreadScratch

Bounds = npt.NDArray[np.int64]

_MARKER_BYTES = 2
HEAD_BYTES = 2 + len(TABLE) + 1
_LONGEST_SEGMENT = 0xFFFF
_AFTER_SOI = 2
_STUFFING, _FILL, _FIRST, _LAST = 0x00, 0xFF, 0xD0, 0xD9
_FIRST_APP, _LAST_APP = 0xE0, 0xEF
_ONE = np.uint8(1)
_scratch = ThreadScratch()  # each thread's own


def with_table(file: bytes, found: Header) -> bytes:
    """Return a JPEG with an added table of its restart intervals. Without intervals, or if it is too long, add none.

    `found` is the header of the file without a table. Raises DamagedImage if the markers do not fit the frame.
    """
    if found.intervals is None:
        return file
    places = bounds(file, found)
    if places is None:
        raise damaged("jpeg", "its restart markers are not in turn")
    lengths = np.diff(places)
    size = 2 if lengths.max() < 1 << 16 else 4
    if HEAD_BYTES + size * len(lengths) > _LONGEST_SEGMENT:
        return file
    head = struct.pack(">H7sB", HEAD_BYTES + size * len(lengths), TABLE, size)
    at = _AFTER_SOI
    if file[at + 1] == _FIRST_APP:  # JFIF must be the first segment
        at += 2 + int.from_bytes(file[at + 2 : at + 4], "big")
    return file[:at] + b"\xff\xeb" + head + lengths.astype(f">u{size}").tobytes() + file[at:]


def bounds(buffer: Buffer, found: Header, *, table: bool = False) -> Bounds | None:
    """Return offsets in the data of the scan, int64 (n + 1): the start of n intervals, and the end of the end marker.

    Each interval consists of data and a marker. Return None if the markers are not in order, or if the end marker is
    not at the end. Decoding the complete file then reports the damage.

    If `table` is True and the file has a table, the offsets come from the table, which `check_table` must have
    accepted. Then raise DamagedImage if the table does not match the frame or the end marker.
    """
    layout = found.intervals
    if layout is None:
        return None
    return _looked_up(buffer, found, layout) if table and layout.table_at else _looked_for(buffer, found, layout)


def check_table(buffer: Buffer, found: Header) -> None:
    """Compare the table of intervals, if the file has one, with all markers. Raise DamagedImage if they differ.

    The file must have as many markers as the table has entries, and the expected marker at the end of each entry.
    `bounds` then returns the same result with and without the table. The check takes about the time of a crc32.
    """
    layout = found.intervals
    if layout is None or not layout.table_at:
        return
    places = _looked_up(buffer, found, layout)
    if places is None:  # a file without its end marker is never cropped
        return
    there = pairs(buffer, found)[places[1:-1]]  # in turn, so that they are all different
    if there.tobytes() != markers_before(len(places) - 1)[1:].tobytes():
        raise disagreement("its restart markers")
    if _count_markers(np.frombuffer(buffer, np.uint8, int(places[-1]), found.data_at)) != len(places) - 1:
        raise disagreement("its restart markers")


def _count_markers(data: npt.NDArray[np.uint8]) -> int:
    """Count the bytes FF before a byte that is neither stuffing nor a fill byte.

    The memory of the thread is reused, because new memory would double the time.
    """
    size = len(data) - 1
    memory = _scratch.file(2 * size)[0]
    follows, found = memory[:size], memory.view(np.bool_)
    is_ff, is_marker = found[size : 2 * size], found[:size]
    np.subtract(data[1:], _ONE, out=follows)
    np.less(follows, _FILL - 1, out=is_marker)
    np.equal(data[:-1], _FILL, out=is_ff)
    return int(np.count_nonzero(np.logical_and(is_ff, is_marker, out=is_ff)))


def pairs(buffer: Buffer, found: Header) -> npt.NDArray[np.uint16]:
    """Return, for each offset in the scan's data, the two bytes before it, without a copy. Compare `markers_before`."""
    at = found.data_at - _MARKER_BYTES
    found_there: npt.NDArray[np.uint16] = np.ndarray((len(buffer) - 1 - at,), np.uint16, buffer, at, (1,))
    return found_there


def disagreement(what: str) -> Exception:
    """Return the error for a table of restart intervals that does not fit `what` in its file."""
    return damaged("jpeg", f"its table of restart intervals does not agree with {what}")


def _looked_up(buffer: Buffer, found: Header, layout: Intervals) -> Bounds | None:
    at, count = layout.table_at, layout.rows * layout.columns
    length, size = buffer[at] << 8 | buffer[at + 1], buffer[at + HEAD_BYTES - 1]
    if size not in (2, 4) or length != HEAD_BYTES + size * count:
        raise disagreement("its frame")
    lengths = np.frombuffer(buffer, ">u2" if size == 2 else ">u4", count, at + HEAD_BYTES)
    places = np.zeros(count + 1, np.int64)
    np.add.accumulate(lengths, dtype=np.int64, out=places[1:])
    end = found.data_at + int(places[-1])
    if buffer[end - 2 : end] == END:
        return places
    if end - 2 == len(buffer) and buffer[-2:] != END:  # only the end marker is missing
        return None
    raise disagreement("its end")


def _looked_for(buffer: Buffer, found: Header, layout: Intervals) -> Bounds | None:
    count = layout.rows * layout.columns
    data = np.frombuffer(buffer, np.uint8)[found.data_at :]
    places = np.flatnonzero(data[:-1] == 0xFF)
    codes = data[1:][places]
    marks = (codes != _STUFFING) & (codes != _FILL)
    places, codes = places[marks][:count], codes[marks][:count]
    if len(places) < count or codes[-1] != _LAST or codes[:-1].tobytes() != codes_before(count)[1:].tobytes():
        return None
    return np.concatenate(([0], places + _MARKER_BYTES))


_TURN = np.array([0xFFD7, *range(0xFFD0, 0xFFD7)], ">u2").view(np.uint16)  # in the order of the bytes
_MARKERS = np.tile(_TURN, 1 << 12)


def markers_before(count: int) -> npt.NDArray[np.uint16]:
    """Return the marker before each interval, uint16 (count), read-only. Element 0 is FF D7, although none is there."""
    return _MARKERS[:count] if count <= len(_MARKERS) else np.resize(_TURN, count)


def codes_before(count: int) -> npt.NDArray[np.uint8]:
    """Return the second byte of each element of `markers_before`, uint8 (count)."""
    return markers_before(count).view(np.uint8)[1::2]
