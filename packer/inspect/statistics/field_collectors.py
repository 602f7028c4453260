"""Field collectors: what is measured of one field, sample by sample: pictures, grasps, boxes, points, numbers, texts.

`measure` is called in many threads and changes nothing; what it returns is small. `add` gets what it returned, in the
order of the samples, in one thread. `result` is plain JSON.
"""

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from packer.codecs.base import StoredPicture
from packer.geometry.warp.depth import is_valid
from packer.images import Header
from packer.inspect.statistics.accumulators import Lengths, Moments, exact_mean_std
from packer.schema import Field

_COMMON = 5
_CHANNELS = {1: "gray", 2: "gray with alpha", 3: "colour", 4: "colour with alpha"}
_MOST_BLOCK = 1 << 24  # calcHist counts in float32, which is exact so far
_WIDE_VALUES = 1 << 16  # of a mask of 16 bit
_MOST_LISTED = 256  # of these
_BINS = 1 << 16  # of a depth: the upper half of a float32, a step of 0.8 % at most

Counts = npt.NDArray[np.int64]


class Collector(ABC):
    """Base of all collectors; see the module's contract."""

    def __init__(self, field: Field) -> None:
        self.field = field

    @abstractmethod
    def measure(self, value: Any, stored: StoredPicture | None) -> Any:
        """What a decoded value adds; stored: what is known of a picture before it is decoded. Changes nothing."""

    @abstractmethod
    def add(self, measured: Any) -> None:
        """Take in what `measure` returned."""

    @abstractmethod
    def result(self) -> dict[str, Any]:
        """What was found, as JSON has it."""


# ---- pictures


class Pixels(NamedTuple):
    """What one picture adds: stored (height, width), mode, and what the kind wants of its pixels."""

    size: tuple[int, int]
    mode: str
    found: Any


class PictureCollector(Collector):
    """Sizes and modes; the base of those for one kind."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.sizes: Counter[tuple[int, int]] = Counter()  # height, width
        self.modes: Counter[str] = Counter()

    def measure(self, value: npt.NDArray[Any], stored: StoredPicture | None) -> Pixels:
        header = stored.header if stored is not None else None
        return Pixels((int(value.shape[0]), int(value.shape[1])), _mode(self.field, header), self.pixels(value))

    def add(self, measured: Pixels) -> None:
        self.sizes[measured.size] += 1
        self.modes[measured.mode] += 1
        self.add_pixels(measured.found)

    def pixels(self, value: npt.NDArray[Any]) -> Any:
        """What is to be known of the pixels."""

    def add_pixels(self, found: Any) -> None:
        """Take in what `pixels` returned."""

    def result(self) -> dict[str, Any]:
        widths, heights = Lengths(), Lengths()
        for (height, width), count in self.sizes.items():
            heights.counts[height] += count
            widths.counts[width] += count
        ordered = sorted(self.sizes.items(), key=lambda item: (-item[1], item[0]))
        common = [{"width": width, "height": height, "count": count} for (height, width), count in ordered[:_COMMON]]
        sizes = {"distinct": len(self.sizes), "width": widths.result(), "height": heights.result(), "common": common}
        return {"sizes": sizes, "modes": dict(sorted(self.modes.items(), key=lambda item: (-item[1], item[0])))}


class ImageCollector(PictureCollector):
    """And mean and standard deviation of each channel, exactly: from counts of all 256 values."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.histogram: Counts = np.zeros((3, 256), np.int64)

    def pixels(self, value: npt.NDArray[np.uint8]) -> Counts:
        return histogram(value)

    def add_pixels(self, found: Counts) -> None:
        self.histogram += found

    def result(self) -> dict[str, Any]:
        pixels = int(self.histogram[0].sum())
        if not pixels:
            return super().result()
        both = [exact_mean_std(channel.tolist()) for channel in self.histogram]
        means, deviations = [mean / 255 for mean, _ in both], [deviation / 255 for _, deviation in both]
        return {**super().result(), "pixels": pixels, "mean": means, "std": deviations}


