"""REGRAD labels: its JSON files of grasps (version 1) and of relations of objects (version 2), as arrays and lists.

A grasp is `[object, [[center x, center y], [width, height], angle], [four scores]]`: the rectangle as cv2.minAreaRect
gave it, and the scores vertical, center, antipodal, and all of them. Relations are, by scene, for each object
`name-number` the names of its parents, as the set calls them.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.layouts.json_text import json_value
from packer.sources._parse.folder_listing import shown
from packer.sources.grasp._label_files import corners

COLUMNS = 10
_PARTS, _SCORES = 3, 4
_LARGEST_ID = 1 << 53  # up to which float64 holds every whole number

Relations = dict[str, list[str]]  # object -> its parents


class RegradGrasps(NamedTuple):
    """rows: float64 (N, 10), finite: object, x, y, width, height, angle, four scores. total: with those left out."""

    rows: npt.NDArray[np.float64]
    total: int

    @property
    def dropped(self) -> int:
        """How many were left out."""
        return self.total - len(self.rows)


def read_regrad_grasps(data: bytes, path: Path, *, strict: bool) -> RegradGrasps:
    """The grasps of a file; raises BadInput. Those that are not finite, or have no place in float32, are left out.

    strict: whether a grasp of another form is an error; otherwise it is left out.
    """
    found = _loaded(data, path)
    if not isinstance(found, list):
        raise BadInput(f"{shown(str(path))}: expected a list of grasps, found {type(found).__name__}")
    rows = []
    for number, grasp in enumerate(found):
        row = _row(grasp)
        if row is None and strict:
            raise BadInput(
                f"{shown(str(path))}: grasp {number}: expected [object, [[x, y], [width, height], angle], [4 scores]]; "
                "mend the file or say --labels lenient"
            )
        rows.append(row or [float("nan")] * COLUMNS)
    values = np.asarray(rows, np.float64).reshape(-1, COLUMNS)
    with np.errstate(all="ignore"):  # what comes of NaN and of numbers beyond float32 is left out
        kept = np.isfinite(values).all(axis=1) & np.isfinite(rectangles(values)).all(axis=(1, 2))
        kept &= np.isfinite(values[:, -1].astype(np.float32))
    return RegradGrasps(values[kept], len(values))


def rectangles(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Rows (N, 10) as corners (N, 4, 2), p0 -> p1 the longer side.

    The width lies along (cos angle, sin angle), y down, in every version of OpenCV (cv2.boxPoints); which side it calls
    the width changed with 4.5.1. It is not said which side is the opening. The set's code draws the inner edges of two
    fingers that are 0.068 m apart and 0.024 m thick, so that the longer side is the opening unless the hand is seen
    from far aside.
    """
    width, height, angle = rows[:, 3], rows[:, 4], rows[:, 5]
    is_wide = width >= height
    degrees = np.where(is_wide, angle, angle + 90)
    sides = np.maximum(width, height), np.minimum(width, height)
    return corners(np.stack([rows[:, 1], rows[:, 2], degrees, *sides], axis=1))


def read_relations(data: bytes, path: Path) -> dict[str, Relations]:
    """Scene -> relations of its objects; raises BadInput."""
    found = _loaded(data, path)
    if isinstance(found, dict) and all(_is_relations(scene) for scene in found.values()):
        return found
    raise BadInput(
        f"{shown(str(path))}: expected an object of scenes, each with a list of names for every object; get the file "
        "again"
    )


def _loaded(data: bytes, path: Path) -> Any:
    try:
        return json_value(data, finite=False)
    except (ValueError, RecursionError) as error:  # also a number of very many digits, and no UTF-8
        cause = "is nested too deep" if isinstance(error, RecursionError) else f"is no JSON: {error}"
        raise BadInput(f"{shown(str(path))}: {shown(cause)}; get the file again, or mend it") from error


def _is_relations(scene: Any) -> bool:
    return isinstance(scene, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in scene.values()
    )


def _row(grasp: Any) -> list[float] | None:
    """The ten numbers of a grasp; None where it has another form."""
    if not _is_list(grasp, _PARTS):
        return None
    number, rectangle, scores = grasp
    if not (_is_list(rectangle, _PARTS) and _is_list(scores, _SCORES)):
        return None
    center, size, angle = rectangle
    if not (_is_list(center, 2) and _is_list(size, 2)):
        return None
    row = [number, *center, *size, angle, *scores]
    if not all(type(value) in (int, float) for value in row):
        return None
    try:
        values = [float(value) for value in row]
    except OverflowError:
        return None
    return values if values[0].is_integer() and abs(values[0]) <= _LARGEST_ID else None


def _is_list(value: Any, length: int) -> bool:
    return isinstance(value, list) and len(value) == length
