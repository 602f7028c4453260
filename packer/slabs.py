"""Slabs: memory that is used again as soon as nobody holds anything over it, and not before.

What is taken is a memoryview of an array with a life of its own over a slab. Whatever is made from it keeps it, or that
array: slices, arrays of NumPy, tensors. When the array dies, the slab is free. (A slice of the array itself would not
keep it: NumPy lets slices of slices hold the slab alone.) New memory of the size of a picture costs more than filling
it: the system clears each page of it, and takes it back afterwards.

No Python runs when memory is given back: the callbacks are methods of built-in types. Batches die in the loop that
trains, and Ctrl-C that arrives while a Python callback begins would be printed there, and lost.
"""

import weakref
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

_MOST_WASTE = 4  # a slab this many times as large as what is wanted is not taken

Bytes = npt.NDArray[np.uint8]


def pageable(size: int) -> Bytes:
    """Memory as the process has it."""
    return np.empty(size, np.uint8)


class _Watch(weakref.ref[Bytes]):
    """Calls its callback when the view is gone; one watch of another, `then`, of the same view."""

    __slots__ = ("slab", "then")
    __hash__ = object.__hash__  # of the watch, not of the array
    __eq__ = object.__eq__

    slab: Bytes
    then: "_Watch"


class Slabs:
    """For several threads."""

    def __init__(self, most_free: int, *, new: Callable[[int], Bytes] = pageable) -> None:
        """most_free: how many slabs are kept that nobody uses. new: makes a slab of so many bytes."""
        self._new = new
        self._free: deque[_Watch] = deque(maxlen=most_free)
        self._used: set[_Watch] = set()

    def take(self, size: int) -> memoryview:
        """Writable bytes, their content undefined."""
        slab = self._fitting(size)
        if slab is None:
            slab = self._new(max(size, 1))
        view = slab[:size]
        # the first is what keeps the second; when the view dies, one leaves `_used` and the other joins `_free`
        watch = _Watch(view, self._used.discard)
        watch.then = _Watch(view, self._free.append)
        watch.then.slab = slab
        self._used.add(watch)
        return view.data

    def _fitting(self, size: int) -> Bytes | None:
        """The slab that was given back last among those that fit: its pages are the warmest."""
        for _ in range(len(self._free)):
            try:
                watch = self._free.pop()
            except IndexError:  # another thread took the last one
                return None
            if size <= watch.slab.size <= _MOST_WASTE * max(size, 1):
                return watch.slab
            self._free.appendleft(watch)
        return None

    def __len__(self) -> int:
        """How many slabs are in use."""
        return len(self._used)
