"""Decoding: what each kind gives from each format, and that what is cut or changed never passes for an image."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from packer import images
from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.geometry import Resize, upright
from packer.geometry.warp import warp
from packer.images import NAMES, DecodeOptions, decode, sniff, validate
from tests.support import image_files

pytestmark = pytest.mark.jpeg

LOSSLESS = image_files.lossless()
DEPTHS = image_files.depths()
JPEGS = image_files.jpegs()


@pytest.mark.parametrize("decoder", NAMES)
@pytest.mark.parametrize("name", LOSSLESS)
def test_an_image_is_rgb_from_every_lossless_format(name: str, decoder: str) -> None:
    file, pixels = LOSSLESS[name]
    found = decode(file, "image", options=DecodeOptions(decoder=decoder))
    assert (found.dtype, found.shape) == (np.uint8, pixels.shape)
    assert np.array_equal(found, pixels)
    assert found.flags.c_contiguous and found.flags.writeable


@pytest.mark.parametrize("name", DEPTHS)
def test_a_depth_is_bit_exact(name: str) -> None:
    file, depth = DEPTHS[name]
    found = decode(file, "depth")
    assert (found.dtype, found.shape) == (depth.dtype, depth.shape)
    assert found.tobytes() == depth.tobytes()
    assert validate(file, "depth") == validate(file, "depth", full=False) == sniff(file)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_palette_png_is_indices_as_a_mask_and_colors_as_an_image(bits: int) -> None:
    indices = np.random.default_rng(bits).integers(0, 1 << bits, (33, 37), np.uint8)
    file = image_files.palette_png(indices, bits=bits)
    assert np.array_equal(decode(file, "mask"), indices)
    with Image.open(io.BytesIO(file)) as image:
        assert np.array_equal(np.asarray(image), indices)
        assert np.array_equal(decode(file, "image"), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("make", [image_files.palette_bmp, image_files.palette_tiff])
@pytest.mark.parametrize("colors", ["colors", "grays"])
def test_a_palette_bmp_or_tiff_is_indices_as_a_mask_too(make: Callable[..., bytes], bits: int, colors: str) -> None:
    """Pillow's array holds the same: a palette of grays is one unless each entry is its own number."""
    random = np.random.default_rng(bits)
    indices = random.integers(0, 1 << bits, (33, 37), np.uint8)
    table = random.integers(1, 255, (1 << bits, 3), np.uint8)
    file = make(indices, table if colors == "colors" else np.repeat(table[:, :1], 3, axis=1), bits=bits)
    with Image.open(io.BytesIO(file)) as image:
        assert np.array_equal(np.asarray(image), indices)
        assert np.array_equal(decode(file, "image"), np.asarray(image.convert("RGB")))
    assert sniff(file).palette
    assert np.array_equal(decode(file, "mask"), indices)


@pytest.mark.parametrize("entries", [2, 300])
def test_a_tiff_whose_palette_is_not_of_its_bits_is_damaged(entries: int) -> None:
    indices = np.zeros((5, 7), np.uint8)
    file = bytearray(image_files.palette_tiff(indices, np.zeros((300, 3), np.uint8), bits=8))
    at = file.index(struct.pack("<HHI", 320, 3, 3 << 8))
    struct.pack_into("<I", file, at + 4, 3 * entries)
    with pytest.raises(DamagedImage, match=f"palette.* {3 * entries} values"):
        decode(bytes(file), "mask", options=DecodeOptions(check_data=False))


def test_a_bmp_that_ends_in_its_palette_is_damaged() -> None:
    table = np.random.default_rng(0).integers(0, 256, (256, 3), np.uint8)
    file = image_files.palette_bmp(np.zeros((5, 7), np.uint8), table, bits=8)
    for length in (60, 61, 500):
        for strict in (True, False):
            with pytest.raises(DamagedImage):
                decode(file[:length], "mask", options=DecodeOptions(strict=strict))


