"""What is drawn into the images of a sheet: grasps, boxes, points and masks, at the pixels where they belong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.inspect import palette
from packer.inspect.tile import Tile, ZoomBox, zoom_box
from packer.inspect.value_drawing import ShapeCounts, draw_shapes, mask_colors
from packer.schema import Field
from tests.support.array_packs import (
    BOXES,
    DEPTH,
    DOTS,
    GRASPS,
    GRAY,
    IDS,
    IMAGE,
    MASK,
    NEGATIVES,
    RECTANGLE,
    displayed,
    plain,
    sheet_of,
)

ORANGE, BLUE = palette.SHAPES["grasps"][0]
GREEN = palette.class_color(1)


def only_tile(folder: Path, *args: Any, **wanted: Any) -> Tile:
    (tile,) = sheet_of(displayed(folder, *args), **{"width": 80, **wanted}).tiles
    return tile


NAMES = {
    "opening": ORANGE,
    "jaw": BLUE,
    "image": GRAY,
    "mask": GREEN,
    "box": palette.SHAPES["boxes"][0][0],
    "dot": palette.SHAPES["points"][0][0],
}
NAMES |= {
    "opening 2": palette.SHAPES["grasps"][1][0],
    "jaw 2": palette.SHAPES["grasps"][1][1],
    "class 2": palette.class_color(2),
}


def pixel(tile: Tile, x: int, y: int) -> tuple[int, ...]:
    return tuple(tile.panels[0].pixels[y, x].tolist())


def color_at(tile: Tile, x: int, y: int) -> str:
    """What is drawn there: a line has its color but for what antialiasing takes, 6 % for the thinnest."""
    found = {name for name, color in NAMES.items() if np.abs(np.subtract(pixel(tile, x, y), color)).max() <= 16}
    return " or ".join(sorted(found)) or f"none of them: {pixel(tile, x, y)}"


def test_opening_and_jaw_sides_have_their_colors_whatever_the_winding(tmp_path: Path) -> None:
    sample = {"image": plain(60, 80), "grasps": np.float32([RECTANGLE])}
    tile = only_tile(tmp_path / "pack", [IMAGE, GRASPS], [sample])
    assert color_at(tile, 40, 10) == color_at(tile, 40, 30) == "opening"  # p0 to p1 and p2 to p3
    assert color_at(tile, 60, 20) == color_at(tile, 20, 20) == "jaw"  # p1 to p2 and p3 to p0
    assert color_at(tile, 40, 20) == "image"
    assert [mark.text for mark in tile.marks] == ["grasps: opening", "grasps: jaw"]
    assert [mark.color for mark in tile.marks] == [ORANGE, BLUE]
    turned = [RECTANGLE[number] for number in (0, 3, 2, 1)]  # the opening is now along y
    tile = only_tile(tmp_path / "turned", [IMAGE, GRASPS], [{"image": plain(60, 80), "grasps": np.float32([turned])}])
    assert color_at(tile, 40, 10) == color_at(tile, 40, 30) == "jaw"
    assert color_at(tile, 60, 20) == color_at(tile, 20, 20) == "opening"


def test_grasps_that_do_not_hold_have_other_colors_and_lie_below(tmp_path: Path) -> None:
    below = np.float32([RECTANGLE]) + np.float32([0, 20])
    sample = {"image": plain(60, 80), "grasps": np.float32([RECTANGLE]), "negatives": below}
    tile = only_tile(tmp_path / "pack", [IMAGE, GRASPS, NEGATIVES], [sample])
    assert color_at(tile, 40, 50) == "opening 2"
    assert color_at(tile, 60, 40) == "jaw 2"
    assert color_at(tile, 40, 30) == "opening"  # a side of both
    assert tile.items == (("grasps", "1"), ("negatives", "1"))


def test_labels_move_with_a_image_that_is_made_to_fit(tmp_path: Path) -> None:
    sample = {"image": plain(120, 160), "grasps": 2 * np.float32([RECTANGLE]) + 0.5}  # pixel centers of a half
    tile = only_tile(tmp_path / "pack", [IMAGE, GRASPS], [sample])
    assert tile.panels[0].pixels.shape == (60, 80, 3)
    assert color_at(tile, 40, 10) == "opening"
    assert color_at(tile, 60, 20) == "jaw"


def test_boxes_and_points(tmp_path: Path) -> None:
    sample = {"image": plain(60, 80), "boxes": np.float32([[10, 5, 50, 45]]), "dots": np.float32([[65, 50]])}
    tile = only_tile(tmp_path / "pack", [IMAGE, BOXES, DOTS], [sample])
    for x, y in ((10, 25), (50, 25), (30, 5), (30, 45)):
        assert color_at(tile, x, y) == "box or class 2"
    assert color_at(tile, 65, 50) == "dot"
    assert color_at(tile, 30, 25) == "image"


def test_a_mask_lies_over_the_image_with_an_outline(tmp_path: Path) -> None:
    mask = np.zeros((60, 80), np.uint8)
    mask[20:40, 30:60] = 255
    tile = only_tile(tmp_path / "pack", [IMAGE, MASK], [{"image": plain(60, 80), "mask": mask}])
    assert len(tile.panels) == 1
    assert pixel(tile, 45, 30) == tuple(
        round(0.7 * gray + 0.3 * green) for gray, green in zip(GRAY, GREEN, strict=True)
    )
    assert pixel(tile, 30, 25) == GREEN  # a border pixel
    assert color_at(tile, 5, 5) == "image"
    assert [(mark.text, mark.color) for mark in tile.marks] == [("mask", GREEN)]


def test_values_of_a_mask_have_distinct_colors_and_255_beside_others_is_void() -> None:
    values = np.arange(32, dtype=np.uint8)
    values[-1] = 255
    painted, opacity = mask_colors(values.reshape(4, 8))
    assert len(np.unique(painted.reshape(-1, 3)[1:], axis=0)) == 31
    assert tuple(painted[3, 7]) == palette.VOID
    assert opacity.ravel().tolist() == [0.0] + [1.0] * 31


def test_a_soft_mask_is_one_color_of_growing_opacity() -> None:
    painted, opacity = mask_colors(np.arange(256, dtype=np.uint8).reshape(16, 16))
    assert np.unique(painted.reshape(-1, 3), axis=0).tolist() == [list(GREEN)]
    assert np.array_equal(opacity.ravel(), np.arange(256) / 255)


def test_a_mask_without_an_image_stands_alone(tmp_path: Path) -> None:
    mask = np.zeros((60, 80), np.uint8)
    mask[20:40, 30:60] = 2
    tile = only_tile(tmp_path / "pack", [MASK], [{"mask": mask}])
    assert pixel(tile, 45, 30) == palette.class_color(2)
    assert pixel(tile, 5, 5) == (0, 0, 0)
    assert [mark.text for mark in tile.marks] == ["mask 2"]


def test_points_are_measured_in_the_first_image_whatever_its_size(tmp_path: Path) -> None:
    """A depth of half the size comes first: its px are two of the image's."""
    sample = {"depth": np.ones((30, 40), np.float32), "image": plain(60, 80), "grasps": np.float32([RECTANGLE]) / 2}
    tile = only_tile(tmp_path / "pack", [DEPTH, IMAGE, GRASPS], [sample])
    assert [panel.name for panel in tile.panels] == ["depth", "image"]
    tile = tile._replace(panels=tile.panels[1:])
    # px x of the depth is centerd at 2 x + 0.5 of the image: its lines lie over two px
    for x, y in ((40, 10), (40, 11), (60, 20), (61, 20)):
        assert color_at(tile, x, y) != "image"
    for x, y in ((40, 8), (40, 13), (57, 20), (64, 20)):
        assert color_at(tile, x, y) == "image"


