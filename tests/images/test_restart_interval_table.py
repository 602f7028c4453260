"""The table of restart intervals: what it says, who reads the file with it, and when a file is cut without one."""

import io

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from packer.errors import DamagedImage
from packer.images import DecodeOptions, decode, restart_interval_table, sniff, validate
from packer.images.file_types._header_record import Intervals
from packer.images.region_decoder import decode_region
from packer.images.restart_interval_table import bounds, check_table, with_table
from tests.support import image_files, restart_jpegs

SEGMENT = b"\xff\xeb"


def test_the_layout_is_the_documented_one() -> None:
    file = restart_jpegs.jpeg("420", height=40, width=64, mcus=2, table=True)
    at = file.index(SEGMENT)
    data = file[sniff(file).data_at : -2]
    parts = [part for code in range(0xD0, 0xD5) for part in [data.index(bytes([0xFF, code]))]]
    lengths = np.diff([0, *(place + 2 for place in parts), len(data) + 2])
    assert file[2:4] == b"\xff\xe0" and at == 20  # after JFIF's segment
    expected = b"packer\0\x02" + lengths.astype(">u2").tobytes()
    assert file[at : at + 4 + len(expected)] == SEGMENT + bytes([0, 2 + len(expected)]) + expected


@pytest.mark.parametrize("sampling", restart_jpegs.NAMES)
def test_a_table_says_what_is_found_without_it(sampling: str) -> None:
    bare = restart_jpegs.jpeg(sampling, height=96, width=160, mcus=1)
    file = with_table(bare, sniff(bare))
    check_table(file, sniff(file))
    found, expected = bounds(file, sniff(file), table=True), bounds(bare, sniff(bare))
    assert found is not None and expected is not None
    assert found.tolist() == expected.tolist()
    layout = sniff(file).intervals
    assert layout is not None and layout.table_at == 22
    assert len(found) == layout.rows * layout.columns + 1
    assert sniff(file).data_at + found[-1] == len(file)


@pytest.mark.parametrize("by", [1, 7, 8, 16, 24])
def test_a_table_that_is_shifted_is_not_that_of_its_file(by: int) -> None:
    """By a multiple of eight: every restart marker in reach of a crop has the number that is expected there."""
    file = restart_jpegs.shifted(restart_jpegs.jpeg("420", height=640, width=256, mcus=16, table=True), by)
    validate(file, "image")
    with pytest.raises(DamagedImage, match="restart intervals"):
        check_table(file, sniff(file))
    expected, box = decode(file, "image"), (83, 100, 30, 30)
    with restart_jpegs.through("simplejpeg"):
        region = decode_region(file, sniff(file), box=box)
        assert restart_jpegs.is_part(region) and restart_jpegs.shows(region, expected, box)


def with_tail(file: bytes, between: bytes, head: bytes = b"") -> bytes:
    """The file with eight more restart markers in turn before its end marker, and a table that is shifted by eight.

    between: what stands before each of them. head: what stands before all of them.
    """
    lengths = restart_jpegs.lengths_of(file)
    ends = np.cumsum(lengths).tolist()
    tail, turn = head, len(lengths) - 1
    end = ends.pop() - 2  # of the last interval's data
    for number in range(turn, turn + 8):
        tail += between + bytes([0xFF, 0xD0 | number & 7])
        ends.append(end + len(tail))
    ends.append(end + len(tail) + 2)
    return restart_jpegs.with_lengths(file[:-2] + tail + file[-2:], np.diff([0, *ends[8:]]))


@pytest.mark.parametrize("between, head", [(b"", b""), (b"data", b"\xff\xfe\x00\x32")], ids=["empty", "in a comment"])
def test_markers_behind_the_last_interval_do_not_make_a_shifted_table_true(between: bytes, head: bytes) -> None:
    """libjpeg takes these files for sound, and each entry of the table ends at a marker of the right number."""
    file = with_tail(restart_jpegs.jpeg("420", height=640, width=256, mcus=16, table=True), between, head)
    validate(file, "image")
    expected, box = decode(file, "image"), (83, 100, 30, 30)
    with pytest.raises(DamagedImage, match="restart intervals"):
        check_table(file, sniff(file))
    with restart_jpegs.through("simplejpeg"):
        assert not restart_jpegs.shows(
            decode_region(file, sniff(file), box=box, options=DecodeOptions(interval_tables=True)), expected, box
        )
        assert restart_jpegs.shows(decode_region(file, sniff(file), box=box), expected, box)


def test_intervals_beyond_64_kib_have_wider_lengths() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (32, 8192, 3), np.uint8)
    options = [cv2.IMWRITE_JPEG_QUALITY, 100, cv2.IMWRITE_JPEG_RST_INTERVAL, 512]
    file = image_files.with_opencv(noise, ".jpg", *options)
    file = with_table(file, sniff(file))
    assert file[20:32] == SEGMENT + b"\x00\x12packer\0\x04"
    found = sniff(file)
    check_table(file, found)
    places = bounds(file, found, table=True)
    assert places is not None and (np.diff(places) > 1 << 16).all()
    box = (20, 100, 8, 30)
    with restart_jpegs.through("simplejpeg"):
        region = decode_region(file, found, box=box, options=DecodeOptions(interval_tables=True))
        assert restart_jpegs.is_part(region) and restart_jpegs.shows(region, decode(file, "image"), box)


