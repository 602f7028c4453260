"""What a source makes of annotations, compared with what a pack of it holds: `verify --source` beyond files."""

import importlib
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

import packer
from packer.conversion.source_verification import Comparison
from packer.errors import InvalidRequest, PackerError
from packer.pack import manifest as manifests
from packer.sources._extend.sidecars import Sidecar, add_sidecars
from packer.sources._extend.splits import add_splits
from packer.sources.annotations import voc
from packer.sources.image_files import folder
from tests.sources.test_coco import segments
from tests.support import layout_trees, source_trees
from tests.support.command_line import called
from tests.support.image_files import colors, oriented
from tests.support.source_trees import encoded, write

NOT_OPENED = "the source does not open as it was packed"


def found_in(pack: Path, root: Path) -> tuple[list[str], dict[str, str]]:
    """The problems beside the original files, and the fields that could not be compared."""
    comparison = Comparison(pack, root)
    return list(comparison.problems()), comparison.not_compared


def fields_in(lines: list[str], key: str) -> set[str]:
    """The fields of a sample that problems name."""
    return {match[1] for line in lines if (match := re.search(rf"key '{re.escape(key)}', field '(\w+)'", line))}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_bytes().decode()
    assert text.count(old) >= 1, f"{old!r} is not in {path}"
    path.write_bytes(text.replace(old, new, 1).encode())


class Change(NamedTuple):
    """One number of an annotation: in which file, and the sample and the fields that then differ."""

    path: str
    edited: Callable[[bytes], bytes]
    key: str
    fields: set[str]


def text(old: str, new: str) -> Callable[[bytes], bytes]:
    def edited(data: bytes) -> bytes:
        assert old.encode() in data
        return data.replace(old.encode(), new.encode(), 1)

    return edited


def one_more(data: bytes) -> bytes:
    array = np.load(io.BytesIO(data))
    array[1, 0] += 1
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def other_rows(data: bytes) -> bytes:
    tree = importlib.import_module("tests.support.layout_trees.grasp_anything")  # which brings torch
    changed: bytes = tree.saved(tree.rows(1, 3) + 1)
    return changed


SEQUENCE = "ARID20/table/top/seq01"
CHANGES = {
    "coco": Change(
        "annotations/instances_train2017.json", text("20.25", "21.25"), "train2017/000009.jpg", {"boxes"}
    ),
    "grasp-anything": Change(
        "grasp_label_positive/3f731b45_0.pt", other_rows, "3f731b45", {"grasps", "grasp_rows", "grasp_scores"}
    ),
    "graspnet-rect": Change(
        "rect_labels/scene_0100/realsense/0001.npy", one_more,
        "scene_0100/realsense/0001", {"grasps", "grasp_rows", "grasps_file"},
    ),
    "ivalab": Change(
        "annotations/rgb_0001_annotations.txt", text("40 22", "40 23"), "0001", {"grasps", "grasps_file"}
    ),
    "ocid-grasp": Change(
        f"{SEQUENCE}/Annotations/result_2018-08-21.2.txt", text("30 26", "30 27"),
        f"{SEQUENCE}/result_2018-08-21.2", {"grasps", "grasps_file", "grasp_objects"},
    ),
    "pairs": Change(
        "DUTS-TR/DUTS-TR-Mask/c.png", lambda data: source_trees.mask(77), "TR/DUTS-TR/c", {"mask"}
    ),
    "regrad": Change(
        "Grasp Part/2D_Grasp/train/00001/1/1.json", text("30.5", "31.5"), "train/00001_1", {"grasp_rows", "grasps_file"}
    ),
    "table": Change("train/metadata.csv", text(",3,", ",4,"), "train/b.png", {"age"}),
    "vmrd": Change("Grasps/00002.txt", text("25.25", "26.25"), "00002", {"grasps", "grasps_file"}),
    "voc": Change("Annotations/2007_000027.xml", text("40.5", "41.5"), "2007_000027", {"boxes", "annotation_file"}),
    "yolo": Change("labels/train/a.txt", text("0.125", "0.0625"), "images/train/a.png", {"boxes", "labels_file"}),
}  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.parametrize("kind", layout_trees.builders())
def test_a_tree_is_equal_until_one_number_of_an_annotation_is_another(tmp_path: Path, kind: str) -> None:
    root, pack = layout_trees.builders()[kind](tmp_path / "in"), tmp_path / "out.pack"
    packer.convert(root, pack, kind=kind)
    assert found_in(pack, root) == ([], {})
    if kind not in CHANGES:  # of a source that has come since
        return
    change = CHANGES[kind]
    path = root / change.path
    path.write_bytes(change.edited(path.read_bytes()))
    lines, not_compared = found_in(pack, root)
    assert fields_in(lines, change.key) == change.fields, lines
    others = [line for line in lines if f"key '{change.key}'" not in line]
    assert all(change.path in line and "the pack carries other bytes" in line for line in others), others
    assert not_compared == {}


