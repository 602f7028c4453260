"""A part of another tool's format: the places of values that its table says, and RecordIO's frames that lie there."""

import shutil
from collections.abc import Iterator

import numpy as np

from packer.formats.recordio import Reader, Writer
from packer.layouts import recordio_frames
from tests.fuzz import scratch
from tests.fuzz.target import Disagreement
from tests.support import built_packs
from tests.support.hostile_folders import rewritten

_SAMPLES = 3
_MAGIC = recordio_frames.MAGIC.to_bytes(4, "little")
_PLACES_BYTES = 16 * _SAMPLES
_SCHEMA = built_packs.SCHEMA
_BLOBS = (b"an image", b"abcd" + _MAGIC + b"efgh" + _MAGIC, b"")
TOKENS = (_MAGIC, *(_MAGIC + bytes((4, 0, 0, flag)) for flag in (0x20, 0x40, 0x60)))
TOKENS += (b"\xff" * 8, b"\0" * 7 + b"\x80", b"\xff" * 7 + b"\x7f")


def seeds() -> Iterator[bytes]:
    """The places, then data.rec."""
    part = scratch.folder() / "sound"
    if not part.exists():
        with Writer(part, _SCHEMA, payload_bytes=0) as writer:
            for row, blob in enumerate(_BLOBS):
                writer.write(built_packs.record(row, blob=blob))
            writer.finish()
    with np.load(part / "values.npz") as found:
        places = found["foreign/places"].tobytes()
    yield places + (part / "data.rec").read_bytes()


def check(data: bytes) -> None:
    for _ in seeds():  # the sound part, made once
        pass
    part = scratch.folder() / "part"
    if not part.exists():
        shutil.copytree(scratch.folder() / "sound", part)
    places = np.frombuffer(data[:_PLACES_BYTES].ljust(_PLACES_BYTES, b"\0"), "<i8").reshape(_SAMPLES, 1, 2)
    rewritten(foreign__places=places)(part)
    file = data[_PLACES_BYTES:]
    (part / "data.rec").write_bytes(file)
    reader = Reader(part, _SCHEMA, samples=_SAMPLES)
    try:
        for row, (offset, size) in enumerate(places[:, 0].tolist()):
            record = {name: bytes(value) for name, value in reader.read(row, _SCHEMA.names).items()}
            if record["key"] != built_packs.record(row)["key"]:
                raise Disagreement(f"row {row}: key {record['key']!r}")
            if size >= 0 and record["blob"] != file[offset : offset + size]:
                raise Disagreement(f"row {row}: {record['blob']!r}, which is not what lies at {offset}")
            if size < 0 and record["blob"] not in _joined(file[offset : offset - size]):
                raise Disagreement(f"row {row}: {record['blob']!r}, which is not what the frames hold")
    finally:
        reader.close()


def _joined(span: bytes) -> bytes:
    """The payloads of frames, one after the other, the magic number between them: read by another hand."""
    found, at = [], 0
    while at + 8 <= len(span):
        size = int.from_bytes(span[at + 4 : at + 8], "little") & (1 << 29) - 1
        found.append(span[at + 8 : at + 8 + size])
        at += 8 + size + -size % 4
    return _MAGIC.join(found)
