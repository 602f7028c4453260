"""Views that no cut and resize can show, and how images shrink: against references written from the definitions."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from packer.geometry import CenterCrop, RandomCrop, Resize, View
from packer.geometry.transforms import rotated, zoomed
from packer.geometry.view import resized_crop
from packer.geometry.warp import warp
from tests.support import image_files

Pixels = npt.NDArray[Any]


def smooth(height: int = 40, width: int = 56) -> Pixels:
    """float (H, W): a pattern without fine detail, 20 to 235."""
    y, x = np.mgrid[:height, :width]
    return 127.5 + 100 * np.sin(x / 6.0) * np.cos(y / 5.0)


def bilinear(array: Pixels, view: View) -> tuple[Pixels, Pixels]:
    """float (H, W): what the four pixels around each point give, and whether the point is well inside."""
    inverse = np.linalg.inv(np.vstack([view.array, [0, 0, 1]]))
    v, u = np.mgrid[: view.size[0], : view.size[1]].astype(float)
    x = inverse[0, 0] * u + inverse[0, 1] * v + inverse[0, 2]
    y = inverse[1, 0] * u + inverse[1, 1] * v + inverse[1, 2]
    height, width = array.shape
    inside = (x >= 0) & (y >= 0) & (x <= width - 1) & (y <= height - 1)
    x0, y0 = np.clip(np.floor(x), 0, width - 2).astype(int), np.clip(np.floor(y), 0, height - 2).astype(int)
    fx, fy = x - x0, y - y0
    top = array[y0, x0] * (1 - fx) + array[y0, x0 + 1] * fx
    bottom = array[y0 + 1, x0] * (1 - fx) + array[y0 + 1, x0 + 1] * fx
    return top * (1 - fy) + bottom * fy, inside


VIEWS = {
    "rotated": rotated(30, 40, 56),
    "rotated and zoomed": rotated(-75, 40, 56).then(zoomed(0.6, 40, 56)),
    "between pixels": View((1.5, 0.0, -7.3, 0.0, 1.25, -4.6), (30, 40)),
    "sheared": View((1.0, 0.3, -4.0, 0.1, 1.0, -2.0), (36, 50)),
    "beyond the edge": View((2.0, 0.0, 9.5, 0.0, 2.0, 9.5), (60, 60)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_an_image_is_the_bilinear_mean_and_black_outside(name: str) -> None:
    view = VIEWS[name]
    gray = smooth()
    image = np.repeat(gray.round().astype(np.uint8)[..., None], 3, axis=2)
    found = warp(image, view, "image")
    expected, inside = bilinear(gray, view)
    assert inside.mean() > 0.3
    assert np.abs(found[..., 0] - expected)[inside].max() <= 3
    out = np.full_like(found, 7)
    assert warp(image, view, "image", out=out) is out
    assert np.array_equal(out, found)


@pytest.mark.parametrize("name", VIEWS)
def test_a_depth_is_the_bilinear_mean_of_valid_pixels(name: str) -> None:
    view = VIEWS[name]
    depth = smooth().astype(np.float32)
    expected, inside = bilinear(depth, view)
    found = warp(depth, view, "depth")
    assert np.abs(found - expected)[inside].max() <= 1.5
    holes = depth.copy()
    holes[10:20, 12:30] = -1
    found = warp(holes, view, "depth", invalid=-1.0)
    measured = found != -1
    assert found[measured].min() >= depth.min() - 1e-3, "a missing pixel was mixed with a measured one"
    weight, inside = bilinear((holes != -1).astype(float), view)
    clear = inside & (np.abs(weight - 0.5) > 0.1)
    assert np.array_equal(measured[clear], weight[clear] > 0.5)


@pytest.mark.parametrize("name", VIEWS)
def test_a_mask_has_no_value_that_was_not_there(name: str) -> None:
    view = VIEWS[name]
    mask = (smooth() // 50 * 50).astype(np.uint8)
    found = warp(mask, view, "mask")
    assert set(np.unique(found)) <= {*np.unique(mask).tolist(), 0}
    inverse = np.linalg.inv(np.vstack([view.array, [0, 0, 1]]))
    v, u = np.mgrid[: view.size[0], : view.size[1]].astype(float)
    x = inverse[0, 0] * u + inverse[0, 1] * v + inverse[0, 2]
    y = inverse[1, 0] * u + inverse[1, 1] * v + inverse[1, 2]
    near_tie = (np.abs(x % 1 - 0.5) < 0.05) | (np.abs(y % 1 - 0.5) < 0.05)
    sure = (x > 0) & (y > 0) & (x < 55) & (y < 39) & ~near_tie
    assert np.array_equal(found[sure], mask[np.rint(y[sure]).astype(int), np.rint(x[sure]).astype(int)])


def test_a_view_of_nothing_but_the_outside_is_fill() -> None:
    away = View((1.0, 0.2, 500.0, 0.0, 1.0, 0.0), (8, 9))
    assert not warp(np.full((20, 30, 3), 9, np.uint8), away, "image").any()
    assert not warp(np.full((20, 30), 9, np.uint8), away, "mask").any()
    assert np.isnan(warp(np.full((20, 30), 9, np.float32), away, "depth")).all()
    assert not warp(np.full((20, 30, 3), 9, np.uint8), View((1.0, 0.0, 500.0, 0.0, 1.0, 0.0), (8, 9)), "image").any()


@pytest.mark.parametrize("size", [30, (25, 60), (60, 20)])
def test_a_center_crop_pads_a_smaller_image(size: int | tuple[int, int]) -> None:
    height, width = (size, size) if isinstance(size, int) else size
    image = np.full((21, 34, 3), 200, np.uint8)
    found = warp(image, CenterCrop(size).view(21, 34), "image")
    assert found.shape == (height, width, 3)
    assert (found[..., 0] == 200).sum() == min(height, 21) * min(width, 34)
    top = -(-(height - 21) // 2) if height > 21 else 0
    assert top == 0 or (not found[: top - 1].any() and found[top + 1, width // 2].all())
    depth = warp(np.ones((21, 34), np.uint16), CenterCrop(size).view(21, 34), "depth", invalid=9)
    assert (depth == 1).sum() == min(height, 21) * min(width, 34)
    assert (depth == 9).sum() == depth.size - (depth == 1).sum()


@given(st.integers(0, 8), st.integers(0, 8), st.sampled_from([1, 0, -1, None]), st.booleans())
def test_a_padded_crop_is_what_numpy_pads(y: int, x: int, flip: int | None, transpose: bool) -> None:
    image = np.random.default_rng(y * 9 + x).integers(1, 256, (12, 15, 3), np.uint8)
    view = RandomCrop((10, 11), padding=4).view(12, 15, (y / 11, x / 13))
    top, left = int(y / 11 * 11), int(x / 13 * 13)
    expected = np.pad(image, ((4, 4), (4, 4), (0, 0)))[top : top + 10, left : left + 11]
    if flip in (1, -1):
        view = view.then(View((-1.0, 0.0, 10.0, 0.0, 1.0, 0.0), (10, 11)))
        expected = expected[:, ::-1]
    if flip in (0, -1):
        view = view.then(View((1.0, 0.0, 0.0, 0.0, -1.0, 9.0), (10, 11)))
        expected = expected[::-1]
    if transpose:
        view = view.then(View((0.0, 1.0, 0.0, 1.0, 0.0, 0.0), (11, 10)))
        expected = expected.swapaxes(0, 1)
    assert np.array_equal(warp(image, view, "image"), expected)
    assert np.array_equal(warp(image[..., 0].copy(), view, "mask"), expected[..., 0])


@pytest.mark.parametrize("size", [(5, 9), (12, 17), (20, 30), (5, 30)])
def test_without_antialias_an_image_is_plain_bilinear(size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (12, 17, 3), np.uint8)
    found = warp(image, Resize(size, antialias=False).view(12, 17), "image")
    assert np.array_equal(found, cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR))


def test_a_cut_looks_at_nothing_outside_of_it() -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    other = image.copy()
    other[:10] = other[:, :10] = 0
    for antialias in (True, False):
        view = resized_crop(10, 10, 25, 30, size=(17, 21), antialias=antialias)
        assert np.array_equal(warp(image, view, "image"), warp(other, view, "image"))


@pytest.mark.parametrize("size", [(218, 291), (185, 246), (160, 213), (133, 178), (123, 164), (240, 200), (150, 320)])
def test_shrinking_is_nearer_to_pillows_antialiased_bilinear_than_plain_bilinear(size: tuple[int, int]) -> None:
    image = image_files.colors(height=240, width=320)
    wanted = np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR))
    found = image_files.psnr(warp(image, Resize(size).view(240, 320), "image"), wanted)
    plain = image_files.psnr(warp(image, Resize(size, antialias=False).view(240, 320), "image"), wanted)
    assert found > plain + 1
    assert found > 35


@pytest.mark.parametrize("degrees", [0, 90, 180, 270, 360, -90])
def test_quarter_turns_of_a_square_are_exact(degrees: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (30, 30, 3), np.uint8)
    found = warp(image, rotated(degrees, 30, 30), "image")
    assert np.array_equal(found, np.rot90(image, degrees // 90))