# ---- what else may have changed since


def coco_set(tmp_path: Path) -> tuple[Path, Path]:
    """A tree in COCO's layout and the pack of it."""
    root, pack = layout_trees.builders()["coco"](tmp_path / "in"), tmp_path / "out.pack"
    packer.convert(root, pack)
    return root, pack


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def without_extras(lines: list[str]) -> list[str]:
    return [line for line in lines if "the pack carries other bytes" not in line]


def test_a_renamed_category_is_one_line_and_no_sample_differs(tmp_path: Path) -> None:
    root, pack = coco_set(tmp_path)
    for name in ("train", "val"):
        edit(root / f"annotations/instances_{name}2017.json", '"toothbrush"', '"tooth brush"')
    (line,) = without_extras(found_in(pack, root)[0])
    assert line == (
        f"{root}: field 'box_labels': other classes: the pack has toothbrush, which the source does not have; "
        "the source has tooth brush, which the pack does not have; pack again to have them"
    )


def test_annotations_and_images_that_come_and_go(tmp_path: Path) -> None:
    root, pack = coco_set(tmp_path)
    train = root / "annotations/instances_train2017.json"
    edit_json(train, lambda data: data["annotations"].pop(0))
    (root / "train2017/000011.jpg").write_bytes(source_trees.image(9, suffix=".jpg"))
    edit_json(train, lambda data: data["images"].append({**data["images"][0], "id": 11, "file_name": "000011.jpg"}))
    lines = without_extras(found_in(pack, root)[0])
    assert "boxes" in fields_in(lines, "train2017/000009.jpg")
    assert any("the pack has 2 rows, the source 1" in line for line in lines)
    assert any("sample 'train2017/000011.jpg' is not in the pack" in line for line in lines)
    edit_json(train, lambda data: data["images"].pop(0))
    rest = json.loads(train.read_text())["annotations"]
    edit_json(train, lambda data: data.update(annotations=[each for each in rest if each["image_id"] != 9]))
    lines = without_extras(found_in(pack, root)[0])
    assert any("key 'train2017/000009.jpg', field 'key'): the source has no such sample" in line for line in lines)
    (root / "train2017/000002.jpg").unlink()
    (line,), not_compared = found_in(pack, root)
    assert "000002.jpg" in line and set(not_compared.values()) == {NOT_OPENED}


@pytest.mark.parametrize("exif", ["ignore", "rotate"])
def test_labels_of_turned_images_are_placed_as_they_were(tmp_path: Path, exif: str) -> None:
    """Masks and boxes in XML lie over the image of the size that it states, here the upright one."""
    root = layout_trees.builders()["voc"](tmp_path / "in")
    for path in sorted((root / "JPEGImages").iterdir()):
        path.write_bytes(oriented(6, pixels=colors(1, height=64, width=48)))
    edit(root / "Annotations/2008_000001.xml", "<annotation>", f"<annotation>{SIZE}")
    if exif == "rotate":
        packer.convert(root, tmp_path / "voc.pack", exif="rotate", resize=24)
    else:  # which takes no mask that lies over the upright image
        shutil.rmtree(root / "SegmentationClass")
        shutil.rmtree(root / "SegmentationObject")
        packer.convert(root, tmp_path / "voc.pack")
    assert found_in(tmp_path / "voc.pack", root) == ([], {})
    edit(root / "Annotations/2007_000027.xml", "<ymax>40.5", "<ymax>41")
    assert "boxes" in fields_in(found_in(tmp_path / "voc.pack", root)[0], "2007_000027")


