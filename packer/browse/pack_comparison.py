"""Pack comparison: which samples of two packs have equal keys, and in which fields these samples differ.

Keys are compared by 64-bit hashes with random weights. Among a million different keys, two hashes are equal with a
probability below 1e-5. Values are compared by the crc32 in the index of each pack.
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
    """Comparison of two packs for the page. The rows with equal keys are found at first use."""

    def __init__(self, first: BrowsedPack, second: BrowsedPack) -> None:
        self._first = first
        self._second = second

    def differences(self, name: str, offset: int, count: int) -> dict[str, Any]:
        """Return pairs of rows that have equal keys but different values, and the number of these pairs for each field.

        Args:
            name: The field that must differ, or "" for any field. Raises UnknownKey unless both packs have the field.
            offset: Number of the first pair to return, from 0.
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
        """Return the rows of the first (`place` 0) or second (1) pack whose keys the other pack does not contain."""
        pack = (self._first, self._second)[place].pack
        return np.setdiff1d(np.arange(len(pack)), self._pairs[place])

    @cached_property
    def _pairs(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Rows of the first and of the second pack: two arrays in which rows at the same position have equal keys."""
        weights = np.random.default_rng()
        longest = max(map(_longest, (self._first.pack.index, self._second.pack.index)))
        by_place = weights.integers(1 << 64, size=longest + 1, dtype=np.uint64)
        first, second = (_key_hashes(each.pack.index, by_place) for each in (self._first, self._second))
        _, one, other = np.intersect1d(first, second, assume_unique=True, return_indices=True)
        order = np.argsort(one)
        return one[order].astype(np.uint32), other[order].astype(np.uint32)

    @cached_property
    def _differing(self) -> dict[str, npt.NDArray[np.bool_]]:
        """A mask of `_pairs` for each field of both packs, True where the values differ. At "": in any field."""
        found = {"": np.zeros(len(self._pairs[0]), np.bool_)}
        first, second = self._first.pack.index, self._second.pack.index
        for name in (name for name in first.positions if name in second.positions):
            crcs = [index.arrays["crc32"][:, index.positions[name]] for index in (first, second)]
            found[name] = crcs[0][self._pairs[0]] != crcs[1][self._pairs[1]]
            found[""] |= found[name]
        return found

    def _resized(self, name: str) -> int:
        indexes = self._first.pack.index, self._second.pack.index
        if not all(f"size-{name}" in index.arrays for index in indexes):
            return 0
        one, other = (index.sizes(name)[rows] for index, rows in zip(indexes, self._pairs, strict=True))
        return int(np.count_nonzero((one != other).any(axis=1)))


def _longest(index: Index) -> int:
    ends = index.arrays["key_ends"]
    return int(np.diff(ends, prepend=np.uint64(0)).max(initial=0))


def _key_hashes(index: Index, weights: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a hash of each key: the sum of each byte times the weight of its place, plus a weight for the length."""
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
