"""ivalab's multi-object grasps: what its files say, read here again by a few lines of their own, and its traps."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
from packer.conversion.convert import convert
from packer.sources._recognition import detect
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.grasp.ivalab import Source
from tests.support.layout_trees import ivalab
from tests.support.source_trees import image, write

TREE = SourceRoot(Path())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ivalab.build(tmp_path / "set")


def test_values_are_those_of_the_files(root: Path, tmp_path: Path) -> None:
    convert(root, tmp_path / "out.pack")
    dataset = packer.open(tmp_path / "out.pack", output="numpy")
    assert [sample["key"] for sample in dataset] == ["0000", "0001", "0010"]
    for sample in dataset:
        number = sample["key"]
        with Image.open(root / f"rgbd/depth_{number}.png") as image:
            assert np.array_equal(sample["depth"], np.asarray(image))
        words = (root / f"annotations/rgb_{number}_annotations.txt").read_text().split()
        assert np.array_equal(sample["grasps"], np.array([float(word) for word in words], np.float32).reshape(-1, 4, 2))
        assert len(sample["grasps"]) == ivalab.COUNTS[number]
        assert sample["rgb"].shape == (48, 64, 3)
    assert (dataset.schema["depth"].dtype, dataset.schema["depth"].invalid) == ("uint16", 0)


def test_copies_of_an_editor_and_cut_ones_are_no_labels(root: Path) -> None:
    more = {"rgb_cropped320/rgb_0000Cropped320.png": image(7), "rgd/rgd_0000.png": image(8)}
    more |= {"rgd_cropped320/rgb_0000_annotationsCropped320.txt": "1 2\n"}  # type: ignore[dict-item]
    source = Source(write(root, more))
    assert len(source) == 3
    assert source.entry(1).files[-1] == "annotations/rgb_0001_annotations.txt"
    assert len(source[1]["grasps"]) == 1
    assert set(source.extras) == {*more, "README.md", "annotations/rgb_0001_annotations.txt~"}


def test_names_count_and_not_folders(root: Path) -> None:
    for path in [*root.glob("rgbd/*"), *root.glob("annotations/*")]:
        path.rename(root / path.name)
    assert [Source(root).key(index) for index in range(3)] == ["0000", "0001", "0010"]
    assert detect(root)[0] == "ivalab"
