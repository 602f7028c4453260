"""VOC: pictures with boxes in Pascal VOC's XML, and its segmentation masks, from one data set or several (VOCdevkit).

Layouts (packer.sources._voc.files_by_picture): `JPEGImages/ID.jpg` with `Annotations/ID.xml`, as Pascal VOC and CVAT
have it; `images/` with `annotations/`; and a picture beside its XML, as of labelImg and Roboflow. Order: by key.

Fields: key (the path without the folder of its role and without the suffix), image (bytes of the file), boxes (float32
(N, 4), edges), and of boxes: box_labels (int64, with the classes), box_difficult and box_truncated (uint8; 0 where a
file does not state them), box_occluded where any file states it; parts (json: a list per box of `{"name", "box"}`,
boxes as of `boxes`, which no geometry moves) where any object has a part; mask and object_mask (PNG bytes: classes and
numbers of objects, 255 for void; from masks in colours computed, _voc.labelmap_colours) where every picture has one;
split (int64, from `ImageSets/Main`, or from folders named as splits). Hidden: files (field -> relative path),
annotation_file (the XML verbatim, empty where there is none), and masks in colours verbatim as mask_file and
object_mask_file.

The classes are those of CVAT's `labelmap.txt`, else of the lists of classes in ImageSets and of all files, sorted: for
Pascal VOC its twenty in its own order, so that class k is the value k + 1 of a mask.
The frame of the labels is the size that each file states, unless `label_frame` says it (packer.pack.label_orientation).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from packer.errors import BadInput, InvalidRequest
from packer.images import sniff
from packer.schema import MOST_PIXELS, Field, Schema
from packer.sources import base
from packer.sources._parse.colour_table import ColourTable
from packer.sources._parse.folder_listing import counted, shown
from packer.sources._parse.voc_xml import Annotation, read_annotation
from packer.sources._trees.file_tree import FileTree
from packer.sources._voc.files_by_picture import IMAGE, MASK, OBJECT_MASK, XML, annotated
from packer.sources._voc.labelmap_colours import class_colours, object_colours
from packer.sources._voc.voc_source import VOCSource

SPECIFICITY = 50
_TASKS = ("auto", "detect", "segment")
_LOOKED_AT = 20  # annotation files that say whether they are VOC's where folders do not
_EXPECTED = "JPEGImages/ID.jpg with Annotations/ID.xml; give the folder that holds these, or say another --from"
_COLOURS = 3  # channels of a mask that shows its classes in colours


def recognise(names: Sequence[str]) -> str | None:
    """How many pictures with annotations these files hold; None where no Annotations lie beside JPEGImages."""
    found = annotated(names, in_folders=True)
    return f"VOC: {counted(len(found), 'picture')} with an annotation file" if found else None


class Source(VOCSource):
    """Pictures with boxes in VOC's XML."""

    kind = "voc"
    main = IMAGE
    needed: ClassVar[Mapping[str, str]] = {XML: "annotation file"}

    def __init__(
        self,
        root: Path | FileTree,
        *,
        task: str = "auto",
        origin: str = "one",
        missing: str = "keep",
        labels: str = "strict",
        label_frame: str = "auto",
        own_splits: bool = True,
        known_classes: Sequence[str] = (),
        follow_links: bool = False,
    ) -> None:
        """List the pictures, and read every annotation file once.

        task: `detect`: every picture is a sample; `segment`: every picture with a mask in SegmentationClass; `auto`:
            detect where there are annotation files.
        origin: what the number of the first pixel is in the files: `one`, as Pascal VOC has it, or `zero`.
        missing: what a picture without an annotation file is: `keep`: a sample without boxes; `skip`: left out;
            `error`. An annotation file without a picture is left out, or an error.
        labels: `strict`: an object that cannot be read is an error; `lenient`: it is left out.
        label_frame: over which pixels of a turned picture its labels lie: `stored`, `upright`, or `auto`: those whose
            size the annotation file states.
        own_splits: whether the lists in ImageSets are splits.
        known_classes: names of classes in the order of their numbers; none for those that are found.
        follow_links: whether links out of the folder are followed.
        Raises BadInput, naming all, where two files have one key, and for what is missing; InvalidRequest where there
        is no annotated picture.
        """
        base.check_choice("task", task, _TASKS)
        self._colours: dict[str, ColourTable] = {}  # of masks that are no class numbers, by role
        self._begin(origin=origin, missing=missing, labels=labels, label_frame=label_frame)
        listing, found = self._collected(root, follow_links=follow_links, expected=_EXPECTED)
        has_xml = any(XML in each.paths for each in found.pictures)
        masked = [each for each in found.pictures if MASK in each.paths]
        if task == "auto":
            task = "detect" if has_xml or not masked else "segment"
        if not (has_xml if task == "detect" else masked):
            lacking = "an annotation file" if task == "detect" else "a mask in SegmentationClass"
            raise InvalidRequest(
                f"{shown(str(self.root))}: none of {counted(len(found.pictures), 'picture')} has {lacking}; expected "
                f"{_EXPECTED}"
            )
        pictures = found.pictures if task == "detect" else masked
        kept = self._without_incomplete(pictures, found) if has_xml else list(pictures)
        if task == "segment":
            self.left_out = [
                *((each.key, "no mask") for each in found.pictures if MASK not in each.paths),
                *self.left_out,
            ]
        self._look(kept)
        self._number_splits(listing, found, task="Main" if task == "detect" else "Segmentation", own_splits=own_splits)
        self._number_classes(listing, known_classes)
        for role in (MASK, OBJECT_MASK):
            if kept and all(role in each.paths for each in kept):
                self.roles = (*self.roles, role)
                if self._is_in_colours(kept[0].paths[role]):
                    self._colours[role] = class_colours(self._label_map) if role == MASK else object_colours()
        self._extras = found.others
        self.schema = self._schema(has_xml=has_xml)
        self.notes = [*listing.notes(), *self._found_notes(), *self._about_masks(len(masked))]

    @classmethod
    def recognise_tables(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Annotations in other folders, or beside their pictures, where the first of them say that they are VOC's."""
        found = annotated(names, in_folders=False)
        for name in found[:_LOOKED_AT]:
            try:
                says_boxes = bool(read_annotation(tree.read(name), tree.root / name, strict=True).objects)
            except BadInput:
                return None
            if says_boxes:
                return f"VOC: {counted(len(found), 'picture')} with an annotation file"
        return None

    def _is_in_colours(self, name: str) -> bool:
        """Whether a mask shows its values in colours, and a palette is none of them."""
        try:
            header = sniff(self.read(name), MOST_PIXELS)
        except BadInput:
            return False  # packing the sample says more
        return not header.palette and header.channels >= _COLOURS

    def _field_of(self, role: str) -> str:
        return _verbatim(role) if role in self._colours else super()._field_of(role)

    def _computed(self, index: int, read: Mapping[str, bytes]) -> base.Sample:
        return {
            role: colours.values(read[_verbatim(role)], self.root / self._pictures[index].paths[role])
            for role, colours in self._colours.items()
        }

    def _labels_of(self, index: int, found: Annotation) -> base.Sample:
        sample = super()._labels_of(index, found)
        if self._survey.has_parts:
            sample["parts"] = [
                [{"name": part.name, "box": self._edges([part.box])[0].tolist()} for part in each.parts]
                for each in found.objects
            ]
        return sample

    def _schema(self, *, has_xml: bool) -> Schema:
        fields = [Field("key", "text", "text"), Field("image", "image", "encoded")]
        if has_xml:
            fields += self._box_fields()
            if self._survey.has_parts:
                fields.append(Field("parts", "json", "json"))
        for role in (MASK, OBJECT_MASK):
            if role in self.roles:
                fields.append(Field(role, "mask", "png" if role in self._colours else "encoded"))
        return Schema((*fields, *self._last_fields(*([XML] if has_xml else []), *map(_verbatim, self._colours))))

    def _about_masks(self, masked: int) -> list[str]:
        notes = []
        if masked and MASK not in self.roles:
            notes.append(
                f"no field mask: {masked} of {counted(len(self), 'picture')} have one in SegmentationClass; --task "
                "segment packs these, with their boxes"
            )
        if MASK in self._colours:
            said = "lines of labelmap.txt" if self._maps else "values of Pascal VOC's palette"
            notes.append(f"masks are in colours: the numbers in mask are the {said}")
        return notes


def _verbatim(role: str) -> str:
    """The field that keeps the file of a mask in colours."""
    return f"{role}_file"
