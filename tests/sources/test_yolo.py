"""YOLO sets: which pictures, which labels, in which pixels; ultralytics' rules restated, every trap of the layout."""

import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import packer
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, BadInputs, InvalidRequest
from packer.pack import manifest as manifests
from packer.sources._detection import detect
from packer.sources.yolo import Source, recognise
from tests.support.annotated_source import colour, drawn, stored_pixels, with_orientation
from tests.support.archives import pax
from tests.support.command_line import called
from tests.support.layout_trees.yolo import build
from tests.support.source_trees import encoded, picture, tree, write

ROW = "0 0.5 0.5 0.25 0.5\n"
NAMES = "names: [cat, dog]\n"


def small(seed: int = 0) -> bytes:
    return picture(seed, height=20, width=40)


def made(root: Path, yaml: str | None = "train: images\n" + NAMES, **labels: str | None) -> Path:
    """Pictures `images/NAME.png` with these labels, None for no label file."""
    if yaml is not None:
        write(root, {"data.yaml": yaml})
    write(root, {f"images/{name}.png": small(seed) for seed, name in enumerate(labels)})
    return write(root, {f"labels/{name}.txt": text for name, text in labels.items() if text is not None})


def keys(source: Source) -> list[str]:
    return [source.key(row) for row in range(len(source))]


def splits(source: Source) -> dict[str, str]:
    names = source.schema["split"].classes or ()
    return {source.key(row): names[int(source.value(row, "split"))] for row in range(len(source))}


def boxes_in_px(text: str, width: int, height: int) -> npt.NDArray[np.float64]:
    """Restated: the centre less half a side, the centre and half a side, in px of the picture."""
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
    assert source.tables() == (root / "data.yaml",)
    assert source.extras() == ["README.txt", "data.yaml"]


def test_empty_and_missing_label_files_are_background_and_counted_apart(tmp_path: Path) -> None:
    source = Source(made(tmp_path, a=ROW, b="", c="\n", d=None, e=None, f=ROW))
    assert "4 pictures of background: 2 without a label file, 2 with an empty one" in source.notes
    assert [len(source[row]["boxes"]) for row in range(6)] == [1, 0, 0, 0, 0, 1]
    assert [source.missing(row) for row in (0, 1, 2)] == [None] * 3
    assert source.missing(3) == "no label file labels/d.txt: background"


def test_missing_label_files_are_left_out_or_refused_where_the_user_says_so(tmp_path: Path) -> None:
    root = made(tmp_path, a=ROW, b="", c=None)
    skipping = Source(root, missing="skip")
    assert keys(skipping) == ["images/a.png", "images/b.png"]
    assert skipping.left_out == [("images/c.png", "no label file labels/c.txt")]
    assert [len(skipping[row]["boxes"]) for row in range(2)] == [1, 0]
    with pytest.raises(BadInput, match=r"1 picture without a label file: images/c\.png; say --missing keep"):
        Source(root, missing="error")


def test_rows_that_come_twice_are_kept_and_counted(tmp_path: Path) -> None:
    source = Source(made(tmp_path / "in", a=ROW * 3 + "1 0.5 0.5 0.25 0.5\n", b=ROW))
    assert len(source[0]["boxes"]) == 4
    assert source.missing(0) == "2 rows of labels/a.txt there twice: kept"
    summary = packer.convert(source, tmp_path / "a.pack")
    assert summary.incomplete == (("images/a.png", "2 rows of labels/a.txt there twice: kept"),)
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        assert len(dataset[0]["boxes"]) == 4


def test_a_percent_outside_is_kept_and_more_is_a_bad_file(tmp_path: Path) -> None:
    root = made(tmp_path / "in", a="0 1.01 -0.01 0.5 0.5\n", b="0 1.5 0.5 0.1 0.1\n", c=ROW)
    source = Source(root)
    np.testing.assert_array_equal(source[0]["boxes"], boxes_in_px("0 1.01 -0.01 0.5 0.5", 40, 20).astype(np.float32))
    with pytest.raises(BadInput, match=r"labels/b\.txt:1: cannot read the label: 1\.5, expected a share"):
        source[1]
    with pytest.raises(BadInputs, match=r"labels/b\.txt:1"):
        packer.convert(root, tmp_path / "a.pack")
    summary = packer.convert(root, tmp_path / "a.pack", on_error="skip")
    assert [key for key, _ in summary.skipped] == ["images/b.png"]
    assert summary.samples == 2


