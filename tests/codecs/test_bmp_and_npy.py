"""Codecs bmp and npy: their files are what every other program takes them for, and nothing else is decoded."""

import io
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from packer import codecs
from packer.codecs.base import Codec
from packer.errors import BadInput, CorruptRecord, DamagedImage, InvalidRequest, PackerError
from packer.geometry import View
from packer.geometry.warp import warp
from packer.images import decode, sniff
from packer.schema import Field
from tests.support import image_files


def codec(kind: str, name: str, **details: Any) -> Codec:
    made = codecs.load(name).Codec
    found: Codec = made(made.complete(Field("x", kind, name, **details)))
    return found


IMAGE, MASK = codec("image", "bmp"), codec("mask", "bmp")


def pixels_of(kind: str, height: int, width: int) -> Any:
    made = image_files.colors if kind == "image" else image_files.grays
    return made(width, height=height, width=width)


@pytest.mark.parametrize("kind", ["image", "mask"])
@pytest.mark.parametrize("width", [*range(1, 10), 257])
@pytest.mark.parametrize("height", [1, 2, 5])
def test_every_size_is_what_others_read(kind: str, width: int, height: int) -> None:
    used = codec(kind, "bmp")
    pixels = pixels_of(kind, height, width)
    file = used.encode(pixels)
    with Image.open(io.BytesIO(file)) as found:
        assert (found.format, found.mode) == ("BMP", "RGB" if kind == "image" else "L")
        assert np.array_equal(np.asarray(found), pixels)
    stored = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_UNCHANGED)
    assert stored is not None
    assert np.array_equal(stored[:, :, ::-1] if kind == "image" else stored, pixels)
    assert np.array_equal(decode(file, kind), pixels)
    assert np.array_equal(used.decode(file), pixels)
    assert used.shape(file) == pixels.shape


def test_the_bytes_are_those_of_the_documented_layout() -> None:
    file = IMAGE.encode(np.arange(18, dtype=np.uint8).reshape(2, 3, 3))
    header = b"BM" + struct.pack("<IIIIiiHHIIiiII", 78, 0, 54, 40, 3, 2, 1, 24, 0, 24, 0, 0, 0, 0)
    rows = bytes([11, 10, 9, 14, 13, 12, 17, 16, 15, 0, 0, 0]) + bytes([2, 1, 0, 5, 4, 3, 8, 7, 6, 0, 0, 0])
    assert file == header + rows
    mask = MASK.encode(np.array([[7, 8]], np.uint8))
    assert mask[:54] == b"BM" + struct.pack("<IIIIiiHHIIiiII", 1082, 0, 1078, 40, 2, 1, 1, 8, 0, 4, 0, 0, 256, 0)
    assert mask[54:1078] == b"".join(bytes([gray, gray, gray, 0]) for gray in range(256))
    assert mask[1078:] == b"\7\x08\0\0"


@pytest.mark.parametrize("kind", ["image", "mask"])
def test_every_changed_byte_of_the_header_is_refused(kind: str) -> None:
    used = codec(kind, "bmp")
    file = bytearray(used.encode(pixels_of(kind, 4, 4)))
    for at in range(54 if kind == "image" else 1078):
        for mask in (0xFF, 1, 0x80):
            file[at] ^= mask
            for ask in (used.decode, used.shape):
                with pytest.raises(CorruptRecord):
                    ask(bytes(file))
            file[at] ^= mask
    assert np.array_equal(used.decode(bytes(file)), pixels_of(kind, 4, 4))


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file[:-1],
        lambda file: file + b"\0",
        lambda file: file[:54],
        lambda file: file[:10],
        lambda file: file[:22] + struct.pack("<i", -5) + file[26:],
        lambda file: file[:18] + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + file[26:],
        lambda file: file[:18] + struct.pack("<ii", -(2**31), -(2**31)) + file[26:],
        lambda file: file[:18] + struct.pack("<ii", 0, 0) + file[26:],
        lambda file: image_files.with_pillow(image_files.colors(), "BMP"),
        lambda file: image_files.with_pillow(image_files.colors(), "PNG"),
    ],
)
def test_anything_but_a_whole_file_of_ours_is_refused(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptRecord, match="pack again") as caught:
        IMAGE.decode(change(IMAGE.encode(image_files.colors(height=5, width=7))))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["image", "mask"])
