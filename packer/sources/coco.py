"""COCO: pictures with annotation files in the layout of COCO, in folders of any nesting.

Annotation files are `annotations/instances_train2017.json` and its likes, or JSON files of any name that hold the same
(`train/_annotations.coco.json`, `labels.json`); several are the splits. Where pictures lie says
`_parse.coco_picture_folder`. Order: split by split, in each by image id, as torchvision's CocoDetection has them; the
objects of a picture as in the file. A picture without annotations is a sample without objects.

Fields: key (relative path), image (bytes of the file), image_id (int64, or text), split (int64, where there are
several). Of objects: boxes (float32 (N, 4): x0, y0, x1, y1), box_labels (int64 (N,), from 0 in the order of the
category ids), box_crowd (uint8 (N,)), box_areas (float64 (N,), NaN for none), annotation_ids (int64 (N,)), polygons
with polygon_starts and polygon_box, run_lengths (int32 (R,): pixels of 0 and 1 in turn, column by column) with
run_starts, run_box and run_sizes (int64 (M, 2): height, width), keypoints (float32 (N, K, 2)) with keypoint_visibility
(uint8 (N, K): 0 not labelled, 1 hidden, 2 visible). Of others: captions (json: texts), labels (int64 (N,)) or, where
each picture has one, label (int64). Of panoptic files: mask (uint16: the number of the segment, from 1; 0 for none)
with segment_ids, segment_labels (int64 (S,)) and segment_crowd (uint8 (S,)) of segments 1 to S. Hidden: category_ids
(int64 (N,), as in the file), panoptic_file (the PNG, empty for none), files (field -> relative path).
What no picture has is no field. Run lengths are numbers, which no geometry moves.

Of pictures that are not upright by their EXIF orientation, annotations lie over the one whose size their file states.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.images import sniff
from packer.schema import MOST_PIXELS, Field, Schema
from packer.sources import base
from packer.sources._name_words import ordered_splits, other_spelling
from packer.sources._parse import coco_files
from packer.sources._parse.coco_annotations import AnnotationFile, Id, Objects, Segment, read_annotations
from packer.sources._parse.coco_picture_folder import PictureFolders
from packer.sources._parse.folder_listing import counted, described, listed, shown
from packer.sources._parse.panoptic_mask import panoptic_mask
from packer.sources._parse.run_lengths import run_lengths
from packer.sources._trees.file_tree import FileTree

SPECIFICITY = 50
TASKS = coco_files.TASKS
_FRAMES: dict[str, base.Frame] = {"auto": "stated", "stored": "stored", "upright": "upright"}
_SHOWN_CLASSES = 10


def recognise(names: Sequence[str]) -> str | None:
    """Which annotation files there are by their names; None without one that is called as COCO's, or a picture."""
    found = coco_files.named_files(names)
    return coco_files.described_files(found) if found and coco_files.has_pictures(names) else None


class _CocoTable(NamedTuple):
    """An annotation file. path: from the root. tasks: what it is for. split: what it holds, empty for nothing said.

    kinds: what its annotations are, or would be if it had any.
    """

    path: str
    tasks: frozenset[str]
    split: str
    content: AnnotationFile

    @property
    def kinds(self) -> set[str]:
        said = {"objects" if task in coco_files.OBJECT_TASKS else task for task in self.tasks}
        return (self.content.kinds | said) - {"image_info"}


class _CocoPicture(NamedTuple):
    """split: its number. size: height and width in px, or None. rows: where it is in the tables: (table, row).

    segments_path: of the PNG with its segments; empty for none.
    """

    path: str
    image_id: Id
    split: int
    size: tuple[int, int] | None
    rows: tuple[tuple[int, int], ...]
    segments_path: str = ""


class _Classes:
    """The categories of some annotation files: numbers from 0 in the order of their ids."""

    def __init__(self, files: Iterable[AnnotationFile]) -> None:
        """Raises BadInput where an id has two names."""
        names: dict[int, str] = {}
        keypoints: dict[tuple[str, ...], None] = {}
        for file in files:
            for category in file.categories.values():
                if names.setdefault(category.id, category.name) != category.name:
                    raise BadInput(
                        f"{shown(file.path)}: category id {category.id} is {shown(category.name)}, in another "
                        f"annotation file {shown(names[category.id])}: they are of different sets; name those that "
                        "belong together with --annotations"
                    )
                if category.keypoints:
                    keypoints[category.keypoints] = None
        self.ids = sorted(names)
        self.names = tuple(names[known] for known in self.ids)
        self.numbers = {known: number for number, known in enumerate(self.ids)}
        self.keypoints = list(keypoints)