def test_of_many_shapes_some_are_drawn_evenly_and_the_caption_says_so(tmp_path: Path) -> None:
    many = np.float32([RECTANGLE]) + np.arange(10, dtype=np.float32)[:, None, None]
    tile = only_tile(tmp_path / "pack", [IMAGE, GRASPS], [{"image": plain(60, 80), "grasps": many}], most=5)
    assert tile.items == (("grasps", "5 of 10"),)
    assert color_at(tile, 40, 10) == "opening"  # the first
    assert color_at(tile, 40, 18) == "opening"  # the ninth
    every = only_tile(tmp_path / "all", [IMAGE, GRASPS], [{"image": plain(60, 80), "grasps": many}], most=0)
    assert every.items == (("grasps", "10"),)
    assert color_at(every, 40, 19) == "opening"


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 3e38, 1e6])
def test_what_cannot_be_drawn_is_counted(tmp_path: Path, wrong: float) -> None:
    bad = np.float32([RECTANGLE])
    bad[0, 2, 1] = wrong
    both = np.concatenate([bad, np.float32([RECTANGLE])])
    tile = only_tile(tmp_path / "pack", [IMAGE, GRASPS], [{"image": plain(60, 80), "grasps": both}])
    assert tile.items == (("grasps", "1 of 2, 1 not drawable"),)
    assert color_at(tile, 40, 10) == "opening"


