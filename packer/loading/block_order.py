"""Block order: a pass shuffled in windows of parts, so that few parts are read from at a time.

The parts are permuted by (seed, pass), laid end to end, and cut into K lanes whose lengths differ by one sample at
most. Each lane is shuffled in a window that slides over its parts, and the lanes take turns: position p of a pass is of
lane p mod K, to its end. Ranks take turns too, so that a number of ranks that divides K reads lanes of its own, and
each part is read by one rank, but for the at most K - 1 parts that a cut goes through. Any other number of ranks gets
the same order, and reads more parts on each.

K is the largest power of two that is at most an eighth of the parts, at most the window, and at most 64. The window is
of all lanes together, and so of all ranks: what has to be kept of a pack follows from it, whoever reads.

In a lane that reads from w of its n parts at a time, part i lies between i - w + 1 and i + 1 on an axis from 0 to
n - w + 1, and its samples at random places there: at each place there are w parts. The samples come in that order.
Odd lanes go through their parts from the end, so that both lanes at a cut read the part that it goes through at the
beginning of the pass, or both at its end.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.geometry import draw, shuffled

Indices = npt.NDArray[np.int64]

_MOST_LANES = 64
_PARTS_OF_LANE = 8  # at least
_LEAST_WINDOW = 16
_LEAST_SHARE = 10  # a tenth of the parts
# apart from the numbers of a sample's geometry, which are drawn with the seed itself
_OF_PARTS, _OF_SAMPLES = 0x7061727473, 0x73616D706C6573


@dataclass(frozen=True, eq=False)
class BlockOrder:
    """part_sizes: samples of each part, where sample indices go through the parts one after the other.

    window: parts that are read from at a time, by all ranks together. members: the sample at each of these indices,
    None where they are the samples' own.
    """

    part_sizes: Indices
    window: int
    members: Indices | None = None

    @property
    def parts(self) -> int:
        """Parts that have a sample."""
        return int(np.count_nonzero(self.part_sizes))

    @property
    def lanes(self) -> int:
        """K: numbers of ranks that divide it read parts of their own."""
        return _lanes(self.parts, self.window)

    @property
    def most_parts(self) -> int:
        """How many parts a pass is ever between the first and the last sample of, at most: what a cache has to hold.

        The window, and for each lane the part that a cut goes through: of two lanes one may be done with it before the
        other begins.
        """
        return min(self.parts, self.window + self.lanes)

    def of_pass(self, seed: int, number: int) -> Indices:
        """All samples in the order of one pass, int64: a function of the two and of the fields alone."""
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
    """The block order of samples that lie in these parts. window: by default a tenth of the parts, at least 16 and at
    least the number of lanes.

    Raises InvalidRequest for a window that is none.
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
    """The samples of one lane in order. first, sizes: first sample and number of samples of its parts, in turn."""
    count = len(sizes)
    window = min(window, count)
    turns = np.arange(count)
    low = np.maximum(0, turns - window + 1)
    high = np.minimum(count - window, turns) + 1
    samples = np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum(), dtype=np.int64)
    places = draw(seed ^ _OF_SAMPLES, number, samples, 1)[:, 0]
    places *= np.repeat((high - low).astype(np.float64), sizes)
    places += np.repeat(low.astype(np.float64), sizes)
    # a place and, in the low bits, the turn: no two keys are equal, so that any sort gives one order, and what was
    # rounded up to the end of its part comes before the part that begins there
    bits = len(samples).bit_length()
    places *= 2.0 ** (63 - bits - count.bit_length())
    keys = places.astype(np.uint64) << np.uint64(bits)
    keys |= np.arange(len(samples), dtype=np.uint64)
    keys.sort()
    keys &= np.uint64((1 << bits) - 1)
    return np.asarray(samples[keys.astype(np.int64)])
