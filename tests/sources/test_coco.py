"""COCO as a source, compared with a reading of the JSON files in a few lines of its own."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import packer
from packer.conversion.convert import convert
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, BadInputs, InvalidRequest
from packer.geometry import BoxRule
from packer.pack import manifest as manifests
from packer.sources._recognition import detect
from packer.sources.annotations.coco import Source
from packer.sources.base import Sample
from tests.sources.test_rle_and_panoptic import text_of
from tests.support.foreign_environments import said_by
from tests.support.image_files import colors, oriented
from tests.support.layout_trees.coco import annotations, build, image_entry, thing
from tests.support.source_trees import encoded, image, write

IMAGE = image(1, suffix=".jpg")


def one(root: Path, images: list[dict[str, Any]], things: list[dict[str, Any]], **members: Any) -> Path:
    """A set of one annotation file, and an image for each entry of `images`."""
    files = {f"images/{entry['file_name']}": IMAGE for entry in images}
    return write(root, {**files, "annotations/instances_all.json": annotations(images, things, **members)})


def samples(source: Source) -> dict[str, Sample]:
    return {source.key(index): source[index] for index in range(len(source))}


def expected(path: Path) -> dict[str, dict[str, Any]]:
    """By file name what a file says of the objects of an image, read with json alone."""
    data = json.loads(path.read_text())
    names = {category["id"]: category["name"] for category in data["categories"]}
    found: dict[str, dict[str, Any]] = {}
    for entry in data["images"]:
        things = [thing for thing in data["annotations"] if thing["image_id"] == entry["id"]]
        found[entry["file_name"]] = {
            "image_id": entry["id"],
            "names": [names[thing["category_id"]] for thing in things],
            "ids": [thing["id"] for thing in things],
            "crowd": [thing["iscrowd"] for thing in things],
            "boxes": [[x, y, x + w, y + h] for x, y, w, h in (thing["bbox"] for thing in things)],
            "polygons": [
                (at, polygon)
                for at, thing in enumerate(things)
                if isinstance(thing["segmentation"], list)
                for polygon in thing["segmentation"]
            ],
        }
    return found


def polygons_of(sample: Sample) -> list[tuple[int, list[float]]]:
    pieces = np.split(sample["polygons"], sample["polygon_starts"])[1:]
    return [(int(owner), piece.ravel().tolist()) for owner, piece in zip(sample["polygon_box"], pieces, strict=True)]


def mask_of(counts: npt.NDArray[np.int32], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """As docs/pack/sources/coco.md has it."""
    values = np.repeat(np.arange(len(counts)) % 2, counts)
    return values.reshape(size[1], size[0]).T.astype(np.uint8)


def test_every_object_is_where_the_file_says(tmp_path: Path) -> None:
    source = Source(build(tmp_path))
    names = source.schema["box_labels"].classes
    assert names == ("cat", "cup", "toothbrush")
    assert source.schema["split"].classes == ("train2017", "val2017")
    assert source.schema["polygons"].edges
    assert any("1 image without objects" in note for note in source.notes)
    found = samples(source)
    assert [*found] == [  # by split and image id, as torchvision has them
        *("train2017/000002.jpg", "train2017/000005.jpg", "train2017/000009.jpg", "val2017/000007.jpg"),
    ]
    assert found["train2017/000009.jpg"]["category_ids"].tolist() == [90, 4]
    seen = 0
    for number, split in enumerate(("train2017", "val2017")):
        for name, truth in expected(tmp_path / f"annotations/instances_{split}.json").items():
            sample = found.pop(f"{split}/{name}")
            seen += 1
            assert sample["image"] == (tmp_path / split / name).read_bytes()
            assert (sample["image_id"], sample["split"]) == (truth["image_id"], number)
            assert [names[label] for label in sample["box_labels"]] == truth["names"]
            assert sample["annotation_ids"].tolist() == truth["ids"]
            assert sample["box_crowd"].tolist() == truth["crowd"]
            assert sample["boxes"].shape == (len(truth["boxes"]), 4)
            assert sample["boxes"].tolist() == truth["boxes"]
            assert polygons_of(sample) == truth["polygons"]
    assert (seen, found) == (4, {})


def test_run_lengths_of_a_crowd_in_a_list_and_in_a_text_are_one_mask(tmp_path: Path) -> None:
    counts = [48 * 10, 48 * 5, 48 * 49]
    runs = [{"size": [48, 64], "counts": counts}, {"size": [48, 64], "counts": text_of(counts)}]
    things = [thing(at, 1, 4, [10, 0, 5, 48], segmentation=found, iscrowd=1) for at, found in enumerate(runs)]
    root = one(tmp_path / "in", [image_entry(1, "a.jpg")], [thing(9, 1, 0, [0, 0, 2, 2]), *things])
    sample = Source(root)[0]
    assert sample["run_box"].tolist() == [1, 2]
    assert sample["run_starts"].tolist() == [0, 3]
    assert sample["run_sizes"].tolist() == [[48, 64], [48, 64]]
    wanted = np.zeros((48, 64), np.uint8)
    wanted[:, 10:15] = 1
    for first in sample["run_starts"]:
        assert np.array_equal(mask_of(sample["run_lengths"][first : first + 3], (48, 64)), wanted)


def test_boxes_that_a_geometry_drops_take_their_run_lengths_and_polygons_along(tmp_path: Path) -> None:
    convert(build(tmp_path / "in"), tmp_path / "a.pack")
    crop = packer.geometry.CenterCrop((16, 16))
    with packer.open(tmp_path / "a.pack", geometry=crop, boxes=BoxRule(clip=True, least_visible=0.5)) as pack:
        whole = pack[2]
        assert whole["key"] == "train2017/000009.jpg"
        assert (whole["boxes"].shape, whole["run_lengths"].shape, whole["polygons"].shape) == ((0, 4), (0,), (0, 2))
        assert pack[0]["boxes"].shape == (0, 4)


def test_run_lengths_that_do_not_fit_are_errors_of_their_image(tmp_path: Path) -> None:
    things = [thing(5, 1, 4, [0, 0, 1, 1], segmentation={"size": [48, 64], "counts": [1, 2]})]
    root = one(tmp_path / "in", [image_entry(1, "a.jpg"), image_entry(2, "b.jpg")], things)
    with pytest.raises(BadInputs, match=r"images/a\.jpg: annotation 5.*3 px"):
        convert(root, tmp_path / "a.pack")
    summary = convert(root, tmp_path / "a.pack", on_error="skip")
    assert (summary.samples, [key for key, _ in summary.skipped]) == (1, ["images/a.jpg"])


def test_boxes_without_area_and_beyond_the_image_are_kept(tmp_path: Path) -> None:
    boxes = [[5, 5, 0, 3], [60, 40, 100, 100], [-5, -5, 10, 10]]
    root = one(tmp_path, [image_entry(1, "a.jpg")], [thing(at, 1, 0, box, area=1) for at, box in enumerate(boxes)])
    source = Source(root)
    assert source[0]["boxes"].tolist() == [[5, 5, 5, 8], [60, 40, 160, 140], [-5, -5, 5, 5]]


def test_ids_beyond_2_to_53_stay_exact(tmp_path: Path) -> None:
    large = (1 << 53) + 1
    images = [image_entry(large, "a.jpg"), image_entry(large - 1, "b.jpg")]
    root = one(tmp_path / "in", images, [thing(large + 2, large, 0, [0, 0, 1, 1])])
    convert(root, tmp_path / "a.pack")
    with packer.open(tmp_path / "a.pack") as pack:
        assert [int(pack[at]["image_id"]) for at in (0, 1)] == [large - 1, large]
        assert pack[1]["annotation_ids"].tolist() == [large + 2]
        assert pack[0]["annotation_ids"].tolist() == []


def test_image_ids_that_are_texts(tmp_path: Path) -> None:
    images = [{"id": "u-2", "file_name": "a.jpg"}, {"id": "u-1", "file_name": "b.jpg"}]
    source = Source(one(tmp_path, images, [{**thing(1, 0, 0, [0, 0, 1, 1]), "image_id": "u-2", "id": "x"}]))
    assert [source[at]["image_id"] for at in (0, 1)] == ["u-1", "u-2"]
    assert "annotation_ids" not in source.schema
    assert source.stated_size(0) is None


def test_annotations_of_unknown_images_and_categories(tmp_path: Path) -> None:
    things = [thing(1, 1, 0, [0, 0, 1, 1]), thing(2, 5, 0, [0, 0, 1, 1]), thing(3, 1, 77, [0, 0, 1, 1])]
    root = one(tmp_path, [image_entry(1, "a.jpg")], things)
    with pytest.raises(BadInput, match="2 annotations.*category_id 77.*image_id 5"):
        Source(root)
    source = Source(root, bad_labels="skip")
    assert source[0]["annotation_ids"].tolist() == [1]
    assert any("skipped 2 annotations" in note for note in source.notes)


def test_annotation_ids_that_come_twice_are_kept(tmp_path: Path) -> None:
    source = Source(
        one(tmp_path, [image_entry(1, "a.jpg")], [thing(1, 1, 0, [0, 0, 1, 1]), thing(1, 1, 4, [2, 2, 3, 3])])
    )
    assert source[0]["annotation_ids"].tolist() == [1, 1]


def test_a_image_with_two_ids(tmp_path: Path) -> None:
    images = [image_entry(1, "a.jpg"), image_entry(2, "b.jpg"), image_entry(3, "a.jpg")]
    root = one(tmp_path, images, [thing(1, 1, 0, [0, 0, 1, 1]), thing(2, 3, 4, [2, 2, 3, 3])])
    with pytest.raises(BadInput, match=r"images/a\.jpg.*id 1.*id 3"):
        Source(root)
    first = Source(root, duplicates="first")
    assert [first.key(at) for at in range(len(first))] == ["images/a.jpg", "images/b.jpg"]
    assert first[0]["annotation_ids"].tolist() == [1]
    assert [key for key, _ in first.left_out] == ["images/a.jpg (id 3)"]
    skipped = Source(root, duplicates="skip")
    assert [skipped.key(at) for at in range(len(skipped))] == ["images/b.jpg"]
    assert [key for key, _ in skipped.left_out] == ["images/a.jpg"]


def test_a_image_in_two_splits(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "images/a.jpg": IMAGE,
            "images/b.jpg": IMAGE,
            "train.json": annotations([image_entry(1, "a.jpg")], []),
            "small.json": annotations([image_entry(1, "a.jpg"), image_entry(2, "b.jpg")], []),
        },
    )
    with pytest.raises(BadInput, match="train.*small.*--annotations"):
        Source(root)
    assert len(Source(root, annotations=("small.json",))) == 2


def test_names_with_folders_and_above(tmp_path: Path) -> None:
    root = write(
        tmp_path / "in",
        {
            "images/cat/1.jpg": IMAGE,
            "images/dog/1.jpg": IMAGE,
            "annotations/x.json": annotations([image_entry(1, "cat/1.jpg"), image_entry(2, "../images/dog/1.jpg")], []),
        },
    )
    source = Source(root)
    assert [source.key(at) for at in range(2)] == ["images/cat/1.jpg", "images/dog/1.jpg"]
    for name, reason in (("../../secret.jpg", "outside"), ("/etc/1.jpg", "outside")):
        write(tmp_path, {"secret.jpg": IMAGE, "in/annotations/x.json": annotations([image_entry(1, name)], [])})
        with pytest.raises(BadInput, match=reason):
            Source(root)


def test_images_that_are_not_there(tmp_path: Path) -> None:
    root = build(tmp_path)
    (root / "train2017/000005.jpg").unlink()
    with pytest.raises(BadInput, match=r"instances_train2017\.json absent: 000005\.jpg"):
        Source(root)
    source = Source(root, missing="skip")
    assert len(source) == 3
    assert [key for key, _ in source.left_out] == ["000005.jpg"]
    shutil.rmtree(root / "train2017")
    assert len(Source(root, annotations=("annotations/instances_val2017.json",))) == 1
    assert len(Source(root, missing="skip")) == 1


def test_the_images_of_another_split_are_never_taken(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "annotations/train.json": annotations([image_entry(1, "1.jpg")], [thing(1, 1, 0, [0, 0, 1, 1])]),
            "annotations/val.json": annotations([image_entry(1, "1.jpg")], []),
            "val/1.jpg": IMAGE,
        },
    )
    with pytest.raises(BadInput, match=r"annotations/train\.json absent"):
        Source(root)
    write(root, {"train/1.jpg": image(7, suffix=".jpg")})
    source = Source(root)
    assert [source.key(at) for at in range(2)] == ["train/1.jpg", "val/1.jpg"]
    assert [len(source[at]["boxes"]) for at in range(2)] == [1, 0]


KEYPOINTS = ["nose", "left_eye", "right_eye"]


def people(root: Path) -> Path:
    """Instances, keypoints and captions of one image, and of one split more."""
    person = {"id": 1, "name": "person", "keypoints": KEYPOINTS, "skeleton": [[1, 2]]}
    points = [3, 4, 2, 0, 0, 0, 5, 6, 1]
    cup = {"id": 4, "name": "cup"}
    things = [thing(21, 9, 4, [1, 1, 2, 2]), thing(22, 9, 1, [3, 3, 9, 9])]
    keyed = [{**things[1], "keypoints": points, "num_keypoints": 2}]
    images = [image_entry(9, "a.jpg")]
    captions = [{"id": at, "image_id": 9, "caption": text} for at, text in enumerate(("a cup", "\u00fc\U0001f600"))]
    bare = {"id": 1, "name": "person"}
    return write(
        root,
        {
            "annotations/instances_val.json": annotations(images, things, categories=[cup, bare]),
            "annotations/person_keypoints_val.json": annotations(images, keyed, categories=[person]),
            "annotations/captions_val.json": annotations(images, captions, categories=[]),
            "images/val/a.jpg": IMAGE,
        },
    )


def test_tasks_are_read_alone_or_joined_by_the_ids(tmp_path: Path) -> None:
    source = Source(people(tmp_path))
    assert "captions" not in source.schema and "keypoints" not in source.schema
    note = next(note for note in source.notes if "other tasks" in note)
    assert "annotations/captions_val.json, annotations/person_keypoints_val.json" in note
    assert "--task" in note
    keypoints = Source(tmp_path, task="keypoints")
    field = keypoints.schema["keypoints"]
    assert (field.shape, field.classes, field.of, field.edges) == ((None, 3, 2), tuple(KEYPOINTS), "boxes", False)
    assert keypoints[0]["keypoints"].tolist() == [[[3, 4], [0, 0], [5, 6]]]
    assert keypoints[0]["keypoint_visibility"].tolist() == [[2, 0, 1]]
    assert keypoints[0]["boxes"].tolist() == [[3, 3, 12, 12]]
    captions = Source(tmp_path, task="captions")
    assert captions[0]["captions"] == ["a cup", "\u00fc\U0001f600"]
    assert "boxes" not in captions.schema
    joined = Source(tmp_path, task="instances,keypoints,captions")
    sample = joined[0]
    assert sample["annotation_ids"].tolist() == [21, 22]
    assert sample["keypoints"].tolist() == [[[0, 0], [0, 0], [0, 0]], [[3, 4], [0, 0], [5, 6]]]
    assert sample["keypoint_visibility"].tolist() == [[0, 0, 0], [2, 0, 1]]
    assert sample["captions"] == ["a cup", "\u00fc\U0001f600"]
    assert joined.schema["box_labels"].classes == ("person", "cup")
    assert "split" not in joined.schema
    with pytest.raises(InvalidRequest, match="--task stuff"):
        Source(tmp_path, task="stuff")


def test_keypoints_of_categories_with_other_names_have_none(tmp_path: Path) -> None:
    categories = [
        {"id": 1, "name": "a", "keypoints": ["x", "y"]},
        {"id": 2, "name": "b", "keypoints": ["z"]},
    ]
    things = [
        {**thing(1, 1, 1, [0, 0, 1, 1]), "keypoints": [1, 2, 2, 3, 4, 2]},
        {**thing(2, 1, 2, [0, 0, 1, 1]), "keypoints": [5, 6, 1]},
    ]
    source = Source(one(tmp_path, [image_entry(1, "a.jpg")], things, categories=categories))
    assert source.schema["keypoints"].classes is None
    assert source[0]["keypoints"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
    assert source[0]["keypoint_visibility"].tolist() == [[2, 2], [1, 0]]


def test_labels_without_boxes(tmp_path: Path) -> None:
    images = [image_entry(1, "a.jpg"), image_entry(2, "b.jpg")]
    labels = [{"id": 1, "image_id": 1, "category_id": 4}, {"id": 2, "image_id": 2, "category_id": 90}]
    root = write(
        tmp_path,
        {
            "annotations/labels_train.json": annotations(images, labels),
            "images/train/a.jpg": IMAGE,
            "images/train/b.jpg": IMAGE,
        },
    )
    source = Source(root)
    assert [int(source[at]["label"]) for at in (0, 1)] == [1, 2]
    assert source.schema["label"].classes == ("cat", "cup", "toothbrush")
    labels.append({"id": 3, "image_id": 2, "category_id": 0})
    write(root, {"annotations/labels_train.json": annotations(images, labels)})
    source = Source(root)
    assert [source[at]["labels"].tolist() for at in (0, 1)] == [[1], [2, 0]]
    assert "boxes" not in source.schema


def test_image_info_has_images_alone(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "annotations/image_info_test2017.json": json.dumps({"images": [image_entry(1, "a.jpg")], "categories": []}),
            "test2017/a.jpg": IMAGE,
        },
    )
    assert detect(root)[0] == "coco"
    assert Source(root).schema.names == ("key", "image", "image_id", "files")


@pytest.mark.parametrize(
    ("table", "images"),
    [
        ("train/_annotations.coco.json", "train"),
        ("labels.json", "data"),
        ("result.json", "images"),
        ("annotations/instances_default.json", "images"),
        ("annotations.json", ""),
    ],
)
def test_what_other_tools_export(tmp_path: Path, table: str, images: str) -> None:
    """Roboflow, FiftyOne, Label Studio, CVAT, labelme2coco."""
    name = f"{images}/a.jpg".removeprefix("/")
    root = write(tmp_path, {table: annotations([image_entry(1, "a.jpg")], [thing(1, 1, 0, [0, 0, 1, 1])]), name: IMAGE})
    found, sentence = detect(root)
    assert (found, sentence) == ("coco", f"COCO: 1 annotation file: {table}")
    source = Source(root)
    assert (source.key(0), source[0]["boxes"].tolist()) == (name, [[0, 0, 1, 1]])


@pytest.mark.parametrize(
    ("table", "images"),
    [
        ("_annotations.coco.json", ""),
        ("v2.0/instances/instances_2020.json", "images/"),  # Mapillary Vistas: alike in each split
    ],
)
def test_splits_in_folders_of_their_own(tmp_path: Path, table: str, images: str) -> None:
    text = annotations([image_entry(0, "1.jpg")], [thing(1, 0, 4, [0, 0, 1, 1])])
    for split in ("train", "valid", "test"):
        write(tmp_path / split, {table: text, f"{images}1.jpg": IMAGE, "v2.0/labels/1.png": IMAGE})
    source = Source(tmp_path)
    assert source.schema["split"].classes == ("train", "valid", "test")
    assert [source.key(at) for at in range(3)] == [f"{split}/{images}1.jpg" for split in ("train", "valid", "test")]


def test_json_files_of_other_kinds_are_not_coco(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {
        "a.jpg": IMAGE,
        "a.json": json.dumps({"shapes": [{"label": "x"}], "imagePath": "a.jpg"}),
        "meta.json": json.dumps({"images": 3, "annotations": "see a.json"}),
        "items.json": json.dumps({"categories": {"label": {}}, "items": []}),
        "list.json": json.dumps([{"image_id": 1, "bbox": [1, 2, 3, 4]}]),
        "bad.json": b"\xff\xfe{",
    }
    root = write(tmp_path, files)
    assert detect(root)[0] == "folder"
    with pytest.raises(InvalidRequest, match="no COCO annotations"):
        Source(root)


def test_annotation_files_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = annotations([image_entry(1, "a.jpg")], [thing(1, 1, 0, [0, 0, 1, 1])])
    write(tmp_path, {"labels/train.json": text, "train/a.jpg": IMAGE, "other/labels/train.json": text})
    packs = []
    for at, given in enumerate(("labels/train.json", str(tmp_path / "labels/train.json"))):
        monkeypatch.chdir(tmp_path)
        convert("train", tmp_path / f"{at}.pack", kind="coco", annotations=given)
        packs.append(manifests.read(tmp_path / f"{at}.pack"))
        assert str(tmp_path) not in (tmp_path / f"{at}.pack" / manifests.NAME).read_text()
    assert packs[0].pack_id == packs[1].pack_id
    assert packer.verify(tmp_path / "0.pack", level="full").ok
    with pytest.raises(InvalidRequest, match=r"option annotations: nowhere\.json"):
        SourceSpec("coco", {"annotations": ("nowhere.json",)}).open(tmp_path / "train")


def test_options_of_annotations(tmp_path: Path) -> None:
    root = build(tmp_path)
    name = "annotations/instances_val2017.json"
    assert len(Source(root, annotations=(name,))) == 1
    assert len(Source(root, annotations=(f"./{name}",))) == 1
    with pytest.raises(InvalidRequest, match="twice"):
        Source(root, annotations=(name, name))
    with pytest.raises(InvalidRequest, match="--task captions"):
        Source(root, annotations=(name,), task="captions")
    with pytest.raises(InvalidRequest, match="option task: .*'boxes'"):
        Source(root, task="instances,boxes")


def test_categories_of_two_files_that_differ_are_refused(tmp_path: Path) -> None:
    root = build(tmp_path)
    text = annotations([image_entry(7, "000007.jpg")], [], categories=[{"id": 4, "name": "mug"}])
    write(root, {"annotations/instances_val2017.json": text})
    with pytest.raises(BadInput, match="id 4 .*mug"):
        Source(root)


def test_what_is_of_no_sample_is_carried_along(tmp_path: Path) -> None:
    root = build(tmp_path / "in")
    write(root, {"unlabeled/x.jpg": IMAGE})
    source = Source(root)
    assert source.extras == [
        "README.txt",
        "annotations/instances_train2017.json",
        "annotations/instances_val2017.json",
        "unlabeled/x.jpg",
    ]
    assert any("1 image (.jpg 1) in no annotation file" in note for note in source.notes)


def turned(root: Path, orientation: int, stated: tuple[int, int] | None) -> Path:
    entry = {"id": 1, "file_name": "a.jpg"} | ({"height": stated[0], "width": stated[1]} if stated else {})
    things = [{**thing(1, 1, 0, [2, 4, 10, 6]), "keypoints": [3, 5, 2]}]
    write(root, {"annotations/x.json": annotations([entry], things)})
    return write(root, {"images/a.jpg": oriented(orientation, pixels=colors(3, height=48, width=64))})


def test_annotations_lie_over_the_image_whose_size_they_state(tmp_path: Path) -> None:
    """Stored 64 x 48, shown 48 x 64: orientation 6 turns it clockwise, so that x is 48 - y."""
    for name, stated, boxes in (
        ("stored", (48, 64), [2, 4, 12, 10]),
        ("upright", (64, 48), [4, 48 - 12, 10, 48 - 2]),
    ):
        root = turned(tmp_path / name, 6, stated)
        convert(root, tmp_path / f"{name}.pack")
        with packer.open(tmp_path / f"{name}.pack") as pack:
            assert np.asarray(pack[0]["boxes"])[0].tolist() == boxes, name
        convert(root, tmp_path / f"{name}.rotated.pack", exif="rotate")
    with packer.open(tmp_path / "upright.rotated.pack") as pack:
        assert np.asarray(pack[0]["boxes"])[0].tolist() == [2, 4, 12, 10]
        assert np.asarray(pack[0]["keypoints"]).tolist() == [[[3, 5]]]


def test_run_lengths_over_an_upright_image_are_refused(tmp_path: Path) -> None:
    runs = {"size": [64, 48], "counts": [0, 64 * 48]}
    root = turned(tmp_path / "in", 6, (64, 48))
    entry = image_entry(1, "a.jpg", height=64, width=48)
    write(root, {"annotations/x.json": annotations([entry], [thing(1, 1, 0, [0, 0, 1, 1], segmentation=runs)])})
    with pytest.raises(BadInputs, match="run lengths.*--labels-orientation"):
        convert(root, tmp_path / "a.pack")
    convert(root, tmp_path / "a.pack", labels_orientation="stored")


_PYCOCOTOOLS = """
import json, sys
from contextlib import redirect_stdout
from pycocotools.coco import COCO
with redirect_stdout(sys.stderr):
    coco = COCO(sys.argv[1])
