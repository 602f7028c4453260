"""Regions of damaged files: an error, or the pixels that are there; never pixels that the whole would not have."""

import numpy as np
import pytest

from packer.errors import DamagedImage
from packer.images import DecodeOptions, decode, sniff
from packer.images.lossless_jpeg_crop import Box
from packer.images.region_decoder import decode_region
from packer.images.restart_interval_table import bounds, check_table
from tests.support import image_files, restart_jpegs
from tests.support.jpeg_libraries import LIBRARIES

WITH_TABLE = restart_jpegs.packed(96, 256)
WITHOUT = restart_jpegs.jpeg("420", height=96, width=256, mcus=4)
TABLE = DecodeOptions(interval_tables=True)
FLAT = restart_jpegs.jpeg("420", height=96, width=256, mcus=4, table=True, quality=1)
FILES = {"table": WITH_TABLE, "no table": WITHOUT, "flat": FLAT}
BOX = (40, 70, 20, 30)
TABLE_AT = 32


def markers(file: bytes) -> list[int]:
    found = sniff(file)
    places = bounds(file, found)
    assert places is not None
    return [found.data_at + int(place) - 2 for place in places[1:]]


def refused(file: bytes, box: Box = BOX) -> None:
    for library in LIBRARIES:
        with restart_jpegs.through(library):
            for options in (DecodeOptions(), TABLE):
                with pytest.raises(DamagedImage, match="cannot decode JPEG"):
                    decode_region(file, sniff(file), box=box, options=options)


def false_table(file: bytes, box: Box = BOX) -> None:
    """A table that is not that of the file: told so, an error to whoever uses it, and nothing to anybody else."""
    with pytest.raises(DamagedImage, match="restart intervals"):
        check_table(file, sniff(file))
    expected = decode(file, "image")
    for library in LIBRARIES:
        with restart_jpegs.through(library):
            with pytest.raises(DamagedImage, match="cannot decode JPEG"):
                decode_region(file, sniff(file), box=box, options=TABLE)
            region = decode_region(file, sniff(file), box=box)
            assert restart_jpegs.is_part(region) and restart_jpegs.shows(region, expected, box)


def around(file: bytes) -> list[int]:
    """Where the markers stand that a cut of BOX uses."""
    layout = sniff(file).intervals
    assert layout is not None
    found = markers(file)
    row, column = BOX[0] // 16, BOX[1] // (16 * layout.mcus)
    first = row * layout.columns + column
    return [found[first - 1], found[first], found[first + layout.columns - 1]]


@pytest.mark.parametrize("name", ["table", "no table"])
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("new", [b"\xff\xd9", b"\xff\x00", b"\xff\xc4", b"\x12\x34", b"\x00\xd1", "next"])
def test_a_marker_that_is_not_the_one_of_its_turn_is_damage(name: str, which: int, new: bytes | str) -> None:
    file = bytearray(FILES[name])
    at = around(FILES[name])[which]
    file[at : at + 2] = bytes([0xFF, 0xD0 | (file[at + 1] + 1) & 7]) if isinstance(new, str) else new
    refused(bytes(file))


@pytest.mark.parametrize("name", ["table", "no table"])
def test_markers_that_changed_places_are_damage(name: str) -> None:
    file = bytearray(FILES[name])
    one, other, _ = around(FILES[name])
    file[one + 1], file[other + 1] = file[other + 1], file[one + 1]
    refused(bytes(file))


@pytest.mark.parametrize("name", ["table", "no table"])
@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9, 0.99])
def test_a_cut_file_is_damage_wherever_the_box_lies(name: str, keep: float) -> None:
    file = FILES[name]
    start = sniff(file).data_at
    for end in (b"", bytes(40), image_files.EOI):
        for box in (BOX, (0, 0, 16, 16), (80, 200, 16, 56))[0 if keep < 0.99 else 2 :]:
            refused(file[: start + int((len(file) - start) * keep)] + end, box)


@pytest.mark.parametrize("name", ["table", "no table"])
def test_a_file_that_lacks_only_its_end_marker_is_decoded(name: str) -> None:
    file = FILES[name]
    expected = decode(file, "image")
    for library in LIBRARIES:
        with restart_jpegs.through(library):
            assert restart_jpegs.shows(decode_region(file[:-2], sniff(file[:-2]), box=BOX), expected, BOX)


@pytest.mark.parametrize("change", [1, -1, 2, 255, 256, 8 * 256])
def test_a_wrong_length_in_the_table_is_damage(change: int) -> None:
    for file in (WITH_TABLE, FLAT):
        for entry in range(24):
            at = TABLE_AT + 2 * entry
            wrong = (int.from_bytes(file[at : at + 2], "big") + change) % 65536
            false_table(file[:at] + wrong.to_bytes(2, "big") + file[at + 2 :])


def test_two_lengths_that_make_up_for_each_other_are_damage() -> None:
    lengths = np.frombuffer(WITH_TABLE, ">u2", len(markers(WITH_TABLE)), TABLE_AT).copy()
    for one, other in ((0, 1), (0, 20), (20, 21)):
        wrong = lengths.copy()
        wrong[one] += 6
        wrong[other] -= 6
        file = WITH_TABLE[:TABLE_AT] + wrong.tobytes() + WITH_TABLE[TABLE_AT + wrong.nbytes :]
        false_table(file, (0, 0, 90, 20) if one == 0 else (32, 130, 10, 120))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 255])
def test_a_table_of_another_width_is_damage(size: int) -> None:
    false_table(WITH_TABLE[: TABLE_AT - 1] + bytes([size]) + WITH_TABLE[TABLE_AT:])


def test_a_foreign_segment_of_the_same_kind_is_no_table() -> None:
    file = WITH_TABLE.replace(b"packer\0", b"JPEGXT\0", 1)
    assert sniff(file).intervals._replace(table_at=0) == sniff(file).intervals
    with restart_jpegs.through("simplejpeg"):
        region = decode_region(file, sniff(file), box=BOX)
        assert restart_jpegs.is_part(region) and restart_jpegs.shows(region, decode(file, "image"), BOX)


def test_zeros_are_left_in_out_where_the_image_is_damaged() -> None:
    out = np.full((96, 256, 3), 7, np.uint8)
    with pytest.raises(DamagedImage):
        decode_region(WITHOUT[:2000], sniff(WITHOUT), out=out)
    assert not out.any()
