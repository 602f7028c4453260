"""Process descriptors: open files that belong to one process, and that its forked children close.

A lock of the kernel on an open file, and the blocks of a file without a name, last until the last descriptor is closed.
A forked child, such as a worker of a DataLoader, inherits a copy of each and lives for hours: it would keep them.
"""

import os
import threading
from collections.abc import Callable


class ProcessDescriptors:
    """The descriptors of this process that no child keeps. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, make: Callable[[], int]) -> int:
        """The descriptor that `make` opens; raises what that raises."""
        with self._lock:  # no fork between the two
            descriptor = make()
            self._open.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        """Close it, once; in a child, where it is closed, this does nothing."""
        with self._lock:
            if descriptor in self._open:
                self._open.remove(descriptor)
                os.close(descriptor)

    def hold(self) -> None:
        """Before fork: wait until no thread is opening one."""
        self._lock.acquire()

    def release(self) -> None:
        """In the parent after fork."""
        self._lock.release()

    def forget(self) -> None:
        """In a child after fork: close what is the parent's."""
        self._lock = threading.Lock()
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()


process_descriptors = ProcessDescriptors()  # process-wide, by design: a fork copies the descriptors of all
os.register_at_fork(
    before=process_descriptors.hold,
    after_in_parent=process_descriptors.release,
    after_in_child=process_descriptors.forget,
)
