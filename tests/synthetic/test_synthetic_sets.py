import struct
from pathlib import Path

import cv2
import numpy as np
import pytest

from packer.errors import InvalidRequest
from packer.synthetic import cornell, folder, jacquard

TIFF_TYPES = {3: "<H", 4: "<I"}


def tree(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


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


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    root = tmp_path_factory.mktemp("cornell") / "set"
    cornell.write(root, samples=5, seed=1)
    return root


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    root = tmp_path_factory.mktemp("jacquard") / "set"
    jacquard.write(root, samples=6, seed=1)
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("folder") / "set"
    folder.write(root, samples=12, seed=1, classes=5)
    return root


def grasp_rows(path):
    return [[float(value) for value in line.split(";")] for line in path.read_text().splitlines()]


def jacquard_stems(root):
    return [str(path)[: -len("RGB.png")] for path in sorted(root.glob("*/*/*_RGB.png"))]


# cornell


def test_cornell_has_885_scenes_with_the_real_ids():
    ids = cornell.scene_ids()
    numbers = sorted(number for _, number in ids)
    assert numbers == [*range(100, 950), *range(1000, 1035)]
    assert all(name == f"{number // 100:02d}" for name, number in ids)
    assert {name for name, _ in ids[:40]} == {f"{n:02d}" for n in range(1, 11)}


def test_a_cornell_scene_has_its_four_files(scenes):
    names = {f"0{n}/pcd0{n}0{k}" for n, k in ((1, 0), (1, 1), (1, 2), (1, 3), (2, 0))}
    written = {name for name in tree(scenes) if name[0].isdigit()}
    assert written == {stem + suffix for stem in names for suffix in ("r.png", "d.tiff", "cpos.txt", "cneg.txt")}
    assert len(list(scenes.glob("backgrounds/pcdb00[01][0-9]r.png"))) == 11


def test_cornell_pictures_are_640x480_rgb(scenes):
    for path in [*scenes.glob("*/pcd*r.png")]:
        data = path.read_bytes()
        assert struct.unpack(">IIBB", data[16:26]) == (640, 480, 8, 2)
        assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED).shape == (480, 640, 3)


def test_cornell_depth_is_uncompressed_float32_metres_with_a_few_wrong_pixels(scenes):
    for path in scenes.glob("0?/pcd*d.tiff"):
        depth = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert depth.dtype == np.float32 and depth.shape == (480, 640)
        assert (tiff_tags(path)[259], tiff_tags(path)[278]) == (1, 480)
        assert np.isfinite(depth).all() and 0.03 < depth.min() < 0.04 and 1.5 < depth.max() < 2.3
        assert 0 < (depth < 0.5).sum() < 20


def test_cornell_lines_end_in_a_blank_except_each_fourth(scenes):
    for path in scenes.glob("0?/*c???.txt"):
        lines = path.read_bytes().split(b"\n")
        assert lines.pop() == b"" and len(lines) % 4 == 0
        for number, line in enumerate(lines):
            assert line.endswith(b" ") == (number % 4 != 3)
            x, y = line.split()
            assert all(value == b"NaN" or len(value.partition(b".")[2]) <= 3 for value in (x, y))


def test_cornell_has_nan_rectangles_and_an_empty_negative_file(scenes):
    lost = np.isnan(corners_of(scenes / "01/pcd0102cpos.txt"))
    assert lost.any(axis=(1, 2)).sum() == 1
    assert lost[1].tolist() == [[True, True], [False, False], [False, False], [True, True]]
    assert (scenes / "01/pcd0103cneg.txt").read_bytes() == b""
    assert corners_of(scenes / "01/pcd0100cneg.txt").size


def test_cornell_scenes_with_lost_rectangles_keep_some_whole_ones():
    plans = [cornell._plan(seed, number) for seed in range(40) for number in cornell._WITH_NAN]
    assert min(plan.positives for plan in plans) == 5


def test_cornell_rectangles_wind_both_ways(scenes):
    x, y = np.concatenate([corners_of(path) for path in scenes.glob("0?/*cpos.txt")]).transpose(2, 0, 1)
    area = (x * np.roll(y, -1, 1) - y * np.roll(x, -1, 1)).sum(1)
    assert (area > 0).any() and (area < 0).any()


def test_cornell_grasps_lie_across_a_thing_that_is_nearer_than_the_table(scenes):
    for path in scenes.glob("0?/*cpos.txt"):
        depth = cv2.imread(str(path).replace("cpos.txt", "d.tiff"), cv2.IMREAD_UNCHANGED)
        found = corners_of(path)
        assert 2 <= len(found) <= 10
        for p in found[~np.isnan(found).any(axis=(1, 2))]:
            points = np.stack([p.mean(0), (p[0] + p[3]) / 2, (p[1] + p[2]) / 2])
            centre, *ends = depth[tuple(np.rint(points).astype(int).T[::-1])]
            assert centre < np.mean(ends) - 0.002


