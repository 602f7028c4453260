"""VMRD: the visual manipulation relationship data set: VOC's layout, with grasps of objects and relations of objects.

A sample is `JPEGImages/ID.jpg` with `Annotations/ID.xml` and `Grasps/ID.txt`. A line of `Grasps/ID.txt` has the corners
x1 y1 ... x4 y4, the number of an object, and `easy`, `hard` or nothing. Samples are ordered by key. The loaders of the
networks use the order of the file system. Therefore the splits of these loaders differ between machines.

Fields of a sample with N grasps or M boxes:
* key: `ID`. rgb: the bytes of the file.
* grasps: float32 (N, 4, 2), corners x, y as in the file. p0 -> p1 is the opening axis.
* grasp_objects: int64 (N,), the number of the object of each grasp.
* boxes: float32 (M, 4), edges x0, y0, x1, y1 in px. For each box: box_labels (int64, classes in lower case),
  box_objects (int64, `<index>` or -1 without it), box_difficult and box_truncated (uint8).
* relations: json, for each box `{"object", "fathers", "children"}`, numbers of objects.
* split: int64, from `ImageSets/Main`.
* Hidden: files (field -> relative path), annotation_file and grasps_file (bytes, empty without a file).

Positions in the XML file count pixels from 1, unless `first_pixel` is 0. Therefore packer subtracts 1 from xmin and
ymin (packer.sources.annotations._voc_base), whereas the network VMRN subtracts 1 from all four edges. Grasps are not
changed.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput
from packer.schema import Field
from packer.sources._file_source import Groups, Policies
from packer.sources._message_texts import listed, shown
from packer.sources._small_file_source import FileRole, LabelFile, Parsed
from packer.sources._trees.file_tree import FileTree
from packer.sources.annotations._voc_base import ANNOTATION, XML, VOCSource, image_role, in_folder
from packer.sources.annotations._voc_xml import AnnotatedObject, Annotation
from packer.sources.grasp._label_files import points, read_rows, verbatim

SPECIFICITY = 100
_NUMBERS = 9
_MOST_OBJECT = 1 << 31
_GRASPS = "grasps_file"


class Source(VOCSource):
    """The visual manipulation relationship data set."""

    kind, title = "vmrd", "VMRD"
    anchor = "rgb"
    recognized_by = (("rgb", XML, _GRASPS),)
    roles: Sequence[FileRole] = (
        image_role("rgb"),
        ANNOTATION,
        FileRole(_GRASPS, "Grasps/ID.txt", in_folder("grasps", "txt"), verbatim(_GRASPS), "labels"),
    )

    def __init__(
        self,
        root: Path | FileTree,
        *,
        first_pixel: int = 1,
        missing: str = "keep",
        bad_labels: str = "error",
        labels_orientation: str = "auto",
        own_splits: bool = True,
        known_classes: Sequence[str] = (),
        follow_links: bool = False,
    ) -> None:
        """List the images, and read all annotation files once.

        Args:
            root: Folder or archive of the set.
            first_pixel: Number of the first pixel in the XML files, 1 or 0.
            missing: For an image without XML or grasp file, `keep` adds a sample without these labels, `skip` skips the
                image, and `error` raises BadInput.
            bad_labels: For an invalid label, `error` raises BadInput and `skip` skips the label.
            labels_orientation: Pixels that labels refer to if EXIF rotates the image: `stored` in the file, or
                `upright` after the rotation. `auto`: those whose size the XML file contains.
            own_splits: True: the splits come from the lists in ImageSets. False: no field `split`.
            known_classes: Class names in the order of their numbers. Empty for all classes that the files contain.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.
        """
        self._list_annotated(
            root,
            Policies(missing, bad_labels=bad_labels),
            first_pixel=first_pixel,
            labels_orientation=labels_orientation,
            own_splits=own_splits,
            known_classes=known_classes,
            follow_links=follow_links,
        )

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        return cls._recognize_by_names(names)

    def choose(self, groups: Groups) -> None:
        self._check_role(_GRASPS, groups)

    def _read_annotation(self, data: bytes, path: Path) -> Annotation:
        found = super()._read_annotation(data, path)
        return found._replace(objects=tuple(each._replace(name=each.name.lower(), parts=()) for each in found.objects))

    def _label_files(self) -> tuple[LabelFile, ...]:
        objects = Field("grasp_objects", "number", "raw:int64", dtype="int64", shape=(None,), of="grasps")
        return LabelFile(_GRASPS, (points("grasps"), objects), read_object_grasps), *super()._label_files()

    def _box_fields(self) -> list[Field]:
        numbers = Field("box_objects", "number", "raw:int64", dtype="int64", shape=(None,), of="boxes")
        return [*super()._box_fields(), numbers, Field("relations", "json", "json")]

    def _box_values(self, objects: Sequence[AnnotatedObject], path: Path) -> dict[str, Any]:
        values = super()._box_values(objects, path)
        values["box_objects"] = np.array([-1 if each.number is None else each.number for each in objects], np.int64)
        values["relations"] = [
            {"object": each.number, "fathers": list(each.fathers), "children": list(each.children)} for each in objects
        ]
        return values

    def missing(self, index: int) -> str | None:
        """Return which labels are absent, empty, skipped or inconsistent, or None if complete. Reads label files."""
        reasons = [super().missing(index)]
        with suppress(BadInput):  # `read` raises the error later
            found = self._annotation(self._samples[index])
            reasons += _inconsistent(found, self.value(index, "grasp_objects").tolist())
        return "; ".join(filter(None, reasons)) or None


def read_object_grasps(data: bytes, path: Path, strict: bool) -> Parsed:
    """Parse lines with corners and the number of an object. Grasps that are not finite are skipped.

    If `strict` is true, an invalid line or object number raises BadInput, otherwise the grasp is skipped.
    """
    text = "\n".join(_without_word(line) for line in data.decode("utf-8-sig", errors="replace").splitlines())
    rows = read_rows(text.encode(), path, columns=_NUMBERS, separator=None, strict=strict)
    numbers = rows.values[:, -1]
    are_valid = (numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < _MOST_OBJECT)
    if strict and not are_valid.all():
        raise BadInput(
            f"{shown(str(path))}: found {numbers[~are_valid][0]:g} as the ninth number of a line, expected the number "
            "of an object; correct the file or use --bad-labels skip"
        )
    kept = rows.values[are_valid]
    values = {"grasps": kept[:, :8].reshape(-1, 4, 2).astype(np.float32), "grasp_objects": kept[:, 8].astype(np.int64)}
    return Parsed(values, rows.total, rows.total - len(kept))


def _without_word(line: str) -> str:
    words = line.split()
    return " ".join(words[:-1] if len(words) == _NUMBERS + 1 and words[-1].isalpha() else words)


def _inconsistent(found: Annotation, grasps: Sequence[int]) -> Iterator[str]:
    """Yield a text for each kind of contradiction between the numbers of objects, grasps and relations."""
    numbers = [each.number for each in found.objects if each.number is not None]
    if not numbers:  # no annotation file, or no <index> in the file
        return
    related = {number for each in found.objects for number in (*each.fathers, *each.children)}
    for label, wrong in (
        ("grasps of objects without <index>", set(grasps) - set(numbers)),
        ("several objects with one <index>", {each for each in numbers if numbers.count(each) > 1}),
        ("fathers or children without <index>", related - set(numbers)),
    ):
        if wrong:
            yield f"{label}: {listed(map(str, sorted(wrong)))}"
