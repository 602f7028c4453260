"""Ring: memory of batches, used again as soon as nobody holds a tensor over it.

A batch gets a tensor over a slab, made from a NumPy view of its own. torch keeps that view for as long as any tensor
shares its memory: slices, rows, views of other types. When the view dies, the slab is free again, and not before: a
batch that the caller keeps stays what it was.
"""

import weakref
from collections import deque
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

_MOST_WASTE = 4  # a slab this many times as large as what is wanted is not taken


class Ring:
    """The slabs of one loader; for several threads."""

    def __init__(self, most_free: int) -> None:
        """most_free: how many slabs are kept that nobody uses."""
        self._free: deque[npt.NDArray[np.uint8]] = deque(maxlen=most_free)
        self._watched: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}

    def take(self, size: int) -> tuple[torch.Tensor, npt.NDArray[np.uint8]]:
        """A flat uint8 tensor and an array over the same memory, its content undefined."""
        slab = self._fitting(size)
        if slab is None:
            slab = np.empty(max(size, 1), np.uint8)
        view = slab[:size]
        self._watched[id(slab)] = weakref.ref(view, partial(_give_back, weakref.ref(self), slab))
        return torch.from_numpy(view), slab[:size]

    def _fitting(self, size: int) -> npt.NDArray[np.uint8] | None:
        """The slab that was given back last among those that fit: its pages are the warmest."""
        for _ in range(len(self._free)):
            try:
                slab = self._free.pop()
            except IndexError:  # another thread took the last one
                return None
            if size <= slab.size <= _MOST_WASTE * max(size, 1):
                return slab
            self._free.appendleft(slab)
        return None

    def __len__(self) -> int:
        """How many slabs are in use."""
        return len(self._watched)

    def free(self, slab: npt.NDArray[np.uint8]) -> None:
        """Called when the last tensor over a slab is gone, in whatever thread that happens."""
        self._watched.pop(id(slab), None)
        self._free.append(slab)


def _give_back(ring: "weakref.ref[Ring]", slab: npt.NDArray[np.uint8], _: object) -> None:
    found = ring()
    if found is not None:
        found.free(slab)
