"""Rotate: RandomRotation, about the middle of the image, whose size is kept."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from packer.errors import InvalidRequest
from packer.geometry.base import Geometry, as_range
from packer.geometry.view import View

_QUARTERS = {0: (1.0, 0.0), 90: (0.0, 1.0), 180: (-1.0, 0.0), 270: (0.0, -1.0)}  # cos, sin without rounding


@dataclass(frozen=True)
class RandomRotation(Geometry):
    """Turn by a random angle in degrees, counter-clockwise as seen; what was outside is filled.

    degrees: d for -d to d, or (low, high). choices: if given, one of these angles instead, such as (0, 90, 180, 270).
    Quarter turns of square images move whole pixels and are exact.
    """

    degrees: float | tuple[float, float] = 180.0
    choices: tuple[float, ...] = ()
    draws = 1

    def __post_init__(self) -> None:
        as_range(self._range(), "RandomRotation: degrees", least=-1e6, most=1e6)
        angles = self.choices if isinstance(self.choices, (tuple, list)) else (None,)
        if not all(isinstance(angle, (int, float)) and math.isfinite(angle) for angle in angles):
            raise InvalidRequest(
                f"RandomRotation: choices {self.choices!r}: expected angles in degrees, such as (0, 90)"
            )

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for an image of that size."""
        if self.choices:
            return rotated(self.choices[int(random[0] * len(self.choices))], height, width)
        low, high = self._range()
        return rotated(low + random[0] * (high - low), height, width)

    def _range(self) -> tuple[float, float]:
        if isinstance(self.degrees, (int, float)):
            return -self.degrees, self.degrees
        return self.degrees


def rotated(degrees: float, height: int, width: int) -> View:
    """The view that turns an image about its middle, counter-clockwise as seen (y points down)."""
    angle = math.radians(degrees)
    cos, sin = _QUARTERS.get(degrees % 360, (math.cos(angle), math.sin(angle)))  # type: ignore[call-overload]
    x, y = (width - 1) / 2, (height - 1) / 2
    return View((cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y), (height, width))
