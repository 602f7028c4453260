"""One annotation file of COCO: what is taken from it, and what is refused or left out, by name."""

import json
from array import array
from typing import Any

import numpy as np
import pytest

from packer.errors import BadInput
from packer.sources._parse.coco_annotations import AnnotationFile, read_annotations

IMAGES = [{"id": 1, "file_name": "a.jpg", "height": 5, "width": 10}, {"id": 2, "file_name": "b.jpg"}]
CATEGORIES = [{"id": 0, "name": "cat"}, {"id": 7, "name": "dog"}]
BOX = {"id": 3, "image_id": 1, "category_id": 7, "bbox": [1, 2, 3, 4]}


def read(*annotations: Any, strict: bool = True, **members: Any) -> AnnotationFile:
    content = {"images": IMAGES, "annotations": list(annotations), "categories": CATEGORIES, **members}
    return read_annotations(json.dumps(content).encode(), "x.json", strict=strict)


def box(**members: Any) -> dict[str, Any]:
    return {**BOX, **members}


def test_images_categories_and_objects() -> None:
    found = read(box(), box(id=4, category_id=0, iscrowd=1, area=2.5), box(image_id=2))
    assert (found.image_ids, found.file_names, list(found.sizes)) == ([1, 2], ["a.jpg", "b.jpg"], [5, 10, 0, 0])
    assert {known: category.name for known, category in found.categories.items()} == {0: "cat", 7: "dog"}
    assert (found.object_rows(0), found.object_rows(1)) == ([0, 1], [2])
    assert found.objects.ids == [3, 4, 3]
    assert list(found.objects.categories) == [7, 0, 7]
    assert list(found.objects.crowd) == [0, 1, 0]
    assert np.array_equal(found.objects.areas, [np.nan, 2.5, np.nan], equal_nan=True)
    assert list(found.objects.boxes) == [1, 2, 3, 4] * 3
    assert found.kinds == {"objects"}
    assert found.annotation_count == 3


def test_members_may_stand_in_any_order() -> None:
    text = json.dumps({"annotations": [BOX], "categories": CATEGORIES, "images": IMAGES}).encode()
    assert read_annotations(text, "x.json").object_rows(0) == [0]


def test_a_file_without_annotations_and_with_none() -> None:
    assert read().kinds == set()
    text = json.dumps({"images": IMAGES}).encode()
    found = read_annotations(text, "x.json")
    assert (found.image_ids, found.object_rows(1), found.annotation_count) == ([1, 2], [], 0)


def test_polygons_and_none() -> None:
    found = read(
        box(segmentation=[[0, 0, 1, 0, 1, 2], [5.5, 6, 7, 8, 9, 10, 11, 12]]),
        box(segmentation=[]),
        box(segmentation=None),
        box(),
        box(segmentation=[[], [1, 1, 2, 2]]),
    ).objects
    assert list(found.polygon_ends) == [2, 2, 2, 2, 3]
    assert list(found.polygon_point_ends) == [3, 7, 9]
    assert found.points.tolist() == [0, 0, 1, 0, 1, 2, 5.5, 6, 7, 8, 9, 10, 11, 12, 1, 1, 2, 2]


def test_run_lengths_as_lists_and_texts() -> None:
    found = read(
        box(segmentation={"size": [5, 10], "counts": [0, 20, 30]}),
        box(),
        box(segmentation={"size": [5, 10], "counts": "::50:"}),
    ).objects
    assert found.runs == {0: (array("I", [0, 20, 30]), (5, 10)), 2: ("::50:", (5, 10))}


def test_keypoints() -> None:
    found = read(box(keypoints=[1, 2, 2, 3.5, 4, 1, 0, 0, 0]), box(), box(keypoints=[])).objects
    assert found.keypoints.tolist() == [1, 2, 3.5, 4, 0, 0]
    assert list(found.visibility) == [2, 1, 0]
    assert list(found.keypoint_ends) == [3, 3, 3]
    assert found.most_keypoints == 3


