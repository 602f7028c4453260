"""The data of TIFF strips: LZW against a plain decoder, what writers differ in, and the limits."""

import random
import struct
import zlib
from functools import partial

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import DamagedImage
from packer.images import decode, lzw_decoded_size, sniff, strict_check, validate
from tests.support import half_images, image_files

ROWS, COLUMNS = 20, 30
GRAY = half_images.flat(ROWS, COLUMNS)
RAW = GRAY.tobytes()


def decoded_size(stream: bytes) -> int | None:
    """Bytes that an LZW stream decodes to, code by code as TIFF 6.0 section 13 has it; None where it is damaged."""
    bits = "".join(f"{byte:08b}" for byte in stream)
    table: list[int] = []  # lengths of the strings from 258 on
    at, width, size, last = 0, 9, 0, None
    if bits[:9] != "100000000":
        return None
    while at + width <= len(bits):
        code = int(bits[at : at + width], 2)
        at += width
        if code == 257:
            return size
        if code == 256:
            table, width, last = [], 9, None
            continue
        if last is not None:
            table.append(last + 1)
        if code >= 258 + len(table):
            return None
        last = 1 if code < 256 else table[code - 258]
        size += last
        width = 9 + sum(258 + len(table) > most for most in (510, 1022, 2046))
    return size


def found_size(stream: bytes) -> int | None:
    """The same, by packer."""
    try:
        return lzw_decoded_size.decoded_size(stream, "strip", most=1 << 30)
    except DamagedImage:
        return None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(3))
def test_the_size_of_lzw_data_is_that_of_a_plain_decoder(seed: int) -> None:
    source = random.Random(seed)
    noise = np.frombuffer(source.randbytes(22_500), np.uint8).reshape(150, 150)
    for pixels in (noise, noise >> 4, noise // 255, half_images.photo(150, 150, "uint8")):
        stream = half_images.packed(np.ascontiguousarray(pixels), "lzw")
        assert found_size(stream) == decoded_size(stream) == pixels.size
        for _ in range(4):
            changed = bytearray(stream)
            changed[source.randrange(2, min(len(stream), 4000))] ^= 1 << source.randrange(8)
            assert found_size(bytes(changed)) == decoded_size(bytes(changed))


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=120))
def test_any_lzw_data_have_one_size_or_are_damaged(tail: bytes, codes: list[int]) -> None:
    bits = "100000000" + "".join(f"{code:09b}" for code in codes)
    stream = int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big") + tail
    assert found_size(stream) == decoded_size(stream)
    assert found_size(b"\x80\x00" + tail) == decoded_size(b"\x80\x00" + tail)


def test_a_table_that_is_never_cleared_is_damaged() -> None:
    stream = half_images.packed(np.frombuffer(random.Random(0).randbytes(3600), np.uint8).reshape(60, 60), "lzw")
    assert found_size(stream) == 3600
    with pytest.raises(DamagedImage, match="without a clear"):
        lzw_decoded_size.decoded_size(b"\x80" + bytes(8000), "strip 3", most=1 << 30)
    with pytest.raises(DamagedImage, match="strip 3: .*LZW.*old"):
        lzw_decoded_size.decoded_size(b"\x00\x01" + bytes(100), "strip 3", most=1 << 30)


def tiff(data: bytes, compression: int, **more: int) -> bytes:
    """A little-endian TIFF of one strip and 20 x 30 px, 8 bit gray, whose directory comes first."""
    tags = {256: COLUMNS, 257: ROWS, 258: 8, 259: compression, 262: 1, 277: 1, 278: ROWS, 279: len(data)}
    tags |= {int(name.removeprefix("tag_")): value for name, value in more.items()}
    tags[273] = 8 + 2 + 12 * (len(tags) + 1) + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + data


def runs(data: bytes) -> bytes:
    """PackBits of single literals and empty runs."""
    return b"".join(b"\x80\x00" + bytes([byte]) for byte in data)


LZW = half_images.packed(GRAY, "lzw")
PACKBITS = half_images.packed(GRAY, "packbits")


@pytest.mark.parametrize(
    ("data", "compression"),
    [
        (RAW, 1),
        (RAW + b"more", 1),
        (LZW, 5),
        (LZW + b"padding", 5),
        (zlib.compress(RAW, 0), 8),
        (zlib.compress(RAW) + b"padding", 8),
        (zlib.compress(RAW), 32946),
        (PACKBITS, 32773),
        (PACKBITS + b"\0", 32773),
        (runs(RAW), 32773),
    ],
)
def test_what_writers_differ_in_is_taken(data: bytes, compression: int) -> None:
    file = tiff(data, compression)
    validate(file, "mask")
    assert np.array_equal(decode(file, "mask"), GRAY)


@pytest.mark.parametrize("compression", [1, 5, 8, 32773])
def test_the_lowest_bit_may_come_first(compression: int) -> None:
    data = {1: RAW, 5: LZW, 8: zlib.compress(RAW), 32773: PACKBITS}[compression]
    file = tiff(bytes(int(f"{byte:08b}"[::-1], 2) for byte in data), compression, tag_266=2)
    validate(file, "mask")
    assert np.array_equal(decode(file, "mask"), GRAY)


