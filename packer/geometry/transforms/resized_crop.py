"""Resized crop: RandomResizedCrop, a random crop scaled to a fixed size, as image classifiers are trained."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from packer.geometry.base import Geometry, as_range, as_size
from packer.geometry.view import View, resized_crop
from packer.system.argument_types import check_switches

_TRIES = 10


@dataclass(frozen=True)
class RandomResizedCrop(Geometry):
    """A box of random area, aspect ratio and place, scaled to `size`.

    size: px, or (height, width). scale: least and greatest share of the image's area. ratio: of width to height.
    The rule is that of Inception (Szegedy et al. 2015) as torchvision has it: up to ten tries for a box that fits, else
    the largest one in the middle whose ratio is allowed.
    antialias: see View. With it a box that is at least twice as large as the output lies on a grid of 2, 4 or 8 px, so
    that a JPEG can be decoded at a half, quarter or eighth and the box is still hit exactly.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    antialias: bool = True
    draws = 2 * _TRIES + 2

    def __post_init__(self) -> None:
        as_size(self.size, "RandomResizedCrop")
        as_range(self.scale, "RandomResizedCrop: scale", least=1e-6, most=1.0)
        as_range(self.ratio, "RandomResizedCrop: ratio", least=1e-3, most=1e3)
        check_switches({"antialias": self.antialias})

    @cached_property
    def _constants(self) -> tuple[tuple[int, int], float, float, float]:
        """Size; least logarithm of a ratio, the span of logarithms, and that of the scale."""
        low = math.log(self.ratio[0])
        size = as_size(self.size, "RandomResizedCrop")
        return size, low, math.log(self.ratio[1]) - low, self.scale[1] - self.scale[0]

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for an image of that size."""
        size = self._constants[0]
        h, w, chosen = self._box(height, width, random)
        top, left = int(random[-2] * (height - h + 1)), int(random[-1] * (width - w + 1))
        if not chosen:
            top, left = (height - h) // 2, (width - w) // 2
        if self.antialias and (shrink := min(h / size[0], w / size[1])) >= 2:
            grid = 1 << min(3, int(math.log2(shrink)))  # px that are one at the smallest scale that is not too small
            (top, h), (left, w) = _onto(grid, top, h, height), _onto(grid, left, w, width)
        return resized_crop(top, left, h, w, size=size, antialias=self.antialias)

    def _box(self, height: int, width: int, random: Sequence[float]) -> tuple[int, int, bool]:
        """Height and width of the box, and whether it may lie anywhere."""
        _, low, logarithms, scales = self._constants
        for at in range(0, 2 * _TRIES, 2):
            area = height * width * (self.scale[0] + random[at] * scales)
            ratio = math.exp(low + random[at + 1] * logarithms)
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return h, w, True
        if width / height < self.ratio[0]:
            return max(1, min(height, round(width / self.ratio[0]))), width, False
        if width / height > self.ratio[1]:
            return height, max(1, min(width, round(height * self.ratio[1]))), False
        return height, width, False


def _onto(grid: int, start: int, length: int, whole: int) -> tuple[int, int]:
    """An interval moved onto multiples of `grid`: not shorter, unless the image ends before."""
    length = min(-(-length // grid) * grid, whole // grid * grid)
    start = min(start // grid * grid, (whole - length) // grid * grid)
    return start, length