class Source(base.Source):
    """A data set with annotations in the layout of COCO."""

    kind = "coco"
    telling_options = ("annotations",)

    def __init__(
        self,
        root: Path | FileTree,
        *,
        annotations: Sequence[str] = (),
        task: str = "auto",
        label_frame: str = "auto",
        missing: str = "error",
        duplicates: str = "error",
        labels: str = "strict",
        follow_links: bool = False,
    ) -> None:
        """List the pictures and read the annotation files.

        Raises BadInput where files contradict each other; InvalidRequest where there is no such file.
        """
        words = () if task == "auto" else tuple(task.split(","))
        for word in words:
            base.check_choice("task", word, ("auto", *TASKS))
        base.check_choice("label_frame", label_frame, tuple(_FRAMES))
        base.check_choice("missing", missing, ("error", "skip"))
        base.check_choice("duplicates", duplicates, ("error", "first", "skip"))
        base.check_choice("labels", labels, ("strict", "lenient"))
        listing = self._open_root(root, follow_links=follow_links)
        self.frame = _FRAMES[label_frame]
        self._strict = labels == "strict"
        self._not_read: list[str] = []
        self._digests: list[str] = []  # of annotation files, where any lies elsewhere
        named = self._named(annotations, listing.names)
        self._tables = self._chosen(named or self._found(listing.names), words, is_named=bool(named))
        self._splits = ordered_splits({table.split for table in self._tables})
        pictures, not_there = self._collected(listing.names, may_lack=missing == "skip")
        self._pictures, twice = self._without_duplicates(pictures, duplicates)
        self.left_out = [*not_there, *twice]
        self._classes = _Classes(self._contents("objects"))
        self._label_classes = _Classes(self._contents("labels"))
        self._segment_classes = _Classes(self._contents("panoptic"))
        self._keypoints = max((file.objects.most_keypoints for file in self._contents("objects")), default=0)
        self.schema = self._made_schema()
        self._bare_segments = np.full(len(self._pictures), -1, np.int32)  # without a pixel; -1: not looked at yet
        taken = {path for picture in self._pictures for path in (picture.path, picture.segments_path)}
        self._extras = [name for name in listing.names if name not in taken]
        self.notes = [*listing.notes(), *self._said(len(not_there))]

    # ---- samples

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> base.Sample:
        picture = self._pictures[self.checked(index)]
        data = self.read(picture.path)
        sample = {"image": data, **self._values(picture)}
        if len(sample.get("run_box", ())):
            self._check_runs_lie_over(data, picture)
        if "mask" in self.schema:
            sample |= self._mask(data, picture)
            count = len(self._segments(picture))
            has_pixels = np.zeros(0x10000, np.bool_)
            has_pixels[sample["mask"]] = True
            self._bare_segments[index] = count - np.count_nonzero(has_pixels[1 : count + 1])
        return sample

    def missing(self, index: int) -> str | None:
        """Segments that no pixel has; reads the sample where nobody did yet, as `__getitem__` counts them."""
        picture = self._pictures[self.checked(index)]
        if "mask" not in self.schema or not picture.segments_path:
            return None
        if self._bare_segments[index] < 0:
            try:
                self[index]
            except BadInput:
                return None  # reading the sample says more
        bare = int(self._bare_segments[index])
        return f"{bare} of {counted(len(self._segments(picture)), 'segment')} without a pixel: kept" if bare else None

    def value(self, index: int, name: str) -> Any:
        picture = self._pictures[self.checked(index)]
        if name == "image":
            return self.read(picture.path)
        if name in ("mask", "panoptic_file"):
            return self[index][name]
        known = self._plain_values(picture)
        return known[name] if name in known else self._values(picture)[name]

    def key(self, index: int) -> str:
        return self._pictures[self.checked(index)].path

    def files(self, index: int) -> tuple[Path, ...]:
        return tuple(self.root / name for name in self.file_names(index))

    def file_names(self, index: int) -> tuple[str, ...]:
        picture = self._pictures[self.checked(index)]
        return (picture.path, picture.segments_path) if picture.segments_path else (picture.path,)

    def stem(self, index: int) -> Path:
        return (self.root / self.key(index)).with_suffix("")

    def stated_size(self, index: int) -> tuple[int, int] | None:
        return self._pictures[self.checked(index)].size

    def extras(self) -> Sequence[str]:
        return self._extras

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.root / table.path for table in self._tables)

    def places(self) -> dict[str, str]:
        return {"annotations": ",".join(self._digests)} if self.outside else {}

    @classmethod
    def recognise_tables(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        found = coco_files.annotation_files(tree, names) if coco_files.has_pictures(names) else []
        return coco_files.described_files(found) if found else None

    def _plain_values(self, picture: _CocoPicture) -> dict[str, Any]:
        files = {"image": picture.path}
        if picture.segments_path:
            files["panoptic_file"] = picture.segments_path
        known: dict[str, Any] = {"key": picture.path, "files": files}
        if "split" in self.schema:
            known["split"] = np.int64(picture.split)
        is_text = self.schema["image_id"].kind == "text"
        known["image_id"] = str(picture.image_id) if is_text else np.int64(picture.image_id)
        return known

    def _values(self, picture: _CocoPicture) -> dict[str, Any]:
        """All fields but the pictures."""
        values = self._plain_values(picture)
        places = [(self._tables[table].content, row) for table, row in picture.rows]
        if "boxes" in self.schema:
            objects = _together([(file.objects, row) for file, number in places for row in file.object_rows(number)])
            values |= self._of_objects(objects)
            values |= self._polygons(objects)
            values |= self._runs(objects, picture)
            values |= self._points(objects)
        if "segment_ids" in self.schema:
            segments = self._segments(picture)
            labels = [self._segment_classes.numbers[segment.category] for segment in segments]
            values["segment_ids"] = np.asarray([segment.id for segment in segments], np.int64)
            values["segment_labels"] = np.asarray(labels, np.int64)
            values["segment_crowd"] = np.asarray([segment.is_crowd for segment in segments], np.uint8)
        if "captions" in self.schema:
            values["captions"] = [text for file, row in places for text in file.captions.get(row, ())]
        found = [self._label_classes.numbers[one] for file, row in places for one in file.labels.get(row, ())]
        if "labels" in self.schema:
            values["labels"] = np.asarray(found, np.int64)
        if "label" in self.schema:
            values["label"] = np.int64(found[0])
        return values

    def _segments(self, picture: _CocoPicture) -> tuple[Segment, ...]:
        found = (self._tables[table].content.panoptic.get(row) for table, row in picture.rows)
        return next((panoptic.segments for panoptic in found if panoptic is not None), ())

    def _mask(self, data: bytes, picture: _CocoPicture) -> dict[str, Any]:
        """The mask of a picture and the file that it comes from; all of it 0 where no annotation has one."""
        if not picture.segments_path:
            height, width = picture.size or self._size_of(data, picture)
            return {"mask": np.zeros((height, width), np.uint16), "panoptic_file": b""}
        png = self.read(picture.segments_path)
        where = shown(str(self.root / picture.segments_path))
        try:
            mask = panoptic_mask(png, [segment.id for segment in self._segments(picture)], strict=self._strict)
        except BadInput as error:
            raise BadInput(f"{where}: {error.message}; --on-error skip leaves it out") from error
        stored = self._size_of(data, picture)
        if mask.shape not in (stored, stored[::-1] if picture.size == stored[::-1] else stored):
            raise BadInput(
                f"{where}: is {mask.shape[1]}x{mask.shape[0]} px, its picture {stored[1]}x{stored[0]}; --on-error skip "
                "leaves it out"
            )
        return {"mask": mask, "panoptic_file": png}

    def _size_of(self, data: bytes, picture: _CocoPicture) -> tuple[int, int]:
        try:
            header = sniff(data, MOST_PIXELS)
        except DamagedImage as error:
            raise BadInput(
                f"{shown(str(self.root / picture.path))}: {error.message}; --on-error skip leaves it out"
            ) from error
        return header.height, header.width

    def _of_objects(self, objects: Sequence[tuple[Objects, int]]) -> dict[str, Any]:
        sides = np.asarray([found.boxes[4 * row : 4 * row + 4] for found, row in objects], np.float64).reshape(-1, 4)
        categories = np.asarray([found.categories[row] for found, row in objects], np.int64)
        values: dict[str, Any] = {
            "boxes": np.concatenate([sides[:, :2], sides[:, :2] + sides[:, 2:]], axis=1).astype(np.float32),
            "box_labels": np.asarray([self._classes.numbers[one] for one in categories.tolist()], np.int64),
            "box_crowd": np.asarray([found.crowd[row] for found, row in objects], np.uint8),
            "category_ids": categories,
        }
        if "box_areas" in self.schema:
            values["box_areas"] = np.asarray([found.areas[row] for found, row in objects], np.float64)
        if "annotation_ids" in self.schema:
            values["annotation_ids"] = np.asarray([found.ids[row] for found, row in objects], np.int64)
        return values

    def _polygons(self, objects: Sequence[tuple[Objects, int]]) -> dict[str, Any]:
        if "polygons" not in self.schema:
            return {}
        points: list[Any] = []
        starts: list[int] = []
        owners: list[int] = []
        count = 0
        for at, (found, row) in enumerate(objects):
            for polygon in range(found.polygon_ends[row - 1] if row else 0, found.polygon_ends[row]):
                first = found.polygon_point_ends[polygon - 1] if polygon else 0
                end = found.polygon_point_ends[polygon]
                points.append(found.points[2 * first : 2 * end])
                starts.append(count)
                owners.append(at)
                count += end - first
        return {
            "polygons": np.concatenate([np.zeros(0, np.float32), *points], dtype=np.float32).reshape(-1, 2),
            "polygon_starts": np.asarray(starts, np.int64),
            "polygon_box": np.asarray(owners, np.int64),
        }

    def _runs(self, objects: Sequence[tuple[Objects, int]], picture: _CocoPicture) -> dict[str, Any]:
        if "run_lengths" not in self.schema:
            return {}
        runs: list[Any] = []
        owners: list[int] = []
        sizes: list[tuple[int, int]] = []
        for at, (found, row) in enumerate(objects):
            if row in found.runs:
                counts, size = found.runs[row]
                try:
                    runs.append(run_lengths(counts, size))
                except BadInput as error:
                    raise BadInput(
                        f"{shown(str(self.root / picture.path))}: annotation {found.ids[row]} of it: {error.message}; "
                        "mend the annotation file; --on-error skip leaves the picture out"
                    ) from error
                owners.append(at)
                sizes.append(size)
        ends = np.cumsum([0, *map(len, runs)])
        return {
            "run_lengths": np.concatenate([np.zeros(0, np.int32), *runs]),
            "run_starts": ends[:-1].astype(np.int64),
            "run_box": np.asarray(owners, np.int64),
            "run_sizes": np.asarray(sizes, np.int64).reshape(-1, 2),
        }

    def _points(self, objects: Sequence[tuple[Objects, int]]) -> dict[str, Any]:
        """Keypoints of all objects; those that one does not have are at 0, 0 and not labelled."""
        if "keypoints" not in self.schema:
            return {}
        points = np.zeros((len(objects), self._keypoints, 2), np.float32)
        visibility = np.zeros((len(objects), self._keypoints), np.uint8)
        for at, (found, row) in enumerate(objects):
            first, end = found.keypoint_ends[row - 1] if row else 0, found.keypoint_ends[row]
            points[at, : end - first] = np.asarray(found.keypoints[2 * first : 2 * end]).reshape(-1, 2)
            visibility[at, : end - first] = found.visibility[first:end]
        return {"keypoints": points, "keypoint_visibility": visibility}

    def _check_runs_lie_over(self, data: bytes, picture: _CocoPicture) -> None:
        """Raise BadInput where run lengths may lie over the upright picture: they are numbers, which nothing turns."""
        if self.frame == "stored":
            return
        with suppress(DamagedImage):  # what is damaged is told by whoever decodes it
            header = sniff(data, MOST_PIXELS)
            stored, turned = (header.height, header.width), (header.width, header.height)
            is_stored = self.frame == "stated" and picture.size == stored != turned
            if header.orientation != 1 and not is_stored:
                raise BadInput(
                    f"{shown(str(self.root / picture.path))}: has EXIF orientation {header.orientation}, and run "
                    "lengths that may lie over the upright picture, which are not turned: turn its pixels upright, or "
                    "say --label-frame stored where they lie over its pixels as stored; --on-error skip leaves it out"
                )

    # ---- annotation files

    def _named(self, given: Sequence[str], names: Sequence[str]) -> list[str]:
        """The annotation files that the user names, as paths from the root."""
        there = set(names)
        is_folder = self.folder.contents is None
        found: list[str] = []
        for text in given:
            name = text.removeprefix("./")
            if name not in there:
                path = Path(text)
                if not is_folder or not path.is_file():
                    elsewhere = ", nor elsewhere" if is_folder else ""
                    raise InvalidRequest(
                        f"option annotations: {shown(text)}: no such file in {shown(str(self.root))}{elsewhere}"
                    )
                name = base.relative_name(path.resolve(), str(self.root.resolve()))
                above = name.rpartition("/")[0]
                if name.startswith("../") and above not in self.outside:
                    self.outside = (*self.outside, above)
            found.append(name)
        twice = [name for name, count in Counter(found).items() if count > 1]
        if twice:
            raise InvalidRequest(f"option annotations: {listed(twice)}: named twice; name each file once")
        return found

    def _found(self, names: Sequence[str]) -> list[str]:
        found = coco_files.annotation_files(self.folder, names)
        if not found:
            raise InvalidRequest(
                f"{shown(str(self.root))}: no COCO annotations: found {described(names)}, expected a JSON file with "
                "images and annotations, such as annotations/instances_train.json; name it with --annotations"
            )
        return found

    def _chosen(self, names: Sequence[str], words: Sequence[str], *, is_named: bool) -> list[_CocoTable]:
        """The annotation files of the tasks; those whose names say another task are not read."""
        said = {name: coco_files.task_by_name(name) for name in names}
        contents = {name: self._content(name) for name in names if is_named or said[name] is None}
        tasks = {name: coco_files.tasks_of(name, contents[name]) for name in contents}
        tasks |= {name: frozenset((task,)) for name, task in said.items() if task is not None}
        there = frozenset().union(*tasks.values())
        wanted = frozenset(words)
        if not words:
            wanted = there if is_named else frozenset([task for task in TASKS if task in there][:1])
        chosen = [name for name in names if tasks[name] & wanted & set(TASKS)]
        self._not_read = [name for name in names if name not in chosen]
        lacking = [word for word in words if word not in there]
        if lacking or not chosen or (is_named and self._not_read):
            asked = f"for --task {','.join(words)}" if words else "that is read"
            found = listed(f"{name} ({', '.join(sorted(tasks[name]))})" for name in names)
            raise InvalidRequest(
                f"{shown(str(self.root))}: expected annotation files {asked}, found {found}; tasks are "
                f"{', '.join(TASKS)}"
            )
        contents |= {name: self._content(name) for name in chosen if name not in contents}
        splits = coco_files.split_names({name: tasks[name] for name in chosen})
        return [
            _CocoTable(name, tasks[name], split, contents[name]) for name, split in zip(chosen, splits, strict=True)
        ]

    def _content(self, name: str) -> AnnotationFile:
        data = self.read(name, is_table=True)
        if self.outside:
            self._digests.append(hashlib.sha256(data).hexdigest())
        return read_annotations(data, str(self.root / name), strict=self._strict)

    def _contents(self, kind: str) -> list[AnnotationFile]:
        """The annotation files that hold such annotations."""
        return [table.content for table in self._tables if kind in table.kinds]

    # ---- pictures

    def _collected(self, files: Sequence[str], *, may_lack: bool) -> tuple[list[_CocoPicture], list[tuple[str, str]]]:
        """The pictures of all annotation files, split by split and by id, and those that are not there."""
        folders = PictureFolders(files)
        pictures: list[_CocoPicture] = []
        lacking: dict[str, list[str]] = {}  # annotation file -> names
        for number, split in enumerate(self._splits):
            tables = [at for at, table in enumerate(self._tables) if table.split == split]
            rows = self._joined(tables)
            ids = sorted(rows, key=lambda known: (isinstance(known, str), known))
            names = [self._file_name(rows[known]) for known in ids]
            path_of_table = self._tables[tables[0]].path
            others = [other for other in self._splits if other != split]
            segments = self._segment_files(folders, tables, split, others)
            for known, name, path in zip(ids, names, folders.paths(names, path_of_table, split, others), strict=True):
                found = [segments[place] for place in rows[known] if place in segments]
                if path and all(png for _, png in found):
                    png = found[0][1] if found else ""
                    size = self._size(rows[known])
                    pictures.append(_CocoPicture(path, known, number, size, tuple(rows[known]), png))
                else:
                    lacking.setdefault(path_of_table, []).append(found[0][0] if path else name)
        if lacking and not (may_lack and pictures):
            raise BadInput(self._said_of_lacking(lacking, files, has_some=bool(pictures)))
        if not pictures:
            raise InvalidRequest(
                f"{shown(str(self.root))}: no pictures: {listed(table.path for table in self._tables)} names none"
            )
        return pictures, [
            (name, f"{table} names it, and it is not there") for table, names in lacking.items() for name in names
        ]

    def _segment_files(
        self, folders: PictureFolders, tables: Sequence[int], split: str, others: Sequence[str]
    ) -> dict[tuple[int, int], tuple[str, str]]:
        """By their place in the tables the names of the PNG files with segments, and their paths, empty for none."""
        found: dict[tuple[int, int], tuple[str, str]] = {}
        for number in tables:
            table = self._tables[number]
            rows = list(table.content.panoptic)
            names = [table.content.panoptic[row].file_name for row in rows]
            paths = folders.paths(names, table.path, split, others)
            found |= {(number, row): pair for row, pair in zip(rows, zip(names, paths, strict=True), strict=True)}
        return found

    def _said_of_lacking(self, lacking: dict[str, list[str]], files: Sequence[str], *, has_some: bool) -> str:
        found = "; ".join(
            f"{shown(table)} names {counted(len(names), 'picture')} that are not there: {listed(names)}"
            f"{other_spelling(names, files)}"
            for table, names in lacking.items()
        )
        whole = [table.path for table in self._tables if table.path not in lacking]
        ways = ["give the folder that holds them"]
        ways += [f"--annotations {shown(whole[0])}, whose pictures are there"] if whole else []
        ways += ["--missing skip leaves them out"] if has_some else []
        return f"{shown(str(self.root))}: {found}; {', or '.join(ways)}"

    def _joined(self, tables: Sequence[int]) -> dict[Id, list[tuple[int, int]]]:
        """By image id the rows in the annotation files of a split, which agree on the picture's file."""
        rows: dict[Id, list[tuple[int, int]]] = {}
        for number in tables:
            content = self._tables[number].content
            for row, known in enumerate(content.image_ids):
                places = rows.setdefault(known, [])
                if places and self._file_name(places) != content.file_names[row]:
                    raise BadInput(
                        f"{shown(content.path)}: image id {shown(str(known))} is {shown(content.file_names[row])}, in "
                        f"{shown(self._tables[places[0][0]].path)} it is {shown(self._file_name(places))}: they are of "
                        "different sets; name those that belong together with --annotations"
                    )
                places.append((number, row))
        return rows

    def _file_name(self, rows: Sequence[tuple[int, int]]) -> str:
        table, row = rows[0]
        return self._tables[table].content.file_names[row]

    def _size(self, rows: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
        """What the first of the annotation files says that says any."""
        for table, row in rows:
            height, width = self._tables[table].content.sizes[2 * row : 2 * row + 2]
            if height:
                return height, width
        return None

    def _without_duplicates(
        self, pictures: Sequence[_CocoPicture], duplicates: str
    ) -> tuple[list[_CocoPicture], list[tuple[str, str]]]:
        """The pictures, each file once, and those that are left out; raises BadInput."""
        counts = Counter(picture.path for picture in pictures)
        if len(counts) == len(pictures):
            return list(pictures), []
        ids: dict[str, list[str]] = {path: [] for path, count in counts.items() if count > 1}
        for picture in pictures:
            if picture.path in ids:
                split = f" of {shown(self._splits[picture.split])}" if len(self._splits) > 1 else ""
                ids[picture.path].append(f"id {shown(str(picture.image_id))}{split}")
        reasons = {path: f"there twice: {', '.join(known)}" for path, known in ids.items()}
        if duplicates == "error":
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(reasons), 'picture')} there twice: "
                f"{listed(f'{path} ({reason})' for path, reason in reasons.items())}; name the annotation files that "
                "do not overlap with --annotations, or say --duplicates first or --duplicates skip"
            )
        kept: list[_CocoPicture] = []
        seen: set[str] = set()
        for picture in pictures:
            if picture.path not in reasons or (duplicates == "first" and picture.path not in seen):
                kept.append(picture)
            seen.add(picture.path)
        if not kept:
            raise InvalidRequest(f"{shown(str(self.root))}: every picture is there twice; say --duplicates first")
        return kept, list(reasons.items()) if duplicates == "skip" else self._later(pictures, reasons)

    def _later(self, pictures: Sequence[_CocoPicture], reasons: dict[str, str]) -> list[tuple[str, str]]:
        """What `first` leaves out: the others, with how many annotations go with them."""
        seen: set[str] = set()
        found: list[tuple[str, str]] = []
        for picture in pictures:
            if picture.path in seen:
                count = sum(len(self._tables[table].content.object_rows(row)) for table, row in picture.rows)
                found.append(
                    (
                        f"{picture.path} (id {picture.image_id})",
                        f"{reasons[picture.path]}: the first counts; {counted(count, 'object')} of this one",
                    )
                )
            seen.add(picture.path)
        return found

    # ---- schema and notes

    def _made_schema(self) -> Schema:
        is_text = any(isinstance(picture.image_id, str) for picture in self._pictures)
        fields = [Field("key", "text", "text"), Field("image", "image", "encoded")]
        if self._contents("panoptic"):
            fields.append(Field("mask", "mask", "png", dtype="uint16", shape=(None, None)))
        fields += self._object_fields() if self._contents("objects") else []
        if self._contents("panoptic"):
            fields.append(_column("segment_ids", "int64"))
            fields.append(_column("segment_labels", "int64", of="segment_ids", classes=self._segment_classes.names))
            fields.append(_column("segment_crowd", "uint8", of="segment_ids"))
        if self._contents("captions"):
            fields.append(Field("captions", "json", "json"))
        if self._contents("labels"):
            has_one = all(self._label_count(picture) == 1 for picture in self._pictures)
            name, codec, shape = ("label", "number", ()) if has_one else ("labels", "raw:int64", (None,))
            fields.append(Field(name, "number", codec, dtype="int64", shape=shape, classes=self._label_classes.names))
        fields.append(
            Field("image_id", "text", "text")
            if is_text
            else Field("image_id", "number", "number", dtype="int64", shape=())
        )
        if len(self._splits) > 1:
            fields.append(Field("split", "number", "number", dtype="int64", shape=(), classes=self._splits))
        if self._contents("panoptic"):
            fields.append(Field("panoptic_file", "bytes", "encoded", hidden=True))
        fields.append(Field("files", "json", "json", hidden=True))
        return Schema(tuple(fields))

    def _object_fields(self) -> list[Field]:
        files = [file.objects for file in self._contents("objects")]
        found = [
            Field("boxes", "boxes", "raw:float32", dtype="float32", shape=(None, 4)),
            _column("box_labels", "int64", of="boxes", classes=self._classes.names),
            _column("box_crowd", "uint8", of="boxes"),
        ]
        if any(not math.isnan(area) for objects in files for area in objects.areas):
            found.append(_column("box_areas", "float64", of="boxes"))
        if all(known is not None for objects in files for known in objects.ids):
            found.append(_column("annotation_ids", "int64", of="boxes"))
        if any(len(objects.points) for objects in files):
            found += [
                Field("polygons", "points", "raw:float32", dtype="float32", shape=(None, 2), edges=True),
                _column("polygon_starts", "int64", starts="polygons"),
                _column("polygon_box", "int64", of="polygon_starts", into="boxes"),
            ]
        if any(objects.runs for objects in files):
            found += [
                _column("run_lengths", "int32"),
                _column("run_starts", "int64", starts="run_lengths"),
                _column("run_box", "int64", of="run_starts", into="boxes"),
                Field("run_sizes", "number", "raw:int64", dtype="int64", shape=(None, 2), of="run_starts"),
            ]
        if self._keypoints:
            shape = (None, self._keypoints)
            names = self._classes.keypoints
            classes = names[0] if len(names) == 1 and len(names[0]) == self._keypoints else None
            found += [
                Field(
                    "keypoints",
                    "points",
                    "raw:float32",
                    dtype="float32",
                    shape=(*shape, 2),
                    classes=classes,
                    of="boxes",
                ),
                Field("keypoint_visibility", "number", "raw:uint8", dtype="uint8", shape=shape, of="boxes"),
            ]
        return [*found, _column("category_ids", "int64", of="boxes", hidden=True)]

    def _label_count(self, picture: _CocoPicture) -> int:
        return sum(len(self._tables[table].content.labels.get(row, ())) for table, row in picture.rows)

    def _said(self, lacking: int) -> list[str]:
        """The notes."""
        notes = [f"{counted(len(self), 'picture')}, {self._said_of_tables()}"]
        if len(self._splits) > 1:
            counts = Counter(picture.split for picture in self._pictures)
            notes.append("splits: " + ", ".join(f"{shown(name)} {counts[at]}" for at, name in enumerate(self._splits)))
        if self._contents("objects"):
            notes += self._said_of_classes(self._classes)
            notes += self._said_of_objects()
        if self._contents("labels"):
            notes += self._said_of_classes(self._label_classes)
        if self._contents("panoptic"):
            notes += self._said_of_classes(self._segment_classes)
            bare = sum(not picture.segments_path for picture in self._pictures)
            notes += [f"{counted(bare, 'picture')} without segments: masks of 0"] if bare else []
        odd = sum(table.content.odd_sizes for table in self._tables)
        if odd:
            notes.append(
                f"{counted(odd, 'picture')} whose width or height in the file is no whole number above 0: no size"
            )
        notes += self._said_of_what_is_not_read()
        if lacking:
            notes.append(f"{counted(lacking, 'picture')} of the annotation files not there: left out")
        others = [name for name in self._extras if coco_files.has_pictures([name])]
        if others:
            notes.append(f"{described(others, 'picture')} that no annotation file names, which are no samples")
        return notes

    def _said_of_tables(self) -> str:
        tables = (
            f"{shown(table.path)} ({counted(table.content.annotation_count, 'annotation')})" for table in self._tables
        )
        return ", ".join(tables)

    def _said_of_classes(self, classes: _Classes) -> list[str]:
        more = len(classes.names) - _SHOWN_CLASSES
        first = ", ".join(map(shown, classes.names[:_SHOWN_CLASSES]))
        notes = [f"{counted(len(classes.names), 'class')}: {first}{f', ... and {more} more' if more > 0 else ''}"]
        if classes.ids != list(range(len(classes.ids))):
            notes.append(
                f"classes are numbered from 0 in the order of the category ids, {classes.ids[0]} to {classes.ids[-1]}"
                f"{'; category_ids has these' if classes is self._classes else ''}"
            )
        same = [name for name, count in Counter(classes.names).items() if count > 1]
        if same:
            notes.append(f"categories of one name with several ids, which stay classes of their own: {listed(same)}")
        return notes

    def _said_of_objects(self) -> list[str]:
        bare = sum(not self._object_count(picture) for picture in self._pictures)
        notes = [f"{counted(bare, 'picture')} without objects: samples with no boxes"] if bare else []
        files = [file.objects for file in self._contents("objects")]
        sides = np.concatenate([np.asarray(found.boxes, np.float64).reshape(-1, 4)[:, 2:] for found in files])
        flat = int((sides == 0).any(axis=1).sum())
        if flat:
            notes.append(f"{counted(flat, 'object')} with no width or no height: boxes kept as they are")
        if "annotation_ids" in self.schema:
            twice = [str(known) for found in files for known, count in Counter(found.ids).items() if count > 1]
            if twice:
                notes.append(f"annotation ids that come twice: {listed(twice)}: all of these annotations are kept")
        else:
            notes.append("no annotation_ids: some annotations have no id that is a whole number")
        runs = sum(len(found.runs) for found in files)
        if runs:
            notes.append(
                f"{counted(runs, 'object')} with run lengths: run_lengths, run_starts, run_box and run_sizes, which no "
                "geometry moves"
            )
            others = self._with_runs_of_another_size()
            if others:
                notes.append(
                    f"{counted(len(others), 'object')} with run lengths of another size than their picture's: "
                    f"{listed(others)}: kept as they are"
                )
        if self._keypoints and self.schema["keypoints"].classes is None:
            notes.append("keypoints have no names: the categories name others, or none")
        return notes

    def _with_runs_of_another_size(self) -> list[str]:
        """Ids of the objects whose run lengths state another size than the file states of their picture."""
        found = []
        for picture in self._pictures if any(file.objects.runs for file in self._contents("objects")) else ():
            for table, row in picture.rows if picture.size is not None else ():
                content = self._tables[table].content
                for each in content.object_rows(row):
                    runs = content.objects.runs.get(each)
                    if runs is not None and tuple(runs.size) != picture.size:
                        found.append(str(content.objects.ids[each]))
        return found

    def _object_count(self, picture: _CocoPicture) -> int:
        return sum(len(self._tables[table].content.object_rows(row)) for table, row in picture.rows)

    def _said_of_what_is_not_read(self) -> list[str]:
        notes: list[str] = []
        if self._not_read:
            tasks = [name for name in TASKS if any(coco_files.task_by_name(path) == name for path in self._not_read)]
            way = f"; --task {tasks[0]} reads some of them, --task A,B several tasks together" if tasks else ""
            notes.append(f"annotation files that are not read: {listed(self._not_read)}{way}")
        for table in self._tables:
            content = table.content
            if content.left_out.count:
                notes.append(
                    f"{shown(table.path)}: {counted(content.left_out.count, 'annotation')} left out: {content.left_out}"
                )
            if content.repeated_images:
                ids = listed(str(known) for known in content.repeated_images)
                notes.append(f"{shown(table.path)}: images that are there twice, with one id and file: {ids}")
        members = sorted({name for table in self._tables for name in table.content.other_members})
        if members:
            notes.append(f"not packed, in the annotation files alone: {listed(members)}")
        for kind in ("captions", "labels", "objects", "panoptic"):
            without = [
                split
                for split in self._splits
                if not any(kind in table.kinds for table in self._tables if table.split == split)
            ]
            if self._contents(kind) and without:
                notes.append(f"no {kind} of split {listed(without)}: its pictures have none")
        return notes


