"""Box check: what a box is, the one rule of every source: finite x0 y0 x1 y1 within float32, x0 <= x1, y0 <= y1.

A box with NaN lies nowhere, and one whose edges are exchanged is turned round by one geometry and kept by another: both
are refused, and named by their row; the second where labels are read, since packs of before hold such boxes. A box
without an extent, or one that reaches out of its picture, is a box.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput

EXPECTED = "expected x0 y0 x1 y1: finite numbers within float32, x0 <= x1, y0 <= y1"


def box_edges(
    boxes: npt.ArrayLike, row_name: Callable[[int], str] = lambda row: f"box {row + 1}"
) -> npt.NDArray[np.float32]:
    """Boxes as float32 (N, 4), rounded where they are of more digits; raises BadInput as `check_boxes` does."""
    given = np.asarray(boxes, np.float64)
    check_boxes(given, row_name)
    return given.astype(np.float32)


def check_boxes(
    boxes: npt.NDArray[Any],
    row_name: Callable[[int], str] = lambda row: f"box {row + 1}",
    *,
    may_be_exchanged: bool = False,
) -> None:
    """Raise BadInput for an array that is not (N, 4), and for the first row that is no box.

    row_name: what a message calls a row, by its number. may_be_exchanged: x0 > x1 or y0 > y1 pass.
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise BadInput(f"{boxes.dtype} {boxes.shape} is no array of boxes: expected (N, 4), x0 y0 x1 y1 of each")
    with np.errstate(invalid="ignore", over="ignore"):
        is_placed = np.isfinite(boxes.astype(np.float32, copy=False)).all(axis=1)
        is_box = is_placed & (may_be_exchanged | (boxes[:, :2] <= boxes[:, 2:]).all(axis=1))
    if not is_box.all():
        row = int(np.argmin(is_box))
        said = " ".join(f"{value:g}" for value in boxes[row].tolist())
        raise BadInput(f"{row_name(row)}: found {said}, {EXPECTED}")
