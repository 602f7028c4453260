"""Files without restart markers: only a crop's MCUs, or the rows down to its end, where a checksum vouches for them."""

import itertools
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

import packer
from packer.errors import DamagedImage
from packer.geometry import CenterCrop
from packer.images import DecodeOptions, decode, lossless_jpeg_crop, sniff
from packer.images.lossless_jpeg_crop import Box
from packer.images.region_decoder import Region, decode_region
from packer.pack import manifest
from tests.support import image_files, restart_jpegs
from tests.support.command_line import called
from tests.support.conversions import packed
from tests.support.jpeg_libraries import EACH_LIBRARY, LIBRARIES

FILE = restart_jpegs.jpeg("420", height=150, width=230, mcus=0)
TOP: Box = (10, 20, 40, 60)


def part(file: bytes, box: Box = TOP, *, eighths: int = 8, trusted: bool = True) -> Region:
    region = decode_region(file, sniff(file), box=box, eighths=eighths, options=DecodeOptions(trusted=trusted))
    region.pixels = region.pixels.copy()
    return region


def has_regions(sampling: str, library: str, eighths: int = 8) -> bool:
    """Whether libjpeg-turbo is asked for the box alone, see packer.images.region_decoder."""
    can = LIBRARIES[library].decode_region is not None
    return can and sampling in ("444", "422", "420", "gray") and eighths == 8


@pytest.mark.parametrize("library", EACH_LIBRARY)
@pytest.mark.parametrize("sampling", restart_jpegs.NAMES)
def test_the_rows_of_a_box_are_those_of_the_whole(sampling: str, library: str) -> None:
    file = restart_jpegs.jpeg(sampling, height=143, width=251, mcus=0)
    with restart_jpegs.through(library):
        for eighths in range(1, 9):
            whole = decode_region(file, sniff(file), eighths=eighths).pixels.copy()
            for name, box in restart_jpegs.boxes(sniff(file)).items():
                region = part(file, box, eighths=eighths)
                assert restart_jpegs.shows(region, whole, box), (name, eighths)
                if not has_regions(sampling, library, eighths):
                    assert region.top == region.left == 0 and region.pixels.shape[1] == whole.shape[1]
            region = part(file, (0, 0, 35, 62), eighths=eighths)
            assert restart_jpegs.is_part(region)
            assert (region.pixels.shape[1] < whole.shape[1]) == has_regions(sampling, library, eighths)


def test_without_a_checksum_all_of_it_is_decoded() -> None:
    with restart_jpegs.through("simplejpeg"):
        assert restart_jpegs.is_part(part(FILE)) and not restart_jpegs.is_part(part(FILE, trusted=False))


def test_a_box_that_ends_near_the_bottom_is_not_worth_it() -> None:
    file = restart_jpegs.jpeg("420", height=375, width=500, mcus=0)
    with restart_jpegs.through("simplejpeg", always=False):
        assert restart_jpegs.is_part(part(file, (0, 0, 300, 20)))
        assert not restart_jpegs.is_part(part(file, (330, 0, 10, 20)))


@pytest.mark.parametrize("name", [name for name in image_files.jpegs() if "progressive" in name or name == "cmyk"])
def test_files_of_several_scans_and_cmyk_come_whole(name: str) -> None:
    file = image_files.jpegs()[name]
    assert sniff(file).scan is None
    with restart_jpegs.through("simplejpeg"):
        assert not restart_jpegs.is_part(part(file, (0, 0, 9, 9)))


@pytest.mark.parametrize("library", EACH_LIBRARY)
@pytest.mark.parametrize("mcus", [3, 15, 45])
def test_markers_that_do_not_divide_the_rows_come_whole(mcus: int, library: str) -> None:
    file = restart_jpegs.jpeg("420", height=150, width=230, mcus=mcus)
    with restart_jpegs.through(library):
        region = part(file)
        assert restart_jpegs.shows(region, decode(file, "image"), TOP)
        assert restart_jpegs.is_part(region) == (mcus in (3, 15))


@pytest.mark.parametrize("library", EACH_LIBRARY)
@pytest.mark.parametrize(
    "tail", [b"", bytes(100), FILE, b"junk", b"\xff\xd9\xff\xd9", bytes(100_000) + image_files.EOI]
)
def test_what_follows_the_end_marker_does_not_matter(tail: bytes, library: str) -> None:
    """Tails that are long, or no JPEG, are not copied for a crop."""
    with restart_jpegs.through(library):
        region = part(FILE + tail)
        assert restart_jpegs.shows(region, decode(FILE, "image"), TOP)
        can_pass_over = len(tail) < 69_000 or has_regions("420", library)
        assert restart_jpegs.is_part(region) == (tail[-2:] in (b"", image_files.EOI) and can_pass_over)


