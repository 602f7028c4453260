"""Augmentation of the grasp networks: TurnAndZoom, quarter turns and a zoom into the middle."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from packer.geometry import Geometry, View
from packer.geometry.transforms.rotate import rotated
from packer.geometry.transforms.zoom import zoomed

TURNS = (0.0, math.pi / 2, 2 * math.pi / 2, 3 * math.pi / 2)  # radians, counter-clockwise as seen
LEAST_ZOOM = 0.5


@dataclass(frozen=True)
class TurnAndZoom(Geometry):
    """One of four turns, and a zoom that shows between 0.5 and 1 of both sides; each may be left out.

    GraspDataset uses the two numbers, about the place that it turns about; `view` turns about the picture's middle.
    """

    turn: bool = True
    zoom: bool = True
    draws = 2

    def chosen(self, random: Sequence[float]) -> tuple[float, float]:
        """Turn in radians and zoom of these random numbers."""
        rot = TURNS[int(random[0] * len(TURNS))] if self.turn else 0.0
        return rot, LEAST_ZOOM + random[1] * (1 - LEAST_ZOOM) if self.zoom else 1.0

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for a picture of that size."""
        rot, zoom = self.chosen(random)
        return rotated(round(math.degrees(rot)), height, width).then(zoomed(zoom, height, width))
