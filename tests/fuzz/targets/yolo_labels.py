"""YOLO labels: the values are those of a plain reading of the lines, inside the image by 1 %."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.sources.annotations._yolo_labels import RowForm, YoloLabels, read_labels
from tests.fuzz import words
from tests.fuzz.target import Disagreement, refusable

TOKENS = (*words.TEXT, *words.NUMBERS, b"0.5", b"1.01", b"-0.01", b" 2", b"0 ", b"+.5")
_PATH = Path("fuzz.txt")
_FORMS = (
    RowForm("detect", 3),
    RowForm("segment", None),
    RowForm("obb", 80),
    RowForm("pose", 1, (2, 3)),
    RowForm("pose", 1, (3, 2)),
)


def seeds() -> Iterator[bytes]:
    yield b"0 0.5 0.5 0.25 0.5\n1 0.25 0.25 0.125 0.125\n0 0.5 0.5 0.25 0.5\n"
    yield b"2 0.1 0.1 0.4 0.1 0.4 0.5\r\n0 0.5 0.5 1 1\r\n"
    yield b"4 0.55 0.09 0.35 0.6 0.24 0.5 0.44 -0.0098"
    yield b"0 .5 .5 .2 .2 0.1 0.2 2 0.3 0.4 0\n\n0 .5 .5 .2 .2 0 0 0 0 0 1\n"
    yield b"0 .5 .5 .2 .2 0.1 0.2 0.3 0.4 0.5 0.6\n"


def check(data: bytes) -> None:
    rows = sum(bool(line.split()) for line in data.removeprefix(b"\xef\xbb\xbf").splitlines())
    for form in _FORMS:
        with refusable():
            _check(read_labels(data, _PATH, form), form, rows)


def _check(found: YoloLabels, form: RowForm, rows: int) -> None:
    if not len(found.classes) == len(found.boxes) == rows:
        raise Disagreement(f"{rows} rows: {found}")
    if not (np.isfinite(found.boxes).all() and np.isfinite(found.points).all()):
        raise Disagreement(f"{found}")
    x0, y0, x1, y1 = found.boxes.T
    placed = np.array([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0])
    if placed.size and not (placed.min() >= -0.011 and placed.max() <= 1.011):
        raise Disagreement(f"{found.boxes}")
    if (np.diff(found.starts) < 0).any() or (found.owners >= rows).any() or len(found.starts) != len(found.owners):
        raise Disagreement(f"{found}")
    if form.keypoints is not None:
        places, numbers = form.keypoints
        if len(found.points) != rows * places or found.visibility.size != rows * places * (numbers == 3):
            raise Disagreement(f"{found}")
