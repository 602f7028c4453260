"""The bytes that raw and number write, and the numbers that they refuse."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer import codecs
from packer.codecs.base import Codec
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.schema import Field
from packer.system.exact_casts import cast_exactly


def codec(kind: str, name: str, **details: Any) -> Codec:
    module = codecs.load(name.partition(":")[0])
    made: Codec = module.Codec(module.Codec.complete(Field("field", kind, name, **details)))
    return made


def test_raw_writes_numbers_alone_where_the_size_tells_the_shape() -> None:
    points = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
    for shape in ((2, 4, 2), (None, 4, 2)):
        stored = codec("points", "raw", shape=shape).encode(points)
        assert stored == struct.pack("<16f", *range(16))
    assert codec("points", "raw", shape=(None, 4, 2)).decode(b"").shape == (0, 4, 2)


def test_raw_writes_lengths_first_where_the_size_does_not_tell() -> None:
    depth = np.array([[1, 2, 3], [4, 5, 6]], np.uint16)
    assert codec("depth", "raw", dtype="uint16").encode(depth) == struct.pack("<2I6H", 2, 3, *range(1, 7))
    assert codec("mask", "raw", shape=(2, None)).encode(depth.astype(np.uint8))[:8] == struct.pack("<2I", 2, 3)
    assert codec("points", "raw", shape=(None, 0, 2)).encode(np.zeros((5, 0, 2), np.float32)) == struct.pack(
        "<3I", 5, 0, 2
    )


@pytest.mark.parametrize(
    "stored",
    [
        struct.pack("<2I6H", 3, 3, *range(6)),
        struct.pack("<2I6H", 2, 2, *range(6)),
        struct.pack("<2I5H", 2, 3, *range(5)),
        struct.pack("<I", 2),
        struct.pack("<2I", 2**32 - 1, 2**32 - 1),
        struct.pack("<2I6HB", 2, 3, *range(6), 0),
    ],
)
def test_raw_checks_the_lengths_before_it_touches_the_numbers(stored: bytes) -> None:
    for read in (codec("depth", "raw", dtype="uint16").decode, codec("depth", "raw", dtype="uint16").shape):
        with pytest.raises(CorruptRecord, match="for shape"):
            read(stored)


def test_raw_checks_fixed_lengths_too() -> None:
    with pytest.raises(CorruptRecord):
        codec("mask", "raw", shape=(3, None)).decode(struct.pack("<2I", 2, 3) + bytes(6))
    with pytest.raises(CorruptRecord):
        codec("points", "raw", shape=(None, 4, 2)).decode(bytes(33))
    for shape in ((2, 5), (1, 4), (4,)):
        with pytest.raises(BadInput, match="value has shape"):
            codec("number", "raw", dtype="int32", shape=(2, 4)).encode(np.zeros(shape, np.int32))


def test_raw_float16_rounds_because_it_was_asked_to() -> None:
    depth = np.array([[0.1, -1, np.nan], [np.inf, 65504, 1e-9]], np.float32)
    made = codec("depth", "raw:float16", dtype="float32")
    assert made.field.dtype == "float16"
    found = made.decode(made.encode(depth))
    assert found.dtype == np.float16
    assert found.tobytes() == depth.astype(np.float16).tobytes()
    with pytest.raises(BadInput, match="beyond float16.*raw:float32"):
        made.encode(np.full((2, 2), 65520, np.float32))


@pytest.mark.parametrize(
    ("details", "value"),
    [
        ({"kind": "depth", "dtype": "uint8"}, np.zeros((2, 2), np.uint16)),
        ({"kind": "depth", "dtype": "float32"}, np.zeros((2, 2), np.float64)),
        ({"kind": "depth", "dtype": "float32"}, np.zeros((2, 2), np.int32)),
        ({"kind": "image"}, np.zeros((2, 2, 3), np.float32)),
        ({"kind": "mask"}, [[1, 2], [3, 4]]),
    ],
)
def test_raw_never_narrows_pixels_silently(details: dict[str, Any], value: Any) -> None:
    with pytest.raises(InvalidRequest, match="narrowed.*--codec field=raw:"):
        codec(details.pop("kind"), "raw", **details).encode(value)


def test_raw_widens_and_takes_whole_numbers_that_fit() -> None:
    made = codec("depth", "raw", dtype="float32")
    assert made.decode(made.encode(np.array([[1, 2]], np.uint16))).tolist() == [[1.0, 2.0]]
    ids = codec("number", "raw", dtype="int32", shape=(None,))
    assert ids.decode(ids.encode([1, 2, 3])).tolist() == [1, 2, 3]
    with pytest.raises(BadInput, match="2147483648 .*int32"):
        ids.encode([1, 2**31])


@pytest.mark.parametrize(
    ("kind", "name", "details"),
    [
        ("depth", "raw", {}),
        ("points", "raw", {}),
        ("number", "raw", {"dtype": "int32"}),
        ("mask", "raw:int32", {}),
        ("mask", "raw:float32", {}),
        ("mask", "raw", {"dtype": "uint32"}),
        ("mask", "png", {"dtype": "int32"}),
        ("mask", "npy", {"dtype": "float32"}),
        ("mask", "encoded", {"dtype": "int64"}),
        ("mask", "bmp", {"dtype": "uint16"}),
        ("depth", "raw:float8", {}),
        ("number", "number", {"dtype": "int32"}),
        ("number", "number", {"shape": ()}),
        ("number", "number", {"dtype": "int32", "shape": (None,)}),
    ],
)
def test_a_field_without_what_the_codec_needs_is_refused(kind: str, name: str, details: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        codec(kind, name, **details)


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        ("int64", -2, b"\xfe" + b"\xff" * 7),
        ("uint8", 255, b"\xff"),
        ("bool", True, b"\x01"),
        ("float32", 0.5, struct.pack("<f", 0.5)),
        ("float64", 0.1, struct.pack("<d", 0.1)),
        ("uint64", 2**64 - 1, b"\xff" * 8),
    ],
)
def test_a_scalar_is_little_endian_and_comes_back_as_pythons(dtype: str, value: Any, stored: bytes) -> None:
    made = codec("number", "number", dtype=dtype, shape=())
    assert made.encode(value) == made.encode(np.asarray(value, dtype)) == stored
    assert type(made.decode(stored)) is type(value) and made.decode(stored) == value
    out = np.zeros((), dtype)
    assert made.decode(stored, out=out) is out and out == value


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", 256),
        ("uint8", -1),
        ("int32", 1.5),
        ("int32", float("nan")),
        ("int64", 2.0**63),
        ("float32", 0.1),
        ("float32", 2**24 + 1),
        ("float64", 2**53 + 1),
        ("float64", 2**64 - 1),
        ("float32", 1e39),
        ("bool", 2),
        ("int64", 2**63),
    ],
)
def test_a_number_that_does_not_fit_exactly_is_bad_input(dtype: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"fit {dtype}"):
        codec("number", "number", dtype=dtype, shape=()).encode(value)


@given(st.sampled_from(["int8", "uint16", "int64", "uint64", "float16", "float32", "float64", "bool"]), st.data())
def test_a_cast_is_exact_or_an_error(dtype: str, data: st.DataObject) -> None:
    value = data.draw(st.integers(-(2**63), 2**64 - 1) | st.floats() | st.booleans() | st.integers(-300, 300))
    try:
        made = cast_exactly(value, dtype).item()
    except BadInput:
        return
    assert made == value or (made != made and value != value)


def test_a_truth_value_of_another_byte_is_corrupt() -> None:
    for made in (codec("number", "number", dtype="bool", shape=(2,)), codec("number", "raw", dtype="bool", shape=(2,))):
        assert made.decode(b"\x00\x01").tolist() == [False, True]
        with pytest.raises(CorruptRecord, match="0 nor 1"):
            made.decode(b"\x00\x02")
