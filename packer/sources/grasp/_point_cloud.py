"""Point cloud of a Cornell scene, as the depth picture that grasp networks train on.

The file is PCD 0.7 as text: header lines up to `DATA ascii`, then one line `x y z rgb index` per valid pixel; x, y, z
in millimetres, index = row * width + column. Depth is the distance sqrt(x^2 + y^2 + z^2) in metres; the pixels without
a point are filled as in dougsm/ggcnn (utils/dataset_processing/image.py: DepthImage.from_pcd, inpaint).
"""

import re
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.registry import import_or_explain
from packer.sources._parse.folder_listing import shown

_DATA = re.compile(rb"^DATA[ \t]+(\w+)[ \t]*\r?\n", re.MULTILINE)
_SPACE = np.isin(np.arange(256), list(b" \t\n\r\x0b\x0c"))
_FIELDS = 5
_USED = (0, 1, 2, 4)  # x, y, z, index: the colour is 0, a denormal or NaN
_EXACT_DIGITS = 15  # an integer of so many digits over a power of ten is the correctly rounded decimal
_FARTHEST = float(np.finfo(np.float32).max)

Array = npt.NDArray[np.float64]


def read_depth(data: bytes, path: Path, *, height: int, width: int) -> npt.NDArray[np.float32]:
    """The filled depth picture of a cloud, float32 (height, width), in metres; raises BadInput."""
    points = read_points(data, path)
    points = points[np.isfinite(points).all(axis=1)]
    index = points[:, 3]
    if not ((index >= 0) & (index < height * width) & (index == np.floor(index))).all():
        raise BadInput(
            f"{shown(str(path))}: point cloud does not fit its picture: pixel indices {index.min():g} ... "
            f"{index.max():g}, expected integers below {width}x{height}; get the file again"
        )
    depth = np.zeros(height * width)
    with np.errstate(over="ignore"):  # infinity is looked for below
        depth[index.astype(np.int64)] = np.sqrt((points[:, :3] ** 2).sum(axis=1)) / 1000.0
    if depth.max() > _FARTHEST:
        raise BadInput(
            f"{shown(str(path))}: point cloud holds a point at a distance of {depth.max():g} m, which float32 has "
            "not; get the file again"
        )
    if not depth.astype(np.float32).any():
        raise BadInput(f"{shown(str(path))}: point cloud holds no valid point; get the file again")
    return _inpaint(depth.reshape(height, width))


def read_points(data: bytes, path: Path) -> Array:
    """x, y, z, index of every point line, float64 (N, 4), in file order; lines that are no point are skipped.

    Raises BadInput where the header does not announce text.
    """
    found = _DATA.search(data)
    if found is None or found[1] != b"ascii":
        kind = "no DATA line" if found is None else f"DATA {found[1].decode('ascii', 'replace')}"
        raise BadInput(
            f"{shown(str(path))}: not a point cloud as text: {kind}, expected DATA ascii; get the file again"
        )
    body = data[found.end() :]
    columns = _decimal_columns(body)
    return _point_lines(body) if columns is None else columns


def png_size(data: bytes, path: Path) -> tuple[int, int]:
    """(height, width) from the header of a PNG file (ISO/IEC 15948, 11.2.2 IHDR); raises BadInput."""
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR" or len(data) < 24:
        raise BadInput(f"{shown(str(path))}: not a PNG file; get it again")
    width, height = struct.unpack(">II", data[16:24])
    return height, width


def _point_lines(body: bytes) -> Array:
    points = []
    for line in body.splitlines():
        words = line.split()
        if len(words) == _FIELDS:
            try:
                points.append([float(words[column]) for column in _USED])
            except ValueError:
                continue
    return np.asarray(points, np.float64).reshape(-1, len(_USED))


def _decimal_columns(body: bytes) -> Array | None:
    """What `_point_lines` gives, in a third of the time and outside the GIL; None where a line is not five decimals."""
    text = np.frombuffer(body, np.uint8)
    edges = np.flatnonzero(np.diff(_SPACE[text], prepend=True, append=True))
    if len(edges) % (2 * _FIELDS):
        return None
    words = edges.reshape(-1, _FIELDS, 2)  # start and end of each
    if body.count(b"\r") != body.count(b"\r\n"):
        return None  # a carriage return alone ends a line, too
    ends = np.flatnonzero(text == ord("\n"))
    first, last = np.searchsorted(ends, words[:, 0, 0]), np.searchsorted(ends, words[:, -1, 0])
    if (first != last).any() or (np.diff(first) <= 0).any():
        return None
    columns = [_decimals(text, words[:, column, 0], words[:, column, 1]) for column in _USED]
    return None if any(column is None for column in columns) else np.stack(columns, axis=1)  # type: ignore[arg-type]


def _decimals(text: npt.NDArray[np.uint8], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Array | None:
    """The numbers in text[start:end], where all are plain decimals of at most 15 digits; else None."""
    if not len(start):
        return np.zeros(0)
    negative = text[start] == ord("-")
    start = start + negative
    length = int((end - start).max())
    if length > _EXACT_DIGITS + 1 or (end - start).min() < 1:
        return None
    mantissa = np.zeros(len(start), np.int64)
    decimals, dots = np.zeros(len(start), np.int8), np.zeros(len(start), np.int8)
    for place in range(length, 0, -1):  # all numbers at once, aligned at their ends
        at = end - place
        inside = at >= start
        character = np.where(inside, text[np.maximum(at, 0)], ord("0"))  # zeros in front change nothing
        digit = character - np.uint8(ord("0"))  # wraps: only digits are below 10
        is_digit, is_dot = digit < 10, character == ord(".")
        if not (is_digit | is_dot).all():
            return None
        mantissa = np.where(is_digit, mantissa * 10 + digit, mantissa)
        decimals += is_digit & (dots > 0)
        dots += is_dot
    digits = end - start - dots
    if dots.max() > 1 or digits.min() < 1 or digits.max() > _EXACT_DIGITS:
        return None
    values = mantissa / 10.0 ** np.arange(_EXACT_DIGITS + 1)[decimals]
    return np.where(negative, -values, values)


def _inpaint(depth: Array) -> npt.NDArray[np.float32]:
    cv2 = import_or_explain("cv2", "--depth-from pcd")  # not at the top: only whoever asks for clouds needs it
    framed = cv2.copyMakeBorder(depth, 1, 1, 1, 1, cv2.BORDER_DEFAULT)
    mask = (framed == 0).astype(np.uint8)
    scale = np.float32(np.abs(framed).max())
    filled = cv2.inpaint(framed.astype(np.float32) / scale, mask, 1, cv2.INPAINT_NS)
    return np.ascontiguousarray(filled[1:-1, 1:-1] * scale, np.float32)
