"""Conversion of the point cloud of a Cornell scene to the depth image that grasp networks train on.

The file is PCD 0.7 as text: header lines up to `DATA ascii`, then one line `x y z rgb index` per valid pixel. The
positions are in millimeters, and index = row * width + column. Depth is the distance sqrt(x^2 + y^2 + z^2) in meters.
Pixels without a point are filled as in dougsm/ggcnn (utils/dataset_processing/image.py: DepthImage.from_pcd, inpaint).
"""

import io
import re
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.registry import import_or_explain
from packer.sources._message_texts import shown

_DATA = re.compile(rb"^DATA[ \t]+(\w+)[ \t]*\r?\n", re.MULTILINE)
_FIELDS = 5
_USED = (0, 1, 2, 4)  # x, y, z, index; the color is 0, a denormal or NaN
_FARTHEST = float(np.finfo(np.float32).max)

Array = npt.NDArray[np.float64]


def read_depth(data: bytes, path: Path, *, height: int, width: int) -> npt.NDArray[np.float32]:
    """Return the depth image of a point cloud, float32 (height, width), in m, with filled holes. Raises BadInput."""
    points = read_points(data, path)
    points = points[np.isfinite(points).all(axis=1)]
    index = points[:, 3]
    if not ((index >= 0) & (index < height * width) & (index == np.floor(index))).all():
        raise BadInput(
            f"{shown(str(path))}: point cloud does not fit its image: pixel indices {index.min():g} ... "
            f"{index.max():g}, expected integers below {width}x{height}; get the file again"
        )
    depth = np.zeros(height * width)
    with np.errstate(over="ignore"):  # the check below raises BadInput for an infinite distance
        depth[index.astype(np.int64)] = np.sqrt((points[:, :3] ** 2).sum(axis=1)) / 1000.0
    if depth.max() > _FARTHEST:
        raise BadInput(
            f"{shown(str(path))}: point cloud has a distance of {depth.max():g} m, beyond float32; get the file again"
        )
    if not depth.astype(np.float32).any():
        raise BadInput(f"{shown(str(path))}: point cloud has no valid point; get the file again")
    return _inpaint(depth.reshape(height, width))


def read_points(data: bytes, path: Path) -> Array:
    """Return x, y, z (in mm) and pixel index of each line with five numbers, float64 (N, 4).

    Other lines are skipped. Raises BadInput if the header does not contain `DATA ascii`.
    """
    found = _DATA.search(data)
    if found is None or found[1] != b"ascii":
        kind = "without a DATA line" if found is None else f"DATA {found[1].decode('ascii', 'replace')}"
        raise BadInput(
            f"{shown(str(path))}: not a point cloud as text: {kind}, expected DATA ascii; get the file again"
        )
    body = data[found.end() :]
    try:
        table = np.loadtxt(io.BytesIO(body), comments=None, ndmin=2) if body.strip() and body.isascii() else None
    except ValueError:  # a line is not a row of numbers, or is shorter than others
        table = None
    return table[:, _USED] if table is not None and table.shape[1] == _FIELDS else _point_lines(body)


def png_size(data: bytes, path: Path) -> tuple[int, int]:
    """Return (height, width) from the header of a PNG file (ISO/IEC 15948, 11.2.2 IHDR). Raises BadInput."""
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


def _inpaint(depth: Array) -> npt.NDArray[np.float32]:
    cv2 = import_or_explain("cv2", "--depth-from pcd")  # imported late: only point clouds need OpenCV
    framed = cv2.copyMakeBorder(depth, 1, 1, 1, 1, cv2.BORDER_DEFAULT)
    mask = (framed == 0).astype(np.uint8)
    scale = np.float32(np.abs(framed).max())
    filled = cv2.inpaint(framed.astype(np.float32) / scale, mask, 1, cv2.INPAINT_NS)
    return np.ascontiguousarray(filled[1:-1, 1:-1] * scale, np.float32)
