"""Parsers of the JSON labels of REGRAD: grasps (version 1) and relations of objects (version 2).

A grasp is `[object, [[center x, center y], [width, height], angle], [four scores]]`. The rectangle is from
cv2.minAreaRect. The scores are vertical, center, antipodal and total. The file of relations is
`{scene: {object: [parent, ...]}}`, where an object has the name `name-number`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.layouts.json_text import json_value
from packer.sources._message_texts import shown
from packer.sources.grasp._label_files import corners

COLUMNS = 10
_LARGEST_ID = 1 << 53  # float64 represents all smaller whole numbers

Relations = dict[str, list[str]]  # object -> its parents


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
    """Return the corners of the rectangles of the grasp file, float32 (N, 4, 2). p0 -> p1 is the longer side.

    rows: `grasp_rows` (N, 10), whose columns 1 to 5 are center x, center y, width, height and angle in degrees. The
    width is the side along (cos angle, sin angle), with y down (cv2.boxPoints). The longer side is the opening of the
    gripper. This is an assumption: the code of the set draws fingers of 0.024 m at a distance of 0.068 m.
    """
    width, height, angle = rows[:, 3], rows[:, 4], rows[:, 5]
    degrees = np.where(width >= height, angle, angle + 90)
    sides = np.maximum(width, height), np.minimum(width, height)
    return corners(np.stack([rows[:, 1], rows[:, 2], degrees, *sides], axis=1))


def read_relations(data: bytes, path: Path) -> dict[str, Relations]:
    """Return, for each scene, the names of the parents of each object. path: for messages. Raises BadInput."""
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
    """Return the ten numbers of a grasp, None for a malformed grasp."""
    try:
        number, ((x, y), (width, height), angle), (vertical, center, antipodal, total) = grasp
        row = [number, x, y, width, height, angle, vertical, center, antipodal, total]
        values = [float(value) for value in row if type(value) in (int, float)]
    except (TypeError, ValueError, OverflowError):
        return None
    is_valid = len(values) == COLUMNS and values[0].is_integer() and abs(values[0]) <= _LARGEST_ID
    return values if is_valid else None
