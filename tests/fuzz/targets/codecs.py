"""Records as codecs decode them: raw, number, npy, json, text, bmp, ycc420."""

from collections.abc import Iterator

import numpy as np

from packer import codecs
from packer.codecs.base import Codec
from packer.errors import PackerError
from packer.schema import Field
from tests.fuzz import words
from tests.fuzz.target import Disagreement
from tests.support import image_files

_FIELDS = (
    Field("a", "image", "raw", dtype="uint8", shape=(None, None, 3)),
    Field("a", "depth", "raw:float16", dtype="float32"),
    Field("a", "points", "raw", dtype="float32", shape=(None, 4, 2)),
    Field("a", "number", "raw", dtype="int64", shape=(None, None)),
    Field("a", "number", "number", dtype="bool", shape=(3,)),
    Field("a", "depth", "npy"),
    Field("a", "json", "json"),
    Field("a", "text", "text"),
    Field("a", "image", "bmp"),
    Field("a", "mask", "npy", dtype="uint16"),
    Field("a", "mask", "raw", dtype="uint16"),
    Field("a", "image", "ycc420"),
    Field("a", "image", "ycc420", shape=(3, 5, 3)),
)
TOKENS = (*words.JSON, *words.NPY, b"\xff" * 4, b"\0\0\0\0", b"\0\0\0\x80", b"C420jpeg")
TOKENS += (b"YUV4MPEG2 W00001 H00001 F1:1 Ip A1:1 Cmono XY XCOLORRANGE=FULL\nFRAME\n",)


def seeds() -> Iterator[bytes]:
    """One byte that says which field, and a record."""
    small = image_files.colors(height=3, width=5)
    depth = small[:, :, 0].astype(np.float32)
    values = (small, depth, np.zeros((2, 4, 2), np.float32), np.zeros((2, 3), np.int64), np.array([True, False, True]))
    ids = small[:, :, 0].astype(np.uint16) * 200
    others = (depth, {"a": [1, 2.5, "x", None]}, "text", small, ids, ids, small, small)
    for number, value in enumerate((*values, *others)):
        yield bytes((number,)) + _codec(_FIELDS[number]).encode(value)


def _codec(field: Field) -> Codec:
    name = field.codec.partition(":")[0]
    return codecs.load(name).Codec(field)


def check(data: bytes) -> None:
    if not data or data[0] >= len(_FIELDS):
        return
    codec = _codec(_FIELDS[data[0]])
    value = codec.decode(data[1:])
    if isinstance(value, np.ndarray):
        if codec.field.kind != "json" and tuple(codec.shape(data[1:]) or ()) != value.shape:
            raise Disagreement(f"shape {value.shape}, announced {codec.shape(data[1:])}")
        return
    try:
        again = codec.decode(codec.encode(value))
    except PackerError as error:
        raise Disagreement(f"{value!r:.80} decodes, and does not encode: {error}") from error
    if again != value:
        raise Disagreement(f"{value!r:.80} comes back as {again!r:.80}")
