"""VMRD: the visual manipulation relationship data set: VOC's layout, with grasps of every object and who lies on whom.

A sample is `JPEGImages/ID.jpg` with `Annotations/ID.xml` and `Grasps/ID.txt` (lines of
packer.sources._parse.vmrd_grasps). Order: by key, where the networks' loaders list the folder in the order that the
file system has, so that their splits differ between machines.

Fields: key, rgb (bytes of the file), grasps (float32 (N, 4, 2), corners x, y as in the file; p0 -> p1 the opening
axis), grasp_objects (int64, of grasps: the number of the object), boxes (float32 (N, 4), edges), and of boxes:
box_labels (int64, with the classes, names in small letters), box_objects (int64: `<index>`, -1 where a file has none),
box_difficult and box_truncated (uint8); relations (json: per box `{"object", "fathers", "children"}`, numbers of
objects), split (int64, from `ImageSets/Main`). Hidden: files (field -> relative path), annotation_file and grasps_file
(verbatim, empty where there is none).

Numbers in the XML count pixels from 1, unless `origin` says otherwise; VMRN takes 1 from all four of a box, here it is
xmin and ymin less 1 (packer.sources._voc.voc_source). Grasps are taken as they are.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from packer.errors import InvalidRequest
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources._parse.vmrd_grasps import ObjectGrasps, read_object_grasps
from packer.sources._parse.voc_xml import Annotation
from packer.sources._trees.file_tree import FileTree
from packer.sources._voc.files_by_picture import GRASPS, IMAGE, XML, annotated, role_of
from packer.sources._voc.voc_source import VOCSource

SPECIFICITY = 100
_EXPECTED = (
    "JPEGImages/ID.jpg with Annotations/ID.xml and Grasps/ID.txt; give the folder that holds these, or say another "
    "--from"
)


def recognise(names: Sequence[str]) -> str | None:
    """How many pictures with grasps these files hold; None where no Grasps lie beside Annotations and JPEGImages."""
    grasps = [name for name in names if "Grasps/" in name]
    keys = {key for _, key, role, suffix in map(role_of, grasps) if (role, suffix) == (GRASPS, ".txt")}
    found = [name for name in annotated(names, in_folders=True) if role_of(name)[1] in keys] if keys else []
    return f"VMRD: {counted(len(found), 'picture')} with grasps" if found else None


class Source(VOCSource):
    """The visual manipulation relationship data set."""

    kind = "vmrd"
    main = "rgb"
    needed: ClassVar[Mapping[str, str]] = {XML: "annotation file", GRASPS: "grasps"}
    roles = (IMAGE, XML, GRASPS)

    def __init__(
        self,
        root: Path | FileTree,
        *,
        origin: str = "one",
        missing: str = "keep",
        labels: str = "strict",
        label_frame: str = "auto",
        own_splits: bool = True,
        known_classes: Sequence[str] = (),
        follow_links: bool = False,
    ) -> None:
        """List the pictures, and read every annotation file once.

        origin: what the number of the first pixel is in the XML: `one`, as VMRD has it, or `zero`.
        missing: what a picture without an annotation file or grasps is: `keep`: a sample without these labels; `skip`:
            left out; `error`. An annotation file without a picture is left out, or an error.
        labels: `strict`: an object or a grasp that cannot be read is an error; `lenient`: it is left out.
        label_frame: over which pixels of a turned picture its labels lie: `stored`, `upright`, or `auto`: those whose
            size the annotation file states.
        own_splits: whether the lists in ImageSets are splits.
        known_classes: names of classes in the order of their numbers; none for those that are found.
        follow_links: whether links out of the folder are followed.
        Raises BadInput, naming all, where two files have one key, and for what is missing; InvalidRequest where there
        is no picture with grasps.
        """
        self._begin(origin=origin, missing=missing, labels=labels, label_frame=label_frame)
        listing, found = self._collected(root, follow_links=follow_links, expected=_EXPECTED)
        if not any(GRASPS in each.paths for each in found.pictures):
            raise InvalidRequest(
                f"{shown(str(self.root))}: none of {counted(len(found.pictures), 'picture')} has grasps; expected "
                f"{_EXPECTED}"
            )
        self._look(self._without_incomplete(found.pictures, found))
        self._number_splits(listing, found, task="Main", own_splits=own_splits)
        self._number_classes(listing, known_classes)
        self._extras = found.others
        self.schema = self._schema()
        self.notes = [*listing.notes(), *self._found_notes()]

    def _read_labels(self, data: bytes, path: Path) -> Annotation:
        found = super()._read_labels(data, path)
        return found._replace(objects=tuple(each._replace(name=each.name.lower()) for each in found.objects))

    def _labels_of(self, index: int, found: Annotation) -> base.Sample:
        data, grasps = self._grasps(index)
        return super()._labels_of(index, found) | {
            "grasps": grasps.corners.astype(np.float32),
            "grasp_objects": grasps.objects,
            "box_objects": np.asarray([-1 if each.number is None else each.number for each in found.objects], np.int64),
            "relations": [
                {"object": each.number, "fathers": list(each.fathers), "children": list(each.children)}
                for each in found.objects
            ],
            GRASPS: data,
        }

    def _grasps(self, index: int) -> tuple[bytes, ObjectGrasps]:
        """The grasp file of a sample and what it says; raises BadInput."""
        name = self._pictures[index].paths.get(GRASPS)
        data = b"" if name is None else self.read(name)
        return data, read_object_grasps(data, self.root / (name or ""), strict=self._strict)

    def _dropped(self, index: int) -> list[str]:
        found = self._grasps(index)[1]
        reasons = [f"{found.dropped} of {found.total} grasps left out: cannot be read"] if found.dropped else []
        if not found.total and GRASPS in self._pictures[index].paths:
            reasons.append("no grasps: the file is empty")
        return [*super()._dropped(index), *reasons, *_odd_numbers(self._annotation(index)[1], found)]

    def _schema(self) -> Schema:
        grasp_objects = Field("grasp_objects", "number", "raw:int64", dtype="int64", shape=(None,), of="grasps")
        return Schema(
            (
                Field("key", "text", "text"),
                Field("rgb", "image", "encoded"),
                Field("grasps", "points", "raw:float32", dtype="float32", shape=(None, 4, 2)),
                grasp_objects,
                *self._box_fields(),
                Field("box_objects", "number", "raw:int64", dtype="int64", shape=(None,), of="boxes"),
                Field("relations", "json", "json"),
                *self._last_fields(XML, GRASPS),
            )
        )


def _odd_numbers(labels: Annotation, grasps: ObjectGrasps) -> list[str]:
    """What the numbers of objects say that does not agree; they are kept as they are."""
    numbers = [each.number for each in labels.objects if each.number is not None]
    if not numbers:  # no annotation file, or one without <index>
        return []
    unknown = sorted(set(grasps.objects.tolist()) - set(numbers))
    relatives = {number for each in labels.objects for number in (*each.fathers, *each.children)}
    return [
        f"{what} {listed(map(str, found))}"
        for what, found in (
            ("grasps of objects that no <index> has:", unknown),
            ("several objects of one <index>:", sorted({each for each in numbers if numbers.count(each) > 1})),
            ("fathers or children that no <index> has:", sorted(relatives - set(numbers))),
        )
        if found
    ]
