"""REGRAD: the images of its version 2, with relations of objects, and the planar grasps of version 1.

A sample is an image `<split>/RGBImages/<scene>_<view>.jpg`. A view is one camera position of a scene. The other files
are `DepthImages/` and `SegmentationImages/` next to `RGBImages/` (`.png`), `<split>/mrts.json` (relations by scene),
and `2D_Grasp/<split>/<scene>/<view>/<view>.json` in any folder. Samples are ordered by split, scene and view.

Fields of a sample with N grasps:
* key: `train/00001_1`. split: int64, the names of folders.
* rgb: the bytes of the file.
* depth: PNG bytes, uint16, in millimeters, 0 without a distance.
* mask: PNG bytes, 0 for background, 255 for the table, else the number of an object.
* relations: json, object -> names of its parents.
* grasp_rows: float64 (N, 10), as in the file: object, center x, center y, width, height, angle, and the scores
  vertical, center, antipodal and total.
* grasp_scores: float32 (N,), the total score. grasp_objects: int64 (N,).
* grasps: float32 (N, 4, 2), corners x, y in px, only with the option `angle_convention`.
* Hidden: files (field -> relative path), grasps_file (bytes, empty for a view without a grasp file).

If no view has files of a kind, the field of these files is absent. Positions are pixels of the image file before EXIF
orientation. `angle_convention` is the range of the angles in the grasp files: `cv44` (-90 to 0) or `cv45` (0 to 90).
OpenCV 4.5.1 changed this range in cv2.minAreaRect. No file contains the side of a rectangle that is the opening:
`rectangles` assumes the longer side. This source was written without access to the files of the data set.

A grasp is `[object, [[center x, center y], [width, height], angle], [four scores]]`. The rectangle is from
cv2.minAreaRect. The scores are vertical, center, antipodal and total. The file of relations is
`{scene: {object: [parent, ...]}}`, where an object has the name `name-number`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.layouts.json_text import json_value
from packer.schema import Field
from packer.sources import base
from packer.sources._file_source import FileSource, Policies
from packer.sources._message_texts import listed, shown
from packer.sources._small_file_source import FileRole, FileSample, LabelFile, Need, Parsed
from packer.sources._trees.file_tree import FileTree
from packer.sources.grasp._label_files import corners, points, verbatim

SPECIFICITY = 100
_SPLIT = r"(?:(?:.*/)?(?P<split>[^/]+)/)?"
_NO_SPLIT = "2D_Grasp"  # in a set without splits, the folder that contains the scenes
_RELATIONS = re.compile(_SPLIT + r"mrts\.json", re.DOTALL)
_ANGLES = {"cv44": (-90.0, 0.0), "cv45": (0.0, 90.0)}  # in degrees, of cv2.minAreaRect before and since OpenCV 4.5.1
COLUMNS = 10
_ANGLE = 5  # column of the angle
_LARGEST_ID = 1 << 53  # float64 represents all smaller whole numbers

Relations = dict[str, list[str]]  # object -> its parents


def _role(name: str, folder: str, suffix: str, field: Field, need: Need) -> FileRole:
    pattern = rf"{_SPLIT}{folder}/(?P<scene>[0-9]+)_(?P<view>[0-9]+)\.{suffix}"
    return FileRole(name, f"{folder}/SCENE_VIEW.{suffix}", pattern, field, need)


def _key(split: str, scene: str, view: str) -> str:
    return f"{split}/{scene}_{view}" if split else f"{scene}_{view}"


class Source(FileSource):
    """The relational grasps data set."""

    kind, title, noun = "regrad", "REGRAD", "view"
    roles: Sequence[FileRole] = (
        _role("rgb", "RGBImages", "jpg", Field("rgb", "image", "encoded"), "always"),
        _role("depth", "DepthImages", "png", Field("depth", "depth", "encoded", "uint16", invalid=0.0), "alike"),
        _role("mask", "SegmentationImages", "png", Field("mask", "mask", "encoded"), "alike"),
        FileRole(
            "grasps_file",
            "2D_Grasp/SPLIT/SCENE/VIEW/VIEW.json",
            _SPLIT + r"(?P<scene>[0-9]+)/(?P<view>[0-9]+)/(?P=view)\.json",
            verbatim("grasps_file"),
            "labels",
        ),
    )
    has_labels_last = True
    recognized_by = (("rgb", "depth"), ("rgb", "mask"))

    def __init__(
        self,
        root: Path | FileTree,
        *,
        angle_convention: str = "none",
        missing: str = "keep",
        bad_labels: str = "error",
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """List the views, and read the relations.

        Args:
            root: Folder or archive of the set.
            angle_convention: Range of the angles in the grasp files. `cv44`: -90 to 0 degrees. `cv45`: 0 to 90
                degrees. Another angle is an error. With `none`, samples do not have the field `grasps`.
            missing: For a view without a grasp file, `keep` adds a sample without grasps, `skip` skips the view, and
                `error` raises BadInput.
            bad_labels: For an invalid grasp, `error` raises BadInput and `skip` skips the grasp.
            own_splits: True: the folders above the images are the splits. False: no field `split`.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.
        """
        base.check_choice("angle_convention", angle_convention, ("none", *_ANGLES))
        self._convention = angle_convention
        self._list(
            root, Policies(missing=missing, bad_labels=bad_labels), follow_links=follow_links, own_splits=own_splits
        )

    @classmethod
    def key_of(cls, match: re.Match[str]) -> str:
        split = match["split"] or ""
        return _key("" if split == _NO_SPLIT else split, match["scene"], match["view"])

    def order(self, sample: FileSample) -> Any:
        scene, view = _scene(sample), sample.key.rpartition("_")[2]
        return self.split_of(sample), int(scene), int(view), sample.key

    def split_of(self, sample: FileSample) -> str:
        return sample.key.rpartition("/")[0]

    def prepare(self, present: set[str]) -> None:
        self._has_grasps = "grasps_file" in present
        if self._has_grasps:
            fields = _grasp_fields(has_corners=self._convention != "none")
            self.labels = (LabelFile("grasps_file", fields, partial(_parse, self._convention)),)
        elif self._convention != "none":
            raise InvalidRequest(
                f"{shown(str(self.root))}: --angle-convention {self._convention}: expected grasps, found none; "
                "put 2D_Grasp/ of version 1 into it"
            )
        else:
            self.roles = self.roles[:-1]
        splits = {self.split_of(sample) for sample in self._samples}
        matches = [match for match in map(_RELATIONS.fullmatch, self.extras) if match]
        files = [(match["split"] or "", match[0]) for match in matches if (match["split"] or "") in splits]
        self._tables = dict(files)
        self.tables = list(self._tables.values())
        if len(files) > len(self._tables):
            raise BadInput(f"{shown(str(self.root))}: there twice: {listed(name for _, name in files)}; keep one each")
        self._relations = {}  # as text, a tenth of the memory of lists: there are tens of thousands of scenes
        for split, name in self._tables.items():
            scenes = read_relations(self.read_file(name), self.root / name)
            self._relations[split] = {scene: json.dumps(objects) for scene, objects in scenes.items()}

    def more_fields(self) -> Sequence[Field]:
        return (Field("relations", "json", "json"),) if self._tables else ()

    def listed_values(self, sample: FileSample) -> base.Sample:
        text = self._relations.get(self.split_of(sample), {}).get(_scene(sample), "{}")
        return {"relations": json_value(text)} if self._tables else {}

    def missing(self, index: int) -> str | None:
        sample = self._samples[self.checked(index)]
        reason = super().missing(index)
        if self._tables and _scene(sample) not in self._relations.get(self.split_of(sample), {}):
            reason = "; ".join(["no relations: mrts.json does not have the scene", *([reason] if reason else [])])
        return reason

    def more_notes(self) -> Sequence[str]:
        has_corners = not self._has_grasps or self._convention != "none"
        return (
            ()
            if has_corners
            else ("no field grasps: --angle-convention cv44 or cv45 states what the angles in grasp_rows mean",)
        )


def _parse(convention: str, data: bytes, path: Path, strict: bool) -> Parsed:
    """Parse a grasp file. Raise BadInput for an angle that is not in the range of `convention`."""
    has_file = data or path.suffix
    rows, total = read_regrad_grasps(data, path, strict=strict) if has_file else (np.zeros((0, COLUMNS)), 0)
    values = {"grasp_rows": rows, "grasp_scores": rows[:, -1].astype(np.float32)}
    values["grasp_objects"] = rows[:, 0].astype(np.int64)
    if convention != "none":
        least, most = _ANGLES[convention]
        others = [angle for angle in rows[:, _ANGLE] if not least <= angle <= most]
        if others:
            raise BadInput(
                f"{shown(str(path))}: an angle of {others[0]:g} degrees, expected {least:g} to {most:g} of "
                f"--angle-convention {convention}; use the other value, or omit the option"
            )
        values["grasps"] = rectangles(rows)
    return Parsed(values, total, total - len(rows))


def _grasp_fields(*, has_corners: bool) -> tuple[Field, ...]:
    rows = Field("grasp_rows", "number", "raw:float64", dtype="float64", shape=(None, COLUMNS))
    first = [points("grasps"), replace(rows, of="grasps")] if has_corners else [rows]
    of = first[0].name
    return (
        *first,
        Field("grasp_scores", "number", "raw:float32", dtype="float32", shape=(None,), of=of),
        Field("grasp_objects", "number", "raw:int64", dtype="int64", shape=(None,), of=of),
    )


def _scene(sample: FileSample) -> str:
    return sample.key.rpartition("/")[2].partition("_")[0]


# ---- label files


def read_regrad_grasps(data: bytes, path: Path, *, strict: bool) -> tuple[npt.NDArray[np.float64], int]:
    """Return `(rows, total)`: float64 rows (N, 10), and the number of grasps in the file, including skipped grasps.

    A row has the object, x, y, width, height, angle in degrees and four scores. Grasps beyond float32 are skipped. If
    `strict` is true, a malformed grasp raises BadInput, otherwise the grasp is skipped. Invalid JSON raises BadInput.
    """
    grasps = _loaded(data, path)
    if not isinstance(grasps, list):
        raise BadInput(f"{shown(str(path))}: expected a list of grasps, found {type(grasps).__name__}")
    rows = []
    for number, grasp in enumerate(grasps):
        row = _row(grasp)
        if row is None and strict:
            raise BadInput(
                f"{shown(str(path))}: grasp {number}: expected [object, [[x, y], [width, height], angle], [4 scores]]; "
                "correct the file or use --bad-labels skip"
            )
        rows.append(row or [float("nan")] * COLUMNS)
    values = np.asarray(rows, np.float64).reshape(-1, COLUMNS)
    with np.errstate(all="ignore"):  # NaN and numbers beyond float32 are skipped
        kept = np.isfinite(values).all(axis=1) & np.isfinite(rectangles(values)).all(axis=(1, 2))
        kept &= np.isfinite(values[:, -1].astype(np.float32))
    return values[kept], len(values)


def rectangles(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the corners of the rectangles in grasp rows, float32 (N, 4, 2). p0 -> p1 is the longer side.

    `rows` are `grasp_rows` (N, 10). Columns 1 to 5 are center x, center y, width, height and angle in degrees. The
    width is the side along (cos angle, sin angle), with y down (cv2.boxPoints). The longer side is the opening of the
    gripper. This is an assumption: the code of the set draws fingers of 0.024 m at a distance of 0.068 m.
    """
    width, height, angle = rows[:, 3], rows[:, 4], rows[:, 5]
    degrees = np.where(width >= height, angle, angle + 90)
    sides = np.maximum(width, height), np.minimum(width, height)
    return corners(np.stack([rows[:, 1], rows[:, 2], degrees, *sides], axis=1))


