"""What YOLO's text files say: the YAML that is read, descriptions, rows, paths of other machines."""

from pathlib import Path

import numpy as np
import pytest

from packer.errors import BadInput
from packer.sources._parse.yolo_description import (
    Node,
    describes,
    read_darknet,
    read_description,
    read_names,
    read_yaml,
)
from packer.sources._parse.yolo_labels import RowForm, Task, read_labels, repeated_rows, row_lengths
from packer.sources._parse.yolo_pictures import SetPaths, darknet_label_names, label_name
from packer.sources._parse.yolo_splits import splits_by_folders, without_duplicates

YAML = Path("set/data.yaml")
TEXT = Path("set/labels/1.txt")


def yaml(text: str) -> Node:
    return read_yaml(text.encode(), YAML)


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
        ("a:\n  - x\n  - 'y z'\nb: 1", {"a": ["x", "y z"], "b": "1"}),
        ("a:\n- x\n- [1, 2]\nb: 1", {"a": ["x", ["1", "2"]], "b": "1"}),
        ("- x\n-\n- y", ["x", None, "y"]),
        ("a: [1, traffic light , 'b, c', \"d\\u00e9\\n\", ~,]", {"a": ["1", "traffic light", "b, c", "d\xe9\n", None]}),
        ("a: [x, # one\n  # two\n  y\n  ]\nb: 1", {"a": ["x", "y"], "b": "1"}),
        ("a: {0: x, 'b c': [1], \"d\":2, e: }", {"a": {"0": "x", "b c": ["1"], "d": "2", "e": None}}),
        ("a: []\nb: {}", {"a": [], "b": {}}),
        ("a: |\n  import x\n\n    y: 1\n  # z\nb: 1", {"a": "import x\n\n  y: 1\n# z\n", "b": "1"}),
        ("a: one\n  two\nb: !!int 1", {"a": "one two", "b": "1"}),
        ("a:\n  - b: 1\n  - - c", {"a": [{"b": "1"}, ["c"]]}),
        ("'a b': 1\n\"c:d\": 2\n-x: 3", {"a b": "1", "c:d": "2", "-x": "3"}),
        ("a: https://x.y/z\nb: C:\\x\\y\nc: it's", {"a": "https://x.y/z", "b": "C:\\x\\y", "c": "it's"}),
        ("a: 'it''s'\nb: \"\\x41\\U0001F600\\\\\"", {"a": "it's", "b": "A\U0001f600\\"}),
        ("  a: 1\n  b: 2\n", {"a": "1", "b": "2"}),
        ("a: 1\r\nb:\r\n  - 2\r\n", {"a": "1", "b": ["2"]}),
        ("\ufeffa: 1", {"a": "1"}),
        ("a: [b:c, d :e]", {"a": ["b:c", "d :e"]}),
    ],
)
def test_the_yaml_of_descriptions_is_read(text: str, expected: Node) -> None:
    assert yaml(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a: &x 1", 1, "anchor"),
        ("a: 1\nb: *x", 2, "alias"),
        ("a:\n  <<: {b: 1}", 2, "merge key"),
        ("a: 1\n\na: 2", 3, "second time"),
        ("a: {b: 1, b: 2}", 1, "second time"),
        ("a: {[b]: 1}", 1, "key that is not text"),
        ("a: 1\n---\nb: 1", 2, "document"),
        ("a:\n\tb: 1", 2, "token"),
        ("a: b: c", 1, "not allowed"),
        ('a: "\\ud800"', 1, "escape"),
        ("a: " + "[" * 99_999, 1, "levels"),
        ("- " * 99_999, 1, "levels"),
        ("\n".join(" " * n + "a:" for n in range(99)), 20, "levels"),
    ],
)
def test_what_is_refused_is_an_error_with_its_line(text: str, line: int, word: str) -> None:
    with pytest.raises(BadInput, match=rf"set/data\.yaml:{line}: .*{word}"):
        yaml(text)


