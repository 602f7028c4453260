"""COCO annotations: one annotation file of the COCO layout, as arrays.

Layout (cocodataset.org, "Data format"): an object with `images` (id, file_name, width, height), `categories` (id, name,
keypoints) and `annotations`, which say `image_id`, and by what they hold are

| kind     | members                                                                                              |
|----------|------------------------------------------------------------------------------------------------------|
| objects  | category_id, bbox [x, y, width, height]; id, iscrowd, area, segmentation and keypoints may be absent   |
| captions | caption                                                                                              |
| panoptic | file_name, segments_info (id, category_id, iscrowd)                                                  |
| labels   | category_id without a bbox: datumaro's labels, iNaturalist                                           |

A segmentation is a list of polygons [x0, y0, x1, y1, ...] or run lengths (packer.sources._parse.run_lengths). Ids are
whole numbers of any size, or text. The file is read an element at a time: what is kept of an annotation is its numbers.
"""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.sources._parse.folder_listing import counted, shown
from packer.sources._parse.json_elements import elements

KINDS = ("objects", "captions", "panoptic", "labels")
MOST_KEYPOINTS = 1000  # of one object; 294 is the most that a known set has
_LARGEST = float(np.finfo(np.float32).max)
_INT64 = 1 << 63
_SHOWN_PROBLEMS = 20
_IMAGE_MEMBERS = {"id", "file_name", "width", "height"}
_CATEGORY_MEMBERS = {"id", "name", "keypoints", "supercategory", "skeleton"}
_COMMON = {"id", "image_id", "category_id"}
_MEMBERS = {
    "objects": _COMMON | {"bbox", "iscrowd", "area", "segmentation", "keypoints", "num_keypoints"},
    "captions": _COMMON | {"caption"},
    "panoptic": _COMMON | {"file_name", "segments_info"},
    "labels": _COMMON,
}
_Element = Mapping[str, object]

Id = int | str


class Category(NamedTuple):
    """keypoints: the names of its keypoints, in order; empty for none."""

    id: int
    name: str
    keypoints: tuple[str, ...] = ()


class RunLengthMask(NamedTuple):
    """Run lengths as in the file. size: (height, width) in px."""

    counts: str | Sequence[int]
    size: tuple[int, int]


class Segment(NamedTuple):
    """A segment of a panoptic picture, whose pixels have the colour R + 256 G + 65536 B = id."""

    id: int
    category: int
    is_crowd: int


class Panoptic(NamedTuple):
    """What is said of a picture of segments."""

    file_name: str
    segments: tuple[Segment, ...]


@dataclass
class Objects:
    """Annotations with boxes, in the order of the file; the numbers of all are in arrays one behind the other.

    ids: None for one without an id that is a whole number. areas: NaN for none. points: x, y in turn. polygon_ends: of
    each object, the end of its polygons; polygon_point_ends: of each polygon, the end of its points; runs: of objects
    by their row. keypoint_ends: of each object, the end of its keypoints, x, y in turn in `keypoints`.
    """

    image_ids: list[Id] = field(default_factory=list)
    ids: list[int | None] = field(default_factory=list)
    categories: "array[int]" = field(default_factory=lambda: array("q"))
    boxes: "array[float]" = field(default_factory=lambda: array("d"))
    crowd: "array[int]" = field(default_factory=lambda: array("B"))
    areas: "array[float]" = field(default_factory=lambda: array("d"))
    points: "array[float]" = field(default_factory=lambda: array("f"))
    polygon_point_ends: "array[int]" = field(default_factory=lambda: array("q"))
    polygon_ends: "array[int]" = field(default_factory=lambda: array("q"))
    runs: dict[int, RunLengthMask] = field(default_factory=dict)
    keypoints: "array[float]" = field(default_factory=lambda: array("f"))
    visibility: "array[int]" = field(default_factory=lambda: array("B"))
    keypoint_ends: "array[int]" = field(default_factory=lambda: array("q"))
    most_keypoints: int = 0

    def __len__(self) -> int:
        return len(self.image_ids)


