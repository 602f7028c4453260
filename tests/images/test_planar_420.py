"""Planes of 4:2:0 images: those of the file to the bit, near libjpeg's pixels, and through views as the whole."""

from collections.abc import Iterator
from functools import partial
from unittest import mock

import cv2
import numpy as np
import pytest
import simplejpeg
import turbojpeg
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import DamagedImage
from packer.geometry import View, resized_crop, upright
from packer.geometry.warp import warp
from packer.images import sniff
from packer.images.backends import strict_jpeg
from packer.images.planar_420 import Pixels, Planes, half, jpeg_planes, planes_of, through_view, to_rgb
from tests.support import image_files, jpeg_libraries
from tests.support.jpeg_libraries import EACH_LIBRARY, LIBRARIES

pytestmark = pytest.mark.jpeg

SIZES = ((41, 67), (40, 66), (40, 67), (41, 66), (1, 5), (375, 500))


def planes(file: bytes) -> Planes:
    found = jpeg_planes(file, sniff(file))
    assert found is not None
    return found


def color(height: int, width: int, seed: int = 0) -> Planes:
    return planes(image_files.jpeg(image_files.colors(seed, height=height, width=width)))


def apart(one: Pixels, other: Pixels) -> Pixels:
    return np.abs(one.astype(int) - other)


# ---- planes of files


@pytest.mark.parametrize("size", SIZES)
def test_the_planes_are_those_of_the_file(size: tuple[int, int]) -> None:
    """As libjpeg-turbo's own call gives them, which the library that packer prefers has and not every one."""
    path = jpeg_libraries.bundled()
    if path is None:
        pytest.skip("no pylibjxl here, whose libturbojpeg is called: it needs Python 3.11")
    file = image_files.jpeg(image_files.colors(height=size[0], width=size[1]))
    expected = turbojpeg.TurboJPEG(str(path)).decode_to_yuv_planes(file)
    found = planes(file)
    shapes = (size, half(*size), half(*size))
    for plane, other, shape in zip(found, expected, shapes, strict=True):
        assert plane is not None and plane.shape == shape
        assert np.array_equal(plane, other[: shape[0], : shape[1]])


