"""Buffer pool: a buffer returns when its last view is freed.

What is taken is a memoryview of an array with a life of its own over a slab. Whatever is made from it keeps it, or that
array: slices, arrays of NumPy, tensors. When the array dies, the slab comes back. (A slice of the array itself would
not keep it: NumPy lets slices of slices hold the slab alone.) New memory of the size of a picture costs more than
filling it: the system clears each page of it, and takes it back afterwards.

A forked child sees what its parent held at the fork, and the parent does not learn when that ends. So a slab that is
out when the process is forked never comes back: the system gets its memory when the last holder in any process is gone.
A child takes nothing from what its parent had. This holds for private memory too, where it costs nothing: as long as
the child lives, to write into a page that both have is to copy it.

No Python runs when memory is given back, nor at a fork: the callbacks are methods of built-in types. Batches die in the
loop that trains, and Ctrl-C that arrives while a Python callback begins would be printed there, and lost.
"""

import os
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

_MOST_WASTE = 4  # a slab this many times as large as what is wanted is not taken

Bytes = npt.NDArray[np.uint8]

_begun, _ended = bytearray(), bytearray()  # a byte for each fork, put there before it, and after it in both processes
os.register_at_fork(
    before=partial(_begun.append, 0),
    after_in_parent=partial(_ended.append, 0),
    after_in_child=partial(_ended.append, 0),
)


def _moment() -> tuple[int, int, int]:
    """What differs between two moments where a process was forked between them; its first two within a fork, too."""
    return len(_ended), len(_begun), os.getpid()


@dataclass(eq=False)
class Slab:
    """Memory that a pool gives out again and again. memory: all of it; who holds only this keeps nothing back."""

    memory: Bytes


AnySlab = TypeVar("AnySlab", bound=Slab)


def pageable(size: int) -> Slab:
    """Memory as the process has it."""
    return Slab(np.empty(size, np.uint8))


class _ReleaseWatch(weakref.ref[Bytes], Generic[AnySlab]):
    """Calls its callback when the view is gone; one watch of another, `then`, of the same view."""

    __slots__ = ("slab", "then")
    __hash__ = object.__hash__  # of the watch, not of the array
    __eq__ = object.__eq__

    slab: AnySlab
    then: "_ReleaseWatch[AnySlab]"


class BufferPool(Generic[AnySlab]):
    """For several threads."""

    def __init__(self, most_free: int, *, new: Callable[[int], AnySlab]) -> None:
        """most_free: how many slabs are kept that nobody uses. new: makes a slab of so many bytes."""
        self._new = new
        self._free: deque[AnySlab] = deque(maxlen=most_free)
        self._back: deque[_ReleaseWatch[AnySlab]] = deque(maxlen=most_free)  # come back since `_settled`
        self._out: set[_ReleaseWatch[AnySlab]] = set()
        self._settled = _moment()

    def take(self, size: int) -> memoryview:
        """Writable bytes, their content undefined."""
        return self.give(self.reserve(size), size)

    def reserve(self, size: int) -> AnySlab:
        """A slab of at least `size` bytes, to be filled before it is given out: until then no fork concerns it."""
        self._settle()
        slab = self._fitting(size)
        return slab if slab is not None else self._new(max(size, 1))

    def give(self, slab: AnySlab, size: int) -> memoryview:
        """The first `size` bytes of a reserved slab, which comes back when nobody holds anything over them."""
        view = slab.memory[:size]
        # the first is what keeps the second; when the view dies, one leaves `_out` and the other joins `_back`
        watch: _ReleaseWatch[AnySlab] = _ReleaseWatch(view, self._out.discard)
        watch.then = _ReleaseWatch(view, self._back.append)
        watch.then.slab = slab
        self._out.add(watch)
        return view.data

    def put_back(self, slab: AnySlab) -> None:
        """A reserved slab that is not given out; nobody writes into it any more."""
        self._free.append(slab)

    def _settle(self) -> None:
        """What has come back is free, unless a process was forked since the last time, which may hold it still."""
        back = self._emptied()
        now = _moment()  # after `back` was taken: what is there was back by now
        ended, begun, pid = now
        if now == self._settled and begun == ended:  # else another thread forks: the child may be there already
            self._free.extend(back)
            return
        if pid != self._settled[2]:
            self._free.clear()
        self._out.clear()  # a watch that is gone calls nobody: what it watched lives as long as its view
        self._back.clear()
        self._settled = now

    def _emptied(self) -> list[AnySlab]:
        """What has come back, in order; other threads may add to it and empty it meanwhile."""
        found = []
        while self._back:
            try:
                found.append(self._back.popleft().slab)
            except IndexError:
                break
        return found

    def _fitting(self, size: int) -> AnySlab | None:
        """The slab that came back last among those that fit: its pages are the warmest."""
        for _ in range(len(self._free)):
            try:
                slab = self._free.pop()
            except IndexError:  # another thread took the last one
                return None
            if size <= slab.memory.size <= _MOST_WASTE * max(size, 1):
                return slab
            self._free.appendleft(slab)
        return None

    def __len__(self) -> int:
        """How many slabs are out and come back."""
        return len(self._out)