@dataclass
class AnnotationFile:
    """What an annotation file says. Rows are numbers of `image_ids`.

    kinds: which of KINDS it holds. sizes: (height, width) of each picture, 0 where it says none. odd_sizes: how many
    state a side that is no whole number above 0. object_rows: of each
    picture, the rows of its objects. captions, labels, panoptic: by row of the picture. left_out: annotations that are
    not taken, each with the reason. other_members: members of images and annotations that are not read.
    """

    path: str
    image_ids: list[Id] = field(default_factory=list)
    file_names: list[str] = field(default_factory=list)
    sizes: "array[int]" = field(default_factory=lambda: array("q"))
    odd_sizes: int = 0
    categories: dict[int, Category] = field(default_factory=dict)
    objects: Objects = field(default_factory=Objects)
    captions: dict[int, list[str]] = field(default_factory=dict)
    labels: dict[int, list[int]] = field(default_factory=dict)
    panoptic: dict[int, Panoptic] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    left_out: "Problems" = field(default_factory=lambda: Problems())
    repeated_images: list[Id] = field(default_factory=list)
    other_members: set[str] = field(default_factory=set)
    _object_order: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _object_bounds: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def object_rows(self, row: int) -> list[int]:
        """The objects of a picture, in the order of the file."""
        first, end = self._object_bounds[row], self._object_bounds[row + 1]
        found: list[int] = self._object_order[first:end].tolist()
        return found

    @property
    def annotation_count(self) -> int:
        """How many annotations are taken; the segments of a picture are one."""
        lists = sum(map(len, self.captions.values())) + sum(map(len, self.labels.values()))
        return len(self._object_order) + lists + len(self.panoptic)

    def sort_objects(self, rows: npt.NDArray[np.int64]) -> None:
        """Say which picture each object is of, -1 for none."""
        order = np.argsort(rows, kind="stable")
        self._object_order = order[np.count_nonzero(rows < 0) :]
        self._object_bounds = np.searchsorted(rows[self._object_order], np.arange(len(self.image_ids) + 1))


@dataclass
class Problems:
    """What is wrong with annotations: how many there are, and the first of them; what is the file's fault once."""

    count: int = 0
    first: list[str] = field(default_factory=list)
    of_the_file: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.first) < _SHOWN_PROBLEMS:
            self.first.append(text)

    def add_of_file(self, text: str) -> None:
        """Count one more that has this in common with others."""
        self.count += 1
        self.of_the_file[text] += 1

    def __str__(self) -> str:
        shared = [f"{text} ({counted(count, 'annotation')})" for text, count in self.of_the_file.items()]
        more = self.count - self.of_the_file.total() - len(self.first)
        return "; ".join([*shared, *self.first]) + (f" and {more} more" if more else "")


def read_annotations(data: bytes, path: str, *, strict: bool = True) -> AnnotationFile:
    """The annotations of one file; raises BadInput with the path, naming the first 20 culprits.

    strict: an annotation that is ill-formed, or of an image or a category that is not there, is an error; else it is
    left out whole.
    """
    reader = _AnnotationReader(path)
    for member, element in elements(data, ("images", "categories", "annotations"), path):
        reader.take(member, element)
    return reader.finished(strict=strict)


