"""COCO labels: the fields, values and notes of each kind of annotation, for all annotation files of a data set."""

from abc import ABC, abstractmethod
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.schema import Field
from packer.sources._message_texts import counted, listed, shown
from packer.sources.annotations._coco_file import NO_ID, NUMBERS, AnnotationFile, CocoObject, Id
from packer.sources.annotations._rle_and_panoptic import run_lengths

_ID_AND_BOX_BYTES = 40  # the first bytes of NUMBERS
_POLYGONS = ("polygons", "polygon_starts", "polygon_box")
_RUNS = ("run_lengths", "run_starts", "run_box", "run_sizes")
_INT64 = partial(Field, kind="number", codec="raw:int64", dtype="int64", shape=(None,))
_UINT8 = partial(Field, kind="number", codec="raw:uint8", dtype="uint8", shape=(None,))


class Classes:
    """The categories of annotation files. Classes are numbered from 0 in the order of the category ids."""

    def __init__(self, files: Sequence[AnnotationFile]) -> None:
        """Collect the categories. Raise BadInput if a category id has two names."""
        names: dict[int, str] = {}
        self.keypoints = {each.keypoints for file in files for each in file.categories.values() if each.keypoints}
        for file in files:
            for number, category in file.categories.items():
                if names.setdefault(number, category.name) != category.name:
                    raise BadInput(
                        f"{shown(file.path)}: category id {number} is {shown(category.name)}, in another annotation "
                        f"file {shown(names[number])}; choose files of one set with --annotations"
                    )
        self._numbers = {category: number for number, category in enumerate(sorted(names))}
        self.names = tuple(names[category] for category in self._numbers)

    def numbers(self, ids: Iterable[int]) -> npt.NDArray[np.int64]:
        """Return the class numbers of category ids, int64 (N,)."""
        return np.asarray([self._numbers[category] for category in ids], np.int64)

    def notes(self) -> list[str]:
        """Return a note for the user with the names of the classes."""
        return [f"{counted(len(self.names), 'class')}: {listed(self.names)}"]


