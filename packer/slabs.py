"""Slabs: memory that is used again as soon as nobody holds anything over it, and not before.

What is taken is a memoryview of an array with a life of its own over a slab. Whatever is made from it keeps it, or that
array: slices, arrays of NumPy, tensors. When the array dies, the slab is free. (A slice of the array itself would not
keep it: NumPy lets slices of slices hold the slab alone.) New memory of the size of a picture costs more than filling
it: the system clears each page of it, and takes it back afterwards.
"""

import weakref
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

_MOST_WASTE = 4  # a slab this many times as large as what is wanted is not taken

Bytes = npt.NDArray[np.uint8]


def pageable(size: int) -> Bytes:
    """Memory as the process has it."""
    return np.empty(size, np.uint8)


class Slabs:
    """For several threads."""

    def __init__(self, most_free: int, *, new: Callable[[int], Bytes] = pageable) -> None:
        """most_free: how many slabs are kept that nobody uses. new: makes a slab of so many bytes."""
        self._new = new
        self._free: deque[Bytes] = deque(maxlen=most_free)
        self._watched: dict[int, weakref.ref[Bytes]] = {}

    def take(self, size: int) -> memoryview:
        """Writable bytes, their content undefined."""
        slab = self._fitting(size)
        if slab is None:
            slab = self._new(max(size, 1))
        view = slab[:size]
        self._watched[id(slab)] = weakref.ref(view, partial(_give_back, weakref.ref(self), slab))
        return view.data

    def _fitting(self, size: int) -> Bytes | None:
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

    def free(self, slab: Bytes) -> None:
        """Called when the last hold on a slab is gone, in whatever thread that happens."""
        self._watched.pop(id(slab), None)
        self._free.append(slab)


def _give_back(slabs: "weakref.ref[Slabs]", slab: Bytes, _: object) -> None:
    found = slabs()
    if found is not None:
        found.free(slab)
