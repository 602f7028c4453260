"""RecordIO frames: the frames around each record of a .rec file, and im2rec's header of an image's record.

Little-endian; records begin at multiples of 4:

| structure | content                                                                                                 |
|-----------|---------------------------------------------------------------------------------------------------------|
| frame     | u32 0xced7230a, u32 part << 29 | length, the bytes, zeros up to a multiple of 4                         |
| part      | 0 a complete record; 1 first, 2 middle, 3 last frame of a record that is split where it contains the    |
|           | magic number at a multiple of 4, which is omitted there                                                 |
| record    | u32 flag, f32 label, u64 id, u64 id2; `flag` float32 labels if it is not 0; the image                   |
| index     | a line `number<TAB>offset`                                                                              |
| list      | a line `number<TAB>label ...<TAB>path`                                                                  |

Source: dmlc-core, include/dmlc/recordio.h; python/mxnet/recordio.py.
"""

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput

MAGIC = 0xCED7230A
KEY = struct.pack("<I", MAGIC)
WHOLE, FIRST, MIDDLE, LAST = 0, 1, 2, 3
LENGTH = (1 << 29) - 1
HEADER = struct.Struct("<IfQQ")  # flag, label, id, id2
MOST_BYTES = LENGTH  # of one record, header included


def unframed(record: bytes) -> bytes:
    """Return the content of a record from all of its frames; raise BadInput if a frame is missing or damaged."""
    pieces: list[bytes] = []
    at = 0
    while True:
        if at + 8 > len(record):
            raise BadInput("damaged: a frame is missing; get the file again")
        magic, word = struct.unpack_from("<II", record, at)
        part, length = word >> 29, word & LENGTH
        piece = record[at + 8 : at + 8 + length]
        if magic != MAGIC or len(piece) < length or (part in (MIDDLE, LAST)) != bool(pieces) or part > LAST:
            raise BadInput("damaged: expected the start of a frame; get the file again")
        pieces += [KEY, piece] if pieces else [piece]
        at += 8 + (length + 3 & ~3)
        if part in (WHOLE, LAST):
            return b"".join(pieces) if len(pieces) > 1 else piece


def unpacked(data: bytes) -> tuple[npt.NDArray[np.float32], bytes]:
    """Return the labels, float32 (n,), and the image file of a record's content; raises BadInput if it is too short."""
    if len(data) < HEADER.size:
        raise BadInput(f"the record has {len(data)} bytes, expected a header of 24 and an image")
    flag, label, _, _ = HEADER.unpack_from(data)
    end = HEADER.size + 4 * flag
    if end > len(data):
        raise BadInput(f"the record has {len(data)} bytes, its {flag} labels would take {end}")
    if not flag:
        return np.frombuffer(data, "<f4", 1, 4).astype(np.float32), data[HEADER.size :]
    return np.frombuffer(data, "<f4", flag, HEADER.size).astype(np.float32), data[end:]


# ---- writing


def frames(data: bytes, cuts: Sequence[int]) -> tuple[bytes, ...]:
    """Return the frames of a record as pieces of bytes to write one after the other, equal to those of dmlc-core.

    Args:
        data: The content of the record.
        cuts: Result of `magic_places(data)`.

    Raises:
        ValueError: The record has more than MOST_BYTES.
    """
    if len(data) > MOST_BYTES:
        raise ValueError(f"a record of {len(data)} bytes, RecordIO holds at most {MOST_BYTES}")
    out, start = list[bytes](), 0
    for cut in cuts:
        out += [struct.pack("<II", MAGIC, (MIDDLE if start else FIRST) << 29 | cut - start), data[start:cut]]
        start = cut + len(KEY)
    last = struct.pack("<II", MAGIC, (LAST if cuts else WHOLE) << 29 | len(data) - start)
    return (*out, last, data[start:], bytes(-len(data) % 4))


def magic_places(data: bytes) -> list[int]:
    """Return the offsets of the magic number in `data` that are multiples of 4. A record is split there."""
    words = np.frombuffer(data, "<u4", len(data) // 4)  # faster than bytes.find
    places: list[int] = (4 * np.flatnonzero(words == MAGIC)).tolist()
    return places


def image_header(labels: float | Sequence[float], number: int) -> bytes:
    """Return the header of an image's record with one or more labels; `number` is its number in the index."""
    if isinstance(labels, (int, float)):
        return HEADER.pack(0, labels, number, 0)
    vector = np.asarray(labels, "<f4")
    return HEADER.pack(len(vector), 0, number, 0) + vector.tobytes()
