"""YOLO: pictures with a text file of objects each, as ultralytics and darknet train on them.

A set is described by a `data.yaml` (or another YAML file directly in the folder) that names the pictures of each split
and the classes, or by darknet's `obj.data` with its lists; without either, pictures whose label files hold YOLO's rows
are a set without names of classes. The labels of `images/train/1.jpg` are in `labels/train/1.txt`: the last `images`
of the path counts, and where there is none, they lie beside the picture, as of darknet.

Samples are the pictures of each split, one split after the other, each sorted by path, as ultralytics has them. One
without a label file, or with an empty one, is background: it has no boxes. Order, and every fact about it that trains
otherwise in ultralytics, is in docs/sources/yolo.md.

Fields: key (relative path of the picture), image (bytes of the file), boxes (float32 (N, 4), px), box_labels (int64
(N,)); by the task polygons, polygon_starts, polygon_box (segment), oriented_boxes (obb: float32 (N, 4, 2)), keypoints
(pose: float32 (N, K, 2)) and keypoint_visibility, where the files have it; split (int64), where there are splits.
Hidden: files (field -> relative path), labels_file (verbatim, empty where there is none).
Rows are shares of the picture as viewers show it, turned by its EXIF orientation, as ultralytics reads it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.images import sniff
from packer.schema import MOST_PIXELS, Field, Schema
from packer.sources import _unread_images, base
from packer.sources._parse import yolo_description
from packer.sources._parse.folder_listing import Listing, counted, described, listed, shown
from packer.sources._parse.yolo_description import YoloDescription
from packer.sources._parse.yolo_labels import (
    LEAST_ROW_BYTES,
    RowForm,
    Task,
    YoloLabels,
    read_labels,
    repeated_rows,
    row_lengths,
)
from packer.sources._parse.yolo_pictures import SetPaths, darknet_label_names, label_name
from packer.sources._parse.yolo_splits import YoloSplit, named_pictures, splits_by_folders, without_duplicates
from packer.sources._trees.file_tree import FileTree

SPECIFICITY = 50
TASKS: tuple[Task, ...] = ("detect", "segment", "obb", "pose")
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_USUAL = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")  # how a description is called
_YAML = (".yaml", ".yml")
_CLASSES = "classes.txt"  # of labelImg and Label Studio, beside the labels or above them
_LOOKED_AT = 32  # label files that are opened to tell what the rows are
_RECOGNISED_BY = 3  # label files that are opened of a set that nothing describes
_FIRST_TRANSPOSED = 5  # EXIF orientations from here on exchange the sides
_MOST_DESCRIPTION_BYTES = 8 << 20


def recognise(names: Sequence[str]) -> str | None:
    """How many pictures these are, where a description and label files are there by their usual names."""
    top = [name for name in names if "/" not in name]
    if "obj.data" in top and "obj.names" in top:
        pictures = sum(map(_is_picture, names))
        return f"YOLO set of darknet: {counted(pictures, 'picture')}, obj.data" if pictures else None
    description = next((name for name in _USUAL if name in top), None)
    return None if description is None else _sentence(names, description)


def _sentence(names: Sequence[str], description: str) -> str | None:
    """What a described set is; None where no picture has a label file."""
    texts = {name for name in names if name.endswith(".txt")}
    pictures = [name for name in names if _is_picture(name)]
    labelled = sum(label_name(name) in texts for name in pictures)
    if not labelled:
        return None
    return f"YOLO set: {counted(len(pictures), 'picture')}, {counted(labelled, 'label file')}, {shown(description)}"


class Source(base.Source):
    """A YOLO set."""

    kind = "yolo"
    frame: base.Frame = "upright"
    left_out: list[tuple[str, str]]

    def __init__(
        self,
        root: Path | FileTree,
        *,
        task: str = "auto",
        missing: str = "keep",
        duplicates: str = "error",
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """List the pictures.

        own_splits: whether the samples have the splits of the description, or of folders named so.
        Raises BadInput, naming the files, where they contradict each other or are missing.
        """
        base.check_choice("task", task, ("auto", *TASKS))
        base.check_choice("missing", missing, ("keep", "skip", "error"))
        base.check_choice("duplicates", duplicates, ("error", "first", "skip"))
        listing = self._open_root(root, follow_links=follow_links)
        self.left_out = []
        self._tables: list[str] = []
        paths = self._paths_in(listing)
        notes: list[str] = []  # in the order in which things are found; what the set is goes before them
        found = self._described(listing, paths, notes)
        splits = self._settled_splits(found, paths, notes, missing=missing, duplicates=duplicates)
        self._names, self._split_of, named = _in_order(splits)
        self._splits = named if own_splits else ()
        self._settle_labels(paths, notes, missing)
        self._form = self._settled_form(task, found, self._with_rows(notes))
        self.schema = _schema(self._form, found, self._splits)
        self._settle_extras(listing, paths, notes)
        self.notes = [*listing.notes(), *self._found(), *notes]

    @classmethod
    def recognise_tables(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """A set that another YAML file or another list of darknet describes; or none, where all rows are YOLO's."""
        top = [name for name in names if "/" not in name]
        if not any(map(_is_picture, names)):
            return None
        if any(name.endswith(".data") and _says_darknet(tree, name) for name in top):
            return f"YOLO set of darknet: {counted(sum(map(_is_picture, names)), 'picture')}"
        described_in = next((name for name in top if name.endswith(_YAML) and _says_yolo(tree, name)), None)
        if described_in is not None:
            return _sentence(names, described_in)
        texts = {name for name in names if name.endswith(".txt")}
        pictures = filter(_is_picture, names) if texts else ()
        labels = [label for name in pictures if (label := label_name(name)) in texts]
        step = -(-len(labels) // _LOOKED_AT) or 1
        rows = 0
        for label in labels[::step]:
            try:
                data = tree.read(label)
            except BadInput:
                return None  # who packs them says why
            if data.strip():
                if not _are_rows(data, tree.root / label):
                    return None
                rows += 1
                if rows == _RECOGNISED_BY:
                    break
        if not rows:
            return None
        return f"YOLO rows: {counted(len(labels), 'picture')} with a label file, and no names of classes"

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> base.Sample:
        name = self.key(index)
        label = self._labels[index]
        image = self.read(name)
        data = self.read(label) if label else b""
        found = read_labels(data, self.root / (label or name), self._form)
        sample: base.Sample = {"key": name, "image": image, **self._values(found, image, name)}
        if self._splits:
            sample["split"] = np.int64(self._split_of[index])
        sample["files"] = {"image": name, "labels_file": label} if label else {"image": name}
        sample["labels_file"] = data
        return sample

    def value(self, index: int, name: str) -> Any:
        if name == "split" and self._splits:
            return np.int64(self._split_of[self.checked(index)])
        return self.key(index) if name == "key" else super().value(index, name)

    def key(self, index: int) -> str:
        return self._names[self.checked(index)]

    def files(self, index: int) -> tuple[Path, ...]:
        return tuple(self.root / name for name in self.file_names(index))

    def file_names(self, index: int) -> tuple[str, ...]:
        name, label = self.key(index), self._labels[index]
        return (name, label) if label else (name,)

    def stem(self, index: int) -> Path:
        return (self.root / self.key(index)).with_suffix("")

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.root / name for name in self._tables)

    def extras(self) -> Sequence[str]:
        return self._extras

    def missing(self, index: int) -> str | None:
        """A label file that is not there, and rows that it has twice; reads it."""
        label = self._labels[self.checked(index)]
        if not label:
            return f"no label file {label_name(self._names[index])}: background"
        try:
            repeated = repeated_rows(self.read(label))
        except BadInput:
            return None  # reading the sample says more
        return f"{counted(repeated, 'row')} of {label} there twice: kept" if repeated else None

    # ---- the values

    def _values(self, found: YoloLabels, image: bytes, name: str) -> base.Sample:
        """The objects in px of the upright picture."""
        try:
            header = sniff(image, MOST_PIXELS)
        except DamagedImage as error:
            raise BadInput(f"{self.root / name}: {error.message}") from error
        sides = np.array([header.width, header.height], np.float64)
        if header.orientation >= _FIRST_TRANSPOSED:
            sides = sides[::-1]
        points = np.asarray(found.points * sides, np.float32)
        values: base.Sample = {
            "boxes": np.asarray(found.boxes * np.tile(sides, 2), np.float32),
            "box_labels": found.classes,
        }
        count = len(found.classes)
        if self._form.task == "segment":
            values |= {"polygons": points, "polygon_starts": found.starts, "polygon_box": found.owners}
        elif self._form.task == "obb":
            values["oriented_boxes"] = points.reshape(-1, 4, 2)
        elif self._form.keypoints is not None:
            places, numbers = self._form.keypoints
            values["keypoints"] = points.reshape(count, places, 2)
            if numbers == 3:
                values["keypoint_visibility"] = found.visibility.reshape(count, places)
        return values

    # ---- which pictures

    def _paths_in(self, listing: Listing) -> SetPaths:
        """What lies in the folder; raises InvalidRequest where there is no picture."""
        pictures = [name for name in listing.names if _is_picture(name)]
        others = [name for name in listing.names if not _is_picture(name)]
        unread = _unread_images.unread_images(self.folder, others)
        if not pictures:
            found = _unread_images.described(unread) if unread else described(listing.names)
            raise InvalidRequest(
                f"{shown(str(self.root))}: no YOLO set: found {found}, expected pictures, their label files, and a "
                "data.yaml or obj.data; give the folder that holds all of them"
            )
        return SetPaths(listing.names, listing.folders, pictures, unread)

    def _described(self, listing: Listing, paths: SetPaths, notes: list[str]) -> YoloDescription:
        """What the set says of itself; what nobody says is left empty."""
        top = [name for name in listing.names if "/" not in name]
        name = _description(self.root, self.folder, top)
        self._is_darknet = name is not None and name.endswith(".data")
        if name is None:
            found = YoloDescription()
        else:
            self._tables.append(name)
            read = yolo_description.read_darknet if self._is_darknet else yolo_description.read_description
            found = read(self.folder.read(name), self.root / name)
            notes += found.notes
        if found.names_file:
            return replace(found, names=self._names_of_darknet(found, paths))
        lists = [each for each in listing.names if each.rpartition("/")[2] == _CLASSES]
        if found.names:
            twice = [name for name, count in Counter(found.names).items() if count > 1]
            if twice:
                notes.append(
                    f"classes of one name with several numbers, which stay classes of their own: {listed(twice)}"
                )
            described = [
                each for each in top if each.endswith(_YAML) and each != name and _says_yolo(self.folder, each)
            ]
            others = [each for each in (*described, *lists) if self._names_others(each, found.names)]
            if others:
                notes.append(f"{listed(others)}: other classes than in {shown(str(name))}, whose names are taken")
        if found.names or found.class_count is not None or not lists:
            return found
        self._tables += lists
        names = {each: yolo_description.read_names(self.folder.read(each), self.root / each) for each in lists}
        if len(set(names.values())) > 1:
            raise BadInput(f"{shown(str(self.root))}: {listed(lists)} name other classes each; keep one")
        return replace(found, names=names[lists[0]])

    def _names_others(self, path: str, names: Sequence[str]) -> bool:
        """Whether a list of classes, or a description, that is not taken has other names; a bad one says nothing."""
        data, full_path = self.folder.read(path), self.root / path
        try:
            if path.endswith(_YAML):
                found = yolo_description.read_description(data, full_path).names
                return bool(found) and found != tuple(names)
            return tuple(yolo_description.read_names(data, full_path)) != tuple(names)
        except BadInput:
            return False

    def _names_of_darknet(self, found: YoloDescription, paths: SetPaths) -> tuple[str, ...]:
        where = shown(str(self.root / self._tables[0]))
        place = paths.find(found.names_file)
        if place is None or place.is_folder:
            raise BadInput(
                f"{where}: names: {shown(found.names_file)} is not there; put the list of the classes beside it"
            )
        paths.note(place)
        self._tables.append(place.name)
        names = yolo_description.read_names(self.folder.read(place.name), self.root / place.name)
        yolo_description.check_count(names, found.class_count, where, "classes")
        return names

    def _settled_splits(
        self, found: YoloDescription, paths: SetPaths, notes: list[str], *, missing: str, duplicates: str
    ) -> list[YoloSplit]:
        """The splits, no picture in two of them."""
        if not found.splits:
            self._take_unread(paths, paths.unread)
            return splits_by_folders(paths.pictures)
        said_in = self._tables[0]
        named = named_pictures(self.folder, paths, found, said_in=said_in, missing=missing)
        self._tables += [name for name in dict.fromkeys(named.lists) if name not in self._tables]
        self._take_unread(paths, named.unread)
        splits, more, twice = without_duplicates(named.pictures, duplicates, shown(str(self.root / said_in)))
        notes += [*named.notes, *more]
        if not splits:
            raise InvalidRequest(
                f"{shown(str(self.root))}: {shown(said_in)} names no picture that is here, though "
                f"{described(paths.pictures, 'picture')} are; give the folder that its paths begin from"
            )
        taken = {*twice, *(name for split in splits for name in split.pictures)}
        self.left_out += named.left_out
        self.left_out += [(name, "named twice by the splits") for name in twice]
        self.left_out += [(name, f"in no split of {said_in}") for name in paths.pictures if name not in taken]
        return splits

    def _take_unread(self, paths: SetPaths, names: Iterable[str]) -> None:
        """Note pictures of the set in formats that nobody reads."""
        kinds = {name: paths.unread[name] for name in sorted(names)}
        self.unread = [(name, _unread_images.reason(kind)) for name, kind in kinds.items()]
        self.unread_message = _unread_images.described(kinds) if kinds else ""

    # ---- their labels

    def _settle_labels(self, paths: SetPaths, notes: list[str], missing: str) -> None:
        """Find the label file of each picture, and tell how many have none; raises BadInput, InvalidRequest."""
        self._labels = [self._label_of(name, paths) for name in self._names]
        if not any(self._labels):
            first = self._names[0]
            raise InvalidRequest(
                f"{shown(str(self.root))}: no picture has a label file: looked for {shown(label_name(first))} beside "
                f"{shown(first)}, and so on; give the folder that holds the pictures and the labels"
            )
        _check_one_each(self.root, self._names, self._labels)
        bare = [name for name, label in zip(self._names, self._labels, strict=True) if not label]
        beside = [name for name in bare if not self._is_darknet and _beside(name) in paths]
        if beside:
            notes.append(
                f"{counted(len(beside), 'picture')} with a text file beside it, such as {shown(_beside(beside[0]))}, "
                f"and none in {shown(label_name(beside[0]))}, where ultralytics looks: background"
            )
        cased = paths.in_other_case([label_name(name) for name in bare])
        if cased:
            notes.append(
                f"{counted(len(cased), 'label file')} in other letter case than ultralytics looks for, such as "
                f"{shown(label_name(bare[0]))}: {listed(cased)}: not read"
            )
        if bare and missing == "error":
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(bare), 'picture')} without a label file: {listed(bare)}; say "
                "--missing keep (background, as in ultralytics) or --missing skip"
            )
        if bare and missing == "skip":
            self.left_out += [(name, f"no label file {label_name(name)}") for name in bare]
            kept = [row for row, label in enumerate(self._labels) if label]
            self._names = [self._names[row] for row in kept]
            self._labels = [self._labels[row] for row in kept]
            self._split_of = self._split_of[kept]

    def _label_of(self, picture: str, paths: SetPaths) -> str:
        """The relative path of the label file; empty where there is none."""
        if not self._is_darknet:
            label = label_name(picture)
            return label if label in paths else ""
        found = [label for label in darknet_label_names(picture) if label in paths]
        if len(found) > 1:
            raise BadInput(
                f"{shown(str(self.root / picture))}: two label files: {listed(found)}; keep the one that belongs to it"
            )
        return found[0] if found else ""

    def _with_rows(self, notes: list[str]) -> list[int]:
        """The samples whose label files have rows by their size; tells how many pictures have none."""
        filled = []
        bare = empty = 0
        for row, label in enumerate(self._labels):
            if not label:
                bare += 1
            elif self._size(label) >= LEAST_ROW_BYTES:
                filled.append(row)
            else:
                empty += 1
        if bare or empty:
            files = f"{bare} without a label file, {empty} with an empty one"
            notes.append(f"{counted(bare + empty, 'picture')} of background: {files}")
        return filled

    def _size(self, label: str) -> int:
        try:
            return self.folder.state(label).size_bytes
        except BadInput:
            return LEAST_ROW_BYTES  # reading the sample says more

    def _settled_form(self, task: str, found: YoloDescription, filled: Sequence[int]) -> RowForm:
        """What the rows are; raises InvalidRequest where nobody can tell."""
        keypoints = found.keypoints
        classes = len(found.names) or found.class_count
        settled = next((each for each in TASKS if each == task), None)
        if settled is None:
            settled = "pose" if keypoints is not None else self._guessed_task(filled)
        if settled == "pose" and keypoints is None:
            raise InvalidRequest(
                f"{shown(str(self.root))}: --task pose needs to know how many keypoints an object has: add kpt_shape, "
                "such as kpt_shape: [17, 3], to data.yaml"
            )
        return RowForm(settled, classes, keypoints if settled == "pose" else None)

    def _guessed_task(self, filled: Sequence[int]) -> Task:
        """What the rows of some label files say."""
        step = -(-len(filled) // _LOOKED_AT) or 1
        lengths: Counter[int] = Counter()
        for row in filled[::step]:
            with suppress(BadInput):  # reading the sample says more
                lengths += row_lengths(self.folder.read(self._labels[row]))
        if not lengths or set(lengths) == {5}:
            return "detect"
        where = shown(str(self.root))
        if any(length >= 7 and length % 2 and length != 9 for length in lengths):
            return "segment"
        if 9 in lengths:
            raise InvalidRequest(
                f"{where}: rows of nine numbers are oriented boxes or polygons of four points: cannot decide; say "
                "--task obb or --task segment"
            )
        if 5 in lengths:
            return "detect"
        raise InvalidRequest(
            f"{where}: rows of {listed(map(str, sorted(lengths)))} numbers: no boxes (5), polygons (7, 9, 11, ...) or "
            "oriented boxes (9); of keypoints, data.yaml says kpt_shape"
        )

    def _settle_extras(self, listing: Listing, paths: SetPaths, notes: list[str]) -> None:
        """What else lies there, and label files that belong to no picture."""
        owned = {*paths.pictures, *map(label_name, paths.pictures), *self._labels, *(name for name, _ in self.unread)}
        self._extras = [name for name in listing.names if name not in owned]
        folders = {name.rpartition("/")[0] for name in (*self._labels, *map(label_name, self._names))}
        others = [
            name
            for name in self._extras
            if name.endswith(".txt") and name.rpartition("/")[0] in folders and name not in self._tables
        ]
        if others:
            notes.append(f"{counted(len(others), 'label file')} of no picture, such as {shown(others[0])}")

    def _found(self) -> list[str]:
        """The notes."""
        of = f", {counted(self._form.classes, 'class')}" if self._form.classes is not None else ", classes by number"
        notes = [f"{counted(len(self), 'picture')}, rows of --task {self._form.task}{of}"]
        if self._splits:
            counts = Counter(self._split_of.tolist())
            splits = (f"{shown(name)} {counts[row]}" for row, name in enumerate(self._splits))
            notes.append(f"splits: {', '.join(splits)}")
        notes.append("rows are shares of the picture as viewers show it, by its EXIF orientation")
        if self._form.keypoints is not None and self._form.keypoints[1] == 2:
            notes.append("keypoints of two numbers: the files say no visibility")
        return notes


def _is_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _beside(picture: str) -> str:
    return f"{picture[: picture.rindex('.')]}.txt"


def _description(root: Path, tree: FileTree, names: Sequence[str]) -> str | None:
    """Which of the files directly in the folder describes the set; None where none does.

    Raises InvalidRequest where several do, and none of them has the usual name.
    """
    usual = next((name for name in _USUAL if name in names), None)
    if usual is not None:
        return usual
    others = [name for name in names if name.endswith(_YAML) and _says_yolo(tree, name)]
    if len(others) > 1:
        raise InvalidRequest(
            f"{shown(str(root))}: {listed(others)} each describe a YOLO set: cannot decide which; name one of them "
            "data.yaml, or remove the others"
        )
    darknet = (name for name in names if name.endswith(".data") and _says_darknet(tree, name))
    return others[0] if others else next(darknet, None)


def _says_yolo(tree: FileTree, name: str) -> bool:
    """Whether a YAML file describes a YOLO set; one that is not read is another's."""
    try:
        if tree.state(name).size_bytes > _MOST_DESCRIPTION_BYTES:
            return False
        return yolo_description.describes(tree.read(name), tree.root / name)
    except BadInput:
        return False


def _says_darknet(tree: FileTree, name: str) -> bool:
    """Whether a file is darknet's description of a set; one that is not read is another's."""
    try:
        if tree.state(name).size_bytes > _MOST_DESCRIPTION_BYTES:
            return False
        found = yolo_description.read_darknet(tree.read(name), tree.root / name)
    except BadInput:
        return False
    return bool(found.splits) and bool(found.names_file)


def _are_rows(data: bytes, path: Path) -> bool:
    """Whether all lines of a text file are boxes or polygons in shares of a picture."""
    lengths = row_lengths(data)
    if not lengths or not all(length == 5 or (length >= 7 and length % 2) for length in lengths):
        return False
    try:
        read_labels(data, path, RowForm("segment"))
    except BadInput:
        return False
    return True


def _check_one_each(root: Path, pictures: Sequence[str], labels: Sequence[str]) -> None:
    """Raise BadInput where two pictures have one label file."""
    owners: dict[str, str] = {}
    twice = []
    for picture, label in zip(pictures, labels, strict=True):
        if label and owners.setdefault(label, picture) != picture:
            twice.append(f"{label} ({owners[label]}, {picture})")
    if twice:
        raise BadInput(
            f"{shown(str(root))}: {counted(len(twice), 'label file')} of two pictures: {listed(twice)}; rename or "
            "remove one picture of each"
        )


def _in_order(splits: Sequence[YoloSplit]) -> tuple[list[str], npt.NDArray[np.int64], tuple[str, ...]]:
    """All pictures, the number of the split of each, and the names of the splits; none of a set without."""
    names = [name for split in splits for name in split.pictures]
    numbers = np.repeat(np.arange(len(splits), dtype=np.int64), [len(split.pictures) for split in splits])
    return names, numbers, tuple(split.name for split in splits if split.name)


def _schema(form: RowForm, found: YoloDescription, splits: tuple[str, ...]) -> Schema:
    fields = [
        Field("key", "text", "text"),
        Field("image", "image", "encoded"),
        Field("boxes", "boxes", "raw:float32", "float32", (None, 4)),
        Field("box_labels", "number", "raw:int64", "int64", (None,), classes=found.names or None, of="boxes"),
    ]
    if form.task == "segment":
        fields += [
            Field("polygons", "points", "raw:float32", "float32", (None, 2), edges=True),
            Field("polygon_starts", "number", "raw:int64", "int64", (None,), starts="polygons"),
            Field("polygon_box", "number", "raw:int64", "int64", (None,), of="polygon_starts", into="boxes"),
        ]
    elif form.task == "obb":
        fields.append(Field("oriented_boxes", "points", "raw:float32", "float32", (None, 4, 2), of="boxes", edges=True))
    elif form.keypoints is not None:
        places, numbers = form.keypoints
        shape, joints = (None, places, 2), found.keypoint_names or None
        fields.append(
            Field("keypoints", "points", "raw:float32", "float32", shape, classes=joints, of="boxes", edges=True)
        )
        if numbers == 3:
            fields.append(Field("keypoint_visibility", "number", "raw:uint8", "uint8", (None, places), of="boxes"))
    if splits:
        fields.append(Field("split", "number", "number", "int64", (), classes=splits))
    fields += [Field("files", "json", "json", hidden=True), Field("labels_file", "bytes", "encoded", hidden=True)]
    return Schema(tuple(fields))