def kinds() -> Iterator[tuple[str, bytes]]:
    pixels = image_files.colors()
    plain = image_files.jpeg(pixels)
    yield "baseline", plain
    yield "progressive", image_files.progressive(pixels)
    yield "restarts", image_files.with_opencv(pixels, ".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 2)
    yield "EXIF", image_files.oriented(6, pixels=pixels)
    yield "without its end", plain[:-2]
    yield "with a second image behind", plain + plain
    yield "with fill bytes", plain[:2] + b"\xff\xff" + plain[2:]
    yield "without JFIF", plain[:2] + plain[4 + int.from_bytes(plain[4:6], "big") :]


KINDS = dict(kinds())


@pytest.mark.parametrize("library", EACH_LIBRARY)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_420_jpeg_has_planes_near_its_pixels(name: str, library: str) -> None:
    file = KINDS[name]
    with mock.patch.object(strict_jpeg, "library", lambda: LIBRARIES[library]):
        found = planes(file)
        expected = np.empty((41, 67, 3), np.uint8)
        strict_jpeg.decode(file, sniff(file), expected)
    difference = apart(to_rgb(found), expected)
    assert difference.max() <= 3 and difference.mean() <= 0.3
    assert found.cb is not None and len(np.unique(found.cb)) > 9, "colors, not a plane of grays"


def rgb_jpeg() -> bytes:
    """A JPEG whose components are R, G and B, with factors as of 4:2:0: its second and third are no chroma."""
    plain = image_files.jpeg()
    adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
    return plain[:2] + adobe + plain[4 + int.from_bytes(plain[4:6], "big") :]


@pytest.mark.parametrize(
    "file",
    [image_files.jpeg(sampling=name) for name in ("444", "422", "440", "411")]
    + [image_files.jpeg(image_files.grays()), image_files.cmyk(), rgb_jpeg()]
    + [image_files.with_pillow(image_files.colors(), "PNG")],
)
def test_what_is_no_ycbcr_420_has_no_planes(file: bytes) -> None:
    assert jpeg_planes(file, sniff(file)) is None


@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_a_damaged_file_has_none(library: str) -> None:
    file = image_files.jpeg()
    with mock.patch.object(strict_jpeg, "library", lambda: LIBRARIES[library]):
        for damaged in (file[: len(file) * 2 // 3], file[:400] + bytes(40) + file[440:]):
            with pytest.raises(DamagedImage):
                jpeg_planes(damaged, sniff(damaged))


def check_whole_images(count: int) -> tuple[int, float]:
    """The largest difference to libjpeg's own pixels over images of random sizes and qualities, and the mean."""
    largest, means = 0, []
    for seed in range(count):
        random = np.random.default_rng(seed)
        height, width = random.integers(5, 260, 2).tolist()
        pixels = image_files.colors(seed, height=height, width=width)
        file = image_files.jpeg(pixels, quality=int(random.integers(30, 101)))
        difference = apart(to_rgb(planes(file)), simplejpeg.decode_jpeg(file))
        largest = max(largest, int(difference.max()))
        means.append(difference.mean())
    return largest, max(means)


@pytest.mark.parametrize("count", [12, pytest.param(1000, marks=pytest.mark.full)])
def test_whole_images_are_near_libjpeg(count: int) -> None:
    largest, mean = check_whole_images(count)
    assert largest <= 3 and mean <= 0.3


# ---- planes of pixels


@pytest.mark.parametrize("size", SIZES)
def test_pixels_become_planes_by_the_formula_of_jfif(size: tuple[int, int]) -> None:
    pixels = image_files.colors(height=size[0], width=size[1])
    found = planes_of(pixels)
    red, green, blue = pixels.astype(float).transpose(2, 0, 1)
    y = 0.299 * red + 0.587 * green + 0.114 * blue
    assert np.abs(found.y - y).max() <= 0.51
    for plane, full in ((found.cb, (blue - y) / 1.772), (found.cr, (red - y) / 1.402)):
        even = np.pad(full, [(0, side % 2) for side in size], "edge")
        mean = even.reshape(even.shape[0] // 2, 2, -1, 2).mean(axis=(1, 3))
        assert plane is not None and plane.shape == half(*size)
        assert np.abs(plane - np.clip(mean + 128, 0, 255)).max() <= 0.51


def test_conversion_is_in_whole_numbers() -> None:
    """What OpenCV's vectors make and what it makes of the last pixels of a row, at each length, are one formula."""
    random = np.random.default_rng(0)
    for width in (*range(1, 70), 257):
        y, cb, cr = random.integers(0, 256, (3, 2, width), np.uint8)
        found = to_rgb(Planes(y, cb[:1, ::2].copy(), cr[:1, ::2].copy()))
        blue, red = (doubled(plane[:1, ::2], width) - 128 for plane in (cb, cr))
        y = y.astype(np.int64)
        exact = [1024 * y + 1436 * red, 1024 * y - 352 * blue - 731 * red, 1024 * y + 1815 * blue]
        assert np.array_equal(found, np.clip(np.stack(exact, -1) + 512 >> 10, 0, 255))


def doubled(samples: Pixels, width: int) -> Pixels:
    """int64 (2, width): each sample, 3/4 of the nearest and 1/4 of the next, rounded."""
    beside = np.pad(samples[0].astype(np.int64), 1, "edge")
    pairs = np.stack([3 * beside[1:-1] + beside[:-2], 3 * beside[1:-1] + beside[2:]], -1).ravel()
    return np.tile((pairs[:width] + 2) // 4, (2, 1))


def test_grays_come_back_exactly() -> None:
    gray = image_files.grays()
    found = planes_of(np.repeat(gray[:, :, None], 3, axis=2))
    assert np.array_equal(found.y, gray)
    assert (found.cb == 128).all() and (found.cr == 128).all()
    for made in (found, Planes(gray)):
        assert np.array_equal(to_rgb(made), np.repeat(gray[:, :, None], 3, axis=2))


# ---- views

SIDES = st.integers(1, 40)


@st.composite
def cuts(draw: st.DrawFn) -> tuple[int, int, int, int, int, int]:
    """Size of an image, then top, left, height and width of a part of it."""
    height, width = draw(SIDES), draw(SIDES)
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    return height, width, top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left))


@given(cut=cuts(), orientation=st.integers(1, 8), is_gray=st.booleans())
def test_a_cut_mirrored_or_turned_is_that_of_the_whole(
    cut: tuple[int, int, int, int, int, int], orientation: int, is_gray: bool
) -> None:
    height, width, top, left, rows, columns = cut
    made = planes_of(image_files.colors(height=height, width=width))
    made = Planes(made.y) if is_gray else made
    view = resized_crop(top, left, rows, columns, size=(rows, columns)).then(upright(orientation, rows, columns))
    assert np.array_equal(through_view(made, view), warp(to_rgb(made), view, "image"))


@pytest.mark.parametrize(
    "view",
    [
        View((0.9, 0.2, -3.0, -0.2, 0.8, 5.0), (30, 41)),
        View((1.0, 0.0, 10.0, 0.0, 1.0, -5.0), (61, 67)),
        View((1.0, 0.0, 0.25, 0.0, 1.0, 0.0), (41, 67)),
        View((0.3, 0.0, 0.1, 0.0, 0.3, 0.2), (11, 18)),
        View((1.0, 0.0, 500.0, 0.0, 1.0, 500.0), (9, 9)),
        View((0.9, 0.2, 900.0, -0.2, 0.8, 5.0), (9, 9)),
    ],
)
def test_what_is_turned_or_lies_beyond_is_as_of_the_whole(view: View) -> None:
    made = color(41, 67)
    found, expected = through_view(made, view), warp(to_rgb(made), view, "image")
    assert np.array_equal(found, expected)


def ramp(height: int, width: int) -> Planes:
    """Chroma that rises by as much from pixel to pixel, without an edge: each shift shows, and clips nowhere."""
    y = np.full((height, width), 128, np.uint8)
    rows, columns = half(height, width)
    cb, cr = np.meshgrid(65 + 4 * np.arange(columns), 65 + 4 * np.arange(rows))
    return Planes(y, cb.astype(np.uint8), cr.astype(np.uint8))


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("scale", [0.3, 0.45, 0.75, 1.5, 3.0])
def test_chroma_lies_where_the_image_does(scale: float, antialias: bool) -> None:
    """In the inside of a cut, wherever it begins and ends: half a pixel would be 1.8 levels of blue, a sample 7."""
    made = ramp(60, 60)
    whole = to_rgb(made)
    for top, left, rows, columns in [(8, 8, 40, 40), (9, 8, 40, 40), (9, 9, 41, 40), (11, 9, 41, 41), (8, 11, 41, 41)]:
        size = round(rows * scale), round(columns * scale)
        view = resized_crop(top, left, rows, columns, size=size, antialias=antialias)
        rim = 2 + round(2 * scale)
        inside = apart(through_view(made, view), warp(whole, view, "image"))[rim:-rim, rim:-rim]
        assert inside.size and inside.max() <= 2 and inside.mean() < 0.9, (top, left, rows, columns)


@pytest.mark.parametrize("antialias", [False, True])
def test_a_scaled_cut_is_near_that_of_the_whole(antialias: bool) -> None:
    """Noise over smooth colors, which is harder than photographs: these have 0.4 in the mean."""
    made = color(375, 500, 3)
    whole, random, means = to_rgb(made), np.random.default_rng(0), []
    for _ in range(24):
        rows, columns = random.integers(2, 375), random.integers(2, 500)
        top, left = random.integers(0, 376 - rows), random.integers(0, 501 - columns)
        size = (int(random.integers(1, 90)), int(random.integers(1, 90)))
        view = resized_crop(int(top), int(left), int(rows), int(columns), size=size, antialias=antialias)
        view = view.then(upright(int(random.integers(1, 9)), *size))
        difference = apart(through_view(made, view), warp(whole, view, "image"))
        means.append(difference.mean())
        assert difference.max() <= 24
    assert np.mean(means) <= 1.0


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (3, 3), (2, 400), (400, 2)])
def test_small_and_narrow_images_take_any_view(size: tuple[int, int]) -> None:
    made = planes_of(image_files.colors(height=size[0], width=size[1]))
    for top in range(min(2, size[0])):
        for left in range(min(2, size[1])):
            cut = partial(resized_crop, top, left, size[0] - top, size[1] - left)
            for out in ((1, 1), (7, 5), (5, 300), (300, 5)):
                assert through_view(made, cut(size=out)).shape == (*out, 3)


def test_a_image_of_many_bands_is_one_image() -> None:
    made = color(375, 500)
    with mock.patch("packer.images.planar_420._BAND_PX", 500 * 16):
        banded = to_rgb(made)
    assert np.array_equal(banded, to_rgb(made))
