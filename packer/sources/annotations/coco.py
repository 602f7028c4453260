"""COCO: images with annotation files in COCO's layout. Images and files may be in nested folders.

Each annotation file contains one split, or one task of a split, such as `captions`. Samples are ordered by split, then
by image id, as in torchvision's CocoDetection. The objects of a sample have the order of the annotation file. An image
without annotations is a sample without objects.

Fields of a sample with N objects:
* key: the relative path. image: the bytes of the file. image_id: int64 or text. split: int64, if several splits exist.
* boxes: float32 (N, 4), x0, y0, x1, y1 in px. box_labels: int64 (N,), from 0 in the order of the category ids.
* For each box: box_crowd (uint8), box_areas (float64, NaN if absent), annotation_ids (int64), category_ids (hidden).
* polygons: float32 (P, 2), the points of all polygons. For each polygon: polygon_starts (the row of its first point in
  polygons) and polygon_box (its row in boxes).
* run_lengths: int32 (R,), the lengths of runs of pixels with the values 0, 1, 0, 1 ..., column by column. For each
  mask: run_starts, run_box and run_sizes (int64 (M, 2): height, width). A geometry does not warp these masks.
* keypoints: float32 (N, K, 2). keypoint_visibility: uint8 (N, K), 0 not labeled, 1 hidden, 2 visible.
* captions: json, a list of texts. label: int64, if each image has exactly one class. Otherwise labels: int64 (N,).
* mask, from panoptic files: uint16 (H, W), the number of the segment from 1, or 0 for no segment. For each segment:
  segment_labels (int64 (S,)), segment_crowd (uint8 (S,)) and segment_ids. Hidden: panoptic_file (PNG bytes or empty).
* Hidden: files (role of a file -> relative path).

The schema omits a field for which no image has a value.

EXIF may rotate an image. The annotations then refer either to the stored or to the upright pixels: those whose width
and height the annotation file contains. The option `labels_orientation` overrides this rule.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.images import sniff
from packer.schema import MOST_PIXELS, Field, Schema
from packer.sources import base
from packer.sources._message_texts import counted, described, listed, shown
from packer.sources._name_words import ordered_splits
from packer.sources._small_file_source import FileRole, FileSample, ListedSource
from packer.sources._trees.file_tree import FileTree
from packer.sources.annotations import _coco_layout as layout
from packer.sources.annotations._coco_file import AnnotationFile, CocoImage, Id, read_annotations
from packer.sources.annotations._coco_labels import KINDS, CocoLabels
from packer.sources.annotations._rle_and_panoptic import panoptic_mask

SPECIFICITY = 50
_PNG = "panoptic_file"


class _File(NamedTuple):
    name: str
    split: str
    kinds: frozenset[str]
    content: AnnotationFile


class _ListedImage(NamedTuple):
    """An image of an annotation file. `size` is (height, width) in px. `paths` contains role -> relative path."""

    id: Id
    split: str
    size: tuple[int, int] | None
    paths: Mapping[str, str]


class Source(ListedSource):
    """A data set with annotations in COCO's layout."""

    kind = "coco"
    roles = (FileRole("image", "ID.jpg", ""), FileRole(_PNG, "ID.png", ""))

    def __init__(
        self,
        root: Path | FileTree,
        *,
        annotations: Sequence[str] = (),
        task: str = "auto",
        labels_orientation: str = "auto",
        missing: str = "error",
        duplicates: str = "error",
        bad_labels: str = "error",
        follow_links: bool = False,
    ) -> None:
        """List the images and read the annotation files.

        Args:
            root: The folder with the images.
            annotations: Paths of annotation files, in `root` or elsewhere. Empty: all files of the task in `root`.
            task: Names of tasks, such as `instances,captions`. `auto`: all tasks of the files in `annotations`. If
                `annotations` is empty, the first task that has a file in `root`.
            labels_orientation: The pixels that labels refer to if EXIF rotates the image: `stored` in the file, or
                `upright` after the rotation. `auto`: those whose size the annotation file contains.
            missing: For an absent image, `error` raises BadInput and `skip` skips the image.
            duplicates: For an image listed twice, `error` raises BadInput, `first` uses the first entry, and `skip`
                skips the image.
            bad_labels: For an annotation that is not valid, `error` raises BadInput and `skip` skips the annotation.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.

        Raises:
            BadInput: A file is not valid, or two files contradict each other.
            InvalidRequest: An annotation file is absent, or no images are found.
        """
        tasks = () if task == "auto" else tuple(task.split(","))
        for word in tasks:
            base.check_choice("task", word, ("auto", *layout.TASKS))
        base.check_choice("missing", missing, ("error", "skip"))
        base.check_choice("duplicates", duplicates, ("error", "first", "skip"))
        base.check_choice("bad_labels", bad_labels, ("error", "skip"))
        listing = self._open_root(root, follow_links=follow_links)
        self.frame = base.frame_of(labels_orientation)
        self._is_strict = bad_labels == "error"
        self._digests: list[str] = []  # of annotation files, if any is elsewhere
        names = self._named(annotations, listing.names) or layout.annotation_files(self.folder, listing.names)
        if not names:
            raise InvalidRequest(
                f"{shown(str(self.root))}: no COCO annotations: found {described(listing.names)}, expected a JSON file "
                "with images and annotations, such as annotations/instances_train.json; use --annotations FILE"
            )
        self._files = self._read_files(names, tasks, is_named=bool(annotations))
        self.tables = [file.name for file in self._files]
        if self.outside:
            self.places = {"annotations": ",".join(self._digests)}
        splits = ordered_splits({file.split for file in self._files})
        listed_images, absent = self._images(splits, listing.names, may_skip=missing == "skip")
        images, twice = self._without_duplicates(listed_images, duplicates)
        self.left_out = [*absent, *twice]
        self._splits = splits if len(splits) > 1 else ()
        self._samples = [FileSample(each.paths["image"], each.paths, row=row) for row, each in enumerate(images)]
        self._image_ids = [each.id for each in images]
        self._split_names = [each.split for each in images]
        self._sizes = [each.size for each in images]
        self._labels_of_kinds = self._collect_labels()
        self._bare_segments = np.full(len(images), -1, np.int32)  # segments without a pixel; -1: not read yet
        self._is_text = any(isinstance(image, str) for image in self._image_ids)
        self.schema = self._schema()
        self._has_runs = "run_lengths" in self.schema
        used = {path for each in images for path in each.paths.values()}
        self.extras = [name for name in listing.names if name not in used]
        self.notes = [*listing.notes(), *self._notes(set(names) - {file.name for file in self._files})]

    # ---- annotation files

    def _named(self, annotations: Sequence[str], names: Sequence[str]) -> list[str]:
        present = set(names)
        files: list[str] = []
        for text in annotations:
            name = text.removeprefix("./")
            if name not in present:
                path = Path(text)
                if self.folder.contents is not None or not path.is_file():
                    raise InvalidRequest(f"option annotations: {shown(text)}: no such file in {shown(str(self.root))}")
                name = base.relative_name(path.resolve(), str(self.root.resolve()))
                above = name.rpartition("/")[0]
                if name.startswith("../") and above not in self.outside:
                    self.outside = (*self.outside, above)
            files.append(name)
        if len(set(files)) < len(files):
            raise InvalidRequest(f"option annotations: {listed(files)}: a file is there twice; name each file once")
        return files

    def _read_files(self, names: Sequence[str], tasks: Sequence[str], *, is_named: bool) -> list[_File]:
        """Read the files of `tasks`. If `tasks` is empty, choose the tasks as `__init__` describes for `auto`."""
        contents: dict[str, AnnotationFile] = {}
        of_files: dict[str, frozenset[str]] = {}
        for name in names:
            task = layout.named_task(name)
            if is_named or task is None:
                contents[name] = self._content(name)
            of_files[name] = (
                layout.tasks_of(contents[name].kinds, has_categories=bool(contents[name].categories))
                if task is None
                else frozenset((task,))
            )
        present = frozenset().union(*of_files.values())
        chosen = set(tasks) or (present if is_named else {next(task for task in layout.TASKS if task in present)})
        files = {name: found for name, found in of_files.items() if found & chosen}
        if not chosen <= present or (is_named and len(files) < len(names)):
            found = listed(f"{name} ({', '.join(sorted(several))})" for name, several in of_files.items())
            raise InvalidRequest(
                f"{shown(str(self.root))}: expected annotation files for --task {','.join(sorted(chosen))}, found "
                f"{found}; tasks are {', '.join(layout.TASKS)}"
            )
        splits = layout.split_names(files)
        read = {name: contents[name] if name in contents else self._content(name) for name in files}
        return [
            _File(name, split, frozenset({*read[name].kinds, *map(layout.TASKS.__getitem__, found)}), read[name])
            for split, (name, found) in zip(splits, files.items(), strict=True)
        ]

    def _content(self, name: str) -> AnnotationFile:
        data = self.read_file(name, is_table=True)
        if self.outside:
            self._digests.append(hashlib.sha256(data).hexdigest())
        return read_annotations(data, str(self.root / name), strict=self._is_strict)

    def _collect_labels(self) -> dict[str, CocoLabels]:
        by_split = {split: [file.content for file in self._files if file.split == split] for split in self._split_names}
        images = [(image, by_split[split]) for image, split in zip(self._image_ids, self._split_names, strict=True)]
        files = {kind: [file.content for file in self._files if kind in file.kinds] for kind in KINDS}
        return {kind: labels(files[kind], images) for kind, labels in KINDS.items() if files[kind]}

    # ---- images

    def _images(
        self, splits: Sequence[str], names: Sequence[str], *, may_skip: bool
    ) -> tuple[list[_ListedImage], list[tuple[str, str]]]:
        """Return all images in order, and (name, reason) of absent images, which are an error unless `may_skip`."""
        folders = layout.ImageFolders(names)
        images: list[_ListedImage] = []
        absent: dict[str, str] = {}  # name -> annotation file
        for split in splits:
            others = [other for other in splits if other != split]
            files = [file for file in self._files if file.split == split]
            found = self._images_of(files)
            ids = sorted(found, key=lambda image: (isinstance(image, str), image))
            paths = folders.paths([found[image].name for image in ids], files[0].name, split, others)
            pngs: dict[Id, tuple[str, str]] = {}  # name and path
            for file in files:
                of_file = {image: each[0].file_name for image, each in file.content.values["panoptic"].items()}
                png_paths = folders.paths([*of_file.values()], file.name, split, others)
                pngs |= zip(of_file, zip(of_file.values(), png_paths, strict=True), strict=True)
            for image, path in zip(ids, paths, strict=True):
                png_name, png = pngs.get(image, ("", ""))
                if path and (png or not png_name):
                    of_roles = {"image": path, _PNG: png} if png else {"image": path}
                    images.append(_ListedImage(image, split, found[image].size, of_roles))
                else:
                    absent[png_name if path else found[image].name] = files[0].name
        if absent and not (may_skip and images):
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(absent), 'image')} of {listed({*absent.values()})} absent: "
                f"{listed(absent)}; give the folder that contains them, choose other "
                "files with --annotations, or use --missing skip"
            )
        if not images:
            raise InvalidRequest(f"{shown(str(self.root))}: {listed(file.name for file in self._files)}: no images")
        return images, [(name, f"in {file}, but absent") for name, file in absent.items()]

    def _images_of(self, files: Sequence[_File]) -> dict[Id, CocoImage]:
        """Return image id -> image. Raise BadInput if two files contain different images with the same id."""
        images: dict[Id, CocoImage] = {}
        for file in files:
            for number, image in file.content.images.items():
                other = images.setdefault(number, image)
                if other.name != image.name:
                    raise BadInput(
                        f"{shown(file.name)}: image id {shown(str(number))} is {shown(image.name)}, in another "
                        f"annotation file {shown(other.name)}; choose files of one set with --annotations"
                    )
                images[number] = other if other.size else image
        return images

    def _without_duplicates(
        self, images: Sequence[_ListedImage], duplicates: str
    ) -> tuple[Sequence[_ListedImage], list[tuple[str, str]]]:
        by_path: dict[str, list[_ListedImage]] = {}
        for image in images:
            by_path.setdefault(image.paths["image"], []).append(image)
        ids = {
            path: ", ".join(f"id {shown(str(each.id))} {shown(each.split)}".rstrip() for each in several)
            for path, several in by_path.items()
            if len(several) > 1
        }
        if ids and (duplicates == "error" or (duplicates == "skip" and len(ids) == len(by_path))):
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(ids), 'image')} there twice: "
                f"{listed(f'{path} ({several})' for path, several in ids.items())}; choose files that do not overlap "
                "with --annotations, or use --duplicates first or --duplicates skip"
            )
        if duplicates == "skip":
            kept = [several[0] for several in by_path.values() if len(several) == 1]
            return kept, [(path, f"there twice: {several}") for path, several in ids.items()]
        return [several[0] for several in by_path.values()], [
            (f"{path} (id {each.id})", f"there twice: {ids[path]}: the first is used")
            for path, several in by_path.items()
            for each in several[1:]
        ]

    # ---- samples

    def _schema(self) -> Schema:
        fields = [Field("key", "text", "text"), Field("image", "image", "encoded")]
        if "panoptic" in self._labels_of_kinds:
            fields.append(Field("mask", "mask", "png", "uint16", (None, None)))
        fields += [field for labels in self._labels_of_kinds.values() for field in labels.fields]
        number = Field("image_id", "number", "number", "int64", ())
        fields.append(Field("image_id", "text", "text") if self._is_text else number)
        if self._splits:
            fields.append(Field("split", "number", "number", "int64", (), classes=self._splits))
        if "panoptic" in self._labels_of_kinds:
            fields.append(Field(_PNG, "bytes", "encoded", hidden=True))
        return Schema((*fields, Field("files", "json", "json", hidden=True)))

    def split_of(self, sample: FileSample) -> str:
        return self._split_names[sample.row]

    def listed_values(self, sample: FileSample) -> base.Sample:
        image = self._image_ids[sample.row]
        values: base.Sample = {"image_id": str(image) if self._is_text else np.int64(image)}
        try:
            for labels in self._labels_of_kinds.values():
                values |= labels.values(sample.row)
        except BadInput as error:
            raise self._error(sample.key, error) from error
        return values

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        if self._has_runs and any(each.runs for each in self._annotations("objects", sample)):
            self._check_runs(sample, files["image"])
        if "panoptic" not in self._labels_of_kinds:
            return {}
        stored, stated = self._size(sample, files["image"]), self._sizes[sample.row]
        if _PNG not in sample.paths:
            return {"mask": np.zeros(stated or stored, np.uint16)}
        segments = self._annotations("panoptic", sample)[0].segments
        try:
            mask = panoptic_mask(files[_PNG], [each.id for each in segments], strict=self._is_strict)
            if mask.shape not in (stored, stored[::-1] if stated == stored[::-1] else stored):
                size = f"{mask.shape[1]}x{mask.shape[0]}"
                raise BadInput(f"is {size} px, its image {stored[1]}x{stored[0]}")
        except BadInput as error:
            raise self._error(sample.paths[_PNG], error) from error
        pixels = np.bincount(mask.ravel(), minlength=len(segments) + 1)
        self._bare_segments[sample.row] = np.count_nonzero(pixels[1:] == 0)
        return {"mask": mask}

    def _annotations(self, kind: str, sample: FileSample) -> Sequence[Any]:
        labels = self._labels_of_kinds.get(kind)
        return labels.of_sample(sample.row) if labels else ()

    def _size(self, sample: FileSample, image: bytes) -> tuple[int, int]:
        try:
            header = sniff(image, MOST_PIXELS)
        except DamagedImage as error:
            raise self._error(sample.key, error) from error
        return header.height, header.width

    def _error(self, path: str, error: BadInput | DamagedImage) -> BadInput:
        return BadInput(f"{shown(str(self.root / path))}: {error.message}; use --on-error skip to skip it")

    def _check_runs(self, sample: FileSample, image: bytes) -> None:
        """Raise BadInput if EXIF rotates the image and the run lengths may refer to the upright pixels."""
        with suppress(DamagedImage):  # decoding the image later raises the error
            header = sniff(image, MOST_PIXELS)
            stored = header.height, header.width
            is_stored = self.frame == "stored" or (
                self.frame == "stated" and self._sizes[sample.row] == stored != stored[::-1]
            )
            if header.orientation != 1 and not is_stored:
                raise BadInput(
                    f"{shown(str(self.root / sample.key))}: EXIF orientation {header.orientation}, and run lengths "
                    "that may refer to the upright image: rotate the pixels, or use --labels-orientation stored "
                    "if they refer to the stored pixels, or --on-error skip"
                )

    def missing(self, index: int) -> str | None:
        """Return a note if some segments have no pixel in the panoptic mask, otherwise None. May read the sample."""
        sample = self._samples[self.checked(index)]
        if _PNG in sample.paths and self._bare_segments[index] < 0:
            with suppress(BadInput):  # reading the sample raises it
                self[index]
        bare = int(self._bare_segments[index])
        return f"{counted(bare, 'segment')} without a pixel: kept" if bare > 0 else None

    def stated_size(self, index: int) -> tuple[int, int] | None:
        return self._sizes[self.checked(index)]

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return one line that lists the COCO annotation files, or None if images or annotation files are absent."""
        if not any(map(layout.is_image, names)):
            return None
        files = layout.named_files(names) or layout.annotation_files(tree, names)
        return f"COCO: {counted(len(files), 'annotation file')}: {listed(files)}" if files else None

    # ---- notes

    def _notes(self, unread: set[str]) -> list[str]:
        read = ", ".join(f"{shown(file.name)} ({counted(file.content.count(), 'annotation')})" for file in self._files)
        notes = [f"{counted(len(self), 'image')}, {read}"]
        if self._splits:
            counts = Counter(self._split_names)
            notes.append(f"splits: {listed(f'{name} {counts[name]}' for name in self._splits)}")
        notes += [note for labels in self._labels_of_kinds.values() for note in labels.notes]
        if unread:
            notes.append(f"annotation files of other tasks: {listed(sorted(unread))}; --task A,B reads several tasks")
        notes += [
            f"{shown(file.name)}: skipped {file.content.shown_problems()}"
            for file in self._files
            if file.content.problem_count
        ]
        others = [name for name in self.extras if layout.is_image(name)]
        return [*notes, *([f"{described(others, 'image')} in no annotation file: not samples"] if others else [])]
