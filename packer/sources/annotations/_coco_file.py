"""COCO file: a parser for one annotation file in COCO's layout.

Layout (cocodataset.org, "Data format"): an object with `images` (id, file_name, width, height), `categories` (id, name,
keypoints) and `annotations`. An annotation has an image_id. The other members decide the kind of the annotation:

| kind     | members                                                                                           |
|----------|---------------------------------------------------------------------------------------------------|
| objects  | category_id, bbox [x, y, width, height]; optional: id, iscrowd, area, segmentation and keypoints  |
| captions | caption                                                                                           |
| panoptic | file_name, segments_info (id, category_id, iscrowd)                                               |
| labels   | category_id without a bbox: datumaro's labels, iNaturalist                                        |

A segmentation is a list of polygons [x0, y0, x1, y1, ...] or run lengths (see _rle_and_panoptic.py). An
id is an integer of 64 bits. Ids of images may also be text. To save memory, the parser reads one element at a time and
stores each object as packed bytes.
"""

import math
import reprlib
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from packer.errors import BadInput
from packer.sources._message_texts import counted, shown
from packer.sources.annotations._json_elements import elements

MOST_KEYPOINTS = 1000  # of one object; known data sets have at most 294
NUMBERS = np.dtype([("id", "<i8"), ("box", "<f8", 4), ("area", "<f8"), ("crowd", "u1")])
_HEADER = struct.Struct("<qq4ddBHI")  # category id, NUMBERS, size of keypoints in bytes, size of points in bytes
_CATEGORY = struct.Struct("<q")
_SIZE = struct.Struct("<?II")  # is the run length data a text, height, width
_INT64 = 1 << 63
NO_ID = struct.pack("<q", -_INT64)
_LARGEST = float(np.finfo(np.float32).max)
_END = array("f", (math.nan, math.nan)).tobytes()  # the end of a polygon
_SHOWN_PROBLEMS = 20
_KINDS = ("objects", "panoptic", "captions", "labels")
_Element = Mapping[str, object]

Id = int | str
RunLengths = tuple[str | Sequence[int], tuple[int, int]]  # `counts` of the file, (height, width) of the mask in px


class CocoImage(NamedTuple):
    """An image: file name and (height, width) in px. The size is None if the annotation file contains no valid size."""

    name: str
    size: tuple[int, int] | None


class Category(NamedTuple):
    """The name of a category, and the names of the keypoints of this category in order."""

    name: str
    keypoints: tuple[str, ...]


class Segment(NamedTuple):
    """A segment of a panoptic image: id, category id, and 1 for a crowd or 0 for a single object."""

    id: int
    category: int
    is_crowd: int


class Panoptic(NamedTuple):
    """A panoptic image: the name of the PNG, and the segments in the order of `segments_info`."""

    file_name: str
    segments: tuple[Segment, ...]


class CocoObject(NamedTuple):
    """An annotation with a box.

    Attributes:
        category: The category id.
        numbers: The bytes of id, box, area and crowd flag, with the dtype NUMBERS. The box is x, y, width, height in
            px. An absent id is NO_ID, an absent area is NaN.
        keypoints: The bytes of a float32 array (K, 3): x, y, visibility.
        points: The bytes of a float32 array (P, 2): x, y of polygon points. A row (NaN, NaN) ends each polygon.
        runs: Run lengths and mask size, or None if the object has no run lengths.
    """

    category: int
    numbers: bytes
    keypoints: bytes
    points: bytes
    runs: RunLengths | None

    @classmethod
    def unpacked(cls, data: bytes) -> "CocoObject":
        """Return the object for packed bytes, an element of `AnnotationFile.values["objects"]`."""
        header = _HEADER.unpack_from(data)
        category, keypoint_bytes, point_bytes = header[0], header[-2], header[-1]
        numbers = data[_CATEGORY.size : _CATEGORY.size + NUMBERS.itemsize]
        points = _HEADER.size + keypoint_bytes
        end = points + point_bytes
        runs = None
        if len(data) > end:
            is_text, height, width = _SIZE.unpack_from(data, end)
            counts = data[end + _SIZE.size :]
            runs = (counts.decode("ascii") if is_text else array("I", counts), (height, width))
        return cls(category, numbers, data[_HEADER.size : points], data[points:end], runs)


