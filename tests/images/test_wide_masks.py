"""Masks of 16 bit: every value as it is, files of 8 bit widened, and nothing narrowed where nobody asked for 16 bit."""

import numpy as np
import pytest

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.geometry import View, upright
from packer.images import NAMES, DecodeOptions, Decoder, decode, loses_alpha, sniff, validate
from tests.support import image_files
from tests.support.image_files import Pixels

IDS = (np.arange(41 * 67).reshape(41, 67) % 7 * 1000 + 20_001).astype(np.uint16)
IDS[3, 5], IDS[0, 0] = 65_535, 0
GRAYS = image_files.grays()
WIDE = {
    "png": image_files.with_opencv(IDS, ".png"),
    "tiff": image_files.with_opencv(IDS, ".tiff"),
    "pgm": image_files.with_opencv(IDS, ".pgm"),
    "npy": image_files.npy(IDS),
    "three equal channels": image_files.with_opencv(np.dstack([IDS] * 3), ".png"),
}
NARROW = {
    "png": image_files.with_pillow(GRAYS, "PNG"),
    "palette": image_files.palette_png(GRAYS % 4, bits=2),
    "1 bit": image_files.with_pillow(GRAYS > 99, "PNG"),
    "npy": image_files.npy(GRAYS),
    "jpeg": image_files.jpeg(GRAYS),
    "color jpeg": image_files.jpeg(np.dstack([GRAYS] * 3)),
}


def same(found: Pixels, wanted: Pixels) -> bool:
    return found.dtype == np.uint16 and found.flags.c_contiguous and np.array_equal(found, wanted)


@pytest.mark.parametrize("name", WIDE)
def test_every_value_of_16_bit_comes_back(name: str) -> None:
    file = WIDE[name]
    assert same(decode(file, "mask", wide=True), IDS)
    assert validate(file, "mask", wide=True).dtype == "uint16"
    out = np.zeros_like(IDS)
    assert decode(file, "mask", wide=True, out=out) is out
    assert same(out, IDS)


@pytest.mark.parametrize("decoder", NAMES)
@pytest.mark.parametrize("name", NARROW)
def test_a_file_of_8_bit_is_widened(name: str, decoder: str) -> None:
    file, options = NARROW[name], DecodeOptions(decoder=decoder)
    wanted = decode(file, "mask", options=options)
    assert wanted.dtype == np.uint8
    assert same(decode(file, "mask", wide=True, options=options), wanted)
    out = np.zeros(wanted.shape, np.uint16)
    assert decode(file, "mask", wide=True, options=options, out=out) is out
    assert same(out, wanted)
    assert validate(file, "mask", wide=True).dtype == "uint8"


@pytest.mark.parametrize("file", [WIDE["png"], NARROW["png"], NARROW["jpeg"]], ids=["16 bit", "8 bit", "jpeg"])
def test_a_view_shows_the_same_pixels(file: bytes) -> None:
    whole = decode(file, "mask", wide=True)
    cut = View((1.0, 0.0, -2.0, 0.0, 1.0, -3.0), (11, 13))
    assert same(decode(file, "mask", wide=True, view=cut), whole[3:14, 2:15])
    assert same(Decoder("mask", wide=True)(file, cut), whole[3:14, 2:15])
    turned = np.ascontiguousarray(np.rot90(whole, -1))  # EXIF orientation 6
    assert same(decode(file, "mask", wide=True, view=upright(6, *whole.shape)), turned)
    called: list[bool] = []
    found = Decoder("mask", wide=True)(file, cut, decoded=lambda: called.append(True))
    assert same(found, whole[3:14, 2:15]) and called == [True]


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, np.uint32])
def test_what_16_bit_do_not_hold_is_refused(dtype: type) -> None:
    file = image_files.npy(IDS.astype(dtype))
    for refuse in (decode, validate):
        with pytest.raises(BadInput, match="kind mask: .*16 bit") as caught:
            refuse(file, "mask", wide=True)
        assert not isinstance(caught.value, DamagedImage)


def test_colors_are_no_mask() -> None:
    colors = np.dstack([IDS, IDS, IDS + np.uint16(1)])
    with pytest.raises(BadInput, match="channels that differ"):
        decode(image_files.with_opencv(colors, ".png"), "mask", wide=True)


def test_memory_of_another_dtype_is_refused() -> None:
    for file in (WIDE["png"], NARROW["png"], NARROW["jpeg"]):
        with pytest.raises(InvalidRequest, match="C-contiguous.*uint16"):
            decode(file, "mask", wide=True, out=np.zeros(IDS.shape, np.uint8))


def test_alpha_of_16_bit_that_says_more_than_the_grays_is_told() -> None:
    grays = np.repeat(np.uint16([20_000, 30_000]), 24).reshape(6, 8)
    alpha = np.full((6, 8), 65_535, np.uint16)  # of what `with_opencv` takes the first channel becomes the last
    alpha[grays == 20_000] = 256  # of each gray one alpha, equal in its low byte
    plain = image_files.with_opencv(np.dstack([alpha] + [grays] * 3), ".png")
    assert not loses_alpha(plain, sniff(plain))
    alpha[0, 0] = 512
    more = image_files.with_opencv(np.dstack([alpha] + [grays] * 3), ".png")
    assert loses_alpha(more, sniff(more))
    assert same(decode(more, "mask", wide=True), grays)


def test_alpha_of_floats_is_left_to_what_refuses_floats() -> None:
    file = image_files.npy(np.zeros((3, 4, 4), np.float32))
    assert not loses_alpha(file, sniff(file))
    with pytest.raises(BadInput, match="kind mask: .*8 bit"):
        validate(file, "mask")
