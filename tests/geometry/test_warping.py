"""Warping, against slow references written from the matrix: every output pixel is looked up in the source."""

import math
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from packer.errors import InvalidRequest
from packer.geometry import Resize, View, identity, upright
from packer.geometry.warp import warp
from tests.support import image_files

Pixels = npt.NDArray[Any]
KINDS = ("image", "depth", "mask")


def sample(kind: str, *, height: int = 12, width: int = 17, seed: int = 0) -> Pixels:
    random = np.random.default_rng(seed)
    if kind == "depth":
        return random.random((height, width)).astype(np.float32)
    return random.integers(0, 256, (height, width, 3) if kind == "image" else (height, width), np.uint8)


def looked_up(array: Pixels, view: View) -> Pixels:
    """Each output pixel is the source pixel that the inverse matrix leads to; for views that hit pixels exactly."""
    inverse = np.linalg.inv(np.vstack([view.array, [0, 0, 1]]))
    result = np.empty((*view.size, *array.shape[2:]), array.dtype)
    for y in range(view.size[0]):
        for x in range(view.size[1]):
            u, v, _ = inverse @ (x, y, 1)
            assert abs(u - round(u)) < 1e-9 and abs(v - round(v)) < 1e-9
            result[y, x] = array[round(v), round(u)]
    return result


def covered(array: Pixels, size: tuple[int, int]) -> tuple[Pixels, Pixels]:
    """How much of each source row and column each output row and column covers, in source pixels."""

    def axis(length: int, count: int) -> Pixels:
        step = length / count
        edges = np.arange(length)
        weights = np.empty((count, length))
        for out in range(count):
            weights[out] = np.clip(np.minimum(edges + 1, (out + 1) * step) - np.maximum(edges, out * step), 0, None)
        return weights / step

    return axis(array.shape[0], size[0]), axis(array.shape[1], size[1])


def masked_mean(array: Pixels, size: tuple[int, int], *, invalid: float | None) -> Pixels:
    """Area mean of the valid pixels; NaN where less than half of the area is valid."""
    valid = np.isfinite(array) & (array != invalid if invalid is not None else True)
    rows, columns = covered(array, size)
    weight = rows @ valid.astype(float) @ columns.T
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = rows @ np.where(valid, array, 0).astype(float) @ columns.T / weight
    return np.where(weight >= 0.5 - 1e-9, mean, np.nan)