class _AnnotationReader:
    def __init__(self, path: str) -> None:
        self._file = AnnotationFile(path)
        self._path = shown(path)
        self._has_images = False
        self._rows: dict[Id, int] = {}
        self._count = 0  # of annotations so far
        self._captions: list[tuple[str, Id, str]] = []  # what to call it, image, caption
        self._labels: list[tuple[str, Id, int]] = []
        self._panoptic: list[tuple[str, Id, Panoptic]] = []

    def take(self, member: str, element: object) -> None:
        """Keep one element."""
        if not isinstance(element, dict):
            raise BadInput(f"{self._path}: {member}: {_some(element)}: expected objects, as COCO has them")
        if member == "images":
            self._take_image(element)
        elif member == "categories":
            self._take_category(element)
        else:
            self._take_annotation(element)

    def _take_image(self, element: _Element) -> None:
        found = self._file
        known = _id(element.get("id"))
        name = element.get("file_name")
        if known is None or not isinstance(name, str) or not name or not _is_text(name):
            raise BadInput(
                f"{self._path}: image {len(found.image_ids)}: id {_some(element.get('id'))}, file_name {_some(name)}: "
                "expected a number or a text, and the name of a file"
            )
        if known in self._rows:
            found.repeated_images.append(known)
            if found.file_names[self._rows[known]] != name:
                raise BadInput(
                    f"{self._path}: image id {_some(known)} is there twice, for "
                    f"{_some(found.file_names[self._rows[known]])} and {_some(name)}: its annotations may belong to "
                    "either; mend the file"
                )
            return
        self._rows[known] = len(found.image_ids)
        found.image_ids.append(known)
        found.file_names.append(name)
        height, width = _side(element.get("height")), _side(element.get("width"))
        found.sizes.extend((height, width) if height and width else (0, 0))
        given = [element[side] for side in ("height", "width") if element.get(side) is not None]
        found.odd_sizes += any(not _side(side) for side in given)
        if not element.keys() <= _IMAGE_MEMBERS:
            found.other_members |= {f"images.{name}" for name in element.keys() - _IMAGE_MEMBERS}

    def _take_category(self, element: _Element) -> None:
        known, name, keypoints = _whole(element.get("id")), element.get("name"), element.get("keypoints", [])
        is_list = isinstance(keypoints, list) and all(isinstance(word, str) and _is_text(word) for word in keypoints)
        if known is None or not isinstance(name, str) or not _is_text(name) or not is_list:
            raise BadInput(
                f"{self._path}: category {len(self._file.categories)}: {_some(element)}: expected a whole number as "
                "id, a name, and names of keypoints if any"
            )
        category = Category(known, name, tuple(keypoints) if isinstance(keypoints, list) else ())
        if self._file.categories.setdefault(known, category) != category:
            raise BadInput(f"{self._path}: category id {known} is there twice, with other names; mend the file")

    def _take_annotation(self, element: _Element) -> None:
        called = f"annotation {self._count} (id {_some(element.get('id'))})"
        self._count += 1
        kind = _kind(element)
        image = _id(element.get("image_id"))
        problem: str | None
        if kind is None:
            problem = "has no bbox, category_id, caption or segments_info"
        elif image is None:
            problem = f"image_id {_some(element.get('image_id'))}: expected the id of an image"
        else:
            self._file.kinds.add(kind)
            problem = self._takers[kind](self, called, image, element)
            if not element.keys() <= _MEMBERS[kind]:
                self._file.other_members |= {f"annotations.{name}" for name in element.keys() - _MEMBERS[kind]}
        if problem is not None:
            self._file.left_out.add(f"{called}: {problem}")

    def _take_object(self, called: str, image: Id, element: _Element) -> str | None:
        found = self._file.objects
        box = _numbers(element.get("bbox"))
        if box is None or len(box) != 4 or max(abs(box[0] + box[2]), abs(box[1] + box[3])) > _LARGEST:
            return f"bbox {_some(element.get('bbox'))}: expected x, y, width, height"
        if box[2] < 0 or box[3] < 0:
            return f"bbox {_some(element.get('bbox'))}: its width or height is negative"
        category = _whole(element.get("category_id"))
        crowd = element.get("iscrowd", 0)
        if category is None or crowd not in (0, 1):
            return (
                f"category_id {_some(element.get('category_id'))}, iscrowd {_some(crowd)}: expected the id of a "
                "category, and 0 or 1"
            )
        area = element.get("area")
        area_px = math.nan if area is None else _number(area)
        if area_px is None:
            return f"area {_some(area)}: expected a number"
        keypoints = _numbers(element.get("keypoints", []))
        if keypoints is None or len(keypoints) % 3 or len(keypoints) > 3 * MOST_KEYPOINTS:
            return (
                f"keypoints {_some(element.get('keypoints'))}: expected x, y, visibility for each, at most "
                f"{MOST_KEYPOINTS}"
            )
        if any(value not in (0, 1, 2) for value in keypoints[2::3]):
            return f"keypoints {_some(element.get('keypoints'))}: expected visibilities 0, 1 and 2"
        problem = self._take_segmentation(element.get("segmentation"))
        if problem is not None:
            return problem
        found.image_ids.append(image)
        found.ids.append(_whole(element.get("id")))
        found.categories.append(category)
        found.boxes.extend(box)
        found.crowd.append(int(bool(crowd)))
        found.areas.append(area_px)
        for at in range(0, len(keypoints), 3):
            found.keypoints.extend(keypoints[at : at + 2])
            found.visibility.append(int(keypoints[at + 2]))
        found.keypoint_ends.append(len(found.visibility))
        found.most_keypoints = max(found.most_keypoints, len(keypoints) // 3)
        return None

    def _take_segmentation(self, given: object) -> str | None:
        """Keep the polygons or run lengths of the object that comes next; nothing of them where one is ill-formed."""
        found = self._file.objects
        polygons: list[array[float]] = []
        if isinstance(given, dict):
            runs = _runs(given)
            if runs is None:
                return f"segmentation {_some(given)}: expected size [height, width] and counts"
            found.runs[len(found)] = runs
        elif isinstance(given, list):
            for polygon in given:
                points = _points(polygon)
                if points is None:
                    return f"segmentation {_some(polygon)}: expected polygons [x, y, x, y, ...] in a list"
                polygons.append(points)
        elif given is not None:
            return f"segmentation {_some(given)}: expected polygons, or run lengths"
        for points in polygons:
            if points:  # an empty one says nothing
                found.points.extend(points)
                found.polygon_point_ends.append(len(found.points) // 2)
        found.polygon_ends.append(len(found.polygon_point_ends))
        return None

    def _take_caption(self, called: str, image: Id, element: _Element) -> str | None:
        caption = element.get("caption")
        if not isinstance(caption, str) or not _is_text(caption):
            return f"caption {_some(caption)}: expected a text"
        self._captions.append((called, image, caption))
        return None

    def _take_label(self, called: str, image: Id, element: _Element) -> str | None:
        category = _whole(element.get("category_id"))
        if category is None:
            return f"category_id {_some(element.get('category_id'))}: expected the id of a category"
        self._labels.append((called, image, category))
        return None

    def _take_panoptic(self, called: str, image: Id, element: _Element) -> str | None:
        name, given = element.get("file_name"), element.get("segments_info")
        if not isinstance(name, str) or not name or not _is_text(name) or not isinstance(given, list):
            return f"file_name {_some(name)}: expected the name of a PNG file, and a list segments_info"
        segments: list[Segment] = []
        for one in given:
            known = _whole(one.get("id")) if isinstance(one, dict) else None
            category = _whole(one.get("category_id")) if isinstance(one, dict) else None
            crowd = one.get("iscrowd", 0) if isinstance(one, dict) else 0
            if known is None or category is None or crowd not in (0, 1) or not 0 < known < 1 << 24:
                return (
                    f"segments_info {_some(one)}: expected an id of 24 bits, not 0, a category_id, and iscrowd 0 or 1"
                )
            segments.append(Segment(known, category, int(bool(crowd))))
        if len({segment.id for segment in segments}) < len(segments):
            return f"segments_info {_some([segment.id for segment in segments])}: ids that come twice"
        self._panoptic.append((called, image, Panoptic(name, tuple(segments))))
        return None

    _takers: Mapping[str, Callable[["_AnnotationReader", str, Id, _Element], str | None]] = {
        "objects": _take_object,
        "captions": _take_caption,
        "labels": _take_label,
        "panoptic": _take_panoptic,
    }

    # ---- what refers to images and categories, which may stand behind

    def finished(self, *, strict: bool) -> AnnotationFile:
        found = self._file
        self._settle_objects()
        for called, image, caption in self._captions:
            if self._is_known(called, image, ()):
                found.captions.setdefault(self._rows[image], []).append(caption)
        for called, image, label in self._labels:
            if self._is_known(called, image, (label,)):
                found.labels.setdefault(self._rows[image], []).append(label)
        for called, image, panoptic in self._panoptic:
            if self._is_known(called, image, (segment.category for segment in panoptic.segments)):
                if self._rows[image] in found.panoptic:
                    found.left_out.add(f"{called}: image_id {_some(image)} has segments already")
                else:
                    found.panoptic[self._rows[image]] = panoptic
        problems = found.left_out
        if strict and problems.count:
            raise BadInput(
                f"{self._path}: {counted(problems.count, 'annotation')} of {self._count} cannot be taken: "
                f"{problems}; mend the file, or say --labels lenient, which leaves them out"
            )
        return found

    def _settle_objects(self) -> None:
        found = self._file.objects
        bad = self._with_points_nowhere()
        rows = np.full(len(found), -1, np.int64)
        known = self._file.categories
        for row, (image, category) in enumerate(zip(found.image_ids, found.categories, strict=True)):
            number = self._rows.get(image)
            if number is None or category not in known or row in bad:
                called = f"annotation of a box (id {_some(found.ids[row])})"
                if row in bad:
                    self._file.left_out.add(f"{called}: a point of its polygons is no finite number")
                else:
                    self._is_known(called, image, (category,))
            else:
                rows[row] = number
        self._file.sort_objects(rows)

    def _with_points_nowhere(self) -> set[int]:
        """Rows of objects whose polygons have a point that is not finite."""
        found = self._file.objects
        points = np.asarray(found.points, np.float32)
        if np.isfinite(points).all():
            return set()
        at = np.flatnonzero(~np.isfinite(points)) // 2
        polygons = np.searchsorted(np.asarray(found.polygon_point_ends, np.int64), at, side="right")
        ends = np.asarray(found.polygon_ends, np.int64)
        return set(np.searchsorted(ends, polygons, side="right").tolist())

    def _is_known(self, called: str, image: Id, categories: Iterable[int]) -> bool:
        """Whether the image and the categories are there; notes it where not."""
        if image not in self._rows:
            self._file.left_out.add(f"{called}: image_id {_some(image)}: no such image")
            return False
        unknown = next((category for category in categories if category not in self._file.categories), None)
        if unknown is not None and not self._file.categories:
            self._file.left_out.add_of_file("the file has no categories")
        elif unknown is not None:
            self._file.left_out.add(f"{called}: category_id {unknown}: no such category")
        return unknown is None


def _kind(element: _Element) -> str | None:
    if "bbox" in element or "segmentation" in element or "keypoints" in element:
        return "objects"
    if "segments_info" in element:
        return "panoptic"
    if "caption" in element:
        return "captions"
    return "labels" if "category_id" in element else None


def _some(value: object) -> str:
    """A value for a message, cut."""
    text = repr(value) if not isinstance(value, (list, dict, str, int)) else _start(value)
    return shown(text if len(text) <= 60 else f"{text[:60]} ...")


def _start(value: object) -> str:
    """As `repr`, without a text of a million numbers."""
    if isinstance(value, list):
        return repr(value[:8]) if len(value) <= 8 else f"{repr(value[:8])[:-1]}, ..."
    if isinstance(value, dict):
        return "{" + ", ".join(f"{str(name)[:20]!r}: {_brief(inner)}" for name, inner in list(value.items())[:6]) + "}"
    return _brief(value)


def _brief(value: object) -> str:
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 128 else "a number of many digits"
    return "[...]" if isinstance(value, (list, dict)) else repr(value)


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: JSON can say halves of characters."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _whole(value: object) -> int | None:
    """A whole number of 64 bits, which some write as 1.0."""
    if type(value) is float and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def _id(value: object) -> Id | None:
    if isinstance(value, str):
        return value if value and _is_text(value) else None
    return _whole(value)


def _side(value: object) -> int:
    """Px of a side, 0 where there is none."""
    found = _whole(value)
    return found if found is not None and 0 < found < 1 << 31 else 0


def _number(value: object) -> float | None:
    if type(value) is float:
        return value if abs(value) <= _LARGEST else None
    return float(value) if type(value) is int and abs(value) <= 1 << 127 else None


def _numbers(value: object) -> list[float] | None:
    if not isinstance(value, list):
        return None
    found: list[float] = []
    for one in value:
        number = _number(one)
        if number is None:
            return None
        found.append(number)
    return found


def _points(polygon: object) -> "array[float] | None":
    """The numbers of a polygon; those that are not finite are looked for in all at once."""
    if not isinstance(polygon, list) or len(polygon) % 2:
        return None
    try:
        return array("f", polygon)
    except (TypeError, OverflowError):
        return None


def _runs(given: _Element) -> RunLengthMask | None:
    size, counts = given.get("size"), given.get("counts")
    if not isinstance(size, list) or len(size) != 2 or not (_side(size[0]) and _side(size[1])):
        return None
    if isinstance(counts, str) and counts.isascii():
        return RunLengthMask(counts, (_side(size[0]), _side(size[1])))
    if isinstance(counts, list) and all(type(count) is int for count in counts):
        try:
            return RunLengthMask(array("I", counts), (_side(size[0]), _side(size[1])))
        except OverflowError:
            return None
    return None