@pytest.mark.parametrize("text", ["a: \x00", 'a: "\\U00110000"', 'a: "\\UFFFFFFFF"'])
def test_what_is_beyond_unicode_is_an_error(text: str) -> None:
    with pytest.raises(BadInput, match="cannot read the YAML"):
        yaml(text)


def test_bytes_that_are_no_text_are_an_error_with_their_line() -> None:
    with pytest.raises(BadInput, match=r"data\.yaml:2: not UTF-8"):
        read_yaml(b"a: 1\nb: \xff", YAML)
    with pytest.raises(BadInput, match="at most"):
        read_yaml(b" " * (2 << 20), YAML)


def test_names_are_a_list_or_numbered_and_gaps_are_named() -> None:
    as_list = read_description(b"train: a\nnames: [cat, 'a dog']\nnc: 2", YAML)
    numbered = read_description(b"train: a\nnames:\n  1: a dog\n  0: cat", YAML)
    assert as_list.names == numbered.names == ("cat", "a dog")
    with_gaps = read_description(b"names: {0: cat, 3: dog}", YAML)
    assert with_gaps.names == ("cat", "class_1", "class_2", "dog")
    assert with_gaps.notes == (
        "data.yaml: names has none for 2 classes of 4 (1, 2): named class_1 and so on; ultralytics refuses such a file",
    )
    assert read_description(b"nc: 2", YAML).names == ("class_0", "class_1")


def test_words_that_yaml_takes_for_something_else_stay_names() -> None:
    assert read_description(b"names: [no, 1, 'null', On]", YAML).names == ("no", "1", "null", "On")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "expected keys such as train"),
        ("names: [a]\nnc: 2", r"nc says 2 classes, names has 1;"),
        ("names: {0: a}\nnc: 7", "nc says 7 classes, names has 1;"),
        ("nc: many", "nc: expected a number"),
        ("names: a", "names: expected a list"),
        ("names: [a, ~]", "names: expected text for class 1, found nothing"),
        ("names: {a: b}", "names: expected the number of a class, found 'a'"),
        ("names: {-1: b}", "names: expected the number of a class, found '-1'"),
        ("names: {999999999: b}", "names: expected the number of a class"),
        ("names: {1: a, 01: b}", "names: class 1 for the second time"),
        ("names: {1: [a]}", "names: expected text for class 1"),
        ("train: {a: b}", "train: expected a path, or a list of paths, found a mapping"),
        ("train: [a, [b]]", "train: expected a list of paths"),
        ("path: [a]", "path: expected the path of a folder"),
        ("kpt_shape: [17]", "kpt_shape: expected"),
        ("kpt_shape: [17, 4]", "kpt_shape: expected"),
        ("kpt_shape: 17", "kpt_shape: expected"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=rf"set/data\.yaml: {said}"):
        read_description(text.encode(), YAML)


def test_keypoints_have_names_where_all_classes_have_the_same() -> None:
    text = b"kpt_shape: [2, 3]\nkpt_names:\n  0: [nose, tail]\n  1:\n    - nose\n    - tail\n"
    found = read_description(text, YAML)
    assert (found.keypoints, found.keypoint_names) == ((2, 3), ("nose", "tail"))
    other = read_description(b"kpt_shape: [2, 3]\nkpt_names: {0: [nose, tail], 1: [a, b]}", YAML)
    assert other.keypoint_names == ()
    assert "kpt_names are not the same" in other.notes[-1]


def test_which_yaml_describes_a_set() -> None:
    assert describes(b"train: a\nnames: [b]", YAML)
    assert describes(b"val: [a]\nnc: 3", YAML)
    for text in ("train: a", "names: [a]", "train: {batch: 8}\nnames: [a]", "- train", ""):
        assert not describes(text.encode(), YAML)


def test_darknet_says_its_lists_line_by_line() -> None:
    found = read_darknet(
        b"classes = 2\ntrain  = data/train.txt\n# x\nvalid = data/test.txt # y\nnames = data/obj.names\n", YAML
    )
    assert found.splits == {"train": ("data/train.txt",), "valid": ("data/test.txt",)}
    assert (found.names_file, found.class_count) == ("data/obj.names", 2)
    with pytest.raises(BadInput, match=r"data\.yaml:2: expected key = value"):
        read_darknet(b"classes = 2\ntrain", YAML)
    with pytest.raises(BadInput, match="classes: expected a number"):
        read_darknet(b"classes = two", YAML)


