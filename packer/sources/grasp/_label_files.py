"""Parsers of the grasp labels in text files: lines of numbers.

Strict parsing raises BadInput for the first invalid line. Lenient parsing skips the label of an invalid line. Both skip
labels with a number that is not finite (`NaN`, `inf`), because these labels have no position.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.schema import Field
from packer.sources._message_texts import shown
from packer.sources._small_file_source import LabelFile, Parsed

_LARGEST = float(np.finfo(np.float32).max)  # labels are stored as float32


class Labels(NamedTuple):
    """Labels of a file.

    Attributes:
        values: Finite labels, float64. `read_rows` returns rows (N, columns), `read_rectangles` corners (N, 4, 2).
        total: Number of labels in the file, including the skipped labels.
    """

    values: npt.NDArray[np.float64]
    total: int

    @property
    def dropped(self) -> int:
        """Return the number of skipped labels."""
        return self.total - len(self.values)


def read_rows(data: bytes, path: Path, *, columns: int, separator: str | None, strict: bool) -> Labels:
    """Parse one label per line. `values` of the result has the shape (N, columns). Blank lines are skipped.

    Args:
        data: Bytes of the file.
        path: Path of the file, for messages.
        columns: Count of numbers in a line.
        separator: Text between two numbers. None for white space.
        strict: True raises BadInput for an invalid line, with `path:line`. False skips the line.
    """
    rows = _rows(data, path, columns=columns, separator=separator, strict=strict)
    return Labels(rows[_finite(rows)], len(rows))


def read_rectangles(data: bytes, path: Path, *, strict: bool) -> Labels:
    """Parse one rectangle per four lines `x y`, as in Cornell's cpos and cneg files.

    `values` of the result are corners (N, 4, 2). A rectangle with a corner that is not finite is skipped. If `strict`
    is true, an invalid line or an incomplete rectangle raises BadInput, otherwise the rectangle is skipped.
    """
    rows = _rows(data, path, columns=2, separator=None, strict=strict)
    rest = len(rows) % 4
    if rest and strict:
        last = len(data.splitlines())
        raise BadInput(
            f"{shown(str(path))}:{last}: incomplete rectangle: {len(rows)} corners, expected a multiple of 4; "
            "fix the file or use --bad-labels skip"
        )
    corners = rows[: len(rows) - rest].reshape(-1, 4, 2)
    return Labels(corners[_finite(corners)], len(corners) + bool(rest))


def corners(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the corners, float32 (N, 4, 2), of rows (N, 5): x, y, theta in degrees, opening, jaw.

    The opening axis p0 -> p1 has the direction (cos theta, sin theta), y down, as in Jacquard and Grasp-Anything.
    """
    x, y, degrees, opening, jaw = rows.reshape(-1, 5).T
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    center = np.stack([x, y], axis=1)
    along = np.stack([cos, sin], axis=1) * opening[:, None] / 2
    across = np.stack([-sin, cos], axis=1) * jaw[:, None] / 2
    ends = [center - along - across, center + along - across, center + along + across, center - along + across]
    return np.asarray(np.stack(ends, axis=1), np.float32)


def _finite(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    inner = tuple(range(1, values.ndim))
    return np.asarray((np.abs(values) <= _LARGEST).all(axis=inner))


def _rows(data: bytes, path: Path, *, columns: int, separator: str | None, strict: bool) -> npt.NDArray[np.float64]:
    """Return one row per line that is not blank. If `strict` is false, an invalid line is a row of NaN."""
    rows = []
    text = data.decode("utf-8-sig", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = [_number(word) for word in line.strip().split(separator)]
            if len(row) != columns:
                raise ValueError(f"{len(row)} numbers")
        except ValueError as error:
            if strict:
                raise BadInput(
                    f"{shown(str(path))}:{number}: cannot read the label: {error}, expected {columns} numbers "
                    f"separated by {separator or 'spaces'!r}; fix the file or use --bad-labels skip"
                ) from error
            row = [float("nan")] * columns
        rows.append(row)
    return np.asarray(rows, np.float64).reshape(-1, columns)


def _number(word: str) -> float:
    if not word.isascii() or "_" in word:  # float() also accepts other digits and underscores
        raise ValueError(f"{shown(word[:20])!r}")
    try:
        return float(word)
    except ValueError as error:
        raise ValueError(f"{shown(word[:20])!r}") from error


# ---- label files of file sources


def points(name: str) -> Field:
    """Return a field for the corners of grasps: float32 (N, 4, 2), x, y in px. p0 -> p1 is the opening axis."""
    return Field(name, "points", "raw:float32", dtype="float32", shape=(None, 4, 2))


def verbatim(name: str) -> Field:
    """Return the hidden field that stores the bytes of a label file unchanged."""
    return Field(name, "bytes", "encoded", hidden=True)


def rectangles(name: str, role: str) -> LabelFile:
    """Return the declaration of a label file with four lines `x y` per rectangle.

    `name` is the name of the field with the corners, `role` the name of the `FileRole` of the label file.
    """

    def parse(data: bytes, path: Path, strict: bool) -> Parsed:
        labels = read_rectangles(data, path, strict=strict)
        return Parsed({name: labels.values.astype(np.float32)}, labels.total, labels.dropped)

    return LabelFile(role, (points(name),), parse)
