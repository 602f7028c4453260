"""GraspNet's rectangles: what its files say, read here again by NumPy and Pillow, and the traps of its layout."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
from packer.conversion.convert import convert
from packer.errors import BadInput
from packer.sources import base
from packer.sources._recognition import detect
from packer.sources.grasp.graspnet_rect import Source
from tests.support.layout_trees import graspnet_rect
from tests.support.layout_trees.graspnet_rect import PLACES, npy, rows
from tests.support.source_trees import image, write

KEYS = [f"scene_{scene}/{camera}/{number}" for scene, camera, number in PLACES]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return graspnet_rect.build(tmp_path / "set")


def test_values_are_those_of_the_files_wherever_the_labels_lie(root: Path, tmp_path: Path) -> None:
    convert(root, tmp_path / "out.pack")
    dataset = packer.open(tmp_path / "out.pack", output="numpy")
    assert [sample["key"] for sample in dataset] == KEYS
    for sample, labels in zip(dataset, PLACES.values(), strict=True):
        scene, camera, number = sample["key"].split("/")
        for field, folder in (("rgb", "rgb"), ("depth", "depth"), ("mask", "label")):
            with Image.open(root / "scenes" / scene / camera / folder / f"{number}.png") as image:
                assert np.array_equal(sample[field], np.asarray(image)), field
        expected = np.load(root / labels)
        assert np.array_equal(sample["grasp_rows"], expected)
        assert np.array_equal(sample["grasp_scores"], expected[:, 5])
        assert sample["grasp_objects"].tolist() == expected[:, 6].astype(int).tolist()
        assert sample["camera"] == camera
    source = Source(root)
    assert source.schema["split"].classes == ("train", "test_seen", "test_novel")
    assert [int(source[index]["split"]) for index in range(5)] == [0, 0, 0, 1, 2]
    assert "split" not in Source(root, own_splits=False).schema


def test_the_opening_is_twice_the_distance_to_the_open_point_and_the_jaw_is_the_height(root: Path) -> None:
    for sample in map(Source(root).__getitem__, range(5)):
        for grasp, (cx, cy, ox, oy, height, _, _) in zip(sample["grasps"], sample["grasp_rows"], strict=True):
            p0, p1, p2, _ = grasp.astype(float)
            assert grasp.mean(axis=0) == pytest.approx([cx, cy], rel=1e-5)
            assert math.dist(p0, p1) == pytest.approx(2 * math.dist((ox, oy), (cx, cy)), rel=1e-4)
            assert math.dist(p1, p2) == pytest.approx(height, rel=1e-4)
            assert (p1 + p2) / 2 == pytest.approx([ox, oy], rel=1e-4)
            assert np.dot(p1 - p0, p2 - p1) == pytest.approx(0, abs=1e-2)


def test_a_rectangle_by_hand(root: Path) -> None:
    path = root / "scenes/scene_0000/kinect/rect/0000.npy"
    path.write_bytes(npy(np.array([[10, 20, 14, 20, 6, 0.5, 3], [10, 20, 10, 20, 6, 0.5, 3]])))
    assert Source(root)[0]["grasps"].tolist() == [
        [[6, 17], [14, 17], [14, 23], [6, 23]],
        [[10, 17], [10, 17], [10, 23], [10, 23]],
    ]


@pytest.mark.parametrize(
    ("scene", "split"),
    [(99, "train"), (100, "test_seen"), (129, "test_seen"), (130, "test_similar"), (159, "test_similar"),
     (160, "test_novel"), (189, "test_novel"), (190, "other")],
)  # fmt: skip
def test_where_splits_end(tmp_path: Path, scene: int, split: str) -> None:
    write(tmp_path, {f"scene_{scene:04d}/kinect/rgb/0000.png": image(1)})
    assert Source(tmp_path).schema["split"].classes == (split,)


def test_labels_that_were_copied_are_read_once(root: Path) -> None:
    """As copy_rect_labels.py of graspnetAPI leaves the folder."""
    target = root / "scenes/scene_0100/realsense/rect/0001.npy"
    target.parent.mkdir()
    shutil.copy(root / "rect_labels/scene_0100/realsense/0001.npy", target)
    source = Source(root)
    assert len(source) == 5
    assert source[3]["files"]["grasps_file"] == "scenes/scene_0100/realsense/rect/0001.npy"
    assert "rect_labels/scene_0100/realsense/0001.npy" in source.extras


def test_a_camera_alone_may_be_given(root: Path) -> None:
    shutil.rmtree(root / "scenes/scene_0000/kinect")
    assert {source_camera for source_camera in (Source(root)[index]["camera"] for index in range(4))} == {"realsense"}
    assert detect(root)[0] == "graspnet-rect"


def test_rows_that_are_not_finite_are_left_out_and_told(root: Path) -> None:
    path = root / "scenes/scene_0000/kinect/rect/0000.npy"
    made = rows(1, 4)
    made[1, 0], made[2, 4] = np.nan, np.inf
    path.write_bytes(npy(made))
    source = Source(root)
    assert source[0]["grasp_objects"].tolist() == [0, 87]
    assert str(source.missing(0)).startswith("2 of 4 labels")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (npy(np.zeros((2, 6))), r"found float64 \(2, 6\)"),
        (npy(np.zeros((2, 7), np.int64)), "found int64"),
        (npy(np.array([[None] * 7])), "Python objects, which only unpickling would read"),
        (npy(np.zeros((2, 7)))[:-1], "111 bytes of data, expected 112"),
        (npy(np.full((1, 7), 0.5)), r"object 0\.5: expected a whole number"),
        (b"", "does not begin like"),
    ],
)
def test_a_file_that_is_no_rows_is_an_error(root: Path, data: bytes, said: str) -> None:
    (root / "scenes/scene_0000/kinect/rect/0000.npy").write_bytes(data)
    with pytest.raises(BadInput, match=rf"kinect/rect/0000\.npy: .*{said}"):
        Source(root)[0]


def test_rows_without_an_opening_or_a_height_are_kept_and_told(root: Path) -> None:
    made = rows(1, 4)
    made[0, 2:4] = made[0, :2]
    made[1, 4] = -3
    name = base.file_paths(Source(root), 0)[-1]
    name.write_bytes(npy(made))
    source = Source(root)
    assert len(source[0]["grasps"]) == 4
    assert str(source.missing(0)).startswith("2 of 4 grasps")


def test_fortran_order_and_big_endian_are_the_same_rows(root: Path) -> None:
    path = root / "scenes/scene_0000/kinect/rect/0000.npy"
    for made in (np.asfortranarray(rows(1)), rows(1).astype(">f8")):
        path.write_bytes(npy(made))
        assert np.array_equal(Source(root)[0]["grasp_rows"], rows(1))