def test_z_txt_has_a_line_per_rectangle_and_contiguous_ids_per_object(scenes):
    lines = [line.split() for line in (scenes / "processedData/z.txt").read_text().splitlines()]
    assert sorted({line[0] for line in lines}) == [f"{n:04d}" for n in range(1035)]
    assert [int(line[1]) for line in lines] == sorted(int(line[1]) for line in lines)
    assert all((scenes / f"backgrounds/{line[3].replace('_', '')}r.png").exists() for line in lines)
    for path in scenes.glob("0?/*cpos.txt"):
        rectangles = len(corners_of(path)) + len(corners_of(Path(str(path).replace("cpos", "cneg"))))
        assert sum(line[0] == path.name[3:7] for line in lines) == rectangles


def test_cornell_refuses_more_scenes_than_there_are_ids(tmp_path):
    with pytest.raises(InvalidRequest, match="expected 1 to 885"):
        cornell.write(tmp_path / "set", samples=886)


# jacquard


def test_jacquard_views_are_numbered_per_hash(views):
    stems = jacquard_stems(views)
    assert len(stems) == 6
    for stem in stems:
        part, name, file = Path(stem).parts[-3:]
        assert part.startswith("Jacquard_Dataset_") and len(name) in (31, 32)
        assert file == f"{file[0]}_{name}_" and file[0] in "01234"
    assert {len(view.hash) for view in jacquard.sample_views(100, seed=0)} == {31, 32}
    assert max(view.thing % 12 for view in jacquard.sample_views(100, seed=0)) == 11


def test_jacquard_masks_hold_0_and_255_and_cover_what_is_nearer_than_the_floor(views):
    floor = jacquard._CAMERA.table_depth()
    for stem in jacquard_stems(views):
        mask = cv2.imread(f"{stem}mask.png", cv2.IMREAD_UNCHANGED)
        depth = cv2.imread(f"{stem}perfect_depth.tiff", cv2.IMREAD_UNCHANGED)
        assert mask.shape == (1024, 1024) and set(np.unique(mask)) == {0, 255}
        assert depth.dtype == np.float32 and depth.min() > 1.2 and depth.max() < 1.58
        assert np.array_equal(mask == 255, depth < floor)


def test_jacquard_depth_is_lzw_in_strips_of_two_rows(views):
    for path in views.glob("*/*/*_depth.tiff"):
        tags = tiff_tags(path)
        assert (tags[259], tags[278], tags.get(317, 1)) == (5, 2, 1)


def test_stereo_depth_is_minus_one_in_patches_and_near_the_truth_elsewhere(views):
    for stem in jacquard_stems(views):
        perfect, stereo = (
            cv2.imread(f"{stem}{kind}_depth.tiff", cv2.IMREAD_UNCHANGED) for kind in ("perfect", "stereo")
        )
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


def test_jacquard_grasps_have_their_centre_inside_the_mask_and_their_ends_outside(views):
    for path in views.glob("*/*/*_grasps.txt"):
        mask = cv2.imread(str(path).replace("grasps.txt", "mask.png"), cv2.IMREAD_UNCHANGED)
        for x, y, theta, opening, _ in grasp_rows(path):
            along = np.array([np.cos(np.radians(theta)), np.sin(np.radians(theta))]) * opening / 2
            points = np.rint([[x, y], [x, y] + along, [x, y] - along]).astype(int)
            assert mask[tuple(points.T[::-1])].tolist() == [255, 0, 0]


def test_a_jacquard_view_lacks_its_grasps_only_when_asked(views, tmp_path):
    assert len(list(views.glob("*/*/*_grasps.txt"))) == 6
    jacquard.write(tmp_path / "set", samples=2, seed=1, missing_grasps=True)
    missing = set(tree(views)) - set(tree(tmp_path / "set"))
    assert [name for name in missing if name.rsplit("/", 1)[1].startswith("0") and name.endswith("grasps.txt")]
    assert len(tree(tmp_path / "set")) == 9


# folder


def test_photos_stand_in_a_folder_per_class(photos):
    names = sorted(tree(photos))
    assert len(names) == 12
    assert {name.split("/")[0] for name in names} == {"ball", "banana", "bottle", "bowl", "box"}
    for data in tree(photos).values():
        assert data[:2] == b"\xff\xd8"
        assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape == (375, 500, 3)


def test_more_classes_than_kinds_name_the_colour_too():
    names = folder.class_names(40)
    assert len(set(names)) == 40
    assert names[0] == ("ball", "red") and names[39] == ("banana", "yellow")


@pytest.mark.parametrize("wish", [{"classes": 0}, {"classes": 10_000}, {"size": (8, 8)}, {"samples": 0}, {"seed": -1}])
def test_folder_refuses_what_it_cannot_do(tmp_path, wish):
    with pytest.raises(InvalidRequest, match="expected"):
        folder.write(tmp_path / "set", **{"samples": 1, **wish})
    assert not list(tmp_path.iterdir())


def test_varied_photos_have_several_sizes(tmp_path):
    folder.write(tmp_path / "set", samples=10, size=None)
    pictures = [cv2.imdecode(np.frombuffer(d, np.uint8), cv2.IMREAD_COLOR) for d in tree(tmp_path / "set").values()]
    assert len({picture.shape for picture in pictures}) > 2