@pytest.mark.parametrize("bits", [1, 8])
def test_a_bmp_whose_table_is_the_plain_grays_is_no_palette(bits: int) -> None:
    values = np.arange(256) if bits == 8 else np.array([0, 255])
    indices = np.random.default_rng(bits).integers(0, 1 << bits, (33, 37), np.uint8)
    file = image_files.palette_bmp(indices, np.repeat(values[:, None], 3, axis=1), bits=bits)
    assert not sniff(file).palette
    assert np.array_equal(decode(file, "mask"), values[indices])


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM"])
def test_a_mask_is_gray_as_it_is_or_1_bit_as_0_and_255(form: str) -> None:
    gray = image_files.grays()
    one = np.where(gray > 127, 255, 0).astype(np.uint8)
    bits = np.packbits(gray > 127, axis=1)
    assert np.array_equal(decode(image_files.with_pillow(gray, form), "mask"), gray)
    assert np.array_equal(decode(image_files.with_pillow(np.dstack([gray] * 3), form), "mask"), gray)
    image = Image.frombytes("1", (gray.shape[1], gray.shape[0]), bits.tobytes())
    file = io.BytesIO()
    image.save(file, form)
    assert np.array_equal(decode(file.getvalue(), "mask"), one)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP"])
def test_alpha_is_dropped_from_a_mask(form: str) -> None:
    gray = image_files.grays()
    file = image_files.with_pillow(np.dstack([gray, gray, gray, 255 - gray]), form, lossless=True, exact=True)
    assert np.array_equal(decode(file, "mask"), gray)


@pytest.mark.parametrize("decoder", NAMES)
def test_a_color_jpeg_is_a_mask_only_if_its_channels_are_equal(decoder: str) -> None:
    gray = np.full((24, 40), 77, np.uint8)
    equal = image_files.jpeg(np.dstack([gray] * 3))
    assert np.array_equal(decode(equal, "mask", options=DecodeOptions(decoder=decoder)), gray)
    assert validate(equal, "mask").channels == 3
    for refuse in (
        lambda: decode(JPEGS["baseline 420"], "mask", options=DecodeOptions(decoder=decoder)),
        lambda: validate(JPEGS["cmyk"], "mask"),
    ):
        with pytest.raises(BadInput, match="channels that differ"):
            refuse()


@pytest.mark.parametrize("kind", ["image", "mask"])
@pytest.mark.parametrize("name", [name for name in DEPTHS if "8 bit" not in name])
def test_more_than_8_bit_is_never_narrowed(kind: str, name: str) -> None:
    has_labels = kind == "mask" and name in ("tiff 16 bit", "png 16 bit", "pgm 16 bit")
    other = "mask:uint16" if has_labels else "depth"
    for refuse in (decode, validate):
        with pytest.raises(
            BadInput,
            match=f"kind {kind}: .*8 bit.*kind {other} in its --sidecar",
        ) as caught:
            refuse(DEPTHS[name][0], kind)
        assert not isinstance(caught.value, DamagedImage)


def test_colors_are_no_depth() -> None:
    for file in (LOSSLESS["png"][0], JPEGS["baseline 420"], image_files.palette_png(image_files.grays())):
        with pytest.raises(BadInput, match="depth: .*1 channel"):
            decode(file, "depth")


def test_a_name_that_is_none_is_refused() -> None:
    file = image_files.jpeg()
    for kind in ("points", "text", "video"):
        with pytest.raises(InvalidRequest, match=f"kind '{kind}'"):
            decode(file, kind)
    for wrong in (
        lambda: decode(file, "image", options=DecodeOptions(decoder="pillow")),
        lambda: images.describe("pillow"),
    ):
        with pytest.raises(InvalidRequest, match="decoder 'pillow'.*turbojpeg, opencv"):
            wrong()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_never_turns_pixels(form: str, orientation: int) -> None:
    first = decode(image_files.oriented(1, form), "image")
    for decoder in NAMES:
        assert np.array_equal(
            decode(image_files.oriented(orientation, form), "image", options=DecodeOptions(decoder=decoder)), first
        )