def read_relations(data: bytes, path: Path) -> dict[str, Relations]:
    """Return scene -> object -> names of its parents. Raises BadInput for an invalid file."""
    scenes = _loaded(data, path)
    if isinstance(scenes, dict) and all(_is_relations(scene) for scene in scenes.values()):
        return scenes
    raise BadInput(
        f"{shown(str(path))}: expected an object of scenes, each with a list of names for every object; download the "
        "file again"
    )


def _loaded(data: bytes, path: Path) -> Any:
    try:
        return json_value(data, finite=False)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deep
        raise BadInput(f"{shown(str(path))}: not valid JSON: {shown(str(error))}; download the file again") from error


def _is_relations(scene: Any) -> bool:
    return isinstance(scene, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in scene.values()
    )


def _row(grasp: Any) -> list[float] | None:
    """Return the ten numbers of a grasp in the order of `grasp_rows`, or None if the grasp is malformed."""
    try:
        number, ((x, y), (width, height), angle), (vertical, center, antipodal, total) = grasp
        row = [number, x, y, width, height, angle, vertical, center, antipodal, total]
        values = [float(value) for value in row if type(value) in (int, float)]
    except (TypeError, ValueError, OverflowError):
        return None
    is_valid = len(values) == COLUMNS and values[0].is_integer() and abs(values[0]) <= _LARGEST_ID
    return values if is_valid else None
