"""VOC: every trap of the layout, with xml.etree and Pillow as the other reading."""

import io
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import packer
from packer import sources
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, BadInputs, InvalidRequest
from packer.inspect.extraction import extract
from packer.pack import manifest as manifests
from packer.sources._recognition import detect
from packer.sources.annotations.voc import Source
from tests.support.image_files import colors, oriented
from tests.support.layout_trees import voc
from tests.support.layout_trees.voc import annotated_object, annotation, palette_mask, part
from tests.support.source_trees import encoded, image, tree, write

JPEG = image(1, suffix=".jpg")
BOMB = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>'
)
VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)


def images(root: Path, annotations: Mapping[str, str | bytes], **more: bytes | str) -> Path:
    files: dict[str, bytes | str] = {f"Annotations/{key}.xml": text for key, text in annotations.items()}
    return write(root, files | {f"JPEGImages/{key}.jpg": JPEG for key in annotations} | more)


def read_by_etree(path: Path) -> tuple[list[str], list[list[float]]]:
    """Names and xmin, ymin, xmax, ymax of the objects directly in the annotation."""
    names, boxes = [], []
    for each in ET.parse(path).getroot().findall("object"):
        names.append(each.findtext("name", ""))
        boxes.append([float(each.findtext(f"bndbox/{tag}", "nan")) for tag in ("xmin", "ymin", "xmax", "ymax")])
    return names, boxes


def indices(path: Path) -> npt.NDArray[np.uint8]:
    """A mask as Pillow has it."""
    with Image.open(path) as image:
        return np.array(image)


def samples(root: Path, pack: Path, **options: Any) -> list[dict[str, Any]]:
    """What comes out of a pack of that tree."""
    packer.convert(root, pack, kind="voc", **options)
    with packer.open(pack, output="numpy", fields=None) as dataset:
        return [dataset[index] for index in range(len(dataset))]


def notes(source: sources.base.Source) -> str:
    return "\n".join(source.notes)


# ---- what is read


def test_a_pack_holds_what_xml_etree_and_pillow_read(tmp_path: Path) -> None:
    root = voc.build(tmp_path / "VOC2012")
    schema = Source(root).schema
    found = samples(root, tmp_path / "a.pack")
    assert [sample["key"] for sample in found] == ["2007_000027", "2007_000032", "2008_000001"]
    for sample in found:
        names, boxes = read_by_etree(root / "Annotations" / f"{sample['key']}.xml")
        expected = np.reshape(boxes, (-1, 4)) - [1, 1, 0, 0]
        assert np.array_equal(sample["boxes"], expected.astype(np.float32))
        classes = schema["box_labels"].classes or ()
        assert [classes[label] for label in sample["box_labels"]] == names
        for field, folder in (("mask", "SegmentationClass"), ("object_mask", "SegmentationObject")):
            assert np.array_equal(sample[field], indices(root / folder / f"{sample['key']}.png"))
    assert set(np.unique(found[0]["mask"])) == {0, 2, 255}
    assert [sample["box_difficult"].tolist() for sample in found] == [[1, 0], [], [0]]
    assert [sample["box_truncated"].tolist() for sample in found] == [[0, 0], [], [1]]
    assert [sample["box_occluded"].tolist() for sample in found] == [[0, 0], [], [1]]
    assert found[1]["boxes"].shape == (0, 4) and found[1]["box_labels"].shape == (0,)


def test_boxes_are_edges_of_pixels_counted_from_one(tmp_path: Path) -> None:
    """The whole of an image of 20x10 is 1 1 20 10 there, and 0 0 20 10 here."""
    whole = annotation([annotated_object("cat", (1, 1, 20, 10))], size=(20, 10))
    root = images(tmp_path / "in", {"a": whole, "b": whole})
    assert Source(root)[0]["boxes"].tolist() == [[0, 0, 20, 10]]
    assert Source(root, first_pixel=0)[0]["boxes"].tolist() == [[1, 1, 20, 10]]
    assert "first pixel 1" in notes(Source(root))
    assert "first pixel 0" in notes(Source(root, first_pixel=0))