def _column(
    name: str,
    dtype: str,
    *,
    classes: tuple[str, ...] | None = None,
    of: str | None = None,
    starts: str | None = None,
    into: str | None = None,
    hidden: bool = False,
) -> Field:
    """A field of one number for each row of others, which the members of a Field of these names say."""
    return Field(
        name,
        "number",
        f"raw:{dtype}",
        dtype=dtype,
        shape=(None,),
        classes=classes,
        of=of,
        starts=starts,
        into=into,
        hidden=hidden,
    )


def _together(objects: Sequence[tuple[Objects, int]]) -> list[tuple[Objects, int]]:
    """The objects of a picture, each once: an annotation of two files, as of instances and of keypoints, is one.

    Of the two it is the one with keypoints that counts, where the other stood.
    """
    if len({id(found) for found, _ in objects}) < 2:
        return list(objects)
    kept: dict[object, tuple[Objects, int]] = {}
    counts: Counter[object] = Counter()
    for found, row in objects:
        known = found.ids[row]
        thing = (known, found.categories[row], tuple(found.boxes[4 * row : 4 * row + 4]))
        counts[id(found), thing] += 1  # what comes twice in one file stays two
        same = (id(found), row) if known is None else (thing, counts[id(found), thing])
        if same not in kept or _has_keypoints(found, row):
            kept[same] = (found, row)
    return list(kept.values())


def _has_keypoints(found: Objects, row: int) -> bool:
    return found.keypoint_ends[row] > (found.keypoint_ends[row - 1] if row else 0)
