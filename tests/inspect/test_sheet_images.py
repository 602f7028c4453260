"""Images of a sheet: how they fit, what the colors of a depth mean, and that every size and kind is shown."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from packer.errors import InvalidRequest
from packer.inspect import palette
from packer.inspect.contact_sheet import range_texts
from packer.inspect.palette import viridis
from packer.inspect.tile import share_text
from packer.inspect.value_drawing import Scale, colored_depth, fit, hatch, placing, scale_of
from packer.schema import Field
from tests.support.array_packs import DEPTH, GRAY, IMAGE, LABEL, MASK, NOTE, displayed, plain, sheet_of
from tests.support.conversions import packed
from tests.support.source_trees import encoded, write


def lightness(colors: np.ndarray) -> np.ndarray:
    """CIE L* of uint8 (n, 3) RGB."""
    return cv2.cvtColor(np.float32(colors[None]) / 255, cv2.COLOR_RGB2Lab)[0, :, 0]


def test_the_colors_of_depth_grow_lighter_evenly() -> None:
    steps = np.diff(lightness(viridis())[::15])
    assert len(steps) == 17
    assert steps.min() > 0.8 * steps.mean()  # TURBO and JET grow lighter, then darker
    assert steps.max() < 1.25 * steps.mean()


def test_near_and_far_and_what_is_beyond_have_the_ends_of_the_scale_and_what_is_missing_is_hatched() -> None:
    depth = np.float32([[1.0, 3.0, 2.0, -1.0, np.nan, np.inf]])
    made = colored_depth(depth, Scale(1.0, 3.0), invalid=-1.0)
    assert made[0, :3].tolist() == viridis()[[0, 255, 128]].tolist()
    assert made[0, 3:].tolist() == hatch(1, 6)[0, 3:].tolist()
    stripes = {tuple(color) for color in hatch(20, 20).reshape(-1, 3).tolist()}
    assert stripes == set(palette.HATCH)
    distances = np.abs(viridis().astype(int)[:, None] - np.asarray(palette.HATCH)[None]).max(axis=2)
    assert distances.min() > 30  # no valid depth looks like it
    made = colored_depth(np.float32([[-9, 0.03, 99]]), Scale(1.0, 3.0), invalid=None)
    assert made[0].tolist() == viridis()[[0, 0, 255]].tolist()


def test_the_scale_leaves_out_one_percent_at_each_end_and_what_is_missing() -> None:
    depth = np.arange(101, dtype=np.float32).reshape(1, 101)
    assert scale_of(depth, None) == Scale(1.0, 99.0)
    depth[0, 0] = 50
    wrong = np.concatenate([depth, np.full((1, 101), -1.0, np.float32)])
    assert scale_of(wrong, -1.0).high == np.percentile(depth.astype(float), 99)
    assert scale_of(np.full((2, 2), np.nan, np.float32), None) == Scale(None, None)


def test_a_depth_without_a_valid_pixel_and_a_flat_one() -> None:
    empty = np.full((8, 8), -1.0, np.float32)
    assert np.array_equal(colored_depth(empty, scale_of(empty, -1.0), invalid=-1.0), hatch(8, 8))
    flat = np.full((8, 8), 1.5, np.float32)
    assert np.unique(colored_depth(flat, scale_of(flat, None), invalid=None).reshape(-1, 3), axis=0).tolist() == [
        viridis()[128].tolist()
    ]


@pytest.mark.parametrize(
    ("ends", "texts"),
    [
        ((0.712, 2.034, "m"), ("0.71", "2.03 m")),
        ((1.0, 1.0, "m"), ("1.00", "1.00 m")),
        ((1.4321, 1.4329, "m"), ("1.4321", "1.4329 m")),
        ((700.0, 2100.0, ""), ("700", "2100")),
        ((700.25, 2100.0, ""), ("700.25", "2100.00")),
    ],
)
def test_the_range_of_a_depth_in_words(ends: tuple[float, float, str], texts: tuple[str, str]) -> None:
    assert range_texts(*ends) == texts


def test_shares_in_words() -> None:
    assert [share_text(share) for share in (0.0, 1e-9, 0.0005, 0.123, 1.0)] == [
        "0.0%",
        "<0.1%",
        "0.1%",
        "12.3%",
        "100.0%",
    ]


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((480, 640), (180, 240)),
        ((640, 480), (180, 135)),
        ((120, 160), (180, 240)),  # enlarged
        ((32, 32), (160, 160)),  # tiny: by a whole factor
        ((1, 1), (180, 180)),
        ((1, 5000), (1, 240)),
        ((9000, 2), (180, 1)),
        ((180, 240), (180, 240)),
        ((476, 640), (180, 240)),  # 1 px would be left over
        ((460, 640), (172, 240)),
    ],
)
def test_a_image_of_any_size_fits_its_place(size: tuple[int, int], shown: tuple[int, int]) -> None:
    view = placing(*size, (180, 240))
    assert view.size == shown
    for kind, array in (("image", plain(*size)), ("mask", np.full(size, 7, np.uint8)), ("depth", np.ones(size, "f4"))):
        fitted = fit(array, view, kind)
        assert fitted.shape == (*shown, *array.shape[2:])
        assert (fitted == array[0, 0]).all()


def test_the_pixels_of_a_tiny_image_stay_squares() -> None:
    tiny = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    fitted = fit(tiny, placing(8, 8, (80, 80)), "image")
    assert np.array_equal(fitted, tiny.repeat(10, axis=0).repeat(10, axis=1))


def test_missing_depth_is_not_mixed_into_what_is_valid() -> None:
    depth = np.full((400, 400), 2.0, np.float32)
    depth[:, 200:] = -1.0
    fitted = fit(depth, placing(400, 400, (100, 100)), "depth", invalid=-1.0)
    assert np.unique(fitted).tolist() == [-1.0, 2.0]


def test_a_tile_has_the_depth_with_its_scale_and_how_much_is_missing(tmp_path: Path) -> None:
    depth = np.full((40, 40), 2.5, np.float32)
    depth[:10] = -1.0
    pack = displayed(tmp_path / "pack", [IMAGE, DEPTH], [{"image": plain(40, 40), "depth": depth}])
    (tile,) = sheet_of(pack, width=80).tiles
    assert [(panel.name, panel.size, panel.scale) for panel in tile.panels] == [
        ("image", (40, 40), None),
        ("depth", (40, 40), Scale(2.5, 2.5, "m")),
    ]
    assert tile.items == (("depth missing", "25.0%"),)
    assert [mark.form for mark in tile.marks] == ["hatch"]
    assert np.array_equal(tile.panels[1].pixels[:20], hatch(80, 80)[:20])


def test_images_of_every_form_are_shown(tmp_path: Path) -> None:
    """Gray, palette-like, RGBA and 16 bit files of many sizes, packed as they are."""
    random = np.random.default_rng(1)
    files = {
        "a/gray.png": encoded(".png", np.full((30, 40), 77, np.uint8)),
        "a/color.jpg": encoded(".jpg", np.full((50, 20, 3), 77, np.uint8)),
        "b/channels.png": encoded(".png", np.full((64, 64, 4), 77, np.uint8)),
        "b/noise.bmp": encoded(".bmp", random.integers(0, 256, (300, 500, 3), np.uint8)),
    }
    packed(write(tmp_path / "in", files), tmp_path / "pack")
    tiles = sheet_of(tmp_path / "pack", width=100).tiles
    assert [tile.key for tile in tiles] == sorted(files)
    assert [tile.items for tile in tiles] == [(("label", key[0]),) for key in sorted(files)]
    for tile in tiles[:3]:
        (panel,) = tile.panels
        assert np.unique(panel.pixels).tolist() == [77]


def test_a_depth_of_16_bit_has_no_unit(tmp_path: Path) -> None:
    field = Field("depth", "depth", "raw:uint16", "uint16", (None, None))
    depth = np.tile(np.uint16([500, 1500]), (40, 20))
    (tile,) = sheet_of(displayed(tmp_path / "pack", [field], [{"depth": depth}]), width=80).tiles
    assert tile.panels[0].scale == Scale(500.0, 1500.0)


def test_a_image_without_pixels_is_an_empty_place(tmp_path: Path) -> None:
    samples = [{"image": plain(40, 80)}, {"image": np.empty((0, 80, 3), np.uint8)}]
    tiles = sheet_of(displayed(tmp_path / "pack", [IMAGE], samples), width=80).tiles
    assert tiles[1].panels[0].size == (0, 80)
    assert np.unique(tiles[1].panels[0].pixels).tolist() == sorted(palette.GROUND)


def test_a_pack_without_images_has_keys_and_values(tmp_path: Path) -> None:
    samples = [{"label": 1, "note": "first"}, {"label": 7, "note": "second"}]
    sheet = sheet_of(displayed(tmp_path / "pack", [LABEL, NOTE], samples))
    assert sheet.columns == 0
    assert [tile.items for tile in sheet.tiles] == [
        (("label", "dog"), ("note", "first")),
        (("label", "7, not a class"), ("note", "second")),
    ]


def test_places_have_the_shape_that_most_images_have(tmp_path: Path) -> None:
    samples = [{"image": plain(*size)} for size in ((100, 100), (100, 100), (50, 100), (9, 900))]
    assert sheet_of(displayed(tmp_path / "pack", [IMAGE], samples), width=200).box == (150, 200)  # median of the ratios
    tall = displayed(tmp_path / "tall", [IMAGE], [{"image": plain(900, 9)}])
    assert sheet_of(tall, width=200).box == (300, 200)


def test_more_images_than_stand_side_by_side_are_refused(tmp_path: Path) -> None:
    fields = [Field(f"image{number}", "image", "raw", "uint8", (None, None, 3)) for number in range(9)]
    pack = displayed(tmp_path / "pack", fields, [{field.name: plain(4, 4) for field in fields}])
    with pytest.raises(InvalidRequest, match="--fields"):
        sheet_of(pack)
    assert len(sheet_of(pack, fields=("image1", "image8")).tiles[0].panels) == 2


def test_chosen_fields_come_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    mask = np.zeros((8, 8), np.uint8)
    pack = displayed(tmp_path / "pack", [IMAGE, MASK, LABEL], [{"image": plain(8, 8), "mask": mask, "label": 0}])
    (tile,) = sheet_of(pack, fields=("mask", "label")).tiles
    assert [panel.name for panel in tile.panels] == ["mask"]
    assert tile.items == (("label", "cat"),)
    assert (sheet_of(pack, fields=("image",), width=80).tiles[0].panels[0].pixels == GRAY).all()