@pytest.mark.parametrize(("frame", "size"), [("upright", (48, 64)), ("stored", (64, 48)), ("upright", (24, 32))])
def test_masks_beside_turned_images_are_compared_where_they_lie(
    tmp_path: Path, frame: Literal["stored", "upright"], size: tuple[int, int]
) -> None:
    height, width = size
    files = {"a.jpg": oriented(6, pixels=colors(1, height=64, width=48)), "a.txt": "1 2 30 40\n"}
    root = write(tmp_path / "in", {**files, "a_m.png": source_trees.mask(3, height=height, width=width)})
    beside = {"mask": "_m.png:mask", "box": ".txt:boxes"}
    packer.convert(root, tmp_path / "a.pack", sidecars=beside, exif="rotate", labels_orientation=frame, resize=(24, 32))
    packer.convert(tmp_path / "a.pack", tmp_path / "b.pack", resize=(12, 16))
    assert found_in(tmp_path / "a.pack", root) == ([], {})
    lines, not_compared = found_in(tmp_path / "b.pack", root)
    assert (lines, set(not_compared)) == ([], {"image", "mask"})
    assert "encoded more than once" in not_compared["mask"]
    (root / "a.txt").write_text("1 2 30 41\n")
    assert fields_in(found_in(tmp_path / "b.pack", root)[0], "a.jpg") == {"box"}


SIZE = "<size><width>64</width><height>48</height></size>"


MOVES: list[dict[str, Any]] = [{"resize": 20}, {"resize": 40}, {"exif": "rotate"}, {"resize": 20, "to": "n5"}]


