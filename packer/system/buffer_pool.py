"""Buffer pool: memory buffers that are reused after their last reference is freed.

Reuse is faster than new memory, because the system clears each page of new memory. `give` returns a memoryview of a
helper array. Slices, NumPy arrays and tensors that are made from the memoryview keep the helper array alive. When the
helper array is freed, the buffer returns to the pool. `give` does not return the helper array itself: NumPy
slices of it would reference the underlying buffer directly. They would not keep the helper array alive.

A forked child can read the buffers that the parent used at the fork. The parent is not notified when the child frees
these buffers. A buffer that is in use at a fork therefore never returns to the pool. The system frees the buffer when
no process references the buffer. A child never reuses a buffer of the parent. All this applies to buffers in shared and
in private memory.

No Python code runs when a buffer returns, or at a fork: the callbacks are methods of built-in types. Python would print
and discard a KeyboardInterrupt that arrives in a Python callback.
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

# each fork appends one byte to `_forks_begun`, and then, in both processes, one byte to `_forks_ended`
_forks_begun, _forks_ended = bytearray(), bytearray()
os.register_at_fork(
    before=partial(_forks_begun.append, 0),
    after_in_parent=partial(_forks_ended.append, 0),
    after_in_child=partial(_forks_ended.append, 0),
)


def _fork_state() -> tuple[int, int, int]:
    """Return (forks ended, forks begun, process id). A fork changes it in the parent and in the child."""
    return len(_forks_ended), len(_forks_begun), os.getpid()


@dataclass(eq=False)
class PooledBuffer:
    """Memory that a pool reuses, even if references to the array `memory` exist."""

    memory: Bytes


AnyBuffer = TypeVar("AnyBuffer", bound=PooledBuffer)


def pageable(size: int) -> PooledBuffer:
    """Return a buffer in ordinary pageable memory."""
    return PooledBuffer(np.empty(size, np.uint8))


class _ReleaseWatch(weakref.ref[Bytes], Generic[AnyBuffer]):
    """Weak reference that runs a callback when an array is freed. `then` is a second one, with the buffer to reuse."""

    __slots__ = ("buffer", "then")
    __hash__ = object.__hash__  # identity of the weak reference, not of the array
    __eq__ = object.__eq__

    buffer: AnyBuffer
    then: "_ReleaseWatch[AnyBuffer]"


class BufferPool(Generic[AnyBuffer]):
    """Pool of reusable buffers. A buffer returns to the pool when the last reference is freed. Thread-safe."""

    def __init__(self, most_free: int, *, new: Callable[[int], AnyBuffer]) -> None:
        """Keep at most `most_free` unused buffers. `new(size)` must return a buffer of `size` bytes."""
        self._new = new
        self._free: deque[AnyBuffer] = deque(maxlen=most_free)
        self._back: deque[_ReleaseWatch[AnyBuffer]] = deque(maxlen=most_free)  # returned since the last `reserve`
        self._out: set[_ReleaseWatch[AnyBuffer]] = set()
        self._last_state = _fork_state()

    def take(self, size: int) -> memoryview:
        """Return `size` writable bytes of undefined content. The memory is reused after all references are freed."""
        return self.give(self.reserve(size), size)

    def reserve(self, size: int) -> AnyBuffer:
        """Return an unused buffer of at least `size` bytes for `give` or `put_back`. A fork before `give` is safe."""
        self._collect()
        buffer = self._fitting(size)
        return buffer if buffer is not None else self._new(max(size, 1))

    def give(self, buffer: AnyBuffer, size: int) -> memoryview:
        """Return the first `size` bytes of a reserved buffer. It is reused after the last reference to them."""
        view = buffer.memory[:size]
        # when the view is freed, the first watch leaves `_out` and the second joins `_back`
        watch: _ReleaseWatch[AnyBuffer] = _ReleaseWatch(view, self._out.discard)
        watch.then = _ReleaseWatch(view, self._back.append)
        watch.then.buffer = buffer
        self._out.add(watch)
        return view.data

    def put_back(self, buffer: AnyBuffer) -> None:
        """Put an unused buffer from `reserve` back into the pool. The pool can then give it to another thread."""
        self._free.append(buffer)

    def _collect(self) -> None:
        """Make returned buffers reusable. After a fork, discard these buffers instead, because a child may use them."""
        back = self._emptied()
        now = _fork_state()  # read after `back`, so these buffers returned before
        ended, begun, pid = now
        if now == self._last_state and begun == ended:  # otherwise another thread forks, and a child may exist
            self._free.extend(back)
            return
        if pid != self._last_state[2]:
            self._free.clear()
        self._out.clear()  # buffers in use never return, and are freed with the last reference
        self._back.clear()
        self._last_state = now

    def _emptied(self) -> list[AnyBuffer]:
        found = []
        while self._back:
            try:
                found.append(self._back.popleft().buffer)
            except IndexError:
                break
        return found

    def _fitting(self, size: int) -> AnyBuffer | None:
        """Return a free buffer of a suitable size, or None. The latest buffer may still be in a CPU cache."""
        for _ in range(len(self._free)):
            try:
                buffer = self._free.pop()
            except IndexError:  # another thread took the last buffer
                return None
            if size <= buffer.memory.size <= _MOST_WASTE * max(size, 1):
                return buffer
            self._free.appendleft(buffer)
        return None

    def __len__(self) -> int:
        """Return the number of buffers that are in use and will return to the pool."""
        return len(self._out)

    @property
    def returned(self) -> int:
        """Number of buffers that have returned to the pool since the last call of `reserve`."""
        return len(self._back)
