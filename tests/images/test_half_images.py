"""Half images of every format and compression that OpenCV and Pillow write: what is packed, and what is refused."""

import io
import warnings
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from packer.errors import BadInput
from packer.images import decode, sniff, validate
from tests.support import half_images

TIFFS = half_images.tiffs()
OTHERS = half_images.others()
FILES = TIFFS | OTHERS
# plain samples behind a header: nothing in the file tells one value from another
TOLD_BY_LENGTH = [name for name in OTHERS if name.startswith("plain")]
CHECKED = [name for name in FILES if name not in TOLD_BY_LENGTH]
# all of their data are under a checksum
SUMMED = {name for name in FILES if name.startswith("png") or "deflate" in name}
# noise is as likely as any other data to end where data of this kind should: a part of it passes
NOISY = {name for name in OTHERS if name.startswith("webp lossy")}


def taken(file: bytes, kind: str) -> bool:
    """Whether the file would be packed; any error but BadInput fails the test."""
    try:
        validate(file, kind)
    except BadInput:
        return False
    return True


def pillow_takes(file: bytes) -> bool:
    """Whether Pillow, which stops at libtiff's errors, reads the image."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(file)) as image:
                image.load()
    except Exception:  # noqa: BLE001  what Pillow raises for damage has no common base
        return False
    return True


def pixels_are(file: bytes, kind: str, expected: np.ndarray) -> bool:
    """Whether the file gives these very pixels."""
    try:
        return np.array_equal(decode(file, kind), expected, equal_nan=expected.dtype.kind == "f")
    except BadInput:
        return False


def is_data(file: bytes, at: int) -> bool:
    """Whether the byte is data of a strip or tile, and no part of a TIFF's directory, which no checksum guards."""
    if not file.startswith((b"II", b"MM")):
        return True
    with Image.open(io.BytesIO(file)) as image:
        tags = image.tag_v2
        starts, sizes = (tags.get(273) or tags.get(324)), (tags.get(279) or tags.get(325))
    return any(start <= at < start + size for start, size in zip(starts, sizes, strict=True))


def check_halves(name: str, number: int) -> None:
    """No half image is taken, but for a little noise where nothing tells it from data."""
    file, kind = FILES[name].file, FILES[name].kind
    passed = [half for half in half_images.halves(file, number, seed=1) if taken(half.data, kind)]
    noise = [half for half in passed if half.how == "noise"]
    assert [(half.how, half.at) for half in passed if half.how != "noise"] == []
    assert len(noise) <= (number / 6 if name in NOISY else 0), [half.at for half in noise]


def check_spots(name: str, number: int) -> Counter[str]:
    """No damage is taken that Pillow refuses, and none to data under a checksum that changes pixels."""
    file, kind = FILES[name].file, FILES[name].kind
    expected, readable = decode(file, kind), pillow_takes(file)
    found: Counter[str] = Counter()
    for spot in half_images.spots(file, number, seed=2):
        if not taken(spot.data, kind):
            found["refused"] += 1
            continue
        same = pixels_are(spot.data, kind, expected)
        found["same" if same else "changed"] += 1
        assert pillow_takes(spot.data) or not readable, f"{spot.how} at byte {spot.at}: Pillow refuses it"
        assert same or name not in SUMMED or not is_data(file, spot.at), f"{spot.how} at byte {spot.at}"
    return found


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", FILES)
def test_an_intact_image_is_taken(name: str) -> None:
    file, kind = FILES[name].file, FILES[name].kind
    assert validate(file, kind) == validate(file, kind, full=False) == sniff(file)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("number", [3, pytest.param(60, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", CHECKED)
def test_half_images_are_refused(name: str, number: int) -> None:
    check_halves(name, number)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("number", [3, pytest.param(120, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", CHECKED)
def test_what_pillow_refuses_is_refused(name: str, number: int) -> None:
    found = check_spots(name, number)
    assert number == 3 or found["refused"] >= (60 if name not in SUMMED else 100), found


def test_decoding_is_as_strict_as_validation() -> None:
    """What is decoded while packing, to be resized say, was not validated before."""
    for name in (
        "one strip uint8 lzw",
        "tiles float32 deflate",
        "opencv rgb packbits 1",
        "webp lossless",
        "pnm text ppm",
    ):
        file, kind = FILES[name].file, FILES[name].kind
        for half in half_images.halves(file, 3, seed=1):
            with pytest.raises(BadInput):
                decode(half.data, kind)


@pytest.mark.parametrize("name", TOLD_BY_LENGTH)
def test_of_plain_samples_only_the_length_is_told(name: str) -> None:
    """The limit that the documentation names: if it ever moves, it should say so."""
    file, kind = FILES[name].file, FILES[name].kind
    at = len(file) // 2
    assert not taken(file[:at], kind)
    if name != "plain tiff":  # whose directory is at the end
        assert taken(file[:at] + bytes(len(file) - at), kind)