class CocoLabels(ABC):
    """The annotations of one kind for all samples.

    Attributes:
        kind: The kind of annotation: a key of `AnnotationFile.values`.
        fields: The fields of a sample that contain these annotations.
        notes: Notes for the user.
    """

    kind: ClassVar[str]
    fields: Sequence[Field] = ()
    notes: Sequence[str] = ()

    def __init__(self, files: Sequence[AnnotationFile], images: Sequence[tuple[Id, Sequence[AnnotationFile]]]) -> None:
        """Collect the annotations of each sample.

        Args:
            files: All annotation files with this kind of annotation.
            images: For each sample: the image id, and the annotation files of the split.

        Raises:
            BadInput: The files contradict each other.
        """
        self._by_sample: dict[int, list[Any]] = {}
        for sample, (image, own) in enumerate(images):
            found = [file.values[self.kind][image] for file in own if image in file.values[self.kind]]
            if found:
                self._by_sample[sample] = found[0] if len(found) == 1 else self.merged(found)
        self.classes = Classes(files)
        self._describe(files, len(images))

    def merged(self, found: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the annotations of one image. `found` has a list of them for each file."""
        return [value for values in found for value in values]

    @abstractmethod
    def _describe(self, files: Sequence[AnnotationFile], count: int) -> None:
        """Set `fields` and `notes` for `count` samples."""

    def of_sample(self, sample: int) -> Sequence[Any]:
        """Return the annotations of the sample at position `sample`. Empty: the sample has no annotations."""
        return self._by_sample.get(sample, ())

    @abstractmethod
    def values(self, sample: int) -> dict[str, Any]:
        """Return field name -> value for the sample at position `sample`. Raise BadInput for invalid annotations."""


class Captions(CocoLabels):
    """Captions of images: the field `captions`, a list of texts."""

    kind = "captions"

    def _describe(self, files: Sequence[AnnotationFile], count: int) -> None:
        self.fields = (Field("captions", "json", "json"),)

    def values(self, sample: int) -> dict[str, Any]:
        return {"captions": [*self.of_sample(sample)]}


class ImageLabels(CocoLabels):
    """Classes of images: the field `label` if each image has exactly one class, otherwise the field `labels`."""

    kind = "labels"

    def _describe(self, files: Sequence[AnnotationFile], count: int) -> None:
        self._is_one = len(self._by_sample) == count and all(len(ids) == 1 for ids in self._by_sample.values())
        one = Field("label", "number", "number", "int64", (), classes=self.classes.names)
        self.fields = (one if self._is_one else _INT64("labels", classes=self.classes.names),)
        self.notes = self.classes.notes()

    def values(self, sample: int) -> dict[str, Any]:
        numbers = self.classes.numbers(self.of_sample(sample))
        return {"label": numbers[0]} if self._is_one else {"labels": numbers}


class Segments(CocoLabels):
    """Ids, classes and crowd flags of the segments in panoptic files. `coco.Source` reads the masks."""

    kind = "panoptic"

    def _describe(self, files: Sequence[AnnotationFile], count: int) -> None:
        self.fields = (
            _INT64("segment_ids"),
            _INT64("segment_labels", of="segment_ids", classes=self.classes.names),
            _UINT8("segment_crowd", of="segment_ids"),
        )
        bare = count - len(self._by_sample)
        self.notes = [*self.classes.notes(), *([f"{counted(bare, 'image')} without segments"] if bare else [])]

    def values(self, sample: int) -> dict[str, Any]:
        segments = [each for panoptic in self.of_sample(sample)[:1] for each in panoptic.segments]
        return {
            "segment_ids": np.asarray([each.id for each in segments], np.int64),
            "segment_labels": self.classes.numbers([each.category for each in segments]),
            "segment_crowd": np.asarray([each.is_crowd for each in segments], np.uint8),
        }


class Boxes(CocoLabels):
    """Objects with boxes, and with optional areas, ids, polygons, run lengths and keypoints."""

    kind = "objects"

    def merged(self, found: Sequence[Sequence[bytes]]) -> list[bytes]:
        """Return the objects of several files without duplicates between files.

        Objects with the same id, category and box are duplicates. A duplicate with keypoints is preferred.
        """
        objects: dict[object, bytes] = {}
        for number, values in enumerate(found):
            counts: Counter[object] = Counter()
            for row, data in enumerate(values):
                each = CocoObject.unpacked(data)
                same = (each.category, each.numbers[:_ID_AND_BOX_BYTES])
                counts[same] += 1  # equal objects in one file are not duplicates
                key = (number, row) if each.numbers.startswith(NO_ID) else (same, counts[same])
                if key not in objects or each.keypoints:
                    objects[key] = data
        return [*objects.values()]

    def of_sample(self, sample: int) -> Sequence[CocoObject]:
        return [CocoObject.unpacked(data) for data in super().of_sample(sample)]

    def _describe(self, files: Sequence[AnnotationFile], count: int) -> None:
        self._keypoints = max(file.most_keypoints for file in files)
        self._optional = frozenset().union(*(file.optional for file in files))
        fields = [
            Field("boxes", "boxes", "raw:float32", "float32", (None, 4)),
            _INT64("box_labels", of="boxes", classes=self.classes.names),
            _UINT8("box_crowd", of="boxes"),
        ]
        if "box_areas" in self._optional:
            fields.append(Field("box_areas", "number", "raw:float64", "float64", (None,), of="boxes"))
        if not any(file.lacks_ids for file in files):
            fields.append(_INT64("annotation_ids", of="boxes"))
        if "polygons" in self._optional:
            fields += [
                Field("polygons", "points", "raw:float32", "float32", (None, 2), edges=True),
                _INT64("polygon_starts", starts="polygons"),
                _INT64("polygon_box", of="polygon_starts", into="boxes"),
            ]
        if "run_lengths" in self._optional:
            fields += [
                Field("run_lengths", "number", "raw:int32", "int32", (None,)),
                _INT64("run_starts", starts="run_lengths"),
                _INT64("run_box", of="run_starts", into="boxes"),
                _INT64("run_sizes", shape=(None, 2), of="run_starts"),
            ]
        self.notes = self.classes.notes()
        if self._keypoints:
            shape = (None, self._keypoints)
            names = [each for each in self.classes.keypoints if len(self.classes.keypoints) == 1]
            classes = names[0] if names and len(names[0]) == self._keypoints else None
            fields += [
                Field("keypoints", "points", "raw:float32", "float32", (*shape, 2), classes, of="boxes"),
                _UINT8("keypoint_visibility", shape=shape, of="boxes"),
            ]
        self.fields = [*fields, _INT64("category_ids", of="boxes", hidden=True)]
        bare = count - len(self._by_sample)
        if bare:
            self.notes.append(f"{counted(bare, 'image')} without objects: samples with no boxes")

    def values(self, sample: int) -> dict[str, Any]:
        objects = self.of_sample(sample)
        numbers = np.frombuffer(b"".join([each.numbers for each in objects]), NUMBERS)
        categories = [each.category for each in objects]
        corners = numbers["box"][:, :2]
        values: dict[str, Any] = {
            "boxes": np.concatenate([corners, corners + numbers["box"][:, 2:]], axis=1).astype(np.float32),
            "box_labels": self.classes.numbers(categories),
            "box_crowd": numbers["crowd"].copy(),
            "box_areas": numbers["area"].copy(),
            "annotation_ids": numbers["id"].copy(),
            "category_ids": np.asarray(categories, np.int64),
        }
        if "polygons" in self._optional:
            values |= zip(_POLYGONS, _polygons(objects), strict=True)
        if "run_lengths" in self._optional:
            values |= zip(_RUNS, _runs(objects), strict=True)
        if self._keypoints:
            data = b"".join(each.keypoints.ljust(12 * self._keypoints, b"\0") for each in objects)
            points = np.frombuffer(data, np.float32).reshape(-1, self._keypoints, 3)
            values |= {"keypoints": points[..., :2].copy(), "keypoint_visibility": points[..., 2].astype(np.uint8)}
        return {field.name: values[field.name] for field in self.fields}


def _polygons(objects: Sequence[CocoObject]) -> tuple[Any, Any, Any]:
    """Return (points (P, 2), index of the first point of each polygon, index of the object of each polygon)."""
    points = np.frombuffer(b"".join([each.points for each in objects]), np.float32).reshape(-1, 2)
    is_end = np.isnan(points[:, 0])
    ends = is_end.nonzero()[0]
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1] - np.arange(len(starts[1:]))
    bounds = [*accumulate(len(each.points) // 8 for each in objects)]
    return points[~is_end], starts, np.asarray([bisect(bounds, end) for end in ends.tolist()], np.int64)


def _runs(objects: Sequence[CocoObject]) -> tuple[Any, Any, Any, Any]:
    """Return all run lengths, and for each mask: index of the first run length, index of the object, mask size."""
    found = [(row, *each.runs) for row, each in enumerate(objects) if each.runs is not None]
    runs = []
    for row, counts, size in found:
        try:
            runs.append(run_lengths(counts, size))
        except BadInput as error:
            number = np.frombuffer(objects[row].numbers, NUMBERS)["id"][0]
            raise BadInput(f"annotation {number}: {error.message}") from error
    starts = np.cumsum([0, *map(len, runs)], dtype=np.int64)[:-1]
    sizes = np.asarray([size for _, _, size in found], np.int64).reshape(-1, 2)
    return (
        np.concatenate([np.zeros(0, np.int32), *runs]),
        starts,
        np.asarray([row for row, _, _ in found], np.int64),
        sizes,
    )


KINDS: Mapping[str, type[CocoLabels]] = {labels.kind: labels for labels in (Boxes, Segments, Captions, ImageLabels)}
