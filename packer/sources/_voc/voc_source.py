"""VOC source: base of the sources whose pictures have an annotation file each, in Pascal VOC's XML.

What is settled when the source is made needs every annotation file once: the names of the classes, what objects state,
and the size that each file states of its picture. A file that cannot be read says nothing then; reading its sample says
what is wrong.

Boxes are edges, as everywhere in packer: of all pixels of a picture 0, 0, width, height. VOC counts pixels from 1 and
means the last one to be in the box, so that xmin and ymin less 1, and xmax and ymax as they are, are its edges (as
detectron2 has it; VMRN takes 1 from all four, datumaro and torchvision nothing). Many tools that write the same XML
count from 0, and nothing in a file says so: the option `origin` does, and every manifest states it.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field
from packer.sources import base
from packer.sources._parse import unread_formats
from packer.sources._parse.colour_table import Colour
from packer.sources._parse.folder_layout import ordered_splits, split_rank
from packer.sources._parse.folder_listing import Listing, counted, described, listed, shown
from packer.sources._parse.voc_xml import Annotation, Corners, read_annotation
from packer.sources._trees.file_tree import FileTree
from packer.sources._voc.files_by_picture import IMAGE, XML, FoundFiles, PictureFiles, collect
from packer.sources._voc.image_sets import UNLISTED, ImageSets, read_image_sets
from packer.sources._voc.labelmap_colours import LABEL_MAP, read_label_maps

ORIGINS = ("one", "zero")
FRAMES = ("auto", "stored", "upright")
MISSING = ("keep", "skip", "error")
LABELS = ("strict", "lenient")
_OF_MASKS = ("background", "ignored")  # in CVAT's label map: values of masks, and of no box
_NOTHING = Annotation(None, "", (), 0)
_SHOWN_CLASSES = 10


@dataclass
class Survey:
    """What all annotation files say together.

    sizes: height and width that each states, a pair for every sample, 0 and 0 for none. classes: objects of each name.
    stated: flags that any object has. zeros: objects that begin at pixel 0. renamed: keys whose <filename> is
    another's.
    """

    sizes: "array[int]" = field(default_factory=lambda: array("q"))
    classes: Counter[str] = field(default_factory=Counter)
    stated: set[str] = field(default_factory=set)
    has_parts: bool = False
    zeros: int = 0
    renamed: list[str] = field(default_factory=list)

    def add(self, key: str, found: Annotation) -> None:
        """Take what one file says."""
        self.sizes.extend(found.size or (0, 0))
        for each in found.objects:
            self.classes[each.name] += 1
            self.stated.update(each.flags)
            self.has_parts = self.has_parts or bool(each.parts)
            self.zeros += min(each.box) == 0
        if found.filename and PurePosixPath(found.filename).stem != key.rpartition("/")[2]:
            self.renamed.append(key)


class VOCSource(base.Source):
    """Samples that are a picture, its annotation file, and further files of the same key."""

    main: ClassVar[str]  # the field that the picture is
    needed: ClassVar[Mapping[str, str]]  # role -> what a file of it is: what `missing` is about
    roles: tuple[str, ...] = (IMAGE, XML)  # whose files are read, the picture's first

    _pictures: list[PictureFiles]
    _survey: Survey
    _sets: ImageSets
    _splits: Mapping[str, int]  # name -> number; empty for no field
    _classes: Mapping[str, int]
    _maps: Sequence[str] = ()  # files that name the classes
    _label_map: Mapping[str, Colour | None]
    _extras: Sequence[str]

    def _begin(self, *, origin: str, missing: str, labels: str, label_frame: str) -> None:
        """Take the options that every such source has; raises InvalidRequest."""
        base.check_choice("origin", origin, ORIGINS)
        base.check_choice("missing", missing, MISSING)
        base.check_choice("labels", labels, LABELS)
        base.check_choice("label_frame", label_frame, FRAMES)
        self.left_out = []
        self._origin, self._missing, self._strict = origin, missing, labels == "strict"
        self.frame = "stated" if label_frame == "auto" else "upright" if label_frame == "upright" else "stored"

    def _collected(self, root: Path | FileTree, *, follow_links: bool, expected: str) -> tuple[Listing, FoundFiles]:
        """List the tree; raises InvalidRequest where there is no picture, BadInput as `collect` does."""
        listing = self._open_root(root, follow_links=follow_links)
        found = collect(self.root, listing.names)
        unread = unread_formats.unread_pictures(self.folder, found.others)
        self.unread = [(name, unread_formats.reason(kind)) for name, kind in unread.items()]
        self.unread_message = unread_formats.described(unread) if unread else ""
        if not found.pictures:
            what = unread_formats.described(unread) if unread else f"found {described(listing.names)}"
            raise InvalidRequest(f"{shown(str(self.root))}: no annotated pictures: {what}; expected {expected}")
        return listing, found

    def _without_incomplete(self, pictures: Sequence[PictureFiles], found: FoundFiles) -> list[PictureFiles]:
        """The pictures that are complete enough; sets `left_out`. Raises BadInput, naming all, where none may lack."""
        bare = {each.key: reason for each in pictures if (reason := self._lacking(each)) is not None}
        lost = {key: f"no picture for {path}" for key, path in found.unpaired.items()}
        if self._missing == "error" and (bare or lost):
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(bare), 'picture')} without all that belongs to it, "
                f"{counted(len(lost), 'annotation file')} without a picture: "
                f"{listed(f'{key} ({reason})' for key, reason in (bare | lost).items())}; get them, or say --missing "
                "keep or --missing skip"
            )
        self.left_out = list(((bare if self._missing == "skip" else {}) | lost).items())
        return [each for each in pictures if each.key not in bare or self._missing != "skip"]

    def _lacking(self, picture: PictureFiles) -> str | None:
        """What a picture has no file of, None where it has all."""
        lacking = [noun for role, noun in self.needed.items() if role not in picture.paths]
        return f"no {' and no '.join(lacking)}" if lacking else None

    def _look(self, pictures: list[PictureFiles]) -> None:
        """Read every annotation file once."""
        self._pictures = pictures
        self._survey = Survey()
        for index, each in enumerate(pictures):
            found = _NOTHING
            with suppress(BadInput):  # reading the sample says it, so that --on-error decides
                found = self._annotation(index)[1]
            self._survey.add(each.key, found)

    def _number_splits(self, listing: Listing, found: FoundFiles, *, task: str, own_splits: bool) -> None:
        """Read the lists, and settle which splits there are."""
        keys = [each.key for each in self._pictures]
        there = [each.key for each in found.pictures]
        self._sets = read_image_sets(self.folder, listing.names, there=there, taken=keys, bases=found.bases, task=task)
        if not own_splits:
            self._sets = self._sets._replace(splits={}, names=(), notes=())
        elif not self._sets.tables:
            self._sets = self._sets._replace(**_by_folder(keys))
        self._splits = {name: number for number, name in enumerate(self._sets.names)}

    def _number_classes(self, listing: Listing, known: Sequence[str]) -> None:
        """Settle the classes; raises BadInput for one that the pack of --classes-from does not have."""
        self._maps = [name for name in listing.names if name.rpartition("/")[2] == LABEL_MAP]
        self._label_map = read_label_maps(self.folder, self._maps)
        found = set(self._survey.classes)
        if known:
            unknown = sorted(found - set(known))
            if unknown:
                raise BadInput(
                    f"{shown(str(self.root))}: {counted(len(unknown), 'class')} that the pack of --classes-from does "
                    f"not have: {listed(unknown)}; rename them, or number the classes anew"
                )
            names = list(known)
        else:
            mapped = [name for name in self._label_map if name in found or name not in _OF_MASKS]
            named = {name for name in self._sets.classes if name not in _OF_MASKS} if not mapped else set()
            names = [*mapped, *sorted((found | named) - set(mapped))]
        self._classes = {name: number for number, name in enumerate(names)}

    def _box_fields(self) -> list[Field]:
        """The boxes and what belongs to them."""
        columns = ["difficult", "truncated", *(["occluded"] if "occluded" in self._survey.stated else [])]
        classes = tuple(self._classes) or None
        return [
            Field("boxes", "boxes", "raw:float32", dtype="float32", shape=(None, 4)),
            Field("box_labels", "number", "raw:int64", dtype="int64", shape=(None,), classes=classes, of="boxes"),
            *(
                Field(f"box_{name}", "number", "raw:uint8", dtype="uint8", shape=(None,), of="boxes")
                for name in columns
            ),
        ]

    def _last_fields(self, *files: str) -> list[Field]:
        """The split, and what is packed for extraction; files: roles that are kept verbatim."""
        names = tuple(self._splits)
        split = [Field("split", "number", "number", dtype="int64", shape=(), classes=names)] if names else []
        hidden = [Field(role, "bytes", "encoded", hidden=True) for role in files]
        return [*split, Field("files", "json", "json", hidden=True), *hidden]

    def _labels_of(self, index: int, found: Annotation) -> base.Sample:
        """The fields that the annotation of a sample gives; raises BadInput."""
        labels = []
        for each in found.objects:
            if each.name not in self._classes:  # the file was another one when the source was made
                raise BadInput(
                    f"{shown(self._path(index, XML))}: class {shown(each.name)} was not there before; pack it again"
                )
            labels.append(self._classes[each.name])
        sample: base.Sample = {"boxes": self._edges([each.box for each in found.objects])}
        sample["box_labels"] = np.asarray(labels, np.int64)
        for flag in ("difficult", "truncated", "occluded"):
            sample[f"box_{flag}"] = np.asarray([each.flags.get(flag, 0) for each in found.objects], np.uint8)
        return sample

    def _edges(self, corners: Sequence[Corners]) -> npt.NDArray[np.float32]:
        """Boxes as written -> edges between pixels."""
        boxes = np.asarray(corners, np.float64).reshape(-1, 4)
        if self._origin == "one":
            boxes[:, :2] -= 1
        return boxes.astype(np.float32)

    def _annotation(self, index: int) -> tuple[bytes, Annotation]:
        """The annotation file of a sample and what it says; nothing where there is none. Raises BadInput."""
        name = self._pictures[index].paths.get(XML)
        if name is None:
            return b"", _NOTHING
        data = self.read(name)
        return data, self._read_labels(data, self.root / name)

    def _read_labels(self, data: bytes, path: Path) -> Annotation:
        return read_annotation(data, path, strict=self._strict)

    def _computed(self, index: int, read: Mapping[str, bytes]) -> base.Sample:
        """Fields that are no file as it is, of the files that were read by field; raises BadInput."""
        return {}

    def _path(self, index: int, role: str) -> str:
        return str(self.root / self._pictures[index].paths[role])

    def _field_of(self, role: str) -> str:
        return self.main if role == IMAGE else role

    def _file_fields(self, index: int) -> dict[str, str]:
        """Field -> relative path, of the fields of a sample that are files."""
        paths = self._pictures[index].paths
        return {self._field_of(role): paths[role] for role in self.roles if role in paths}

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> base.Sample:
        key = self.key(index)
        files = self._file_fields(index)
        data, found = self._annotation(index)
        read = {name: self.read(path) for name, path in files.items() if name not in self.needed}
        sample: base.Sample = {"key": key, "files": files, XML: data} | read | self._labels_of(index, found)
        sample |= self._computed(index, read)
        if self._splits:
            sample["split"] = self.value(index, "split")
        return {name: sample[name] for name in self.schema.names}

    def value(self, index: int, name: str) -> Any:
        key = self.key(index)
        if name == "key":
            return key
        if name == "split" and self._splits:
            return np.int64(self._splits[self._sets.splits.get(key, UNLISTED)])
        files = self._file_fields(index)
        if name in files:
            return self.read(files[name])
        labels = self._labels_of(index, self._annotation(index)[1]) if name in self.schema else {}
        return labels[name] if name in labels else super().value(index, name)

    def key(self, index: int) -> str:
        return self._pictures[self.checked(index)].key

    def files(self, index: int) -> tuple[Path, ...]:
        return tuple(self.root / name for name in self.file_names(index))

    def file_names(self, index: int) -> tuple[str, ...]:
        self.checked(index)
        return tuple(self._file_fields(index).values())

    def stem(self, index: int) -> Path:
        self.checked(index)
        return Path(self._path(index, IMAGE)).with_suffix("")

    def stated_size(self, index: int) -> tuple[int, int] | None:
        self.checked(index)
        height, width = self._survey.sizes[2 * index : 2 * index + 2]
        return (height, width) if height else None

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.root / name for name in (*self._sets.tables, *self._maps))

    def extras(self) -> Sequence[str]:
        return self._extras

    def assumed(self) -> Mapping[str, str]:
        return {"origin": self._origin}

    def missing(self, index: int) -> str | None:
        """Absent files, and labels that were left out; reads the files where these may be."""
        self.checked(index)
        reasons = [reason for reason in (self._lacking(self._pictures[index]),) if reason is not None]
        with suppress(BadInput):  # reading the sample says more
            reasons += self._dropped(index)
        return "; ".join(reasons) or None

    def _dropped(self, index: int) -> list[str]:
        """What was left out of the files of a sample; raises BadInput."""
        found = _NOTHING if self._strict else self._annotation(index)[1]
        total = len(found.objects) + found.dropped
        return [f"{found.dropped} of {total} objects left out: cannot be read"] if found.dropped else []

    def _found_notes(self) -> list[str]:
        """What every such source says of what it found."""
        survey = self._survey
        total = survey.classes.total()
        notes = [
            f"{counted(len(self), 'picture')}, {counted(total, 'object')} of {counted(len(self._classes), 'class')}"
        ]
        if self._classes:
            first = [f"{shown(name)} {survey.classes[name]}" for name in list(self._classes)[:_SHOWN_CLASSES]]
            more = len(self._classes) - len(first)
            notes.append(f"classes: {', '.join(first)}{f', ... and {more} more' if more else ''}")
        notes.append(
            "origin one: pixels are counted from 1, so the edges of a box are xmin and ymin less 1, xmax and ymax as "
            "they are; --origin zero takes all four as they are"
            if self._origin == "one"
            else "origin zero: xmin, ymin, xmax and ymax are taken as the edges of boxes"
        )
        if survey.zeros and self._origin == "one":
            notes.append(
                f"{counted(survey.zeros, 'object')} with an xmin or ymin of 0, which no file has that counts pixels "
                "from 1: is it --origin zero?"
            )
        for role, noun in self.needed.items():
            bare = sum(role not in each.paths for each in self._pictures)
            if bare and role in self.schema:
                notes.append(f"{counted(bare, 'picture')} with no {noun}: kept without its labels")
        if self._splits:
            counts = Counter(self._sets.splits.get(each.key, UNLISTED) for each in self._pictures)
            notes.append("splits: " + ", ".join(f"{shown(name)} {counts[name]}" for name in self._splits))
        notes += self._sets.notes
        if survey.renamed:
            notes.append(
                f"{counted(len(survey.renamed), 'annotation file')} with the <filename> of another picture, which "
                f"pairs nothing here: {listed(survey.renamed)}"
            )
        return notes


def _by_folder(keys: Iterable[str]) -> dict[str, Any]:
    """Splits by the folders directly under the root, where all are named as splits are, as fields of ImageSets."""
    tops = {key: key.partition("/")[0] for key in keys}
    names = set(tops.values())
    is_split = (
        len(names) > 1 and all("/" in key for key in tops) and all(split_rank(name) is not None for name in names)
    )
    return {"splits": tops, "names": ordered_splits(names)} if is_split else {"splits": {}, "names": ()}
