"""Parser of the rectangle labels of GraspNet-1Billion: an .npy file with seven numbers per grasp.

A row is center x, center y, open x, open y, height, score, object number. The open point is the middle of one end of
the rectangle. The opening is twice the distance between open point and center. The height is the length of the jaws.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.files.npy_arrays import read_header
from packer.sources._message_texts import shown

COLUMNS = 7
_LARGEST_ID = 1 << 53  # float64 represents all whole numbers up to this limit


class GraspNetRows(NamedTuple):
    """Grasps of a file.

    Attributes:
        rows: Finite rows of the file, float64 (N, 7): center x, center y, open x, open y, height, score, object.
        corners: Corners of the grasp rectangles, float32 (N, 4, 2), in px.
        total: Number of rows in the file, including the skipped rows.
    """

    rows: npt.NDArray[np.float64]
    corners: npt.NDArray[np.float32]
    total: int

    @property
    def dropped(self) -> int:
        """Return the number of skipped rows."""
        return self.total - len(self.rows)

    @property
    def flat(self) -> int:
        """Return the number of `rows` with an opening of 0, or with a height of 0 or below."""
        is_closed = (self.rows[:, :2] == self.rows[:, 2:4]).all(axis=1)
        return int((is_closed | (self.rows[:, 4] <= 0)).sum())


def read_graspnet_rows(data: bytes, path: Path) -> GraspNetRows:
    """Parse an .npy file. Rows with NaN or a number beyond float32 are skipped. path: for messages.

    Raises BadInput if the file is not an array of seven numbers per row, or if an object is not a whole number.
    """
    where = shown(str(path))
    try:
        header = read_header(data)
    except ValueError as error:
        raise BadInput(f"{where}: cannot read the grasps: {error}; get the file again") from error
    expected = f"an array (N, {COLUMNS}) of float32 or float64"
    if header.name not in ("float32", "float64") or len(header.shape) != 2 or header.shape[1] != COLUMNS:
        raise BadInput(f"{where}: found {header.name} {header.shape}, expected {expected}; get the file again")
    size = header.shape[0] * COLUMNS * header.dtype.itemsize
    if len(data) - header.data_at != size:
        raise BadInput(
            f"{where}: {len(data) - header.data_at} bytes of data, expected {size} by its header; get it again"
        )
    array = np.frombuffer(data, header.dtype, offset=header.data_at)
    shaped = array.reshape(header.shape, order="F" if header.is_fortran else "C")
    with np.errstate(all="ignore"):  # NaN and numbers beyond float32 are skipped
        rows = np.ascontiguousarray(shaped, np.float64)
        placed = corners(rows)
        kept = np.isfinite(rows).all(axis=1) & np.isfinite(placed).all(axis=(1, 2))
        kept &= np.isfinite(rows[:, 5].astype(np.float32))
    rows, placed = rows[kept], placed[kept]
    objects = rows[:, 6]
    strange = np.flatnonzero((objects != np.floor(objects)) | (np.abs(objects) > _LARGEST_ID))
    if len(strange):
        raise BadInput(
            f"{where}: object {objects[strange[0]]}: expected a whole number in the last column; get the file again"
        )
    return GraspNetRows(rows, placed, len(shaped))


def corners(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the corners, float32 (N, 4, 2), of rows (N, 7). p0 -> p1 is the opening axis, toward the open point."""
    center, half = rows[:, :2], rows[:, 2:4] - rows[:, :2]
    length = np.hypot(half[:, 0], half[:, 1])[:, None]
    along = np.where(length > 0, half / np.where(length > 0, length, 1), [1.0, 0.0])  # opening 0: along x
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) * rows[:, 4:5] / 2
    ends = [center - half - across, center + half - across, center + half + across, center - half + across]
    return np.asarray(np.stack(ends, axis=1), np.float32)