@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_what_is_missing_is_refused_as_in_the_whole(library: str) -> None:
    with restart_jpegs.through(library):
        assert restart_jpegs.shows(part(FILE[:-2]), decode(FILE, "image"), TOP)
        start = sniff(FILE).data_at
        for keep in (0.0, 0.1, 0.2, 0.5, 0.9):
            cut = FILE[: start + int((len(FILE) - start) * keep)]
            for end in (b"", bytes(40), image_files.EOI)[: 3 if keep < 0.2 else 2]:
                with pytest.raises(DamagedImage, match="cannot decode JPEG"):
                    part(cut + end)


@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_another_marker_before_the_end_is_told_by_the_whole(library: str) -> None:
    """The rows decode, but what follows them is not what is expected: the outcome is that of the whole."""
    file = FILE[:-2] + b"\xff\xfe\x00\x04ab" + FILE[-2:]
    with restart_jpegs.through(library):
        assert restart_jpegs.shows(part(file), decode(file, "image"), TOP)


@settings(max_examples=5 * settings().max_examples)
@given(st.data())
def test_damage_is_refused_or_shows_what_libjpeg_makes_of_it(data: st.DataObject) -> None:
    """Never other pixels than a lenient decode of the whole has, and none where libjpeg has warned of them."""
    file = bytearray(FILE)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(sniff(FILE).data_at, len(file) - 3))
        file[at] = data.draw(st.integers(0, 255))
    damaged = bytes(file)
    for library in LIBRARIES:
        with restart_jpegs.through(library):
            try:
                region = part(damaged)
            except DamagedImage:
                with pytest.raises(DamagedImage):
                    decode(damaged, "image")
                continue
        assert restart_jpegs.shows(region, simplejpeg.decode_jpeg(damaged, strict=False), TOP)


def test_a_warning_above_the_rows_end_is_never_taken_for_the_one_at_the_end() -> None:
    """A marker in the first rows: libjpeg puts out its first warning, and not the last one."""
    at = sniff(FILE).data_at + 40
    damaged = FILE[:at] + b"\xff\xd0" + FILE[at:]
    for library in LIBRARIES:
        with restart_jpegs.through(library), pytest.raises(DamagedImage):
            part(damaged)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos" / "class"
    folder.mkdir(parents=True)
    for seed in range(6):
        image = image_files.colors(seed, height=300, width=400)
        (folder / f"{seed}.jpg").write_bytes(image_files.jpeg(image))
    return tmp_path / "photos"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "options, verify, truncated",
    [
        ((), "first", True),
        ((), "always", True),
        ((), "open", True),
        ((), "never", False),
        (("--validate", "header"), "first", False),
    ],
)
def test_only_validated_and_checked_bytes_are_truncated(
    photos: Path, options: tuple[str, ...], verify: str, truncated: bool
) -> None:
    pack = photos.parent / "set.pack"
    assert called("convert", photos, pack, *options).exit_code == 0
    crop = CenterCrop(64)
    expected = [np.asarray(packer.open(pack, geometry=crop, decoder="opencv")[index]["image"]) for index in range(6)]
    with mock.patch.object(lossless_jpeg_crop, "truncated", wraps=lossless_jpeg_crop.truncated) as spied:
        dataset = packer.open(pack, geometry=crop, verify=verify)
        found = [np.asarray(dataset[index]["image"]) for index in range(6)]
    assert bool(spied.call_count) == truncated
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("validate", ["full", "header"])
def test_packs_made_of_packs_are_as_sound_as_the_first(photos: Path, validate: str) -> None:
    paths = [photos, *(photos.parent / f"{number}.pack" for number in range(3))]
    for source, target in itertools.pairwise(paths):
        options = ["--validate", validate] if source == photos else []
        assert called("convert", source, target, "--to", "lmdb", *options).exit_code == 0
    assert [manifest.read(path).validated for path in paths[1:]] == [validate == "full"] * 3


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"validate": "full"},
        {"validate": "full", "source": {}},
        {"validate": "full", "source": "folder"},
        {"validate": "full", "source": {"kind": "pack"}},
        {"validate": "full", "source": {"kind": "pack", "options": []}},
        {"validate": "header", "source": {"kind": "folder"}},
    ],
)
def test_what_no_manifest_says_is_not_believed(photos: Path, options: dict[str, object]) -> None:
    packed(photos, photos.parent / "set.pack", to="lmdb")
    found = manifest.read(photos.parent / "set.pack")
    assert not replace(found, options=options).validated


@pytest.mark.parametrize("library", EACH_LIBRARY)
def test_a_region_of_a_file_of_another_size_is_refused(library: str) -> None:
    decode = LIBRARIES[library].decode_region
    if decode is None:
        assert not has_regions("420", library)
        return
    with pytest.raises(DamagedImage, match="libjpeg-turbo.*230x150"):
        decode(FILE, np.zeros((16, 16, 3), np.uint8), size=(150, 231), corner=(0, 0))
    with pytest.raises(DamagedImage, match="boundary"):
        decode(FILE, np.zeros((16, 16, 3), np.uint8), size=(150, 230), corner=(0, 5))