def test_a_class_that_has_no_name_is_a_bad_file(tmp_path: Path) -> None:
    source = Source(made(tmp_path, a=ROW, b="2 0.5 0.5 0.1 0.1\n"))
    with pytest.raises(BadInput, match=r"labels/b\.txt:1: cannot read the label: class 2, there are 2 classes"):
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
    assert source[1]["polygons"].shape == source[2]["polygons"].shape == (0, 2)
    assert len(source[1]["boxes"]) == 1


def test_oriented_boxes_have_bounds(tmp_path: Path) -> None:
    source = Source(made(tmp_path, a="1 0.5 0.25 0.75 0.5 0.5 0.75 0.25 0.5\n", b=""), task="obb")
    assert source[0]["oriented_boxes"].tolist() == [[[20, 5], [30, 10], [20, 15], [10, 10]]]
    assert source[0]["boxes"].tolist() == [[10, 5, 30, 15]]
    assert source[1]["oriented_boxes"].shape == (0, 4, 2)


@pytest.mark.parametrize("text", ["0 .1 .1 .2 .1 .2 .2 .1 .2\n", ROW + "0 .1 .1 .2 .1 .2 .2 .1 .2\n"])
def test_nine_numbers_are_asked_for(tmp_path: Path, text: str) -> None:
    root = made(tmp_path, a=text)
    with pytest.raises(InvalidRequest, match=r"nine numbers .*cannot decide; say --task obb or --task segment"):
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
        assert "keypoints of two numbers: the files say no visibility" in source.notes


def test_rows_that_nobody_can_tell_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"--task pose needs to know how many keypoints"):
        Source(made(tmp_path / "a", a=ROW), task="pose")
    with pytest.raises(InvalidRequest, match=r"rows of 6 numbers: no boxes"):
        Source(made(tmp_path / "b", a="0 .5 .5 .1 .1 .9\n"))
    with pytest.raises(BadInput, match=r"7 numbers, expected 5: .*--task segment"):
        Source(made(tmp_path / "c", a="0 .1 .1 .2 .1 .2 .2\n"), task="detect")[0]


def test_rows_of_another_task_beyond_those_looked_at_are_bad_files(tmp_path: Path) -> None:
    labels = {f"{number:03}": ROW for number in range(70)} | {"001": "0 .1 .1 .2 .1 .2 .2\n"}
    source = Source(made(tmp_path, **labels))
    assert "polygons" not in source.schema
    with pytest.raises(BadInput, match=r"labels/001\.txt:1: .*--task segment"):
        source[1]
    assert Source(source.root, task="segment")[1]["polygon_box"].tolist() == [0]


# ---- EXIF


def shown_objects(root: Path, orientation: int) -> list[tuple[int, int, int, int]]:
    """A picture of 40 x 24 px as viewers show it, stored turned, with two rectangles in colours of their own."""
    objects = [(4, 2, 12, 8), (20, 10, 36, 20)]
    png = encoded(".png", stored_pixels(drawn((24, 40), objects), orientation))
    rows = [f"0 {(x0 + x1) / 80} {(y0 + y1) / 48} {(x1 - x0) / 40} {(y1 - y0) / 24}\n" for x0, y0, x1, y1 in objects]
    write(root, {"data.yaml": f"train: images\n{NAMES}", "images/a.png": with_orientation(png, orientation)})
    write(root, {"labels/a.txt": "".join(rows)})
    return objects


