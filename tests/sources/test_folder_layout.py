"""What the folders in a folder are: classes, splits above them, or images and what belongs to them."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from packer.conversion.convert import ConversionSummary, convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec, parameters
from packer.conversion.source_verification import Comparison
from packer.errors import BadInput, InvalidRequest
from packer.pack import manifest as manifests
from packer.sources._name_words import ordered_splits, split_rank
from packer.sources.image_files.folder import Source
from packer.tools.measured_workload import Subject
from packer.tools.packing_advice import Question, advise
from tests.support.source_trees import cornell, image, keys, write


def tree(root: Path, *names: str) -> Path:
    return write(root, dict.fromkeys(names, b"x"))


@pytest.mark.parametrize("word", ["train", "Training", "TRAIN", "val", "valid", "validation", "test", "testing"])
def test_names_of_splits_are_known(word: str) -> None:
    for name in (word, f"{word}2017", f"{word}_set", f"{word}-images"):
        assert split_rank(name) is not None
    for name in (f"{word}s_of_thought", f"{word}_cat", "cat", "trainer", ""):
        assert split_rank(name) is None
    assert ordered_splits(["b", "test", "val2", "train", "a"]) == ("train", "val2", "test", "a", "b")


def test_flat_splits_are_refused_as_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/a.jpg", "train/b.jpg", "val/c.jpg")
    with pytest.raises(InvalidRequest, match="--folders split"):
        Source(root)
    source = Source(root, folders="split")
    assert source.schema.names == ("key", "image", "split")
    assert source.schema["split"].classes == ("train", "val")
    assert [int(source[index]["split"]) for index in range(3)] == [0, 0, 1]
    assert "splits: train 2, val 1" in source.notes


def test_what_is_only_measured_or_was_packed_before_may_have_any_layout(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {f"{split}/cat/{n}.png": image(n) for split in ("train", "val") for n in range(2)})
    assert Subject(root).count() == 4
    convert_source(
        Source(root, folders="unchecked"), tmp_path / "old", ConversionOptions(source={"kind": "folder", "options": {}})
    )
    assert list(Comparison(tmp_path / "old", root).problems()) == []


def test_splits_share_their_classes(tmp_path: Path) -> None:
    root = tree(
        tmp_path, "val/dog/1.jpg", "val/ape/2.jpg", "train/dog/x/3.jpg", "train/cat/4.jpg", "test/cat/5.jpg", "n.txt"
    )
    source = Source(root, folders="split/class")
    assert source.schema["label"].classes == ("ape", "cat", "dog")
    assert source.schema["split"].classes == ("train", "val", "test")
    assert keys(source) == ["train/cat/4.jpg", "train/dog/x/3.jpg", "val/ape/2.jpg", "val/dog/1.jpg", "test/cat/5.jpg"]
    assert [(int(s["split"]), int(s["label"])) for s in map(source.__getitem__, range(5))] == [
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 2),
        (2, 1),
    ]
    assert "splits: train 2, val 2, test 1" in source.notes
    assert "classes: ape 1, cat 2, dog 2" in source.notes
    assert all(type(source.value(0, name)) is type(source[0][name]) for name in source.schema.names)


def test_images_in_no_class_folder_are_left_out_and_named(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/cat/1.jpg", "val/cat/2.jpg", "test/3.jpg", "4.jpg")
    source = Source(root, folders="split/class")
    assert dict(source.left_out) == {
        "test/3.jpg": "image is directly in test, in no class folder",
        "4.jpg": "image is directly in the root, in no split folder",
    }
    assert keys(source) == ["train/cat/1.jpg", "val/cat/2.jpg"]


def test_a_class_folder_without_images_in_any_split_is_an_error(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/cat/1.jpg", "val/cat/2.jpg")
    (root / "val/dog").mkdir()
    with pytest.raises(InvalidRequest, match="1 class.*without.*dog"):
        Source(root, folders="split/class")
    assert Source(root, folders="split/class", allow_empty=True).schema["label"].classes == ("cat", "dog")


def test_what_desktops_and_editors_leave_behind_is_no_class_and_no_image(tmp_path: Path) -> None:
    clutter = [".ipynb_checkpoints/a-checkpoint.jpg", "__MACOSX/cat/._a.jpg", "cat/._a.jpg", "cat/.DS_Store"]
    root = tree(tmp_path, "cat/a.jpg", "dog/b.jpg", "cat/.git/x", "Thumbs.db", "dog/Desktop.ini", *clutter)
    source = Source(root)
    assert source.schema["label"].classes == ("cat", "dog")
    assert keys(source) == ["cat/a.jpg", "dog/b.jpg"]
    assert source.extras == []
    found = ".DS_Store 1, ._* 1, .git/ 1, .ipynb_checkpoints/ 1, Desktop.ini 1, Thumbs.db 1, __MACOSX/ 1"
    assert f"ignored, hidden or written by desktops and editors: {found}" in source.notes


def packed(root: Path, target: Path, **options: str) -> ConversionSummary:
    return convert_source(Source(root), target, ConversionOptions(**options))  # type: ignore[arg-type]


def test_images_that_are_not_upright_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "c").mkdir(parents=True)
    for number, orientation in enumerate((0, 1, 3, 6, 8)):
        exif = Image.Exif()
        if orientation:
            exif[0x0112] = orientation
        Image.fromarray(np.zeros((8, 16, 3), np.uint8)).save(root / f"c/{number}.jpg", exif=exif)
    kept = "3 of 5 images not upright by EXIF orientation: left as they are; --exif rotate turns them"
    assert kept in packed(root, tmp_path / "a").notes
    assert "3 of 5 images not upright by EXIF orientation: turned" in packed(root, tmp_path / "b", exif="rotate").notes
    cv2.imwrite(str(root / "c/5.jpg"), np.zeros((8, 16, 3), np.uint8))
    for number in (2, 3, 4):
        (root / f"c/{number}.jpg").unlink()
    assert packed(root, tmp_path / "d").notes == ()
    assert manifests.read(tmp_path / "d").samples == 3


def test_classes_are_numbered_as_in_another_pack(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {f"{name}/1.png": image(1) for name in ("ape", "cat", "dog")})
    convert_source(Source(first), tmp_path / "first.pack", ConversionOptions())
    second = write(tmp_path / "second", {"dog/1.png": image(2), "cat/2.png": image(3)})
    assert int(Source(second)[1]["label"]) == 1
    known = parameters({"classes_from": tmp_path / "first.pack"})
    request = SourceSpec(options=known)
    source, _ = request.open(second)
    assert source.schema["label"].classes == ("ape", "cat", "dog")
    assert {source.key(row): int(source[row]["label"]) for row in range(2)} == {"cat/2.png": 1, "dog/1.png": 2}
    convert_source(source, tmp_path / "second.pack", ConversionOptions(source=request.to_json(source)))
    assert list(Comparison(tmp_path / "second.pack", second).problems()) == []
    write(second, {"zebra/1.png": image(4)})
    with pytest.raises(BadInput, match="--classes-from.*zebra; .*ape, cat"):
        request.open(second)
    with pytest.raises(InvalidRequest, match="--classes-from"):
        SourceSpec(options={"folders": "none", **known}).open(second)
    convert_source(Source(second, folders="none"), tmp_path / "bare.pack", ConversionOptions())
    with pytest.raises(InvalidRequest, match="has no classes"):
        parameters({"classes_from": tmp_path / "bare.pack"})
    with pytest.raises(InvalidRequest, match="cornell.*--classes-from; .*folder.*voc"):
        SourceSpec("cornell", known).open(cornell(tmp_path / "cornell"))


@pytest.mark.parametrize(
    "names",
    [
        ("train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"),
        ("1.jpg", "1_mask.png"),
        ("images/train/1.jpg", "labels/train/1.txt"),
    ],
)
def test_advise_refuses_what_convert_refuses(tmp_path: Path, names: tuple[str, ...]) -> None:
    root = tree(tmp_path, *names)
    with pytest.raises(InvalidRequest) as by_convert:
        SourceSpec().open(root)
    with pytest.raises(InvalidRequest) as by_advise:
        advise(Question(root), say=str)
    assert by_advise.value.message == by_convert.value.message


def test_splits_of_folders_and_of_the_option_contradict_each_other(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/cat/1.jpg", "val/cat/2.jpg")
    with pytest.raises(InvalidRequest, match="--split"):
        SourceSpec("folder", {"folders": "split/class"}, (), ("train=0.9",)).open(root)


# ---- folders whose meaning is not clear

CLASS = "--folders class"
SPLIT = "--folders split"
BOTH = "--folders split/class"
NONE = "--folders none"
UNCLEAR: dict[str, tuple[str, ...]] = {
    "splits of classes": ("train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"),
    "one split": ("train/cat/1.jpg", "train/dog/2.jpg"),
    "splits": ("Training/1.jpg", "testing/2.jpg"),
    "words of splits": ("trainA/1.jpg", "trainB/2.jpg", "testA/3.jpg"),
    "folds": ("fold1/cat/1.jpg", "fold1/dog/2.jpg", "fold2/cat/3.jpg"),
    "a folder around": ("set/cat/1.jpg", "set/dog/2.jpg"),
    "folders in classes": ("cat/tabby/1.jpg", "cat/siamese/2.jpg", "dog/boxer/3.jpg"),
    "images": ("images/1.jpg", "images/2.jpg"),
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_unclear_folders_are_an_error_with_each_option(tmp_path: Path, name: str) -> None:
    root = tree(tmp_path / "set", *UNCLEAR[name])
    with pytest.raises(InvalidRequest, match="cannot decide") as caught:
        Source(root)
    for option in (CLASS, SPLIT, BOTH, NONE):
        assert option in str(caught.value)
    for meaning in ("class", "split", "none"):
        assert len(Source(root, folders=meaning)) == len(UNCLEAR[name])


@pytest.mark.parametrize(
    "files",
    [
        ("train/a.jpg", "car/b.jpg", "bus/c.jpg"),
        ("cat/1.jpg",),
        ("bounding_box_train/1.jpg", "query/2.jpg", "gallery/3.jpg"),
        ("cat/tabby/1.jpg", "cat/2.jpg", "dog/boxer/3.jpg"),
    ],
)
def test_other_folders_are_classes(tmp_path: Path, files: tuple[str, ...]) -> None:
    source = Source(tree(tmp_path, *files))
    assert source.schema["label"].classes == tuple(sorted({name.partition("/")[0] for name in files}))
