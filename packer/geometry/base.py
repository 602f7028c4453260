"""Geometry: a rule that makes a view per sample."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from packer.errors import Refused
from packer.geometry.view import View

MOST_PX = 1 << 20  # each way; a typing error, not a picture


class Geometry(ABC):
    """Makes views; a frozen dataclass of plain values, so that it pickles, compares and prints.

    draws: how many random numbers one view takes. They are handed in, so that the same numbers give the same view in
    whatever thread or process: `packer.geometry.draw` makes them of (seed, epoch, sample index).
    """

    draws: int = 0  # not annotated in subclasses: a constant of the class, no field

    @abstractmethod
    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for a picture of that size in px. random: `draws` numbers, 0 <= r < 1. Raises BadInput."""


def as_size(size: int | tuple[int, int], what: str) -> tuple[int, int]:
    """`size` or (height, width) in px as a pair; raises Refused."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(isinstance(length, int) and 1 <= length <= MOST_PX for length in pair):
        raise Refused(f"{what}: size {size!r}: expected a whole number of px, or a pair (height, width)")
    return pair[0], pair[1]


def as_range(low: float, high: float, what: str, *, least: float = float("-inf"), most: float = float("inf")) -> None:
    """Raise Refused unless least <= low <= high <= most."""
    if not least <= low <= high <= most:
        raise Refused(f"{what}: ({low}, {high}): expected {least} <= low <= high <= {most}")
