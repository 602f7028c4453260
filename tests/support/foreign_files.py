"""Files as other tools write them, made by code: TFRecord, RecordIO, N5, and what comes with them."""

import bz2
import gzip
import itertools
import json
import lzma
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt

from packer.layouts.tfrecord_frames import masked_crc32c


def varint(number: int) -> bytes:
    """A protobuf varint; negative ones in two's complement of 64 bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def delimited(field: int, body: bytes) -> bytes:
    """A field of bytes, text or message."""
    return varint(field << 3 | 2) + varint(len(body)) + body


# ---- tf.train.Example


def bytes_list(*values: bytes) -> bytes:
    """A Feature."""
    return delimited(1, b"".join(delimited(1, value) for value in values))


def float_list(values: Sequence[float], *, packed: bool = True) -> bytes:
    """A Feature."""
    data = np.asarray(values, "<f4")
    if packed:
        return delimited(2, delimited(1, data.tobytes()))
    return delimited(2, b"".join(varint(1 << 3 | 5) + value.tobytes() for value in data))


def int64_list(values: Iterable[int], *, packed: bool = True) -> bytes:
    """A Feature."""
    if packed:
        return delimited(3, delimited(1, b"".join(map(varint, values))))
    return delimited(3, b"".join(varint(1 << 3) + varint(value) for value in values))


def example(features: Mapping[str, bytes]) -> bytes:
    """An Example of such Features."""
    entries = (delimited(1, delimited(1, name.encode()) + delimited(2, value)) for name, value in features.items())
    return delimited(1, b"".join(entries))


def tfrecord(records: Iterable[bytes]) -> bytes:
    """A TFRecord file."""
    return b"".join(map(tfrecord_frame, records))


def tfrecord_frame(data: bytes) -> bytes:
    """One record of it."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def tfrecord_index(records: Iterable[bytes]) -> str:
    """As tfrecord2idx writes it."""
    lines, at = [], 0
    for data in records:
        lines.append(f"{at} {16 + len(data)}\n")
        at += 16 + len(data)
    return "".join(lines)


# ---- RecordIO

RECORDIO_MAGIC = 0xCED7230A
_KEY = struct.pack("<I", RECORDIO_MAGIC)


def recordio_frame(data: bytes) -> bytes:
    """One record, cut where it holds the magic at a multiple of 4, as dmlc-core cuts it."""
    cuts, end, at = [], len(data) & ~3, data.find(_KEY)
    while 0 <= at < end:
        if at % 4 == 0:
            cuts.append(at)
        at = data.find(_KEY, at + (4 if at % 4 == 0 else 1))
    out, start = bytearray(), 0
    for cut in cuts:
        out += struct.pack("<II", RECORDIO_MAGIC, (2 if start else 1) << 29 | cut - start) + data[start:cut]
        start = cut + 4
    out += struct.pack("<II", RECORDIO_MAGIC, (3 if cuts else 0) << 29 | len(data) - start) + data[start:]
    return bytes(out) + bytes(-len(data) % 4)


def recordio_image(image: bytes, label: float | Sequence[float], number: int = 0) -> bytes:
    """The bytes of im2rec's record."""
    if isinstance(label, Sequence):
        labels = np.asarray(label, "<f4")
        return struct.pack("<IfQQ", len(labels), 0, number, 0) + labels.tobytes() + image
    return struct.pack("<IfQQ", 0, label, number, 0) + image


def recordio(records: Iterable[bytes]) -> bytes:
    """A .rec file."""
    return b"".join(map(recordio_frame, records))


def recordio_index(records: Iterable[bytes], numbers: Iterable[int]) -> str:
    """Its .idx."""
    lines, at = [], 0
    for data, number in zip(records, numbers, strict=True):
        lines.append(f"{number}\t{at}\n")
        at += len(recordio_frame(data))
    return "".join(lines)


# ---- tar


def tar_header(
    name: bytes, size: int, *, kind: bytes = b"0", prefix: bytes = b"", magic: bytes = b"ustar\x0000"
) -> bytes:
    """A header of 512 bytes."""
    fields = (name.ljust(100, b"\0"), b"0000644\0", b"0000000\0" * 2, b"%011o\0" % size, b"%011o\0" % 0)
    start = b"".join(fields) + b" " * 8 + kind + bytes(100) + magic + bytes(80) + prefix.ljust(155, b"\0") + bytes(12)
    return start[:148] + b"%06o\0 " % sum(start) + start[156:]


def tar_member(name: str, data: bytes, **how: bytes) -> bytes:
    """A header and its data; a name of more than 100 bytes is cut at its first slash, as ustar does."""
    raw, prefix = name.encode(), b""
    if len(raw) > 100:
        prefix, _, raw = raw.partition(b"/")
    return tar_header(raw, len(data), **{"prefix": prefix, **how}) + data + bytes(-len(data) % 512)


def tar_archive(members: Mapping[str, bytes]) -> bytes:
    """A tar file of regular members."""
    return b"".join(tar_member(name, data) for name, data in members.items()) + bytes(1024)


# ---- LMDB


def lmdb_environment(path: Path, entries: Mapping[bytes, bytes], *, is_folder: bool = True) -> Path:
    """An LMDB as py-lmdb writes it; a folder with data.mdb, or one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(path), subdir=is_folder, map_size=64 << 20, sync=False) as env, env.begin(write=True) as begun:
        for key, value in entries.items():
            begun.put(key, value)
    return path


def datum(
    data: bytes, label: int | None, channels: int = 0, height: int = 0, width: int = 0, *, encoded: bool | None = True
) -> bytes:
    """Caffe's message; None and 0 leave fields out, apart from the label."""
    out = b"".join(
        varint(number << 3) + varint(value) for number, value in ((1, channels), (2, height), (3, width)) if value
    )
    out += delimited(4, data)
    out += b"" if label is None else varint(5 << 3) + varint(label)
    return out + (b"" if encoded is None else varint(7 << 3) + varint(encoded))


# ---- N5


def n5_dataset(
    path: Path,
    array: npt.NDArray[Any],
    *,
    block: tuple[int, ...],
    compression: str = "gzip",
    is_short: bool = True,
) -> Path:
    """A data set of an array in C order; block: of it. is_short: whether blocks at the edge are cut."""
    said = {
        "dimensions": array.shape[::-1],
        "blockSize": block[::-1],
        "dataType": array.dtype.name,
        "compression": {"type": compression},
    }
    path.mkdir(parents=True, exist_ok=True)
    (path / "attributes.json").write_text(json.dumps(said))
    pack = {"raw": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}[compression]
    steps = zip(array.shape, block, strict=True)
    for place in itertools.product(*(range(-(-length // step)) for length, step in steps)):
        starts = [at * step for at, step in zip(place, block, strict=True)]
        piece = array[tuple(slice(start, start + step) for start, step in zip(starts, block, strict=True))]
        if not is_short:
            piece = np.pad(piece, [(0, step - length) for step, length in zip(block, piece.shape, strict=True)])
        header = struct.pack(f">HH{piece.ndim}I", 0, piece.ndim, *piece.shape[::-1])
        file = path.joinpath(*map(str, place[::-1]))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(header + pack(piece.astype(piece.dtype.newbyteorder(">")).tobytes()))
    return path
