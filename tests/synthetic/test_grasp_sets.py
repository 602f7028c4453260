import math
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer import synthetic
from packer.errors import InvalidRequest
from packer.synthetic.drawing import KINDS, draw_object, make_object
from packer.synthetic.grasp_sets import DrawnGrasp, find_grasps, scene_ids

TIFF_TYPES = {3: "<H", 4: "<I"}


def files_of(root):
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def image_of(path):
    return cv2.imread(str(path), cv2.IMREAD_UNCHANGED)


def tiff_tags(path):
    """First value of each tag of a little-endian TIFF."""
    data = path.read_bytes()
    (start,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, start)
    tags = {}
    for at in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind, values = struct.unpack_from("<HHI", data, at)
        if values == 1 and kind in TIFF_TYPES:
            (tags[tag],) = struct.unpack_from(TIFF_TYPES[kind], data, at + 8)
    return tags


def corners_of(path):
    return np.array([line.split() for line in path.read_text().splitlines()], np.float64).reshape(-1, 4, 2)


def grasp_rows(path):
    return [[float(value) for value in line.split(";")] for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    root = tmp_path_factory.mktemp("cornell") / "set"
    synthetic.load("cornell")(root, samples=5, seed=1)
    return root


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    root = tmp_path_factory.mktemp("jacquard") / "set"
    synthetic.load("jacquard")(root, samples=6, seed=1)
    return root


# finding grasps


def bar(degrees):
    """Mask of a 90 x 16 px bar turned clockwise on the screen (y is down)."""
    turn = np.radians(degrees)
    along, across = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
    points = [(100, 100) + a * 45 * along + b * 8 * across for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    return cv2.fillPoly(np.zeros((200, 200), np.uint8), [np.rint(points).astype(np.int32)], 255) > 0


def found_in(mask, seed=0):
    return find_grasps(mask, np.random.default_rng(seed), longest=60, jaw=6, distance=3)


@given(st.floats(-90, 90), st.integers(0, 99))
def test_a_bar_is_grasped_across(degrees, seed):
    mask = bar(degrees)
    grasps, _ = found_in(mask, seed)
    turns = [math.degrees(g.angle) - (degrees + 90) for g in grasps if np.hypot(g.x - 100, g.y - 100) < 30]
    assert turns
    assert all(abs((turn + 90) % 180 - 90) < 32 for turn in turns)
    assert all(-math.pi / 2 < g.angle <= math.pi / 2 and g.opening % 1.5 == 0 and g.fits(mask) for g in grasps)


def test_misses_have_both_ends_on_the_object():
    mask = bar(30)
    _, misses = found_in(mask)
    assert misses
    for miss in misses:
        p = miss.corners()
        x, y = np.rint([(p[0] + p[3]) / 2, (p[1] + p[2]) / 2]).astype(int).T
        assert mask[y, x].all() and not miss.fits(mask)


def test_an_empty_mask_has_no_grasps_and_a_full_one_only_misses():
    assert found_in(np.zeros((20, 20), bool)) == ([], [])
    grasps, misses = found_in(np.ones((20, 20), bool))
    assert grasps == [] and misses


@pytest.mark.one_in(6)
@pytest.mark.parametrize("scale, longest, jaw", [(525, 220, 6), (1600, 270, 28)], ids=["cornell", "jacquard"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_object_can_be_grasped(kind, scale, longest, jaw):
    for seed in range(3):
        random = np.random.default_rng(seed)
        image = np.zeros((600, 600, 3), np.uint8)
        heights = draw_object(image, make_object(kind, random), at=(300, 300), turn=seed, scale=scale)
        assert find_grasps(heights > 0, random, longest=longest, jaw=jaw, distance=8)[0]


def test_a_grasp_outside_the_image_does_not_fit():
    assert not DrawnGrasp(5, 5, 0.3, 30, 4).fits(np.ones((20, 20), bool))


# cornell


def test_cornell_has_885_scenes_with_the_real_ids():
    ids = scene_ids()
    assert sorted(number for _, number in ids) == [*range(100, 950), *range(1000, 1035)]
    assert all(name == f"{number // 100:02d}" for name, number in ids)
    assert {name for name, _ in ids[:40]} == {f"{n:02d}" for n in range(1, 11)}


def test_a_cornell_scene_has_its_four_files(scenes):
    stems = {f"0{n}/pcd0{n}0{k}" for n, k in ((1, 0), (1, 1), (1, 2), (1, 3), (2, 0))}
    named = {stem + suffix for stem in stems for suffix in ("r.png", "d.tiff", "cpos.txt", "cneg.txt")}
    assert files_of(scenes) == named | {"processedData/z.txt"}


def test_cornell_images_are_640x480_rgb(scenes):
    for path in scenes.glob("*/pcd*r.png"):
        assert struct.unpack(">IIBB", path.read_bytes()[16:26]) == (640, 480, 8, 2)
        assert image_of(path).shape == (480, 640, 3)


def test_cornell_depth_is_uncompressed_float32_meters_with_a_few_wrong_pixels(scenes):
    for path in scenes.glob("0?/pcd*d.tiff"):
        depth = image_of(path)
        assert depth.dtype == np.float32 and depth.shape == (480, 640)
        assert (tiff_tags(path)[259], tiff_tags(path)[278]) == (1, 480)
        assert np.isfinite(depth).all() and 0.03 < depth.min() < 0.04 and 1.0 < depth.max() < 1.2
        assert 0 < (depth < 0.5).sum() < 20


def test_cornell_lines_end_in_a_blank_except_each_fourth(scenes):
    for path in scenes.glob("0?/*c???.txt"):
        lines = path.read_bytes().split(b"\n")
        assert lines.pop() == b"" and len(lines) % 4 == 0
        for number, line in enumerate(lines):
            assert line.endswith(b" ") == (number % 4 != 3)


def test_cornell_rectangles_wind_both_ways(scenes):
    x, y = np.concatenate([corners_of(path) for path in scenes.glob("0?/*cpos.txt")]).transpose(2, 0, 1)
    area = (x * np.roll(y, -1, 1) - y * np.roll(x, -1, 1)).sum(1)
    assert (area > 0).any() and (area < 0).any()


def test_cornell_grasps_lie_across_an_object_that_is_nearer_than_the_table(scenes):
    for path in scenes.glob("0?/*cpos.txt"):
        depth = image_of(str(path).replace("cpos.txt", "d.tiff"))
        found = corners_of(path)
        assert 5 <= len(found) <= 10
        for p in found:
            points = np.stack([p.mean(0), (p[0] + p[3]) / 2, (p[1] + p[2]) / 2])
            center, *ends = depth[tuple(np.rint(points).astype(int).T[::-1])]
            assert center < np.mean(ends) - 0.002


def test_z_txt_has_a_line_per_rectangle_and_an_id_per_object(scenes):
    lines = [line.split() for line in (scenes / "processedData/z.txt").read_text().splitlines()]
    assert {(line[0], line[1]) for line in lines} == {(f"0{n}", f"{n // 4}") for n in (100, 101, 102, 103, 200)}
    assert len({(line[1], line[2]) for line in lines}) == 2
    for path in scenes.glob("0?/*cpos.txt"):
        rectangles = len(corners_of(path)) + len(corners_of(Path(str(path).replace("cpos", "cneg"))))
        assert sum(line[0] == path.name[3:7] for line in lines) == rectangles


def test_cornell_refuses_more_scenes_than_there_are_ids(tmp_path):
    with pytest.raises(InvalidRequest, match="885"):
        synthetic.load("cornell")(tmp_path / "set", samples=886)


# jacquard


def jacquard_stems(root):
    return [str(path)[: -len("RGB.png")] for path in sorted(root.glob("*/*/*_RGB.png"))]


def test_jacquard_views_are_numbered_per_hash(views):
    stems = jacquard_stems(views)
    assert len(stems) == 6
    for stem in stems:
        part, name, file = Path(stem).parts[-3:]
        assert part.startswith("Jacquard_Dataset_") and len(name) in (31, 32)
        assert file == f"{file[0]}_{name}_" and file[0] in "01234"


def test_jacquard_masks_hold_0_and_255_and_cover_what_is_nearer_than_the_table(views):
    for stem in jacquard_stems(views):
        mask, depth = image_of(f"{stem}mask.png"), image_of(f"{stem}perfect_depth.tiff")
        assert mask.shape == (1024, 1024) and set(np.unique(mask)) == {0, 255}
        assert depth.dtype == np.float32 and depth.min() > 1.2 and depth.max() < 1.58
        assert np.array_equal(mask == 255, depth < depth.max(axis=1, keepdims=True))


def test_jacquard_depth_is_lzw_in_strips_of_two_rows(views):
    for path in views.glob("*/*/*_depth.tiff"):
        tags = tiff_tags(path)
        assert (tags[259], tags[278], tags.get(317, 1)) == (5, 2, 1)


def test_stereo_depth_is_minus_one_in_patches_and_near_the_truth_elsewhere(views):
    for stem in jacquard_stems(views):
        perfect, stereo = (image_of(f"{stem}{kind}_depth.tiff") for kind in ("perfect", "stereo"))
        seen = stereo != -1
        assert stereo.min() == -1 and 100 < (~seen).sum() < 40_000
        assert stereo[seen].min() > 1.2
        assert np.percentile(np.abs(stereo - perfect)[seen], 99) < 0.02


def test_jacquard_rows_come_in_runs_of_jaw_sizes(views):
    for path in views.glob("*/*/*_grasps.txt"):
        data = path.read_bytes()
        assert data.endswith(b"\r\n") and data.count(b"\n") == data.count(b"\r\n")
        rows = grasp_rows(path)
        starts = [i for i, row in enumerate(rows) if i == 0 or row[:4] != rows[i - 1][:4]]
        assert len({tuple(row[:4]) for row in rows}) == len(starts)
        for first, last in zip(starts, [*starts[1:], len(rows)], strict=True):
            factors = [row[4] / rows[first][4] for row in rows[first:last]]
            assert [f for f in (1, 0.5, 1.5, 2, 3) if any(abs(f - g) < 1e-3 for g in factors)] == pytest.approx(
                factors, abs=1e-3
            )
        assert all(-90 < row[2] <= 90 and row[3] % 1.5 == 0 and 10 < row[4] < 100 for row in rows)


def test_jacquard_grasps_have_their_center_inside_the_mask_and_their_ends_outside(views):
    for path in views.glob("*/*/*_grasps.txt"):
        mask = image_of(str(path).replace("grasps.txt", "mask.png"))
        for x, y, theta, opening, _ in grasp_rows(path):
            along = np.array([np.cos(np.radians(theta)), np.sin(np.radians(theta))]) * opening / 2
            points = np.rint([[x, y], [x, y] + along, [x, y] - along]).astype(int)
            assert mask[tuple(points.T[::-1])].tolist() == [255, 0, 0]