def test_labels_outside_the_image_leave_it_alone() -> None:
    pixels = plain(60, 80)
    found = draw_shapes(pixels, list(np.float32([RECTANGLE]) + 500), form="grasps", rank=0, most=0)
    assert found == ShapeCounts(1, 1, 0)
    assert (pixels == GRAY).all()


def test_a_sample_without_labels_has_neither_lines_nor_legend(tmp_path: Path) -> None:
    sample = {"image": plain(60, 80), "grasps": np.empty((0, 4, 2), np.float32)}
    tile = only_tile(tmp_path / "pack", [IMAGE, GRASPS], [sample])
    assert (tile.panels[0].pixels == GRAY).all()
    assert (tile.items, tile.marks) == ((("grasps", "0"),), ())


# ---- close-ups


def test_a_close_up_shows_the_labels_with_something_around_them(tmp_path: Path) -> None:
    image = plain(480, 640)
    image[200:260, 300:380] = (200, 10, 10)
    sample = {"image": image, "depth": image[..., 0].astype(np.float32), "grasps": np.float32([RECTANGLE]) + (300, 205)}
    tile = only_tile(tmp_path / "pack", [IMAGE, DEPTH, GRASPS], [sample], zoom=True, width=320)
    red = (tile.panels[0].pixels == (200, 10, 10)).all(axis=2)
    assert red.mean() > 0.5
    assert tile.panels[1].scale is not None
    assert tile.panels[1].scale.high == 200
    rows, columns = np.nonzero((tile.panels[0].pixels == BLUE).all(axis=2))
    assert columns.min() > 0.15 * 320
    assert columns.max() < 0.85 * 320
    assert rows.min() > 0.15 * 240


