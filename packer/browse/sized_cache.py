"""Sized cache: keeps the most recently used values, up to a limit in bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class SizedCache(Generic[Value]):
    """Values by key. If they exceed the limit, the least recently used values are removed. Thread-safe."""

    def __init__(self, limit_bytes: int, size_of: Callable[[Value], int]) -> None:
        """Create an empty cache. `size_of` returns the size of a value in bytes."""
        self._limit_bytes = limit_bytes
        self._size_of = size_of
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key. `make` computes a value that is not in the cache. Two threads may both call it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        made = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = made
                self.bytes += self._size_of(made)
            while self.bytes > self._limit_bytes:
                self.bytes -= self._size_of(self._values.popitem(last=False)[1])
        return made
