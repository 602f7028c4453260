"""JPEGs through views: what is decoded is what the view shows, and the pixels are those of the whole image."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop, View, draw, upright
from packer.geometry.transforms import rotated
from packer.geometry.view import resized_crop
from packer.geometry.warp import warp
from packer.images import DecodeOptions, Decoder, decode, sniff
from packer.images.backends import strict_jpeg
from tests.support import image_files, restart_jpegs
from tests.support.jpeg_libraries import EACH_LIBRARY, LIBRARIES, Noted

pytestmark = pytest.mark.jpeg

IMAGE = image_files.colors(height=150, width=210)
FILES = {
    "kept": image_files.jpeg(IMAGE),
    "4:4:4": image_files.jpeg(IMAGE, sampling="444"),
    "gray": image_files.jpeg(np.ascontiguousarray(IMAGE[..., 0])),
    "progressive": image_files.progressive(IMAGE),
    "png": image_files.with_opencv(IMAGE, ".png"),
    "with intervals": restart_jpegs.packed(150, 210),
}
VIEWS = {
    "crop": View((1.0, 0.0, -31.0, 0.0, 1.0, -17.0), (60, 70)),
    "crop and resize": resized_crop(13, 21, 80, 100, size=(64, 64), antialias=False),
    "enlarged": resized_crop(13, 21, 20, 30, size=(64, 64), antialias=False),
    "mirrored": resized_crop(13, 21, 80, 100, size=(64, 64), antialias=False).then(upright(2, 64, 64)),
    "turned": resized_crop(13, 21, 80, 100, size=(64, 48), antialias=False).then(upright(6, 64, 48)),
    "framed": View((1.0, 0.0, 10.0, 0.0, 1.0, -100.0), (80, 80)),
    "elsewhere": View((1.0, 0.0, 1000.0, 0.0, 1.0, 0.0), (8, 9)),
}


@pytest.mark.parametrize("decoder", ["auto", "opencv"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("view", VIEWS)
def test_pixels_are_those_of_the_whole_image_warped(name: str, view: str, decoder: str) -> None:
    file = FILES[name]
    expected = warp(decode(file, "image"), VIEWS[view], "image")
    out = np.full(expected.shape, 9, np.uint8)
    found = Decoder("image", DecodeOptions(decoder=decoder))(file, VIEWS[view], out, header=sniff(file))
    assert found is out
    assert np.array_equal(found, expected)
    assert np.array_equal(decode(file, "image", view=VIEWS[view], options=DecodeOptions(decoder=decoder)), expected)


@pytest.mark.parametrize("name", FILES)
def test_a_rotation_is_that_of_the_whole_image(name: str) -> None:
    view = rotated(20, 150, 210).then(resized_crop(40, 60, 50, 60, size=(90, 100), antialias=False))
    expected = warp(decode(FILES[name], "image"), view, "image").astype(int)
    found = Decoder("image")(FILES[name], view)
    # OpenCV counts in 1/32 px from the corner of what it is given
    assert np.abs(found - expected).max() <= 12 and np.abs(found - expected).mean() < 0.5


@given(st.integers(0, 10_000), st.sampled_from(["kept", "with intervals"]))
def test_random_crops_are_those_of_the_whole_image(index: int, name: str) -> None:
    geometry = Compose(RandomResizedCrop(40, antialias=False), RandomHorizontalFlip())
    view = geometry.view(150, 210, draw(0, 0, np.asarray([index]), geometry.draws)[0].tolist())
    file = FILES[name]
    assert np.array_equal(Decoder("image")(file, view), warp(decode(file, "image"), view, "image"))


@pytest.mark.parametrize("library", EACH_LIBRARY)
@pytest.mark.parametrize("scale", [1, 2, 4])
@pytest.mark.parametrize("name", ["kept", "with intervals", "4:4:4"])
def test_a_image_that_shrinks_is_decoded_at_a_smaller_scale(
    name: str, scale: int, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    noted = Noted(LIBRARIES[library], lambda call, how: asked.append(how.get("eighths", 8)))
    monkeypatch.setattr(strict_jpeg, "library", lambda: noted)
    box = (8, 16, 128, 160)
    size = round(128 / scale / 1.2), round(160 / scale / 1.2)
    whole = np.asarray(Image.fromarray(decode(FILES[name], "image")))
    asked.clear()
    found = Decoder("image")(FILES[name], resized_crop(*box, size=size))
    assert set(asked) == {8 // scale}
    cut = Image.fromarray(whole[8:136, 16:176])
    assert image_files.psnr(found, np.asarray(cut.resize(size[::-1], Image.Resampling.BILINEAR))) > 33


def test_the_fast_dct_is_another_and_near() -> None:
    accurate, fast = Decoder("image")(FILES["kept"]), Decoder("image", DecodeOptions(dct="fast"))(FILES["kept"])
    difference = np.abs(accurate.astype(int) - fast)
    assert 0 < difference.max() <= 24
    assert difference.mean() < 2
    ways = []
    for how in ({}, {"fast_upsampling": True}, {"fast_dct": True}, {"fast_dct": True, "fast_upsampling": True}):
        strict_jpeg.library().decode(FILES["kept"], pixels := np.empty_like(fast), **how)
        ways.append(pixels)
    assert [np.array_equal(fast, way) for way in ways] == [False, False, True, True]
    assert not np.array_equal(ways[0], ways[1])  # chroma is at half the size
