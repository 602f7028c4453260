"""Thread scratch: temporary buffers that each thread reuses for all images."""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

_LEAST_BYTES = 1 << 16

Bytes = npt.NDArray[np.uint8]
Arrays = TypeVar("Arrays", bound=tuple[Any, ...])


class ThreadScratch(threading.local):
    """Reusable buffers of the calling thread, which grow to the size of the largest image."""

    def __init__(self, *, odd: bool = False) -> None:
        """Create empty buffers. If `odd` is true, `pixels` returns arrays at odd, unaligned addresses."""
        self._odd = int(odd)
        self._file = np.empty(0, np.uint8)
        self._file_view = self._file.data
        self._pixels = np.empty(0, np.uint8)

    def file(self, size: int) -> tuple[Bytes, memoryview]:
        """Return (uint8 array, memoryview) of one buffer with at least `size` bytes. The next call reuses it."""
        if size > len(self._file):
            self._file = np.empty(_grown(size), np.uint8)
            self._file_view = self._file.data
        return self._file, self._file_view

    def pixels(self, height: int, width: int, channels: int = 3) -> Bytes:
        """Return a uint8 array (height, width, channels) with undefined content. The next call reuses its memory."""
        size = height * width * channels
        if size > len(self._pixels):
            self._pixels = np.empty(_grown(size) + self._odd, np.uint8)[self._odd :]
        return self._pixels[:size].reshape(height, width, channels)


class ThreadArrays(threading.local, Generic[Arrays]):
    """Several arrays over one buffer of the calling thread. They are reused until an image has another size."""

    def __init__(self, make: Callable[[Callable[[int], Bytes], int, int], Arrays]) -> None:
        """Store `make(allocate, height, width)`. It must return arrays over the memory of one `allocate(size)`."""
        self._make = make
        self._scratch = ThreadScratch(odd=True)
        self._size = 0, 0
        self._arrays: Arrays | None = None

    def of(self, height: int, width: int) -> Arrays:
        """Return the arrays for an image of this size, with undefined content. The next call reuses their memory."""
        if self._arrays is None or self._size != (height, width):
            self._arrays = self._make(lambda size: self._scratch.pixels(1, size, 1)[0, :, 0], height, width)
            self._size = height, width
        return self._arrays


def _grown(size: int) -> int:
    return max(size + size // 4, _LEAST_BYTES)
