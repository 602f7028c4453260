"""File descriptors that forked children close: kernel locks and unnamed files that belong to one process.

A kernel lock on an open file, and the disk space of an unnamed file, last until the last descriptor is closed. A forked
child, such as a DataLoader worker, inherits a copy of each descriptor. Without this module, a child that lives for
hours would keep the lock and the space.
"""

import os
import threading
from collections.abc import Callable


class ClosedAfterFork:
    """Set of open file descriptors of this process that a forked child closes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, make: Callable[[], int]) -> int:
        """Call `make`, which opens a file and returns its descriptor. Register and return the descriptor."""
        with self._lock:  # prevents a fork between opening and registering
            descriptor = make()
            self._open.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        """Close a registered descriptor. In a forked child, descriptors are not registered, and nothing happens."""
        with self._lock:
            if descriptor in self._open:
                self._open.remove(descriptor)
                os.close(descriptor)

    def hold(self) -> None:
        """Acquire the lock of this set before a fork, so that no thread opens a descriptor during the fork."""
        self._lock.acquire()

    def release(self) -> None:
        """Release the lock of this set in the parent after a fork."""
        self._lock.release()

    def forget(self) -> None:
        """Close all registered descriptors in the child after a fork."""
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
