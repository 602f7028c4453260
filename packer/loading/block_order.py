"""Block order: a shuffle that reads from few parts of the pack at a time.

The parts are permuted by (seed, pass) and concatenated. This sequence of samples is cut into K lanes, whose lengths
differ by at most one sample. Each lane shuffles its samples in a sliding window of parts. The lanes take turns:
position p of a pass belongs to lane p mod K. Ranks take turns, too. If the number of ranks divides K, each rank reads
its own lanes. Then only one rank reads a part, except for the at most K - 1 parts that a cut divides. For any other
number of ranks the order is the same, but several ranks read each part.

K is the largest power of two that is at most an eighth of the parts, at most the window, and at most 64. The window is
a number of parts. It is divided among the lanes, and determines how many parts a cache must keep for all ranks
together.

A lane reads from w of its n parts at a time. Each sample gets a random position on an axis from 0 to n - w + 1, and the
lane is sorted by position. A sample of part i (from 0) gets a position from i - w + 1 to i + 1, as far as this is on
the axis. Therefore at most w parts overlap at each position. Odd lanes read their parts from the end. So both lanes
next to a cut read the divided part at the beginning of the pass, or both read it at the end.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.geometry import draw, shuffled

Indices = npt.NDArray[np.int64]

_MOST_LANES = 64
_PARTS_OF_LANE = 8  # at least.
_LEAST_WINDOW = 16
_LEAST_SHARE = 10  # a tenth of the parts.
# other random numbers than those of the geometry, which are drawn with the seed itself.
_OF_PARTS, _OF_SAMPLES = 0x7061727473, 0x73616D706C6573


@dataclass(frozen=True, eq=False)
class BlockOrder:
    """A shuffle by blocks: an order of all samples that reads from few parts at a time.

    Args:
        part_sizes: Number of samples of each part.
        window: Number of parts that all ranks together read from at a time.
        members: Sample indices, sorted by part. None if they are 0, 1, 2, ...
    """

    part_sizes: Indices
    window: int
    members: Indices | None = None

    @property
    def parts(self) -> int:
        """Number of parts that contain a sample."""
        return int(np.count_nonzero(self.part_sizes))

    @property
    def lanes(self) -> int:
        """Number of lanes (K in the module text). If the number of ranks divides it, each rank reads its own parts."""
        return _lanes(self.parts, self.window)

    @property
    def most_parts(self) -> int:
        """Largest number of parts that a cache must keep at a time: the window plus one part per lane.

        If two lanes share a part, one lane may finish it before the other begins.
        """
        return min(self.parts, self.window + self.lanes)

    def of_pass(self, seed: int, number: int) -> Indices:
        """Return the indices of all samples in the order of pass `number`, int64. Equal arguments give equal orders."""
        sizes = self.part_sizes[self.part_sizes > 0]
        order = shuffled(seed ^ _OF_PARTS, number, len(sizes))
        first = (np.cumsum(sizes) - sizes)[order]  # sample of each part
        ends = np.cumsum(sizes[order])
        begins = ends - sizes[order]
        count, lanes = int(sizes.sum()), self.lanes
        indices = np.empty(count, np.int64)
        cut = 0
        for lane in range(lanes):
            start, cut = cut, cut + len(range(lane, count, lanes))
            among = slice(np.searchsorted(ends, start, side="right"), np.searchsorted(ends, cut) + 1)
            taken = np.minimum(ends[among], cut) - np.maximum(begins[among], start)
            chosen = first[among] + np.maximum(begins[among], start) - begins[among]
            if lane % 2:
                taken, chosen = taken[::-1], chosen[::-1]
            window = self.window // lanes + (lane < self.window % lanes)
            indices[lane::lanes] = _in_window(chosen, taken, window, seed, number)
        return indices if self.members is None else self.members[indices]


def block_order(part_numbers: Indices, window: int | None = None) -> BlockOrder:
    """Return a shuffle by blocks for samples that are stored in parts.

    Args:
        part_numbers: For each sample, the number of its part.
        window: Number of parts to read from at a time. The default is a tenth of the parts, at least 16 and at least
            the number of lanes.

    Raises:
        InvalidRequest: The window is not a whole number of at least 1.
    """
    if window is not None and (isinstance(window, bool) or not isinstance(window, (int, np.integer)) or window < 1):
        raise InvalidRequest(f"window={window!r:.60}: expected a number of parts, at least 1")
    sizes = np.bincount(part_numbers).astype(np.int64)
    parts = int(np.count_nonzero(sizes))
    if window is None:
        window = max(_LEAST_WINDOW, -(-parts // _LEAST_SHARE), _lanes(parts, _MOST_LANES))
    is_sorted = bool((part_numbers[1:] >= part_numbers[:-1]).all())
    return BlockOrder(sizes, int(window), None if is_sorted else np.argsort(part_numbers, kind="stable"))


def _lanes(parts: int, window: int) -> int:
    most = min(parts // _PARTS_OF_LANE, window, _MOST_LANES)
    return 1 << max(0, most.bit_length() - 1)


def _in_window(first: Indices, sizes: Indices, window: int, seed: int, number: int) -> Indices:
    """Return the samples of one lane in order. `first` and `sizes` have the first sample and the size of each part."""
    count = len(sizes)
    window = min(window, count)
    turns = np.arange(count)
    low = np.maximum(0, turns - window + 1)
    high = np.minimum(count - window, turns) + 1
    samples = np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum(), dtype=np.int64)
    places = draw(seed ^ _OF_SAMPLES, number, samples, 1)[:, 0]
    places *= np.repeat((high - low).astype(np.float64), sizes)
    places += np.repeat(low.astype(np.float64), sizes)
    # a key is a place with the turn in the low bits, so that no two keys are equal and any sort gives one order. A
    # place that was rounded up to the end of its part comes before the part that begins there.
    bits = len(samples).bit_length()
    places *= 2.0 ** (63 - bits - count.bit_length())
    keys = places.astype(np.uint64) << np.uint64(bits)
    keys |= np.arange(len(samples), dtype=np.uint64)
    keys.sort()
    keys &= np.uint64((1 << bits) - 1)
    return np.asarray(samples[keys.astype(np.int64)])
