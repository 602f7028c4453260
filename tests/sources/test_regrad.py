"""REGRAD: its files read by json, Pillow and OpenCV, and the traps of its layout."""

import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

import packer
from packer.conversion.convert import convert
from packer.errors import BadInput, InvalidRequest
from packer.sources.grasp.regrad import Source
from tests.support.layout_trees import regrad
from tests.support.layout_trees.regrad import RELATIONS
from tests.support.source_trees import write

KEYS = ["seen_valid/00001_1", "train/00001_1", "train/00001_9", "train/00002_1"]
TRAIN = "Grasp Part/2D_Grasp/train/00001/1/1.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return regrad.build(tmp_path / "set")


def with_grasps(root: Path, grasps: Any, **options: Any) -> Source:
    """The source, with these grasps in the first view of train."""
    (root / TRAIN).write_text(grasps if isinstance(grasps, str) else json.dumps(grasps), encoding="utf-8")
    return Source(root, **options)


def test_values_are_those_of_the_files(root: Path, tmp_path: Path) -> None:
    summary = convert(root, tmp_path / "out.pack", angle_convention="cv44")
    dataset = packer.open(tmp_path / "out.pack", output="numpy")
    assert list(dataset.keys()) == KEYS and dataset.schema["split"].classes == ("train", "seen_valid")
    for sample in map(dataset.__getitem__, range(4)):
        split, name = sample["key"].split("/")
        scene, view = name.split("_")
        for field, folder in (("depth", "DepthImages"), ("mask", "SegmentationImages")):
            with Image.open(root / "Relation Part" / split / folder / f"{name}.png") as image:
                assert np.array_equal(sample[field], np.asarray(image)), field
        assert sample["relations"] == RELATIONS[split][scene]
        assert dataset.schema["split"].classes[int(sample["split"])] == split
        path = root / "Grasp Part/2D_Grasp" / split / scene / view / f"{view}.json"
        grasps = json.loads(path.read_bytes()) if path.exists() else []
        rows = [[number, *center, *size, angle, *scores] for number, (center, size, angle), scores in grasps]
        assert np.array_equal(sample["grasp_rows"], np.reshape(rows, (-1, 10)))
        assert sample["grasp_objects"].tolist() == [row[0] for row in rows]
        assert sample["grasp_scores"] == pytest.approx([row[9] for row in rows])
        for corners, (center, size, angle) in zip(sample["grasps"], [grasp[1] for grasp in grasps], strict=True):
            drawn = cv2.boxPoints((tuple(center), tuple(map(float, size)), angle))
            assert sorted(map(tuple, corners.round(2).tolist())) == sorted(map(tuple, drawn.round(2).tolist()))
    assert dict(summary.incomplete) == {
        "train/00001_9": "no 2D_Grasp/SPLIT/SCENE/VIEW/VIEW.json",
        "train/00002_1": "2D_Grasp/SPLIT/SCENE/VIEW/VIEW.json is empty",
    }


def test_without_like_there_are_rows_and_no_corners(root: Path) -> None:
    source = Source(root)
    assert "grasps" not in source.schema and source[1]["grasp_rows"].shape == (2, 10)
    assert source.schema["grasp_objects"].of == "grasp_rows"
    assert any("--angle-convention cv44" in note for note in source.notes)


def test_the_first_side_of_a_grasp_is_the_longer(root: Path) -> None:
    """Both forms in which OpenCV returns one rectangle give the same corners."""
    scores = [1, 1, 1, 1]
    old = with_grasps(root, [[1, [[30, 20], [6, 18], -60], scores]], angle_convention="cv44")[1]["grasps"]
    for path in root.rglob("2D_Grasp/*/*/*/*.json"):
        path.write_text("[]", encoding="utf-8")
    new = with_grasps(root, [[1, [[30, 20], [18, 6], 30], scores]], angle_convention="cv45")[1]["grasps"]
    assert old == pytest.approx(new, abs=1e-4)
    p0, p1, p2, _ = new[0].astype(float)
    assert p1 - p0 == pytest.approx([18 * np.cos(np.pi / 6), 18 * np.sin(np.pi / 6)], abs=1e-4)
    assert np.hypot(*(p2 - p1)) == pytest.approx(6, abs=1e-4)


def test_an_angle_of_the_other_opencv_is_an_error(root: Path) -> None:
    with pytest.raises(BadInput, match=r"1\.json: .*-30.*--angle-convention cv45"):
        Source(root, angle_convention="cv45")[1]
    with pytest.raises(BadInput, match=r"45 degrees.*--angle-convention cv44"):
        with_grasps(root, [[1, [[30, 20], [18, 6], 45], [1, 1, 1, 1]]], angle_convention="cv44")[1]
    with pytest.raises(InvalidRequest, match="cv44"):
        Source(root, angle_convention="cv46")


