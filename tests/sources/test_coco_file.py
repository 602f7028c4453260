"""One annotation file of COCO: what it contains, and what is refused or skipped."""

import json
from typing import Any

import numpy as np
import pytest

from packer.errors import BadInput
from packer.sources.annotations._coco_file import NUMBERS, AnnotationFile, CocoImage, CocoObject, read_annotations

IMAGES = [{"id": 1, "file_name": "a.jpg", "height": 5, "width": 10}, {"id": 2, "file_name": "b.jpg"}]
CATEGORIES = [{"id": 0, "name": "cat"}, {"id": 7, "name": "dog"}]
BOX = {"id": 3, "image_id": 1, "category_id": 7, "bbox": [1, 2, 3, 4]}


def read(*annotations: Any, strict: bool = True, **members: Any) -> AnnotationFile:
    content = {"images": IMAGES, "annotations": list(annotations), "categories": CATEGORIES, **members}
    return read_annotations(json.dumps(content).encode(), "x.json", strict=strict)


def box(**members: Any) -> dict[str, Any]:
    return {**BOX, **members}


def objects(file: AnnotationFile, image: int | str = 1) -> list[CocoObject]:
    return [CocoObject.unpacked(each) for each in file.values["objects"].get(image, [])]


def ids(file: AnnotationFile, image: int | str = 1) -> list[int]:
    return [int(np.frombuffer(each.numbers, NUMBERS)["id"][0]) for each in objects(file, image)]


def test_images_categories_and_objects() -> None:
    found = read(box(), box(id=4, category_id=0, iscrowd=1, area=2.5), box(image_id=2))
    assert found.images == {1: CocoImage("a.jpg", (5, 10)), 2: CocoImage("b.jpg", None)}
    assert {known: category.name for known, category in found.categories.items()} == {0: "cat", 7: "dog"}
    assert (ids(found, 1), ids(found, 2)) == ([3, 4], [3])
    assert [each.category for each in objects(found)] == [7, 0]
    numbers = np.frombuffer(b"".join(each.numbers for each in objects(found)), NUMBERS)
    assert numbers["box"].tolist() == [[1, 2, 3, 4]] * 2
    assert numbers["crowd"].tolist() == [0, 1]
    assert np.array_equal(numbers["area"], [np.nan, 2.5], equal_nan=True)
    assert (found.kinds, found.optional, found.count()) == ({"objects"}, {"box_areas"}, 3)


def test_members_may_be_in_any_order_be_absent_or_name_an_image_twice() -> None:
    text = json.dumps({"annotations": [BOX], "categories": CATEGORIES, "images": IMAGES}).encode()
    assert ids(read_annotations(text, "x.json")) == [3]
    assert read().kinds == set()
    found = read_annotations(json.dumps({"images": IMAGES}).encode(), "x.json")
    assert ([*found.images], found.count()) == ([1, 2], 0)
    found = read(box(), images=[*IMAGES, IMAGES[0]])
    assert [*found.images] == [1, 2]


def test_polygons_and_none() -> None:
    found = read(
        box(segmentation=[[0, 0, 1, 0, 1, 2], [5.5, 6, 7, 8]]), box(segmentation=[]), box(segmentation=None), box(),
        box(segmentation=[[], [1, 1, 2, 2]]),
    )  # fmt: skip
    nan = np.nan
    points = [np.frombuffer(each.points, np.float32).tolist() for each in objects(found)]
    wanted = [[0, 0, 1, 0, 1, 2, nan, nan, 5.5, 6, 7, 8, nan, nan], [], [], [], [1, 1, 2, 2, nan, nan]]
    assert all(np.array_equal(found, each, equal_nan=True) for found, each in zip(points, wanted, strict=True))


def test_ids_of_images_may_be_texts_and_whole_floats() -> None:
    images = [{"id": "frankfurt_0", "file_name": "a.jpg"}, {"id": 2.0, "file_name": "b.jpg"}]
    found = read(box(image_id="frankfurt_0", id="u-1"), box(image_id=2), images=images)
    assert [*found.images] == ["frankfurt_0", 2]
    assert (ids(found, 2), found.lacks_ids) == ([3], True)


