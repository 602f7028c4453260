"""Camera: a pinhole that looks at the table.

A ray through the pixel (x, y) is position + t (forward + (x - cx) right / focal + (y - cy) down / focal), so t is the
depth along the optical axis. Before the perspective division everything is linear in x and y.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Plane = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Camera:
    """A pinhole camera above the table, its picture upright.

    height: of the pinhole above the table in m; back: how far it stands behind the point it looks at, in m.
    focal: in px. size: (height, width) of the picture in px. side: shift along the table's x axis in m.
    """

    height: float
    back: float
    focal: float
    size: tuple[int, int]
    side: float = 0.0

    @cached_property
    def position(self) -> Vector:
        """The pinhole."""
        return np.array([self.side, -self.back, self.height])

    @cached_property
    def axes(self) -> Vector:
        """Rows: right, down, forward; unit vectors."""
        angle = math.atan2(self.height, self.back)
        forward = np.array([0.0, math.cos(angle), -math.sin(angle)])
        right = np.array([1.0, 0.0, 0.0])
        return np.stack([right, np.cross(forward, right), forward])

    @property
    def centre(self) -> tuple[float, float]:
        """The optical axis in the picture: (x, y) in px."""
        return (self.size[1] - 1) / 2, (self.size[0] - 1) / 2

    def project(self, points: Vector) -> Vector:
        """World points (N, 3) -> pixels (N, 2), x and y."""
        local = (points - self.position) @ self.axes.T
        return np.asarray(local[:, :2] / local[:, 2:] * self.focal + np.array(self.centre))

    def directions(self, x: Plane, y: Plane, *, rotation: Vector) -> tuple[Plane, Plane, Plane]:
        """Ray directions in the frame whose axes are the columns of `rotation`; x (1, w) and y (h, 1) in px."""
        right, down, forward = (self.axes @ rotation).astype(np.float32)
        across = (x - np.float32(self.centre[0])) / np.float32(self.focal)
        along = (y - np.float32(self.centre[1])) / np.float32(self.focal)
        first, second, third = (right[i] * across + (down[i] * along + forward[i]) for i in range(3))
        return first, second, third

    def table_depth(self) -> Plane:
        """Depth of the table along the optical axis in m, float32 (H, 1): the camera does not roll."""
        y = np.arange(self.size[0], dtype=np.float64)[:, None] - self.centre[1]
        return np.asarray(-self.height / (self.axes[1, 2] * y / self.focal + self.axes[2, 2]), np.float32)

    def ray_lengths(self) -> Plane:
        """Length of the direction through each pixel, float32 (H, W): distance from the pinhole per depth."""
        y, x = np.ogrid[: self.size[0], : self.size[1]]
        squares = ((x - self.centre[0]) / self.focal) ** 2 + ((y - self.centre[1]) / self.focal) ** 2
        return np.asarray(np.sqrt(1 + squares), np.float32)

    def table_to_picture(self) -> Vector:
        """Homography (3, 3) from (x, y, 1) on the table to homogeneous pixels."""
        shift = np.column_stack([np.eye(3)[:, :2], -self.position])
        cx, cy = self.centre
        lens = np.array([[self.focal, 0, cx], [0, self.focal, cy], [0, 0, 1.0]])
        return np.asarray(lens @ self.axes @ shift)

    def raised(self, height: float) -> "Camera":
        """The same view, with the table's plane lowered by `height` in m."""
        scale = (self.height + height) / self.height
        return replace(self, height=self.height * scale, back=self.back * scale)
