"""Shadow: where parts keep the lamp or the sky away, on the table and on each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
import numpy.typing as npt

from packer.synthetic.rendering.camera import Camera
from packer.synthetic.rendering.part import Part, Plane, Planes, Vector

Picture = npt.NDArray[np.uint8]

_RIM = 0.035  # m around the shadow, for its soft edge


@dataclass(frozen=True)
class Lamp:
    """A far lamp and a sky.

    azimuth, elevation: where the lamp stands, in rad. strength, sky: their light on a surface that faces them.
    softness: how fast a shadow's edge widens, in m per m between the table and what casts it.
    """

    azimuth: float
    elevation: float
    strength: float = 1.0
    sky: float = 0.55
    softness: float = 0.25

    @cached_property
    def towards(self) -> Vector:
        """Unit vector to the lamp."""
        flat = math.cos(self.elevation)
        return np.array([flat * math.cos(self.azimuth), flat * math.sin(self.azimuth), math.sin(self.elevation)])

    def on_table(self) -> float:
        """Light on the empty table; pictures are exposed for it."""
        return self.strength * math.sin(self.elevation) + self.sky


def lit(parts: Sequence[Part], lamp: Lamp, *, points: Planes, normals: Planes) -> Plane:
    """1 where M points of the parts see the lamp, 0 where a part is in between; float32 (M,)."""
    towards = lamp.towards.astype(np.float32)
    # start off the surface, or rounding makes it shade itself
    x, y, z = (p + np.float32(0.0015) * n for p, n in zip(points, normals, strict=True))
    seen = np.ones(x.shape, bool)
    for part in parts:
        seen &= ~np.isfinite(part.hit(part.to_local((x, y, z)), _turned(part, towards)))
    return seen.astype(np.float32)


class Shadow:
    """A map of the light on the table around some parts."""

    def __init__(self, parts: Sequence[Part], lamp: Lamp, *, cells: int) -> None:
        """cells: of the map, along its longer side."""
        corners = np.concatenate([part.corners for part in parts])
        slope = lamp.towards[:2] / lamp.towards[2]
        ground = np.concatenate([corners[:, :2], corners[:, :2] - np.maximum(corners[:, 2:], 0) * slope])
        self._low, high = ground.min(0) - _RIM, ground.max(0) + _RIM
        self._cell = float((high - self._low).max()) / cells
        self._shape = tuple(int(n) for n in np.ceil((high - self._low) / self._cell)[::-1])
        self._light = self._map(parts, lamp)

    def darken(self, picture: Picture, camera: Camera) -> None:
        """Multiply the light into a picture of the table, uint8 (H, W, 3), in place."""
        rows, columns = self._shape
        to_table = np.array([[self._cell, 0, self._low[0]], [0, self._cell, self._low[1]], [0, 0, 1.0]])
        to_picture = camera.table_to_picture() @ to_table
        rim = np.array([[0, 0, 1], [columns, 0, 1], [0, rows, 1], [columns, rows, 1.0]]) @ to_picture.T
        pixels = rim[:, :2] / rim[:, 2:]
        limits = np.array([picture.shape[1], picture.shape[0]])
        left, top = (int(n) for n in np.clip(np.floor(pixels.min(0)), 0, limits - 1))
        right, bottom = (int(n) for n in np.clip(np.ceil(pixels.max(0)), (left + 1, top + 1), limits))
        shift = np.array([[1, 0, -left], [0, 1, -top], [0, 0, 1.0]])
        size = (right - left, bottom - top)
        light = cv2.warpPerspective(self._light, shift @ to_picture, size, borderValue=255)
        view = picture[top:bottom, left:right]
        view[:] = cv2.multiply(view, cv2.cvtColor(light, cv2.COLOR_GRAY2BGR), scale=1 / 255)

    def _map(self, parts: Sequence[Part], lamp: Lamp) -> Picture:
        """uint8 (rows, columns): 255 in full light, after gamma."""
        sun = self._soft(*self._cast(parts, lamp.towards), spread=lamp.softness)
        distance = self._cast(parts, np.array([0, 0, 1.0]))[1]
        near = np.exp(-distance / np.float32(0.03))
        sky = cv2.GaussianBlur(near, (0, 0), max(0.6, 0.012 / self._cell)) * 0.75
        beam = lamp.strength * math.sin(lamp.elevation)
        light = (beam * (1 - sun) + lamp.sky * (1 - sky)) / lamp.on_table()
        return np.asarray((255 * np.sqrt(np.clip(light, 0, 1)) + 0.5).astype(np.uint8))

    def _cast(self, parts: Sequence[Part], towards: Vector) -> tuple[Plane, Plane]:
        """Rays from the table's cells: 1 where they meet a part, and the distance to it (inf where they do not)."""
        rows, columns = self._shape
        x = (self._low[0] + (np.arange(columns)[None, :] + 0.5) * self._cell).astype(np.float32)
        y = (self._low[1] + (np.arange(rows)[:, None] + 0.5) * self._cell).astype(np.float32)
        distance = np.full(self._shape, np.inf, np.float32)
        for part in parts:
            t = part.hit(part.to_local((x, y, np.zeros((), np.float32))), _turned(part, towards.astype(np.float32)))
            np.minimum(distance, t, out=distance)
        return np.isfinite(distance).astype(np.float32), distance

    def _soft(self, hard: Plane, distance: Plane, *, spread: float) -> Plane:
        """A shadow whose edge is sharp where it touches its thing and widens with the distance."""
        weight = cv2.GaussianBlur(hard, (0, 0), 3.0)
        known = cv2.GaussianBlur(np.where(hard > 0, distance, np.float32(0)), (0, 0), 3.0)
        width = spread * known / (weight + np.float32(1e-3)) / np.float32(self._cell)  # in cells
        sharp, wide = cv2.GaussianBlur(hard, (0, 0), 0.7), cv2.GaussianBlur(hard, (0, 0), 5.0)
        mix = np.clip((width - 0.7) / 4.3, 0, 1)
        return np.asarray(sharp + (wide - sharp) * mix)


def _turned(part: Part, direction: npt.NDArray[np.float32]) -> Planes:
    local = part.turn.T @ direction
    return local[0:1].reshape(()), local[1:2].reshape(()), local[2:3].reshape(())
