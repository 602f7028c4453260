"""VOC: images with boxes in Pascal VOC's XML and segmentation masks, from one or several data sets (VOCdevkit).

packer.sources.annotations._voc_base describes layouts, keys and box coordinates. Samples are ordered by key.

Fields of a sample with N objects:
* key. image: the bytes of the file.
* boxes: float32 (N, 4), x0, y0, x1, y1 in px. For each box: box_labels (int64), box_difficult and box_truncated (uint8,
  0 if absent). box_occluded (uint8) exists if any annotation file contains the flag.
* parts: json, for each box a list of `{"name", "box"}`, if any object has a part. Geometries do not move parts.
* mask (class of each pixel) and object_mask (number of the object): PNG bytes, 255 for void. A mask field exists if
  all images have a file for it. Masks stored as RGB colors are converted.
* split: int64, from `ImageSets/Main`, or from folders with names of splits.
* Hidden: files (field -> relative path), annotation_file (bytes of the XML, empty if absent), mask_file and
  object_mask_file (bytes of RGB masks).

CVAT's `labelmap.txt` lists the classes. Without this file, the classes are the sorted names in all lists of ImageSets
and all annotation files. For Pascal VOC, the result is the usual order of the 20 classes: class k has mask value k + 1.

CVAT and datumaro write masks as RGB. `labelmap.txt` contains one label and color per line. The mask value of a label is
the position of the line. Without `labelmap.txt`, and for object_mask, the colors are Pascal VOC's palette (255: void).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packer.errors import BadInput
from packer.images import sniff
from packer.schema import MOST_PIXELS, Field
from packer.sources import base
from packer.sources._color_table import VOID, ColorTable, voc_palette
from packer.sources._file_source import Groups, Policies
from packer.sources._message_texts import counted
from packer.sources._small_file_source import FileRole, FileSample
from packer.sources._trees.file_tree import FileTree
from packer.sources.annotations._voc_base import (
    ANNOTATION,
    LABEL_MAP,
    XML,
    VOCSource,
    image_role,
    in_folder,
    verbatim,
)

SPECIFICITY = 50
_MASKS: Sequence[str] = ("mask", "object_mask")
_COLORS = 3  # channels of an RGB mask


class Source(VOCSource):
    """Images with boxes in VOC's XML."""

    kind, title = "voc", "VOC"
    anchor = "image"
    roles: Sequence[FileRole] = (
        image_role("image"),
        ANNOTATION,
        FileRole("mask", "SegmentationClass/ID.png", in_folder("segmentationclass", "png"), need="shared"),
        FileRole("object_mask", "SegmentationObject/ID.png", in_folder("segmentationobject", "png"), need="shared"),
    )
    recognized_by = (("image", XML),)

    def __init__(
        self,
        root: Path | FileTree,
        *,
        task: str = "auto",
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
            root: The folder or the archive.
            task: `detect`: all images are samples. `segment`: images with a mask in SegmentationClass are samples.
                `auto`: `segment` if masks and no annotation files exist, otherwise `detect`.
            first_pixel: The number of the first pixel in the annotation files, 1 or 0.
            missing: For an image without an annotation file, `keep` adds a sample without boxes, `skip` skips the
                image, and `error` raises BadInput.
            bad_labels: For an object that is not valid, `error` raises BadInput and `skip` skips the object.
            labels_orientation: The pixels that labels refer to if EXIF rotates the image: `stored` in the file, or
                `upright` after the rotation. `auto`: those whose size the annotation file contains.
            own_splits: True: the splits come from lists in ImageSets or from folder names. False: no field `split`.
            known_classes: The class names in label order. Empty: all classes that the files contain.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.
        """
        base.check_choice("task", task, ("auto", "detect", "segment"))
        self._task = task
        self._list_annotated(
            root,
            Policies(missing, bad_labels=bad_labels),
            first_pixel=first_pixel,
            labels_orientation=labels_orientation,
            own_splits=own_splits,
            known_classes=known_classes,
            follow_links=follow_links,
        )

    def choose(self, groups: Groups) -> None:
        self._masked = sum("mask" in roles for roles in groups.values())
        is_annotated = any(XML in roles for roles in groups.values())
        is_segment = self._task == "segment" or (self._task == "auto" and self._masked > 0 and not is_annotated)
        self._check_role("mask" if is_segment else XML, groups)
        self._lists = "Segmentation" if is_segment else "Main"
        self.roles = tuple(
            replace(role, need="select") if is_segment and role.name == "mask" else role
            for role in self.roles
            if is_annotated or role.name != XML
        )

    def prepare(self, present: set[str]) -> None:
        super().prepare(present)
        names = [name for name in _MASKS if name in present]
        colored = {name for name in names if self._is_in_colors(self._samples[0].paths[name])}
        self._tables = {name: self._color_table(name) if name in colored else None for name in names}
        files: dict[str, str] = {name: f"{name}_file" for name in colored}  # stored unchanged
        self.roles = tuple(
            replace(role, name=files[role.name], field=verbatim(files[role.name])) if role.name in files else role
            for role in self.roles
        )
        if files:
            self._samples = [
                sample._replace(paths={files.get(name, name): path for name, path in sample.paths.items()})
                for sample in self._samples
            ]

    def _is_in_colors(self, name: str) -> bool:
        try:
            header = sniff(self.read_file(name), MOST_PIXELS)
        except BadInput:
            return False  # reading the sample raises it
        return not header.palette and header.channels >= _COLORS

    def _color_table(self, name: str) -> ColorTable:
        palette = voc_palette()
        if name != "mask" or not any(self._label_map.values()):
            return ColorTable({color: value for value, color in enumerate(palette)}, "Pascal VOC's palette")
        colors = enumerate(self._label_map.values())
        values = {color: value for value, color in colors if color is not None and value < VOID}
        return ColorTable({**values, palette[VOID]: VOID}, LABEL_MAP)

    def more_fields(self) -> Sequence[Field]:
        return [Field(name, "mask", "png" if table else "encoded") for name, table in self._tables.items()]

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        return {
            name: table.values(files[f"{name}_file"], self.root / sample.paths[f"{name}_file"])
            for name, table in self._tables.items()
            if table
        }

    def more_notes(self) -> Sequence[str]:
        notes = [*super().more_notes()]
        if self._masked and "mask" not in self._tables:
            found = f"{self._masked} of {counted(len(self), self.noun)} have one in SegmentationClass"
            notes.append(f"no field mask: {found}; --task segment packs these, with their boxes")
        if self._tables.get("mask"):
            values = f"lines of {LABEL_MAP}" if self._maps else "values of Pascal VOC's palette"
            notes.append(f"masks are in colors: the numbers in mask are the {values}")
        return notes
