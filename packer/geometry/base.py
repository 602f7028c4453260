"""Base of the geometries: a rule that makes a view, one matrix, for each sample."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from packer.errors import InvalidRequest
from packer.geometry.view import View

MOST_PX = 1 << 20  # each way; a typing error, not an image


class Geometry(ABC):
    """Makes views; a frozen dataclass of plain values, so that it pickles, compares and prints.

    draws: how many random numbers one view takes. They are handed in, so that the same numbers give the same view in
    whatever thread or process: `packer.geometry.draw` makes them of (seed, epoch, sample index).
    """

    draws: int = 0  # not annotated in subclasses: a constant of the class, no field

    @abstractmethod
    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """The view for an image of that size in px. random: `draws` numbers, 0 <= r < 1. Raises BadInput."""


def as_size(size: object, what: str) -> tuple[int, int]:
    """`size` or (height, width) in px as a pair; raises InvalidRequest."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    lengths = [length for length in pair if isinstance(length, int) and 1 <= length <= MOST_PX]
    if len(pair) != 2 or len(lengths) != 2:
        raise InvalidRequest(
            f"{what}: size {size!s:.80}: expected a whole number of px, at least 1 and at most {MOST_PX}, or a pair of "
            "them, (height, width)"
        )
    return lengths[0], lengths[1]


def as_range(
    given: object, what: str, *, least: float = float("-inf"), most: float = float("inf")
) -> tuple[float, float]:
    """A pair of numbers least <= low <= high <= most; raises InvalidRequest."""
    pair = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    numbers = [number for number in pair if isinstance(number, (int, float)) and not isinstance(number, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not least <= numbers[0] <= numbers[1] <= most:
        raise InvalidRequest(
            f"{what}: {given!r}: expected a pair (low, high) with {least:g} <= low <= high <= {most:g}"
        )
    return numbers[0], numbers[1]
