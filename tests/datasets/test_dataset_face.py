"""What a data set says of itself: torchvision's properties, reprs, notebooks."""

import pickle
from pathlib import Path

import cv2
import numpy as np
import pytest

import packer
from packer.datasets.pack_dataset import LazySequence
from packer.errors import BadIndex
from tests.support import grasp_folders, source_trees
from tests.support.command_line import run
from tests.support.conversions import packed
from tests.support.source_trees import photos


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("face")
    packed(photos(folder / "in", 12), folder / "photos.pack")
    return folder / "photos.pack"


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flat")
    packed(source_trees.write(folder / "in", {"a.png": source_trees.image(1)}), folder / "flat.pack")
    return folder / "flat.pack"


def test_targets_samples_and_classes_are_those_of_image_folder(pack: Path) -> None:
    dataset = packer.open(pack)
    assert dataset.targets == [dataset[index]["label"] for index in range(12)]
    assert all(type(target) is int for target in dataset.targets)
    assert dataset.targets is dataset.targets, "made anew each time: a loop over targets[i] would take n * n steps"
    assert dataset.class_to_idx == {"class0": 0, "class1": 1, "class2": 2}
    assert list(dataset.samples) == list(zip(dataset.keys(), dataset.targets, strict=True)) == list(dataset.imgs)
    assert dataset.samples[2:4] == [dataset.samples[2], dataset.samples[3]]
    assert len(dataset.samples) == 12
    assert len(pickle.dumps(dataset)) < 2000


def test_they_follow_a_split(tmp_path: Path) -> None:
    source = photos(tmp_path / "in", 6)
    keys = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.jpg"))
    (tmp_path / "val.txt").write_text("\n".join(keys[1::2]))
    (tmp_path / "train.txt").write_text("\n".join(keys[::2]))
    splits = [word for name in ("train", "val") for word in ("--split", f"{name}={tmp_path / name}.txt")]
    assert run("convert", source, tmp_path / "split.pack", *splits).returncode == 0
    dataset = packer.open(tmp_path / "split.pack", split="val")
    assert [key for key, _ in dataset.samples] == keys[1::2]
    assert "split='val': 3 samples" in repr(dataset)


def test_a_flat_folder_has_no_targets(flat: Path) -> None:
    dataset = packer.open(flat)
    assert not hasattr(dataset, "targets")
    assert dataset.class_to_idx == {}
    with pytest.raises(AttributeError, match="no field 'label'"):
        dataset.targets  # noqa: B018


def test_a_repr_names_fields_classes_and_size(pack: Path) -> None:
    dataset = packer.open(pack)
    size = sum(path.stat().st_size for path in pack.glob("part-*")) / 1e6
    assert repr(dataset) == (
        f"LMDBDataset({str(pack)!r}: 12 samples, {size:.1f} MB; "
        "key text, image image (H, W, 3), label of 3 classes (class0, class1, class2))"
    )
    assert repr(dataset.keys()) == "['class0/0000.jpg', 'class0/0003.jpg', 'class0/0006.jpg', ...] (12 in all)"
    assert repr(LazySequence(str, 2)) == "['0', '1'] (2 in all)"


def test_a_repr_shows_no_control_characters(tmp_path: Path) -> None:
    files = {f"{name}\x1b[31m/a.png": source_trees.image(1) for name in ("cat", "dog")}
    packed(source_trees.write(tmp_path / "in", files), tmp_path / "a\x1b[0m.pack")
    dataset = packer.open(tmp_path / "a\x1b[0m.pack")
    for text in (repr(dataset), dataset._repr_html_(), repr(dataset.show(0))):
        assert "\x1b" not in text
        assert "<script" not in text


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["photos", "grasps"])
def test_a_notebook_shows_samples(pack: Path, tmp_path: Path, kind: str) -> None:
    dataset = packer.open(pack if kind == "photos" else grasp_folders.packs(tmp_path)["cornell"])
    drawing = dataset.show(3)
    pixels = cv2.imdecode(np.frombuffer(drawing._repr_png_(), np.uint8), cv2.IMREAD_COLOR)
    assert min(pixels.shape[:2]) > 100
    drawing.save(tmp_path / "three.png")
    assert (tmp_path / "three.png").read_bytes() == drawing.png
    assert dataset.show(-1).png == dataset.show(len(dataset) - 1).png != dataset.show(0).png
    first = cv2.imdecode(np.frombuffer(dataset.show().png, np.uint8), cv2.IMREAD_COLOR)
    assert first.shape[0] > pixels.shape[0] / 4 and str(min(12, len(dataset))) in dataset.show().title
    page = dataset._repr_html_()
    assert page.count("<tr>") == len(dataset.schema)
    assert "data:image/png;base64," in page
    with pytest.raises(BadIndex):
        dataset.show(len(dataset))


def test_a_notebook_escapes_names(tmp_path: Path) -> None:
    files = {f"{name}/a.png": source_trees.image(1) for name in ("<b>cat", "dog&")}
    packed(source_trees.write(tmp_path / "in", files), tmp_path / "a.pack")
    page = packer.open(tmp_path / "a.pack")._repr_html_()
    assert "&lt;b&gt;cat" in page
    assert "<b>cat" not in page
