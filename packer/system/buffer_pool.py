"""Buffer pool: a buffer returns when its last view is freed.

`give` returns a memoryview of an array that exists for this purpose alone. Whatever is made from it (slices, NumPy
arrays, tensors) keeps that array alive; when the array is freed, the buffer returns to the pool. (Slices of the array
itself would not keep it: NumPy lets a slice of a slice refer to the buffer directly.) Memory is reused because fresh
memory of the size of an image costs more than filling it: the system clears each page, and takes it back afterwards.

A forked child sees what its parent held at the fork, and the parent does not learn when the child frees it. So a buffer
that is out when the process forks never returns: the system frees its memory when the last holder in any process is
gone. A child takes nothing that its parent had. This holds for private memory too, where it costs nothing: as long as
the child lives, a write into a page that both have copies that page.

No Python code runs when a buffer returns, nor at a fork: the callbacks are methods of built-in types. Batches are freed
in the training loop, and Ctrl-C that arrives while a Python callback begins would be printed there, and lost.
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

_MOST_WASTE = 4  # a free buffer larger than this many times the wanted size is not used

Bytes = npt.NDArray[np.uint8]

# a byte for each fork, appended before it, and after it in both processes
_forks_begun, _forks_ended = bytearray(), bytearray()
os.register_at_fork(
    before=partial(_forks_begun.append, 0),
    after_in_parent=partial(_forks_ended.append, 0),
    after_in_child=partial(_forks_ended.append, 0),
)


def _fork_state() -> tuple[int, int, int]:
    """Forks that have ended, forks that have begun, and the process: equal at two times unless a fork came between."""
    return len(_forks_ended), len(_forks_begun), os.getpid()


@dataclass(eq=False)
class PooledBuffer:
    """Memory that a pool gives out again and again. memory: all of it; a reference to this alone keeps nothing out."""

    memory: Bytes


AnyBuffer = TypeVar("AnyBuffer", bound=PooledBuffer)


def pageable(size: int) -> PooledBuffer:
    """A buffer in ordinary pageable memory."""
    return PooledBuffer(np.empty(size, np.uint8))


class _ReleaseWatch(weakref.ref[Bytes], Generic[AnyBuffer]):
    """Calls its callback when the view is freed. then: a second watch of the same view, which this one keeps alive."""

    __slots__ = ("buffer", "then")
    __hash__ = object.__hash__  # of the watch, not of the array
    __eq__ = object.__eq__

    buffer: AnyBuffer
    then: "_ReleaseWatch[AnyBuffer]"


class BufferPool(Generic[AnyBuffer]):
    """Gives out buffers, and again when they have returned; for several threads."""

    def __init__(self, most_free: int, *, new: Callable[[int], AnyBuffer]) -> None:
        """most_free: how many buffers are kept that nobody uses. new: makes a buffer of a size in bytes."""
        self._new = new
        self._free: deque[AnyBuffer] = deque(maxlen=most_free)
        self._back: deque[_ReleaseWatch[AnyBuffer]] = deque(maxlen=most_free)  # returned since `_settled`
        self._out: set[_ReleaseWatch[AnyBuffer]] = set()
        self._settled = _fork_state()

    def take(self, size: int) -> memoryview:
        """A buffer as writable bytes of undefined content."""
        return self.give(self.reserve(size), size)

    def reserve(self, size: int) -> AnyBuffer:
        """A buffer of at least `size` bytes, to be filled and then passed to `give`; until then a fork is harmless."""
        self._settle()
        buffer = self._fitting(size)
        return buffer if buffer is not None else self._new(max(size, 1))

    def give(self, buffer: AnyBuffer, size: int) -> memoryview:
        """The first `size` bytes of a reserved buffer, which returns when the last view of them is freed."""
        view = buffer.memory[:size]
        # the first is what keeps the second; when the view dies, one leaves `_out` and the other joins `_back`
        watch: _ReleaseWatch[AnyBuffer] = _ReleaseWatch(view, self._out.discard)
        watch.then = _ReleaseWatch(view, self._back.append)
        watch.then.buffer = buffer
        self._out.add(watch)
        return view.data

    def put_back(self, buffer: AnyBuffer) -> None:
        """Return a reserved buffer that was not given out; nobody may write into it any more."""
        self._free.append(buffer)

    def _settle(self) -> None:
        """Count returned buffers as free, unless the process forked since the last time: a child may hold them."""
        back = self._emptied()
        now = _fork_state()  # after `back` was taken: what is there was back by now
        ended, begun, pid = now
        if now == self._settled and begun == ended:  # else another thread forks: the child may be there already
            self._free.extend(back)
            return
        if pid != self._settled[2]:
            self._free.clear()
        self._out.clear()  # a watch that is gone calls nobody: what it watched lives as long as its view
        self._back.clear()
        self._settled = now

    def _emptied(self) -> list[AnyBuffer]:
        """Take the returned buffers, in order; other threads may add to them and take them meanwhile."""
        found = []
        while self._back:
            try:
                found.append(self._back.popleft().buffer)
            except IndexError:
                break
        return found

    def _fitting(self, size: int) -> AnyBuffer | None:
        """Of the buffers that fit, the one that returned last: its pages are most likely in the caches."""
        for _ in range(len(self._free)):
            try:
                buffer = self._free.pop()
            except IndexError:  # another thread took the last one
                return None
            if size <= buffer.memory.size <= _MOST_WASTE * max(size, 1):
                return buffer
            self._free.appendleft(buffer)
        return None

    def __len__(self) -> int:
        """How many buffers are held and will return."""
        return len(self._out)

    @property
    def returned(self) -> int:
        """How many buffers have returned since one was reserved last."""
        return len(self._back)