def center(array: Pixels, size: tuple[int, int]) -> Pixels:
    """Nearest by the center of each output pixel, in whole numbers."""
    height, width = array.shape
    rows = [math.floor((2 * y + 1) * height // (2 * size[0])) for y in range(size[0])]
    columns = [math.floor((2 * x + 1) * width // (2 * size[1])) for x in range(size[1])]
    return array[np.ix_(rows, columns)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turns_and_mirrors_are_exact(kind: str, orientation: int) -> None:
    array = sample(kind)
    view = upright(orientation, *array.shape[:2])
    result = warp(array, view, kind)
    assert np.array_equal(result, looked_up(array, view))
    assert result.flags.c_contiguous and result.dtype == array.dtype
    if kind != "depth":
        image = Image.fromarray(array)
        exif = image.getexif()
        exif[0x0112] = orientation
        assert np.array_equal(result, np.asarray(ImageOps.exif_transpose(image)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_at_whole_pixels_is_a_copy_of_them(kind: str) -> None:
    array = sample(kind)
    view = View((1.0, 0.0, -3.0, 0.0, 1.0, -2.0), (5, 9))
    assert np.array_equal(warp(array, view, kind), array[2:7, 3:12])
    turned = upright(6, *array.shape[:2]).then(View((1.0, 0.0, -1.0, 0.0, 1.0, -4.0), (8, 6)))
    assert np.array_equal(warp(array, turned, kind), looked_up(array, turned))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "uint64", "float16", "float32", "float64"])
def test_the_identity_is_exact_for_every_dtype(dtype: str) -> None:
    array = (np.random.default_rng(0).random((9, 11)) * 200).astype(dtype)
    array[0, 0] = np.iinfo(dtype).max if dtype.startswith(("u", "i")) else np.inf
    if dtype.startswith("f"):
        array[0, 1] = np.nan
    result = warp(array, identity(9, 11), "depth")
    assert result.tobytes() == array.tobytes() and result.dtype == array.dtype
    assert not np.may_share_memory(result, array)


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_never_the_arrays_memory(kind: str) -> None:
    array = sample(kind)
    for orientation in range(1, 9):
        assert not np.may_share_memory(warp(array, upright(orientation, *array.shape[:2]), kind), array)
    assert not np.may_share_memory(warp(array, View((1.0, 0.0, 0.0, 0.0, 1.0, 0.0), (12, 4)), kind), array)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(6, 8), (12, 17), (30, 40), (6, 40), (30, 8)])
def test_out_is_filled_and_an_inexact_one_refused(kind: str, size: tuple[int, int]) -> None:
    array = sample(kind)
    view = Resize(size).view(*array.shape[:2])
    expected = warp(array, view, kind)
    out = np.zeros((*size, *array.shape[2:]), array.dtype)
    assert warp(array, view, kind, out=out) is out
    assert np.array_equal(out, expected)
    for wrong in (out.astype(np.int16), out[:-1], np.zeros((2, *out.shape), out.dtype)[::2], out.swapaxes(0, 1)):
        with pytest.raises(InvalidRequest, match="out: expected"):
            warp(array, view, kind, out=wrong)


@given(st.integers(2, 40), st.integers(2, 40), st.integers(1, 40), st.integers(1, 40))
def test_an_image_less_than_half_as_large_is_the_area_mean(height: int, width: int, rows: int, columns: int) -> None:
    rows, columns = min(rows, height // 2), min(columns, width)
    array = sample("image", height=height, width=width)
    found = warp(array, Resize((rows, columns)).view(height, width), "image")
    row_weights, column_weights = covered(array, (rows, columns))
    expected = np.einsum("ry,yxc,kx->rkc", row_weights, array.astype(float), column_weights)
    assert np.abs(found - expected).max() <= 1


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 60), st.integers(1, 60))
def test_a_mask_is_the_source_pixel_under_each_center(height: int, width: int, rows: int, columns: int) -> None:
    mask = sample("mask", height=height, width=width)
    found = warp(mask, Resize((rows, columns)).view(height, width), "mask")
    assert np.array_equal(found, center(mask, (rows, columns)))


@pytest.mark.parametrize("size", [(31, 49), (5, 9), (5, 51), (223, 301)])
def test_a_mask_is_what_pillow_and_opencv_give(size: tuple[int, int]) -> None:
    mask = sample("mask", height=47, width=63)  # odd to odd: no center falls on an edge, where those two differ
    found = warp(mask, Resize(size).view(47, 63), "mask")
    assert np.array_equal(found, np.asarray(Image.fromarray(mask).resize(size[::-1], Image.Resampling.NEAREST)))
    assert np.array_equal(found, cv2.resize(mask, size[::-1], interpolation=cv2.INTER_NEAREST_EXACT))


@given(
    st.integers(1, 25),
    st.integers(1, 25),
    st.tuples(st.integers(1, 25), st.integers(1, 25)),
    st.sampled_from([None, -1.0, 0.0]),
    st.sampled_from(["float32", "float64", "uint16"]),
    st.integers(0, 5),
)
@example(height=1, width=20, size=(1, 9), invalid=-1.0, dtype="float32", seed=4)  # half of an area to the digit
def test_a_smaller_depth_is_the_mean_of_its_valid_pixels(
    height: int, width: int, size: tuple[int, int], invalid: float | None, dtype: str, seed: int
) -> None:
    size = (min(size[0], height), min(size[1], width))
    random = np.random.default_rng(seed)
    depth = (random.random((height, width)) * 1000 + 10).astype(dtype)
    holes = random.random((height, width)) < 0.4
    if dtype == "uint16":
        invalid = 0.0 if invalid is not None else None
    depth[holes] = np.nan if invalid is None and dtype != "uint16" else invalid or 0
    found = warp(depth, Resize(size).view(height, width), "depth", invalid=invalid)
    expected = masked_mean(depth, size, invalid=invalid) if size != depth.shape else depth.astype(float)
    missing = np.isnan(expected) if size != depth.shape else np.zeros(size, bool)
    assert found.dtype == depth.dtype
    if invalid is None:
        assert np.array_equal(np.isnan(found[missing]), np.ones(missing.sum(), bool))
    else:
        assert (found[missing] == invalid).all()
    tolerance = 0.501 if dtype == "uint16" else 1e-3
    np.testing.assert_allclose(found[~missing].astype(float), expected[~missing], atol=tolerance, rtol=1e-6)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 20), st.integers(0, 20))
def test_a_larger_depth_has_no_value_that_was_not_there(height: int, width: int, more: int, wider: int) -> None:
    depth = sample("depth", height=height, width=width)
    depth[::2, ::3] = -1
    size = (height + more, width + wider)
    found = warp(depth, Resize(size).view(height, width), "depth", invalid=-1.0)
    assert np.array_equal(found, center(depth, size))


