"""Label statistics: grasps, boxes and points per sample, classes, numbers and texts."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.codecs.base import StoredPicture
from packer.inspect.statistics.accumulators import Lengths, Moments
from packer.inspect.statistics.field_collector import Collector
from packer.schema import Field

_MOST_TEXTS = 10_000  # distinct values that are counted one by one
_LONGEST = 1000  # characters of one


class _Shapes(NamedTuple):
    total: int
    unsound: int
    sides: tuple[Moments, Moments]


class ShapeCollector(Collector):
    """How many grasps, boxes or points a sample has, and their sides in px of the stored picture."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.counts = Lengths()
        self._unsound = 0
        self._sides = (Moments(), Moments())
        grasps = field.kind == "points" and field.shape is not None and field.shape[1:] == (4, 2)
        self._names = ("opening", "jaw") if grasps else ("width", "height") if field.kind == "boxes" else ()

    def measure(self, value: npt.NDArray[Any], stored: StoredPicture | None) -> _Shapes:
        given = np.asarray(value, np.float64)
        sound = given[np.isfinite(given).all(axis=tuple(range(1, given.ndim)))] if given.ndim else given
        return _Shapes(len(given), len(given) - len(sound), self._lengths(sound))

    def _lengths(self, sound: npt.NDArray[np.float64]) -> tuple[Moments, Moments]:
        if not self._names or not len(sound):
            return Moments(), Moments()
        if self.field.kind == "boxes":
            first, second = sound[:, 2] - sound[:, 0], sound[:, 3] - sound[:, 1]
        else:
            first, second = (np.linalg.norm(sound[:, at + 1] - sound[:, at], axis=1) for at in (0, 1))
        return Moments.of(first), Moments.of(second)

    def add(self, measured: _Shapes) -> None:
        self.counts.add(measured.total)
        self._unsound += measured.unsound
        first, second = (mine.joined(more) for mine, more in zip(self._sides, measured.sides, strict=True))
        self._sides = first, second

    def result(self) -> dict[str, Any]:
        counts = self.counts.counts
        total = sum(number * count for number, count in counts.items())
        per_sample = {str(number): counts[number] for number in sorted(counts)}
        found = {"total": total, "per_sample": self.counts.result(), "samples": per_sample, "not_finite": self._unsound}
        return {**found, **{name: side.result() for name, side in zip(self._names, self._sides, strict=False)}}


class TextCollector(Collector):
    """How many samples have each text; long ones, and those beyond a number of different ones, are counted together."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.counts: Counter[str] = Counter()
        self._others = 0

    def measure(self, value: str, stored: StoredPicture | None) -> str:
        return value

    def add(self, measured: str) -> None:
        known = measured in self.counts
        if known or (len(self.counts) < _MOST_TEXTS and len(measured) <= _LONGEST):
            self.counts[measured] += 1
        else:
            self._others += 1

    def result(self) -> dict[str, Any]:
        ordered = dict(sorted(self.counts.items(), key=lambda item: (-item[1], item[0])))
        return {"values": ordered, "others": self._others} if self._others else {"values": ordered}


def number_statistics(field: Field, values: npt.NDArray[Any]) -> dict[str, Any]:
    """Those of a number column [n]: samples per class where it has classes, else range, mean and distinct values."""
    if field.classes is not None and values.dtype.kind in "iu":
        return _balance(field.classes, values)
    if not len(values):
        return {}
    sound = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    found = {"distinct": len(np.unique(values)), "not_finite": len(values) - len(sound)}
    if values.dtype.kind in "iub":  # beyond 2**53 a float64 is no longer exact
        ends = {"min": int(sound.min()), "max": int(sound.max())}
        return {**found, "range": {**Moments.of(sound).result(), **ends}}
    return {**found, "range": Moments.of(sound).result()}


def _balance(classes: tuple[str, ...], values: npt.NDArray[Any]) -> dict[str, Any]:
    inside = values[(values >= 0) & (values < len(classes))]
    counts = np.bincount(inside.astype(np.int64), minlength=len(classes)).tolist()
    found: dict[str, Any] = {"classes": [[name, count] for name, count in zip(classes, counts, strict=True)]}
    found["no_class"] = len(values) - len(inside)
    return found
