"""YOLO labels: the text file of a picture, one object per line, as arrays of shares of its sides.

| task    | a line                                                       |
|---------|--------------------------------------------------------------|
| detect  | class, x, y, width, height: the centre and the sides of a box |
| segment | class, then x, y of at least three points                    |
| obb     | class, then x, y of four corners                             |
| pose    | class, x, y, width, height, then each keypoint               |

The file does not say which: nine numbers are a polygon of four points or an oriented box. A row of five numbers among
polygons is a box without one.

What is taken is what ultralytics takes, whose checks have a tolerance of 1 % of a side: x, y, width and height of a
box, or of what encloses a polygon, and each keypoint lie within -0.01 to 1.01, and are kept as they are. It drops rows
that come twice; here they stay, since nobody but the file's author knows whether they are two objects.
"""

from collections import Counter
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.sources._parse.folder_listing import shown

Task = Literal["detect", "segment", "obb", "pose"]

MOST_CLASSES = 100_000  # of any set; ImageNet-21k has 21 841
LEAST_ROW_BYTES = 9  # `0 0 0 0 0`
_TOLERANCE = 0.01
_BOX_NUMBERS = 5
_CORNER_NUMBERS = 9
_LEAST_POLYGON_NUMBERS = 7


class RowForm(NamedTuple):
    """What the lines of a set are. classes: how many there are; None where nobody says.

    keypoints: of pose, how many each object has, and how many numbers each of them is: 2, or 3 with its visibility.
    """

    task: Task
    classes: int | None = None
    keypoints: tuple[int, int] | None = None


class YoloLabels(NamedTuple):
    """The objects of a picture; x and y are shares of its width and height.

    boxes: (N, 4), x0, y0, x1, y1. points: (P, 2): those of all polygons, of all corners, or of all keypoints, object by
    object. starts: (M,), the first point of each polygon; owners: (M,), the object that it belongs to.
    visibility: (N, K) of keypoints with three numbers.
    """

    classes: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.float64]
    points: npt.NDArray[np.float64]
    starts: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]
    visibility: npt.NDArray[np.uint8]


class _Unfit(Exception):
    """Why a line is none of the form."""


