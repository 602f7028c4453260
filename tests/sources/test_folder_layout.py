"""What the folders in a folder are: classes, splits above them, or pictures and what belongs to them."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from packer.conversion.convert import ConversionSummary, convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_comparison import Comparison
from packer.conversion.source_spec import SourceSpec, parameters
from packer.errors import BadInput, InvalidRequest
from packer.pack import manifest as manifests
from packer.sources._parse.folder_layout import ordered_splits, split_rank
from packer.sources.folder import Source
from packer.tools.advice import Question, advise
from packer.tools.workload import Subject
from tests.support.source_trees import cornell, picture, write


def tree(root: Path, *names: str) -> Path:
    return write(root, dict.fromkeys(names, b"x"))


def keys(source: Source) -> list[str]:
    return [source.key(index) for index in range(len(source))]


@pytest.mark.parametrize("word", ["train", "Training", "TRAIN", "val", "valid", "validation", "test", "testing"])
def test_names_of_splits_are_known(word: str) -> None:
    for name in (word, f"{word}2017", f"{word}_set", f"{word}-images"):
        assert split_rank(name) is not None
    for name in (f"{word}s_of_thought", f"{word}_cat", "cat", "trainer", ""):
        assert split_rank(name) is None
    assert ordered_splits(["b", "test", "val2", "train", "a"]) == ("train", "val2", "test", "a", "b")


@pytest.mark.parametrize("classes", ["auto", "folders"])
@pytest.mark.parametrize("names", [("train", "val"), ("Training", "testing"), ("train", "valid", "test"), ("train",)])
def test_splits_above_classes_are_refused_as_classes(tmp_path: Path, classes: str, names: tuple[str, ...]) -> None:
    files = [f"{split}/{kind}/{n}.jpg" for split in names for kind in ("cat", "dog") for n in range(2)]
    with pytest.raises(
        InvalidRequest,
        match=rf"{names[0]} \(4 images in 2 folders: cat, dog\).*--layout split/class; .*--layout class",
    ):
        Source(tree(tmp_path, *files), classes=classes)


def test_flat_splits_are_refused_as_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/a.jpg", "train/b.jpg", "val/c.jpg")
    with pytest.raises(InvalidRequest, match=r"train \(2 images\), val \(1 image\); .*--layout split;"):
        Source(root)
    source = Source(root, layout="split")
    assert source.schema.names == ("key", "image", "split")
    assert source.schema["split"].classes == ("train", "val")
    assert [int(source[index]["split"]) for index in range(3)] == [0, 0, 1]
    assert "splits: train 2, val 1" in source.notes


def test_a_class_among_others_may_be_named_as_a_split(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/a.jpg", "car/b.jpg", "bus/c.jpg")
    assert Source(root).schema["label"].classes == ("bus", "car", "train")


def test_what_is_only_measured_or_was_packed_before_may_have_any_layout(tmp_path: Path) -> None:
    root = write(
        tmp_path / "data", {f"{split}/cat/{n}.png": picture(n) for split in ("train", "val") for n in range(2)}
    )
    assert Subject(root).count() == 4
    convert_source(
        Source(root, layout="unchecked"), tmp_path / "old", ConversionOptions(source={"kind": "folder", "options": {}})
    )
    assert list(Comparison(tmp_path / "old", root).problems()) == []


def test_classes_that_are_named_as_splits_can_be_said(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/a.jpg", "test/b.jpg")
    assert Source(root, layout="class").schema["label"].classes == ("test", "train")


def test_splits_share_their_classes(tmp_path: Path) -> None:
    root = tree(
        tmp_path, "val/dog/1.jpg", "val/ape/2.jpg", "train/dog/x/3.jpg", "train/cat/4.jpg", "test/cat/5.jpg", "n.txt"
    )
    source = Source(root, layout="split/class")
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
    assert "split train has no image of 1 class: ape" in source.notes
    assert all(type(source.value(0, name)) is type(source[0][name]) for name in source.schema.names)


def test_images_in_no_class_folder_are_left_out_and_named(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/cat/1.jpg", "val/cat/2.jpg", "test/3.jpg", "4.jpg")
    source = Source(root, layout="split/class")
    assert dict(source.left_out) == {
        "test/3.jpg": "image lies directly in test, in no class folder",
        "4.jpg": "image lies directly in the root, in no split folder",
    }
    assert keys(source) == ["train/cat/1.jpg", "val/cat/2.jpg"]


def test_a_class_folder_without_images_in_any_split_is_an_error(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/cat/1.jpg", "val/cat/2.jpg")
    (root / "val/dog").mkdir()
    with pytest.raises(InvalidRequest, match="1 class of 2 without an image: dog"):
        Source(root, layout="split/class")
    assert Source(root, layout="split/class", allow_empty=True).schema["label"].classes == ("cat", "dog")


def test_a_layout_that_contradicts_the_classes_is_refused(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/cat/1.jpg", "val/cat/2.jpg")
    for layout, classes in (("split/class", "none"), ("class", "none"), ("split", "folders")):
        with pytest.raises(InvalidRequest, match="contradict"):
            Source(root, layout=layout, classes=classes)
    with pytest.raises(InvalidRequest, match="option layout"):
        Source(root, layout="class/split")


RACCOON = ["images/r-1.jpg", "images/r-2.jpg", "annotations/r-1.xml", "annotations/r-2.xml", "data/labels.csv"]


@pytest.mark.parametrize("allow_empty", [False, True])
def test_pictures_beside_annotations_are_no_classes(tmp_path: Path, allow_empty: bool) -> None:
    """The raccoon set: with --allow-empty every photo had the label 2 of ('annotations', 'data', 'images')."""
    root = tree(tmp_path, *RACCOON)
    with pytest.raises(InvalidRequest) as caught:
        Source(root, allow_empty=allow_empty)
    assert "annotations, images: " in str(caught.value)
    assert "--classes none --sidecar 'annotations=annotations/{stem}.xml:text'" in str(caught.value)
    assert "allow-empty" not in str(caught.value)
    assert len(Source(root, classes="none")) == 2


def test_labels_that_are_no_pictures_are_told_by_their_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="named as pictures and files") as caught:
        Source(tree(tmp_path, "images/a.jpg", "labels/a.txt"))
    assert "labels/{stem}.txt:text" in str(caught.value)


def test_pictures_in_one_folder_of_that_name_have_no_class(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--classes none; .* --layout class"):
        Source(tree(tmp_path / "a", "images/a.jpg", "images/b.jpg"))
    with pytest.raises(InvalidRequest, match=r"if the folders in images are the classes, give \S+/images;"):
        Source(tree(tmp_path / "b", "images/cat/a.jpg", "images/dog/b.jpg"))


def test_pictures_and_masks_below_splits_are_no_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"{split}/{kind}/a.jpg" for split in ("train", "val") for kind in ("images", "masks")))
    for layout in ("auto", "split", "split/class"):
        with pytest.raises(InvalidRequest, match="--layout split --sidecar 'mask="):
            Source(root, layout=layout)
    with pytest.raises(InvalidRequest, match="the folders in the splits are images, masks: .*--layout split$"):
        Source(root, layout="split/class", pairs="samples")


def test_classes_of_things_that_have_such_names_stay_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, "mask/1.jpg", "picture/2.jpg", "chair/3.jpg")
    assert Source(root).schema["label"].classes == ("chair", "mask", "picture")


def test_what_desktops_and_editors_leave_behind_is_no_class_and_no_image(tmp_path: Path) -> None:
    clutter = [".ipynb_checkpoints/a-checkpoint.jpg", "__MACOSX/cat/._a.jpg", "cat/._a.jpg", "cat/.DS_Store"]
    root = tree(tmp_path, "cat/a.jpg", "dog/b.jpg", "cat/.git/x", "Thumbs.db", "dog/Desktop.ini", *clutter)
    source = Source(root)
    assert source.schema["label"].classes == ("cat", "dog")
    assert keys(source) == ["cat/a.jpg", "dog/b.jpg"]
    assert source.extras() == []
    found = ".DS_Store 1, ._* 1, .git/ 1, .ipynb_checkpoints/ 1, Desktop.ini 1, Thumbs.db 1, __MACOSX/ 1"
    assert f"ignored, since desktops and editors make them: {found}" in source.notes


def test_classes_are_named_with_their_counts(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"c{number:02}/{n}.jpg" for number in range(12) for n in range(number + 1)))
    note = next(note for note in Source(root).notes if note.startswith("classes:"))
    assert note == f"classes: {', '.join(f'c{n:02} {n + 1}' for n in range(10))}, ... and 2 more"


def packed(root: Path, target: Path, **options: str) -> ConversionSummary:
    return convert_source(Source(root), target, ConversionOptions(**options))  # type: ignore[arg-type]


def test_pictures_that_are_not_upright_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "c").mkdir(parents=True)
    for number, orientation in enumerate((0, 1, 3, 6, 8)):
        exif = Image.Exif()
        if orientation:
            exif[0x0112] = orientation
        Image.fromarray(np.zeros((8, 16, 3), np.uint8)).save(root / f"c/{number}.jpg", exif=exif)
    kept = "3 of 5 pictures not upright by EXIF orientation: left as they are; --exif rotate turns them"
    assert kept in packed(root, tmp_path / "a").notes
    assert (
        "3 of 5 pictures not upright by EXIF orientation: turned" in packed(root, tmp_path / "b", exif="rotate").notes
    )
    cv2.imwrite(str(root / "c/5.jpg"), np.zeros((8, 16, 3), np.uint8))
    for number in (2, 3, 4):
        (root / f"c/{number}.jpg").unlink()
    assert packed(root, tmp_path / "d").notes == ()
    assert manifests.read(tmp_path / "d").samples == 3


def test_classes_are_numbered_as_in_another_pack(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {f"{name}/1.png": picture(1) for name in ("ape", "cat", "dog")})
    convert_source(Source(first), tmp_path / "first.pack", ConversionOptions())
    second = write(tmp_path / "second", {"dog/1.png": picture(2), "cat/2.png": picture(3)})
    assert int(Source(second)[1]["label"]) == 1
    known = parameters({"classes_from": tmp_path / "first.pack"})
    request = SourceSpec(options=known)
    source, _ = request.open(second)
    assert source.schema["label"].classes == ("ape", "cat", "dog")
    assert {source.key(row): int(source[row]["label"]) for row in range(2)} == {"cat/2.png": 1, "dog/1.png": 2}
    convert_source(source, tmp_path / "second.pack", ConversionOptions(source=request.to_json(source)))
    assert list(Comparison(tmp_path / "second.pack", second).problems()) == []
    write(second, {"zebra/1.png": picture(4)})
    with pytest.raises(BadInput, match="1 class that the pack of --classes-from does not have: zebra; it has ape, cat"):
        request.open(second)
    with pytest.raises(InvalidRequest, match="no classes to number"):
        SourceSpec(options={"classes": "none", **known}).open(second)
    convert_source(Source(second, classes="none"), tmp_path / "bare.pack", ConversionOptions())
    with pytest.raises(InvalidRequest, match="has no classes"):
        parameters({"classes_from": tmp_path / "bare.pack"})
    with pytest.raises(
        InvalidRequest, match="cornell.* --classes-from; .* is of --from folder or table or vmrd or voc"
    ):
        SourceSpec("cornell", known).open(cornell(tmp_path / "cornell"))


def test_masks_below_splits_are_no_samples(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"{split}/{kind}/a.png" for split in ("train", "val") for kind in ("images", "masks")))
    with pytest.raises(InvalidRequest, match=r"--sidecar 'mask=\{folder:images=masks\}/\{stem\}\.png:mask'"):
        Source(root, layout="split")
    source, _ = SourceSpec("folder", {"layout": "split"}, ("mask={top}/masks/{stem}.png:mask",)).open(root)
    assert [source.key(row) for row in range(2)] == ["train/images/a.png", "val/images/a.png"]
    assert [source.files(row)[1].relative_to(root).as_posix() for row in range(2)] == [
        "train/masks/a.png",
        "val/masks/a.png",
    ]


def test_a_folder_around_the_classes_is_no_class(tmp_path: Path) -> None:
    root = tree(tmp_path, "set/cat/1.jpg", "set/dog/2.jpg")
    with pytest.raises(InvalidRequest, match=r"the folders in set: cat, dog; .* give \S+/set; .*--layout class"):
        Source(root)
    assert Source(root, layout="class").schema["label"].classes == ("set",)


@pytest.mark.parametrize(
    "tops", [("seg_train", "seg_test"), ("train", "holdout"), ("A_train", "validate"), ("fold1", "fold2")]
)
def test_folders_that_hold_the_same_folders_are_no_classes_by_habit(tmp_path: Path, tops: tuple[str, str]) -> None:
    root = tree(tmp_path, *(f"{top}/{kind}/1.jpg" for top in tops for kind in ("cat", "dog")))
    with pytest.raises(InvalidRequest, match="--layout split/class; .*--layout class"):
        Source(root)
    assert Source(root, layout="split/class").schema["label"].classes == ("cat", "dog")
    assert set(Source(root, layout="class").schema["label"].classes or ()) == set(tops)


def test_classes_with_folders_of_their_own_stay_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, "cat/tabby/1.jpg", "cat/siamese/2.jpg", "dog/boxer/3.jpg", "dog/poodle/4.jpg")
    assert Source(root).schema["label"].classes == ("cat", "dog")


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
    assert by_advise.value.message.startswith(by_convert.value.message)
    assert by_advise.value.message.endswith("and ask packer advise about the pack")


def test_classes_that_are_numbers_out_of_order_are_told(tmp_path: Path) -> None:
    notes = Source(tree(tmp_path / "a", *(f"{number}/a.jpg" for number in (0, 1, 2, 9, 10, 11)))).notes
    assert "classes are numbered in the order of their names, as by ImageFolder: the label of 10 is 2" in notes
    plain = Source(tree(tmp_path / "b", *(f"{number}/a.jpg" for number in (0, 1, 2)))).notes
    assert not any("in the order of their names" in note for note in plain)


def test_splits_of_folders_and_of_the_option_contradict_each_other(tmp_path: Path) -> None:
    root = tree(tmp_path, "train/cat/1.jpg", "val/cat/2.jpg")
    with pytest.raises(InvalidRequest, match="--layout split/class and --split: the folders are the splits already"):
        SourceSpec("folder", {"layout": "split/class"}, (), ("train=0.9",)).open(root)


@pytest.mark.parametrize(
    "tops",
    [
        ("trn", "tst"),
        ("tr", "te"),
        ("train", "holdout"),
        ("fold1", "fold2"),
        ("images_background", "images_evaluation"),
        ("bounding_box_train", "query", "gallery"),
        ("trainA", "trainB", "testA", "testB"),
        ("DIV2K_train_HR", "DIV2K_valid_HR"),
    ],
)
def test_splits_of_other_names_are_no_classes(tmp_path: Path, tops: tuple[str, ...]) -> None:
    root = tree(tmp_path, *(f"{top}/{number}{top}.jpg" for top in tops for number in range(2)))
    with pytest.raises(InvalidRequest, match="named as splits, .*--layout split; .*--layout class"):
        Source(root)
    assert set(Source(root, layout="split").schema["split"].classes or ()) == set(tops)
    assert set(Source(root, layout="class").schema["label"].classes or ()) == set(tops)


def test_pictures_and_smaller_ones_in_splits_are_no_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, "set_train_big/1.png", "set_train_small/X2/1x2.png")
    with pytest.raises(InvalidRequest, match="named as splits, .*--layout split;"):
        Source(root)


def test_the_same_classes_below_a_folder_in_each_are_no_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"{top}/images/{name}/1.jpg" for top in ("amazon", "dslr") for name in ("bike", "mug")))
    with pytest.raises(InvalidRequest, match="the folders in amazon/images: bike, mug; .*classes-from"):
        Source(root)
    assert Source(root, layout="class").schema["label"].classes == ("amazon", "dslr")


def test_splits_inside_classes_are_no_classes(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"{top}/{split}/1.jpg" for top in ("cat", "dog") for split in ("train", "test")))
    with pytest.raises(InvalidRequest, match="move train, test above the classes, as test/cat"):
        Source(root)
    assert Source(root, layout="class").schema["label"].classes == ("cat", "dog")


@pytest.mark.parametrize("other", ["unlabeled", "misc"])
def test_the_classes_of_a_split_are_never_one_class(tmp_path: Path, other: str) -> None:
    root = tree(tmp_path, "train/a/1.jpg", "train/b/2.jpg", f"{other}/3.jpg")
    with pytest.raises(
        InvalidRequest,
        match=rf"train \(2 images in 2 folders: a, b\), .*--layout split/class, .* the images of {other}; "
        r".*give \S+/train; .*--layout split; .*--layout class",
    ):
        Source(root)
    source = Source(root, layout="split/class")
    assert source.schema["label"].classes == ("a", "b")
    assert [name for name, _ in source.left_out] == [f"{other}/3.jpg"]
    assert Source(root / "train").schema["label"].classes == ("a", "b")


@pytest.mark.parametrize(
    "names",
    [
        ("asl_train/asl_train/A/1.jpg", "asl_train/asl_train/B/2.jpg", "asl_test/asl_test/A_test.jpg"),
        ("seg_train/seg_train/A/1.jpg", "seg_train/seg_train/B/2.jpg", "seg_pred/seg_pred/4.jpg"),
    ],
)
def test_of_doubled_folders_the_inner_one_is_to_be_given(tmp_path: Path, names: tuple[str, ...]) -> None:
    root = tree(tmp_path, *names)
    with pytest.raises(InvalidRequest, match=r"the folders in (\w+)/\1: A, B; .*give \S+;") as found:
        Source(root)
    assert "split/class" not in str(found.value)
    top = names[0].partition("/")[0]
    assert f"give {root}/{top}/{top};" in str(found.value)
    assert Source(root / top / top).schema["label"].classes == ("A", "B")


def test_no_layout_is_said_where_a_split_has_no_classes(tmp_path: Path) -> None:
    """Tiny ImageNet."""
    root = tree(tmp_path, "train/n01/images/1.jpg", "train/n02/images/2.jpg", "val/images/3.jpg", "test/images/4.jpg")
    with pytest.raises(InvalidRequest, match=r"give \S+/train;") as found:
        Source(root)
    assert "split/class" not in str(found.value)
    assert Source(root / "train").schema["label"].classes == ("n01", "n02")


def test_masks_beside_splits_become_no_split(tmp_path: Path) -> None:
    """MVTec."""
    good = [f"train/good/{number}.png" for number in range(10, 20)]
    root = tree(tmp_path / "set", *good, "test/good/1.png", "test/bad/2.png", "ground_truth/bad/2_mask.png")
    with pytest.raises(InvalidRequest, match="move ground_truth out of .* would become a split"):
        Source(root)
    (root / "ground_truth").rename(tmp_path / "ground_truth")
    assert Source(root, layout="split/class").schema["split"].classes == ("train", "test")


def test_text_beside_pictures_in_splits_is_said(tmp_path: Path) -> None:
    """Roboflow."""
    root = tree(tmp_path, *(f"{s}/{kind}" for s in ("train", "valid") for kind in ("images/1.jpg", "labels/1.txt")))
    with pytest.raises(InvalidRequest) as found:
        Source(root)
    assert "add: --layout split --sidecar 'labels={folder:images=labels}/{stem}.txt:text'; if" in str(found.value)
    sidecar = "labels={folder:images=labels}/{stem}.txt:text"
    source, _ = SourceSpec("folder", {"layout": "split"}, (sidecar,)).open(root)
    assert [source[row]["labels"] for row in range(2)] == ["x", "x"]
