"""GraspNet-1Billion with its planar grasps (rectangles), from one camera or from both.

A sample is an image `scene_NNNN/<realsense|kinect>/rgb/NNNN.png`, in folders of any names. The folders `depth/` and
`label/` (masks) are next to `rgb/`. The grasps are in `rect/NNNN.npy` next to `rgb/`. Without this file, the grasps
are in `scene_NNNN/<camera>/NNNN.npy` of the download `rect_labels`.

Fields of a sample with N grasps:
* key: `scene_0000/realsense/0000`. camera: text.
* rgb, depth and mask: PNG bytes. Depth is uint16 in millimeters, 0 without a measurement. The mask is 0 for background.
* grasps: float32 (N, 4, 2), corners x, y in px. p0 -> p1 is the opening axis.
* grasp_rows: float64 (N, 7), center x, y, open point x, y, height, score, object.
* grasp_scores: float32 (N,). grasp_objects: int64 (N,).
* split: int64. Scenes 0-99: train, 100-129: test_seen, 130-159: test_similar, 160-189: test_novel. Others: other.
* Hidden: files (field -> relative path), grasps_file (bytes, empty for an image without a grasp file).
A data set without depth or masks does not have these fields.

A row of the grasp file is center x, center y, open x, open y, height, score, object number. The open point is the
middle of one end of the rectangle. The opening is twice the distance between open point and center. The height is the
length of the jaws.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.files.npy_arrays import read_header
from packer.schema import Field
from packer.sources import base
from packer.sources._file_source import FileSource, Policies
from packer.sources._message_texts import shown
from packer.sources._small_file_source import FileRole, FileSample, LabelFile, Need, Parsed
from packer.sources._trees.file_tree import FileTree
from packer.sources.grasp._label_files import points, verbatim

SPECIFICITY = 100
COLUMNS = 7
_LARGEST_ID = 1 << 53  # float64 represents all whole numbers up to this limit
_SCENE = r"(?:.*/)?scene_(?P<scene>[0-9]{4})/(?P<camera>realsense|kinect)"
_SPLITS = (("train", 100), ("test_seen", 130), ("test_similar", 160), ("test_novel", 190), ("other", 10_000))


class GraspNetRows(NamedTuple):
    """Grasps of a file.

    Attributes:
        rows: Finite rows of the file, float64 (N, 7): center x, center y, open x, open y, height, score, object.
        corners: Corners of the grasp rectangles, float32 (N, 4, 2), in px.
        total: Number of rows in the file, including the skipped rows.
    """

    rows: npt.NDArray[np.float64]
    corners: npt.NDArray[np.float32]
    total: int

    @property
    def dropped(self) -> int:
        """Return the number of skipped rows."""
        return self.total - len(self.rows)

    @property
    def flat(self) -> int:
        """Return the number of `rows` with an opening of 0, or with a height of 0 or below."""
        is_closed = (self.rows[:, :2] == self.rows[:, 2:4]).all(axis=1)
        return int((is_closed | (self.rows[:, 4] <= 0)).sum())


def read_graspnet_rows(data: bytes, path: Path) -> GraspNetRows:
    """Parse an .npy file. Rows with NaN or a number beyond float32 are skipped. `path` is for messages.

    Raises BadInput if the file is not an array of seven numbers per row, or if an object is not a whole number.
    """
    where = shown(str(path))
    try:
        header = read_header(data)
    except ValueError as error:
        raise BadInput(f"{where}: cannot read the grasps: {error}; get the file again") from error
    expected = f"an array (N, {COLUMNS}) of float32 or float64"
    if header.name not in ("float32", "float64") or len(header.shape) != 2 or header.shape[1] != COLUMNS:
        raise BadInput(f"{where}: found {header.name} {header.shape}, expected {expected}; get the file again")
    size = len(data) - header.data_at
    if size != header.data_bytes:
        raise BadInput(f"{where}: {size} bytes of data, expected {header.data_bytes} by its header; get it again")
    with np.errstate(all="ignore"):  # NaN and numbers beyond float32 are skipped
        rows = np.ascontiguousarray(header.array(data), np.float64)
        placed = corners(rows)
        kept = np.isfinite(rows).all(axis=1) & np.isfinite(placed).all(axis=(1, 2))
        kept &= np.isfinite(rows[:, 5].astype(np.float32))
    rows, placed = rows[kept], placed[kept]
    objects = rows[:, 6]
    strange = np.flatnonzero((objects != np.floor(objects)) | (np.abs(objects) > _LARGEST_ID))
    if len(strange):
        raise BadInput(
            f"{where}: object {objects[strange[0]]}: expected a whole number in the last column; get the file again"
        )
    return GraspNetRows(rows, placed, header.shape[0])


def corners(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the corners, float32 (N, 4, 2), of rows (N, 7). The opening axis p0 -> p1 points to the open point."""
    center, half = rows[:, :2], rows[:, 2:4] - rows[:, :2]
    length = np.hypot(half[:, 0], half[:, 1])[:, None]
    along = np.where(length > 0, half / np.where(length > 0, length, 1), [1.0, 0.0])  # opening 0: along x
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) * rows[:, 4:5] / 2
    ends = [center - half - across, center + half - across, center + half + across, center - half + across]
    return np.asarray(np.stack(ends, axis=1), np.float32)


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

        Args:
            missing: For an image without a grasp file, `keep` adds a sample without grasps, `skip` skips the image, and
                `error` raises BadInput.
            own_splits: True: the numbers of the scenes decide the splits. False: no field `split`.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.
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