@pytest.mark.parametrize("typed", [None, 1, 0])
def test_every_manifest_states_the_first_pixel(tmp_path: Path, typed: Any) -> None:
    packer.convert(voc.build(tmp_path / "in"), tmp_path / "a.pack", first_pixel=typed)
    stated = manifests.read(tmp_path / "a.pack").options["source"]["options"]
    assert stated["first_pixel"] == (1 if typed is None else typed)
    packer.convert(tmp_path / "a.pack", tmp_path / "b.pack", resize=32)
    assert manifests.read(tmp_path / "b.pack").options["source"]["options"]["source"]["options"] == stated


def test_a_box_that_begins_at_0_asks_for_the_first_pixel(tmp_path: Path) -> None:
    root = images(tmp_path, {"a": annotation([annotated_object("cat", (0, 3, 20, 10))])})
    assert "1 object with an xmin or ymin of 0" in notes(Source(root))
    assert "ymin of 0" not in notes(Source(root, first_pixel=0))


def test_floats_and_either_order_of_the_corners(tmp_path: Path) -> None:
    corners = "<ymax>8</ymax><xmin> 5.5 </xmin><xmax>7.25</xmax><ymin>6</ymin>"
    text = f"<annotation><object><bndbox>{corners}</bndbox><name>cat</name></object></annotation>"
    sample = Source(images(tmp_path, {"a": text}))[0]
    assert sample["boxes"].tolist() == [[4.5, 5, 7.25, 8]]


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("0", 0), ("Unspecified", 0), ("", 0), ("True", 1), ("2", 2), ("1.0", 1)]
)
def test_what_difficult_may_be(tmp_path: Path, text: str, value: int) -> None:
    inner = f"<difficult>{text}</difficult>"
    sample = Source(images(tmp_path, {"a": annotation([annotated_object("cat", (1, 1, 2, 2), inner)])}))[0]
    assert sample["box_difficult"].tolist() == [value]


def test_a_part_is_no_object(tmp_path: Path) -> None:
    head = part("head", (5.5, 6, 7.5, 8))
    first = "<object>" + head + annotated_object("person", (4, 5, 6, 7)).removeprefix("<object>")
    root = images(tmp_path, {"a": annotation([first]), "b": annotation([annotated_object("cat", (1, 1, 2, 2))])})
    source = Source(root)
    assert source[0]["boxes"].tolist() == [[3, 4, 6, 7]]
    assert source[0]["parts"] == [[{"name": "head", "box": [4.5, 5.0, 7.5, 8.0]}]]
    assert source[1]["parts"] == [[]]
    assert source.schema["box_labels"].classes == ("cat", "person")


def test_the_name_of_the_file_counts_not_what_stands_in_it(tmp_path: Path) -> None:
    """`<filename>` says the other image, `<path>` a folder of whoever annotated."""
    texts = {
        "a": annotation([annotated_object("cat", (1, 1, 2, 2))], filename="b.jpg"),
        "b": annotation([annotated_object("dog", (3, 3, 4, 4))], filename="a.jpg"),
    }
    source = Source(images(tmp_path, texts))
    assert [source[index]["box_labels"].tolist() for index in (0, 1)] == [[0], [1]]


# ---- what is missing


def test_images_and_annotations_without_the_other(tmp_path: Path) -> None:
    one = annotation([annotated_object("cat", (1, 1, 2, 2))])
    root = images(tmp_path / "in", {"a": one})
    write(root, {"JPEGImages/bare.jpg": JPEG, "Annotations/lost.xml": one})
    kept = Source(root)
    assert [kept.key(index) for index in range(len(kept))] == ["a", "bare"]
    assert kept.left_out == [("lost", "no JPEGImages/ID.jpg")]
    assert kept[1]["boxes"].shape == (0, 4)
    summary = packer.convert(root, tmp_path / "a.pack")
    assert summary.skipped == (("lost", "no JPEGImages/ID.jpg"),)
    assert summary.incomplete == (("bare", "no Annotations/ID.xml"),)