@pytest.mark.parametrize("hole", [-1.0, np.nan, np.inf])
def test_holes_never_bleed_into_depth(hole: float) -> None:
    depth = np.full((60, 80), 2.0, np.float32)
    depth[20:41, 10:51] = hole
    for size in ((25, 33), (25, 160), (120, 33), (120, 160)):
        found = warp(depth, Resize(size).view(60, 80), "depth", invalid=-1.0)
        assert set(np.unique(found[np.isfinite(found)]).tolist()) <= {2.0, -1.0}
        assert 0.15 < np.mean(found != 2.0) < 0.22


def test_zero_is_an_ordinary_depth_unless_it_is_invalid() -> None:
    depth = np.array([[0, 4], [4, 4]], np.uint16)
    view = Resize((1, 1)).view(2, 2)
    assert warp(depth, view, "depth").tolist() == [[3]]
    assert warp(depth, view, "depth", invalid=0).tolist() == [[4]]
    assert warp(depth[:, :1], Resize((1, 1)).view(2, 1), "depth", invalid=0).tolist() == [[4]]
    assert warp(np.array([[0, 0, 4]], np.uint16), Resize((1, 1)).view(1, 3), "depth", invalid=0).tolist() == [[0]]


def test_nothing_valid_gives_nan_where_no_value_was_named() -> None:
    depth = np.full((4, 4), np.nan, np.float16)
    depth[0, 0] = 1
    found = warp(depth, Resize((2, 2)).view(4, 4), "depth")
    assert found.dtype == np.float16 and np.isnan(found).all()


@pytest.mark.parametrize("kind", KINDS)
def test_one_axis_may_shrink_while_the_other_grows(kind: str) -> None:
    array = sample(kind, height=20, width=10)
    found = warp(array, Resize((5, 30)).view(20, 10), kind)
    half = warp(array, Resize((5, 10)).view(20, 10), kind)
    assert np.array_equal(found, warp(half, Resize((5, 30)).view(5, 10), kind))


@pytest.mark.parametrize("kind", KINDS)
def test_turning_and_scaling_is_turning_then_scaling(kind: str) -> None:
    array = sample(kind, height=20, width=30)
    for orientation in range(1, 9):
        turn = upright(orientation, 20, 30)
        size = Resize((8, 11)).view(*turn.size)
        at_once, in_turn = warp(array, turn.then(size), kind), warp(warp(array, turn, kind), size, kind)
        if kind == "image":
            assert np.abs(at_once.astype(int) - in_turn).max() <= 1  # OpenCV rounds a mirrored image the other way
        else:
            assert np.array_equal(at_once, in_turn)


@pytest.mark.parametrize(
    ("matrix", "size", "words"),
    [
        ((0.0, 0.0, 0.0, 0.0, 1.0, 0.0), (4, 4), "determinant"),
        ((2.0, 1.0, 0.0, 4.0, 2.0, 0.0), (4, 4), "determinant"),
        ((float("nan"), 0.0, 0.0, 0.0, 1.0, 0.0), (4, 4), "finite"),
        ((1.0, 0.0, float("inf"), 0.0, 1.0, 0.0), (4, 4), "finite"),
        ((1.0, 0.0, 0.0, 0.0, 1.0, 0.0), (0, 4), "at least 1 pixel"),
    ],
)
def test_a_view_that_shows_nothing_is_refused(
    matrix: tuple[float, float, float, float, float, float], size: tuple[int, int], words: str
) -> None:
    with pytest.raises(InvalidRequest, match="cannot warp") as caught:
        warp(sample("mask"), View(matrix, size), "mask")
    assert words in str(caught.value)


def test_a_kind_without_pixels_and_a_wrong_rank_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="kind 'points'"):
        warp(sample("mask"), identity(12, 17), "points")
    for kind, array in (("mask", sample("image")), ("image", sample("mask"))):
        with pytest.raises(InvalidRequest, match="found shape"):
            warp(array, identity(12, 17), kind)


def test_images_of_one_channel_and_one_pixel_keep_their_shape() -> None:
    gray = image_files.grays()[:, :, None]
    assert warp(gray, Resize((5, 6)).view(*gray.shape[:2]), "image").shape == (5, 6, 1)
    assert warp(np.zeros((1, 1, 3), np.uint8), Resize((3, 2)).view(1, 1), "image").shape == (3, 2, 3)
