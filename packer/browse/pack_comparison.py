"""Pack comparison: which samples of two packs have the same key, and which of these differ.

Keys are compared by hashes of 64 bit with random weights: two of a million different keys are equal with a probability
below 1e-5. Values are compared by their crc32 in the index.
"""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.browse.row_queries import BrowsedPack
from packer.errors import UnknownKey
from packer.pack.sample_index import Index

_ROWS_AT_ONCE = 1 << 15


class PackComparison:
    """Two packs on the page. The rows that belong together are found at first use."""

    def __init__(self, first: BrowsedPack, second: BrowsedPack) -> None:
        self._first = first
        self._second = second

    def differences(self, name: str, offset: int, count: int) -> dict[str, Any]:
        """Return the pairs of rows with equal keys that differ in a field, from `offset` on, and counts for each field.

        Args:
            name: A field of both packs; empty for all of them.
            offset: Number of pairs to pass over.
            count: Largest number of pairs to return.
        """
        if name not in self._differing:
            raise UnknownKey(f"no field {name!r:.100} in both packs; there are: {', '.join(self._differing)}")
        pairs = np.flatnonzero(self._differing[name])
        shown = pairs[offset : offset + count]
        one, other = (rows[shown].tolist() for rows in self._pairs)
        return {
            "total": len(pairs),
            "rows": list(zip(one, other, strict=True)),
            "keys": [self._first.key(row) for row in one],
            "fields": [
                [each for each, found in self._differing.items() if each and found[pair]] for pair in shown.tolist()
            ],
            "only": [len(each.pack) - len(self._pairs[0]) for each in (self._first, self._second)],
            "differing": {each: int(np.count_nonzero(self._differing[each])) for each in self._differing},
            "resized": {each: self._resized(each) for each in self._differing},
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
    def _differing(self) -> dict[str, npt.NDArray[np.bool_]]:
        """For each field of both packs, the pairs that differ in it; the pairs that differ in any field as ""."""
        found = {"": np.zeros(len(self._pairs[0]), np.bool_)}
        first, second = self._first.pack.index, self._second.pack.index
        for name in (name for name in first.positions if name in second.positions):
            crcs = [index.arrays["crc32"][:, index.positions[name]] for index in (first, second)]
            found[name] = crcs[0][self._pairs[0]] != crcs[1][self._pairs[1]]
            found[""] |= found[name]
        return found

    def _resized(self, name: str) -> int:
        """Return the number of pairs whose images differ in height or width."""
        indexes = self._first.pack.index, self._second.pack.index
        if not all(f"size-{name}" in index.arrays for index in indexes):
            return 0
        one, other = (index.sizes(name)[rows] for index, rows in zip(indexes, self._pairs, strict=True))
        return int(np.count_nonzero((one != other).any(axis=1)))


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
