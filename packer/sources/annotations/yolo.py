"""YOLO: images with one text file of objects per image, the training data of ultralytics and darknet.

The description of a data set is a `data.yaml`, another YAML file directly in the root, or darknet's `obj.data`. It
lists the images of each split and the class names. A data set without a description has no class names, unless a
`classes.txt` lists them. `_yolo_labels` describes the label files.

Samples are ordered by split, then by path, as in ultralytics. An image with no label file or an empty label file is
background: a sample without boxes. docs/pack/sources/yolo.md lists all differences from ultralytics.

Fields of a sample with N objects:
* key: the relative path of the image. image: the bytes of the file.
* boxes: float32 (N, 4), x0, y0, x1, y1 in px. box_labels: int64 (N,).
* Task `segment`: polygons, polygon_starts and polygon_box, as in packer.sources.annotations.coco.
* Task `obb`: oriented_boxes, float32 (N, 4, 2), the corners x, y in px.
* Task `pose`: keypoints, float32 (N, K, 2). keypoint_visibility, uint8 (N, K), if the label files contain visibility.
* split: int64. Hidden: files (field -> relative path), labels_file (bytes of the label file, empty if absent).

Label files contain fractions of the width and height of the upright image, because ultralytics applies the EXIF
orientation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.images import sniff
from packer.schema import MOST_PIXELS, Field, Schema
from packer.sources import _unread_images, base
from packer.sources._file_pattern import is_image
from packer.sources._file_source import Policies
from packer.sources._message_texts import counted, described, listed, shown
from packer.sources._small_file_source import FileRole, FileSample, ListedSource
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_scan import Listing
from packer.sources.annotations._yolo_description import (
    DARKNET,
    MOST_BYTES,
    YoloDescription,
    describes,
    read_description,
    read_names,
)
from packer.sources.annotations._yolo_labels import (
    LEAST_ROW_BYTES,
    RowForm,
    Task,
    label_names,
    read_labels,
)
from packer.sources.annotations._yolo_splits import DescribedPaths, folder_splits, without_duplicates

SPECIFICITY = 50
TASKS: tuple[Task, ...] = ("detect", "segment", "obb", "pose")
_USUAL = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml", "obj.data")
_CLASSES = "classes.txt"  # the list of class names that labelImg and Label Studio write
_PROBED = 32  # label files to read at most
_RECOGNIZED_BY = 3  # label files with rows of YOLO that are enough
_NO_LABELS = "no label file"
_FIRST_TRANSPOSED = 5  # EXIF orientations from 5 on exchange width and height


class Source(ListedSource):
    """A data set in YOLO's layout."""

    kind = "yolo"
    frame: base.Frame = "upright"
    tables: list[str]
    roles = (
        FileRole("image", "images/ID.jpg", "", Field("image", "image", "encoded")),
        FileRole("labels_file", "labels/ID.txt", "", Field("labels_file", "bytes", "encoded", hidden=True)),
    )
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
        """List the images and the label files, and read the description of the data set.

        Args:
            root: The folder or the archive.
            task: The meaning of the numbers in a label row: `detect`, `segment`, `obb` or `pose`. `auto`: the task is
                inferred from the description, or from some label files.
            missing: For an image without a label file, `keep` adds a sample without boxes, `skip` skips the image, and
                `error` raises BadInput. An absent path in a list is skipped with `skip`, and an error otherwise.
            duplicates: For an image in two splits, `error` raises BadInput, `first` uses the first split, and `skip`
                skips the image.
            own_splits: True: the splits come from the description or from folder names. False: no field `split`.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.

        Raises:
            BadInput: Files are absent or contradict each other. The message lists these files.
            InvalidRequest: The folder contains no YOLO data set, or the task is ambiguous.
        """
        base.check_choice("task", task, ("auto", *TASKS))
        policies = Policies(missing, duplicates)
        listing = self._open_root(root, follow_links=follow_links)
        description, splits = self._read_description(listing, policies)
        self._split_of_key = {name: split for split, names in splits.items() for name in names}
        self._splits = tuple(split for split in splits if split and own_splits)
        files = set(listing.names)
        samples = {name: self._sample(name, files) for name in listing.names if is_image(name)}
        self._samples = [samples[name] for name in self._split_of_key]
        if not any("labels_file" in sample.paths for sample in self._samples):
            raise InvalidRequest(
                f"{shown(str(self.root))}: not a YOLO set: found {described(listing.names)}, expected images with "
                "label files, such as images/1.jpg and labels/1.txt; give the folder that contains both"
            )
        self._check_labels(missing)
        filled = [sample for sample in self._samples if self._has_rows(sample)]
        self._form = self._row_form(task, description, filled)
        self.schema = Schema(tuple(self._fields(description)))
        owned = {path for sample in samples.values() for path in sample.paths.values()}
        self.extras = sorted(files - owned - {name for name, _ in self.unread})
        self.notes = [*self.notes, *self._more_notes(len(filled))]

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return one line about the data set, or None if neither a description nor label files with YOLO rows exist."""
        usual = next((name for name in _USUAL if name in names), None)
        by_name = _sentence(names, usual) if usual else None
        if by_name is not None:
            return by_name
        images = list(filter(is_image, names))
        descriptions = _descriptions(tree, names) if images else []
        if descriptions:
            return _sentence(names, descriptions[0])
        texts = {name for name in names if name.endswith(".txt")}
        labels = [label for name in images for label in label_names(name, is_darknet=False) if label in texts]
        filled = 0
        for label in labels[:: -(-len(labels) // _PROBED) or 1]:
            try:
                filled += len(read_labels(tree.read(label), tree.root / label, RowForm("segment")).classes) > 0
            except BadInput:
                return None
            if filled == _RECOGNIZED_BY:
                break
        found = f"YOLO rows: {counted(len(labels), 'image')} with a label file, and no names of classes"
        return found if filled else None

    def split_of(self, sample: FileSample) -> str:
        return self._split_of_key[sample.key]

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        """Return the boxes, classes and other label fields of a sample, in px of the upright image."""
        path = self.root / sample.paths["image"]
        found = read_labels(files.get("labels_file", b""), self.root / sample.paths.get("labels_file", ""), self._form)
        try:
            header = sniff(files["image"], MOST_PIXELS)
        except DamagedImage as error:
            raise BadInput(f"{path}: {error.message}") from error
        sides = np.array([header.width, header.height], np.float64)
        if header.orientation >= _FIRST_TRANSPOSED:
            sides = sides[::-1]
        points = np.asarray(found.points * sides, np.float32)
        values: base.Sample = {
            "boxes": np.asarray(found.boxes * np.tile(sides, 2), np.float32),
            "box_labels": found.classes,
        }
        if self._form.task == "segment":
            values |= {"polygons": points, "polygon_starts": found.starts, "polygon_box": found.owners}
        elif self._form.task == "obb":
            values["oriented_boxes"] = points.reshape(-1, 4, 2)
        elif self._form.keypoints is not None:
            shape = len(found.classes), self._form.keypoints[0]
            values["keypoints"] = points.reshape(*shape, 2)
            if "keypoint_visibility" in self.schema:
                values["keypoint_visibility"] = found.visibility.reshape(shape)
        return values

    def missing(self, index: int) -> str | None:
        """Read the label file. Return a note if the file is absent or contains repeated rows, otherwise None."""
        sample = self._samples[self.checked(index)]
        if "labels_file" not in sample.paths:
            return f"{_NO_LABELS}: background"
        try:
            lines = self.read_file(sample.paths["labels_file"]).splitlines()
        except BadInput:
            return None  # reading the sample raises it
        rows = [tuple(words) for line in lines if (words := line.split())]
        repeated = len(rows) - len(set(rows))
        return f"{counted(repeated, 'repeated row')} in the label file: kept" if repeated else None

    # ---- description and splits

    def _read_description(self, listing: Listing, policies: Policies) -> tuple[YoloDescription, dict[str, list[str]]]:
        """Return the description, and split -> images. If the data set has no splits, "" is the only split."""
        self.notes, self.left_out = listing.notes(), []
        usual = [name for name in _USUAL if name in listing.names][:1]
        self.tables = usual or _descriptions(self.folder, listing.names)
        if len(self.tables) > 1:
            raise InvalidRequest(
                f"{shown(str(self.root))}: cannot decide which of {listed(self.tables)} describes the set; "
                "rename one of them to data.yaml, or remove the others"
            )
        self._is_darknet = any(name.endswith(DARKNET) for name in self.tables)
        description = YoloDescription()
        for name in self.tables:
            description = read_description(self.folder.read(name), self.root / name)
        paths = DescribedPaths(self.folder, listing, description)
        if not description.names:
            description = replace(description, names=self._listed_classes(description, paths))
        images = list(filter(is_image, listing.names))
        unread = _unread_images.unread_images(sorted(paths.files.difference(images)))
        if description.splits:
            name = self.tables[0]
            listed_images = paths.splits(sorted([*images, *unread]), missing=policies.missing)
            self.tables += dict.fromkeys(paths.lists)
            self.notes += paths.notes
            splits, twice = without_duplicates(listed_images, policies.duplicates, shown(str(self.root / name)))
            used = {*twice, *(file for files in splits.values() for file in files)}
            unread = {file: kind for file, kind in unread.items() if file in used}
            self.left_out += [(line, f"listed in {place}, and does not exist") for line, place in paths.absent.items()]
            self.left_out += [(file, "listed twice by the splits") for file in twice]
            self.left_out += [(file, f"in no split of {name}") for file in images if file not in used]
            readable = {split: [file for file in files if file not in unread] for split, files in splits.items()}
            splits = {split: files for split, files in readable.items() if files}
        else:
            splits = folder_splits(images)
        self.unread, self.unread_message = _unread_images.reported(unread)
        return description, splits

    def _listed_classes(self, description: YoloDescription, paths: DescribedPaths) -> tuple[str, ...]:
        """Return the class names from a `classes.txt` or from the file in the description. () if both are absent."""
        lists = sorted(name for name in paths.files if name.rpartition("/")[2] == _CLASSES)
        if description.names_file:
            path = paths.find(description.names_file)
            if path not in paths.files:
                where = shown(str(self.root / self.tables[0]))
                raise BadInput(f"{where}: names: {shown(description.names_file)} does not exist; correct the path")
            lists = [path]
        names = {name: read_names(self.folder.read(name), self.root / name) for name in lists}
        if len(set(names.values())) > 1:
            raise BadInput(f"{shown(str(self.root))}: {listed(lists)} differ; keep one of them")
        self.tables += lists
        return next(iter(names.values()), ())

    # ---- label files

    def _sample(self, image: str, files: set[str]) -> FileSample:
        labels = [name for name in label_names(image, is_darknet=self._is_darknet) if name in files]
        return FileSample(image, {"image": image, "labels_file": labels[0]} if labels else {"image": image})

    def _check_labels(self, missing: str) -> None:
        """Apply the option `missing` to images without a label file. Raise BadInput if images share a label file."""
        owners: dict[str, list[str]] = {}
        for sample in self._samples:
            owners.setdefault(sample.paths.get("labels_file", ""), []).append(sample.key)
        bare = owners.pop("", [])
        shared = [f"{label} ({', '.join(images)})" for label, images in owners.items() if len(images) > 1]
        if shared:
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(shared), 'label file')} of several images: {listed(shared)}; "
                "rename or remove all images of each but one"
            )
        if bare and missing == "error":
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(bare), 'image')} without a label file: {listed(bare)}; use "
                "--missing keep (background, as in ultralytics) or --missing skip"
            )
        if missing == "skip":
            self.left_out += [(name, _NO_LABELS) for name in bare]
            self._samples = [sample for sample in self._samples if "labels_file" in sample.paths]

    def _row_form(self, task: str, description: YoloDescription, filled: Sequence[FileSample]) -> RowForm:
        """Return the meaning of the numbers in a label row. `filled` contains the samples that have label rows."""
        keypoints = description.keypoints
        chosen = next((name for name in TASKS if name == task), "pose" if keypoints else None)
        chosen = chosen or self._task_of_rows(filled)
        if chosen == "pose" and keypoints is None:
            raise InvalidRequest(
                f"{shown(str(self.root))}: --task pose needs the number of keypoints of an object; add kpt_shape, such "
                "as kpt_shape: [17, 3], to data.yaml"
            )
        return RowForm(chosen, len(description.names) or None, keypoints if chosen == "pose" else None)

    def _task_of_rows(self, filled: Sequence[FileSample]) -> Task:
        """Infer the task from the row lengths in some label files. Raise InvalidRequest if two tasks are possible."""
        lengths: set[int] = set()
        for sample in filled[:: -(-len(filled) // _PROBED) or 1]:
            with suppress(BadInput):  # reading the sample raises it
                data = self.folder.read(sample.paths["labels_file"])
                lengths |= {len(line.split()) for line in data.splitlines()}
        if any(length >= 7 and length % 2 and length != 9 for length in lengths):
            return "segment"
        if 9 in lengths:
            raise InvalidRequest(
                f"{shown(str(self.root))}: rows of nine numbers are oriented boxes or polygons of four points; choose "
                "with --task obb or --task segment"
            )
        return "detect"

    def _has_rows(self, sample: FileSample) -> bool:
        try:
            label = sample.paths.get("labels_file")
            return label is not None and self.folder.state(label).size_bytes >= LEAST_ROW_BYTES
        except BadInput:
            return True  # reading the sample raises it

    def _more_notes(self, filled: int) -> list[str]:
        classes = counted(self._form.classes, "class") if self._form.classes else "classes by number"
        notes = [f"{counted(len(self), 'image')}, rows of --task {self._form.task}, {classes}"]
        if self._splits:
            counts = Counter(map(self.split_of, self._samples))
            notes.append(f"splits: {listed(f'{split} {counts[split]}' for split in self._splits)}")
        bare = sum("labels_file" not in sample.paths for sample in self._samples)
        if len(self) > filled:
            files = f"{bare} without a label file, {len(self) - filled - bare} with an empty one"
            notes.append(f"{counted(len(self) - filled, 'image')} of background: {files}")
        folders = {path.rpartition("/")[0] for sample in self._samples for path in sample.paths.values()}
        others = [
            name
            for name in self.extras
            if name.lower().endswith(".txt") and name.rpartition("/")[0] in folders and name not in self.tables
        ]
        return notes + ([f"{counted(len(others), 'text file')} of no image: {listed(others)}"] if others else [])

    def _fields(self, description: YoloDescription) -> list[Field]:
        names = description.names or None
        fields = [
            Field("key", "text", "text"),
            Field("image", "image", "encoded"),
            Field("boxes", "boxes", "raw:float32", "float32", (None, 4)),
            Field("box_labels", "number", "raw:int64", "int64", (None,), classes=names, of="boxes"),
        ]
        if self._form.task == "segment":
            fields += [
                Field("polygons", "points", "raw:float32", "float32", (None, 2), edges=True),
                Field("polygon_starts", "number", "raw:int64", "int64", (None,), starts="polygons"),
                Field("polygon_box", "number", "raw:int64", "int64", (None,), of="polygon_starts", into="boxes"),
            ]
        elif self._form.task == "obb":
            corners = Field("oriented_boxes", "points", "raw:float32", "float32", (None, 4, 2), of="boxes", edges=True)
            fields.append(corners)
        elif self._form.keypoints is not None:
            count, numbers = self._form.keypoints
            points = Field("keypoints", "points", "raw:float32", "float32", (None, count, 2), of="boxes", edges=True)
            fields.append(replace(points, classes=description.keypoint_names or None))
            if numbers == 3:
                fields.append(Field("keypoint_visibility", "number", "raw:uint8", "uint8", (None, count), of="boxes"))
        if self._splits:
            fields.append(Field("split", "number", "number", "int64", (), classes=self._splits))
        files = Field("files", "json", "json", hidden=True)
        return [*fields, files, Field("labels_file", "bytes", "encoded", hidden=True)]


def _sentence(names: Sequence[str], description: str) -> str | None:
    """Return one line for the user that counts images and label files, or None if no image has a label file."""
    texts = {name for name in names if name.endswith(".txt")}
    images = list(filter(is_image, names))
    is_darknet = description.endswith(DARKNET)
    labeled = sum(not texts.isdisjoint(label_names(name, is_darknet=is_darknet)) for name in images)
    found = f"{counted(len(images), 'image')}, {counted(labeled, 'label file')}, {shown(description)}"
    return f"YOLO set: {found}" if labeled else None


def _descriptions(tree: FileTree, names: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        if "/" not in name and name.endswith((".yaml", ".yml", DARKNET)):
            with suppress(BadInput):
                is_small = tree.state(name).size_bytes <= MOST_BYTES
                found += [name] if is_small and describes(tree.read(name), tree.root / name) else []
    return found
