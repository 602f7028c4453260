"""Rectangles and maps against the slow rule, to the bit, on synthetic labels; golden sums of them."""

import zlib
from typing import Any

import numpy as np
import pytest

from packer.errors import InvalidRequest
from packer.grasp import corners_of_rows, rows_of_corners, scale, targets
from packer.grasp.targets import draw, max_width
from tests.support import slow_grasps
from tests.support.slow_grasps import scikit

TURNS = (0.0, np.pi / 2, np.pi, 3 * np.pi / 2)
ZOOMS = (1.0, 0.75, 0.5, 0.6180339887)
SIZES = (60, 75)
SIDE = 256  # of the image of the rows


def scene(seed: int) -> Any:
    """Cornell's corners x, y in an image of 640x480: both windings, decimals, some at the border."""
    random = np.random.default_rng(seed)
    middle = random.uniform((0, 0), (640, 480)) if seed % 3 == 0 else random.uniform((200, 150), (440, 330))
    rows = np.column_stack(
        [*(middle + random.uniform(-40, 40, (8, 2))).T, random.uniform(-90, 90, 8), *random.uniform(5, 60, (2, 8))]
    )
    found = corners_of_rows(rows)
    found[::2] = found[::2, [1, 0, 3, 2]]  # the other winding
    found[1] = [(10, 10), (30, 10), (30, 20), (10, 20)]  # whole and upright
    return np.round(found, 3)


def view(seed: int) -> Any:
    """Jacquard's rows in an image of SIDE px: grasps at several jaw sizes, some beyond the border."""
    random = np.random.default_rng(seed)
    count = 12
    grasps = [
        *random.uniform(-10, SIDE + 10, (2, count)),
        random.uniform(-90, 90, count),
        random.integers(4, 60, count),
    ]
    base = np.round(np.column_stack([*grasps, np.full(count, 13.03305)]), 5)
    base[0, 2], base[1, 2] = 90.0, 0.0
    return np.concatenate([base * (1, 1, 1, 1, jaw) for jaw in (1, 0.5, 1.5, 3)])


def of_scene(given: Any, size: int) -> tuple[Any, targets.Frame]:
    points = targets.of_corners(given)
    return points, targets.around_grasps(points, 480, 640, size)


def of_view(given: Any, size: int) -> tuple[Any, targets.Frame]:
    return targets.of_rows(given, size / SIDE), targets.around_middle(size)


def made(items: list[tuple[Any, targets.Frame]], rot: list[float], zoom: list[float], limit: float) -> tuple[Any, Any]:
    """Rectangles of all samples at once, and their maps (4, samples, S, S)."""
    owner = np.repeat(np.arange(len(items)), [len(points) for points, _ in items])
    frames = [frame for _, frame in items]
    points = targets.moved(
        np.concatenate([each for each, _ in items]), owner, frames, np.asarray(rot), np.asarray(zoom)
    )
    maps = np.full((4, len(items), frames[0].size, frames[0].size), np.nan, np.float32)
    draw(points, owner, limit, maps)
    return points, maps


@pytest.mark.one_in(16)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rot", TURNS)
@pytest.mark.parametrize("set_name", ["cornell", "jacquard"])
def test_rectangles_and_maps_are_those_of_the_slow_rule(set_name: str, rot: float, size: int) -> None:
    cases = [(seed, zoom) for seed in range(4) for zoom in ZOOMS]
    given = [scene(seed) if set_name == "cornell" else view(seed) for seed, _ in cases]
    items = [(of_scene if set_name == "cornell" else of_view)(each, size) for each in given]
    for style in ("ggcnn", "grconvnet"):
        limit = max_width(style, size)
        points, maps = made(items, [rot] * len(cases), [zoom for _, zoom in cases], limit)
        start = 0
        for number, (_, zoom) in enumerate(cases):
            if set_name == "cornell":
                expected = slow_grasps.cornell(given[number], size, rot, zoom)
            else:
                expected = slow_grasps.jacquard(given[number], size, rot, zoom, SIDE)
            stop = start + len(expected)
            assert points[start:stop].tolist() == [[list(point) for point in each] for each in expected]
            drawn, _ = slow_grasps.maps(expected, size, limit)
            assert maps[:, number].tobytes() == drawn.tobytes()
            start = stop


def test_maps_are_those_that_scikit_image_fills() -> None:
    polygon = scikit()
    for seed in range(6):
        for rot, zoom in zip(TURNS, ZOOMS, strict=True):
            points, maps = made([of_view(view(seed), 75)], [rot], [zoom], 150.0)
            expected, _ = slow_grasps.maps(slow_grasps.jacquard(view(seed), 75, rot, zoom, SIDE), 75, 150.0, polygon)
            assert maps[:, 0].tobytes() == expected.tobytes()


GOLDEN = {  # crc32 of the quality map as uint8, from the slow rule with skimage.draw.polygon
    ("cornell", 0): "fd4fc3a5",
    ("cornell", 1): "a1d84f4e",
    ("jacquard", 0): "4581b174",
    ("jacquard", 1): "d99232e0",
}


@pytest.mark.parametrize(("set_name", "seed"), GOLDEN)
def test_the_quality_maps_have_their_golden_sums(set_name: str, seed: int) -> None:
    item = of_scene(scene(seed), 75) if set_name == "cornell" else of_view(view(seed), 75)
    _, maps = made([item], [np.pi / 2], [0.75], 150.0)
    assert f"{zlib.crc32(maps[0, 0].astype(np.uint8).tobytes()):08x}" == GOLDEN[set_name, seed]


def test_without_rectangles_there_is_background_and_the_window_is_in_the_middle() -> None:
    points = targets.of_corners(np.zeros((0, 4, 2), np.float32))
    assert targets.around_grasps(points, 480, 640, 300) == targets.Frame((240, 320), 90, 170, 300)
    _, maps = made([(points, targets.around_middle(20))], [0.0], [1.0], 150.0)
    np.testing.assert_array_equal(maps[:, 0].reshape(4, -1).min(axis=1), [0, 1, 0, 0])
    np.testing.assert_array_equal(maps[:, 0].reshape(4, -1).max(axis=1), [0, 1, 0, 0])


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="ggcnn, grconvnet"):
        max_width("ggcnn2", 300)


def test_rows_and_corners_are_each_others_inverse() -> None:
    rows = np.asarray([(10, 20, 30, 8, 4), (5, 5, -89.5, 3, 2), (50, 60, 90, 12, 6), (7, 8, 0, 4, 4)], float)
    np.testing.assert_allclose(rows_of_corners(corners_of_rows(rows)), rows, atol=1e-4)


def test_the_opening_of_a_row_points_down_to_the_right_for_a_positive_angle() -> None:
    (corners,) = corners_of_rows(np.asarray([(0, 0, 30, 2, 0)], float))
    np.testing.assert_allclose(corners[1], (np.cos(np.pi / 6), 0.5), atol=1e-6)
    np.testing.assert_allclose(
        targets.drawn(np.asarray([[(0, 0), (1000, 1732), (1000, 1732), (0, 0)]])).angle, -np.pi / 6, atol=1e-3
    )


def test_scaling_moves_corners_per_axis_without_a_half_pixel() -> None:
    corners = np.asarray([[(0, 0), (2, 0), (2, 4), (0, 4)]], np.float32)
    np.testing.assert_array_equal(scale(corners, (0.5, 2)), [[(0, 0), (1, 0), (1, 8), (0, 8)]])
    np.testing.assert_array_equal(scale(corners, 3), corners * 3)