# ---- files that were made to do harm


@pytest.mark.parametrize(
    "data",
    [
        BOMB + annotation([annotated_object("&c;", (1, 1, 2, 2))]),
        (BOMB + annotation([])).replace("1.0", "1.0").encode("utf-16"),
        '<!DOCTYPE annotation SYSTEM "file:///etc/passwd"><annotation/>',
        '<!DOCTYPE annotation [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation>&x;</annotation>',
        "<!DOCTYPE annotation><annotation/>",
    ],
    ids=["bomb", "bomb in UTF-16", "external", "external entity", "bare"],
)
def test_a_document_type_is_refused_before_its_entities_are_read(tmp_path: Path, data: str | bytes) -> None:
    source = Source(images(tmp_path, {"a": data, "b": annotation([])}))
    with pytest.raises(BadInput, match=r"a\.xml: .*document type") as caught:
        source[0]
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "no element found"),
        ("<annotation>", "no element found"),
        ("<annotation><object></annotation>", "mismatched tag"),
        ("<annotation>&undefined;</annotation>", "undefined entity"),
        ('<?xml version="1.0" encoding="no-such"?><annotation/>', "unknown encoding"),
        (b"\xff\xfe\0", "not well-formed|no element|unclosed|invalid"),
        ("<annotation>" + "<a/>" * 1_000_001 + "</annotation>", "tags"),
        ("<doc/>", "found <doc>"),
    ],
)
def test_what_is_no_annotation_is_one_line_that_names_the_file(tmp_path: Path, data: str | bytes, reason: str) -> None:
    root = images(tmp_path / "in", {"a": data, "b": annotation([annotated_object("cat", (1, 1, 2, 2))])})
    source = Source(root)
    with pytest.raises(BadInput, match=reason) as caught:
        source[0]
    assert str(root / "Annotations/a.xml") in str(caught.value) and str(caught.value).isprintable()
    with pytest.raises(BadInputs, match=r"Annotations/a\.xml"):
        packer.convert(root, tmp_path / "a.pack")
    summary = packer.convert(root, tmp_path / "a.pack", on_error="skip")
    assert summary.samples == 1 and summary.skipped[0][0] == "a"


def test_elements_in_elements_are_read_however_deep(tmp_path: Path) -> None:
    data = "<annotation>" + "<a>" * 100_000 + "</a>" * 100_000 + "</annotation>"
    assert len(Source(images(tmp_path, {"a": data, "b": annotation([])}))[0]["boxes"]) == 0


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ("<name>cat</name>", "no <bndbox>, found <name>"),
        ("<name>cat</name><polygon/>", "no <bndbox>, found <name>, <polygon>"),
        ("<name></name><bndbox/>", "<name> is empty"),
        ("<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>", "no <name>"),
        ("<name>c</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax></bndbox>", "no <ymax>"),
        (
            "<name>c</name><bndbox><xmin>5,5</xmin><ymin>1</ymin><xmax>9</xmax><ymax>2</ymax></bndbox>",
            "<xmin> is '5,5'",
        ),
        ("<name>c</name><bndbox><xmin>nan</xmin><ymin>1</ymin><xmax>9</xmax><ymax>2</ymax></bndbox>", "<xmin> is nan"),
        ("<name>c</name><bndbox><xmin>1e12</xmin><ymin>1</ymin><xmax>9</xmax><ymax>2</ymax></bndbox>", "of pixels"),
        ("<name>c</name><bndbox><xmin>9</xmin><ymin>1</ymin><xmax>8</xmax><ymax>2</ymax></bndbox>", "xmin <= xmax"),
        ("<name>c</name><name>d</name><bndbox/>", "2 <name>, expected one"),
    ],
)
def test_an_object_that_cannot_be_read_is_an_error_or_left_out(tmp_path: Path, inner: str, reason: str) -> None:
    text = annotation([annotated_object("dog", (1, 1, 2, 2)), f"<object>{inner}</object>"])
    root = images(tmp_path / "in", {"a": text})
    with pytest.raises(BadInput) as caught:
        Source(root)[0]
    assert "a.xml: object 2" in str(caught.value) and reason in str(caught.value)
    assert "--bad-labels skip" in str(caught.value) and str(caught.value).isprintable()
    lenient = Source(root, bad_labels="skip")
    assert lenient[0]["boxes"].tolist() == [[0, 0, 2, 2]]
    assert str(lenient.missing(0)).startswith("1 of 2 labels")