def test_a_part_has_the_shape_of_its_place_and_stays_inside() -> None:
    part = zoom_box([np.float32([RECTANGLE])], (480, 640), (180, 240))
    assert part is not None
    # 40 px and 0.3 of it on both sides; 3 : 4; from 20 - 12 on; the top would be above the image
    assert part.slices(480, 640) == (slice(0, 48), slice(8, 72))
    assert zoom_box([np.float32([RECTANGLE])], (40, 62), (180, 240)) == ZoomBox(0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("shape", [np.nan, np.inf, 900, -5])
def test_labels_that_lie_nowhere_make_no_part(shape: float) -> None:
    assert zoom_box([np.full((1, 4, 2), shape, np.float32)], (480, 640), (180, 240)) is None
    assert zoom_box([], (480, 640), (180, 240)) is None


# ---- what belongs to boxes

POLYGONS = Field("polygons", "points", "raw:float32", "float32", (None, 2), edges=True)
STARTS = Field("polygon_starts", "number", "raw:int64", "int64", (None,), starts="polygons")
BOX_LABELS = Field("box_labels", "number", "raw:int64", "int64", (None,), classes=("cat", "dog"), of="boxes")


def test_polygons_are_closed_outlines_at_the_pixels_beside_their_edges(tmp_path: Path) -> None:
    triangle, square = [(10, 10), (30, 10), (30, 50)], [(50, 20), (70, 20), (70, 40), (50, 40)]
    sample = {
        "image": plain(60, 80),
        "polygons": np.float32([*triangle, *square]),
        "polygon_starts": np.int64([0, 3]),
    }
    tile = only_tile(tmp_path / "pack", [IMAGE, POLYGONS, STARTS], [sample])
    outline = np.asarray(palette.SHAPES["outlines"][0][0])

    def is_drawn(x: int, y: int) -> bool:
        return bool(np.abs(np.subtract(pixel(tile, x, y), GRAY)).max() > 0.3 * np.abs(outline - GRAY).max())

    assert is_drawn(60, 20) and is_drawn(60, 19)  # the edge at 20 lies between both
    assert is_drawn(49, 30) and is_drawn(50, 30)  # the last side, back to the first corner
    assert is_drawn(20, 30)  # of the triangle: from (30, 50) back to (10, 10)
    assert not is_drawn(40, 30)  # nothing joins one polygon with the next
    assert not is_drawn(60, 30)
    assert dict(tile.items)["polygons"] == "2"
    assert "polygon_starts" not in dict(tile.items)
    assert [(mark.text, mark.form) for mark in tile.marks] == [("polygons", "line")]


def test_polygons_that_are_chosen_alone_are_still_told_apart(tmp_path: Path) -> None:
    sample = {"image": plain(60, 80), "polygons": np.float32([(1, 1), (9, 1), (9, 9)]), "polygon_starts": np.int64([0])}
    folder = displayed(tmp_path / "pack", [IMAGE, POLYGONS, STARTS], [sample, {**sample, "key": "2"}])
    for tile in sheet_of(folder, fields=("image", "polygons"), width=80).tiles:
        assert dict(tile.items) == {"polygons": "1"}


def test_oriented_boxes_are_outlines_and_no_grasps(tmp_path: Path) -> None:
    turned = replace(GRASPS, name="oriented_boxes", edges=True)
    tile = only_tile(
        tmp_path / "pack", [IMAGE, turned], [{"image": plain(60, 80), "oriented_boxes": np.float32([RECTANGLE])}]
    )
    assert [(mark.text, mark.color) for mark in tile.marks] == [("oriented_boxes", palette.SHAPES["outlines"][0][0])]


def test_the_classes_of_boxes_are_named(tmp_path: Path) -> None:
    sample = {
        "image": plain(60, 80),
        "boxes": np.float32([[1, 1, 9, 9]] * 4),
        "box_labels": np.int64([1, 0, 1, 7]),
    }
    tile = only_tile(tmp_path / "pack", [IMAGE, BOXES, BOX_LABELS], [sample])
    assert dict(tile.items) == {"boxes": "4", "box_labels": "cat, dog 2, 7, not a class"}


def test_polygons_of_a_damaged_pack_end_nothing(tmp_path: Path) -> None:
    sample = {
        "image": plain(60, 80),
        "polygons": np.float32([(1, 1), (np.nan, 2), (1e9, 3)]),
        "polygon_starts": np.int64([0, 2, -5, 1 << 60]),
    }
    tile = only_tile(tmp_path / "pack", [IMAGE, POLYGONS, STARTS], [sample])
    assert "not drawable" in dict(tile.items)["polygons"]


# ---- masks of 16 bit


def test_every_id_has_its_color_and_none_is_void_or_soft(tmp_path: Path) -> None:
    values = np.arange(48, dtype=np.int32) + 26_001
    values[:2] = 0, 255
    painted, opacity = mask_colors(values.reshape(6, 8))
    assert len(np.unique(painted.reshape(-1, 3)[1:], axis=0)) == 47
    assert tuple(painted[0, 1]) == palette.class_color(255) != palette.VOID
    assert opacity.ravel().tolist() == [0.0] + [1.0] * 47
    mask = np.zeros((60, 80), np.uint16)
    mask[20:40, 30:60] = 26_001
    tile = only_tile(tmp_path / "over", [IMAGE, IDS], [{"image": plain(60, 80), "ids": mask}])
    assert pixel(tile, 30, 25) == palette.class_color(26_001)  # its outline
    assert [(mark.text, mark.color) for mark in tile.marks] == [("ids 26001", palette.class_color(26_001))]
    alone = only_tile(tmp_path / "alone", [IDS], [{"ids": mask}])
    assert pixel(alone, 45, 30) == palette.class_color(26_001)
    assert pixel(alone, 5, 5) == (0, 0, 0)


def test_many_ids_are_one_entry_of_the_legend(tmp_path: Path) -> None:
    mask = np.arange(60 * 80, dtype=np.uint16).reshape(60, 80)
    tile = only_tile(tmp_path / "pack", [IDS], [{"ids": mask}])
    assert [mark.text for mark in tile.marks] == ["ids: a color per value"]