@pytest.mark.parametrize("name", ["tiff", "tiff alpha", "tiff gray", "tiff lzw", "tiff lzw predictor 1"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_never_turns_a_tiff(name: str, orientation: int) -> None:
    kind = "image" if name in LOSSLESS else "depth"
    file, pixels = (DEPTHS | LOSSLESS)[name]
    assert decode(image_files.with_orientation(file, orientation), kind).tobytes() == pixels.tobytes()


def test_profiles_of_a_png_change_nothing_and_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    file, pixels = LOSSLESS["png"]
    (_, first, length), *_ = image_files.png_chunks(file)
    profile = image_files.chunk(b"iCCP", b"x\0\0" + zlib.compress(b"no profile"))
    more = image_files.chunk(b"gAMA", struct.pack(">I", 30_000)) + image_files.chunk(b"tRNS", bytes(6))
    changed = file[: first + length + 4] + profile + more + file[first + length + 4 :]
    assert np.array_equal(decode(changed, "image"), pixels)
    assert capfd.readouterr() == ("", "")


def animated(file: bytes, frames: int) -> bytes:
    """The PNG with the chunk that announces so many frames before its data."""
    (_, first, length), *_ = image_files.png_chunks(file)
    control = image_files.chunk(b"acTL", struct.pack(">II", frames, 0))
    return file[: first + length + 4] + control + file[first + length + 4 :]


@pytest.mark.parametrize("frames", [0, 2, 1 << 31])
def test_an_animated_png_is_refused(frames: int) -> None:
    for refuse in (decode, validate):
        with pytest.raises(DamagedImage, match="PNG: animations"):
            refuse(animated(LOSSLESS["png"][0], frames), "image")


def test_of_animated_pngs_only_one_of_one_frame_is_an_image() -> None:
    file, pixels = LOSSLESS["png"]
    assert np.array_equal(decode(animated(file, 1), "image"), pixels)
    animation = io.BytesIO()
    first, second = (Image.fromarray(image_files.colors() ^ flip) for flip in (0, 255))
    first.save(animation, "PNG", save_all=True, append_images=[second])
    with pytest.raises(DamagedImage, match="animations"):
        decode(animation.getvalue(), "image")


def test_a_tiff_of_several_images_is_refused_and_a_small_version_is_none_of_them() -> None:
    pages = [Image.fromarray(image_files.colors() ^ flip) for flip in (0, 255)]
    for big in (False, True):
        file = io.BytesIO()
        pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:], big_tiff=big)
        with pytest.raises(DamagedImage, match="TIFF: several"):
            decode(file.getvalue(), "image")
    pages = [Image.fromarray(image_files.colors()), Image.fromarray(image_files.colors()[::4, ::4])]
    pages[1].encoderinfo = {"tiffinfo": {254: 1}}  # type: ignore[attr-defined]
    file = io.BytesIO()
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:])
    assert np.array_equal(decode(file.getvalue(), "image"), image_files.colors())


def test_a_tiff_in_cielab_is_refused() -> None:
    file = io.BytesIO()
    colors = image_files.colors()
    Image.frombytes("LAB", colors.shape[1::-1], colors.tobytes()).save(file, "TIFF")
    with pytest.raises(DamagedImage, match="CIELab"):
        decode(file.getvalue(), "image")


@pytest.mark.parametrize("name", [*JPEGS, *LOSSLESS])
def test_bytes_known_to_be_good_decode_the_same_without_the_check(name: str) -> None:
    file = JPEGS[name] if name in JPEGS else LOSSLESS[name][0]
    endless = file[:-2] if name in JPEGS else file
    expected = decode(file, "image")
    for decoder in NAMES:
        assert np.array_equal(decode(endless, "image", options=DecodeOptions(decoder=decoder, strict=False)), expected)