# ---- classes


def test_classes_of_lists_keep_the_numbers_of_pascal_voc(tmp_path: Path) -> None:
    """A part of the set without one of the twenty classes would number all behind it otherwise."""
    root = images(tmp_path, {"a": annotation([annotated_object("tvmonitor", (1, 1, 2, 2))])})
    write(root, {f"ImageSets/Main/{name}_train.txt": "a -1\r\n" for name in VOC_CLASSES})
    write(root, {"ImageSets/Main/train.txt": "a\r\n", "ImageSets/Main/emu_train.txt": ""})
    write(root, {"SegmentationClass/a.png": palette_mask(np.eye(8, dtype=np.uint8))})
    write(root, {"ImageSets/Segmentation/train.txt": "a\r\n", "JPEGImages/b.jpg": JPEG})
    assert Source(root, task="segment").schema["box_labels"].classes == VOC_CLASSES
    source = Source(root)
    assert source.schema["box_labels"].classes == VOC_CLASSES
    assert source[0]["box_labels"].tolist() == [19]
    assert source.schema["split"].classes == ("train", "unlisted")


def test_classes_of_a_label_map_keep_its_order(tmp_path: Path) -> None:
    root = images(tmp_path, {"a": annotation([annotated_object("cat", (1, 1, 2, 2))])})
    lines = "# label:color_rgb:parts:actions\nbackground:0,0,0::\nzebra:1,2,3::\ncat:4,5,6:head:run\n"
    source = Source(write(root, {"labelmap.txt": lines}))
    assert source.schema["box_labels"].classes == ("zebra", "cat")
    assert source[0]["box_labels"].tolist() == [1]
    assert "labelmap.txt" in source.tables


def test_classes_of_another_pack(tmp_path: Path) -> None:
    both = {"a": annotation([annotated_object("dog", (1, 1, 2, 2)), annotated_object("cat", (1, 1, 2, 2))])}
    packer.convert(images(tmp_path / "train", both), tmp_path / "train.pack", kind="voc")
    one = images(tmp_path / "val", {"a": annotation([annotated_object("dog", (1, 1, 2, 2))])})
    found = samples(one, tmp_path / "val.pack", classes_from=tmp_path / "train.pack")
    assert found[0]["box_labels"].tolist() == [1]
    other = images(tmp_path / "test", {"a": annotation([annotated_object("emu", (1, 1, 2, 2))])})
    with pytest.raises(BadInput, match="--classes-from.*emu"):
        packer.convert(other, tmp_path / "test.pack", kind="voc", classes_from=tmp_path / "train.pack")


# ---- splits


def test_lists_are_splits_with_columns_and_line_ends_of_windows(tmp_path: Path) -> None:
    root = images(tmp_path, {key: annotation([]) for key in "abcd"})
    lists = {
        "train": "\ufeffa  1\r\nb -1\r\n\r\n# no\r\n",
        "val": "c.jpg\n",
        "trainval": "a\nb\nc\n",
        "x_train": "a 1\nb -1\n",
    }
    write(root, {f"ImageSets/Main/{name}.txt": text for name, text in lists.items()})
    source = Source(root)
    assert source.schema["split"].classes == ("train", "val", "unlisted")
    assert [int(source[index]["split"]) for index in range(4)] == [0, 0, 1, 2]
    assert "splits: train 2, val 1, unlisted 1" in notes(source)
    assert "1 image in no list of ImageSets" in notes(source)
    assert source.schema["box_labels"].classes == ("x",)