@dataclass
class AnnotationFile:
    """The content of an annotation file.

    Attributes:
        path: The path of the file, for error messages.
        images: Image id -> image.
        categories: Category id -> category.
        values: Kind -> image id -> annotations. An annotation is a packed `CocoObject` (kind "objects"), a `Panoptic`
            ("panoptic"), a text ("captions") or a category id ("labels").
        kinds: The kinds of all annotations, including skipped annotations.
        optional: The optional fields for which an object has a value: `box_areas`, `polygons`, `run_lengths`.
        lacks_ids: True: at least one object has no integer id.
        most_keypoints: The largest number of keypoints of an object.
        problems: The reasons for the first 20 annotations that are not valid.
        problem_count: The number of annotations that are not valid.
    """

    path: str
    images: dict[Id, CocoImage] = field(default_factory=dict)
    categories: dict[int, Category] = field(default_factory=dict)
    values: dict[str, dict[Id, list[Any]]] = field(default_factory=lambda: {kind: {} for kind in _KINDS})
    kinds: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)
    lacks_ids: bool = False
    most_keypoints: int = 0
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0

    def count(self) -> int:
        """Return the number of annotations."""
        return sum(len(values) for by_image in self.values.values() for values in by_image.values())

    def add_problem(self, text: str) -> None:
        """Count an annotation that is not valid, and store the reason `text` unless 20 reasons are stored already."""
        self.problem_count += 1
        if len(self.problems) < _SHOWN_PROBLEMS:
            self.problems.append(text)

    def shown_problems(self) -> str:
        """Return a text with the number of annotations that are not valid, and the first reasons."""
        more = self.problem_count - len(self.problems)
        shown_count = counted(self.problem_count, "annotation")
        return f"{shown_count} not valid: {'; '.join(self.problems)}{f' and {more} more' if more else ''}"


def read_annotations(data: bytes, path: str, *, strict: bool = True) -> AnnotationFile:
    """Parse an annotation file.

    Args:
        data: The bytes of the file.
        path: The path of the file, for error messages.
        strict: True: an annotation that is not valid, or has an unknown image or category, raises BadInput. False: the
            annotation is skipped.

    Raises:
        BadInput: The JSON, an image or a category is not valid, or `strict` is true and an annotation is not valid.
    """
    file = AnnotationFile(path)
    number = 0
    for member, element in elements(data, ("images", "categories", "annotations"), path):
        if not isinstance(element, dict):
            raise BadInput(f"{shown(path)}: {member}: {_text(element)}: expected objects, as in COCO")
        if member == "images":
            _add_image(file, element)
        elif member == "categories":
            _add_category(file, element)
        else:
            try:
                _add_annotation(file, element)
            except ValueError as error:
                file.add_problem(f"annotation {number} (id {_text(element.get('id'))}): {error}")
            number += 1
    _check_references(file)
    if strict and file.problem_count:
        raise BadInput(f"{shown(path)}: {file.shown_problems()}; correct the file, or skip them with --bad-labels skip")
    return file


def _add_image(file: AnnotationFile, element: _Element) -> None:
    image, name = _id(element.get("id")), element.get("file_name")
    if image is None or not _is_text(name) or not name:
        raise BadInput(
            f"{shown(file.path)}: image {len(file.images)}: id {_text(element.get('id'))}, file_name {_text(name)}: "
            "expected a number or a text, and the name of a file"
        )
    if image in file.images:
        if file.images[image].name != name:
            raise BadInput(
                f"{shown(file.path)}: image id {_text(image)} is there twice, for {_text(file.images[image].name)} and "
                f"{_text(name)}; correct the file"
            )
        return
    height, width = _side(element.get("height")), _side(element.get("width"))
    file.images[image] = CocoImage(str(name), (height, width) if height and width else None)


