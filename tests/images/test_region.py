"""Regions of a JPEG: the pixels of the whole image, whichever part of it, scale, chroma sampling and library."""

import threading

import numpy as np
import pytest
import simplejpeg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.errors import DamagedImage, InvalidRequest
from packer.images import DecodeOptions, decode, sniff
from packer.images.lossless_jpeg_crop import Box
from packer.images.region_decoder import Region, decode_region
from packer.system.parallel import ordered_map
from tests.support import image_files, restart_jpegs
from tests.support.jpeg_libraries import EACH_LIBRARY, LIBRARIES

ANY_LIBRARY = st.sampled_from(list(LIBRARIES))
SCALES = range(1, 9)


PLAIN, FAST = DecodeOptions(trusted=True), DecodeOptions(dct="fast", trusted=True)


def whole(file: bytes, eighths: int = 8, *, fast_dct: bool = False) -> image_files.Pixels:
    return decode_region(file, sniff(file), eighths=eighths, options=FAST if fast_dct else PLAIN).pixels.copy()


def cut(file: bytes, box: Box, eighths: int = 8, *, fast_dct: bool = False) -> Region:
    return decode_region(file, sniff(file), box=box, eighths=eighths, options=FAST if fast_dct else PLAIN)


@pytest.mark.parametrize("library", EACH_LIBRARY)
@pytest.mark.parametrize("sampling", restart_jpegs.NAMES)
def test_a_part_has_the_pixels_of_the_whole(sampling: str, library: str) -> None:
    with restart_jpegs.through(library):
        for table in (False, True):
            file = restart_jpegs.jpeg(sampling, height=143, width=251, mcus=2, table=table)
            for eighths in SCALES:
                expected = whole(file, eighths)
                for name, box in restart_jpegs.boxes(sniff(file)).items():
                    region = cut(file, box, eighths)
                    assert restart_jpegs.shows(region, expected, box), (name, eighths, table)
                    assert restart_jpegs.is_part(region) == (sniff(file).intervals is not None), (name, eighths, table)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Any size, tiny, one MCU, a prime number of MCUs; any interval, also one that crosses rows, or none."""
    side = st.one_of(st.integers(1, 40), st.integers(41, 200), st.sampled_from([16 * 7, 16 * 13, 8 * 11, 32 * 5]))
    return restart_jpegs.jpeg(
        draw(st.sampled_from(restart_jpegs.NAMES)),
        height=draw(side),
        width=draw(side),
        mcus=draw(st.integers(0, 9)),
        table=draw(st.booleans()),
        quality=draw(st.sampled_from([30, 90, 100])),
    )


def any_box(draw: st.DataObject, file: bytes) -> Box:
    found = sniff(file)
    top, left = draw.draw(st.integers(0, found.height - 1)), draw.draw(st.integers(0, found.width - 1))
    height, width = draw.draw(st.integers(1, found.height - top)), draw.draw(st.integers(1, found.width - left))
    return top, left, height, width


def check(file: bytes, data: st.DataObject) -> None:
    fast_dct = data.draw(st.booleans())
    box, eighths = any_box(data, file), data.draw(st.sampled_from(SCALES))
    pixels = []
    for library in LIBRARIES:
        with restart_jpegs.through(library):
            pixels.append(whole(file, eighths, fast_dct=fast_dct))
            assert restart_jpegs.shows(cut(file, box, eighths, fast_dct=fast_dct), pixels[-1], box)
    assert all(np.array_equal(pixels[0], other) for other in pixels[1:])


@settings(max_examples=3 * settings().max_examples)
@given(files(), st.data())
def test_any_box_of_any_file_at_any_scale(file: bytes, data: st.DataObject) -> None:
    check(file, data)


@pytest.mark.full
@settings(max_examples=5_000, suppress_health_check=[HealthCheck.too_slow])
@given(files(), st.data())
def test_any_box_of_any_file_at_any_scale_5_000_times(file: bytes, data: st.DataObject) -> None:
    check(file, data)


@pytest.mark.parametrize("library", EACH_LIBRARY)
@pytest.mark.parametrize("height, width", [(1, 1), (7, 7), (8, 7), (7, 8), (3, 200), (200, 3), (9, 9), (41, 67)])
def test_the_scale_is_what_was_asked_for(height: int, width: int, library: str) -> None:
    file = image_files.jpeg(image_files.colors(height=height, width=width), sampling="444")
    with restart_jpegs.through(library):
        for eighths in SCALES:
            region = decode_region(file, sniff(file), eighths=eighths)
            assert region.eighths == (8 if height < 8 and width < 8 else eighths)
            size = -(-height * region.eighths // 8), -(-width * region.eighths // 8)
            assert region.full == region.pixels.shape[:2] == size
            if max(height, width) >= 8:
                expected = simplejpeg.decode_jpeg(file, min_height=size[0], min_width=size[1])
                assert np.array_equal(region.pixels, expected)


@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_the_whole_goes_straight_into_out_and_nothing_else_does(library: str) -> None:
    file = restart_jpegs.packed()
    found = sniff(file)
    with restart_jpegs.through(library):
        batch = np.full((3, 75, 115, 3), 7, np.uint8)
        region = decode_region(file, found, eighths=4, out=batch[1])
        assert region.pixels is not None and np.shares_memory(region.pixels, batch[1])
        assert np.array_equal(batch[1], whole(file, 4)) and (batch[[0, 2]] == 7).all()
        for asked in ({"eighths": 8}, {"eighths": 4, "box": (0, 0, 20, 20)}):
            batch[:] = 7
            assert not np.shares_memory(decode_region(file, found, out=batch[1], **asked).pixels, batch)
            assert (batch == 7).all()


@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_a_box_that_is_nearly_everything_is_not_cut(library: str) -> None:
    file = restart_jpegs.packed(375, 500)
    with restart_jpegs.through(library, always=False):
        assert not restart_jpegs.is_part(cut(file, (5, 5, 360, 490)))
        assert not restart_jpegs.is_part(cut(file, (0, 0, 375, 500)))
        assert restart_jpegs.is_part(cut(file, (5, 5, 250, 250)))


@pytest.mark.parametrize("quality", ["95", "95:444"])
@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_a_box_of_what_the_codec_stores_decodes_a_part(quality: str, library: str) -> None:
    file = restart_jpegs.packed(width=240, quality=quality)
    boxes = restart_jpegs.boxes(sniff(file))
    with restart_jpegs.through(library):
        for box in boxes.values():
            region = cut(file, box)
            assert restart_jpegs.is_part(region) and restart_jpegs.shows(region, decode(file, "image"), box)


@pytest.mark.parametrize("name", image_files.jpegs())
@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_every_kind_of_jpeg_has_regions(name: str, library: str) -> None:
    file = image_files.jpegs()[name]
    with restart_jpegs.through(library):
        for box in restart_jpegs.boxes(sniff(file)).values():
            assert restart_jpegs.shows(cut(file, box), decode(file, "image"), box)


@pytest.mark.parametrize("name", ["png", "png gray", "bmp", "webp", "npy"])
def test_other_formats_come_whole(name: str) -> None:
    file, pixels = image_files.lossless()[name]
    region = decode_region(file, sniff(file), box=(3, 4, 5, 6), eighths=2)
    assert (region.top, region.left, region.full, region.eighths) == (0, 0, pixels.shape[:2], 8)
    assert np.array_equal(region.pixels, pixels)


@pytest.mark.parametrize("box", [(-1, 0, 5, 5), (0, 0, 0, 5), (0, 0, 5, -1), (149, 0, 2, 5), (0, 226, 5, 5)])
def test_a_box_outside_the_image_is_refused(box: Box) -> None:
    file = restart_jpegs.packed()
    with pytest.raises(InvalidRequest, match="230x150 px"):
        cut(file, box)


@pytest.mark.parametrize("eighths", [0, 9, -8])
def test_a_scale_beyond_1_to_8_eighths_is_refused(eighths: int) -> None:
    file = restart_jpegs.packed()
    with pytest.raises(InvalidRequest, match="eighths"):
        decode_region(file, sniff(file), eighths=eighths)


@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_a_header_of_another_file_gives_no_stale_memory(library: str) -> None:
    file, other = image_files.jpeg(), image_files.jpeg(image_files.colors(height=20, width=30))
    with restart_jpegs.through(library), pytest.raises(DamagedImage):
        decode_region(other, sniff(file))


@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_a_file_without_tables_does_not_get_those_of_the_one_before(library: str) -> None:
    file = image_files.with_pillow(image_files.colors(), "JPEG", quality=20)
    at = file.index(b"\xff\xdb")
    bare = file[:at] + file[at + 2 + int.from_bytes(file[at + 2 : at + 4], "big") :]
    with restart_jpegs.through(library):
        decode_region(file, sniff(file))
        with pytest.raises(DamagedImage):
            decode_region(bare, sniff(bare))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_threads_do_not_disturb_each_other(library: str) -> None:
    made = [restart_jpegs.packed(150 + 8 * seed, 230 + 16 * seed, seed=seed) for seed in range(6)]
    start = threading.Barrier(8)
    with restart_jpegs.through(library):
        expected = [whole(file) for file in made]

        def work(thread: int) -> bool:
            start.wait()
            random = np.random.default_rng(thread)
            for step in range(60):
                at = (thread + step) % len(made)
                box = (int(random.integers(0, 100)), int(random.integers(0, 150)), 40, 70)
                if not restart_jpegs.shows(cut(made[at], box), expected[at], box):
                    return False
            return True

        assert all(ordered_map(work, range(8), threads=8, window=8))