@pytest.mark.parametrize("decoder", NAMES)
@pytest.mark.parametrize("name", ["baseline 420", "gray", "cmyk", "png", "npy", "npy gray", "tiff"])
def test_out_is_filled_and_returned(name: str, decoder: str) -> None:
    file = JPEGS[name] if name in JPEGS else LOSSLESS[name][0]
    batch = np.full((3, *image_files.colors().shape), 7, np.uint8)
    given_out = batch[1]
    assert decode(file, "image", options=DecodeOptions(decoder=decoder), out=given_out) is given_out
    assert np.array_equal(batch[1], decode(file, "image"))
    assert (batch[[0, 2]] == 7).all()


@pytest.mark.parametrize("decoder", NAMES)
@pytest.mark.parametrize("name", ["baseline 420", "cmyk", "png"])
def test_memory_that_does_not_fit_is_refused_and_left_alone(name: str, decoder: str) -> None:
    file = JPEGS[name] if name in JPEGS else LOSSLESS[name][0]
    height, width, _ = image_files.colors().shape
    read_only = np.zeros((height, width, 3), np.uint8)
    read_only.flags.writeable = False
    wrong = [
        np.zeros((width, height, 3), np.uint8),
        np.zeros((height, width, 4), np.uint8),
        np.zeros((height, width, 3), np.int8),
        np.zeros((height, width, 3), np.float32),
        np.zeros((height, 2 * width, 3), np.uint8)[:, ::2],
        np.zeros((height, width, 3), np.uint8, order="F"),
        read_only,
        bytearray(height * width * 3),
    ]
    for out in wrong:
        with pytest.raises(InvalidRequest, match="^out: expected a"):
            decode(file, "image", options=DecodeOptions(decoder=decoder), out=out)
        assert not np.frombuffer(out, np.uint8).any() if isinstance(out, bytearray) else not out.any()


@pytest.mark.parametrize("kind", ["depth", "mask"])
def test_a_gray_jpeg_goes_straight_into_out(kind: str) -> None:
    out = np.zeros(image_files.grays().shape, np.uint8)
    assert decode(JPEGS["gray"], kind, out=out) is out
    assert np.array_equal(out, decode(JPEGS["gray"], kind, options=DecodeOptions(decoder="opencv")))


@pytest.mark.parametrize("name", ["baseline 420", "gray", "png", "npy", "bmp"])
def test_what_is_returned_is_no_view_of_the_buffer(name: str) -> None:
    file = JPEGS[name] if name in JPEGS else LOSSLESS[name][0]
    expected = decode(file, "image")
    memory = bytearray(file)
    found = [decode(view, "image") for view in (memory, memoryview(memory), memoryview(memory).toreadonly())]
    for depth_file, depth in (DEPTHS["npy Fortran order"], DEPTHS["npy float16"]):
        depth_memory = bytearray(depth_file)
        kept = decode(depth_memory, "depth")
        depth_memory[-4000:] = bytes(4000)
        assert kept.tobytes() == depth.tobytes()
    memory[:] = bytes(len(memory))
    assert all(np.array_equal(pixels, expected) for pixels in found)


def test_a_view_is_applied_after_decoding() -> None:
    pixels = decode(JPEGS["baseline 420"], "image")
    view = upright(6, *pixels.shape[:2]).then(Resize((20, 30)).view(pixels.shape[1], pixels.shape[0]))
    out = np.zeros((20, 30, 3), np.uint8)
    for decoder in NAMES:
        assert decode(JPEGS["baseline 420"], "image", options=DecodeOptions(decoder=decoder), view=view, out=out) is out
        assert np.array_equal(out, warp(pixels, view, "image"))


def test_a_view_of_a_depth_knows_what_is_invalid() -> None:
    file, depth = DEPTHS["tiff"]
    view = Resize((18, 26)).view(*depth.shape)
    expected = warp(depth, view, "depth", invalid=-1.0)
    assert np.array_equal(decode(file, "depth", view=view, invalid=-1.0), expected)
    assert (expected == -1).any() and (expected[expected != -1] > 0.4).all()
