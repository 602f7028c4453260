"""Thread scratch: buffers of each thread, reused for picture after picture."""

import threading

import numpy as np
import numpy.typing as npt

_LEAST_BYTES = 1 << 16

Bytes = npt.NDArray[np.uint8]


class ThreadScratch(threading.local):
    """Buffers of the calling thread, as large as the largest picture so far; each call overwrites the last one's."""

    def __init__(self) -> None:
        self._file = np.empty(0, np.uint8)
        self._file_view = self._file.data
        self._pixels = np.empty(0, np.uint8)

    def file(self, size: int) -> tuple[Bytes, memoryview]:
        """At least `size` bytes, as an array and as a view of the same memory; valid until the next call."""
        if size > len(self._file):
            self._file = np.empty(_grown(size), np.uint8)
            self._file_view = self._file.data
        return self._file, self._file_view

    def pixels(self, height: int, width: int, channels: int = 3) -> Bytes:
        """(height, width, channels), its content undefined; valid until the next call."""
        size = height * width * channels
        if size > len(self._pixels):
            self._pixels = np.empty(_grown(size), np.uint8)
        return self._pixels[:size].reshape(height, width, channels)


def _grown(size: int) -> int:
    return max(size + size // 4, _LEAST_BYTES)
