"""Small files that would cost much: refused or read within 5 seconds of processor time and 512 MB."""

import functools
import resource
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2  # noqa: F401  loaded before memory is limited
import numpy as np
import pytest

from packer.errors import DamagedImage
from packer.images import MAX_SCAN_PIXELS, sniff, validate
from tests.support import image_files
from tests.support.child_processes import child

MOST_SECONDS, MOST_BYTES = 5, 512 << 20


def tiff(width: int, height: int, data: bytes, tags: dict[int, int | Sequence[int]]) -> bytes:
    """A little-endian gray TIFF of one strip, or as the tags have it; its directory is at the end."""
    found: dict[int, int | Sequence[int]] = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 277: 1}
    found |= {273: 8, 278: height, 279: len(data)} | tags
    after, entries, values = 8 + len(data) + 2 + 12 * len(found) + 4, [], b""
    for tag, value in sorted(found.items()):
        if isinstance(value, int):
            entries.append(struct.pack("<HHII", tag, 4, 1, value))
            continue
        entries.append(struct.pack("<HHII", tag, 4, len(value), after + len(values)))
        values += np.asarray(value, "<u4").tobytes()
    directory = struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4) + values
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + directory


@functools.cache
def nothing() -> bytes:
    """2^28 zeros, deflated."""
    return zlib.compress(bytes(1 << 28), 9)


def lzw(*codes: int) -> bytes:
    """Codes of 9 bit."""
    bits = "".join(f"{code:09b}" for code in codes)
    return int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")


def chain(count: int) -> bytes:
    """A TIFF of one row and many directories more."""
    start = tiff(4, 1, b"abcd", {})
    first = len(start) - 4
    directory = struct.pack("<HHHII", 1, 256, 4, 1, 5)
    starts = [len(start) + 18 * number for number in range(count)]
    links = [*starts[1:], starts[0]]  # the last leads back to the first
    return start[:first] + struct.pack("<I", starts[0]) + b"".join(directory + struct.pack("<I", to) for to in links)


def png(*chunks: bytes) -> bytes:
    """A PNG of 8 x 8 px with these chunks before its pixels."""
    whole = image_files.with_pillow(np.zeros((8, 8), np.uint8), "PNG")
    return whole[:33] + b"".join(chunks) + whole[33:]


def scans(height: int, width: int, count: int) -> bytes:
    """A progressive JPEG of that size in its header, and so many scans; the last are the same one again."""
    file = bytearray(image_files.progressive())
    struct.pack_into(">HH", file, file.index(b"\xff\xc2") + 5, height, width)
    whole = sniff(image_files.progressive()).scans
    return bytes(file[:-2]) + bytes(file[file.rindex(b"\xff\xda") : -2]) * (count - whole) + image_files.EOI


ONE = lzw(256, 0, 257)
CLEARS = lzw(*[256, 0] * 20_000, 257)
BOMBS: dict[str, Callable[[], bytes]] = {
    "tiff, strips of a pixel": lambda: tiff(
        1, 65_536, ONE.ljust(300_000), {259: 5, 273: [8] * 65_536, 278: 1, 279: [len(ONE)] * 65_536}
    ),
    "tiff, more strips than bytes": lambda: tiff(1, 100_000_000, b"", {278: 1}),
    "tiff, one strip for all": lambda: tiff(
        1000, 20_000, CLEARS, {259: 5, 273: [8] * 20_000, 278: 1, 279: [len(CLEARS)] * 20_000}
    ),
    "tiff, clears": lambda: tiff(200, 100, CLEARS, {259: 5}),
    "tiff, runs of nothing": lambda: tiff(10, 10, b"\x80" * 50_000_000, {259: 32773}),
    "tiff, deflated zeros": lambda: tiff(10, 10, nothing(), {259: 8}),
    "tiff, a tile larger than the image": lambda: tiff(16, 16, b"", {322: 1 << 14, 323: 1 << 14, 324: 8, 325: 10}),
    "tiff, a ring of directories": lambda: chain(200_000),
    "png, texts": lambda: png(*[image_files.chunk(b"zTXt", b"key\0\0" + nothing())] * 8),
    "png, profile": lambda: png(image_files.chunk(b"iCCP", b"name\0\0" + nothing())),
    "png, chunks": lambda: png(image_files.chunk(b"tEXt", b"") * 200_000),
    "png, pixels": lambda: image_files.bomb(10_000, 10_000),
    "jpeg, scans": lambda: scans(10_000, 10_000, 499),
    "pnm, text": lambda: b"P3 5000 5000 255\n" + b"1 " * 2_000_000,
}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_little(name: str) -> None:
    file = BOMBS[name]()

    def run() -> str:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_BYTES, mapped + MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        try:
            validate(file, "image")
        except DamagedImage as error:
            return str(error)
        return "read"

    outcome = child(run)
    assert outcome.kind == "value", outcome


def test_scans_are_limited_by_the_size_of_the_image() -> None:
    most = MAX_SCAN_PIXELS // 100_000_000
    assert most == 30, "three times what encoders write"
    assert sniff(scans(10_000, 10_000, most)).scans == most
    with pytest.raises(DamagedImage, match="30 scans"):
        sniff(scans(10_000, 10_000, most + 1))
    assert sniff(scans(2000, 3000, 500)).scans == 500
