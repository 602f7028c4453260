"""The bytes that each codec writes, the values it refuses, and that other software reads its images."""

import io
import json
import struct
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from packer import codecs
from packer.codecs.base import Codec
from packer.errors import BadInput, CorruptRecord, DamagedImage, InvalidRequest
from packer.images import NAMES, DecodeOptions, sniff
from packer.schema import Field
from tests.support import image_files

pytestmark = pytest.mark.jpeg


def codec(kind: str, name: str, **details: Any) -> Codec:
    module = codecs.load(name.partition(":")[0])
    made: Codec = module.Codec(module.Codec.complete(Field("field", kind, name, **details)))
    return made


def markers(file: bytes) -> list[int]:
    return [file[at + 1] for at in range(len(file) - 1) if file[at] == 0xFF and file[at + 1] not in (0, 0xFF)]


def test_jpeg_is_plain_jfif_that_others_read_alike() -> None:
    pixels = image_files.colors(height=48, width=80)
    file = codec("image", "jpeg").encode(pixels)
    before_scan = [marker for marker in markers(file[: sniff(file).data_at]) if marker >= 0xE0]
    assert before_scan == [0xE0, 0xEB], "no EXIF, no profile, no comment; a table of restart intervals"
    found = codec("image", "jpeg").decode(file)
    with Image.open(io.BytesIO(file)) as image:
        assert (image.format, image.mode) == ("JPEG", "RGB")
        assert np.array_equal(np.asarray(image), found)
    assert np.array_equal(cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR_RGB), found)
    assert np.abs(found.astype(int) - pixels).mean() < 9


@pytest.mark.parametrize(
    ("width", "interval"),
    [
        (1, 1),
        (16, 1),
        (17, 2),
        (48, 3),
        (64, 2),
        (80, 5),
        (240, 3),
        (496, 31),
        (500, 2),
        (640, 2),
        (1000, 3),
        (1280, 4),
    ],
)
def test_restart_intervals_divide_a_row(width: int, interval: int) -> None:
    file = codec("image", "jpeg:90").encode(image_files.colors(height=33, width=width))
    at = file.index(b"\xff\xdd")
    assert struct.unpack_from(">HH", file, at + 2) == (4, interval)
    row = -(-width // 16)
    assert row % interval == 0
    restarts = sum(0xD0 <= marker <= 0xD7 for marker in markers(file))
    assert restarts == 3 * row // interval - 1


@pytest.mark.parametrize(
    ("argument", "sampling", "interval"),
    [
        ("1", 0x22, 2),
        ("95", 0x22, 2),
        ("96", 0x11, 7),
        ("100", 0x11, 7),
        ("1:444", 0x11, 7),
        ("95:444", 0x11, 7),
        ("100:444", 0x11, 7),
    ],
)
def test_chroma_is_halved_up_to_quality_95_unless_it_is_asked_for(argument: str, sampling: int, interval: int) -> None:
    file = codec("image", f"jpeg:{argument}").encode(image_files.colors(height=32, width=448))
    assert file[file.index(b"\xff\xc0") + 11] == sampling
    assert struct.unpack_from(">H", file, file.index(b"\xff\xdd") + 4) == (interval,)


def test_jpeg_quality_is_95_unless_it_is_given_and_more_is_nearer() -> None:
    pixels = image_files.colors()
    files = {name: codec("image", name).encode(pixels) for name in ("jpeg", "jpeg:95", "jpeg:50", "jpeg:100")}
    assert files["jpeg"] == files["jpeg:95"]
    off = {name: np.abs(codec("image", name).decode(file).astype(int) - pixels).mean() for name, file in files.items()}
    assert off["jpeg:100"] < off["jpeg:95"] < off["jpeg:50"]


def test_whole_chroma_is_the_nearer_one() -> None:
    pixels = image_files.colors()
    files = {name: codec("image", name).encode(pixels) for name in ("jpeg:95", "jpeg:95:444")}
    halved, whole = (codec("image", name).decode(file).astype(int) - pixels for name, file in files.items())
    assert np.abs(whole).mean() < np.abs(halved).mean()
    assert files["jpeg:95"] == codec("image", "jpeg").encode(pixels)


@pytest.mark.parametrize(
    "argument",
    ["0", "101", "-5", "9.5", "high", "٩٠", " 90"]
    + ["444", "95:", ":444", "95:422", "95:440", "0:444", "95:444:", "95:444:1"],
)
def test_a_bad_quality_is_refused(argument: str) -> None:
    with pytest.raises(InvalidRequest, match="1 to 100.*jpeg:95"):
        codec("image", f"jpeg:{argument}")


@pytest.mark.parametrize(
    "value",
    [
        image_files.grays(),
        image_files.colors().astype(np.uint16),
        image_files.colors()[:, ::2],
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        image_files.jpeg(),
    ],
)
def test_jpeg_takes_uint8_rgb_alone(value: Any) -> None:
    with pytest.raises((InvalidRequest, BadInput)):
        codec("image", "jpeg").encode(value)


def test_a_lossless_image_may_lie_in_a_jpeg_field() -> None:
    file, pixels = image_files.lossless()["png"]
    for decoder in NAMES:
        field = Field("field", "image", "jpeg", dtype="uint8", shape=(None, None, 3))
        assert np.array_equal(codecs.load("jpeg").Codec(field, DecodeOptions(decoder=decoder)).decode(file), pixels)


def test_strictness_is_the_codecs() -> None:
    file = bytearray(image_files.jpeg())
    for place in range(len(file) - 400, len(file) - 2):  # a flip that libjpeg warns of
        changed = bytes(file[:place]) + bytes([file[place] ^ 0x55]) + bytes(file[place + 1 :])
        try:
            simplejpeg.decode_jpeg(changed)
        except ValueError:
            break
    for name in ("encoded", "jpeg"):
        field = Field("field", "image", name)
        for decoder in NAMES:
            with pytest.raises(DamagedImage):
                codecs.load(name).Codec(field, DecodeOptions(decoder=decoder)).decode(changed)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("image", np.zeros((3, 4, 3), np.uint16)),
        ("image", np.zeros((3, 4), np.uint8)),
        ("mask", np.zeros((3, 4), np.int32)),
        ("mask", np.zeros((3, 4), bool)),
        ("depth", np.zeros((3, 4), np.float32)),
        ("depth", np.zeros((3, 4), np.int16)),
        ("depth", np.zeros((3, 4, 3), np.uint16)),
    ],
)
def test_png_refuses_what_opencv_would_narrow(kind: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match="codec 'png' holds.*found"):
        codec(kind, "png").encode(value)


