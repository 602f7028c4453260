"""Descriptors that forked children close: kernel locks and unnamed files that belong to one process.

A kernel lock on an open file, and the blocks of an unnamed file, last until the last descriptor is closed. A forked
child, such as a worker of a DataLoader, inherits a copy of each descriptor and would keep them for hours.
"""

import os
import threading
from collections.abc import Callable


class ClosedAfterFork:
    """The descriptors of this process that a forked child closes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, make: Callable[[], int]) -> int:
        """Call `make` and return the descriptor that it opens."""
        with self._lock:  # no fork may come between the two steps
            descriptor = make()
            self._open.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        """Close a descriptor, unless it is already closed, as in a forked child."""
        with self._lock:
            if descriptor in self._open:
                self._open.remove(descriptor)
                os.close(descriptor)

    def hold(self) -> None:
        """Wait, before a fork, until no thread is opening a descriptor."""
        self._lock.acquire()

    def release(self) -> None:
        """Let the threads of the parent continue after a fork."""
        self._lock.release()

    def forget(self) -> None:
        """Close the parent's descriptors in the child after a fork."""
        self._lock = threading.Lock()
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()


closed_after_fork = ClosedAfterFork()  # one per process, because a fork copies every descriptor
os.register_at_fork(
    before=closed_after_fork.hold,
    after_in_parent=closed_after_fork.release,
    after_in_child=closed_after_fork.forget,
)
