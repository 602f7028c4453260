"""The text files of YOLO: descriptions in YAML and of darknet, rows, paths of other machines, splits."""

from pathlib import Path

import numpy as np
import pytest

from packer.errors import BadInput
from packer.sources._trees.folder_scan import Listing
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.annotations._yolo_description import (
    Node,
    YoloDescription,
    describes,
    read_description,
    read_names,
    read_yaml,
)
from packer.sources.annotations._yolo_labels import RowForm, Task, label_names, read_labels
from packer.sources.annotations._yolo_splits import DescribedPaths, folder_splits

YAML = Path("set/data.yaml")
DARKNET = Path("set/obj.data")
TEXT = Path("set/labels/1.txt")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("# nothing\n\n", None),
        ("---\na: 1", {"a": "1"}),
        ("a: x # y\nb: x#y\nc: '#'\n", {"a": "x", "b": "x#y", "c": "#"}),
        ("a:\nb: ~\nc: null\nd: 'null'\n", {"a": None, "b": None, "c": None, "d": "null"}),
        ("a: no\nb: 1.0\nc: 007", {"a": "no", "b": "1.0", "c": "007"}),
        ("a:\n  b: 1\n  c:\n    d: 2\ne: 3", {"a": {"b": "1", "c": {"d": "2"}}, "e": "3"}),
        ("- x\n-\n- y", ["x", None, "y"]),
        ("a: [1, traffic light , 'b, c', \"d\\u00e9\\n\", ~,]", {"a": ["1", "traffic light", "b, c", "d\xe9\n", None]}),
        ("a: {0: x, 'b c': [1], \"d\":2, e: }", {"a": {"0": "x", "b c": ["1"], "d": "2", "e": None}}),
        ("a: one\n  two\nb: !!int 1", {"a": "one two", "b": "1"}),
        ("a: 1\r\nb:\r\n  - 2\r\n", {"a": "1", "b": ["2"]}),
        ("\ufeffa: 1", {"a": "1"}),
    ],
)
def test_yaml_is_read_as_text(text: str, expected: Node) -> None:
    assert read_yaml(text.encode(), YAML) == expected


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (b"a: &x 1", ":1", "anchor"),
        (b"a: 1\nb: *x", ":2", "alias"),
        (b"a:\n  <<: {b: 1}", ":2", "merge key"),
        (b"a: 1\n\na: 2", ":3", "second time"),
        (b"a: {[b]: 1}", ":1", "key"),
        (b"a: 1\n---\nb: 1", ":2", "document"),
        (b"a:\n\tb: 1", ":2", "token"),
        (b'a: "\\ud800"', ":1", "escape"),
        (b"a: " + b"[" * 99_999, ":1", "levels"),
        (b"\n".join(b" " * n + b"a:" for n in range(99)), ":20", "levels"),
        (b"a: \x00", "", "YAML"),
        (b'a: "\\UFFFFFFFF"', "", "YAML"),
        (b"a: 1\nb: \xff", ":2", "UTF-8"),
        (b" " * (2 << 20), "", "at most"),
    ],
)
def test_other_yaml_is_an_error_with_its_line(text: bytes, line: str, word: str) -> None:
    with pytest.raises(BadInput, match=rf"set/data\.yaml{line}: .*{word}"):
        read_yaml(text, YAML)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"names: [cat, 'a dog']\nnc: 2", ("cat", "a dog")),
        (b"names:\n  1: a dog\n  0: cat", ("cat", "a dog")),
        (b"names: {0: cat, 3: dog}", ("cat", "class_1", "class_2", "dog")),
        (b"nc: 2", ("class_0", "class_1")),
        (b"names: [no, 1, 'null', On]", ("no", "1", "null", "On")),
        (b"train: a", ()),
    ],
)
def test_names_of_classes_are_a_list_or_a_mapping(text: bytes, names: tuple[str, ...]) -> None:
    assert read_description(text, YAML).names == names


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("- a", "file"),
        ("names: [a]\nnc: 2", "nc"),
        ("names: {0: a}\nnc: 7", "nc"),
        ("nc: many", "nc"),
        ("names: a", "names"),
        ("names: [a, ~]", "names"),
        ("names: {a: b}", "names"),
        ("names: {-1: b}", "names"),
        ("names: {999999999: b}", "names"),
        ("names: {1: a, 01: b}", "names"),
        ("names: {1: [a]}", "names"),
        ("train: {a: b}", "train"),
        ("train: [a, [b]]", "train"),
        ("path: [a]", "path"),
        ("kpt_shape: [17]", "kpt_shape"),
        ("kpt_shape: [17, 4]", "kpt_shape"),
        ("kpt_shape: 17", "kpt_shape"),
    ],
)
def test_an_invalid_value_of_a_description_is_an_error(text: str, key: str) -> None:
    with pytest.raises(BadInput, match=rf"set/data\.yaml: {key}: expected"):
        read_description(text.encode(), YAML)