def test_a_cut_is_shown_and_nothing_of_the_buffer_is_kept(kind: str) -> None:
    used = codec(kind, "bmp")
    pixels = pixels_of(kind, 1, 9)
    memory = bytearray(used.encode(pixels))
    view = View((1.0, 0.0, -2.0, 0.0, 1.0, 0.0), (1, 5))
    whole, cut = used.decode(memory), used.decode(memory, view)
    out = np.zeros_like(cut)
    assert used.decode(memory, view, out) is out
    memory[:] = bytes(len(memory))
    assert np.array_equal(whole, pixels)
    assert np.array_equal(cut, pixels[:, 2:7]) and np.array_equal(out, cut)
    assert np.array_equal(cut, warp(pixels, view, kind))


def test_what_a_bmp_cannot_hold_is_refused() -> None:
    for value in (np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2), np.uint8), np.zeros((2, 2, 3), np.uint16), b"BM"):
        with pytest.raises(InvalidRequest, match="'bmp' holds uint8"):
            IMAGE.encode(value)
    for value in (np.zeros((2, 2, 3), np.uint8), np.zeros((2, 2), bool), np.zeros((2, 2), np.float32)):
        with pytest.raises(InvalidRequest, match="'bmp' holds uint8"):
            MASK.encode(value)
    for shape in ((0, 3, 3), (3, 0, 3)):
        with pytest.raises(BadInput, match="fit a BMP"):
            IMAGE.encode(np.zeros(shape, np.uint8))
    with pytest.raises(BadInput, match="1 GiB"):
        IMAGE.encode(np.broadcast_to(np.uint8(0), (20_000, 18_000, 3)))
    with pytest.raises(InvalidRequest, match="kind 'depth'"):
        codec("depth", "bmp", dtype="uint16")
    with pytest.raises(InvalidRequest, match="not uint16"):
        type(MASK)(replace(MASK.field, dtype="uint16"))


# ---- npy


@pytest.mark.parametrize("name", ["float32", "float64", "uint16", "uint8", "int32"])
def test_numpy_reads_a_depth_of_any_dtype(name: str) -> None:
    depth = np.arange(12).reshape(3, 4).astype(name)
    file = codec("depth", "npy").encode(depth)
    found = np.load(io.BytesIO(file), allow_pickle=False)
    assert (found.dtype, found.tobytes()) == (depth.dtype, depth.tobytes())
    assert codec("depth", "npy").decode(file).dtype == depth.dtype
    assert codec("depth", "npy").encode(depth.astype(depth.dtype.newbyteorder(">"))) == file
    assert codec("depth", "npy").encode(np.asfortranarray(depth)) == file
    assert sniff(file).format == "npy"


def test_an_npy_of_another_dtype_or_format_is_refused() -> None:
    used = codec("depth", "npy", dtype="float32")
    with pytest.raises(CorruptRecord, match="npy of uint16.*float32"):
        used.decode(image_files.npy(np.zeros((2, 2), np.uint16)))
    with pytest.raises(CorruptRecord, match="png of uint16"):
        used.decode(image_files.depths()["png 16 bit"][0])
    with pytest.raises(DamagedImage):
        used.decode(used.encode(np.zeros((2, 2), np.float32))[:-1])
    for value in (np.zeros((2, 2), np.uint16), np.zeros(4, np.float32), np.zeros((2, 2, 1), np.float32), None):
        with pytest.raises(InvalidRequest, match="'npy' holds float32"):
            used.encode(value)
    with pytest.raises(PackerError, match="holds nothing"):
        used.encode(np.zeros((0, 2), np.float32))
