"""Buffer pool: a buffer returns when its last view is freed.

`give` returns a memoryview of an array that exists only for this purpose. Slices, NumPy arrays and tensors made from
the view keep the array alive. When it is freed, the buffer returns to the pool. A slice of the array itself would not
keep it, because NumPy lets a slice refer to the buffer directly. Memory is reused because the system clears each page
of fresh memory, which costs more than filling it.

A forked child sees the buffers that its parent held at the fork, and the parent is not notified when the child frees
them. So a buffer that is in use at a fork never returns; the system frees it when no process holds it. A child reuses
no buffer of its parent. The rule holds for private memory too, where a reuse would copy its pages anyway.

No Python code runs when a buffer returns, or at a fork: the callbacks are methods of built-in types. An interrupt that
arrives in a Python callback would be printed there, and lost.
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

_MOST_WASTE = 4  # the largest ratio of a reused buffer to the requested size

Bytes = npt.NDArray[np.uint8]

# one byte per fork, appended before it, and after it in both processes
_forks_begun, _forks_ended = bytearray(), bytearray()
os.register_at_fork(
    before=partial(_forks_begun.append, 0),
    after_in_parent=partial(_forks_ended.append, 0),
    after_in_child=partial(_forks_ended.append, 0),
)


def _fork_state() -> tuple[int, int, int]:
    """Return a state that changes with every fork: forks ended, forks begun, and the process."""
    return len(_forks_ended), len(_forks_begun), os.getpid()


@dataclass(eq=False)
class PooledBuffer:
    """Memory that a pool reuses. References to the array `memory` itself do not keep the buffer in use."""

    memory: Bytes


AnyBuffer = TypeVar("AnyBuffer", bound=PooledBuffer)


def pageable(size: int) -> PooledBuffer:
    """Return a buffer in ordinary pageable memory."""
    return PooledBuffer(np.empty(size, np.uint8))


class _ReleaseWatch(weakref.ref[Bytes], Generic[AnyBuffer]):
    """Calls its callback when the view is freed. `then` is a second watch of the same view."""

    __slots__ = ("buffer", "then")
    __hash__ = object.__hash__  # of the watch, not the array
    __eq__ = object.__eq__

    buffer: AnyBuffer
    then: "_ReleaseWatch[AnyBuffer]"


class BufferPool(Generic[AnyBuffer]):
    """Gives out buffers, and reuses them after they have returned. Thread-safe."""

    def __init__(self, most_free: int, *, new: Callable[[int], AnyBuffer]) -> None:
        """Keep at most `most_free` unused buffers; `new` makes a buffer of a size in bytes."""
        self._new = new
        self._free: deque[AnyBuffer] = deque(maxlen=most_free)
        self._back: deque[_ReleaseWatch[AnyBuffer]] = deque(maxlen=most_free)  # returned since the last `reserve`
        self._out: set[_ReleaseWatch[AnyBuffer]] = set()
        self._last_state = _fork_state()

    def take(self, size: int) -> memoryview:
        """Return a buffer as writable bytes of undefined content."""
        return self.give(self.reserve(size), size)

    def reserve(self, size: int) -> AnyBuffer:
        """Return a buffer of at least `size` bytes for `give`; forks before `give` are harmless."""
        self._collect()
        buffer = self._fitting(size)
        return buffer if buffer is not None else self._new(max(size, 1))

    def give(self, buffer: AnyBuffer, size: int) -> memoryview:
        """Return the first `size` bytes of a reserved buffer, which returns when their last view is freed."""
        view = buffer.memory[:size]
        # when the view is freed, the first watch leaves `_out` and the second joins `_back`
        watch: _ReleaseWatch[AnyBuffer] = _ReleaseWatch(view, self._out.discard)
        watch.then = _ReleaseWatch(view, self._back.append)
        watch.then.buffer = buffer
        self._out.add(watch)
        return view.data

    def put_back(self, buffer: AnyBuffer) -> None:
        """Return a reserved buffer that was not given out; the caller must not write into it afterwards."""
        self._free.append(buffer)

    def _collect(self) -> None:
        """Make returned buffers free, unless the process forked since the last call: a child may hold them."""
        back = self._emptied()
        now = _fork_state()  # read after `back`, so these buffers returned before
        ended, begun, pid = now
        if now == self._last_state and begun == ended:  # else another thread forks: the child may exist already
            self._free.extend(back)
            return
        if pid != self._last_state[2]:
            self._free.clear()
        self._out.clear()  # these buffers never return; they end with their views
        self._back.clear()
        self._last_state = now

    def _emptied(self) -> list[AnyBuffer]:
        """Remove and return the returned buffers, in order; other threads may add and take buffers meanwhile."""
        found = []
        while self._back:
            try:
                found.append(self._back.popleft().buffer)
            except IndexError:
                break
        return found

    def _fitting(self, size: int) -> AnyBuffer | None:
        """Return the fitting buffer that returned last, whose pages are most likely in the caches."""
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
        """Return the number of buffers that are in use and will return."""
        return len(self._out)

    @property
    def returned(self) -> int:
        """Number of buffers that have returned since the last `reserve`."""
        return len(self._back)