def test_keypoints_have_names_if_all_classes_have_the_same() -> None:
    text = b"kpt_shape: [2, 3]\nkpt_names:\n  0: [nose, tail]\n  1:\n    - nose\n    - tail\n"
    found = read_description(text, YAML)
    assert (found.keypoints, found.keypoint_names) == ((2, 3), ("nose", "tail"))
    assert read_description(b"kpt_shape: [2, 3]\nkpt_names: {0: [nose, tail], 1: [a, b]}", YAML).keypoint_names == ()


def test_a_description_has_splits_and_classes() -> None:
    assert describes(b"train: a\nnames: [b]", YAML)
    assert describes(b"val: [a]\nnc: 3", YAML)
    for text in ("train: a", "names: [a]", "train: {batch: 8}\nnames: [a]", "- train", ""):
        assert not describes(text.encode(), YAML)


def test_darknets_description_has_a_value_per_line() -> None:
    text = b"classes = 2\ntrain  = data/train.txt\n# x\nvalid = data/test.txt # y\nnames = data/obj.names\n"
    assert describes(text, DARKNET) and not describes(b"train = a", DARKNET)
    found = read_description(text, DARKNET)
    assert found.splits == {"train": ("data/train.txt",), "valid": ("data/test.txt",)}
    assert found.names_file == "data/obj.names"
    with pytest.raises(BadInput, match=r"obj\.data:2: .*key"):
        read_description(b"classes = 2\ntrain", DARKNET)


def test_a_list_of_names_has_no_empty_line_in_between() -> None:
    assert read_names(b"cat\r\n a dog \r\n\r\n", YAML) == ("cat", "a dog")
    with pytest.raises(BadInput, match=r"data\.yaml:2: .*empty"):
        read_names(b"cat\n\ndog", YAML)


# ---- rows


def rows(
    text: str, task: Task, *, classes: int | None = None, keypoints: tuple[int, int] | None = None
) -> dict[str, list]:
    found = read_labels(text.encode(), TEXT, RowForm(task, classes, keypoints))
    return {name: np.round(value, 9).tolist() for name, value in found._asdict().items()}


def test_oriented_boxes_are_four_corners_and_some_may_be_outside() -> None:
    found = rows("4 0.557735 0.090192 0.357735 0.609808 0.242265 0.509808 0.442265 -0.209808\n", "obb")
    assert found["points"] == [[0.557735, 0.090192], [0.357735, 0.609808], [0.242265, 0.509808], [0.442265, -0.209808]]
    assert found["boxes"] == [[0.242265, -0.209808, 0.557735, 0.609808]]


@pytest.mark.parametrize(
    ("text", "task", "word"),
    [
        ("0 1.5 .5 .1 .1", "detect", r"1\.5, expected a share"),
        ("0 .5 1.0101 .1 .1", "detect", r"1\.0101, expected a share"),
        ("0 .5 .5 -.0101 .1", "detect", r"-0\.0101, expected a share"),
        ("0 320 240 64 48", "detect", "320, expected a share"),
        ("0 nan .5 .1 .1", "detect", "finite"),
        ("0 .5 .5 .1 1e999", "detect", "finite"),
        ("0 0_1 .5 .1 .1", "detect", "decimal"),
        ("cat .5 .5 .1 .1", "detect", "cat"),
        ("nan .5 .5 .1 .1", "detect", "class nan"),
        ("-1 .5 .5 .1 .1", "detect", "class -1"),
        ("0.5 .5 .5 .1 .1", "detect", r"class 0\.5"),
        ("3 .5 .5 .1 .1", "detect", "class 3"),
        ("0 .5 .5 .1", "detect", "4 numbers, expected 5 "),
        ("0 .5 .5 .1 .1 .9", "detect", "6 numbers, expected 5 "),
        ("0 .1 .1 .2 .1 .2 .2", "detect", "7 numbers, expected 5 "),
        ("0 .1 .1 .2 .1 .2 .2 .3", "segment", "8 numbers, expected 5, 7, 9"),
        ("0 1.5 .1 1.5 .2 1.2 .2", "segment", r"1\.35, expected a share"),
        ("0 .1 nan .2 .1 .2 .2", "segment", "finite"),
        ("0 1e999 .1 -1e999 .1 .2 .2", "segment", "finite"),
        ("0 .5 .5 .1 .1", "obb", "5 numbers, expected 9 "),
        ("0 .5 .5 .1 .1 .1 .1 2", "pose", "8 numbers, expected 11 "),
        ("0 .5 .5 .1 .1 .1 .1 2 .1 .1 3", "pose", "visibility"),
        ("0 .5 .5 .1 .1 .1 .1 2 .1 1.5 1", "pose", r"1\.5, expected a share"),
    ],
)
def test_a_row_that_is_not_valid_is_an_error_with_its_line(text: str, task: Task, word: str) -> None:
    form = RowForm(task, 3, (2, 3) if task == "pose" else None)
    good = {"detect": "0 .5 .5 .1 .1", "segment": "0 .1 .1 .2 .1 .2 .2", "obb": "0 .1 .1 .2 .1 .2 .2 .1 .2"}
    good["pose"] = "0 .5 .5 .1 .1 .1 .1 2 .1 .1 0"
    with pytest.raises(BadInput, match=rf"^set/labels/1\.txt:3: .*{word}"):
        read_labels(f"{good[task]}\n\n{text}\n".encode(), TEXT, form)