def test_images_without_version_1_have_no_grasps(root: Path) -> None:
    shutil.rmtree(root / "Grasp Part")
    source = Source(root)
    assert source.schema.names == ("key", "rgb", "depth", "mask", "relations", "split", "files")
    assert [source.missing(index) for index in range(4)] == [None] * 4
    with pytest.raises(InvalidRequest, match="--angle-convention cv44"):
        Source(root, angle_convention="cv44")


def test_a_split_alone_has_keys_without_it(root: Path) -> None:
    (root / "Grasp Part/2D_Grasp/train").rename(root / "Relation Part/train/2D_Grasp")
    source = Source(root / "Relation Part/train")
    assert [source.key(index) for index in range(3)] == ["00001_1", "00001_9", "00002_1"]
    assert "split" not in source.schema and len(source[0]["grasp_rows"]) == 2
    assert source[0]["relations"] == RELATIONS["train"]["00001"]


def test_the_order_is_by_number(root: Path) -> None:
    for folder, suffix in (("RGBImages", ".jpg"), ("DepthImages", ".png"), ("SegmentationImages", ".png")):
        above = root / "Relation Part/train" / folder
        shutil.copy(above / f"00001_9{suffix}", above / f"00001_10{suffix}")
    source = Source(root)
    assert [source.key(index) for index in range(1, 4)] == ["train/00001_1", "train/00001_9", "train/00001_10"]


@pytest.mark.parametrize(
    "grasp",
    [
        7,
        [1, [[1, 2], [3, 4], 5]],
        [1, [[1, 2], [3, 4], 5], [1, 1, 1]],
        [1.5, [[1, 2], [3, 4], 5], [1, 1, 1, 1]],
        [1, [[1, True], [3, 4], 5], [1, 1, 1, 1]],
        [1, [[1, 10**400], [3, 4], 5], [1, 1, 1, 1]],
        [1, [[1, "2"], [3, 4], 5], [1, 1, 1, 1]],
        [1, ["12", [3, 4], 5], [1, 1, 1, 1]],
        [1, [{"1": 1, "2": 2}, [3, 4], 5], [1, 1, 1, 1]],
    ],
)
def test_a_grasp_of_another_form_is_an_error_or_skipped(root: Path, grasp: Any) -> None:
    with pytest.raises(BadInput, match=r"2D_Grasp/train/00001/1/1\.json: grasp 0"):
        with_grasps(root, [grasp])[1]
    source = Source(root, bad_labels="skip")
    assert len(source[1]["grasp_rows"]) == 0
    assert str(source.missing(1)).startswith("1 of 1 labels")


@pytest.mark.parametrize("text", ["{}", "[1", "[" * 5000, '[{"a": 1, "a": 2}]', "1" * 5000, "\x00"])
def test_another_file_is_an_error_of_one_line(root: Path, text: str) -> None:
    for bad_labels in ("error", "skip"):
        with pytest.raises(BadInput, match=r"2D_Grasp/train/00001/1/1\.json: ") as caught:
            with_grasps(root, text if text[0] != "\x00" else '"\x00"', bad_labels=bad_labels)[1]
        assert str(caught.value).isprintable()


def test_grasps_that_are_not_finite_are_skipped(root: Path) -> None:
    good = [3, [[1, 2], [3, 4], -5], [1, 1, 1, 1]]
    source = with_grasps(root, [[2, [[float("nan"), 2], [3, 4], -5], [1, 1, 1, 1]], good])
    assert source[1]["grasp_objects"].tolist() == [3]
    assert str(source.missing(1)).startswith("1 of 2 labels")


def test_a_scene_without_relations_is_incomplete(root: Path) -> None:
    (root / "Relation Part/train/mrts.json").write_text('{"00002": {}}', encoding="utf-8")
    source = Source(root)
    assert source[1]["relations"] == {} and "no relations" in str(source.missing(1))


@pytest.mark.parametrize("text", ["[]", '{"00001": []}', '{"00001": {"a": [1]}}', '{"00001": {"a": "b"}}', "{"])
def test_relations_of_another_form_are_an_error(root: Path, text: str) -> None:
    (root / "Relation Part/train/mrts.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"Relation Part/train/mrts\.json: "):
        Source(root)


def test_two_files_of_relations_of_one_split_are_an_error(root: Path) -> None:
    write(root, {"more/train/mrts.json": "{}"})
    with pytest.raises(BadInput, match=r"Relation Part/train/mrts\.json, more/train/mrts\.json"):
        Source(root)
