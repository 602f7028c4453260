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


@pytest.mark.parametrize(
    ("files", "names", "table", "paths"),
    [
        ([A, "sub/b.jpg"], [A, "sub/b.jpg", "./a.jpg"], "instances.json", [A, "sub/b.jpg", A]),  # in the root
        (["images/s/b.jpg"], ["s/b.jpg", "s\\b.jpg"], "annotations/x.json", ["images/s/b.jpg"] * 2),
        (  # where most of them are, and nowhere else
            ["images/a.jpg", "images/b.jpg", "thumbnails/c.jpg"],
            *([A, B, C], "annotations/x.json", ["images/a.jpg", "images/b.jpg", ""]),
        ),
        (["one/images/a.jpg", "two/images/a.jpg"], [A], "two/annotations/x.json", ["two/images/a.jpg"]),
        (["images/t/a.jpg", "other/images/t/a.jpg"], ["../images/t/a.jpg"], "annotations/x.json", ["images/t/a.jpg"]),
        (["images/t/a.jpg"], ["x/../images/t/a.jpg"], "x.json", ["images/t/a.jpg"]),
        (["images/t/a.jpg"], ["../images/t/b.jpg"], "annotations/x.json", [""]),
    ],
)
def test_other_places(files: list[str], names: list[str], table: str, paths: list[str]) -> None:
    assert found(files, names, table) == paths


def test_two_folders_that_hold_all_are_asked_for() -> None:
    with pytest.raises(BadInput, match="images and small"):
        found(["images/a.jpg", "small/a.jpg"], [A], "annotations/x.json")


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "../../../a.jpg", "x/../../../a.jpg", "/data/a.jpg", "C:\\data\\a.jpg", "c:/a.jpg"]
    + ["http://x/a.jpg", "s3://x/a.jpg", "\\\\host\\a.jpg", "a\0.jpg"],
)
def test_names_that_are_not_relative_paths_in_the_data_set_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="1 file_name outside") as caught:
        found(["a.jpg", "etc/passwd"], [A, name], "annotations/x.json")
    assert "\n" not in str(caught.value)
