"""Accumulators: numbers added up exactly, or as exactly as float64 can."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt


class Lengths:
    """Whole numbers counted one by one: least, most, mean and median are exact."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, number: int) -> None:
        """One more."""
        self.counts[number] += 1

    def result(self) -> dict[str, Any]:
        """min, median (the lower of two middle ones), mean and max; nothing where nothing was counted."""
        total = self.counts.total()
        if not total:
            return {}
        ordered = sorted(self.counts)
        passed, median = 0, ordered[0]
        for number in ordered:
            passed += self.counts[number]
            if 2 * passed >= total:
                median = number
                break
        mean = Fraction(sum(number * count for number, count in self.counts.items()), total)
        return {"min": ordered[0], "median": median, "mean": float(mean), "max": ordered[-1]}


class Totals:
    """Whole numbers added up, in memory that does not grow: sum, least, most and mean are exact."""

    def __init__(self) -> None:
        self.count = self.total = self._most = 0
        self._least: int | None = None

    def add(self, number: int) -> None:
        """One more."""
        self.count += 1
        self.total += number
        self._most = max(self._most, number)
        self._least = number if self._least is None else min(self._least, number)

    def result(self) -> dict[str, Any]:
        """total; and where something was added min, mean and max."""
        if not self.count:
            return {"total": 0}
        mean = float(Fraction(self.total, self.count))
        return {"total": self.total, "min": self._least, "mean": mean, "max": self._most}


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared distances from it, of float64 numbers, with the least and the most of them.

    Two of them are joined without the cancellation that a sum of squares has: T. Chan, G. Golub, R. LeVeque, "Updating
    formulae and a pairwise algorithm for computing sample variances", 1979.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> "Moments":
        """Those of an array of finite numbers."""
        if not values.size:
            return cls()
        given = values.astype(np.float64)
        mean = float(given.mean())
        squares = float(np.square(given - mean).sum())
        return cls(given.size, mean, squares, float(given.min()), float(given.max()))

    def joined(self, other: "Moments") -> "Moments":
        """Those of both together."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        share = other.count / count
        squares = self.squares + other.squares + apart * apart * self.count * share
        mean = self.mean + apart * share
        return Moments(count, mean, squares, min(self.least, other.least), max(self.most, other.most))

    def result(self) -> dict[str, Any]:
        """min, mean, std (of all, not of a sample) and max; nothing where there is no number."""
        if not self.count:
            return {}
        deviation = math.sqrt(self.squares / self.count)
        return {"min": self.least, "mean": self.mean, "std": deviation, "max": self.most}


def exact_mean_std(histogram: Iterable[int]) -> tuple[float, float]:
    """Mean and standard deviation of whole numbers, of which there are histogram[v] of value v; rounded once."""
    counts = list(histogram)
    total = sum(counts)
    first = sum(value * count for value, count in enumerate(counts))
    second = sum(value * value * count for value, count in enumerate(counts))
    return float(Fraction(first, total)), math.sqrt(Fraction(total * second - first * first, total * total))