def test_a_list_that_only_looks_like_a_class(tmp_path: Path) -> None:
    root = images(tmp_path, {key: annotation([]) for key in "ab"})
    write(root, {"ImageSets/Main/val.txt": "a\n", "ImageSets/Main/train_val.txt": "a\nb\n"})
    source = Source(root)
    assert source.schema["box_labels"].classes is None
    assert source.schema["split"].classes == ("train_val",)


def test_one_devkit_of_two_years(tmp_path: Path) -> None:
    """Keys of one name in both."""
    for year, name in (("VOC2007", "cat"), ("VOC2012", "dog")):
        root = images(tmp_path / "VOCdevkit" / year, {"000001": annotation([annotated_object(name, (1, 1, 2, 2))])})
        write(root, {f"ImageSets/Main/{'test' if year == 'VOC2007' else 'train'}.txt": "000001\n"})
    source = Source(tmp_path / "VOCdevkit")
    assert [source.key(index) for index in range(2)] == ["VOC2007/000001", "VOC2012/000001"]
    assert [source[index]["box_labels"].tolist() for index in range(2)] == [[0], [1]]
    assert source.schema["split"].classes == ("train", "test")
    assert [int(source[index]["split"]) for index in range(2)] == [1, 0]


# ---- masks


def test_images_with_masks_are_their_own_task(tmp_path: Path) -> None:
    root = voc.build(tmp_path / "in")
    (root / "SegmentationClass/2007_000032.png").unlink()
    write(root, {"ImageSets/Segmentation/val.txt": "2007_000027\n2008_000001\n2007_000032\n"})
    detect = Source(root)
    assert len(detect) == 3 and "mask" not in detect.schema and "object_mask" in detect.schema
    assert "no field mask: 2 of 3 images have one in SegmentationClass; --task segment packs these" in notes(detect)
    segment = Source(root, task="segment")
    assert [segment.key(index) for index in range(len(segment))] == ["2007_000027", "2008_000001"]
    assert segment.left_out == [("2007_000032", "no SegmentationClass/ID.png")]
    assert segment.schema["split"].classes == ("val",)
    assert "without an image" not in notes(segment)
    assert np.array_equal(
        Image.open(io.BytesIO(segment[0]["mask"])), indices(root / "SegmentationClass/2007_000027.png")
    )
    assert segment[0]["boxes"].shape == (2, 4)


def test_masks_without_annotation_files(tmp_path: Path) -> None:
    mask = palette_mask(np.eye(48, 64, dtype=np.uint8))
    root = write(tmp_path, {"JPEGImages/a.jpg": JPEG, "SegmentationClass/a.png": mask, "JPEGImages/b.jpg": JPEG})
    source = Source(root)
    assert (len(source), source.schema.names) == (1, ("key", "image", "mask", "files"))
    with pytest.raises(InvalidRequest, match="2 images.*Annotations"):
        Source(root, task="detect")
    with pytest.raises(InvalidRequest, match="task.*pose"):
        Source(root, task="pose")


def in_colors(values: npt.NDArray[np.uint8], colors: Mapping[int, tuple[int, int, int]]) -> bytes:
    """A PNG of RGB, as CVAT and datumaro write masks."""
    rgb = np.zeros((*values.shape, 3), np.uint8)
    for value, color in colors.items():
        rgb[values == value] = color
    return encoded(".png", rgb[:, :, ::-1])


