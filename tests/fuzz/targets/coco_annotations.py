"""COCO annotation files: strict and lenient reading agree, and annotations refer to images and categories."""

import json
from collections.abc import Iterator

import numpy as np

from packer.errors import PackerError
from packer.sources.annotations._coco_file import NUMBERS, AnnotationFile, CocoObject, read_annotations
from packer.sources.annotations._rle_and_panoptic import run_lengths
from tests.fuzz.target import Disagreement

TOKENS = (
    *(b'"bbox"', b'"segmentation"', b'"counts"', b'"size"', b'"keypoints"', b'"caption"', b'"segments_info"'),
    *(b'"iscrowd"', b"NaN", b"Infinity", b"1e999", b"-1", b"9007199254740993", b"18446744073709551616", b"\\ud800"),
)
_IMAGES = [{"id": 1, "file_name": "a.jpg", "height": 5, "width": 10}, {"id": "b", "file_name": "b/b.jpg"}]
_CATEGORIES = [{"id": 0, "name": "cat", "keypoints": ["nose", "ear"]}, {"id": 7, "name": "dog"}]
_OBJECT = {"id": 3, "image_id": 1, "category_id": 7, "bbox": [1, 2.5, 3, 4], "area": 12.0, "iscrowd": 0}
_ANNOTATIONS = [
    {**_OBJECT, "segmentation": [[0, 0, 1.5, 0, 1, 2], []], "keypoints": [1, 2, 2, 0, 0, 0]},
    {**_OBJECT, "segmentation": {"size": [5, 10], "counts": [0, 20, 30]}, "iscrowd": 1},
    {**_OBJECT, "image_id": "b", "segmentation": {"size": [5, 10], "counts": "::50:"}},
    {"id": 1, "image_id": 1, "caption": "hello"},
    {"id": 1, "image_id": 1, "category_id": 0},
    {"image_id": 1, "file_name": "a.png", "segments_info": [{"id": 460551, "category_id": 0, "iscrowd": 1}]},
]


def seeds() -> Iterator[bytes]:
    for chosen in (_ANNOTATIONS, _ANNOTATIONS[:1], _ANNOTATIONS[1:3], _ANNOTATIONS[3:], []):
        yield json.dumps({"images": _IMAGES, "annotations": chosen, "categories": _CATEGORIES}).encode()
    yield json.dumps({"annotations": _ANNOTATIONS, "categories": _CATEGORIES, "images": _IMAGES}, indent=1).encode()


def check(data: bytes) -> None:
    lenient = read_annotations(data, "fuzz.json", strict=False)
    _check_refers(lenient)
    try:
        strict = read_annotations(data, "fuzz.json", strict=True)
    except PackerError:
        if not lenient.problem_count:
            raise Disagreement("strict refuses what lenient reads completely") from None
        raise
    if lenient.problem_count or strict.count() != lenient.count():
        raise Disagreement(f"strict {strict.count()}, lenient {lenient.count()}")
    for each in _objects(strict):
        if each.runs is not None:
            counts, (height, width) = each.runs
            if int(run_lengths(counts, (height, width)).sum()) != height * width:
                raise Disagreement(f"run lengths of {width}x{height} px")


def _objects(file: AnnotationFile) -> list[CocoObject]:
    return [CocoObject.unpacked(each) for values in file.values["objects"].values() for each in values]


def _check_refers(file: AnnotationFile) -> None:
    if any(image not in file.images for by_image in file.values.values() for image in by_image):
        raise Disagreement("an annotation of no image")
    for each in _objects(file):
        points = np.frombuffer(each.points, np.float32).reshape(-1, 2)
        is_end = np.isnan(points).all(axis=1)
        if each.category not in file.categories or len(each.numbers) != NUMBERS.itemsize or len(each.keypoints) % 12:
            raise Disagreement("an object of no category, or with incomplete numbers")
        if not np.isfinite(points[~is_end]).all() or (len(points) and not is_end[-1]):
            raise Disagreement("a point that is not finite, or a polygon without an end")
