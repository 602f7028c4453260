"""Pack comparison: which samples of two packs have the same key, and which of these differ.

Keys are compared by hashes of 64 bit with random weights: two of a million different keys are equal with a probability
below 1e-5. Values are compared by their crc32 in the index.
"""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.browse.browsed_pack import BrowsedPack
from packer.pack.sample_index import Index

_ROWS_AT_ONCE = 1 << 15


class PackComparison:
    """Two packs on the page. The rows that belong together are found at first use."""

    def __init__(self, first: BrowsedPack, second: BrowsedPack) -> None:
        self._first = first
        self._second = second

    @property
    def common(self) -> int:
        """Number of keys in both packs."""
        return len(self._pairs[0])

    def differences(self, offset: int, count: int) -> dict[str, Any]:
        """Return the pairs of rows with equal keys that differ in a common field, from `offset` on."""
        one, other = self._differing
        window = slice(offset, offset + count)
        return {
            "total": len(one),
            "rows": list(zip(one[window].tolist(), other[window].tolist(), strict=True)),
            "keys": [self._first.key(row) for row in one[window].tolist()],
            "only": [len(each.pack) - self.common for each in (self._first, self._second)],
        }

    def only(self, place: int) -> npt.NDArray[Any]:
        """Return the rows of the first (0) or second (1) pack whose keys the other does not contain."""
        pack = (self._first, self._second)[place].pack
        return np.setdiff1d(np.arange(len(pack)), self._pairs[place])

    @cached_property
    def _pairs(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Rows of both packs with equal keys, in the order of the first pack."""
        weights = np.random.default_rng()
        longest = max(map(_longest, (self._first.pack.index, self._second.pack.index)))
        by_place = weights.integers(1 << 64, size=longest + 1, dtype=np.uint64)
        first, second = (_key_hashes(each.pack.index, by_place) for each in (self._first, self._second))
        _, one, other = np.intersect1d(first, second, assume_unique=True, return_indices=True)
        order = np.argsort(one)
        return one[order].astype(np.uint32), other[order].astype(np.uint32)

    @cached_property
    def _differing(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        one, other = self._pairs
        indexes = self._first.pack.index, self._second.pack.index
        differs = np.zeros(len(one), np.bool_)
        for name in indexes[0].positions.keys() & indexes[1].positions.keys():
            crcs = (index.arrays["crc32"][:, index.positions[name]] for index in indexes)
            differs |= next(crcs)[one] != next(crcs)[other]
        return one[differs], other[differs]


def _longest(index: Index) -> int:
    ends = index.arrays["key_ends"]
    return int(np.diff(ends, prepend=np.uint64(0)).max(initial=0))


def _key_hashes(index: Index, weights: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a hash of each key: the sum of bytes times random weights of their places, and a weight for the end."""
    keys, ends = index.arrays["keys"], index.arrays["key_ends"]
    hashes = np.empty(len(ends), np.uint64)
    start = 0
    for first in range(0, len(ends), _ROWS_AT_ONCE):
        block = ends[first : first + _ROWS_AT_ONCE].astype(np.int64)
        starts = np.concatenate([[start], block[:-1]])
        places = np.arange(start, block[-1]) - np.repeat(starts, block - starts)
        sums = np.zeros(len(places) + 1, np.uint64)
        np.cumsum(keys[start : block[-1]] * weights[places], out=sums[1:])
        hashes[first : first + len(block)] = sums[block - start] - sums[starts - start] + weights[block - starts]
        start = int(block[-1])
    return hashes