@pytest.mark.one_in(10)
@pytest.mark.parametrize("options", MOVES)
@pytest.mark.parametrize("kind", ["mask", "mask:uint16", "depth:0", "image"])
def test_moved_pixels_of_other_files_are_told(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    root = write(tmp_path / "in", {f"{number}.png": source_trees.image(number) for number in range(3)})
    for number in range(3):
        values = np.random.default_rng(number).integers(0, 200, (48, 64)).astype(np.uint8).repeat(3).reshape(48, 64, 3)
        wide = values[..., 0].astype(np.uint16) * 300
        one = {"mask": values[..., 0], "image": values}.get(kind, wide)
        (root / f"{number}_x.png").write_bytes(encoded(".png", np.ascontiguousarray(one)))
    packer.convert(root, tmp_path / "a.pack", sidecars={"x": f"_x.png:{kind}"}, **{"to": "lmdb", **options})
    assert found_in(tmp_path / "a.pack", root) == ([], {})
    first = (root / "0_x.png").read_bytes()
    (root / "0_x.png").write_bytes((root / "1_x.png").read_bytes())
    (root / "1_x.png").write_bytes(first)
    lines = found_in(tmp_path / "a.pack", root)[0]
    assert [fields_in(lines, f"{number}.png") for number in range(3)] == [{"x"}, {"x"}, set()]


def test_values_that_were_computed_are_compared_as_pixels(tmp_path: Path) -> None:
    """Segments of a panoptic file become a mask, which is moved, packed again, and of other numbers now."""
    colors = np.zeros((48, 64, 3), np.uint8)
    colors[8:40, 8:40] = (7, 1, 200)
    root = segments(tmp_path / "in", colors, [3, 7 + 256 + 200 * 65536])
    packer.convert(root, tmp_path / "a.pack")
    packer.convert(tmp_path / "a.pack", tmp_path / "b.pack", resize=24, fields=("image", "mask", "segment_labels"))
    assert found_in(tmp_path / "a.pack", root) == ([], {})
    assert [*found_in(tmp_path / "b.pack", root)[1]] == ["image", "mask"]
    colors[8:10, 8:40] = 0
    (root / "annotations/panoptic_val/a.png").write_bytes(encoded(".png", np.ascontiguousarray(colors[..., ::-1])))
    assert fields_in(found_in(tmp_path / "a.pack", root)[0], "val/a.jpg") == {"mask", "panoptic_file"}
    assert without_extras(found_in(tmp_path / "b.pack", root)[0]) == []


# ---- what cannot be compared


def test_a_field_that_cannot_be_compared_is_named_with_the_reason(tmp_path: Path) -> None:
    root = layout_trees.builders()["voc"](tmp_path / "in")
    (tmp_path / "list.txt").write_text("2007_000027\n2008_000001\n")
    packer.convert(root, tmp_path / "a.pack", splits={"val": tmp_path / "list.txt"})
    packer.convert(root, tmp_path / "b.pack", splits={"train": 0.5, "val": 0.5})
    reason = "was made by --split"
    for name in "ab":
        assert found_in(tmp_path / f"{name}.pack", root) == ([], {"split": reason})
    done = called("verify", tmp_path / "a.pack", "--source", root)
    assert (done.exit_code, f"field split: not compared: {reason}" in done.stdout) == (0, True), done.stderr


def test_a_pack_with_annotations_from_elsewhere_is_refused(tmp_path: Path) -> None:
    root = layout_trees.builders()["coco"](tmp_path / "in")
    shutil.move(root / "annotations", tmp_path / "notes")
    packer.convert(root, tmp_path / "a.pack", kind="coco", annotations=tmp_path / "notes/instances_val2017.json")
    with pytest.raises(InvalidRequest, match=r"a\.pack: .*annotations"):
        Comparison(tmp_path / "a.pack", root)


# ---- the options of a source


def test_a_source_that_the_user_made_leaves_its_options_in_the_pack(tmp_path: Path) -> None:
    root = layout_trees.builders()["voc"](tmp_path / "in")
    source = voc.Source(root, first_pixel=0, task="segment", missing="keep")
    packer.convert(source, tmp_path / "a.pack")
    asked = manifests.read(tmp_path / "a.pack").options["source"]
    assert asked["options"] == {"first_pixel": 0, "task": "segment"}
    assert found_in(tmp_path / "a.pack", root) == ([], {})
    packer.convert(root, tmp_path / "b.pack", kind="voc", first_pixel=0, task="segment")
    assert manifests.read(tmp_path / "b.pack").options["source"]["options"] == asked["options"]


def test_so_do_its_sidecars_and_splits(tmp_path: Path) -> None:
    files = {f"{name}{end}": data for name in "ab" for end, data in BESIDE.items()}
    root = write(tmp_path / "in", files)
    (tmp_path / "list.txt").write_text("b.jpg\na.jpg\n")
    typed = ("box=.txt:boxes", "count=.num:number", "mask=_m.png:mask", "depth=_d.tiff:depth:-1.5")
    inner = folder.Source(root, ignore_suffixes=("_m.png", "_d.tiff"), folders="none")
    source = add_sidecars(inner, [Sidecar.parse(text) for text in typed])
    source = add_splits(source, {"val": tmp_path / "list.txt"})
    packer.convert(source, tmp_path / "a.pack")
    packer.convert(root, tmp_path / "b.pack", sidecars=typed, splits={"val": tmp_path / "list.txt"}, folders="none")
    first, second = (manifests.read(tmp_path / name).options["source"] for name in ("a.pack", "b.pack"))
    assert {**first, "options": {"folders": "none"}} == second
    for name in ("a.pack", "b.pack"):
        lines, not_compared = found_in(tmp_path / name, root)
        assert (lines, list(not_compared)) == ([], ["split"])
    (root / "a.txt").write_text("1 2 3 5\n")
    (root / "b.num").write_text("8")
    lines = found_in(tmp_path / "b.pack", root)[0]
    assert fields_in(lines, "a.jpg") == {"box"} and fields_in(lines, "b.jpg") == {"count"} and len(lines) == 2


BESIDE: dict[str, bytes | str] = {
    ".jpg": source_trees.image(1, suffix=".jpg"),
    ".txt": "1 2 3 4\n",
    ".num": "7\n",
    "_m.png": source_trees.mask(1),
    "_d.tiff": source_trees.depth(1),
}


def test_options_of_a_hostile_manifest_open_nothing_outside(tmp_path: Path) -> None:
    root, pack = coco_set(tmp_path)
    (tmp_path / "other.json").write_text((root / "annotations/instances_val2017.json").read_text())
    for value, said in (
        (["../other.json"], r"\.\./other\.json"),
        ([str(tmp_path / "other.json")], "other.json"),
        ([1], "ill-formed option 'annotations'"),
        (1, "ill-formed option 'annotations'"),
    ):
        made = manifests.read(pack)
        asked = {**made.options, "source": {**made.options["source"], "options": {"annotations": value}}}
        (pack / "packer.json").write_bytes(replace(made, options=asked).sealed().to_bytes())
        with pytest.raises(PackerError, match=said):
            Comparison(pack, root)


def test_a_source_that_is_no_such_thing_says_so_first(tmp_path: Path) -> None:
    _, pack = coco_set(tmp_path)
    lines, not_compared = found_in(pack, source_trees.photos(tmp_path / "photos"))
    assert "no COCO annotations: found 12 files" in lines[0]
    assert len(lines) == 1 and not_compared["boxes"] == NOT_OPENED
    with pytest.raises(InvalidRequest, match=r"out\.pack: is a pack"):
        Comparison(pack, pack)
