"""GraspNet-1Billion with its planar grasps (rectangles), from one camera or from both.

A sample is an image `scene_NNNN/<realsense|kinect>/rgb/NNNN.png`, below any folders. The folders `depth/` and `label/`
(masks) are next to `rgb/`. The grasps are in `rect/NNNN.npy` next to `rgb/`. Without this file, the grasps are in
`scene_NNNN/<camera>/NNNN.npy` of the download `rect_labels`.

Fields:
* key: `scene_0000/realsense/0000`. camera: text.
* rgb, depth and mask: PNG bytes. Depth is uint16 in millimeters, 0 without a measurement. The mask is 0 for background.
* grasps: float32 (N, 4, 2), corners x, y; p0 -> p1 is the opening axis.
* grasp_rows: float64 (N, 7), center x, y, open point x, y, height, score, object.
* grasp_scores: float32 (N,). grasp_objects: int64 (N,).
* split: int64. Scenes 0-99: train, 100-129: test_seen, 130-159: test_similar, 160-189: test_novel. Others: other.
* Hidden: files (field -> relative path), grasps_file (bytes, empty for an image without a grasp file).
A set without depth or masks does not have these fields.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from packer.schema import Field
from packer.sources import base
from packer.sources._file_source import FileSource, Policies
from packer.sources._listed_source import FileRole, FileSample, LabelFile, Need, Parsed
from packer.sources._trees.file_tree import FileTree
from packer.sources.grasp._graspnet_rows import COLUMNS, GraspNetRows, read_graspnet_rows
from packer.sources.grasp._label_files import points, verbatim

SPECIFICITY = 100
_SCENE = r"(?:.*/)?scene_(?P<scene>[0-9]{4})/(?P<camera>realsense|kinect)"
_SPLITS = (("train", 100), ("test_seen", 130), ("test_similar", 160), ("test_novel", 190), ("other", 10_000))
_NO_ROWS = GraspNetRows(np.zeros((0, COLUMNS)), np.zeros((0, 4, 2), np.float32), 0)


def _role(name: str, path: str, field: Field | None, need: Need, stands_in_for: str = "") -> FileRole:
    pattern = rf"{_SCENE}/{re.escape(path).replace('NNNN', '(?P<number>[0-9]{4})')}"
    return FileRole(name, path, pattern, field, need, stands_in_for=stands_in_for)


def _number(name: str, dtype: str, *columns: int) -> Field:
    return Field(name, "number", f"raw:{dtype}", dtype, (None, *columns), of="grasps")


def _parse(data: bytes, path: Path, strict: bool) -> Parsed:
    labels = read_graspnet_rows(data, path) if data or path.suffix else _NO_ROWS
    rows = labels.rows
    values = {"grasps": labels.corners, "grasp_rows": rows}
    values |= {"grasp_scores": rows[:, 5].astype(np.float32), "grasp_objects": rows[:, 6].astype(np.int64)}
    flat = f"{labels.flat} of {labels.total} grasps have an opening of 0, or a height of 0 or below: kept"
    return Parsed(values, labels.total, labels.dropped, flat if labels.flat else "")


class Source(FileSource):
    """GraspNet-1Billion with its planar grasps."""

    kind, title = "graspnet-rect", "GraspNet rectangles"
    roles = (
        _role("rgb", "rgb/NNNN.png", Field("rgb", "image", "encoded"), "always"),
        _role("depth", "depth/NNNN.png", Field("depth", "depth", "encoded", "uint16", invalid=0.0), "alike"),
        _role("mask", "label/NNNN.png", Field("mask", "mask", "encoded"), "alike"),
        _role("grasps_file", "rect/NNNN.npy", verbatim("grasps_file"), "labels"),
        _role("loose", "NNNN.npy", None, "optional", "grasps_file"),
    )
    labels = (
        LabelFile(
            "grasps_file",
            (
                points("grasps"),
                _number("grasp_rows", "float64", COLUMNS),
                _number("grasp_scores", "float32"),
                _number("grasp_objects", "int64"),
            ),
            _parse,
        ),
    )
    recognized_by = (("rgb", "grasps_file"), ("rgb", "loose"))

    def __init__(
        self, root: Path | FileTree, *, missing: str = "keep", own_splits: bool = True, follow_links: bool = False
    ) -> None:
        """List the images.

        missing: An image without a grasp file: `keep` stores it, `skip` skips it, `error` raises BadInput.
        own_splits: True adds the field `split`.
        follow_links: True follows symbolic links that lead out of `root`.
        """
        self._list(root, Policies(missing=missing), follow_links=follow_links, own_splits=own_splits)

    @classmethod
    def key_of(cls, match: re.Match[str]) -> str:
        return f"scene_{match['scene']}/{match['camera']}/{match['number']}"

    def split_of(self, sample: FileSample) -> str:
        scene = int(sample.key.removeprefix("scene_")[:4])
        return next(name for name, end in _SPLITS if scene < end)

    def split_names(self, found: set[str]) -> tuple[str, ...]:
        return tuple(name for name, _ in _SPLITS if name in found)

    def more_fields(self) -> Sequence[Field]:
        return (Field("camera", "text", "text"),)

    def listed_values(self, sample: FileSample) -> base.Sample:
        return {"camera": sample.key.split("/")[1]}