found = {}
for known in sorted(coco.getImgIds()):
    things = coco.loadAnns(coco.getAnnIds(imgIds=[known]))
    found[coco.loadImgs([known])[0]["file_name"]] = [
        [thing["id"], thing["category_id"], thing["bbox"], thing["iscrowd"],
         coco.annToMask(thing).ravel().tolist() if isinstance(thing["segmentation"], dict) else None]
        for thing in things
    ]
print(json.dumps(found))
"""


@pytest.mark.foreign
def test_pycocotools_reads_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    images = [image_entry(number, f"{number}.jpg") for number in range(40, 20, -1)]
    things = []
    for number in range(200):
        cuts = np.sort(rng.integers(0, 48 * 64 + 1, int(rng.integers(0, 30))))
        counts = np.diff([0, *cuts, 48 * 64]).tolist()
        runs = {"size": [48, 64], "counts": counts if number % 2 else text_of(counts)}
        segmentation = runs if number % 3 else [[0, 0, 5, 0, 5, 5]]
        box = rng.uniform(0, 40, 4).round(2).tolist()
        crowd = int(number % 2 and bool(number % 3))
        of = int(rng.integers(20, 41)) if number else 40
        things.append(
            thing(1000 - number, max(of, 21), [0, 4, 90][number % 3], box, segmentation=segmentation, iscrowd=crowd)
        )
    root = one(tmp_path, images, things)
    truth = json.loads(said_by("pycocotools", _PYCOCOTOOLS, root / "annotations/instances_all.json"))
    source = Source(root)
    assert [source.key(at) for at in range(len(source))] == [f"images/{name}" for name in truth]
    for at, found in enumerate(truth.values()):
        sample = source[at]
        assert sample["annotation_ids"].tolist() == [one[0] for one in found]
        assert sample["category_ids"].tolist() == [one[1] for one in found]
        assert sample["box_crowd"].tolist() == [one[3] for one in found]
        boxes = np.asarray([[x, y, x + w, y + h] for x, y, w, h in (one[2] for one in found)], np.float32)
        assert np.array_equal(sample["boxes"], boxes.reshape(-1, 4))
        pieces = np.split(sample["run_lengths"], sample["run_starts"])[1:]
        masks = {int(owner): mask_of(runs, (48, 64)) for owner, runs in zip(sample["run_box"], pieces, strict=True)}
        for row, one_found in enumerate(found):
            assert (one_found[4] is None) == (row not in masks)
            if one_found[4] is not None:
                assert masks[row].ravel().tolist() == one_found[4]


def segments(root: Path, colors: npt.NDArray[np.uint8], ids: list[int], **members: Any) -> Path:
    """A panoptic set of one image of 64 x 48 whose segments have these ids, all of category 4 but the first of 0."""
    info = [{"id": known, "category_id": 4 if at else 0, "iscrowd": at % 2} for at, known in enumerate(ids)]
    entry = {"image_id": 9, "file_name": "a.png", "segments_info": info}
    files: dict[str, str | bytes] = {
        "annotations/panoptic_val.json": annotations([image_entry(9, "a.jpg")], [entry], **members),
        "annotations/panoptic_val/a.png": encoded(".png", np.ascontiguousarray(colors[..., ::-1])),
        "val/a.jpg": IMAGE,
        "elsewhere/val/a.png": IMAGE,
    }
    return write(root, files)


def test_segments_are_numbers_in_a_mask_of_16_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    ids = sorted({int(known) for known in rng.integers(1, 1 << 24, 299)}, reverse=True)
    numbers = rng.integers(0, len(ids) + 1, (48, 64))
    known = np.asarray([0, *ids])[numbers]
    root = segments(
        tmp_path / "in", np.stack([known % 256, known // 256 % 256, known // 65536], 2).astype(np.uint8), ids
    )
    source = Source(root)
    sample = source[0]
    assert sample["mask"].dtype == np.uint16
    assert np.array_equal(sample["mask"], numbers)
    assert sample["segment_ids"].tolist() == ids
    assert source.schema["segment_labels"].classes == ("cat", "cup", "toothbrush")
    assert sample["segment_labels"].tolist() == [0] + [1] * (len(ids) - 1)
    assert sample["segment_crowd"].tolist() == [at % 2 for at in range(len(ids))]
    convert(root, tmp_path / "a.pack")
    with packer.open(tmp_path / "a.pack") as pack:
        assert np.array_equal(np.asarray(pack[0]["mask"]), numbers)
    packer.extract(tmp_path / "a.pack", tmp_path / "out")
    name = "annotations/panoptic_val/a.png"
    assert (tmp_path / "out" / name).read_bytes() == (root / name).read_bytes()
    assert packer.verify(tmp_path / "a.pack", level="full", source=root).ok


def test_segments_in_a_pack_of_a_pack(tmp_path: Path) -> None:
    colors = np.zeros((48, 64, 3), np.uint8)
    colors[8:40, 8:40] = (7, 1, 200)
    root = segments(tmp_path / "in", colors, [3, 7 + 256 + 200 * 65536])
    convert(root, tmp_path / "a.pack")
    convert(root, tmp_path / "small.pack", resize=24)
    convert(tmp_path / "a.pack", tmp_path / "again.pack", resize=24)
    for name in ("small.pack", "again.pack"):
        with packer.open(tmp_path / name) as pack:
            mask = np.asarray(pack[0]["mask"])
            assert (mask.shape, set(np.unique(mask).tolist()), int(mask[4:20, 4:20].min())) == ((24, 32), {0, 2}, 2)


def test_colors_that_no_segment_has(tmp_path: Path) -> None:
    colors = np.zeros((48, 64, 3), np.uint8)
    colors[:10, :10] = (7, 1, 0)
    colors[20:, :] = (1, 2, 3)
    root = segments(tmp_path / "in", colors, [7 + 256])
    with pytest.raises(BadInput, match=r"a\.png: .*segments_info: 197121"):
        Source(root)[0]
    mask = Source(root, bad_labels="skip")[0]["mask"]
    assert (int(mask.sum()), int(mask[:10, :10].sum())) == (100, 100)


def test_a_image_of_segments_of_another_size_is_an_error(tmp_path: Path) -> None:
    root = segments(tmp_path, np.zeros((48, 60, 3), np.uint8), [1])
    with pytest.raises(BadInput, match=r"a\.png: .*60x48"):
        Source(root)[0]


def test_images_without_segments_and_files_that_are_not_there(tmp_path: Path) -> None:
    root = segments(tmp_path, np.zeros((48, 64, 3), np.uint8), [1])
    text = json.loads((root / "annotations/panoptic_val.json").read_text())
    text["images"].append(image_entry(10, "b.jpg"))
    write(root, {"annotations/panoptic_val.json": json.dumps(text), "val/b.jpg": IMAGE})
    source = Source(root)
    assert (source[1]["mask"].shape, int(source[1]["mask"].max()), source[1]["panoptic_file"]) == ((48, 64), 0, b"")
    assert source[1]["segment_ids"].shape == (0,)
    assert any("1 image without segments" in note for note in source.notes)
    (root / "annotations/panoptic_val/a.png").unlink()
    (root / "elsewhere/val/a.png").unlink()
    with pytest.raises(BadInput, match=r"absent: a\.png"):
        Source(root)
    assert [Source(root, missing="skip").key(0)] == ["val/b.jpg"]


def test_segments_without_a_pixel_are_told(tmp_path: Path) -> None:
    colors = np.zeros((48, 64, 3), np.uint8)
    colors[8:40, 8:40, 0] = 7
    source = Source(segments(tmp_path / "in", colors, [3, 7, 9]))
    said = "2 segments without a pixel: kept"
    assert source.missing(0) == said  # reads it
    source[0]
    assert source.missing(0) == said
    assert convert(tmp_path / "in", tmp_path / "a.pack").incomplete == (("val/a.jpg", said),)
    whole = Source(segments(tmp_path / "whole", colors, [7]))
    assert whole.missing(0) is None
