"""Repeated runs: runs that take turns, and their medians with lowest and highest."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Figure = TypeVar("Figure")


def interleaved(runs: Mapping[str, Callable[[], Figure]], rounds: int) -> dict[str, list[Figure]]:
    """Each function once per round, in turn, after one round that does not count; what they return is collected."""
    found: dict[str, list[Figure]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            value = run()
            if number:
                found[name].append(value)
    return found


def ratio(found: dict[str, list[float]], one: str, other: str) -> float:
    """Median over the rounds of one / other."""
    return statistics.median(a / b for a, b in zip(found[one], found[other], strict=True))


def spread(values: Sequence[float], unit: str, digits: int = 2) -> str:
    """median (min - max)."""
    return f"{statistics.median(values):.{digits}f} {unit}  ({min(values):.{digits}f} - {max(values):.{digits}f})"


def percentile(values: Sequence[float], percent: float) -> float:
    """By linear interpolation between the two nearest of the sorted values, as numpy.percentile has it; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
