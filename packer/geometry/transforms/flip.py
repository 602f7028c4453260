"""Flip: RandomHorizontalFlip mirrors the image left to right."""

from collections.abc import Sequence
from dataclasses import dataclass

from packer.errors import InvalidRequest
from packer.geometry.base import Geometry
from packer.geometry.view import View, identity


@dataclass(frozen=True)
class RandomHorizontalFlip(Geometry):
    """Mirror the image with probability p; exact."""

    p: float = 0.5
    draws = 1

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise InvalidRequest(f"RandomHorizontalFlip: p={self.p}: expected 0 to 1")

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for an image of that size."""
        if random[0] >= self.p:
            return identity(height, width)
        return View((-1.0, 0.0, width - 1.0, 0.0, 1.0, 0.0), (height, width))