class MaskCollector(PictureCollector):
    """And how many pixels have each value."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.histogram: Counts = np.zeros(256, np.int64)

    def pixels(self, value: npt.NDArray[np.uint8]) -> Counts:
        counts: Counts = histogram(value[..., None])[0]
        return counts

    def add_pixels(self, found: Counts) -> None:
        self.histogram += found

    def result(self) -> dict[str, Any]:
        values = {str(value): int(self.histogram[value]) for value in np.flatnonzero(self.histogram).tolist()}
        return {**super().result(), "pixels": int(self.histogram.sum()), "values": values}


class WideMaskCollector(PictureCollector):
    """And how many pixels have each value of a mask of 16 bit: of the commonest ones, which may be ids of objects."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.histogram: Counts = np.zeros(_WIDE_VALUES, np.int64)

    def pixels(self, value: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int64], Counts]:
        flat, counts = value.ravel(), np.zeros(_WIDE_VALUES, np.int64)
        for start in range(0, len(flat), _MOST_BLOCK):
            counts += np.bincount(flat[start : start + _MOST_BLOCK], minlength=_WIDE_VALUES)
        present = np.flatnonzero(counts)
        return present, counts[present]

    def add_pixels(self, found: tuple[npt.NDArray[np.int64], Counts]) -> None:
        present, counts = found
        self.histogram[present] += counts

    def result(self) -> dict[str, Any]:
        """values: the commonest first; distinct_values: how many there are; others: pixels of those not listed."""
        present = np.flatnonzero(self.histogram)
        listed = present[np.argsort(-self.histogram[present], kind="stable")][:_MOST_LISTED]
        counts = self.histogram[listed]
        pixels = int(self.histogram.sum())
        others = pixels - int(counts.sum())
        return {
            **super().result(),
            "pixels": pixels,
            "distinct_values": len(present),
            "values": {str(value): count for value, count in zip(listed.tolist(), counts.tolist(), strict=True)},
            **({"others": others} if others else {}),
        }


class DepthCollector(PictureCollector):
    """And the range of what is valid, and how much is not: not finite, or the field's invalid value."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.moments = Moments()
        self.bins: Counts = np.zeros(_BINS, np.int64)
        self._pixels = self._empty = 0

    def pixels(self, value: npt.NDArray[np.float32]) -> tuple[int, Moments, Counts]:
        kept = value[is_valid(value, self.field.invalid)]
        return value.size, Moments.of(kept), np.bincount(kept.view(np.uint32) >> 16, minlength=_BINS)

    def add_pixels(self, found: tuple[int, Moments, Counts]) -> None:
        size, moments, bins = found
        self._pixels += size
        self._empty += size > 0 and not moments.count
        self.moments = self.moments.joined(moments)
        self.bins += bins

    def result(self) -> dict[str, Any]:
        invalid = self._pixels - self.moments.count
        depth = {"pixels": self._pixels, "invalid": invalid, "samples_all_invalid": self._empty}
        return {**super().result(), **depth, "range": self.moments.result()}

    def distribution(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Counts]:
        """Steps of depth of at most 0.8 %, rising: their lower and upper ends, and the valid pixels in each."""
        used = np.flatnonzero(self.bins)
        ends = [(used.astype(np.uint32) << 16 | lower).view(np.float32).astype(np.float64) for lower in (0, 0xFFFF)]
        lows, highs = np.minimum(*ends), np.maximum(*ends)  # a negative step begins at its longer end
        order = np.argsort(lows, kind="stable")
        return lows[order], highs[order], self.bins[used[order]]


def histogram(picture: npt.NDArray[np.uint8]) -> Counts:
    """int64 (C, 256): how many px of a uint8 (H, W, C) have each value, per channel; exact for any size."""
    channels = picture.shape[2]
    found = np.zeros((channels, 256), np.int64)
    flat: Any = np.ascontiguousarray(picture).reshape(-1, 1, channels)
    for start in range(0, len(flat), _MOST_BLOCK):
        block = flat[start : start + _MOST_BLOCK]
        for channel in range(channels):
            counts = cv2.calcHist([block], [channel], None, [256], [0, 256])
            found[channel] += counts.ravel().astype(np.int64)  # OpenCV 4 gives (256, 1), OpenCV 5 (256,)
    return found


def _mode(field: Field, header: Header | None) -> str:
    """Form, channels and dtype of a stored picture."""
    if header is None:
        channels = "colour" if field.kind == "image" else "gray"
        return f"{field.codec_name} {channels} {field.codec_argument or field.dtype or 'uint8'}"
    channels = "palette" if header.palette else _CHANNELS.get(header.channels, f"{header.channels} channels")
    return f"{header.format} {'cmyk' if header.cmyk else channels} {header.dtype}"


# ---- labels

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
        grasps = field.kind == "points" and field.shape is not None and field.shape[1:] == (4, 2) and not field.edges
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


class RowClassCollector(Collector):
    """How many rows of a number that belongs to others, such as the labels of boxes, have each class."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._classes = field.classes or ()
        self._counts = np.zeros(len(self._classes), np.int64)
        self._total = 0

    def measure(self, value: npt.NDArray[Any], stored: StoredPicture | None) -> tuple[int, Counts]:
        inside = value[(value >= 0) & (value < len(self._classes))]
        return value.size, np.bincount(inside.astype(np.int64), minlength=len(self._classes))

    def add(self, measured: tuple[int, Counts]) -> None:
        total, counts = measured
        self._total += total
        self._counts += counts

    def result(self) -> dict[str, Any]:
        counts = [[name, count] for name, count in zip(self._classes, self._counts.tolist(), strict=True)]
        return {
            "of": self.field.of,
            "total": self._total,
            "classes": counts,
            "no_class": self._total - int(self._counts.sum()),
        }


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
