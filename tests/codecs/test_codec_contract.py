"""What every codec promises, for every codec that the folder lists, with each kind that it can hold."""

import math
import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from packer import codecs
from packer.codecs.base import Codec
from packer.errors import BadInput, CorruptRecord, InvalidRequest, PackerError
from packer.geometry import Resize, upright
from packer.geometry.warp import warp
from packer.schema import KINDS, PIXEL_KINDS, Field
from packer.system.parallel import ordered_map
from tests.support import image_files

pytestmark = pytest.mark.jpeg

NAMES = codecs.names()
TEXT = st.text(st.characters(exclude_categories=[]), max_size=40).filter(
    lambda text: not any("\ud800" <= c <= "\udfff" for c in text)
)
FILE_NAMES = st.binary(max_size=40).map(lambda name: name.decode("utf-8", "surrogateescape"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSONS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)


def numbers(dtype: str, shape: Any) -> st.SearchStrategy[Any]:
    return arrays.arrays(np.dtype(dtype), shape)


def sizes(*tail: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(st.integers(1, 20), st.integers(1, 20)).map(lambda size: (*size, *tail))


def files(kind: str, dtype: str | None) -> st.SearchStrategy[bytes]:
    made = {"image": image_files.lossless(), "depth": image_files.depths()}.get(kind)
    if dtype == "uint16" and kind == "mask":
        return st.sampled_from([file for file, pixels in image_files.depths().values() if pixels.dtype == dtype])
    if made is None:
        return st.sampled_from([image_files.with_pillow(image_files.grays(seed), "PNG") for seed in range(3)])
    return st.sampled_from([file for file, pixels in made.values() if dtype in (None, pixels.dtype.name)])


# for each kind the fields it may come as, without the codec, and their values
CASES: dict[str, list[tuple[dict[str, Any], st.SearchStrategy[Any]]]] = {
    "image": [({}, numbers("uint8", sizes(3)))],
    "depth": [({"dtype": name, "invalid": -1.0}, numbers(name, sizes())) for name in ("uint16", "float32")],
    "mask": [({}, numbers("uint8", sizes())), ({"dtype": "uint16"}, numbers("uint16", sizes()))],
    "points": [
        ({"dtype": "float32", "shape": (None, 4, 2)}, numbers("float32", st.integers(0, 9).map(lambda n: (n, 4, 2))))
    ],
    "boxes": [({"dtype": "float32", "shape": (None, 4)}, numbers("float32", st.integers(0, 9).map(lambda n: (n, 4))))],
    "number": [
        ({"dtype": "float64", "shape": (2, 3)}, numbers("float64", (2, 3))),
        ({"dtype": "bool", "shape": (3,)}, numbers("bool", (3,))),
        ({"dtype": "int64", "shape": ()}, st.integers(-(2**63), 2**63 - 1)),
    ],
    "text": [({}, TEXT | FILE_NAMES)],
    "json": [({}, JSONS)],
    "bytes": [({}, st.binary(max_size=300))],
}


@dataclass(frozen=True)
class Case:
    """One codec with one field that it accepts."""

    codec: Codec
    values: st.SearchStrategy[Any]


def cases() -> Iterator[Any]:
    for name in NAMES:
        accepted = 0
        for kind in KINDS:
            for number, (details, values) in enumerate(CASES[kind]):
                module = codecs.load(name)
                if kind not in module.Codec.kinds:
                    continue
                try:
                    codec = module.Codec(module.Codec.complete(Field("field", kind, name, **details)))
                except InvalidRequest:
                    continue
                accepted += 1
                if name == "encoded" and kind in PIXEL_KINDS:
                    values = files(kind, codec.field.dtype)
                yield pytest.param(Case(codec, values), id=f"{name}-{kind}-{number}")
        assert accepted, f"codec {name!r} accepts no field of this test"


each_case = pytest.mark.parametrize("case", list(cases()))


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
    return type(left) is type(right) and bool(left == right)


def example(case: Case) -> Any:
    """One value of the case, not an empty one where it can be helped."""
    field = case.codec.field
    random = np.random.default_rng(1)
    if case.codec.field.codec == "encoded" and field.kind in PIXEL_KINDS:
        depth = "png 16 bit" if field.dtype == "uint16" else "tiff"
        if field.kind == "depth" or field.dtype == "uint16":
            return image_files.depths()[depth][0]
        made = {"image": image_files.jpeg(), "mask": image_files.palette_png(image_files.grays())}
        return made[field.kind]
    if field.kind in PIXEL_KINDS:
        pixels = image_files.colors() if field.kind == "image" else image_files.grays()
        return pixels.astype(field.dtype)
    if field.shape == ():
        return 300
    if field.kind in ("points", "boxes", "number"):
        shape = tuple(5 if length is None else length for length in field.shape or ())
        return (random.random(shape) * 100 > 50 if field.dtype == "bool" else random.random(shape)).astype(field.dtype)
    return {"text": "héllo", "json": {"a": [1, 2.5, None], "ü": "x"}, "bytes": b"\x00\xffbytes"}[field.kind]


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def decoded(case: Case) -> Any:
    return case.codec.decode(case.codec.encode(example(case)))


@pytest.mark.one_in(4)
@each_case
@given(data=st.data())
def test_what_was_encoded_comes_back(case: Case, data: st.DataObject) -> None:
    value = data.draw(case.values)
    codec = case.codec
    stored = codec.encode(value)
    assert type(stored) is bytes
    assert codec.encode(value) == stored, "the same value gave other bytes"
    found = codec.decode(stored)
    if is_array(found):
        assert found.dtype == codec.field.dtype or codec.field.dtype is None
        assert codec.shape(stored) == found.shape
        assert found.flags.c_contiguous and found.flags.writeable
    if codec.lossy:
        assert found.shape == value.shape and found.dtype == value.dtype
        assert same(codec.decode(stored), found)
    elif codec.field.codec != "encoded" or codec.field.kind == "bytes":
        assert same(found, value)


@each_case
def test_a_lossy_codec_stays_near(case: Case) -> None:
    if case.codec.lossy:
        smooth = np.tile(np.arange(96, dtype=np.uint8)[:, None, None], (1, 64, 3))
        assert np.abs(case.codec.decode(case.codec.encode(smooth)).astype(int) - smooth).max() <= 4
    else:
        assert same(decoded(case), decoded(case))


@each_case
def test_every_kind_of_buffer_is_read_and_none_is_kept(case: Case) -> None:
    stored = case.codec.encode(example(case))
    memory = bytearray(stored)
    found = [case.codec.decode(view) for view in (memory, memoryview(memory), memoryview(memory).toreadonly())]
    memory[:] = bytes(len(memory))
    memory += b"the buffer can move: nothing holds on to it"
    assert all(same(value, case.codec.decode(stored)) for value in found)


@each_case
def test_out_is_filled_and_returned_and_an_inexact_one_refused(case: Case) -> None:
    stored = case.codec.encode(example(case))
    expected = case.codec.decode(stored)
    if not is_array(expected):
        return
    batch = np.zeros((2, *expected.shape), expected.dtype)
    assert case.codec.decode(stored, out=batch[1]) is not None
    assert same(np.ascontiguousarray(batch[1]), expected) and not batch[0].any()
    out = batch[0]
    assert case.codec.decode(stored, out=out) is out
    wider = "float64" if expected.dtype != np.float64 else "float32"
    wrong = [np.zeros(expected.shape, wider), np.zeros((*expected.shape, 1), expected.dtype), bytearray(out.nbytes)]
    wrong += [np.zeros((2, *expected.shape[::-1]), expected.dtype).T[..., 0]] if expected.ndim > 1 else []
    for memory in wrong:
        with pytest.raises(InvalidRequest):
            case.codec.decode(stored, out=memory)


@each_case
def test_values_without_pixels_have_no_view_no_out_and_pixels_have_both(case: Case) -> None:
    stored = case.codec.encode(example(case))
    field = case.codec.field
    if field.kind not in PIXEL_KINDS:
        with pytest.raises(InvalidRequest):
            case.codec.decode(stored, view=Resize((2, 2)).view(4, 4))
        if not is_array(case.codec.decode(stored)) and field.kind != "number":
            with pytest.raises(InvalidRequest):
                case.codec.decode(stored, out=np.zeros(3, np.uint8))
            with pytest.raises(InvalidRequest):
                case.codec.shape(stored)
        return
    pixels = case.codec.decode(stored)
    # without antialias: with it, a JPEG is decoded at a smaller scale, which tests/images/test_decode_through_views.py
    # is about
    resize = Resize((9, 11), antialias=False)
    view = upright(5, *pixels.shape[:2]).then(resize.view(pixels.shape[1], pixels.shape[0]))
    expected = warp(pixels, view, field.kind, invalid=field.invalid)
    out = np.zeros_like(expected)
    assert case.codec.decode(stored, view, out) is out
    found = case.codec.decode(stored, view)
    assert same(out, found)
    if case.codec.exact_views:
        assert same(found, expected)
    else:  # how near it is, its own tests say
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


@pytest.mark.one_in(7)
@each_case
def test_threads_see_what_one_sees(case: Case) -> None:
    stored = case.codec.encode(example(case))
    expected = case.codec.decode(stored)
    start = threading.Barrier(6)

    def work(_: int) -> bool:
        start.wait()
        return all(
            case.codec.encode(example(case)) == stored and same(case.codec.decode(stored), expected) for _ in range(8)
        )

    assert all(ordered_map(work, range(6), threads=6, window=6))


@pytest.mark.one_in(7)
@each_case
@given(data=st.data())
def test_damaged_bytes_give_an_error_or_a_value_of_the_right_form(case: Case, data: st.DataObject) -> None:
    codec = case.codec
    stored = bytearray(codec.encode(example(case)))
    action = data.draw(st.sampled_from(["cut", "extend", "flip", "replace"]))
    at = data.draw(st.integers(0, len(stored) - 1))
    if action == "cut":
        del stored[at:]
    elif action == "extend":
        stored += data.draw(st.binary(min_size=1, max_size=9))
    elif action == "flip":
        stored[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        stored[:] = data.draw(st.binary(max_size=80))
    try:
        shape = codec.shape(bytes(stored)) if codec.field.kind in PIXEL_KINDS else (0,)
        if math.prod(length or 1 for length in shape) > 4_000_000:
            return
        value = codec.decode(bytes(stored))
    except PackerError as error:
        assert "\n" not in str(error) and str(error)
        return
    original = codec.decode(codec.encode(example(case)))
    assert isinstance(value, type(original)) or codec.field.kind == "json"
    if is_array(original):
        assert value.dtype == original.dtype or codec.field.dtype is None
        assert value.ndim == original.ndim
        assert all(want in (None, have) for want, have in zip(codec.field.shape or (), value.shape, strict=True))


@each_case
def test_an_unknown_argument_is_refused(case: Case) -> None:
    with pytest.raises(InvalidRequest, match=r"field 'field'"):
        type(case.codec)(replace(case.codec.field, codec=f"{case.codec.field.codec}:nonsense"))


@each_case
def test_a_kind_that_does_not_fit_is_refused(case: Case) -> None:
    for kind in set(KINDS) - set(case.codec.kinds):
        with pytest.raises(InvalidRequest, match="cannot hold kind"):
            type(case.codec)(replace(case.codec.field, kind=kind))


@each_case
def test_a_value_of_a_wrong_type_is_refused_or_bad_input(case: Case) -> None:
    for value in (object(), None, {1, 2}, np.zeros((2, 2), "c16"), np.array(["a"])):
        if value is None and case.codec.field.kind == "json":
            continue
        with pytest.raises((InvalidRequest, BadInput)):
            case.codec.encode(value)


@each_case
def test_the_completed_field_is_complete_already(case: Case) -> None:
    field = case.codec.field
    assert type(case.codec).complete(field) == field
    assert pickle.loads(pickle.dumps(field)) == field


def test_no_codec_of_the_folder_is_left_out() -> None:
    assert {"encoded", "jpeg", "json", "number", "png", "raw", "text"} <= set(NAMES)


@each_case
def test_an_unpacked_value_of_no_bytes_is_an_error_for_pixels_and_numbers(case: Case) -> None:
    if case.codec.field.kind in (*PIXEL_KINDS, "number"):
        with pytest.raises((CorruptRecord, BadInput)):
            case.codec.decode(b"")