def test_captions_labels_and_panoptic() -> None:
    found = read(
        {"id": 1, "image_id": 1, "category_id": 0, "caption": "hello"},
        {"id": 2, "image_id": 1, "caption": "\u00fc\U0001f600"},
        {"id": 3, "image_id": 2, "category_id": 7},
        {"image_id": 2, "file_name": "b.png", "segments_info": [{"id": 460551, "category_id": 0, "iscrowd": 1}]},
    )
    assert found.captions == {0: ["hello", "\u00fc\U0001f600"]}
    assert found.labels == {1: [7]}
    assert found.panoptic == {1: ("b.png", ((460551, 0, 1),))}
    assert found.kinds == {"captions", "labels", "panoptic"}


def test_ids_beyond_what_a_float_holds_stay_apart() -> None:
    large = (1 << 53) + 1
    images = [{"id": large, "file_name": "a.jpg"}, {"id": large - 1, "file_name": "b.jpg"}]
    found = read(box(id=large, image_id=large), box(id=large - 1, image_id=large - 1), images=images)
    assert found.objects.ids == [large, large - 1]
    assert (found.object_rows(0), found.object_rows(1)) == ([0], [1])


def test_ids_of_images_may_be_texts_and_floats_that_are_whole() -> None:
    images = [{"id": "frankfurt_0", "file_name": "a.jpg"}, {"id": 2.0, "file_name": "b.jpg"}]
    found = read(box(image_id="frankfurt_0", id="u-1"), box(image_id=2), images=images)
    assert found.image_ids == ["frankfurt_0", 2]
    assert found.objects.ids == [None, 3]


BAD = [
    (box(bbox=[1, 2, 3]), r"bbox \[1, 2, 3\]: expected x, y, width, height"),
    (box(bbox=[1, 2, 3, float("nan")]), "expected x, y, width, height"),
    (box(bbox=[1, 2, 3, float("inf")]), "expected x, y, width, height"),
    (box(bbox=[3e38, 2, 3e38, 4]), "expected x, y, width, height"),
    (box(bbox=[1, 2, 3, 10**400]), "expected x, y, width, height"),
    (box(bbox=[1, 2, 3, True]), "expected x, y, width, height"),
    (box(bbox=None), "bbox None"),
    (box(bbox=list(range(100_000))), r"bbox \[0, 1, 2, 3, 4, 5, 6, 7, \.\.\.: expected"),
    (box(category_id="7"), "category_id '7'"),
    (box(category_id=8), "category_id 8: no such category"),
    (box(image_id=9), "image_id 9: no such image"),
    (box(image_id=None), "image_id None: expected the id"),
    (box(image_id=1 << 63), "expected the id"),
    (box(iscrowd=2), "iscrowd 2"),
    (box(iscrowd=[]), r"iscrowd \[\]"),
    (box(area="large"), "area 'large': expected a number"),
    (box(keypoints=[1, 2]), r"keypoints \[1, 2\]: expected x, y, visibility"),
    (box(keypoints=[1, 2, 3]), "expected visibilities 0, 1 and 2"),
    (box(keypoints=[0] * 3003), "at most 1000"),
    (box(segmentation=[[1, 2, 3]]), "expected polygons"),
    (box(segmentation=[1, 2, 3, 4]), "segmentation 1: expected polygons"),
    (box(segmentation=[[1, "2"]]), "expected polygons"),
    (box(segmentation=[[1, 10**400]]), "expected polygons"),
    (box(segmentation=[[1, 2], [3, float("nan")]]), "no finite number"),
    (box(segmentation=[[1, 1e39]]), "no finite number"),
    (box(segmentation="x"), "expected polygons, or run lengths"),
    (box(segmentation={"counts": [1]}), r"expected size \[height, width\] and counts"),
    (box(segmentation={"size": [5, 10], "counts": [-1]}), "and counts"),
    (box(segmentation={"size": [5, 10], "counts": [1.5]}), "and counts"),
    (box(segmentation={"size": [5, 0], "counts": [1]}), "and counts"),
    ({"id": 1, "image_id": 1}, "has no bbox, category_id, caption or segments_info"),
    ({"image_id": 1, "caption": 5}, "caption 5: expected a text"),
    ({"image_id": 1, "caption": "\ud800"}, "expected a text"),
    ({"image_id": 9, "caption": "x"}, "no such image"),
    ({"image_id": 1, "category_id": 3}, "no such category"),
    ({"image_id": 1, "category_id": "a"}, "expected the id of a category"),
    ({"image_id": 1, "file_name": "", "segments_info": []}, "expected the name of a PNG"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 1}]}, "expected an id of 24 bits"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 1 << 24, "category_id": 0}]}, "24 bits"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 0, "category_id": 0}]}, "24 bits, not 0"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 1, "category_id": 9}]}, "no such category"),
    ({"image_id": 1, "file_name": "a", "segments_info": [{"id": 1, "category_id": 0}] * 2}, "come twice"),
]


