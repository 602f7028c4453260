"""COCO annotation files: strict and lenient agree wherever strict reads, and what is taken refers to what is there."""

import json
from collections.abc import Iterator

import numpy as np

from packer.errors import PackerError
from packer.sources._parse.coco_annotations import AnnotationFile, read_annotations
from packer.sources._parse.run_lengths import run_lengths
from tests.fuzz.target import Disagreement

TOKENS = (
    *(b'"bbox"', b'"segmentation"', b'"counts"', b'"size"', b'"keypoints"', b'"caption"', b'"segments_info"'),
    *(b'"iscrowd"', b"NaN", b"Infinity", b"1e999", b"-1", b"9007199254740993", b"18446744073709551616", b"\\ud800"),
)
MOST_BYTES = 4096
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
        if not lenient.left_out.count:
            raise Disagreement("strict refuses what lenient reads whole") from None
        raise
    if lenient.left_out.count or strict.annotation_count != lenient.annotation_count:
        raise Disagreement(f"strict {strict.annotation_count}, lenient {lenient.annotation_count}")
    for runs in strict.objects.runs.values():
        found = run_lengths(*runs)
        if int(found.sum()) != runs.size[0] * runs.size[1]:
            raise Disagreement(f"{found.sum()} px of {runs.size}")


def _check_refers(found: AnnotationFile) -> None:
    objects = found.objects
    rows = [row for picture in range(len(found.image_ids)) for row in found.object_rows(picture)]
    if len(set(rows)) != len(rows) or any(objects.categories[row] not in found.categories for row in rows):
        raise Disagreement("an object of two pictures, or of no category")
    lengths = {len(objects.ids), len(objects.crowd), len(objects.areas), len(objects.polygon_ends)}
    lengths |= {len(objects.categories), len(objects.boxes) // 4, len(objects.keypoint_ends)}
    if lengths != {len(objects)}:
        raise Disagreement(f"columns of {lengths} rows, {len(objects)} objects")
    for ends, last in (
        (objects.polygon_ends, len(objects.polygon_point_ends)),
        (objects.polygon_point_ends, len(objects.points) // 2),
        (objects.keypoint_ends, len(objects.visibility)),
    ):
        if (np.diff([0, *ends]) < 0).any() or (ends[-1] if ends else 0) != last:
            raise Disagreement(f"ends {ends}, of {last}")
    taken = [point for row in rows for point in _points_of(found, row)]
    if not np.isfinite(taken).all():
        raise Disagreement("a point nowhere")


def _points_of(found: AnnotationFile, row: int) -> list[float]:
    objects = found.objects
    first = objects.polygon_ends[row - 1] if row else 0
    end = objects.polygon_ends[row]
    start = objects.polygon_point_ends[first - 1] if first else 0
    stop = objects.polygon_point_ends[end - 1] if end else 0
    return objects.points[2 * start : 2 * stop].tolist()