def test_a_list_of_names_has_no_empty_line_in_between() -> None:
    assert read_names(b"cat\r\n a dog \r\n\r\n", YAML) == ("cat", "a dog")
    with pytest.raises(BadInput, match=r"data\.yaml:2: no name in this line"):
        read_names(b"cat\n\ndog", YAML)


# ---- rows


def rows(
    text: str, task: Task, *, classes: int | None = None, keypoints: tuple[int, int] | None = None
) -> dict[str, list]:
    found = read_labels(text.encode(), TEXT, RowForm(task, classes, keypoints))
    return {name: np.round(value, 9).tolist() for name, value in found._asdict().items()}


def test_boxes_are_centres_and_sides() -> None:
    found = rows("\ufeff0 0.5 0.5 0.25 0.5\r\n\r\n  12 .25 2.5e-1 0.125 0.125  \n", "detect")
    assert found["boxes"] == [[0.375, 0.25, 0.625, 0.75], [0.1875, 0.1875, 0.3125, 0.3125]]
    assert found["classes"] == [0, 12]
    assert rows("", "detect")["boxes"] == rows(" \n\n", "detect")["boxes"] == []


def test_polygons_have_bounds_and_owners_and_boxes_may_have_none() -> None:
    found = rows("3 0 0 0.5 0 0.5 1\n1 0.5 0.5 1 1\n2 .1 .2 .3 .2 .3 .4 .1 .4\n", "segment")
    assert found["boxes"] == [[0, 0, 0.5, 1], [0, 0, 1, 1], [0.1, 0.2, 0.3, 0.4]]
    assert (found["starts"], found["owners"]) == ([0, 3], [0, 2])
    assert found["points"][3:] == [[0.1, 0.2], [0.3, 0.2], [0.3, 0.4], [0.1, 0.4]]


def test_oriented_boxes_are_four_corners_of_which_some_may_lie_outside() -> None:
    found = rows("4 0.557735 0.090192 0.357735 0.609808 0.242265 0.509808 0.442265 -0.209808\n", "obb")
    assert found["points"] == [[0.557735, 0.090192], [0.357735, 0.609808], [0.242265, 0.509808], [0.442265, -0.209808]]
    assert found["boxes"] == [[0.242265, -0.209808, 0.557735, 0.609808]]


def test_keypoints_of_two_and_of_three_numbers() -> None:
    three = rows("0 .5 .5 1 1 .1 .2 2 .3 .4 0\n", "pose", keypoints=(2, 3))
    assert (three["points"], three["visibility"]) == ([[0.1, 0.2], [0.3, 0.4]], [[2, 0]])
    two = rows("0 .5 .5 1 1 .1 .2 .3 .4\n", "pose", keypoints=(2, 2))
    assert (two["points"], two["visibility"]) == ([[0.1, 0.2], [0.3, 0.4]], [[]])


