"""Part schedule: the order in which a pass over the samples downloads and evicts the parts of a remote pack."""

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.pack.part_access import PartSupply


class PartSchedule:
    """Downloads the parts that a pass over the samples reads next. Parts not read again are marked for removal."""

    def __init__(
        self, supply: PartSupply, numbers: npt.NDArray[np.int64], *, rank: int = 0, world_size: int = 1
    ) -> None:
        """Start to download the first parts.

        Each rank (process) downloads ahead into its share of the cache. The share is equal for all ranks, or larger if
        the parts that the rank reads at the same time need more.

        Args:
            supply: Downloads parts.
            numbers: Number of the part of each sample of all ranks, in the order of the pass. The samples of this rank
                are numbers[rank::world_size].
            rank: Number of this process, from 0.
            world_size: Number of processes.

        Raises:
            InvalidRequest: The parts that are read at the same time do not fit into the cache.
        """
        self._supply = supply
        self._count = len(numbers[rank::world_size])
        parts, first = np.unique(numbers[rank::world_size], return_index=True)
        every, from_end = np.unique(numbers[::-1], return_index=True)
        # the last read on any rank, because two ranks may share a part
        last = (len(numbers) - 1 - from_end[np.searchsorted(every, parts)]) // world_size
        sizes = np.asarray(supply.part_bytes, np.int64)[parts]
        room, needed = supply.room_bytes, _most_at_once(first, last, sizes)
        if room is not None and needed > room:
            raise InvalidRequest(
                f"{supply.url}: this order of samples reads from {needed:,} bytes of parts at a time, and the cache "
                f"holds {room:,}, so that each part would be downloaded many times; raise cache_limit, or choose "
                "an order that reads from fewer parts at a time"
            )
        order = np.argsort(first)
        self._parts, self._last, self._sizes = parts[order], last[order], sizes[order]  # in the order of their reads
        self._share = int(sizes.sum()) if room is None else max(needed, room // world_size)
        self._fits = bool(sizes.sum() <= self._share)
        self._is_left = np.ones(len(parts), bool)
        self._asked = self._fitting()
        supply.give_up(self._parts[self._asked :].tolist())
        supply.fetch_ahead(self._parts[: self._asked].tolist())

    def _fitting(self) -> int:
        """Return how many of the first parts of the pass fit into this rank's share; finished parts take no space."""
        return int(np.searchsorted(np.cumsum(self._sizes * self._is_left), self._share, side="right"))

    def is_over(self, count: int) -> bool:
        """Return True if the pass of this rank has at most `count` samples."""
        return count >= self._count

    def advance(self, count: int) -> None:
        """Mark parts for removal if only the first `count` samples need them. Then download the next parts."""
        is_over = self._is_left & (self._last < count)
        if is_over.any() and not self._fits:
            self._is_left &= ~is_over
            self._supply.give_up(self._parts[is_over].tolist())
            asked, self._asked = self._asked, self._fitting()
            self._supply.fetch_ahead(self._parts[asked : self._asked].tolist(), more=True)


def _most_at_once(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> int:
    """Return the most bytes of parts that are in use at the same time.

    Args:
        first: Position of the first read of each part.
        last: Position of the last read of each part.
        sizes: Size of each part in bytes.
    """
    begun, ended = np.argsort(first), np.argsort(last)
    done = np.searchsorted(last[ended], first[begun])
    there = np.cumsum(sizes[begun]) - np.concatenate(([0], np.cumsum(sizes[ended])))[done]
    return int(there.max(initial=0))
