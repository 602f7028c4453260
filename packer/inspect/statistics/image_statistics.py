"""Image statistics: sizes and modes of images, depths and masks, and what their pixels are."""

from collections import Counter
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from packer.codecs.base import StoredPicture
from packer.geometry.warp.depth import is_valid
from packer.images import Header
from packer.inspect.statistics.accumulators import Lengths, Moments, exact_mean_std
from packer.inspect.statistics.field_collector import Collector
from packer.schema import Field

_COMMON = 5
_CHANNELS = {1: "gray", 2: "gray with alpha", 3: "colour", 4: "colour with alpha"}
_MOST_BLOCK = 1 << 24  # calcHist counts in float32, which is exact so far
_BINS = 1 << 16  # of a depth: the upper half of a float32, a step of 0.8 % at most

Counts = npt.NDArray[np.int64]


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