@pytest.mark.one_in(6)
@pytest.mark.parametrize("exif", ["ignore", "rotate"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_rows_are_shares_of_the_upright_picture(tmp_path: Path, orientation: int, exif: Any) -> None:
    """Whatever the pack stores, the box of each object holds its pixels and no others."""
    objects = shown_objects(tmp_path / "in", orientation)
    np.testing.assert_allclose(Source(tmp_path / "in")[0]["boxes"], np.array(objects), atol=1e-4)
    packer.convert(tmp_path / "in", tmp_path / "a.pack", exif=exif)
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        sample = dataset[0]
    image, boxes = np.asarray(sample["image"]), np.asarray(sample["boxes"])
    for place, box in enumerate(boxes):
        rows, columns = np.nonzero((image == colour(place)).all(axis=-1))
        np.testing.assert_allclose(box, [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], atol=1e-4)


def test_polygons_and_keypoints_move_with_a_turned_picture(tmp_path: Path) -> None:
    """Corners lie on the edges of the pixels, at both ends: that is what `edges` says of them."""
    shown_objects(tmp_path / "in", 6)
    corners = "0 0.1 0.083333333333 0.3 0.083333333333 0.3 0.333333333333 0.1 0.333333333333 0.1 0.2\n"
    write(tmp_path / "in", {"labels/a.txt": corners})
    packer.convert(tmp_path / "in", tmp_path / "a.pack")
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        sample = dataset[0]
    rows, columns = np.nonzero((np.asarray(sample["image"]) == colour(0)).all(axis=-1))
    polygon = np.asarray(sample["polygons"])
    ends = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose([*polygon.min(axis=0), *polygon.max(axis=0)], ends, atol=1e-3)
    np.testing.assert_allclose(np.asarray(sample["boxes"])[0], ends, atol=1e-3)


def test_a_photo_of_a_phone_is_upright_for_its_rows(tmp_path: Path) -> None:
    """Orientation 6 in a JPEG: 40 x 20 px as stored, 20 x 40 as viewers show it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.new("RGB", (40, 20)).save(file, "JPEG", exif=exif)
    root = made(tmp_path, a=ROW)
    write(root, {"images/b.jpg": file.getvalue(), "labels/b.txt": ROW})
    source = Source(root)
    assert source[0]["boxes"].tolist() == [[15, 5, 25, 15]]
    assert source[1]["boxes"].tolist() == [[7.5, 10, 12.5, 30]]


# ---- which pictures


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
def test_splits_are_folders_or_lists_wherever_they_were_written(
    tmp_path: Path, yaml: str, lists: Mapping[str, str]
) -> None:
    files = {f"images/{name}.png": small(seed) for seed, name in enumerate(("a/1", "a/2", "b/3"))}
    write(tmp_path, {**files, "labels/a/1.txt": ROW, "data.yaml": yaml + NAMES})
    if lists:
        write(tmp_path, {**lists, "lists/val.txt": "../images/b/3.png\n"})
    source = Source(tmp_path)
    assert splits(source) == {"images/a/1.png": "train", "images/a/2.png": "train", "images/b/3.png": "val"}
    assert [path.relative_to(tmp_path).as_posix() for path in source.tables()] == [
        "data.yaml",
        *(["train.txt", "lists/val.txt"] if lists else []),
    ]


def test_paths_of_another_machine_are_told(tmp_path: Path) -> None:
    away = "path: /home/me/set of data.yaml is not in the folder that was given: taken for that folder"
    root = made(tmp_path, "path: /home/me/set\ntrain: /home/me/set/images\n" + NAMES, a=ROW)
    assert Source(root).notes[-1] == away
    write(root, {"data.yaml": "path: /home/me/set\ntrain: t.txt\n" + NAMES, "t.txt": "/home/you/set/images/a.png\n"})
    assert Source(root).notes[-2:] == [
        away,
        "1 path begins with /home/you/set/, which is not here: taken without it",
    ]


def test_two_splits_of_one_folder_of_another_machine_are_not_guessed(tmp_path: Path) -> None:
    root = made(tmp_path, "train: /x/a/images/in\nval: /x/b/images/in\n" + NAMES, **{"in/a": ROW})
    with pytest.raises(
        InvalidRequest, match=r"train: /x/a/images/in and val: /x/b/images/in seem to be images/in both"
    ):
        Source(root)
    write(root, {"data.yaml": "train: ../train/images\nval: images\n" + NAMES})
    with pytest.raises(BadInput, match=r"train: \.\./train/images: nothing of that name is here"):
        Source(root)


def test_a_split_that_is_not_there_is_told_or_an_error(tmp_path: Path) -> None:
    root = made(tmp_path / "a", "train: images\ntest: nothing\n" + NAMES, a=ROW)
    assert "split test: nothing is not here: left out" in Source(root).notes
    root = made(tmp_path / "b", "train: images\nval: nothing\n" + NAMES, a=ROW)
    with pytest.raises(BadInput, match=r"data\.yaml: val: nothing: nothing of that name is here; .*--missing skip"):
        Source(root)
    assert splits(Source(root, missing="skip")) == {"images/a.png": "train"}
    with pytest.raises(InvalidRequest, match=r"names no picture that is here, though 1 picture \(\.png 1\) are"):
        Source(made(tmp_path / "c", "test: nothing\n" + NAMES, a=ROW))


def test_pictures_of_a_list_that_are_not_there_are_an_error_or_left_out(tmp_path: Path) -> None:
    root = write(made(tmp_path, "train: t.txt\n" + NAMES, a=ROW), {"t.txt": "images/a.png\nimages/x.png\n"})
    with pytest.raises(BadInput, match=r"1 picture of its lists not there: images/x\.png \(t\.txt:2\)"):
        Source(root)
    source = Source(root, missing="skip")
    assert (keys(source), source.left_out) == (["images/a.png"], [("images/x.png", "named in t.txt:2, and not there")])
    write(root, {"t.txt": "images/a.png\ndata.yaml\n"})
    with pytest.raises(BadInput, match=r"t\.txt:2: names data\.yaml, which is no picture"):
        Source(root)


def test_pictures_in_no_split_are_left_out_and_listed(tmp_path: Path) -> None:
    root = made(tmp_path, "train: images/in\n" + NAMES, **{"in/a": ROW, "b": ROW})
    source = Source(root)
    assert (keys(source), source.left_out) == (["images/in/a.png"], [("images/b.png", "in no split of data.yaml")])
    assert source.extras() == ["data.yaml"]


def test_validation_on_the_training_data_is_packed_once(tmp_path: Path) -> None:
    """As coco8 and coco128 have it: `val` names what `train` names."""
    source = Source(made(tmp_path, "train: images\nval: images\n" + NAMES, a=ROW, b=ROW))
    assert splits(source) == {"images/a.png": "train", "images/b.png": "train"}
    assert "split val names the pictures of train: packed once, as train" in source.notes


def test_a_picture_in_two_splits_is_asked_for(tmp_path: Path) -> None:
    yaml = "train: images\nval: [images/b.png]\n" + NAMES
    root = made(tmp_path, yaml, a=ROW, b=ROW)
    with pytest.raises(BadInput, match=r"1 picture named twice by its splits: images/b\.png \(train, val\)"):
        Source(root)
    assert splits(Source(root, duplicates="first")) == {"images/a.png": "train", "images/b.png": "train"}
    skipping = Source(root, duplicates="skip")
    assert (keys(skipping), skipping.left_out) == (["images/a.png"], [("images/b.png", "named twice by the splits")])


def test_two_pictures_of_one_label_file_contradict_each_other(tmp_path: Path) -> None:
    root = write(made(tmp_path, a=ROW, b=None), {"images/a.jpg": picture(9, suffix=".jpg")})
    with pytest.raises(BadInput, match=r"1 label file of two pictures: labels/a\.txt \(images/a\.jpg, images/a\.png\)"):
        Source(root)


def test_the_last_images_of_the_path_counts(tmp_path: Path) -> None:
    yaml = "train: images/images\n" + NAMES
    write(
        tmp_path,
        {"data.yaml": yaml, "images/images/a.png": small(), "images/labels/a.txt": ROW, "labels/images/a.txt": ""},
    )
    source = Source(tmp_path)
    assert source[0]["files"]["labels_file"] == "images/labels/a.txt"
    assert len(source[0]["boxes"]) == 1


def test_labels_where_ultralytics_does_not_look_are_told(tmp_path: Path) -> None:
    root = write(made(tmp_path, a=ROW, b=None), {"images/b.txt": ROW, "labels/z.txt": ROW})
    notes = Source(root).notes
    assert (
        "1 picture with a text file beside it, such as images/b.txt, and none in labels/b.txt, where ultralytics "
        "looks: background"
    ) in notes
    assert "1 label file of no picture, such as labels/z.txt" in notes
    with pytest.raises(
        InvalidRequest, match=r"no picture has a label file: looked for labels/b\.txt beside images/b\.png"
    ):
        Source(made(tmp_path / "other", b=None))


def test_pictures_in_other_formats_are_no_files_like_others(tmp_path: Path) -> None:
    root = write(made(tmp_path / "in", a=ROW), {"images/b.heic": b"x", "logo.svg": b"<svg/>"})
    source = Source(root)
    assert [name for name, _ in source.unread] == ["images/b.heic"]
    with pytest.raises(BadInput, match="heic"):
        packer.convert(root, tmp_path / "a.pack")


# ---- darknet, and sets that nothing describes


def darknet(root: Path, **files: str | bytes) -> Path:
    """As CVAT and datumaro write it: paths that begin with a `data/` that is not there."""
    write(root, {"obj.data": "classes = 2\ntrain = data/train.txt\nvalid = data/valid.txt\nnames = data/obj.names\n"})
    write(root, {"obj.names": "cat\ndog\n\n", "train.txt": "data/obj_train_data/a.png\n"})
    write(
        root, {"valid.txt": "data/obj_valid_data/b.png\n", "obj_train_data/a.png": small(), "obj_train_data/a.txt": ROW}
    )
    return write(root, {"obj_valid_data/b.png": small(1), "obj_valid_data/b.txt": "1 0.5 0.5 1 1\n", **files})


def test_darknets_sets_have_labels_beside_the_pictures(tmp_path: Path) -> None:
    source = Source(darknet(tmp_path))
    assert splits(source) == {"obj_train_data/a.png": "train", "obj_valid_data/b.png": "valid"}
    assert source.schema["box_labels"].classes == ("cat", "dog")
    assert source[1]["boxes"].tolist() == [[0, 0, 40, 20]]
    assert [path.name for path in source.tables()] == ["obj.data", "obj.names", "train.txt", "valid.txt"]
    assert "4 paths begin with data/, which is not here: taken without it" not in source.notes
    assert any("begin with data/, which is not here" in note for note in source.notes)


def test_darknets_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    root = darknet(tmp_path / "a")
    write(root, {"obj.names": "cat\n"})
    with pytest.raises(BadInput, match=r"obj\.data: classes says 2 classes, names has 1"):
        Source(root)
    (root / "obj.names").unlink()
    with pytest.raises(BadInput, match=r"obj\.data: names: data/obj\.names is not there"):
        Source(root)
    root = write(tmp_path / "b", {"obj.data": "train = t.txt\nnames = n\n", "t.txt": "images/a.png\n", "n": "cat\n"})
    write(root, {"images/a.png": small(), "images/a.txt": ROW, "labels/a.txt": ROW})
    with pytest.raises(BadInput, match=r"images/a\.png: two label files: images/a\.txt, labels/a\.txt"):
        Source(root)


def test_a_set_without_a_description_has_classes_by_number(tmp_path: Path) -> None:
    root = made(tmp_path / "a", None, **{"train/a": ROW, "val/b": "7 0.5 0.5 1 1\n"})
    source = Source(root)
    assert splits(source) == {"images/train/a.png": "train", "images/val/b.png": "val"}
    assert source.schema["box_labels"].classes is None
    assert source[1]["box_labels"].tolist() == [7]
    write(root, {"classes.txt": "\n".join("abcdefgh")})
    assert Source(root).schema["box_labels"].classes == tuple("abcdefgh")
    write(root, {"labels/classes.txt": "a\n"})
    with pytest.raises(BadInput, match=r"classes\.txt, labels/classes\.txt name other classes each"):
        Source(root)


# ---- recognising


def detected(root: Path) -> str:
    return detect(root)[0]


def test_sets_are_recognised_by_their_description_or_by_their_rows(tmp_path: Path) -> None:
    assert detected(build(tmp_path / "yaml")) == "yolo"
    assert detected(darknet(tmp_path / "darknet")) == "yolo"
    assert detected(made(tmp_path / "rows", None, a=ROW, b="")) == "yolo"
    other = made(tmp_path / "other", None, a=ROW)
    write(other, {"coco8.yaml": "val: images\nnc: 2\n"})
    assert detect(other) == ("yolo", "YOLO set: 1 picture, 1 label file, coco8.yaml")
    third = darknet(tmp_path / "third")
    (third / "obj.data").rename(third / "voc.data")
    assert detected(third) == "yolo"


def test_what_only_looks_alike_is_none(tmp_path: Path) -> None:
    for number, text in enumerate(["a cat on a mat\n", "0 10 10 20 20\n", "0.5 0.5 0.5 0.5 0.5\n", "1 2 3 4\n", ""]):
        root = made(tmp_path / str(number), None, a=text)
        assert detected(root) == "folder"
    write(tmp_path / "c", {"cat/1.png": small(), "dog/2.png": small(), "dvc.yaml": "stages: {}\n", "data.yaml": "x"})
    assert detected(tmp_path / "c") == "folder"
    assert recognise(["data.yaml", "images/a.png"]) is None


def test_options_of_others_rule_it_out(tmp_path: Path) -> None:
    root = made(tmp_path, None, a=ROW)
    assert detect(root, given={"classes": "none"})[0] == "folder"
    assert SourceSpec("auto", {"task": "segment"}).open(root)[0].kind == "yolo"


def test_splits_that_are_asked_for_come_instead_of_the_sets_own(tmp_path: Path) -> None:
    source, _ = SourceSpec("auto", splits=("one=0.5", "two=0.5")).open(build(tmp_path))
    assert source.schema["split"].classes == ("one", "two")
    assert sorted(source.value(row, "split") for row in range(len(source))) == [0, 0, 1, 1]


def test_a_set_that_coco_knows_too_is_asked_about(tmp_path: Path) -> None:
    root = build(tmp_path)
    write(root, {"annotations/instances_val.json": '{"images": [], "annotations": [], "categories": []}'})
    with pytest.raises(InvalidRequest, match=r"cannot decide what it is; .*--from coco .*--from yolo"):
        detect(root)


def test_several_descriptions_are_asked_for(tmp_path: Path) -> None:
    yaml = "train: images\n" + NAMES
    root = write(made(tmp_path, None, a=ROW), {"a.yaml": yaml, "b.yaml": yaml, "c.yaml": "x: 1\n"})
    with pytest.raises(InvalidRequest, match=r"a\.yaml, b\.yaml each describe a YOLO set: cannot decide which"):
        Source(root)
    write(root, {"data.yaml": yaml})
    assert len(Source(root)) == 1


# ---- packs


def files_of(root: Path) -> Iterator[tuple[str, str]]:
    for name, data in tree(root).items():
        yield name.decode(), hashlib.sha256(data).hexdigest()


def test_the_files_of_the_source_stay_as_they_are(tmp_path: Path) -> None:
    """ultralytics writes JPEGs anew that lack their end mark, and label caches; packer opens nothing to write."""
    root = build(tmp_path / "in")
    jpeg = picture(5, suffix=".jpg", height=32, width=64)
    assert jpeg[-2:] == b"\xff\xd9"
    write(root, {"images/train/e.jpg": jpeg[:-2], "labels/train/e.txt": ROW})
    before = dict(files_of(root))
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    packer.convert(root, tmp_path / "a.pack", on_error="skip")
    assert dict(files_of(root)) == before
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == times


def test_a_pack_gives_its_tree_back(tmp_path: Path) -> None:
    root = build(tmp_path / "in")
    packer.convert(root, tmp_path / "a.pack")
    assert not packer.verify(tmp_path / "a.pack", depth="data", source=root).problems
    packer.extract(tmp_path / "a.pack", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(root)


def test_a_tar_of_a_set_is_the_set(tmp_path: Path) -> None:
    root = build(tmp_path / "in")
    packer.convert(root, tmp_path / "a.pack")
    packer.convert(pax(root, tmp_path / "data"), tmp_path / "b.pack")
    first, second = manifests.read(tmp_path / "a.pack"), manifests.read(tmp_path / "b.pack")
    assert first.pack_id == second.pack_id
    assert first.source["kind"] == second.source["kind"] == "yolo"


def test_the_command_line_packs_a_set(tmp_path: Path) -> None:
    root = made(tmp_path / "in", a="0 .1 .1 .2 .1 .2 .2 .1 .2\n", b=None)
    asked = called("convert", root, tmp_path / "a.pack")
    assert isinstance(asked.exception, InvalidRequest)
    assert "say --task obb or --task segment" in asked.exception.message
    done = called("convert", root, tmp_path / "a.pack", "--task", "obb", "--missing", "skip")
    assert done.exit_code == 0, done.output
    assert "YOLO set: 2 pictures, 1 label file, data.yaml" in done.output + done.stderr
    assert not packer.verify(tmp_path / "a.pack", depth="data", source=root).problems
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        assert len(dataset) == 1
        assert np.asarray(dataset[0]["oriented_boxes"]).shape == (1, 4, 2)


def test_boxes_that_a_crop_drops_take_their_polygons_along(tmp_path: Path) -> None:
    from packer.geometry import BoxRule, CenterCrop  # noqa: PLC0415

    root = made(tmp_path / "in", a="0 0 0 0.1 0 0.1 0.2\n1 0.4 0.3 0.6 0.3 0.6 0.7 0.4 0.7\n")
    packer.convert(root, tmp_path / "a.pack", kind="yolo", task="segment")
    with packer.open(
        tmp_path / "a.pack", output="numpy", geometry=CenterCrop(16), boxes=BoxRule(clip=True, least_visible=0.5)
    ) as dataset:
        sample = dataset[0]
    assert np.asarray(sample["box_labels"]).tolist() == [1]
    np.testing.assert_allclose(np.asarray(sample["boxes"]), [[4, 4, 12, 12]], atol=1e-3)
    np.testing.assert_allclose(np.asarray(sample["polygons"]), [[4, 4], [12, 4], [12, 12], [4, 12]], atol=1e-3)
    assert np.asarray(sample["polygon_box"]).tolist() == [0]


def test_other_names_and_label_files_in_other_case_are_said(tmp_path: Path) -> None:
    root = made(tmp_path, "train: images\nnames: [a, b, a]\n", a="0 0.5 0.5 0.1 0.1\n", b=None)
    write(root, {"classes.txt": "x\ny\n", "labels/b.TXT": "0 0.5 0.5 0.1 0.1\n"})
    notes = " | ".join(Source(root).notes)
    assert "classes of one name with several numbers, which stay classes of their own: a" in notes
    assert "classes.txt: other classes than in data.yaml, whose names are taken" in notes
    assert "1 label file in other letter case than ultralytics looks for, such as labels/b.txt: labels/b.TXT" in notes


def test_a_second_description_with_other_names_is_said(tmp_path: Path) -> None:
    root = made(tmp_path, "train: images\nnames: [a, b]\n", a="0 0.5 0.5 0.1 0.1\n")
    write(root, {"same.yaml": "train: images\nnames: {0: a, 1: b}\n", "training.yaml": "epochs: 3\n"})
    assert not any("whose names are taken" in note for note in Source(root).notes)
    write(root, {"other.yaml": "train: images\nnames: [x, y]\n"})
    notes = Source(root).notes
    assert "other.yaml: other classes than in data.yaml, whose names are taken" in notes
