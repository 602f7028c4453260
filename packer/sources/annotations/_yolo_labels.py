"""YOLO labels: a parser for the label file of an image. Coordinates are fractions of the image width and height.

Each line, called a row, contains one object:

| task    | a line                                                        |
|---------|---------------------------------------------------------------|
| detect  | class, x, y, width, height: the center and the sides of a box |
| segment | class, then x, y of at least three points                     |
| obb     | class, then x, y of four corners                              |
| pose    | class, x, y, width, height, then each keypoint                |

The file does not contain the task: a row of nine numbers is a polygon of four points or an oriented box. With the task
`segment`, a row of five numbers is a box without a polygon.

Boxes, bounds of polygons and keypoints must be from -0.01 to 1.01, as in ultralytics. Values are not clipped.
ultralytics removes repeated rows. packer keeps repeated rows, because two objects may have equal rows.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.sources._message_texts import shown

Task = Literal["detect", "segment", "obb", "pose"]

MOST_CLASSES = 100_000
LEAST_ROW_BYTES = 9  # the shortest row is `0 0 0 0 0`
_TOLERANCE = 0.01
_BOX_NUMBERS = 5
_CORNER_NUMBERS = 9
_LEAST_POLYGON_NUMBERS = 7
_VISIBILITIES = frozenset((0, 1, 2))


class RowForm(NamedTuple):
    """The meaning of the numbers in a label row, equal for all label files of a data set.

    Attributes:
        task: `detect` (boxes), `segment` (polygons), `obb` (oriented boxes) or `pose` (boxes with keypoints).
        classes: The number of classes. None: unknown.
        keypoints: For the task `pose`, (number of keypoints of an object, values of a keypoint). A keypoint has 2
            values (x, y) or 3 values (x, y, visibility). None for other tasks.
    """

    task: Task
    classes: int | None = None
    keypoints: tuple[int, int] | None = None


class YoloLabels(NamedTuple):
    """The N objects of an image. x is a fraction of the image width, y is a fraction of the image height.

    Attributes:
        classes: int64 (N,), class numbers.
        boxes: float64 (N, 4), x0, y0, x1, y1.
        points: float64 (P, 2), polygon points, corners of oriented boxes, or keypoints, in the order of the objects.
        starts: int64 (M,), the row in `points` of the first point of each polygon. Empty without polygons.
        owners: int64 (M,), for each polygon, the number of its object.
        visibility: uint8 (N * K,), the visibility of K keypoints per object. Empty if keypoints have no visibility.
    """

    classes: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.float64]
    points: npt.NDArray[np.float64]
    starts: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]
    visibility: npt.NDArray[np.uint8]


class _Row(NamedTuple):
    number: float
    box: tuple[float, float, float, float]
    points: Sequence[float]
    visibility: Sequence[float]


def label_names(image: str, *, is_darknet: bool) -> tuple[str, ...]:
    """Return the possible paths of the label file of an image, in order of preference.

    ultralytics replaces the last folder `images` by `labels`. darknet (`is_darknet`) also replaces `JPEGImages`, and
    also stores the label file next to the image.
    """
    stem = image[: image.rindex(".")] if "." in image.rpartition("/")[2] else image
    names = []
    for folder in ("/JPEGImages/", "/images/") if is_darknet else ("/images/",):
        above, found, rest = f"/{stem}".rpartition(folder)
        names += [f"{above}/labels/{rest}.txt"[1:]] if found else []
    return tuple(names) if names and not is_darknet else (*names, f"{stem}.txt")


def read_labels(data: bytes, path: Path, form: RowForm) -> YoloLabels:
    """Return the objects in a label file, in the order of the lines. Blank lines are ignored.

    `form` is the meaning of the numbers in a row. If a row is not valid, raise BadInput with `path` and line.
    """
    rows: list[_Row] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        words = line.split()
        try:
            rows += [_row(words, form)] if words else []
        except ValueError as error:
            where = f"{shown(str(path))}:{number}"
            raise BadInput(f"{where}: cannot read the label: {shown(str(error))}; correct the file") from error
    counts = np.array([len(row.points) // 2 for row in rows], np.int64)
    owners = np.flatnonzero(counts)
    return YoloLabels(
        np.array([row.number for row in rows], np.int64),
        np.array([row.box for row in rows], np.float64).reshape(-1, 4),
        np.array([value for row in rows for value in row.points], np.float64).reshape(-1, 2),
        (np.cumsum(counts) - counts)[owners],
        owners,
        np.array([value for row in rows for value in row.visibility], np.uint8),
    )


def _row(words: Sequence[bytes], form: RowForm) -> _Row:
    """Parse one row. Raise ValueError if the row is not valid."""
    number, *values = map(float, words)
    if b"_" in b"".join(words) or not math.isfinite(sum(values)):
        raise ValueError("expected finite decimal numbers")  # float() reads 1_0, nan and inf
    _check_length(len(words), form)
    most = MOST_CLASSES if form.classes is None else form.classes
    if not (0 <= number < most and number == int(number)):
        raise ValueError(f"class {number:g}, expected a whole number from 0 to {most - 1}")
    points, visibility, checked = values, values[:0], values[:4]
    if len(words) == _BOX_NUMBERS or form.task == "pose":
        x, y, width, height = checked
        box = x - width / 2, y - height / 2, x + width / 2, y + height / 2
        size = form.keypoints[1] if form.keypoints else 2
        points = [value for place, value in enumerate(values[4:]) if place % size < 2]
        visibility = values[6::3] if size == 3 else visibility
        checked += points
    else:
        box = x0, y0, x1, y1 = min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])
        checked = [(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]
    for value in checked:
        if not -_TOLERANCE <= value <= 1 + _TOLERANCE:
            raise ValueError(f"{value:g}, expected a share of a side of the image, from -0.01 to 1.01")
    if not _VISIBILITIES.issuperset(visibility):
        raise ValueError("visibility of a keypoint, expected 0, 1 or 2")
    return _Row(number, box, points, visibility)


def _check_length(count: int, form: RowForm) -> None:
    """Raise ValueError if the number of values in a row does not fit the task."""
    places, size = form.keypoints or (0, 0)
    is_polygon = form.task == "segment" and count >= _LEAST_POLYGON_NUMBERS and count % 2 == 1
    expected = _CORNER_NUMBERS if form.task == "obb" else _BOX_NUMBERS + places * size
    if count != expected and not is_polygon:
        polygons = ", 7, 9, 11, ..." if form.task == "segment" else ""
        raise ValueError(f"{count} numbers, expected {expected}{polygons} in a row of --task {form.task}")