@pytest.mark.parametrize("compression", ["lzw", "deflate", "packbits"])
def test_the_last_strip_may_be_filled_up(compression: str) -> None:
    def height(rows: int) -> bytes:
        return struct.pack("<HHII", 257, 4, 1, rows)

    pixels = half_images.flat(ROWS, COLUMNS)
    file = half_images.tiff(pixels, compression, rows=ROWS // 2)
    filled = file.replace(height(ROWS), height(ROWS - 4))
    validate(filled, "mask")
    assert np.array_equal(decode(filled, "mask"), pixels[: ROWS - 4])
    with pytest.raises(DamagedImage, match="strip 1"):
        validate(
            half_images.tiff(pixels[:-4], compression, rows=ROWS // 2).replace(height(ROWS - 4), height(ROWS)), "mask"
        )
    with pytest.raises(DamagedImage, match="strip 0"):  # in the first there is nothing to fill up
        validate(half_images.tiff(pixels, compression).replace(height(ROWS), height(ROWS - 4)), "mask")


@pytest.mark.parametrize(
    ("data", "compression", "words"),
    [
        (RAW[:-1], 1, "its strips hold 599 bytes, expected 600"),
        (LZW[:40], 5, "decodes to .* bytes, expected 600"),
        (b"\0" + LZW[1:], 5, "does not begin with a clear code"),
        (LZW[:2] + b"\xff" + LZW[3:], 5, "not defined yet|expected 600|more than 600"),
        (half_images.packed(np.tile(GRAY, (2, 1)), "lzw"), 5, "more than 600 bytes"),
        (zlib.compress(RAW)[:-1], 8, "end after 600 bytes, without their checksum"),
        (zlib.compress(RAW)[:-4] + b"abcd", 8, "incorrect data check"),
        (zlib.compress(RAW[:-1]), 8, "decodes to 599 bytes, expected 600"),
        (zlib.compress(RAW + RAW), 8, "decodes to 1200 bytes, expected 600"),
        (b"no zlib", 8, "incorrect header check"),
        (PACKBITS[:-3], 32773, "expected 600|end inside a run"),
        (PACKBITS + PACKBITS, 32773, "go on for"),
        (b"\x7f" + bytes(10), 32773, "end inside a run"),
        (b"\x80" * 70_000, 32773, "empty runs"),
        (b"", 5, "does not begin with a clear code"),
        (b"junk", 7, "its JPEG data are damaged"),
        (
            image_files.jpeg(image_files.grays(height=ROWS, width=COLUMNS + 8)),
            7,
            "38x20 px of 1 samples, expected 30x20",
        ),
        (b"junk", 4, "compression 4 is not supported"),
    ],
)
def test_damaged_data_are_refused_and_the_message_says_which(data: bytes, compression: int, words: str) -> None:
    with pytest.raises(DamagedImage, match=words) as caught:
        validate(tiff(data, compression), "mask")
    assert str(caught.value).startswith("cannot decode TIFF: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_a_file_that_is_cut_behind_its_directory_is_damaged(cut: int) -> None:
    file = tiff(RAW, 1)[:-cut]
    for attempt in (decode, validate, partial(validate, full=False)):
        with pytest.raises(DamagedImage):
            attempt(file, "mask")


def test_a_jpeg_in_a_strip_is_read_with_the_tables_of_the_file() -> None:
    for pixels in (image_files.colors(), image_files.grays()):
        file = image_files.with_pillow(pixels, "TIFF", compression="jpeg")
        assert struct.pack("<HH", 347, 7) in file
        assert validate(file, "image") == sniff(file)


def test_a_predictor_that_does_not_fit_is_refused() -> None:
    validate(tiff(LZW, 5, tag_317=1), "mask")
    for predictor in (0, 3, 7):
        with pytest.raises(DamagedImage, match=f"predictor {predictor} .*uint8"):
            validate(tiff(LZW, 5, tag_317=predictor), "mask")


def test_ycbcr_data_are_measured_in_their_blocks() -> None:
    rows, columns = -(-ROWS // 2), -(-COLUMNS // 2)
    data = np.random.default_rng(0).integers(0, 256, rows * columns * 6, np.uint8).tobytes()
    tags = {"tag_262": 6, "tag_277": 3}
    validate(tiff(zlib.compress(data), 8, **tags), "image")
    with pytest.raises(DamagedImage, match="expected 900"):
        validate(tiff(zlib.compress(data[:-1]), 8, **tags), "image")


def test_too_many_strips_are_refused_before_any_is_read() -> None:
    most = strict_check.MAX_PIECES
    file = tiff(bytes(most + 1), 1, tag_256=1, tag_257=most + 1, tag_278=1)
    with pytest.raises(DamagedImage, match=f"{most + 1} strips.* {most}"):
        validate(file, "mask")


def test_a_tile_is_not_much_larger_than_the_image() -> None:
    file = half_images.tiff(GRAY, "lzw", tile=(48, 64))
    validate(file, "mask")
    side = struct.pack("<HHII", 322, 4, 1, 64)
    assert side in file
    with pytest.raises(DamagedImage, match="tiles.*16384 px.*4096"):
        sniff(file.replace(side, struct.pack("<HHII", 322, 4, 1, 16384)))


def test_nothing_is_printed_about_damaged_data(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("lzw", "deflate", "packbits"):
        file = image_files.with_opencv(
            image_files.colors(), ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, half_images.CODES[name]
        )
        capfd.readouterr()
        with pytest.raises(DamagedImage):
            validate(file[:8] + bytes(4001) + file[4009:], "image")
        assert capfd.readouterr() == ("", "")