def test_classes_without_a_count_have_a_limit() -> None:
    assert rows("99999 .5 .5 .1 .1", "detect")["classes"] == [99999]
    for number in ("100000", "1e300"):
        with pytest.raises(BadInput, match="class"):
            rows(f"{number} .5 .5 .1 .1", "detect")


# ---- paths


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("images/train/1.jpg", "labels/train/1.txt"),
        ("train/images/1.b.png", "train/labels/1.b.txt"),
        ("images/images/1.jpg", "images/labels/1.txt"),
        ("images/a/images/b/1.jpg", "images/a/labels/b/1.txt"),
        ("myimages/1.jpg", "myimages/1.txt"),
        ("images.d/1.jpg", "images.d/1.txt"),
        ("1.jpg", "1.txt"),
    ],
)
def test_the_last_images_in_the_path_counts(image: str, label: str) -> None:
    """The last `/images/` of the absolute path becomes `/labels/`, the suffix becomes `txt`."""
    assert label_names(image, is_darknet=False) == (label,)
    above, found, rest = f"/root/{image}".rpartition("/images/")
    restated = f"{above}/labels/{rest}" if found else f"/root/{image}"
    assert f"/root/{label}" == restated.rpartition(".")[0] + ".txt"


def test_darknet_has_label_files_next_to_images_too() -> None:
    assert label_names("VOC/JPEGImages/1.jpg", is_darknet=True) == ("VOC/labels/1.txt", "VOC/JPEGImages/1.txt")
    assert label_names("images/1.jpg", is_darknet=True) == ("labels/1.txt", "images/1.txt")
    assert label_names("obj/1.jpg", is_darknet=True) == ("obj/1.txt",)


def paths_of(images: list[str], folders: list[str], **description: object) -> DescribedPaths:
    root = Path("set")
    return DescribedPaths(SourceRoot(root), Listing(root, images, folders, [], []), YoloDescription(**description))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "folder", "found"),
    [
        ("images/train", "", "images/train"),
        ("./images/train/", "", "images/train"),
        (".", "", ""),
        ("../images/train", "", "images/train"),
        ("/home/me/set/images/train", "", "images/train"),
        ("/images/train", "", "images/train"),
        ("D:\\set\\images\\train", "", "images/train"),
        ("images\\train\\1.jpg", "", "images/train/1.jpg"),
        ("data/images/train/1.jpg", "", "images/train/1.jpg"),
        ("./1.jpg", "images/train", "images/train/1.jpg"),
        ("../train/1.jpg", "images/train", "images/train/1.jpg"),
        ("nothing/here", "", None),
        ("test/images", "", None),
        ("../images", "", "images"),
        ("/home/me/test/images", "", None),
        ("/old/set/images", "", "images"),
        ("../..", "", None),
        ("a/" * 100 + "images", "", None),
    ],
)
def test_paths_are_found_by_their_end(text: str, folder: str, found: str | None) -> None:
    paths = paths_of(["images/train/1.jpg"], ["images", "images/train"], base="/old/set")
    assert paths.find(text, folder) == found


def test_a_folder_contains_files_whose_path_starts_with_its_name_and_a_slash() -> None:
    images = ["a/1.jpg", "a/b/2.jpg", "a0/3.jpg", "ab/4.jpg"]
    paths = paths_of(images, ["a", "a/b", "a0", "ab"], splits={"train": ("a",), "val": (".",), "test": ("a0/3.jpg",)})
    assert paths.splits(images, missing="keep") == {"train": images[:2], "val": images, "test": images[2:3]}


def test_folders_are_splits_if_every_image_is_in_one() -> None:
    assert list(folder_splits(["images/test/1.jpg", "images/train/2.jpg"]).items()) == [
        ("train", ["images/train/2.jpg"]),
        ("test", ["images/test/1.jpg"]),
    ]
    assert list(folder_splits(["train/images/1.jpg", "valid/images/a/2.jpg"])) == ["train", "valid"]
    for names in (["images/1.jpg"], ["images/train/1.jpg", "images/2.jpg"], ["train/1.jpg"]):
        assert folder_splits(names) == {"": names}