def test_a_table_that_does_not_fit_a_segment_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    file = restart_jpegs.jpeg("444", height=64, width=64, mcus=1)
    monkeypatch.setattr(restart_interval_table, "_LONGEST_SEGMENT", 9 + 2 * 64)
    assert with_table(file, sniff(file)) == file
    monkeypatch.setattr(restart_interval_table, "_LONGEST_SEGMENT", 10 + 2 * 64)
    assert with_table(file, sniff(file)) != file


@pytest.mark.parametrize("name", ["baseline 420", "gray", "progressive", "progressive restarts", "cmyk"])
def test_a_file_that_cannot_be_cut_stays_as_it_is(name: str) -> None:
    file = image_files.jpegs()[name]
    assert sniff(file).intervals is None
    assert with_table(file, sniff(file)) is file
    assert bounds(file, sniff(file)) is None


@pytest.mark.parametrize(
    "sampling, size, mcus, expected",
    [
        ("420", (40, 64), 2, Intervals((16, 32), 2, 3, 2, 0)),
        ("444", (40, 64), 4, Intervals((8, 32), 4, 5, 2, 0)),
        ("422", (40, 64), 4, Intervals((8, 64), 4, 5, 1, 0)),
        ("440", (40, 64), 8, Intervals((16, 64), 8, 3, 1, 0)),
        ("411", (40, 64), 1, Intervals((8, 32), 1, 5, 2, 0)),
        ("420", (40, 64), 3, None),  # crosses rows
        ("420", (40, 64), 12, None),  # is the whole image
        ("420", (40, 64), 8, None),  # two rows
        ("420", (16, 16), 1, None),
    ],
)
def test_the_header_tells_how_a_file_can_be_cut(
    sampling: str, size: tuple[int, int], mcus: int, expected: Intervals | None
) -> None:
    file = restart_jpegs.jpeg(sampling, height=size[0], width=size[1], mcus=mcus)
    scan = sniff(file).scan
    assert (scan.intervals if scan is not None else None) == expected
    if scan is not None:
        assert int.from_bytes(file[scan.size_at : scan.size_at + 4], "big") == size[0] << 16 | size[1]


def test_a_gray_file_has_mcus_of_one_block_whatever_its_factors_are() -> None:
    file = bytearray(restart_jpegs.jpeg("gray", height=80, width=96, mcus=3))
    at = file.index(b"\xff\xc0")
    file[at + 11] = 0x22  # the factors of its one component
    found = sniff(bytes(file))
    assert found.scan is not None and found.scan.mcu == (8, 8) and found.intervals is not None
    with restart_jpegs.through("simplejpeg"):
        for box in restart_jpegs.boxes(found).values():
            region = decode_region(bytes(file), found, box=box)
            assert restart_jpegs.is_part(region)
            assert restart_jpegs.shows(region, decode(bytes(file), "image"), box)


@pytest.mark.parametrize("quality", ["50", "90", "95", "96", "100", "95:444"])
@pytest.mark.parametrize("height, width", [(1, 1), (5, 300), (300, 5), (97, 131), (240, 320)])
def test_what_the_codec_stores_is_a_jpeg_for_everyone(height: int, width: int, quality: str) -> None:
    file = restart_jpegs.packed(height, width, quality)
    layout = validate(file, "image").intervals
    assert layout is None or layout.table_at
    assert (layout is None) == (height * width == 1 or (height == 5 and quality in ("50", "90", "95")))
    expected = decode(file, "image")
    with Image.open(io.BytesIO(file)) as image:
        assert np.array_equal(np.asarray(image), expected)
    opened = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert opened is not None and np.array_equal(opened, expected)
    assert np.array_equal(simplejpeg.decode_jpeg(file), expected)


def test_fill_bytes_before_a_marker_and_what_follows_the_file_are_no_damage() -> None:
    file = restart_jpegs.jpeg("420", height=96, width=160, mcus=2)
    at = file.index(b"\xff\xd3", sniff(file).data_at)
    filled = file[:at] + b"\xff\xff" + file[at:]
    assert np.array_equal(decode(filled, "image"), decode(file, "image"))
    for changed in (filled, file + bytes(50), file + file, restart_jpegs.packed(96, 256) + b"junk"):
        expected = decode(changed, "image")
        with restart_jpegs.through("simplejpeg"):
            for box in restart_jpegs.boxes(sniff(changed)).values():
                region = decode_region(changed, sniff(changed), box=box)
                assert restart_jpegs.is_part(region) and restart_jpegs.shows(region, expected, box)
