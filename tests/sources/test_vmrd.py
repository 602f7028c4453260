"""VMRD: every trap of the layout, with xml.etree as the other reading."""

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import packer
from packer import sources
from packer.errors import BadInput, InvalidRequest
from packer.sources._recognition import detect
from packer.sources.grasp.vmrd import Source
from tests.support.layout_trees import vmrd, voc
from tests.support.source_trees import write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return vmrd.build(tmp_path / "vmrd")


def test_a_pack_holds_what_another_reading_finds(root: Path, tmp_path: Path) -> None:
    packer.convert(root, tmp_path / "a.pack")
    with packer.open(tmp_path / "a.pack", output="numpy", fields=None) as dataset:
        classes = dataset.schema["box_labels"].classes or ()
        for index in range(2):
            sample = dataset[index]
            lines = (root / f"Grasps/{sample['key']}.txt").read_text().split("\n")
            rows = [line.split() for line in lines if line.strip()]
            corners = np.asarray([row[:8] for row in rows], np.float32).reshape(-1, 4, 2)
            assert np.array_equal(sample["grasps"], corners)
            assert sample["grasp_objects"].tolist() == [int(row[8]) for row in rows]
            objects = ET.parse(root / f"Annotations/{sample['key']}.xml").getroot().findall("object")
            boxes = [
                [float(each.findtext(f"bndbox/{tag}", "")) for tag in ("xmin", "ymin", "xmax", "ymax")]
                for each in objects
            ]
            assert sample["boxes"].tolist() == (np.asarray(boxes) - [1, 1, 0, 0]).tolist()
            assert [classes[label] for label in sample["box_labels"]] == [
                each.findtext("name", "").lower() for each in objects
            ]
            assert sample["box_objects"].tolist() == [int(each.findtext("index", "")) for each in objects]
            assert sample["relations"] == [
                {
                    "object": int(each.findtext("index", "")),
                    "fathers": [int(number.text or "") for number in each.findall("father/num")],
                    "children": [int(number.text or "") for number in each.findall("children/num")],
                }
                for each in objects
            ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2 3 4 5 6 7 x 1 easy", "cannot read the label: 'x'"),
        ("1 2 3 4 5 6 7 8", "8 numbers, expected 9 numbers"),
        ("1 2 3 4 5 6 7 8 1 easy hard", "expected 9 numbers"),
        ("1 2 3 4 5 6 7 8 1.5 easy", "1.5"),
        ("1 2 3 4 5 6 7 8 -1", "-1"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_or_left_out(root: Path, line: str, reason: str) -> None:
    """The networks' loader stops at it, outside of what it means to catch."""
    write(root, {"Grasps/00010.txt": f"1 2 3 4 5 6 7 8 1\r\n{line}\r\n"})
    with pytest.raises(BadInput) as caught:
        Source(root)[1]
    assert str(root / "Grasps/00010.txt") in str(caught.value) and reason in str(caught.value)
    lenient = Source(root, bad_labels="skip")
    assert lenient[1]["grasps"].tolist() == [[[1, 2], [3, 4], [5, 6], [7, 8]]]
    assert str(lenient.missing(1)).startswith("1 of 2 labels in Grasps")


def test_a_line_that_is_no_place_is_left_out_and_counted(root: Path) -> None:
    write(root, {"Grasps/00010.txt": "NaN 2 3 4 5 6 7 8 1\n1 2 3 4 5 6 7 8 1 hard\n"})
    source = Source(root)
    assert len(source[1]["grasps"]) == 1
    assert str(source.missing(1)).startswith("1 of 2 labels in Grasps")


@pytest.mark.parametrize("first_pixel", [1, 0])
def test_the_first_pixel_is_of_boxes_and_not_of_grasps(root: Path, first_pixel: int) -> None:
    sample = Source(root, first_pixel=first_pixel)[1]
    assert sample["boxes"].tolist() == ([[0, 0, 64, 48]] if first_pixel else [[1, 1, 64, 48]])
    assert sample["grasps"].tolist() == [[[1, 2], [3, 4], [5, 6], [7, 8]]]


def test_vmrd_is_told_from_voc(root: Path, tmp_path: Path) -> None:
    assert detect(root) == ("vmrd", "VMRD: 2 images")
    assert detect(voc.build(tmp_path / "voc"))[0] == "voc"
    with pytest.raises(InvalidRequest, match="3 images.*Grasps"):
        Source(tmp_path / "voc")
    assert len(sources.load("voc").Source(root)) == 3


def test_lists_are_splits(root: Path) -> None:
    source = Source(root)
    assert source.schema["split"].classes == ("test", "trainval")
    assert [int(source[index]["split"]) for index in range(3)] == [0, 1, 1]


def test_numbers_of_objects_that_do_not_agree_are_told(tmp_path: Path) -> None:
    objects = [vmrd.related("a", (1, 1, 9, 9), 1, fathers=(7,)), vmrd.related("b", (1, 1, 9, 9), 1)]
    root = vmrd.build(tmp_path)
    write(
        root,
        {
            "Annotations/00002.xml": voc.annotation(objects),
            "Grasps/00010.txt": "",
            "Grasps/00002.txt": "1 2 3 4 5 6 7 8 99",
        },
    )
    source = Source(root)
    said = {source.key(index): source.missing(index) or "" for index in range(len(source))}
    assert "grasps of objects without <index>: 99" in said["00002"]
    assert "several objects with one <index>: 1" in said["00002"]
    assert "fathers or children without <index>: 7" in said["00002"]
    assert said["00010"] == "Grasps/ID.txt is empty"
