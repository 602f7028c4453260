"""Scratch: memory that a thread uses again for each picture, so that none is allocated per image."""

import math
import threading

import numpy as np
import numpy.typing as npt

_MOST_BYTES = 64 << 20  # kept per name and thread; a larger one is let go after its use


class Scratch(threading.local):
    """Named buffers, others for each thread. What `take` returns is overwritten by the thread's next `take` of it."""

    def __init__(self) -> None:
        self._buffers: dict[str, npt.NDArray[np.uint8]] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        """A C-contiguous uint8 array of that shape, its content undefined."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = np.empty(size, np.uint8)
            if size <= _MOST_BYTES:
                self._buffers[name] = buffer
        return buffer[:size].reshape(shape)