def test_png_refuses_a_field_that_it_cannot_hold_at_once() -> None:
    with pytest.raises(InvalidRequest, match="not float32; .*raw"):
        codec("depth", "png", dtype="float32")


def test_png_is_read_by_others() -> None:
    depth = np.random.default_rng(0).integers(0, 65536, (9, 11), np.uint16)
    file = codec("depth", "png", dtype="uint16").encode(depth)
    assert np.array_equal(cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_UNCHANGED), depth)
    file = codec("image", "png").encode(image_files.colors())
    with Image.open(io.BytesIO(file)) as image:
        assert np.array_equal(np.asarray(image), image_files.colors())


def test_text_is_utf_8_and_keeps_any_file_name() -> None:
    made = codec("text", "text")
    assert made.encode("naïve") == "naïve".encode()
    name = b"caf\xe9/\xff.jpg".decode("utf-8", "surrogateescape")
    assert made.encode(name) == b"caf\xe9/\xff.jpg" and made.decode(b"caf\xe9/\xff.jpg") == name
    for wrong in ("\ud800", "\udcc3\udca9"):  # no byte; two bytes that are a letter
        with pytest.raises(BadInput, match="text "):
            made.encode(wrong)


def test_json_is_canonical() -> None:
    made = codec("json", "json")
    assert made.encode({"b": [1, 2.0, True, None], "a": "é"}) == '{"a":"é","b":[1,2.0,true,null]}'.encode()
    assert made.encode({"b": 1, "a": 2}) == made.encode({"a": 2, "b": 1})
    assert json.loads(made.encode({"x": {"y": []}})) == {"x": {"y": []}}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), (1, 2), {1: 2}, {"a": {1}}, {"a": b"x"}, "\ud800"])
def test_json_refuses_what_would_not_come_back(value: Any) -> None:
    with pytest.raises(BadInput):
        codec("json", "json").encode(value)


@pytest.mark.parametrize(
    "stored", [b"", b"{", b'{"a":1,"a":2}', b"[NaN]", b"-Infinity", b"1e999", b"[1] [2]", b"[" * 100_000]
)
def test_json_that_nobody_packed_is_corrupt(stored: bytes) -> None:
    with pytest.raises(CorruptRecord, match="not the JSON"):
        codec("json", "json").decode(stored)


def test_encoded_keeps_bytes_and_refuses_arrays() -> None:
    file = image_files.jpeg()
    assert codec("image", "encoded").encode(file) == file
    assert codec("bytes", "encoded").encode(memoryview(b"any bytes")) == b"any bytes"
    with pytest.raises(InvalidRequest, match="ndarray; .*codec raw"):
        codec("image", "encoded").encode(image_files.colors())
    with pytest.raises(BadInput, match="depth of uint16"):
        codec("depth", "encoded", dtype="float32").encode(image_files.depths()["png 16 bit"][0])


@pytest.mark.parametrize("name", ["encoded", "jpeg", "png", "raw"])
def test_the_completed_field_says_what_is_known(name: str) -> None:
    field = codec("image", name).field
    assert (field.dtype, field.shape) == ("uint8", (None, None, 3))
    fixed = codec("image", name, shape=(224, 224, 3)).field
    assert fixed.shape == (224, 224, 3)
