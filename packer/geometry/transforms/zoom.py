"""Zoom: RandomZoom enlarges the middle of the image, whose size is kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from packer.geometry.base import Geometry, as_range
from packer.geometry.view import View


@dataclass(frozen=True)
class RandomZoom(Geometry):
    """Show the middle `factor` of both sides at the size of the whole; factor is random between low and high.

    0.5 shows the middle quarter of the area twice as large, 1 everything; above 1 the image shrinks and is framed by
    fill.
    """

    low: float = 0.5
    high: float = 1.0
    draws = 1

    def __post_init__(self) -> None:
        as_range((self.low, self.high), "RandomZoom", least=1e-3, most=1e3)

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for an image of that size."""
        return zoomed(self.low + random[0] * (self.high - self.low), height, width)


def zoomed(factor: float, height: int, width: int) -> View:
    """The view that shows the middle `factor` of both sides at the size of the whole."""
    s = 1 / factor
    return View((s, 0.0, (1 - s) * (width - 1) / 2, 0.0, s, (1 - s) * (height - 1) / 2), (height, width))