@pytest.mark.parametrize("value", ["1.01", "-0.01", "0", "1"])
@pytest.mark.parametrize("place", range(1, 5))
def test_what_ultralytics_tolerates_is_kept(value: str, place: int) -> None:
    words = ["0", "0.5", "0.5", "0.25", "0.25"]
    words[place] = value
    x, y, width, height = map(float, words[1:])
    (box,) = read_labels(" ".join(words).encode(), TEXT, RowForm("detect")).boxes
    assert box.tolist() == [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


@pytest.mark.parametrize(
    ("text", "task", "said"),
    [
        ("0 1.5 .5 .1 .1", "detect", r"1\.5, expected a share of the picture's side, from -0\.01 to 1\.01;"),
        ("0 .5 1.0101 .1 .1", "detect", r"1\.0101, expected a share"),
        ("0 .5 .5 -.0101 .1", "detect", r"-0\.0101, expected a share"),
        ("0 320 240 64 48", "detect", "320, expected a share .*pixels are to be divided"),
        ("0 nan .5 .1 .1", "detect", "'nan' is no number"),
        ("0 .5 .5 .1 inf", "detect", "'inf' is no number"),
        ("0 .5 .5 .1 1e999", "detect", "inf, expected a share"),
        ("0 0_1 .5 .1 .1", "detect", "'0_1' is no number"),
        ("0,.5,.5,.1,.1", "detect", "'0,.5,.5,.1,.1' is no number"),
        ("cat .5 .5 .1 .1", "detect", "'cat' is no number"),
        ("-1 .5 .5 .1 .1", "detect", "class -1, there are 3 classes, counted from 0"),
        ("0.5 .5 .5 .1 .1", "detect", r"class 0\.5, there are 3 classes"),
        ("3 .5 .5 .1 .1", "detect", "class 3, there are 3 classes"),
        ("0 .5 .5 .1", "detect", "4 numbers, expected 5"),
        ("0 .5 .5 .1 .1 .9", "detect", "6 numbers, expected 5: .*a sixth is a confidence"),
        ("0 .1 .1 .2 .1 .2 .2", "detect", "7 numbers, expected 5: .*--task segment"),
        ("0 .1 .1 .2 .1 .2 .2 .3", "segment", "8 numbers, expected class and x, y"),
        ("0 1.5 .1 1.5 .2 1.2 .2", "segment", r"1\.35, expected a share"),
        ("0 .5 .5 .1 .1", "obb", "5 numbers, expected 9"),
        ("0 .5 .5 .1 .1 .1 .1 2", "pose", "8 numbers, expected 11: class, box, and 2 keypoints of 3 numbers"),
        ("0 .5 .5 .1 .1 .1 .1 2 .1 .1 3", "pose", "visibility 3 of a keypoint, expected 0, 1 or 2"),
        ("0 .5 .5 .1 .1 .1 .1 2 .1 1.5 1", "pose", r"1\.5, expected a share"),
    ],
)
def test_other_rows_are_refused_with_their_line(text: str, task: Task, said: str) -> None:
    form = RowForm(task, 3, (2, 3))
    good = {"detect": "0 .5 .5 .1 .1", "segment": "0 .1 .1 .2 .1 .2 .2", "obb": "0 .1 .1 .2 .1 .2 .2 .1 .2"}
    good["pose"] = "0 .5 .5 .1 .1 .1 .1 2 .1 .1 0"
    with pytest.raises(BadInput, match=rf"^set/labels/1\.txt:3: cannot read the label: ({said})"):
        read_labels(f"{good[task]}\n\n{text}\n".encode(), TEXT, form)


def test_classes_that_nobody_counts_have_a_limit() -> None:
    assert rows("99999 .5 .5 .1 .1", "detect")["classes"] == [99999]
    for number in ("100000", "1e300"):
        with pytest.raises(BadInput, match="expected a number, counted from 0"):
            rows(f"{number} .5 .5 .1 .1", "detect")


def test_rows_are_counted() -> None:
    data = b"0 .5 .5 .1 .1\r\n1 1 1\n\n0 .5  .5 .1 .1\n0 .5 .5 .1 .1"
    assert row_lengths(data) == {5: 3, 3: 1}
    assert repeated_rows(data) == 2
    assert (row_lengths(b"\n"), repeated_rows(b"\n\n")) == ({}, 0)


# ---- paths


@pytest.mark.parametrize(
    ("picture", "label"),
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
def test_the_last_images_in_the_path_counts(picture: str, label: str) -> None:
    """Restated: the last `/images/` of the absolute path becomes `/labels/`, what follows the last dot `txt`."""
    assert label_name(picture) == label
    above, found, rest = f"/root/{picture}".rpartition("/images/")
    restated = f"{above}/labels/{rest}" if found else f"/root/{picture}"
    assert f"/root/{label}" == restated.rpartition(".")[0] + ".txt"


def test_darknet_looks_beside_the_picture_too() -> None:
    assert darknet_label_names("VOC/JPEGImages/1.jpg") == ("VOC/labels/1.txt", "VOC/JPEGImages/1.txt")
    assert darknet_label_names("images/1.jpg") == ("images/1.txt", "labels/1.txt")
    assert darknet_label_names("obj/1.jpg") == ("obj/1.txt",)


@pytest.mark.parametrize(
    ("written", "folder", "found", "left_away"),
    [
        ("images/train", "", "images/train", {}),
        ("./images/train/", "", "images/train", {}),
        (".", "", "", {}),
        ("../images/train", "", "images/train", {}),
        ("/home/me/set/images/train", "", "images/train", {"/home/me/set/": 1}),
        ("/images/train", "", "images/train", {}),
        ("D:\\set\\images\\train", "", "images/train", {"D:/set/": 1}),
        ("images\\train\\1.jpg", "", "images/train/1.jpg", {}),
        ("data/images/train/1.jpg", "", "images/train/1.jpg", {"data/": 1}),
        ("./1.jpg", "images/train", "images/train/1.jpg", {}),
        ("../train/1.jpg", "images/train", "images/train/1.jpg", {}),
        ("nothing/here", "", None, {}),
        ("test/images", "", None, {}),
        ("../images", "", "images", {}),
        ("/home/me/test/images", "", None, {}),
        ("../..", "", None, {}),
        ("a/" * 100 + "images", "", None, {}),
    ],
)
def test_paths_are_found_by_their_end(written: str, folder: str, found: str | None, left_away: dict[str, int]) -> None:
    paths = SetPaths(["images/train/1.jpg"], ["images", "images/train"], ["images/train/1.jpg"], {})
    place = paths.find(written, folder)
    assert (None if place is None else place.name) == found
    if place is not None:
        paths.note(place)
    assert {beginning: count for beginning, count in paths.left_away.items() if beginning} == left_away


def test_a_folder_holds_what_begins_with_its_name_and_a_slash() -> None:
    pictures = ["a/1.jpg", "a/b/2.jpg", "a0/3.jpg", "ab/4.jpg"]
    paths = SetPaths(pictures, ["a", "a/b", "a0", "ab"], pictures, {})
    assert paths.inside("a") == pictures[:2]
    assert paths.inside("") == pictures
    assert paths.is_picture("a/1.jpg") and not paths.is_picture("a/1")
    assert [paths.base(text) for text in ("", ".", "a/b", "../x", "/a", "x")] == ["", "", "a/b", None, None, None]


def test_folders_named_as_splits_are_splits_where_every_picture_lies_in_one() -> None:
    below = splits_by_folders(["images/test/1.jpg", "images/train/2.jpg"])
    assert [(split.name, split.pictures) for split in below] == [
        ("train", ["images/train/2.jpg"]),
        ("test", ["images/test/1.jpg"]),
    ]
    assert [split.name for split in splits_by_folders(["train/images/1.jpg", "valid/images/a/2.jpg"])] == [
        "train",
        "valid",
    ]
    for names in (["images/1.jpg"], ["images/train/1.jpg", "images/2.jpg"], ["train/1.jpg"]):
        assert splits_by_folders(names) == [("", names)]


def test_a_picture_belongs_to_one_split() -> None:
    found = {"train": ["b", "a"], "val": ["a", "c"], "test": ["c", "a"]}
    splits, notes, left_out = without_duplicates(found, "first", "set")
    assert splits == [("train", ["a", "b"]), ("val", ["c"])]
    assert notes == [
        "split test names the pictures of val: packed once, as val",
        "1 picture named twice: in the first split that names it",
    ]
    assert left_out == []
    splits, _, left_out = without_duplicates(found, "skip", "set")
    assert (splits, left_out) == ([("train", ["b"]), ("val", ["c"])], ["a"])
    with pytest.raises(BadInput, match=r"set: 1 picture named twice by its splits: a \(train, val\); say --duplicates"):
        without_duplicates(found, "error", "set")
    with pytest.raises(BadInput, match=r"1 picture named twice by its splits: a \(train\)"):
        without_duplicates({"train": ["a", "a"]}, "error", "set")
