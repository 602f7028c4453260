"""Keys of samples as a sequence, none of which is in memory before it is asked for."""

from collections.abc import Callable, Iterator, Sequence
from typing import overload


class Keys(Sequence[str]):
    """The keys of so many samples, each given by a function of its index."""

    def __init__(self, key: Callable[[int], str], count: int) -> None:
        self._key = key
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._key(at) for at in range(*index.indices(self._count))]
        return self._key(index)

    def __iter__(self) -> Iterator[str]:
        return (self._key(index) for index in range(self._count))
