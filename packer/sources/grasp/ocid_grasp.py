"""OCID-Grasp: the images of OCID with grasps and classes of objects, in folders of any depth.

A sequence is a folder with `rgb/` and `Annotations/`, at any depth: ARID20 has `ARID20/table/top/seq01`, ARID10 and
YCB10 have one more folder. A sample is an image `<sequence>/rgb/<name>.png` with files of equal name: `depth/`,
`seg_mask_labeled_combi/` (classes), `seg_mask_instances_combi/`, `Annotations/<name>.txt` (all grasps) and
`Annotations_per_class/<name>/<class>/<name>.txt` (these grasps, sorted by class). Samples are ordered by the path of
`Annotations/<name>.txt`, as in the loaders of the grasp networks.

Fields of a sample with N grasps:
* key: `<sequence>/<name>`.
* rgb, depth, mask and instances: PNG bytes. Depth is uint16 in millimeters, 0 without a measurement. The mask is 0 for
  background, 1 to 30 for classes, 31 for objects without a class.
* grasps: float32 (N, 4, 2), corners x, y in px. p0 -> p1 is the opening axis.
* grasp_objects: int64 (N,), the class of the object of each grasp, -1 if no file in `Annotations_per_class/` contains
  the grasp.
* split: int64, from the lists `data_split/*.txt`.
* Hidden: files (field -> relative path), grasps_file (bytes, empty for an image without a grasp file).

A data set without depth, masks or lists does not have their fields. Its PNG files have no EXIF orientation.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.schema import Field
from packer.sources import base
from packer.sources._file_source import FileSource, Policies
from packer.sources._message_texts import counted, listed, shown
from packer.sources._name_words import ordered_splits
from packer.sources._small_file_source import FileRole, FileSample, Need
from packer.sources._trees.file_tree import FileTree
from packer.sources.grasp._label_files import read_rectangles, rectangles, verbatim

SPECIFICITY = 100
UNLISTED = "unlisted"  # split of images that no list contains
_PER_CLASS = "Annotations_per_class"
_LIST = re.compile(r"(?P<base>(?:.*/)?)data_split/(?P<split>[^/]+?)(?:_(?P<number>[0-9]+))?\.txt", re.DOTALL)


def _role(name: str, path: str, field: Field | None, need: Need = "alike", *, is_many: bool = False) -> FileRole:
    words = {"NAME": r"(?P<name>[^/]+)", "CLASS": r"[0-9]{1,9}", "SAME": r"(?P=name)"}
    pattern = re.sub("NAME|CLASS|SAME", lambda match: words[match[0]], re.escape(path))
    is_extra = not path.endswith(".pcd")  # a point cloud has 10 MB
    example = path.replace("SAME", "NAME")
    return FileRole(name, example, rf"(?P<base>(?:.*/)?){pattern}", field, need, is_extra=is_extra, is_many=is_many)


class Source(FileSource):
    """OCID-Grasp."""

    kind, title = "ocid-grasp", "OCID grasps"
    roles = (
        _role("rgb", "rgb/NAME.png", Field("rgb", "image", "encoded"), "always"),
        _role("depth", "depth/NAME.png", Field("depth", "depth", "encoded", "uint16", invalid=0.0)),
        _role("mask", "seg_mask_labeled_combi/NAME.png", Field("mask", "mask", "encoded")),
        _role("instances", "seg_mask_instances_combi/NAME.png", Field("instances", "mask", "encoded")),
        _role("grasps_file", "Annotations/NAME.txt", verbatim("grasps_file"), "labels"),
        _role("classes", f"{_PER_CLASS}/NAME/CLASS/SAME.txt", None, "optional", is_many=True),
        _role("cloud", "pcd/NAME.pcd", None, "unused"),
    )
    labels = (rectangles("grasps", "grasps_file"),)
    recognized_by = (("rgb", "grasps_file", "classes"), ("rgb", "grasps_file", "mask"))

    def __init__(
        self,
        root: Path | FileTree,
        *,
        missing: str = "keep",
        bad_labels: str = "error",
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """List the images.

        Args:
            missing: For an image without a grasp file, `keep` adds a sample without grasps, `skip` skips the image, and
                `error` raises BadInput. `error` also raises BadInput for an absent image of a list in `data_split/`.
            bad_labels: For an invalid rectangle, `error` raises BadInput and `skip` skips the rectangle.
            own_splits: True: the splits come from `data_split/`. False: no field `split`.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.
        """
        self._missing, self._has_lists = missing, own_splits
        self._list(root, Policies(missing=missing, bad_labels=bad_labels), follow_links=follow_links)

    @classmethod
    def key_of(cls, match: re.Match[str]) -> str:
        return match["base"] + match["name"]

    def order(self, sample: FileSample) -> Any:
        sequence, _, name = sample.paths["rgb"].rpartition("rgb/")
        return f"{sequence}Annotations/{name.removesuffix('.png')}.txt"

    def prepare(self, present: set[str]) -> None:
        self._has_classes = "classes" in present
        self._tables = self._lists() if self._has_lists else {}
        self.tables = list(self._tables.values())
        self._split_of = self._read_lists()
        self.extras = [name for name in self.extras if not name.endswith(".pcd")]

    def split_of(self, sample: FileSample) -> str:
        return self._split_of.get(sample.key, UNLISTED) if self._tables else ""

    def split_names(self, found: set[str]) -> tuple[str, ...]:
        return ordered_splits(found | set(self._tables))

    def more_fields(self) -> Sequence[Field]:
        objects = Field("grasp_objects", "number", "raw:int64", dtype="int64", shape=(None,), of="grasps")
        return (objects,) if self._has_classes else ()

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        return {"grasp_objects": self._objects(sample, files.get("grasps_file", b""))[0]} if self._has_classes else {}

    def missing(self, index: int) -> str | None:
        """Return which labels are absent, empty, skipped or without a class, or None if complete. Reads label files."""
        reason = super().missing(index)
        sample = self._samples[self.checked(index)]
        if not self._has_classes or "grasps_file" not in sample.paths:
            return reason
        try:
            objects, unmatched = self._objects(sample, self.read_file(sample.paths["grasps_file"]))
        except BadInput:
            return None  # `read` raises the error later
        unknown = int((objects < 0).sum())
        if unknown or unmatched:
            counts = f"{unknown} grasps without a class, {unmatched} only in {_PER_CLASS}"
            return f"{reason}; {counts}" if reason else counts
        return reason

    def more_notes(self) -> Sequence[str]:
        return self._absent

    def _objects(self, sample: FileSample, data: bytes) -> tuple[npt.NDArray[np.int64], int]:
        """Return the class of each grasp, and the number of grasps that exist only in `Annotations_per_class/`."""
        name = sample.paths.get("grasps_file", "")
        grasps = read_rectangles(data, self.root / name, strict=self._is_strict)
        classes: dict[bytes, list[int]] = {}  # several objects may have equal rectangles
        files = sorted(((int(path.split("/")[-2]), path) for path in sample.lists.get("classes", ())), reverse=True)
        for number, path in files:
            for corners in read_rectangles(self.read_file(path), self.root / path, strict=self._is_strict).values:
                classes.setdefault(corners.tobytes(), []).append(number)
        of_each = [classes[key].pop() if classes.get(key := each.tobytes()) else -1 for each in grasps.values]
        return np.array(of_each, np.int64), sum(map(len, classes.values()))

    def _lists(self) -> dict[str, str]:
        """Return split -> path of its list in `data_split/`. If a split has several lists, use the lowest number."""
        matches = [match for match in map(_LIST.fullmatch, self.extras) if match]
        if len({match["base"] for match in matches}) > 1:
            raise BadInput(
                f"{shown(str(self.root))}: several folders data_split: {listed(m[0] for m in matches)}; keep one"
            )
        lists: dict[str, str] = {}
        for match in sorted(matches, key=lambda match: (int(match["number"] or 0), match[0])):
            lists.setdefault(match["split"], match[0])
        return lists

    def _read_lists(self) -> dict[str, str]:
        """Return key -> split for the listed images. Raise BadInput if an image is in two lists."""
        keys = {sample.key for sample in self._samples} | {key for key, _ in self.left_out}
        split_of: dict[str, str] = {}
        twice = []
        for split, name in self._tables.items():
            above = name.rpartition("data_split/")[0]
            for key in _listed_keys(self.read_file(name), self.root / name):
                if split_of.setdefault(above + key, split) != split and above + key in keys:
                    twice.append(f"{above + key} ({split_of[above + key]}, {split})")
        if twice:
            raise BadInput(f"{shown(str(self.root))}: images in two lists: {listed(twice)}; correct the lists")
        absent = [key for key in split_of if key not in keys]
        note = f"{counted(len(absent), 'image')} of the lists in data_split/ not found: {listed(absent)}"
        if absent and self._missing == "error":
            raise BadInput(f"{shown(str(self.root))}: {note}; download them, or use --missing keep")
        self._absent = [note] if absent else []
        return split_of


def _listed_keys(data: bytes, path: Path) -> Iterable[str]:
    """Yield the key `sequence/name` of each line `sequence,name.png`."""
    for number, line in enumerate(data.decode("utf-8-sig", errors="surrogateescape").splitlines(), start=1):
        if not line.strip():
            continue
        sequence, comma, file = line.strip().partition(",")
        name, _, suffix = file.strip().rpartition(".")
        if not (comma and sequence.strip("/ ") and name and suffix == "png" and "/" not in name):
            raise BadInput(
                f"{shown(str(path))}:{number}: cannot read the list: found {shown(line[:80])!r}, expected "
                "SEQUENCE,NAME.png; correct the file"
            )
        yield f"{sequence.strip().strip('/').removeprefix('./')}/{name}"