@pytest.mark.parametrize(("annotation", "reason"), BAD, ids=range(len(BAD)))
def test_an_annotation_that_is_ill_formed_is_an_error_or_left_out(annotation: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=rf"x\.json: 1 annotation of 3 cannot be taken: .*{reason}") as caught:
        read(box(), annotation, box(image_id=2))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "--labels lenient" in str(caught.value)
    found = read(box(), annotation, box(image_id=2), strict=False)
    assert found.left_out.count == 1
    assert [len(found.object_rows(0)), len(found.object_rows(1))] == [1, 1]
    assert (found.captions, found.labels, found.panoptic) == ({}, {}, {})


def test_all_culprits_are_counted_and_twenty_named() -> None:
    with pytest.raises(BadInput, match="30 annotations of 31 .* and 10 more"):
        read(box(), *(box(id=number, bbox=[]) for number in range(30)))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"images": [{"id": 1}]}, "file_name None: expected a number or a text, and the name of a file"),
        ({"images": [{"id": None, "file_name": "a"}]}, "id None"),
        ({"images": [{"id": True, "file_name": "a"}]}, "id True"),
        ({"images": [{"id": 1 << 64, "file_name": "a"}]}, "id 18446744073709551616"),
        ({"images": [{"id": 1, "file_name": "\udc00"}]}, "file_name"),
        ({"images": ["a.jpg"]}, "images: 'a.jpg': expected objects"),
        (
            {"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]},
            "image id 1 is there twice, for 'a' and",
        ),
        ({"categories": [{"id": 1}]}, "category 0: .* expected a whole number as id, a name"),
        ({"categories": [{"id": "x", "name": "a"}]}, "expected a whole number as id"),
        ({"categories": [{"id": 1, "name": "\ud800"}]}, "expected a whole number as id"),
        ({"categories": [{"id": 1, "name": "a", "keypoints": [1]}]}, "names of keypoints"),
        ({"categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}, "category id 1 is there twice"),
        ({"annotations": [5]}, "annotations: 5: expected objects"),
        ({"annotations": {"1": []}}, "'annotations' is no list"),
    ],
)
def test_images_and_categories_that_say_nothing_are_refused(members: dict[str, Any], reason: str) -> None:
    for strict in (True, False):
        with pytest.raises(BadInput, match=rf"x\.json.*{reason}") as caught:
            read(strict=strict, **members)
        assert "\n" not in str(caught.value)


def test_an_image_that_is_there_twice_with_one_file_is_one() -> None:
    found = read(box(), images=[*IMAGES, IMAGES[0]])
    assert (found.image_ids, found.repeated_images) == ([1, 2], [1])


def test_members_that_are_not_read_are_named() -> None:
    found = read(box(attributes={"x": 1}, num_keypoints=3), images=[{**IMAGES[0], "license": 1}, IMAGES[1]])
    assert found.other_members == {"annotations.attributes", "images.license"}
