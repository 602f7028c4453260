"""Headers: what is told about a file from its first bytes, and that no bytes whatever do worse than an error."""

import struct
import subprocess
import sys

import numpy as np
import pytest

from packer.errors import DamagedImage
from packer.images import sniff
from tests.support import image_files


@pytest.mark.parametrize("name", image_files.lossless())
def test_the_format_and_size_are_told(name: str) -> None:
    file, pixels = image_files.lossless()[name]
    found = sniff(file)
    form = {"ppm": "pnm", "pgm": "pnm"}.get(name.split()[0], name.split()[0])
    assert (found.format, found.height, found.width, found.dtype) == (form, *pixels.shape[:2], "uint8")
    wanted = {"gray": 1, "alpha": 4, "gray alpha": 2}.get(name.partition(" ")[2], 3)
    assert found.channels == (1 if name == "pgm" else wanted)
    assert (found.lossy, found.orientation) == (False, 1)


@pytest.mark.parametrize("name", image_files.depths())
def test_the_dtype_of_a_depth_is_told(name: str) -> None:
    file, depth = image_files.depths()[name]
    found = sniff(file)
    assert (found.height, found.width, found.channels, found.dtype) == (*depth.shape, 1, depth.dtype.name)


@pytest.mark.parametrize("name", image_files.jpegs())
def test_a_jpeg_is_told(name: str) -> None:
    found = sniff(image_files.jpegs()[name])
    size = (image_files.colors().shape[0], image_files.colors().shape[1])
    assert (found.format, found.height, found.width, found.lossy) == ("jpeg", *size, True)
    assert found.cmyk == (name == "cmyk")
    assert found.progressive == name.startswith("progressive")
    assert (found.scans > 1) == found.progressive
    assert found.channels == (1 if "gray" in name else 4 if name == "cmyk" else 3)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_told_and_nothing_else_changes(form: str, orientation: int) -> None:
    found = sniff(image_files.oriented(orientation, form))
    plain = sniff(image_files.oriented(1, form))
    assert found.orientation == orientation
    assert found._replace(orientation=1) == plain


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_out_of_range_is_1(orientation: int) -> None:
    file = image_files.oriented(6)
    at = file.find(b"\x12\x01\x03\x00", 0, 100) if b"II*\0" in file[:40] else file.find(b"\x01\x12\x00\x03", 0, 100)
    order = "<H" if b"II*\0" in file[:40] else ">H"
    changed = bytearray(file)
    struct.pack_into(order, changed, at + 8, orientation)
    assert sniff(file).orientation == 6
    assert sniff(bytes(changed)).orientation == 1


def test_a_lossy_webp_is_lossy() -> None:
    assert sniff(image_files.with_pillow(image_files.colors(), "WEBP", quality=80)).lossy


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_palette_is_told_with_its_bits(bits: int) -> None:
    indices = np.minimum(image_files.grays(), (1 << bits) - 1)
    found = sniff(image_files.palette_png(indices, bits=bits))
    assert (found.palette, found.bits, found.channels, found.dtype) == (True, bits, 3, "uint8")


def test_memory_of_any_kind_is_read() -> None:
    file = image_files.jpeg()
    assert sniff(file) == sniff(bytearray(file)) == sniff(memoryview(file)) == sniff(memoryview(bytearray(file)))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "3c 21 44 4f"),
        (b"GIF89a" + bytes(40), "47 49 46"),
        (image_files.jpeg()[:100], "ends inside its header"),
        (image_files.bomb(10_001, 10_000), "10000x10001 px = 100.0 MP, the limit is 100 MP"),
        (image_files.bomb(0, 7), "7x0 px, expected at least 1x1"),
        (image_files.bomb(2**31 - 1, 2**31 - 1), "the limit is 100 MP"),
        (image_files.npy(np.zeros((2, 3, 2), np.uint8)), "its shape is (2, 3, 2)"),
        (image_files.npy(np.zeros((2, 3), "S4")), "array of numbers"),
        (image_files.npy(np.zeros((2, 3), "u1")).replace(b"\x01\0", b"\x01\x2b", 1), "unknown version 1.43"),
        (b"P5 2 2 100\n1234", "samples up to 100"),
    ],
)
def test_what_is_no_image_is_damaged_and_says_what_was_found(file: bytes, words: str) -> None:
    with pytest.raises(DamagedImage) as caught:
        sniff(file)
    assert words in str(caught.value)
    assert "replace the file" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_more_bytes_than_the_limit_are_refused_although_the_pixels_are_few_enough() -> None:
    file = bytearray(image_files.npy(np.zeros((16, 16, 4), np.float64)))
    shape = b"(16, 16, 4), }      "
    assert shape in file
    file[:] = file.replace(shape, b"(9999, 9999, 4), }  ")
    with pytest.raises(DamagedImage, match="limit is 1073741824"):
        sniff(bytes(file))


def test_100_megapixels_are_allowed() -> None:
    assert sniff(image_files.bomb(10_000, 10_000)).width == 10_000


def test_500_scans_are_allowed_and_501_are_not() -> None:
    file = image_files.progressive()
    start = file.rindex(b"\xff\xda")
    (length,) = struct.unpack_from(">H", file, start + 2)
    scan = file[start : start + 2 + length] + b"\x12\x34"
    whole = sniff(file).scans
    assert sniff(file[:-2] + scan * (500 - whole) + image_files.EOI).scans == 500
    with pytest.raises(DamagedImage, match="500 scans"):
        sniff(file[:-2] + scan * (501 - whole) + image_files.EOI)


def test_a_progressive_file_that_lacks_a_scan_is_damaged_even_with_an_end_marker() -> None:
    file = image_files.progressive()
    last = file.rindex(b"\xff\xda")
    last = file.rindex(b"\xff\xc4", 0, last) if b"\xff\xc4" in file[last - 120 : last] else last
    with pytest.raises(DamagedImage, match="bring all"):
        sniff(file[:last] + image_files.EOI)


@pytest.mark.parametrize("marker", [0xC3, 0xC5, 0xC9, 0xCA, 0xCB])
def test_jpeg_processes_that_libraries_disagree_about_are_refused(marker: int) -> None:
    file = bytearray(image_files.jpeg())
    file[file.index(b"\xff\xc0") + 1] = marker
    with pytest.raises(DamagedImage, match="baseline or progressive"):
        sniff(bytes(file))


def test_12_bit_and_odd_chroma_sampling_are_refused() -> None:
    file = bytearray(image_files.jpeg())
    frame = file.index(b"\xff\xc0")
    deep, odd = bytearray(file), bytearray(file)
    deep[frame + 4] = 12
    odd[frame + 11] = 0x31
    for changed, words in ((deep, "12 bit samples"), (odd, "chroma sampling 31 11 11")):
        with pytest.raises(DamagedImage, match=words):
            sniff(bytes(changed))


def test_sniffing_loads_no_decoder() -> None:
    code = (
        "import sys, packer.images as d\n"
        "found = d.sniff(sys.stdin.buffer.read()); d.validate\n"
        "print(found.width, [m for m in ('cv2', 'turbojpeg', 'simplejpeg', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], input=image_files.jpeg(), capture_output=True, check=True)
    assert done.stdout.split(maxsplit=1) == [b"67", b"[]\n"]
