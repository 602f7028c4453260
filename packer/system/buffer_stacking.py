"""Buffer stacking: copies many values of equal size from separate buffers into one array.

NumPy copies one value per call. Each call releases and acquires the interpreter lock, so threads do not help. OpenCV's
vconcat copies a list in one call, without the lock.
"""

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from packer.schema import Buffer

_MOST_COLUMNS = (1 << 31) - 1  # limit of an OpenCV matrix


def gather(values: Sequence[Buffer], out: npt.NDArray[np.uint8]) -> None:
    """Copy the first `size` bytes of values[i] into row i of `out`, C-contiguous uint8 (len(values), size)."""
    count, size = out.shape
    if not out.size:
        return
    rows = [np.frombuffer(value, np.uint8, size).reshape(1, size) for value in values]
    if size > _MOST_COLUMNS or cv2.vconcat(rows, out) is not out:
        np.concatenate(rows, out=out)