BAD = [
    (box(bbox=[1, 2, 3]), "bbox"),
    (box(bbox=[1, 2, 3, float("nan")]), "bbox"),
    (box(bbox=[1, 2, 3, float("inf")]), "bbox"),
    (box(bbox=[3e38, 2, 3e38, 4]), "bbox"),
    (box(bbox=[1, 2, 3, 10**400]), "bbox"),
    (box(bbox=[1, 2, 3, True]), "bbox"),
    (box(bbox=None), "bbox None"),
    (box(bbox=[5, 5, -2, 3]), "negative"),
    (box(bbox=list(range(100_000))), "bbox"),
    (box(category_id="7"), "category_id"),
    (box(category_id=8), "category_id 8"),
    (box(image_id=9), "image_id 9"),
    (box(image_id=None), "image_id None"),
    (box(image_id=1 << 63), "image_id"),
    (box(iscrowd=2), "iscrowd 2"),
    (box(iscrowd=[]), "iscrowd"),
    (box(area="large"), "area"),
    (box(keypoints=[1, 2]), "keypoints"),
    (box(keypoints=[1, 2, 3]), "visibility"),
    (box(keypoints=[0] * 3003), "at most 1000"),
    (box(segmentation=[[1, 2, 3]]), "segmentation"),
    (box(segmentation=[1, 2, 3, 4]), "segmentation"),
    (box(segmentation=[[1, "2"]]), "segmentation"),
    (box(segmentation=[[1, 10**400]]), "segmentation"),
    (box(segmentation=[[1, 2], [3, float("nan")]]), "segmentation"),
    (box(segmentation=[[1, 1e39]]), "segmentation"),
    (box(segmentation="x"), "segmentation"),
    (box(segmentation={"counts": [1]}), "segmentation"),
    (box(segmentation={"size": [5, 10], "counts": [-1]}), "segmentation"),
    (box(segmentation={"size": [5, 10], "counts": [1.5]}), "segmentation"),
    (box(segmentation={"size": [5, 0], "counts": [1]}), "segmentation"),
    ({"id": 1, "image_id": 1}, "caption"),
    ({"image_id": 1, "caption": 5}, "caption 5"),
    ({"image_id": 1, "caption": "\ud800"}, "caption"),
    ({"image_id": 9, "caption": "x"}, "image_id 9"),
    ({"image_id": 1, "category_id": 3}, "category_id"),
    ({"image_id": 1, "category_id": "a"}, "category_id"),
    ({"image_id": 1, "file_name": "", "segments_info": []}, "PNG"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 1}]}, "segments_info"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 1 << 24, "category_id": 0}]}, "segments_info"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 0, "category_id": 0}]}, "segments_info"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 1, "category_id": 9}]}, "category_id"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 1, "category_id": 0}] * 2}, "segments_info"),
]


@pytest.mark.parametrize(("annotation", "reason"), BAD, ids=range(len(BAD)))
def test_an_annotation_that_is_ill_formed_is_an_error_or_left_out(annotation: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=rf"x\.json: 1 annotation.*{reason}") as caught:
        read(box(), annotation, box(image_id=2))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "--bad-labels skip" in str(caught.value)
    found = read(box(), annotation, box(image_id=2), strict=False)
    assert found.problem_count == 1
    assert (len(objects(found, 1)), len(objects(found, 2)), found.count()) == (1, 1, 2)


def test_all_culprits_are_counted_and_twenty_named() -> None:
    with pytest.raises(BadInput, match="30 annotations.*10 more"):
        read(box(), *(box(id=number, bbox=[]) for number in range(30)))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"images": [{"id": 1}]}, "file_name None"),
        ({"images": [{"id": None, "file_name": "a"}]}, "id None"),
        ({"images": [{"id": True, "file_name": "a"}]}, "id True"),
        ({"images": [{"id": 1 << 64, "file_name": "a"}]}, "id 18446744073709551616"),
        ({"images": [{"id": 1, "file_name": "\udc00"}]}, "file_name"),
        ({"images": ["a.jpg"]}, "images"),
        (
            {"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]},
            "image id 1",
        ),
        ({"categories": [{"id": 1}]}, "category 0"),
        ({"categories": [{"id": "x", "name": "a"}]}, "category 0"),
        ({"categories": [{"id": 1, "name": "\ud800"}]}, "category 0"),
        ({"categories": [{"id": 1, "name": "a", "keypoints": [1]}]}, "category 0"),
        ({"categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}, "category id 1"),
        ({"annotations": [5]}, "annotations"),
        ({"annotations": {"1": []}}, "annotations"),
    ],
)
def test_images_and_categories_that_say_nothing_are_refused(members: dict[str, Any], reason: str) -> None:
    for strict in (True, False):
        with pytest.raises(BadInput, match=rf"x\.json.*{reason}") as caught:
            read(strict=strict, **members)
        assert "\n" not in str(caught.value)