def _add_category(file: AnnotationFile, element: _Element) -> None:
    category, name, keypoints = _whole(element.get("id")), element.get("name"), element.get("keypoints", [])
    if category is None or not _is_text(name) or not isinstance(keypoints, list) or not all(map(_is_text, keypoints)):
        raise BadInput(
            f"{shown(file.path)}: category {len(file.categories)}: {_text(element)}: expected a whole number as id, a "
            "name, and names of keypoints if any"
        )
    new = Category(str(name), tuple(keypoints))
    if file.categories.setdefault(category, new) != new:
        raise BadInput(f"{shown(file.path)}: category id {category} is there twice, with other names; correct the file")


def _add_annotation(file: AnnotationFile, element: _Element) -> None:
    """Add an annotation to `file`. Raise ValueError for an invalid annotation."""
    kind = _kind(element)
    image = _id(element.get("image_id"))
    if image is None:
        raise _invalid(element, "image_id", "the id of an image")
    file.kinds.add(kind)
    value: object
    if kind == "objects":
        value = _object(file, element)
    elif kind == "panoptic":
        value = _panoptic(element)
    else:
        member, expected = ("caption", "a text") if kind == "captions" else ("category_id", "the id of a category")
        value = element.get(member) if kind == "captions" else _whole(element.get(member))
        if value is None or (kind == "captions" and not _is_text(value)):
            raise _invalid(element, member, expected)
    file.values[kind].setdefault(image, []).append(value)


def _kind(element: _Element) -> str:
    if "bbox" in element or "segmentation" in element or "keypoints" in element:
        return "objects"
    for member, kind in (("segments_info", "panoptic"), ("caption", "captions"), ("category_id", "labels")):
        if member in element:
            return kind
    raise ValueError("has no bbox, category_id, caption or segments_info")


def _object(file: AnnotationFile, element: _Element) -> bytes:
    box = _numbers(element.get("bbox"))
    if box is None or len(box) != 4 or max(box[0] + box[2], box[1] + box[3]) > _LARGEST or min(box[2:]) < 0:
        raise _invalid(element, "bbox", "x, y, width, height, the last two not negative")
    category, crowd, area = _whole(element.get("category_id")), element.get("iscrowd", 0), element.get("area")
    if category is None:
        raise _invalid(element, "category_id", "the id of a category")
    if crowd not in (0, 1):
        raise _invalid(element, "iscrowd", "0 or 1")
    if area is not None and not _is_number(area):
        raise _invalid(element, "area", "a number")
    keypoints = _numbers(element.get("keypoints", []))
    count = 0 if keypoints is None else len(keypoints) // 3
    if keypoints is None or len(keypoints) % 3 or count > MOST_KEYPOINTS or not {*keypoints[2::3]} <= {0, 1, 2}:
        raise _invalid(element, "keypoints", f"x, y and visibility 0, 1 or 2, at most {MOST_KEYPOINTS} times")
    points, runs = _segmentation(element)
    number = _whole(element.get("id"))
    file.lacks_ids |= number is None
    if area is not None:
        file.optional.add("box_areas")
    if points:
        file.optional.add("polygons")
    if runs:
        file.optional.add("run_lengths")
    file.most_keypoints = max(file.most_keypoints, count)
    kept = array("f", keypoints).tobytes()
    numbers = (-_INT64 if number is None else number, *box, math.nan if area is None else area, bool(crowd))
    return _HEADER.pack(category, *numbers, len(kept), len(points)) + kept + points + runs


