"""Text value parsers: parsers of files that contain text, JSON, a number or boxes, and the check of boxes.

A valid box has finite edges x0 y0 x1 y1 within float32, with x0 <= x1 and y0 <= y1. Width or height may be 0. A box may
extend beyond its image.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, printable
from packer.layouts.json_text import json_value

_EXPECTED = "expected x0 y0 x1 y1: finite numbers within float32, x0 <= x1, y0 <= y1"
_WHOLE = re.compile(r"[+-]?[0-9]+")
INT64 = 2**63
_EXACT = 2**53  # float64 represents all whole numbers up to this limit


def text_value(data: bytes, where: str, kind: str, *, is_whole: bool = False) -> Any:
    """Parse the bytes of a file by the kind of its field.

    Args:
        data: Bytes of the file. Text is UTF-8.
        where: Path of the file, for messages.
        kind: text: the result is a str. json: the parsed value. boxes: float32 (N, 4). number: np.float64 or np.int64.
            For any other kind, the result is `data`.
        is_whole: True parses a number as np.int64. A fraction then raises BadInput.

    Raises:
        BadInput: The file does not contain a value of this kind.
    """
    try:
        if kind == "text":
            return data.decode("utf-8")
        if kind == "json":
            return json_value(data.decode("utf-8-sig"))
        if kind == "boxes":
            return _boxes(data.decode("utf-8-sig"))
        if kind == "number":
            return _number(data, is_whole=is_whole)
    except (ValueError, RecursionError) as error:
        message = f"{printable(where)}: cannot read as {kind}: {printable(str(error))}; fix or remove the file"
        raise BadInput(message) from error
    return data


def number_of(data: bytes) -> int | float:
    """Return the number in a file: int for text such as `-3`, float for `3.0`. Raises ValueError for other text."""
    return _parsed(data.decode("utf-8-sig").strip())


def _parsed(word: str) -> int | float:
    value = float(word) if word.isascii() and "_" not in word else math.nan
    if not math.isfinite(value):
        raise ValueError(f"found {word[:20]!r}, expected a number")
    return int(word) if _WHOLE.fullmatch(word) else value


def _number(data: bytes, *, is_whole: bool) -> Any:
    value = number_of(data)
    if is_whole:
        if not isinstance(value, int) or not -INT64 <= value < INT64:
            raise ValueError(f"found {value}, expected a whole number of 64 bits: the file has changed")
        return np.int64(value)
    if isinstance(value, int) and abs(value) > _EXACT:
        raise ValueError(f"found {value}: float64 rounds whole numbers beyond 2**53; declare the files as text")
    return np.float64(value)


def _boxes(text: str) -> Any:
    """Parse lines of four numbers, separated by spaces or commas. Blank lines are skipped. Returns float32 (N, 4)."""
    rows, lines = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.replace(",", " ").split()
        if not words:
            continue
        if len(words) != 4:
            raise ValueError(f"line {number}: found {line[:80]!r}, {_EXPECTED}")
        rows.append([_parsed(word) for word in words])
        lines.append(number)
    return box_edges(np.asarray(rows, np.float64).reshape(-1, 4), lambda row: f"line {lines[row]}")


def box_edges(
    boxes: npt.ArrayLike, row_name: Callable[[int], str] = lambda row: f"box {row + 1}"
) -> npt.NDArray[np.float32]:
    """Convert boxes to float32 (N, 4). An invalid box raises BadInput with `row_name` of its row."""
    edges = np.asarray(boxes, np.float64)
    check_boxes(edges, row_name)
    return edges.astype(np.float32)


def check_boxes(
    boxes: npt.NDArray[Any],
    row_name: Callable[[int], str] = lambda row: f"box {row + 1}",
    *,
    may_be_exchanged: bool = False,
) -> None:
    """Raise BadInput for an array that is not (N, 4), and for the first row that is not a valid box.

    Args:
        boxes: Array to check, rows x0, y0, x1, y1.
        row_name: Function that returns the name of a row for messages.
        may_be_exchanged: True also allows x0 > x1 and y0 > y1. False raises BadInput for them.
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise BadInput(f"{boxes.dtype} {boxes.shape} is not an array of boxes: expected (N, 4), x0 y0 x1 y1 of each")
    with np.errstate(invalid="ignore", over="ignore"):
        is_finite = np.isfinite(boxes.astype(np.float32, copy=False)).all(axis=1)
        is_box = is_finite & (may_be_exchanged | (boxes[:, :2] <= boxes[:, 2:]).all(axis=1))
    if not is_box.all():
        row = int(np.argmin(is_box))
        edges = " ".join(f"{value:g}" for value in boxes[row].tolist())
        raise BadInput(f"{row_name(row)}: found {edges}, {_EXPECTED}")
