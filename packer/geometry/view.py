"""View: a 2x3 matrix from stored to output pixels, and functions that apply a matrix to points and boxes.

Matrices use coordinates (x, y) with integers at pixel centers. A resize by s is therefore x' = s (x + 0.5) - 0.5.
Points also have integers at pixel centers. Boxes have integers at pixel edges, as in COCO and torchvision: the box of
a complete image is (0, 0, width, height). The box coordinate x is half a pixel left of the pixel center x.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.schema import Field

Matrix = npt.NDArray[np.float64]

# EXIF orientation (TIFF 6.0 and EXIF 2.3, tag 0x0112) -> (a, b, d, e) of the matrix
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


class View(NamedTuple):
    """Affine map from stored to output pixels.

    Attributes:
        matrix: (a, b, c, d, e, f) of x' = a x + b y + c and y' = d x + e y + f.
        size: (height, width) of the output in px.
        antialias: True filters an image that becomes smaller. False interpolates between four stored pixels only.
    """

    matrix: tuple[float, float, float, float, float, float]
    size: tuple[int, int]
    antialias: bool = True

    @property
    def array(self) -> Matrix:
        """Matrix as float64 (2, 3), [[a, b, c], [d, e, f]]."""
        return np.asarray(self.matrix, np.float64).reshape(2, 3)

    def then(self, other: "View") -> "View":
        """Return one view that applies this view and then `other`."""
        a, b, c, d, e, f = self.matrix
        p, q, r, s, t, u = other.matrix
        product = (p * a + q * d, p * b + q * e, p * c + q * f + r, s * a + t * d, s * b + t * e, s * c + t * f + u)
        return View(product, other.size, self.antialias and other.antialias)

    def is_identity(self, height: int, width: int) -> bool:
        """Return True if the view does not change an image of `height` x `width` pixels."""
        return self.matrix == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0) and self.size == (height, width)

    def of(self, top: float, left: float, scale: float = 1.0) -> "View":
        """Return the view for a part of the stored image that is scaled by `scale`. The output remains the same.

        (top, left) is the position of the part in the scaled image, in px.
        """
        a, b, c, d, e, f = self.matrix
        x, y = (left + 0.5) / scale - 0.5, (top + 0.5) / scale - 0.5  # pixel (0, 0) of the part in the complete image
        matrix = (a / scale, b / scale, a * x + b * y + c, d / scale, e / scale, d * x + e * y + f)
        return View(matrix, self.size, self.antialias)


def identity(height: int, width: int) -> View:
    """Return the view that does not change an image of `height` x `width` pixels."""
    return View((1.0, 0.0, 0.0, 0.0, 1.0, 0.0), (height, width))


def resized_crop(
    top: int, left: int, height: int, width: int, *, size: tuple[int, int], antialias: bool = True
) -> View:
    """Return the view that crops a box and resizes the box, as in torchvision's functional resized_crop.

    Args:
        top: First row of the box.
        left: First column of the box.
        height: Number of rows of the box.
        width: Number of columns of the box.
        size: (height, width) of the output in px.
        antialias: True filters a box that becomes smaller. False interpolates between four pixels only.
    """
    sy, sx = size[0] / height, size[1] / width
    # the matrix maps the left edge of the box, left - 0.5, to the left edge of the output, -0.5
    return View((sx, 0.0, sx * (0.5 - left) - 0.5, 0.0, sy, sy * (0.5 - top) - 0.5), size, antialias)


def upright(orientation: int, height: int, width: int) -> View:
    """Return the view that rotates or flips a stored image of `height` x `width` px to the displayed orientation.

    `orientation` is the value of EXIF, 1 to 8.
    """
    a, b, d, e = _ORIENTATIONS[orientation]
    size = (height, width) if b == 0 else (width, height)
    c = size[1] - 1 if a + b < 0 else 0
    f = size[0] - 1 if d + e < 0 else 0
    return View((float(a), float(b), float(c), float(d), float(e), float(f)), size)


# ---- points and boxes


def move_points(points: npt.NDArray[Any], matrix: Matrix, *, edges: bool = False) -> npt.NDArray[np.float32]:
    """Apply a matrix (2, 3) to points (..., 2), x and y. Return float32 points of equal shape.

    If `edges` is True, integer coordinates are at pixel edges, as in polygons. If False, they are at pixel centers.
    """
    given = np.asarray(points, np.float64)
    if edges:
        return np.asarray((given - 0.5) @ matrix[:, :2].T + matrix[:, 2] + 0.5, np.float32)
    return np.asarray(given @ matrix[:, :2].T + matrix[:, 2], np.float32)


def move_boxes(boxes: npt.NDArray[Any], matrix: Matrix) -> npt.NDArray[np.float32]:
    """Apply a matrix to boxes. Return the axis-aligned boxes around the transformed corners, float32 (N, 4).

    Args:
        boxes: (N, 4), x0, y0, x1, y1 in px. Integers are at pixel edges.
        matrix: (2, 3), from input pixels to output pixels, with integers at pixel centers.
    """
    corners = np.asarray(boxes, np.float64).reshape(-1, 4)[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    moved = (corners - 0.5) @ matrix[:, :2].T + matrix[:, 2] + 0.5
    return np.concatenate([moved.min(axis=1), moved.max(axis=1)], axis=1).astype(np.float32)


def move_values(field: Field, values: npt.NDArray[Any], matrix: Matrix) -> npt.NDArray[Any]:
    """Return `values` of a `field` of points or boxes, moved by a matrix (2, 3).

    If the field contains areas, they are scaled by the absolute determinant of the matrix.
    """
    if field.is_area:
        (a, b), (d, e) = matrix[:, :2].tolist()
        scaled: npt.NDArray[Any] = values * abs(a * e - b * d)
        return scaled
    if field.kind == "boxes":
        return move_boxes(values, matrix)
    return move_points(values, matrix, edges=field.edges)
