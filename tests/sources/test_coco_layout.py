"""Where the images of an annotation file lie, and where they are not looked for."""

import pytest

from packer.errors import BadInput
from packer.sources.annotations._coco_layout import ImageFolders

A, B, C = "a.jpg", "b.jpg", "c.jpg"


def found(files: list[str], names: list[str], table: str, split: str = "", others: tuple[str, ...] = ()) -> list[str]:
    return ImageFolders(files).paths(names, table, split, others)


@pytest.mark.parametrize(
    ("folder", "table", "split"),
    [
        ("train2017", "annotations/instances_train2017.json", "train2017"),
        ("images/train2017", "annotations/instances_train2017.json", "train2017"),
        ("coco/images/train", "coco/annotations/instances_train.json", "train"),
        ("train", "train/_annotations.coco.json", "train"),
        ("data", "labels.json", ""),
        ("images", "result.json", ""),
        ("x/images_train", "x/instances_train.json", "train"),
        ("val2014", "annotations/instances_minival2014.json", "minival2014"),
    ],
)
def test_usual_places(folder: str, table: str, split: str) -> None:
    files = [f"{folder}/{name}" for name in (A, B)] + ["README.txt", "zzz/c.jpg"]
    assert found(files, [B, A, C], table, split) == [f"{folder}/{B}", f"{folder}/{A}", ""]


def test_images_in_the_root_and_names_with_folders() -> None:
    assert found([A, "sub/b.jpg"], [A, "sub/b.jpg", "./a.jpg"], "instances.json") == [A, "sub/b.jpg", A]
    assert found(["images/s/b.jpg"], ["s/b.jpg"], "annotations/x.json") == ["images/s/b.jpg"]
    assert found(["images/s/b.jpg"], ["s\\b.jpg"], "annotations/x.json") == ["images/s/b.jpg"]


def test_two_splits_of_the_same_names_never_exchange_images() -> None:
    files = ["train/a.jpg", "val/a.jpg", "val/b.jpg"]
    assert found(files, [A, B], "annotations/train.json", "train", ("val",)) == ["train/a.jpg", ""]
    assert found(files, [A, B], "annotations/val.json", "val", ("train",)) == ["val/a.jpg", "val/b.jpg"]


def test_images_of_another_split_are_not_taken_where_those_of_the_own_are_not_there() -> None:
    files = ["val/a.jpg", "val/b.jpg"]
    assert found(files, [A, B], "annotations/train.json", "train", ("val",)) == ["", ""]
    assert found(files, [A, B], "annotations/train.json", "train") == ["", ""]
    assert found(["fold2/a.jpg"], [A], "annotations/fold1.json", "fold1", ("fold2",)) == [""]


def test_the_folder_with_the_most_of_them_is_taken_and_no_other() -> None:
    files = ["images/a.jpg", "images/b.jpg", "thumbnails/c.jpg"]
    assert found(files, [A, B, C], "annotations/x.json") == ["images/a.jpg", "images/b.jpg", ""]


def test_two_folders_that_hold_all_are_asked_for() -> None:
    with pytest.raises(BadInput, match="images and small"):
        found(["images/a.jpg", "small/a.jpg"], [A], "annotations/x.json")


def test_two_sets_in_one_folder_take_their_own() -> None:
    files = ["one/images/a.jpg", "two/images/a.jpg"]
    assert found(files, [A], "two/annotations/x.json") == ["two/images/a.jpg"]


def test_names_that_go_up_count_from_the_annotation_file() -> None:
    files = ["images/train/a.jpg", "other/images/train/a.jpg"]
    assert found(files, ["../images/train/a.jpg"], "annotations/x.json") == ["images/train/a.jpg"]
    assert found(files, ["x/../images/train/a.jpg"], "x.json") == ["images/train/a.jpg"]
    assert found(files, ["../images/train/b.jpg"], "annotations/x.json") == [""]


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "../../../a.jpg", "x/../../../a.jpg", "/data/a.jpg", "C:\\data\\a.jpg", "c:/a.jpg"]
    + ["http://x/a.jpg", "s3://x/a.jpg", "\\\\host\\a.jpg", "a\0.jpg"],
)
def test_names_that_are_not_relative_paths_in_the_data_set_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="1 file_name outside") as caught:
        found(["a.jpg", "etc/passwd"], [A, name], "annotations/x.json")
    assert "\n" not in str(caught.value)
