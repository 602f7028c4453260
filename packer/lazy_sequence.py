"""Lazy sequences: as long as a data set, an element made when it is asked for, so that none takes memory before."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

Element = TypeVar("Element")
_SHOWN = 3


class LazySequence(Sequence[Element]):
    """`count` elements, each given by a function of its index."""

    def __init__(self, get: Callable[[int], Element], count: int) -> None:
        self._get = get
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Element: ...
    @overload
    def __getitem__(self, index: slice) -> list[Element]: ...
    def __getitem__(self, index: int | slice) -> Element | list[Element]:
        if isinstance(index, slice):
            return [self._get(at) for at in range(*index.indices(self._count))]
        return self._get(index)

    def __iter__(self) -> Iterator[Element]:
        return (self._get(index) for index in range(self._count))

    def __repr__(self) -> str:
        shown = [repr(element) for element in self[:_SHOWN]] + ["..."] * (self._count > _SHOWN)
        return f"[{', '.join(shown)}] ({self._count} in all)"
