"""Hostile values: packs whose containers and hashes are sound, and whose values are not what their codec makes."""

import json
import os
import pickle
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from packer.schema import Field, Schema
from tests.support import built_packs, source_trees
from tests.support.hostile_folders import PROGRAM
from tests.support.hostile_packs import Case, cases_of
from tests.support.hostile_parts import COMMAND, Reduce
from tests.support.image_files import chunk, npy

SCHEMA = Schema(
    (
        Field("key", "text", "text"),
        Field("image", "image", "encoded", "uint8", (None, None, 3)),
        Field("depth", "depth", "encoded", "float32", (None, None)),
        Field("ragged", "image", "raw", "uint8", (None, None, 3)),
        Field("rows", "number", "raw:float64", "float64", (None, 5)),
        Field("more", "json", "json"),
        Field("note", "text", "text"),
        Field("files", "json", "json", hidden=True),
    )
)


FLOATS = npy(np.ones((4, 5), np.float32))


def sound(number: int) -> dict[str, bytes]:
    """The record of a sample in which nothing is wrong."""
    return {
        "key": b"%d" % number,
        "image": source_trees.image(number, height=4, width=5),
        "depth": FLOATS,
        "ragged": struct.pack("<3I", 1, 2, 3) + bytes(6),
        "rows": bytes(40),
        "more": b'{"a":1}',
        "note": b"note",
        "files": json.dumps({"image": f"{number}.png", "depth": f"d/{number}.npy"}).encode(),
    }


def with_value(name: str, value: bytes, *, format: str) -> Callable[[Path], None]:
    """A pack of two samples, of which the second has this value; its crc32 fits."""

    def make(pack: Path) -> None:
        built_packs.make_pack(pack, [sound(0), sound(1) | {name: value}], format=format, schema=SCHEMA, parts=1)

    return make


def png(width: int, height: int, body: bytes = zlib.compress(bytes(1000))) -> bytes:
    """A header that announces a size, and the data of other pixels."""
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    """An image whose header says another size."""
    data = bytearray(source_trees.image(1, suffix=".jpg", height=8, width=8))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">2H", height, width)
    return bytes(data)


OBJECTS = npy(np.asarray([[Reduce(os.system, COMMAND)]], object))
VALUES: dict[str, tuple[str, bytes]] = {
    "no image": ("image", b"x" * 100),
    "an empty image": ("image", b""),
    "a pickle": ("image", pickle.dumps(Reduce(os.system, COMMAND))),
    "SVG": ("image", b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'),
    "PostScript": ("image", b"%!PS\n(/etc/passwd) run\n"),
    "PNG of 4 Gpx": ("image", png(1 << 16, 1 << 16)),
    "PNG of 2^31 wide": ("image", png((1 << 31) - 1, 1)),
    "PNG of no width": ("image", png(0, 9)),
    "PNG cut": ("image", source_trees.image(1)[:-30]),
    "JPEG of 65535 x 65535": ("image", jpeg(65535, 65535)),
    "JPEG of no height": ("image", jpeg(8, 0)),
    "JPEG cut": ("image", source_trees.image(1, suffix=".jpg")[:400]),
    "JPEG of a million scans": (
        "image",
        source_trees.image(1, suffix=".jpg")[:-2] + b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" * 9999,
    ),
    "BMP of 4 GiB": (
        "image",
        b"BM" + struct.pack("<IHHI", 60, 0, 0, 54) + struct.pack("<Iii", 40, 40000, 40000) + bytes(99),
    ),
    "WebP cut": ("image", source_trees.image(1, suffix=".webp")[:40]),
    "TIFF with a loop": ("depth", b"II*\0" + struct.pack("<I", 8) + b"\0\0" + struct.pack("<I", 8) * 40),
    "TIFF of 2^32 strips": ("depth", source_trees.depth(1)[:200]),
    "npy of objects": ("depth", OBJECTS),
    "npy that is a program": ("depth", PROGRAM),
    "npy of 2^60": ("depth", FLOATS.replace(b"(4, 5), }", b"(1152921504606846976, 5), }")),
    "npy negative": ("depth", FLOATS.replace(b"(4, 5)", b"(-4,5)")),
    "npz": ("depth", b"PK\x03\x04" + bytes(100)),
    "lengths of 2^32": ("ragged", struct.pack("<3I", 0xFFFFFFFF, 0xFFFFFFFF, 3)),
    "lengths that wrap to the size": ("ragged", struct.pack("<3I", 1 << 31, 1 << 31, 3) + bytes(4)),
    "lengths alone": ("ragged", b"\0"),
    "other channels": ("ragged", struct.pack("<3I", 2, 2, 4) + bytes(16)),
    "half a row": ("rows", bytes(41)),
    "JSON deep": ("more", b"[" * 100_000),
    "JSON deep and closed": ("more", b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "JSON NaN": ("more", b"[NaN]"),
    "JSON of 5000 digits": ("more", b"1" * 5000),
    "JSON 1e999": ("more", b"1e999"),
    "JSON that is code": ("more", b"__import__('os').abort()"),
    "JSON that is no UTF-8": ("more", b'"\xff"'),
    "JSON with a member twice": ("more", b'{"a":1,"a":2}'),
    "files no object": ("files", b"[1]"),
    "files of numbers": ("files", b'{"image":1}'),
}
PATHS = (
    "../secret",
    "/etc/passwd",
    "a/../../secret",
    "",
    ".",
    "a//b",
    "a/\0",
    "C:\\x",
    "\\\\host\\x",
    "x" * 300,
    "0.png",
    "d/0.npy/x",
)


def paths(format: str) -> Mapping[str, Callable[[Path], None]]:
    """Packs that ask extract to write elsewhere."""
    return {
        f"path {path!r:.40}": with_value("files", json.dumps({"image": path}).encode(), format=format) for path in PATHS
    }


def cases() -> list[Case]:
    """All of them: every value in one format, since containers do not look at them, and a few in the others."""
    table = {name: with_value(field, value, format="lmdb") for name, (field, value) in VALUES.items()}
    found = cases_of("value", table, base="", expect="any") + cases_of("files", paths("lmdb"), base="", expect="any")
    for format in ("hdf5", "pth"):
        few = {
            name: with_value(*VALUES[name], format=format)
            for name in ("npy of objects", "lengths of 2^32", "JSON deep")
        }
        found += cases_of(f"value in {format}", few, base="", expect="any")
        found += cases_of(f"files in {format}", dict(list(paths(format).items())[:3]), base="", expect="any")
    return found
