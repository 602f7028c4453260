"""View: where each output pixel comes from. Resize: the first geometry, used when packing.

A view is a 2x3 matrix from stored to output pixels. Coordinates are (x, y) with integer values at pixel centres, so
that a resize by s is x' = s (x + 0.5) - 0.5. Everything that moves pixels is one such matrix; two of them multiply.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import Refused

Matrix = npt.NDArray[np.float64]

_WANTED_SIZE = re.compile(r"(?:([0-9]{1,5})x)?([0-9]{1,5})", re.IGNORECASE)

# EXIF orientation (TIFF 6.0 / EXIF 2.3 tag 0x0112): a, b, d, e of (x, y) -> (a x + b y, d x + e y), before the shift
_ORIENTATIONS = {
    1: (1, 0, 0, 1),
    2: (-1, 0, 0, 1),
    3: (-1, 0, 0, -1),
    4: (1, 0, 0, -1),
    5: (0, 1, 1, 0),
    6: (0, -1, 1, 0),
    7: (0, -1, -1, 0),
    8: (0, 1, -1, 0),
}


@dataclass(frozen=True)
class View:
    """A map of pixels: `matrix` holds a, b, c, d, e, f of x' = a x + b y + c and y' = d x + e y + f.

    size: (height, width) of the output in px.
    """

    matrix: tuple[float, float, float, float, float, float]
    size: tuple[int, int]

    @cached_property
    def array(self) -> Matrix:
        """The matrix as float64 (2, 3)."""
        return np.asarray(self.matrix, np.float64).reshape(2, 3)

    def then(self, other: "View") -> "View":
        """This view followed by `other`: one view that does both."""
        product = other.array @ np.vstack([self.array, [0.0, 0.0, 1.0]])
        return View(tuple(product.ravel().tolist()), other.size)

    def is_identity(self, height: int, width: int) -> bool:
        """Whether the view leaves an image of that size as it is."""
        return self.matrix == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0) and self.size == (height, width)


def identity(height: int, width: int) -> View:
    """The view that changes nothing."""
    return View((1.0, 0.0, 0.0, 0.0, 1.0, 0.0), (height, width))


def upright(orientation: int, height: int, width: int) -> View:
    """The view that shows a stored (height, width) picture upright; orientation is the EXIF value 1-8."""
    a, b, d, e = _ORIENTATIONS[orientation]
    size = (height, width) if b == 0 else (width, height)
    c = size[1] - 1 if a + b < 0 else 0
    f = size[0] - 1 if d + e < 0 else 0
    return View((float(a), float(b), float(c), float(d), float(e), float(f)), size)


@dataclass(frozen=True)
class Resize:
    """Scale to exactly (height, width), or, with one number, the shorter side to it with the aspect ratio kept.

    The longer side is int(length * N / shorter), as torchvision's Resize has it. Smaller pictures are enlarged.
    """

    height: int
    width: int | None = None

    def __post_init__(self) -> None:
        if self.height < 1 or (self.width is not None and self.width < 1):
            raise Refused(f"resize to {self.height}x{self.width}: expected at least 1 pixel")

    @classmethod
    def parse(cls, text: str) -> "Resize":
        """From what the user types: `N` (shorter side) or `WxH`; raises Refused."""
        match = _WANTED_SIZE.fullmatch(text)
        if match is None:
            raise Refused(f"resize {text!r}: expected N (shorter side in px) or WxH, such as 256 or 640x480")
        return cls(int(match[2]), int(match[1]) if match[1] else None)

    def view(self, height: int, width: int) -> View:
        """The view for a picture of that size."""
        if self.width is not None:
            size = (self.height, self.width)
        elif height <= width:
            size = (self.height, int(width * self.height / height))
        else:
            size = (int(height * self.height / width), self.height)
        sy, sx = size[0] / height, size[1] / width
        return View((sx, 0.0, 0.5 * sx - 0.5, 0.0, sy, 0.5 * sy - 0.5), size)


def move_points(points: npt.NDArray[Any], matrix: Matrix) -> npt.NDArray[np.float32]:
    """float (..., 2) points x, y through a (2, 3) matrix; returns float32 of the same shape."""
    moved = np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2]
    return np.asarray(moved, np.float32)


def move_boxes(boxes: npt.NDArray[Any], matrix: Matrix) -> npt.NDArray[np.float32]:
    """float (N, 4) boxes x0, y0, x1, y1 through a matrix: the upright box around the moved corners."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    corners = move_points(boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2), matrix)
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
