"""Field statistics: one collector per kind of field, and the exact sums that collectors share.

`measure` runs in many threads, changes nothing and returns a small value. `add` receives these values in the order of
the samples, in one thread. So the result is the same for any number of threads, and memory does not grow with images.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.codecs.base import StoredImage
from packer.geometry.warp.depth_and_mask import is_valid
from packer.images import Header
from packer.schema import Field

Counts = npt.NDArray[np.int64]
JSON = dict[str, Any]

# ---- sums


class Lengths:
    """Counts of whole numbers, which give exact min, max, mean and median."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def result(self) -> JSON:
        """Return a dict with min, median (the lower of two middle values), mean and max. Empty without numbers."""
        total = self.counts.total()
        if not total:
            return {}
        ordered = sorted(self.counts)
        passed = list(accumulate(self.counts[number] for number in ordered))
        median = ordered[bisect_left(passed, (total + 1) // 2)]
        mean = sum(number * count for number, count in self.counts.items()) / total
        return {"min": ordered[0], "median": median, "mean": mean, "max": ordered[-1]}


class Totals:
    """Exact sum, min, max and mean of whole numbers. Its memory does not grow with their count."""

    def __init__(self) -> None:
        self.count = self.total = self._most = 0
        self._least: int | None = None

    def add(self, number: int) -> None:
        self.count += 1
        self.total += number
        self._most = max(self._most, number)
        self._least = number if self._least is None else min(self._least, number)

    def result(self) -> JSON:
        """Return a dict with total, min, mean and max. Without a number, the dict contains only total."""
        if not self.count:
            return {"total": 0}
        return {"total": self.total, "min": self._least, "mean": self.total / self.count, "max": self._most}


@dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squared distances from the mean, min and max of float64 numbers.

    `joined` combines two Moments without cancellation: T. Chan, G. Golub, R. LeVeque, "Updating formulae and a pairwise
    algorithm for computing sample variances", 1979.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> "Moments":
        """Compute the moments of an array of finite numbers."""
        if not values.size:
            return cls()
        given = values.astype(np.float64)
        mean = float(given.mean())
        squares = float(np.square(given - mean).sum())
        return cls(given.size, mean, squares, float(given.min()), float(given.max()))

    def joined(self, other: "Moments") -> "Moments":
        """Return the moments of the numbers of `self` and `other` together."""
        count = self.count + other.count
        if not count:
            return self
        distance = other.mean - self.mean
        share = other.count / count
        squares = self.squares + other.squares + distance * distance * self.count * share
        mean = self.mean + distance * share
        return Moments(count, mean, squares, min(self.least, other.least), max(self.most, other.most))

    def result(self) -> JSON:
        """Return a dict with min, mean, std (of the population) and max. It is empty without numbers."""
        if not self.count:
            return {}
        deviation = math.sqrt(self.squares / self.count)
        return {"min": self.least, "mean": self.mean, "std": deviation, "max": self.most}


def exact_mean_std(histogram: Iterable[int]) -> tuple[float, float]:
    """Return (mean, standard deviation) of whole numbers. The number v occurs histogram[v] times.

    The computation uses whole numbers and rounds each result once.
    """
    counts = list(histogram)
    total = sum(counts)
    first = sum(value * count for value, count in enumerate(counts))
    second = sum(value * value * count for value, count in enumerate(counts))
    return first / total, math.sqrt((total * second - first * first) / (total * total))


_MOST_BLOCK = 1 << 24  # px; calcHist counts in float32, which is exact up to here


def histogram(image: npt.NDArray[np.unsignedinteger[Any]]) -> Counts:
    """Return the pixels per channel and value of an image (H, W, C): int64 (C, 256), or (C, 65536) for 16 bit."""
    channels, values = image.shape[2], 1 << 8 * image.itemsize
    found = np.zeros((channels, values), np.int64)
    flat: Any = np.ascontiguousarray(image).reshape(-1, 1, channels)
    for start in range(0, len(flat), _MOST_BLOCK):
        block = flat[start : start + _MOST_BLOCK]
        for channel in range(channels):
            found[channel] += cv2.calcHist([block], [channel], None, [values], [0, values]).ravel().astype(np.int64)
    return found


def _most_frequent(counts: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class Collector(ABC):
    """Base class of the collectors, which compute the statistics of one field."""

    def __init__(self, field: Field) -> None:
        self.field = field

    @abstractmethod
    def measure(self, value: Any, stored: StoredImage | None) -> Any:
        """Return the contribution of a decoded value. `stored` is its image before decoding, or None. Thread-safe."""

    @abstractmethod
    def add(self, measured: Any) -> None:
        """Add a result of `measure` to the statistics."""

    @abstractmethod
    def result(self) -> JSON:
        """Return the statistics as JSON."""


# ---- images

_COMMON = 5
_CHANNELS = {1: "gray", 2: "gray with alpha", 3: "color", 4: "color with alpha"}  # values of `packer stats --json`
_MOST_LISTED = 256  # values of a mask of 16 bit


class ImageSizeCollector(Collector):
    """Sizes and modes (format, channels, dtype) of images. Each subclass adds statistics of the pixels of one kind."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.sizes: Counter[tuple[int, int]] = Counter()  # height, width
        self._modes: Counter[str] = Counter()

    def measure(self, value: npt.NDArray[Any], stored: StoredImage | None) -> tuple[tuple[int, int], str, Any]:
        mode = _mode(self.field, stored.header if stored is not None else None)
        return (int(value.shape[0]), int(value.shape[1])), mode, self.pixels(value)

    def add(self, measured: tuple[tuple[int, int], str, Any]) -> None:
        size, mode, pixels = measured
        self.sizes[size] += 1
        self._modes[mode] += 1
        self.add_pixels(pixels)

    @abstractmethod
    def pixels(self, value: npt.NDArray[Any]) -> Any:
        """Return the contribution of the pixels of one image. Thread-safe."""

    @abstractmethod
    def add_pixels(self, measured: Any) -> None:
        """Add a result of `pixels` to the statistics."""

    def result(self) -> JSON:
        widths, heights = Lengths(), Lengths()
        for (height, width), count in self.sizes.items():
            heights.counts[height] += count
            widths.counts[width] += count
        common = [
            {"width": width, "height": height, "count": count}
            for (height, width), count in _most_frequent(self.sizes)[:_COMMON]
        ]
        sizes = {"distinct": len(self.sizes), "width": widths.result(), "height": heights.result(), "common": common}
        return {"sizes": sizes, "modes": dict(_most_frequent(self._modes))}


class ImageCollector(ImageSizeCollector):
    """Exact mean and standard deviation of each channel, from counts of all 256 values."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.histogram: Counts = np.zeros((3, 256), np.int64)

    def pixels(self, value: npt.NDArray[np.uint8]) -> Counts:
        return histogram(value)

    def add_pixels(self, measured: Counts) -> None:
        self.histogram += measured

    def result(self) -> JSON:
        pixels = int(self.histogram[0].sum())
        if not pixels:
            return super().result()
        both = [exact_mean_std(channel.tolist()) for channel in self.histogram]
        means, deviations = [mean / 255 for mean, _ in both], [deviation / 255 for _, deviation in both]
        return {**super().result(), "pixels": pixels, "mean": means, "std": deviations}


class MaskCollector(ImageSizeCollector):
    """Number of pixels of each mask value. A mask of 16 bit may contain ids, so only frequent values are listed."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._dtype = np.uint16 if field.is_wide_mask else np.uint8
        self._histogram: Counts = np.zeros(np.iinfo(self._dtype).max + 1, np.int64)

    def pixels(self, value: npt.NDArray[Any]) -> tuple[Counts, Counts]:
        counts = histogram(value[..., None].astype(self._dtype, copy=False))[0]
        present = np.flatnonzero(counts)
        return present, counts[present]

    def add_pixels(self, measured: tuple[Counts, Counts]) -> None:
        present, counts = measured
        self._histogram[present] += counts

    def result(self) -> JSON:
        """Return `values`, the number of pixels of each value.

        A mask of 16 bit also has `distinct_values`, and `others`: the number of pixels of values that are not listed.
        """
        present = np.flatnonzero(self._histogram)
        listed = present
        if self.field.is_wide_mask:
            listed = present[np.argsort(-self._histogram[present], kind="stable")][:_MOST_LISTED]
        pixels, counts = int(self._histogram.sum()), self._histogram[listed].tolist()
        found = {**super().result(), "pixels": pixels, "values": dict(zip(map(str, listed), counts, strict=True))}
        if self.field.is_wide_mask:
            found["distinct_values"] = len(present)
            if len(listed) < len(present):
                found["others"] = pixels - sum(counts)
        return found


class DepthCollector(ImageSizeCollector):
    """Range of the valid pixels, and the number of invalid pixels. These are not finite, or have the invalid value."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.moments = Moments()
        self._pixels = self._empty = 0

    def pixels(self, value: npt.NDArray[np.float32]) -> tuple[int, Moments]:
        return value.size, Moments.of(value[is_valid(value, self.field.invalid)])

    def add_pixels(self, measured: tuple[int, Moments]) -> None:
        size, moments = measured
        self._pixels += size
        self._empty += size > 0 and not moments.count
        self.moments = self.moments.joined(moments)

    def result(self) -> JSON:
        invalid = self._pixels - self.moments.count
        depth = {"pixels": self._pixels, "invalid": invalid, "samples_all_invalid": self._empty}
        return {**super().result(), **depth, "range": self.moments.result()}


def _mode(field: Field, header: Header | None) -> str:
    """Return format, channels and dtype of a stored image as text."""
    if header is None:
        channels = "color" if field.kind == "image" else "gray"
        return f"{field.codec_name} {channels} {field.codec_argument or field.dtype or 'uint8'}"
    channels = "palette" if header.palette else _CHANNELS.get(header.channels, f"{header.channels} channels")
    return f"{header.format} {'cmyk' if header.cmyk else channels} {header.dtype}"


# ---- labels

_MOST_TEXTS = 10_000  # distinct values that are counted separately
_LONGEST = 1000  # characters of one of them


class ShapeCollector(Collector):
    """Grasps, boxes or points per sample, and their sides in px of the stored image."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.counts = Lengths()
        self._not_finite = 0
        is_grasp = field.kind == "points" and field.shape is not None and field.shape[1:] == (4, 2) and not field.edges
        names = ("opening", "jaw") if is_grasp else ("width", "height") if field.kind == "boxes" else ()
        self._sides = dict.fromkeys(names, Moments())

    def measure(self, value: npt.NDArray[Any], stored: StoredImage | None) -> tuple[int, int, list[Moments]]:
        given = np.asarray(value, np.float64)
        finite = given[np.isfinite(given).all(axis=tuple(range(1, given.ndim)))] if given.ndim else given
        sides = []
        if self._sides and self.field.kind == "boxes":
            sides = [Moments.of(finite[:, axis + 2] - finite[:, axis]) for axis in (0, 1)]
        elif self._sides:
            sides = [Moments.of(np.linalg.norm(finite[:, at + 1] - finite[:, at], axis=1)) for at in (0, 1)]
        return len(given), len(given) - len(finite), sides

    def add(self, measured: tuple[int, int, list[Moments]]) -> None:
        count, not_finite, sides = measured
        self.counts.counts[count] += 1
        self._not_finite += not_finite
        self._sides = {name: self._sides[name].joined(side) for name, side in zip(self._sides, sides, strict=True)}

    def result(self) -> JSON:
        counts = self.counts.counts
        return {
            "total": sum(number * count for number, count in counts.items()),
            "per_sample": self.counts.result(),
            "samples": {str(number): counts[number] for number in sorted(counts)},
            "not_finite": self._not_finite,
            **{name: side.result() for name, side in self._sides.items()},
        }


class RowClassCollector(Collector):
    """Number of rows of each class. The field contains a class number for each row, such as the label of each box."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._counts = np.zeros(len(field.classes or ()) + 1, np.int64)

    def measure(self, value: npt.NDArray[Any], stored: StoredImage | None) -> Counts:
        return _class_counts(value, len(self._counts) - 1)

    def add(self, measured: Counts) -> None:
        self._counts += measured

    def result(self) -> JSON:
        counts = _counted_classes(self.field.classes or (), self._counts)
        return {"of": self.field.of, "total": int(self._counts.sum()), **counts}


class TextCollector(Collector):
    """Number of samples of each text. Very long texts, and texts after the first 10 000, are counted together."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._counts: Counter[str] = Counter()
        self._others = 0

    def measure(self, value: str, stored: StoredImage | None) -> str:
        return value

    def add(self, measured: str) -> None:
        is_new = measured not in self._counts
        if is_new and (len(self._counts) >= _MOST_TEXTS or len(measured) > _LONGEST):
            self._others += 1
        else:
            self._counts[measured] += 1

    def result(self) -> JSON:
        return {"values": dict(_most_frequent(self._counts)), **({"others": self._others} if self._others else {})}


_COLLECTORS: dict[str, type[Collector]] = {
    "image": ImageCollector,
    "depth": DepthCollector,
    "mask": MaskCollector,
    "points": ShapeCollector,
    "boxes": ShapeCollector,
    "text": TextCollector,
}


def collector_of(field: Field) -> Collector | None:
    """Return a collector for the values of a field, or None if the index contains its values, as for most numbers."""
    if field.of is not None and field.kind == "number" and field.classes is not None and not field.is_column:
        return RowClassCollector(field)
    return _COLLECTORS[field.kind](field) if field.kind in _COLLECTORS else None


# ---- numbers


def number_statistics(field: Field, values: npt.NDArray[Any]) -> JSON:
    """Return the statistics of a number column (n,): samples per class, or without classes the range and mean."""
    if field.classes is not None and values.dtype.kind in "iu":
        return _counted_classes(field.classes, _class_counts(values, len(field.classes)))
    if not len(values):
        return {}
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    found = {"distinct": len(np.unique(values)), "not_finite": len(values) - len(finite)}
    range_ = Moments.of(finite).result()
    if values.dtype.kind in "iub":  # beyond 2**53 a float64 is not exact
        range_ |= {"min": int(finite.min()), "max": int(finite.max())}
    return {**found, "range": range_}


def _class_counts(values: npt.NDArray[Any], classes: int) -> Counts:
    """Return the number of values of each class, int64 (classes + 1,). The last element counts all other values."""
    inside = values[(values >= 0) & (values < classes)]
    counts = np.bincount(inside.astype(np.int64), minlength=classes + 1)
    counts[classes] = values.size - inside.size
    return counts


def _counted_classes(classes: tuple[str, ...], counts: Counts) -> JSON:
    *of_classes, no_class = counts.tolist()
    return {"classes": [[name, count] for name, count in zip(classes, of_classes, strict=True)], "no_class": no_class}
