"""VOC source: the base class for data sets with one annotation file per image, in Pascal VOC's XML.

The name of the last known folder in a path, such as `Annotations`, decides the role of the file. The key is the path
without this folder and without the suffix. `<filename>` and `<path>` are ignored, because they contain local paths.

| layout                                  | keys                                    |
|-----------------------------------------|-----------------------------------------|
| `JPEGImages/1.jpg`, `Annotations/1.xml` | `1`: Pascal VOC, CVAT, VMRD             |
| `images/a/1.jpg`, `annotations/a/1.xml` | `a/1`; also `annotations/xmls/a/1.xml`  |
| `train/1.jpg`, `train/1.xml`            | `train/1`: labelImg, Roboflow           |

Box coordinates are pixel edges: a box around a complete image is 0, 0, width, height. VOC counts pixels from 1 and
includes the last pixel, so the edges are xmin - 1, ymin - 1, xmax, ymax (as in detectron2). Many tools count pixels
from 0 and write the same XML. The files do not contain this difference, so the user sets the option `first_pixel`.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field
from packer.sources import _unread_images, base
from packer.sources._color_table import VOID, Color
from packer.sources._file_source import FileSource, Groups, Policies
from packer.sources._message_texts import counted, listed, shown
from packer.sources._name_words import numbered_classes, ordered_splits, split_rank
from packer.sources._small_file_source import FileRole, FileSample, LabelFile, Parsed
from packer.sources._trees.file_tree import FileTree
from packer.sources.annotations._image_sets import UNLISTED, read_image_sets
from packer.sources.annotations._voc_xml import FLAGS, AnnotatedObject, Annotation, Corners, read_annotation

XML = "annotation_file"
LABEL_MAP = "labelmap.txt"
_FOLDERS = "jpegimages|images|annotations|segmentationclass|segmentationobject|grasps"  # case-insensitive
_KEY = rf"(?P<key>(?:(?!(?:{_FOLDERS})/)[^/]+/)*[^/]+)"
_IMAGES = "jpg|jpeg|png|ppm|bmp|pgm|tif|tiff|webp"
_NO_ANNOTATION = Annotation(None, (), 0)
_OF_MASKS = ("background", "ignored")  # labels in CVAT's label map that are mask values, but not classes
_PROBED = 20  # annotation files to read at most
_CHANNELS = 3


def in_folder(folders: str, suffix: str) -> str:
    """Return a regular expression for the paths of files in one of `folders` with one of the suffixes `suffix`.

    Both arguments are alternatives separated by `|`. Suffixes have no dot.
    """
    return rf"(?i:(?P<base>(?:.*/)?)(?:{folders})/{_KEY}\.(?:{suffix}))"


def image_role(name: str) -> FileRole:
    """Return the role of images, with the field `name`. If `JPEGImages` and `images` are absent, any folder matches."""
    anywhere = rf"(?i:(?P<base>){_KEY}\.(?:{_IMAGES}))"
    pattern = in_folder("jpegimages|images", _IMAGES)
    return FileRole(name, "JPEGImages/ID.jpg", pattern, Field(name, "image", "encoded"), fallback=anywhere)


def verbatim(name: str) -> Field:
    """Return a hidden field with this name that contains the unchanged bytes of a file."""
    return Field(name, "bytes", "encoded", hidden=True)


ANNOTATION = FileRole(
    XML,
    "Annotations/ID.xml",
    rf"(?i:(?:(?P<base>(?:.*/)?)(?:annotations/xmls|annotations)/)?{_KEY}\.xml)",
    verbatim(XML),
    "labels",
)


class VOCSource(FileSource):
    """Images with boxes in VOC's XML. Subclasses call `_list_annotated`, and call `_check_role` in `choose`."""

    carries_skipped = has_companions = False
    _lists = "Main"  # the folder of the lists that are splits

    def _list_annotated(
        self,
        root: Path | FileTree,
        policies: Policies,
        *,
        first_pixel: int,
        labels_orientation: str,
        own_splits: bool,
        known_classes: Sequence[str],
        follow_links: bool,
    ) -> None:
        """List the images, and read all annotation files once. Raises the errors of `_list`.

        Args:
            root: The folder or the archive.
            policies: The options of all file sources.
            first_pixel: The number of the first pixel in the annotation files, 1 or 0.
            labels_orientation: The pixels that labels refer to if EXIF rotates the image: `stored` in the file, or
                `upright` after the rotation. `auto`: those whose size the annotation file contains.
            own_splits: True: the splits come from the lists in ImageSets or from folder names. False: no splits.
            known_classes: The class names in label order. Empty: all classes that the files contain.
            follow_links: True: also read files behind links that lead out of `root`.
        """
        base.check_choice("first_pixel", first_pixel, (0, 1))
        self._first_pixel, self._own_splits, self._known_classes = first_pixel, own_splits, known_classes
        self.assumed = {"first_pixel": first_pixel}
        self.frame = base.frame_of(labels_orientation)
        self._list(root, policies, follow_links=follow_links, own_splits=own_splits)

    @classmethod
    def _recognize_by_names(cls, names: Sequence[str]) -> str | None:
        """Return a line with the number of images if there are `Annotations` and `JPEGImages`, else None."""
        found = [
            roles
            for roles in cls._recognized(names)
            if "JPEGImages/" in roles[cls.anchor][0] and "annotations/" in roles[XML][0].lower()
        ]
        return f"{cls.title}: {counted(len(found), cls.noun)}" if found else None

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return a line with the number of images if folder names and XML files match VOC, else None."""
        by_names = cls._recognize_by_names(names)
        if by_names is not None:
            return by_names
        found = cls._recognized(names)
        for name in (roles[XML][0] for roles in found[:_PROBED]):
            try:
                if read_annotation(tree.read(name), tree.root / name, strict=True).objects:
                    return f"{cls.title}: {counted(len(found), cls.noun)}"
            except BadInput:
                return None
        return None

    @classmethod
    def _recognized(cls, names: Sequence[str]) -> list[Mapping[str, Sequence[str]]]:
        """Return role -> files for each image that has labels."""
        if not any(name[-4:].lower() == ".xml" for name in names):  # grouping a million names takes seconds
            return []
        groups, _ = cls._grouped(names, cls.roles)
        return [roles for _, roles in sorted(groups.items()) if set(cls.recognized_by[0]) <= roles.keys()]

    @classmethod
    def key_of(cls, match: re.Match[str]) -> str:
        return (match["base"] or "") + match["key"]

    def _check_role(self, name: str, groups: Groups) -> None:
        """Raise InvalidRequest if no image has a file of the role."""
        self._paths = {roles[self.anchor][0]: key for (_, key), roles in groups.items()}
        if not any(name in roles for roles in groups.values()):
            example = next(role.example for role in self.roles if role.name == name)
            raise InvalidRequest(
                f"{shown(str(self.root))}: none of {counted(len(groups), self.noun)} has {example}; give the folder "
                "that contains it, or another --from"
            )

    def prepare(self, present: set[str]) -> None:
        self._survey()
        keys = [sample.key for sample in self._samples]
        self._sets = read_image_sets(self.folder, self.extras, images=self._paths, samples=keys, task=self._lists)
        del self._paths
        if self._own_splits and not self._sets.tables:
            self._sets = self._sets._replace(**_by_folder(keys))
        self._maps = [name for name in self.extras if name.rpartition("/")[2] == LABEL_MAP]
        self.tables = [*self._sets.tables, *self._maps]
        self._label_map = self._read_label_maps()
        self._classes = self._numbered_classes()
        is_annotated = any(role.name == XML for role in self.roles)
        self.labels = self._label_files() if is_annotated else ()
        unread = _unread_images.unread_images(self.extras)
        self.unread, self.unread_message = _unread_images.reported(unread)

    def _survey(self) -> None:
        """Read all annotation files to collect image sizes, classes and flags. Ignore unreadable files."""
        self._sizes = array("q")  # height and width of each sample, 0 and 0 if unknown
        self._counts: Counter[str] = Counter()  # class -> number of objects
        self._flags = {"difficult", "truncated"}  # and other flags that any object has
        self._has_parts = False
        self._zeros = 0  # objects that begin at pixel 0
        for sample in self._samples:
            found = _NO_ANNOTATION
            with suppress(BadInput):
                found = self._annotation(sample)
            self._sizes.extend(found.size or (0, 0))
            for each in found.objects:
                self._counts[each.name] += 1
                self._flags.update(each.flags)
                self._has_parts |= bool(each.parts)
                self._zeros += min(each.box) == 0

    def _annotation(self, sample: FileSample) -> Annotation:
        """Return the parsed annotation file of a sample, or `_NO_ANNOTATION` if the sample has no annotation file."""
        path = sample.paths.get(XML)
        return _NO_ANNOTATION if path is None else self._read_annotation(self.read_file(path), self.root / path)

    def _read_annotation(self, data: bytes, path: Path) -> Annotation:
        return read_annotation(data, path, strict=self._is_strict)

    def _read_label_maps(self) -> dict[str, Color | None]:
        """Return label -> RGB color or None, from the lines `label:r,g,b:parts:actions` of labelmap.txt."""
        found: dict[str, Color | None] = {}
        for name in self._maps:
            for line in self.read_file(name).decode("utf-8-sig", "surrogateescape").splitlines():
                label, _, rest = line.partition(":")
                words = [word.strip() for word in rest.partition(":")[0].split(",")]
                numbers = [int(word) for word in words if re.fullmatch("[0-9]{1,4}", word) and int(word) <= VOID]
                is_color = len(numbers) == len(words) == _CHANNELS
                if label.strip() and not line.startswith("#"):
                    found.setdefault(label.strip(), (numbers[0], numbers[1], numbers[2]) if is_color else None)
        return found

    def _numbered_classes(self) -> dict[str, int]:
        """Return class -> number. Raise BadInput for a class that is not in `known_classes`."""
        found = set(self._counts)
        mapped = [name for name in self._label_map if name in found or name not in _OF_MASKS]
        of_lists = set() if mapped else self._sets.classes - set(_OF_MASKS)
        names = numbered_classes(shown(str(self.root)), found, self._known_classes)
        if not self._known_classes:
            names = (*mapped, *sorted((found | of_lists) - set(mapped)))
        return {name: number for number, name in enumerate(names)}

    def _label_files(self) -> tuple[LabelFile, ...]:
        return (LabelFile(XML, tuple(self._box_fields()), self._parse, may_be_empty=True),)

    def _box_fields(self) -> list[Field]:
        classes = tuple(self._classes) or None
        return [
            Field("boxes", "boxes", "raw:float32", dtype="float32", shape=(None, 4)),
            Field("box_labels", "number", "raw:int64", dtype="int64", shape=(None,), classes=classes, of="boxes"),
            *(
                Field(f"box_{flag}", "number", "raw:uint8", dtype="uint8", shape=(None,), of="boxes")
                for flag in FLAGS
                if flag in self._flags
            ),
            *([Field("parts", "json", "json")] if self._has_parts else []),
        ]

    def _parse(self, data: bytes, path: Path, strict: bool) -> Parsed:
        """Return the box fields from an annotation file. A sample without an annotation file has no objects."""
        found = self._read_annotation(data, path) if path.name else _NO_ANNOTATION
        values = self._box_values(found.objects, path)
        return Parsed(values, len(found.objects) + found.dropped, found.dropped)

    def _box_values(self, objects: Sequence[AnnotatedObject], path: Path) -> dict[str, Any]:
        new = [each.name for each in objects if each.name not in self._classes]
        if new:
            raise BadInput(f"{shown(str(path))}: class {shown(new[0])} was not there before; pack it again")
        values: dict[str, Any] = {"boxes": self._edges([each.box for each in objects])}
        values["box_labels"] = np.array([self._classes[each.name] for each in objects], np.int64)
        for flag in sorted(self._flags):
            values[f"box_{flag}"] = np.array([each.flags.get(flag, 0) for each in objects], np.uint8)
        if self._has_parts:
            values["parts"] = [
                [{"name": part.name, "box": self._edges([part.box])[0].tolist()} for part in each.parts]
                for each in objects
            ]
        return values

    def _edges(self, corners: Sequence[Corners]) -> npt.NDArray[np.float32]:
        """Convert xmin, ymin, xmax, ymax of boxes in a file to pixel edges, float32 (N, 4): x0, y0, x1, y1."""
        boxes = np.asarray(corners, np.float64).reshape(-1, 4)
        boxes[:, :2] -= self._first_pixel
        return boxes.astype(np.float32)

    def split_of(self, sample: FileSample) -> str:
        return self._sets.splits.get(sample.key, UNLISTED) if self._sets.names else ""

    def split_names(self, found: set[str]) -> tuple[str, ...]:
        return self._sets.names

    def stated_size(self, index: int) -> tuple[int, int] | None:
        self.checked(index)
        height, width = self._sizes[2 * index : 2 * index + 2]
        return (height, width) if height else None

    def more_notes(self) -> Sequence[str]:
        notes = [f"{counted(self._counts.total(), 'object')} of {counted(len(self._classes), 'class')}"]
        if self._classes:
            notes.append(f"classes: {listed(f'{name} {self._counts[name]}' for name in self._classes)}")
        if self._first_pixel == 0:
            notes.append("first pixel 0: the edges of boxes are xmin, ymin, xmax, ymax")
        else:
            notes.append("first pixel 1: the edges of boxes are xmin - 1, ymin - 1, xmax, ymax; see --first-pixel 0")
            if self._zeros:
                begin = f"{counted(self._zeros, 'object')} with an xmin or ymin of 0"
                notes.append(f"{begin}: the files seem to count pixels from 0; check --first-pixel 0")
        notes += self._sets.notes if self._own_splits else ()
        return notes


def _by_folder(keys: Iterable[str]) -> dict[str, Any]:
    """Return the arguments `splits` and `names` of ImageSets if all top folders of the images are splits, else {}."""
    tops = {key: key.partition("/")[0] for key in keys}
    names = set(tops.values())
    is_split = len(names) > 1 and all("/" in key and split_rank(top) is not None for key, top in tops.items())
    return {"splits": tops, "names": ordered_splits(names)} if is_split else {}
