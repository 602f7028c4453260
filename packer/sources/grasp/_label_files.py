"""Grasp labels: the text files of grasp sets, lines of numbers, as arrays.

Strict reading raises an error that names the first invalid line. Lenient reading skips the label of the line. Both skip
rows that are not finite (`NaN`, `inf`), which are annotations without a position.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.schema import Field
from packer.sources._listed_source import LabelFile, Parsed
from packer.sources._message_texts import shown

_LARGEST = float(np.finfo(np.float32).max)  # labels are stored as float32


class Labels(NamedTuple):
    """Labels of a file.

    Attributes:
        values: Valid labels, float64 (N, ...), all finite.
        total: Number of labels in the file, with the invalid labels that are skipped.
    """

    values: npt.NDArray[np.float64]
    total: int

    @property
    def dropped(self) -> int:
        """Return the number of skipped labels."""
        return self.total - len(self.values)


def read_rows(data: bytes, path: Path, *, columns: int, separator: str | None, strict: bool) -> Labels:
    """Return one label per line, as (N, columns). Blank lines are skipped.

    Args:
        data: The bytes of the file.
        path: The file, for messages.
        columns: The count of numbers in a line.
        separator: The text between the numbers; None for white space.
        strict: Whether an invalid line is an error.

    Raises:
        BadInput: A line is not valid; the message has the form path:line.
    """
    rows = _rows(data, path, columns=columns, separator=separator, strict=strict)
    return Labels(rows[_finite(rows)], len(rows))


def read_rectangles(data: bytes, path: Path, *, strict: bool) -> Labels:
    """Return one rectangle per four lines `x y` (Cornell's cpos and cneg files), as corners (N, 4, 2).

    A rectangle with a corner that is not finite is skipped. With `strict`, an invalid line raises BadInput.
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
    """Return the corners (N, 4, 2) of rows x, y, theta in degrees, opening, jaw (N, 5). p0 -> p1 is the opening axis.

    The signs are those of Jacquard and Grasp-Anything: the opening is along (cos theta, sin theta), with y down.
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
    """Every line that is not blank; one that does not fit is NaN where not strict, which keeps the groups of four."""
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
    if not word.isascii() or "_" in word:  # Python's float() takes more than label files mean
        raise ValueError(f"{shown(word[:20])!r}")
    try:
        return float(word)
    except ValueError as error:
        raise ValueError(f"{shown(word[:20])!r}") from error


# ---- label files of file sources


def points(name: str) -> Field:
    """Return the field of corners x, y (N, 4, 2) in px; p0 -> p1 is the opening axis."""
    return Field(name, "points", "raw:float32", dtype="float32", shape=(None, 4, 2))


def verbatim(name: str) -> Field:
    """Return the hidden field that keeps a label file as it is."""
    return Field(name, "bytes", "encoded", hidden=True)


def rectangles(name: str, role: str) -> LabelFile:
    """Declare a label file with four lines `x y` per rectangle, as Cornell's cpos and cneg files."""

    def parse(data: bytes, path: Path, strict: bool) -> Parsed:
        labels = read_rectangles(data, path, strict=strict)
        return Parsed({name: labels.values.astype(np.float32)}, labels.total, labels.dropped)

    return LabelFile(role, (points(name),), parse)