def read_labels(data: bytes, path: Path, form: RowForm) -> YoloLabels:
    """The objects in the order of the lines; blank lines are skipped. Raises BadInput with path:line."""
    classes: list[float] = []
    boxes: list[tuple[float, float, float, float]] = []
    points: list[float] = []
    visibility: list[float] = []
    starts: list[int] = []
    owners: list[int] = []
    # float() takes more than numbers of digits: `nan`, `inf` and `1_0`
    is_suspect = any(letter in data for letter in (b"n", b"N", b"_"))
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        try:
            row = _numbers(words, is_suspect=is_suspect)
            _check_length(len(row), form)
            classes.append(_class(row[0], form.classes))
            if form.task == "detect" or len(row) == _BOX_NUMBERS:
                boxes.append(_box(row[1:]))
            elif form.task == "pose":
                boxes.append(_box(row[1:_BOX_NUMBERS]))
                _add_keypoints(row[_BOX_NUMBERS:], form, points, visibility)
            else:
                boxes.append(_bounds(row[1:]))
                starts.append(len(points) // 2)
                owners.append(len(classes) - 1)
                points += row[1:]
        except _Unfit as unfit:
            raise BadInput(f"{shown(str(path))}:{number}: cannot read the label: {unfit}; mend the file") from unfit
    return YoloLabels(
        np.asarray(classes, np.int64),
        np.asarray(boxes, np.float64).reshape(-1, 4),
        np.asarray(points, np.float64).reshape(-1, 2),
        np.asarray(starts, np.int64),
        np.asarray(owners, np.int64),
        np.asarray(visibility, np.uint8).reshape(len(boxes), -1 if visibility else 0),
    )


def row_lengths(data: bytes) -> Counter[int]:
    """How many lines have how many words; blank lines are not counted."""
    lengths = Counter(len(line.split()) for line in data.splitlines())
    del lengths[0]
    return lengths


def repeated_rows(data: bytes) -> int:
    """How many lines say again what another one says."""
    rows = [tuple(words) for line in data.splitlines() if (words := line.split())]
    return len(rows) - len(set(rows))


def _numbers(words: list[bytes], *, is_suspect: bool) -> list[float]:
    if is_suspect:
        strange = next((word for word in words if any(letter in word for letter in (b"n", b"N", b"_"))), None)
        if strange is not None:
            raise _Unfit(f"{_quoted(strange)} is no number")
    try:
        return list(map(float, words))
    except ValueError as error:
        strange = next(word for word in words if not _is_number(word))
        raise _Unfit(f"{_quoted(strange)} is no number") from error


def _is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _quoted(word: bytes) -> str:
    return repr(shown(word[:20].decode("utf-8", errors="replace")))


def _check_length(count: int, form: RowForm) -> None:
    """Raise _Unfit for a row of another task."""
    task = form.task
    if task == "pose":
        places, numbers = form.keypoints or (0, 0)
        wanted = _BOX_NUMBERS + places * numbers
        if count != wanted:
            raise _Unfit(f"{count} numbers, expected {wanted}: class, box, and {places} keypoints of {numbers} numbers")
    elif task == "obb":
        if count != _CORNER_NUMBERS:
            raise _Unfit(f"{count} numbers, expected 9: class, and x, y of four corners{_other_task(count, task)}")
    elif task == "segment":
        if count != _BOX_NUMBERS and (count < _LEAST_POLYGON_NUMBERS or not count % 2):
            raise _Unfit(
                f"{count} numbers, expected class and x, y of three points or more, or class and box"
                f"{_other_task(count, task)}"
            )
    elif count != _BOX_NUMBERS:
        raise _Unfit(f"{count} numbers, expected 5: class, x, y, width, height{_other_task(count, task)}")


def _other_task(count: int, task: Task) -> str:
    if count == _BOX_NUMBERS + 1:
        return " (a sixth is a confidence, as of predictions, which are no labels)"
    if task == "detect" and count >= _LEAST_POLYGON_NUMBERS and count % 2:
        return " (polygons, and the boxes around them, are --task segment)"
    return ""


def _class(value: float, count: int | None) -> float:
    most = MOST_CLASSES if count is None else count
    if not (0 <= value < most and value == int(value)):
        there = f"there are {count} classes" if count is not None else "expected a number"
        raise _Unfit(f"class {value:g}, {there}, counted from 0")
    return value


def _box(row: list[float]) -> tuple[float, float, float, float]:
    x, y, width, height = row
    _check_shares(row)
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _bounds(row: list[float]) -> tuple[float, float, float, float]:
    """What encloses the points."""
    x, y = row[::2], row[1::2]
    x0, y0, x1, y1 = min(x), min(y), max(x), max(y)
    _check_shares([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0])
    return x0, y0, x1, y1


def _add_keypoints(row: list[float], form: RowForm, points: list[float], visibility: list[float]) -> None:
    _, numbers = form.keypoints or (0, 0)
    if numbers == 2:
        _check_shares(row)
        points += row
        return
    seen = row[2::3]
    unknown = next((value for value in seen if value not in (0, 1, 2)), None)
    if unknown is not None:
        raise _Unfit(f"visibility {unknown:g} of a keypoint, expected 0, 1 or 2")
    visibility += seen
    for x, y in zip(row[::3], row[1::3], strict=True):
        _check_shares([x, y])
        points += (x, y)


def _check_shares(values: list[float]) -> None:
    """Raise _Unfit for what lies further outside of the picture than the tolerance."""
    if min(values) < -_TOLERANCE or max(values) > 1 + _TOLERANCE:
        outside = next(value for value in values if not -_TOLERANCE <= value <= 1 + _TOLERANCE)
        what = "; pixels are to be divided by the width and the height" if outside > 2 else ""
        raise _Unfit(f"{outside:g}, expected a share of the picture's side, from -0.01 to 1.01{what}")