def _segmentation(element: _Element) -> tuple[bytes, bytes]:
    """Return (packed polygon points, packed run lengths). At least one is empty. Raise ValueError if invalid."""
    value = element.get("segmentation")
    try:
        if value is None or isinstance(value, list):
            points = b""
            for each in value or ():
                polygon = array("f", each)
                if len(polygon) % 2 or not math.isfinite(sum(polygon)):
                    raise TypeError
                points += polygon.tobytes() + _END if polygon else b""
            return points, b""
        if isinstance(value, dict):
            counts, size = value.get("counts"), value.get("size")
            sides = [*map(_side, size)] if isinstance(size, list) else []
            if len(sides) == 2 and all(sides):
                if isinstance(counts, str) and counts.isascii():
                    return b"", _SIZE.pack(True, *sides) + counts.encode()
                if isinstance(counts, list) and all(type(count) is int for count in counts):
                    return b"", _SIZE.pack(False, *sides) + array("I", counts).tobytes()
    except (TypeError, OverflowError):
        pass
    raise _invalid(element, "segmentation", "polygons of finite numbers, or run lengths with size and counts")


def _panoptic(element: _Element) -> Panoptic:
    name, infos = element.get("file_name"), element.get("segments_info")
    if not _is_text(name) or not name or not isinstance(infos, list):
        raise _invalid(element, "file_name", "the name of a PNG file, and a list segments_info")
    segments = []
    for info in infos:
        values = info if isinstance(info, dict) else {}
        number, category, crowd = _whole(values.get("id")), _whole(values.get("category_id")), values.get("iscrowd", 0)
        if number is None or category is None or crowd not in (0, 1) or not 0 < number < 1 << 24:
            raise ValueError(f"segments_info {_text(info)}: expected an id from 1 to 2^24 - 1, category_id and iscrowd")
        segments.append(Segment(number, category, int(bool(crowd))))
    if len({each.id for each in segments}) < len(segments):
        raise _invalid(element, "segments_info", "ids that are all different")
    return Panoptic(str(name), tuple(segments))


def _check_references(file: AnnotationFile) -> None:
    """Remove annotations of unknown images or categories, and add each to the problems."""
    for kind, by_image in file.values.items():
        for image, values in [*by_image.items()]:
            by_image[image] = []
            for value in values:
                unknown = [each for each in _categories(kind, value) if each not in file.categories]
                if image not in file.images:
                    file.add_problem(f"{kind}: image_id {_text(image)}: no such image")
                elif unknown:
                    file.add_problem(f"{kind} of image {_text(image)}: category_id {unknown[0]}: no such category")
                elif kind == "panoptic" and by_image[image]:
                    file.add_problem(f"{kind} of image {_text(image)}: several lists of segments")
                else:
                    by_image[image].append(value)
            if not by_image[image]:
                del by_image[image]


def _categories(kind: str, value: Any) -> Sequence[int]:
    if kind == "objects":
        found: tuple[int] = _CATEGORY.unpack_from(value)
        return found
    if kind == "panoptic":
        return [each.category for each in value.segments]
    return (value,) if kind == "labels" else ()


def _invalid(element: _Element, member: str, expected: str) -> ValueError:
    return ValueError(f"{member} {_text(element.get(member))}: expected {expected}")


def _text(value: object) -> str:
    """Return a short text of a value for a message."""
    return shown(reprlib.repr(value)[:80])


def _is_text(value: object) -> bool:
    """Return whether a value is a text that UTF-8 can encode. JSON texts can contain lone surrogates."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value))


def _whole(value: object) -> int | None:
    """Return a value as an integer of 64 bits. A float such as 1.0 is valid. Return None for other values."""
    if type(value) is float and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def _id(value: object) -> Id | None:
    if isinstance(value, str):
        return value if value and _is_text(value) else None
    return _whole(value)


def _side(value: object) -> int:
    """Return a width or height in px, or 0 if the value is not valid."""
    side = _whole(value)
    return side if side is not None and 0 < side < 1 << 31 else 0


def _is_number(value: object) -> bool:
    """Return whether a value is a number that float32 can store."""
    return type(value) in (int, float) and abs(value) <= _LARGEST  # type: ignore[arg-type]


def _numbers(value: object) -> list[float] | None:
    return [*map(float, value)] if isinstance(value, list) and all(map(_is_number, value)) else None
