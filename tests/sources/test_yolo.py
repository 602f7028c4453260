"""YOLO sets: images, labels and pixels; the rules of ultralytics restated, every trap of the layout."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import packer
from packer.errors import BadInput, BadInputs, InvalidRequest
from packer.sources._recognition import detect
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.annotations.yolo import Source
from tests.support.annotated_source import color, drawn, stored_pixels, with_orientation
from tests.support.layout_trees.yolo import build
from tests.support.source_trees import encoded, image, keys, tree, write

TREE = SourceRoot(Path())

ROW = "0 0.5 0.5 0.25 0.5\n"
NAMES = "names: [cat, dog]\n"


def small(seed: int = 0) -> bytes:
    return image(seed, height=20, width=40)


def made(root: Path, yaml: str | None = "train: images\n" + NAMES, **labels: str | None) -> Path:
    """Images `images/NAME.png` with these labels, None for no label file."""
    if yaml is not None:
        write(root, {"data.yaml": yaml})
    write(root, {f"images/{name}.png": small(seed) for seed, name in enumerate(labels)})
    return write(root, {f"labels/{name}.txt": text for name, text in labels.items() if text is not None})


def splits(source: Source) -> dict[str, str]:
    names = source.schema["split"].classes or ()
    return {source.key(row): names[int(source.value(row, "split"))] for row in range(len(source))}


def boxes_in_px(text: str, width: int, height: int) -> npt.NDArray[np.float64]:
    """The center minus and plus half a side, in px of the image."""
    found = []
    for line in text.splitlines():
        _, x, y, w, h = map(float, line.split())
        found.append([(x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height])
    return np.array(found).reshape(-1, 4)


# ---- what a sample is


def test_a_set_is_read_as_its_files_say(tmp_path: Path) -> None:
    root = build(tmp_path / "set")
    source = Source(root)
    assert keys(source) == ["images/train/a.png", "images/train/b.png", "images/train/d.png", "images/val/c.png"]
    assert list(splits(source).values()) == ["train", "train", "train", "val"]
    assert source.schema["box_labels"].classes == ("person", "traffic light", "cup")
    for row, key in enumerate(keys(source)):
        sample = source[row]
        label = root / key.replace("images", "labels").replace(".png", ".txt")
        text = label.read_text() if label.exists() else ""
        assert sample["image"] == (root / key).read_bytes()
        assert sample["labels_file"] == text.encode()
        np.testing.assert_array_equal(sample["boxes"], boxes_in_px(text, 64, 32).astype(np.float32))
        assert sample["box_labels"].tolist() == [int(line.split()[0]) for line in text.splitlines()]
        assert (sample["boxes"].dtype, sample["boxes"].shape[1:]) == (np.float32, (4,))
    assert source[0]["files"] == {"image": "images/train/a.png", "labels_file": "labels/train/a.txt"}
    assert source[2]["files"] == {"image": "images/train/d.png"}
    assert source.tables == ["data.yaml"]
    assert source.extras == ["README.txt", "data.yaml"]


def test_empty_and_missing_label_files_are_background_and_counted_apart(tmp_path: Path) -> None:
    source = Source(made(tmp_path, a=ROW, b="", c="\n", d=None, e=None, f=ROW))
    assert any("4 images of background: 2 without a label file, 2 with an empty one" in note for note in source.notes)
    assert [len(source[row]["boxes"]) for row in range(6)] == [1, 0, 0, 0, 0, 1]
    assert [source.missing(row) for row in (0, 1, 2)] == [None] * 3
    assert "background" in str(source.missing(3))


def test_images_without_a_label_file_are_skipped_or_an_error(tmp_path: Path) -> None:
    root = made(tmp_path, a=ROW, b="", c=None)
    skipping = Source(root, missing="skip")
    assert keys(skipping) == ["images/a.png", "images/b.png"]
    assert [key for key, _ in skipping.left_out] == ["images/c.png"]
    assert [len(skipping[row]["boxes"]) for row in range(2)] == [1, 0]
    with pytest.raises(BadInput, match=r"images/c\.png; .*--missing keep"):
        Source(root, missing="error")


def test_rows_that_come_twice_are_kept_and_counted(tmp_path: Path) -> None:
    source = Source(made(tmp_path / "in", a=ROW * 3 + "1 0.5 0.5 0.25 0.5\n", b=ROW))
    assert len(source[0]["boxes"]) == 4
    assert "2 repeated rows" in str(source.missing(0))
    summary = packer.convert(source, tmp_path / "a.pack")
    assert [key for key, _ in summary.incomplete] == ["images/a.png"]
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        assert len(dataset[0]["boxes"]) == 4


def test_a_percent_outside_is_kept_and_more_is_a_bad_file(tmp_path: Path) -> None:
    root = made(tmp_path / "in", a="0 1.01 -0.01 0.5 0.5\n", b="0 1.5 0.5 0.1 0.1\n", c=ROW)
    source = Source(root)
    np.testing.assert_array_equal(source[0]["boxes"], boxes_in_px("0 1.01 -0.01 0.5 0.5", 40, 20).astype(np.float32))
    with pytest.raises(BadInput, match=r"labels/b\.txt:1: .*share"):
        source[1]
    with pytest.raises(BadInputs, match=r"labels/b\.txt:1"):
        packer.convert(root, tmp_path / "a.pack")
    summary = packer.convert(root, tmp_path / "a.pack", on_error="skip")
    assert [key for key, _ in summary.skipped] == ["images/b.png"]
    assert summary.samples == 2


def test_a_class_that_has_no_name_is_a_bad_file(tmp_path: Path) -> None:
    source = Source(made(tmp_path, a=ROW, b="2 0.5 0.5 0.1 0.1\n"))
    with pytest.raises(BadInput, match=r"labels/b\.txt:1: .*class 2"):
        source[1]


# ---- what the rows are


def test_polygons_lie_one_behind_the_other(tmp_path: Path) -> None:
    source = Source(made(tmp_path, a="1 0 0 0.5 0 0.5 1\n0 0.5 0.5 1 1\n0 .1 .2 .3 .2 .3 .4 .1 .4\n", b=ROW, c=None))
    sample = source[0]
    assert sample["boxes"].tolist() == [[0, 0, 20, 20], [0, 0, 40, 20], [4, 4, 12, 8]]
    np.testing.assert_allclose(
        sample["polygons"], np.array([[0, 0], [20, 0], [20, 20], [4, 4], [12, 4], [12, 8], [4, 8]])
    )
    assert (sample["polygon_starts"].tolist(), sample["polygon_box"].tolist()) == ([0, 3], [0, 2])
    assert source.schema["polygons"].edges
    assert source[1]["polygons"].shape == source[2]["polygons"].shape == (0, 2)
    assert len(source[1]["boxes"]) == 1


def test_oriented_boxes_have_bounds(tmp_path: Path) -> None:
    source = Source(made(tmp_path, a="1 0.5 0.25 0.75 0.5 0.5 0.75 0.25 0.5\n", b=""), task="obb")
    assert source.schema["oriented_boxes"].shape == (None, 4, 2)
    assert source[0]["oriented_boxes"].tolist() == [[[20, 5], [30, 10], [20, 15], [10, 10]]]
    assert source[0]["boxes"].tolist() == [[10, 5, 30, 15]]
    assert source[1]["oriented_boxes"].shape == (0, 4, 2)


@pytest.mark.parametrize("text", ["0 .1 .1 .2 .1 .2 .2 .1 .2\n", ROW + "0 .1 .1 .2 .1 .2 .2 .1 .2\n"])
def test_nine_numbers_are_ambiguous(tmp_path: Path, text: str) -> None:
    root = made(tmp_path, a=text)
    with pytest.raises(InvalidRequest, match=r"--task obb"):
        Source(root)
    assert "polygons" in Source(root, task="segment").schema


def test_nine_numbers_among_others_are_polygons(tmp_path: Path) -> None:
    source = Source(made(tmp_path, a="0 .1 .1 .2 .1 .2 .2 .1 .2\n0 .1 .1 .2 .1 .2 .2\n", b=ROW))
    assert source[0]["polygon_starts"].tolist() == [0, 4]


@pytest.mark.parametrize("numbers", [2, 3])
def test_keypoints_have_a_visibility_where_the_file_has_it(tmp_path: Path, numbers: int) -> None:
    yaml = f"train: images\nkpt_shape: [2, {numbers}]\nkpt_names: {{0: [nose, tail]}}\n{NAMES}"
    row = "0 0.5 0.5 0.5 0.5 0.25 0.5 2 0.75 1 0" if numbers == 3 else "0 0.5 0.5 0.5 0.5 0.25 0.5 0.75 1"
    source = Source(made(tmp_path, yaml, a=f"{row}\n", b=""))
    assert source[0]["keypoints"].tolist() == [[[10, 10], [30, 20]]]
    assert source[0]["boxes"].tolist() == [[10, 5, 30, 15]]
    assert source.schema["keypoints"].classes == ("nose", "tail")
    assert source.schema["keypoints"].edges
    assert source[1]["keypoints"].shape == (0, 2, 2)
    if numbers == 3:
        assert source[0]["keypoint_visibility"].tolist() == [[2, 0]]
        assert source[1]["keypoint_visibility"].shape == (0, 2)
    else:
        assert "keypoint_visibility" not in source.schema


def test_rows_of_another_task_are_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="kpt_shape"):
        Source(made(tmp_path / "a", a=ROW), task="pose")
    with pytest.raises(BadInput, match=r"a\.txt:1: .*6 numbers"):
        Source(made(tmp_path / "b", a="0 .5 .5 .1 .1 .9\n"))[0]
    labels = {f"{number:03}": ROW for number in range(70)} | {"001": "0 .1 .1 .2 .1 .2 .2\n"}
    source = Source(made(tmp_path / "c", **labels))
    assert "polygons" not in source.schema
    with pytest.raises(BadInput, match=r"labels/001\.txt:1: .*--task"):
        source[1]
    assert Source(source.root, task="segment")[1]["polygon_box"].tolist() == [0]


# ---- EXIF


def shown_objects(root: Path, orientation: int) -> list[tuple[int, int, int, int]]:
    """An image of 40 x 24 px as viewers show it, stored rotated, with two rectangles in colors of their own."""
    objects = [(4, 2, 12, 8), (20, 10, 36, 20)]
    png = encoded(".png", stored_pixels(drawn((24, 40), objects), orientation))
    rows = [f"0 {(x0 + x1) / 80} {(y0 + y1) / 48} {(x1 - x0) / 40} {(y1 - y0) / 24}\n" for x0, y0, x1, y1 in objects]
    write(root, {"data.yaml": f"train: images\n{NAMES}", "images/a.png": with_orientation(png, orientation)})
    write(root, {"labels/a.txt": "".join(rows)})
    return objects


@pytest.mark.one_in(6)
@pytest.mark.parametrize("exif", ["ignore", "rotate"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_rows_are_shares_of_the_upright_image(tmp_path: Path, orientation: int, exif: Any) -> None:
    """For both values of exif, the box of each object contains exactly its pixels."""
    objects = shown_objects(tmp_path / "in", orientation)
    np.testing.assert_allclose(Source(tmp_path / "in")[0]["boxes"], np.array(objects), atol=1e-4)
    packer.convert(tmp_path / "in", tmp_path / "a.pack", exif=exif)
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        sample = dataset[0]
    image, boxes = np.asarray(sample["image"]), np.asarray(sample["boxes"])
    for place, box in enumerate(boxes):
        rows, columns = np.nonzero((image == color(place)).all(axis=-1))
        np.testing.assert_allclose(box, [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], atol=1e-4)


# ---- which images


@pytest.mark.parametrize(
    ("yaml", "lists"),
    [
        ("train: images/a\nval: images/b\n", {}),
        ("train: [images/a]\nval:\n  - images/b\n", {}),
        ("path: .\ntrain: ./images/a/\nval: images/b\n", {}),
        ("path: ../datasets/x # there\ntrain: images/a\nval: images/b\n", {}),
        ("path: /home/me/x\ntrain: /home/me/x/images/a\nval: images/b\n", {}),
        ("path: images\ntrain: a\nval: b\n", {}),
        ("train: ../images/a\nval: ../images/b\ntest: ../test/images\n", {}),
        ("train: train.txt\nval: lists/val.txt\n", {"train.txt": "./images/a/1.png\nimages/a/2.png\n"}),
        ("train: train.txt\nval: lists/val.txt\n", {"train.txt": "data/images/a/2.png\r\n\r\ndata/images/a/1.png"}),
        ("train: train.txt\nval: lists/val.txt\n", {"train.txt": "/x/images/a/1.png\nD:\\x\\images\\a\\2.png\n"}),
        ("train: [images/a/1.png, images/a/2.png]\nval: images/b\n", {}),
    ],
)
def test_splits_are_folders_or_lists_also_of_other_machines(
    tmp_path: Path, yaml: str, lists: Mapping[str, str]
) -> None:
    files = {f"images/{name}.png": small(seed) for seed, name in enumerate(("a/1", "a/2", "b/3"))}
    write(tmp_path, {**files, "labels/a/1.txt": ROW, "data.yaml": yaml + NAMES})
    if lists:
        write(tmp_path, {**lists, "lists/val.txt": "../images/b/3.png\n"})
    source = Source(tmp_path)
    assert splits(source) == {"images/a/1.png": "train", "images/a/2.png": "train", "images/b/3.png": "val"}
    assert source.tables == [
        "data.yaml",
        *(["train.txt", "lists/val.txt"] if lists else []),
    ]


def test_two_paths_of_one_folder_are_duplicates(tmp_path: Path) -> None:
    root = made(tmp_path, "train: /x/a/images/in\nval: /x/b/images/in\n" + NAMES, **{"in/a": ROW})
    with pytest.raises(BadInput, match="--duplicates"):
        Source(root)
    write(root, {"data.yaml": "train: ../train/images\nval: images\n" + NAMES})
    with pytest.raises(BadInput, match=r"\.\./train/images \(train\)"):
        Source(root)


def test_a_split_that_does_not_exist_is_noted_or_an_error(tmp_path: Path) -> None:
    root = made(tmp_path / "a", "train: images\ntest: nothing\n" + NAMES, a=ROW)
    assert any("split test" in note for note in Source(root).notes)
    root = made(tmp_path / "b", "train: images\nval: nothing\n" + NAMES, a=ROW)
    with pytest.raises(BadInput, match=r"nothing \(val\).*--missing skip"):
        Source(root)
    assert splits(Source(root, missing="skip")) == {"images/a.png": "train"}
    with pytest.raises(InvalidRequest, match="not a YOLO"):
        Source(made(tmp_path / "c", "test: nothing\n" + NAMES, a=ROW))


def test_lines_of_a_list_without_a_file_are_an_error_or_skipped(tmp_path: Path) -> None:
    root = write(made(tmp_path, "train: t.txt\n" + NAMES, a=ROW), {"t.txt": "images/a.png\nimages/x.png\ndata.yaml\n"})
    with pytest.raises(BadInput, match=r"1 path.*images/x\.png \(t\.txt:2\)"):
        Source(root)
    source = Source(root, missing="skip")
    assert (keys(source), [name for name, _ in source.left_out]) == (["images/a.png"], ["images/x.png"])
    write(root, {"t.txt": "/home/you/set/images/a.png\n"})
    assert keys(Source(root)) == ["images/a.png"]


def test_images_in_no_split_are_skipped(tmp_path: Path) -> None:
    source = Source(made(tmp_path, "train: images/in\n" + NAMES, **{"in/a": ROW, "b": ROW}))
    assert (keys(source), [name for name, _ in source.left_out]) == (["images/in/a.png"], ["images/b.png"])
    assert source.extras == ["data.yaml"]


def test_validation_on_the_training_data_is_packed_once(tmp_path: Path) -> None:
    """In coco8 and coco128, `val` has the path of `train`."""
    source = Source(made(tmp_path, "train: images\nval: images\n" + NAMES, a=ROW, b=ROW))
    assert splits(source) == {"images/a.png": "train", "images/b.png": "train"}
    assert any("split val" in note for note in source.notes)


def test_an_image_in_two_splits_is_an_error_unless_an_option_is_set(tmp_path: Path) -> None:
    root = made(tmp_path, "train: images\nval: [images/b.png]\n" + NAMES, a=ROW, b=ROW)
    with pytest.raises(BadInput, match=r"images/b\.png \(train, val\)"):
        Source(root)
    assert splits(Source(root, duplicates="first")) == {"images/a.png": "train", "images/b.png": "train"}
    skipping = Source(root, duplicates="skip")
    assert (keys(skipping), [name for name, _ in skipping.left_out]) == (["images/a.png"], ["images/b.png"])


def test_two_images_with_one_label_file_are_an_error(tmp_path: Path) -> None:
    root = write(made(tmp_path, a=ROW, b=None), {"images/a.jpg": image(9, suffix=".jpg")})
    with pytest.raises(BadInput, match=r"labels/a\.txt \(images/a\.jpg, images/a\.png\)"):
        Source(root)


def test_text_files_of_no_image_are_noted(tmp_path: Path) -> None:
    more = {"images/b.txt": ROW, "labels/z.txt": ROW, "labels/b.TXT": ROW, "labels/images/a.txt": ROW}
    root = write(made(tmp_path, a=ROW, b=None), more)
    assert any(
        "3 text files of no image: images/b.txt, labels/b.TXT, labels/z.txt" in note for note in Source(root).notes
    )
    with pytest.raises(InvalidRequest, match="not a YOLO.*2 files"):
        Source(made(tmp_path / "other", b=None))


def test_images_in_other_formats_are_unreadable_if_a_split_has_them(tmp_path: Path) -> None:
    root = write(made(tmp_path / "in", a=ROW), {"images/b.heic": b"x", "logo.svg": b"<svg/>", "c.heic": b"x"})
    source = Source(root)
    assert [name for name, _ in source.unread] == ["images/b.heic"]
    with pytest.raises(BadInput, match="heic"):
        packer.convert(root, tmp_path / "a.pack")


# ---- darknet, and sets without a description


def darknet(root: Path, **files: str | bytes) -> Path:
    """A set as CVAT and datumaro write it: the paths begin with a folder `data` that does not exist."""
    write(root, {"obj.data": "classes = 2\ntrain = data/train.txt\nvalid = data/valid.txt\nnames = data/obj.names\n"})
    write(root, {"obj.names": "cat\ndog\n\n", "train.txt": "data/obj_train_data/a.png\n"})
    write(
        root, {"valid.txt": "data/obj_valid_data/b.png\n", "obj_train_data/a.png": small(), "obj_train_data/a.txt": ROW}
    )
    return write(root, {"obj_valid_data/b.png": small(1), "obj_valid_data/b.txt": "1 0.5 0.5 1 1\n", **files})


def test_sets_of_darknet_have_labels_next_to_the_images(tmp_path: Path) -> None:
    source = Source(darknet(tmp_path))
    assert splits(source) == {"obj_train_data/a.png": "train", "obj_valid_data/b.png": "valid"}
    assert source.schema["box_labels"].classes == ("cat", "dog")
    assert source[1]["boxes"].tolist() == [[0, 0, 40, 20]]
    assert source.tables == ["obj.data", "obj.names", "train.txt", "valid.txt"]


def test_darknets_labels_are_preferred_and_its_list_of_classes_must_exist(tmp_path: Path) -> None:
    root = darknet(tmp_path / "a")
    (root / "obj.names").unlink()
    with pytest.raises(BadInput, match=r"obj\.data: names: data/obj\.names"):
        Source(root)
    root = write(tmp_path / "b", {"obj.data": "train = t.txt\nnames = n\n", "t.txt": "images/a.png\n", "n": "cat\n"})
    write(root, {"images/a.png": small(), "images/a.txt": ROW, "labels/a.txt": ROW})
    assert Source(root)[0]["files"]["labels_file"] == "labels/a.txt"


def test_a_set_without_a_description_has_classes_by_number(tmp_path: Path) -> None:
    root = made(tmp_path / "a", None, **{"train/a": ROW, "val/b": "7 0.5 0.5 1 1\n"})
    source = Source(root)
    assert splits(source) == {"images/train/a.png": "train", "images/val/b.png": "val"}
    assert source.schema["box_labels"].classes is None
    assert source[1]["box_labels"].tolist() == [7]
    write(root, {"classes.txt": "\n".join("abcdefgh")})
    assert Source(root).schema["box_labels"].classes == tuple("abcdefgh")
    write(root, {"labels/classes.txt": "a\n"})
    with pytest.raises(BadInput, match=r"classes\.txt, labels/classes\.txt"):
        Source(root)


# ---- recognition


def detected(root: Path) -> str:
    return detect(root)[0]


def test_sets_are_recognized_by_their_description_or_by_their_rows(tmp_path: Path) -> None:
    assert detected(build(tmp_path / "yaml")) == "yolo"
    assert detected(darknet(tmp_path / "darknet")) == "yolo"
    assert detected(made(tmp_path / "rows", None, a=ROW, b="")) == "yolo"
    other = made(tmp_path / "other", None, a=ROW)
    write(other, {"coco8.yaml": "val: images\nnc: 2\n"})
    assert detect(other) == ("yolo", "YOLO set: 1 image, 1 label file, coco8.yaml")
    third = darknet(tmp_path / "third")
    (third / "obj.data").rename(third / "voc.data")
    assert detected(third) == "yolo"


def test_other_text_files_are_not_recognized(tmp_path: Path) -> None:
    for number, text in enumerate(["a cat on a mat\n", "0 10 10 20 20\n", "0.5 0.5 0.5 0.5 0.5\n", "1 2 3 4\n", ""]):
        root = made(tmp_path / str(number), None, a=text)
        assert detected(root) == "folder"
    write(tmp_path / "c", {"cat/1.png": small(), "dog/2.png": small(), "dvc.yaml": "stages: {}\n", "data.yaml": "x"})
    assert detected(tmp_path / "c") == "folder"
    assert Source.recognize(TREE, ["data.yaml", "images/a.png"]) is None


def test_several_descriptions_are_ambiguous(tmp_path: Path) -> None:
    yaml = "train: images\n" + NAMES
    root = write(made(tmp_path, None, a=ROW), {"a.yaml": yaml, "b.yaml": yaml, "c.yaml": "x: 1\n"})
    with pytest.raises(InvalidRequest, match=r"a\.yaml, b\.yaml"):
        Source(root)
    write(root, {"data.yaml": yaml})
    assert len(Source(root)) == 1


# ---- packs


def test_the_files_of_the_source_stay_as_they_are(tmp_path: Path) -> None:
    """ultralytics rewrites JPEGs without an end mark, and writes label caches; packer writes nothing."""
    root = build(tmp_path / "in")
    jpeg = image(5, suffix=".jpg", height=32, width=64)
    assert jpeg[-2:] == b"\xff\xd9"
    write(root, {"images/train/e.jpg": jpeg[:-2], "labels/train/e.txt": ROW})
    before = tree(root)
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    packer.convert(root, tmp_path / "a.pack", on_error="skip")
    assert tree(root) == before
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == times