@pytest.mark.parametrize("labels", ["", "background:0,0,0::\nroad:128,64,128::\ncar:0,0,142::\n"])
def test_masks_in_colors_become_class_numbers(tmp_path: Path, labels: str) -> None:
    """Without a label map they are Pascal VOC's: 1 is 128, 0, 0 and 2 is 0, 128, 0."""
    values = np.zeros((48, 64), np.uint8)
    values[5:9], values[20:30, 10:20], values[9] = 1, 2, 255
    colors = {1: (128, 64, 128), 2: (0, 0, 142)} if labels else {1: (128, 0, 0), 2: (0, 128, 0)}
    root = images(tmp_path / "in", {"a": annotation([])})
    mask = in_colors(values, {**colors, 255: (224, 224, 192)})
    write(root, {"SegmentationClass/a.png": mask, **({"labelmap.txt": labels} if labels else {})})
    (sample,) = samples(root, tmp_path / "a.pack")
    assert np.array_equal(sample["mask"], values)
    assert Source(root)[0]["mask_file"] == mask
    assert "masks are in colors" in notes(Source(root))
    extract(tmp_path / "a.pack", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(root)
    write(root, {"SegmentationClass/a.png": in_colors(values, {**colors, 255: (9, 8, 7)})})
    with pytest.raises(BadInput, match=r"SegmentationClass/a\.png: .*9, 8, 7.*(labelmap|Pascal)"):
        Source(root)[0]


# ---- over which pixels labels lie


@pytest.mark.parametrize(("size", "expected"), [((64, 48), [9, 19, 30, 40]), ((48, 64), [19, 48 - 30, 40, 48 - 9])])
def test_labels_lie_over_the_pixels_whose_size_is_stated(
    tmp_path: Path, size: tuple[int, int], expected: list[int]
) -> None:
    """Orientation 6: what viewers show at x, y is stored at y, height - x."""
    root = images(tmp_path / "in", {"a": annotation([annotated_object("cat", (10, 20, 30, 40))], size=size)})
    write(root, {"JPEGImages/a.jpg": oriented(6, pixels=colors(height=48, width=64))})
    assert samples(root, tmp_path / "a.pack")[0]["boxes"].tolist() == [expected]
    assert [Source(root, labels_orientation=frame).frame for frame in ("stored", "upright")] == ["stored", "upright"]


# ---- what --from auto takes for VOC


@pytest.mark.parametrize(
    "layout",
    [
        ("images/{0}.jpg", "annotations/{0}.xml"),
        ("images/{0}.jpg", "annotations/xmls/{0}.xml"),
        ("train/{0}.jpg", "train/{0}.xml"),
        ("{0}.jpg", "{0}.xml"),
        ("data/Images/{0}.jpg", "data/Annotations/{0}.xml"),
    ],
)
def test_other_folders_are_told_by_what_the_annotations_say(tmp_path: Path, layout: tuple[str, str]) -> None:
    image, xml = layout
    for number in range(3):
        write(
            tmp_path,
            {image.format(number): JPEG, xml.format(number): annotation([annotated_object("c", (1, 1, 2, 2))])},
        )
    assert detect(tmp_path) == ("voc", "VOC: 3 images")
    source, _ = SourceSpec().open(tmp_path)
    assert len(source) == 3 and all(len(source[index]["boxes"]) == 1 for index in range(3))


def test_folders_of_splits_are_splits(tmp_path: Path) -> None:
    one = annotation([annotated_object("c", (1, 1, 2, 2))])
    files = {
        f"{split}/{number}.{suffix}": data
        for split in ("train", "valid", "test")
        for number in range(2)
        for suffix, data in (("jpg", JPEG), ("xml", one))
    }
    source = Source(write(tmp_path, files))
    assert source.schema["split"].classes == ("train", "valid", "test")
    assert [source.key(index) for index in (0, 2, 4)] == ["test/0", "train/0", "valid/0"]
    assert [int(source[index]["split"]) for index in (0, 2, 4)] == [2, 0, 1]


@pytest.mark.parametrize(
    "text", ["", "<svg/>", "<annotation><object><name>a</name><polygon><pt/></polygon></object></annotation>"]
)
def test_other_xml_beside_images_is_not_taken(tmp_path: Path, text: str) -> None:
    """LabelMe's begins as VOC's does."""
    write(
        tmp_path, {f"{number}.{suffix}": data for number in range(3) for suffix, data in (("jpg", JPEG), ("xml", text))}
    )
    assert detect(tmp_path)[0] == "folder"


def test_what_the_user_asks_for_beside_is_no_voc(tmp_path: Path) -> None:
    root = voc.build(tmp_path / "in")
    assert detect(root, given=["folders"])[0] != "voc"
    assert detect(root, given=["missing", "first_pixel"])[0] == "voc"


@pytest.mark.parametrize("folder", ["SegmentationClassAug", "masks"])
def test_images_in_folders_of_no_role_are_carried_along(tmp_path: Path, folder: str) -> None:
    """SBD's masks are in most people's VOC2012."""
    root = voc.build(tmp_path)
    stems = ("2007_000027", "2007_000032", "2008_000001")
    write(root, {f"{folder}/{stem}.png": image(number) for number, stem in enumerate(stems)})
    source, _ = SourceSpec().open(root)
    assert (source.kind, len(source), source.unread) == ("voc", 3, [])
    assert [f"{folder}/{stem}.png" for stem in stems] == [name for name in source.extras if folder in name]
    source, _ = SourceSpec(sidecars=(f"aug={folder}/{{stem}}.png:mask",)).open(root)
    assert [source[row]["aug"] for row in range(3)] == [image(number) for number in range(3)]
    write(root, {"masks/a.heic": b"x"})
    assert [name for name, _ in SourceSpec().open(root)[0].unread] == ["masks/a.heic"]


def test_lists_may_hold_paths_of_images(tmp_path: Path) -> None:
    """From the folder of ImageSets, from the root, or with ./ in front, as lists of darknet have them."""
    root = tmp_path / "VOCdevkit"
    for base in ("VOC2007", "VOC2012"):
        write(root / base, {f"JPEGImages/{name}.jpg": image(1, suffix=".jpg") for name in "abcd"})
        write(
            root / base,
            {f"Annotations/{name}.xml": annotation([annotated_object("cat", (1, 2, 3, 4))]) for name in "abcd"},
        )
        write(root / base, {
            "ImageSets/Main/train.txt": f"JPEGImages/a.jpg\n{base}/JPEGImages/b.jpg\n",
            "ImageSets/Main/val.txt": f"./JPEGImages/c.jpg\n./{base}/JPEGImages/d.jpg 1\n",
        })  # fmt: skip
    source = Source(root)
    assert source.schema["split"].classes == ("train", "val")
    assert [int(source.value(row, "split")) for row in range(8)] == [0, 0, 1, 1] * 2
    assert not any("without an image" in note for note in source.notes)


@pytest.mark.parametrize("outer", ["<objects>{}</objects>", "{}"])
def test_boxes_elsewhere_than_in_objects_are_refused(tmp_path: Path, outer: str) -> None:
    box = "<name>a</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox>"
    tag = "object" if "objects" in outer else "Object"
    text = annotation([outer.format(f"<{tag}>{box}</{tag}>")])
    root = images(tmp_path / "in", {"a": text})
    with pytest.raises(BadInputs, match="<bndbox> outside"):
        packer.convert(root, tmp_path / "a.pack", kind="voc")
    source = Source(root, bad_labels="skip")
    assert source[0]["boxes"].shape == (0, 4)
    assert str(source.missing(0)).startswith("1 of 1 labels")


def test_names_that_sort_before_letters(tmp_path: Path) -> None:
    source = Source(images(tmp_path, {"a": annotation([]), "@": annotation([annotated_object("x", (1, 1, 2, 2))])}))
    assert [source.key(index) for index in range(2)] == ["@", "a"]
    assert len(source[0]["boxes"]) == 1
