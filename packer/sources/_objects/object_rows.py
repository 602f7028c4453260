"""Object rows: where the samples of an object come from: from any place by its number, or one after the other."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from packer.errors import BadInput, InvalidRequest
from packer.sources._parse.folder_listing import counted
from packer.sources.base import MOST_PROBES, probe_indices

_END = object()  # in place of a sample


class Indexable(Protocol):
    """What gives a sample for a number: a torch Dataset, a list."""

    def __getitem__(self, index: int, /) -> Any:
        """The sample."""


class ObjectRows(ABC):
    """The samples of one object. For one thread at a time: who shares it locks it."""

    is_sequential: bool

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def read(self, index: int) -> Any:
        """A sample as the object gives it."""

    @abstractmethod
    def probes(self) -> Sequence[int]:
        """The samples to look at before any is packed."""

    @abstractmethod
    def restart(self) -> bool:
        """Begin another pass, so that samples can be read once more; False where they come only once."""


class IndexedRows(ObjectRows):
    """Samples that are asked for by their number."""

    is_sequential = False

    def __init__(self, data: Indexable, count: int) -> None:
        self._data = data
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> Any:
        return self._data[index]

    def probes(self) -> Sequence[int]:
        return probe_indices(self._count)

    def restart(self) -> bool:
        return True


class SequentialRows(ObjectRows):
    """Samples that come one after the other, as many as was said.

    They may be asked for somewhat out of order, as threads do: those between are held until they are asked for. The
    first few stay, since they are looked at before any is packed. Each pass has one iterator, and the one of an earlier
    pass is not used again: passes of a stream may share its place.
    """

    is_sequential = True

    def __init__(self, data: Iterable[Any], count: int, name: str) -> None:
        """count: how many there are; another number is refused when it shows. name: of the object, for messages."""
        self._data = data
        self._count = count
        self._name = name
        self._rest = iter(data)
        self._comes_once = self._rest is data
        self._failure: BaseException | None = None
        self._next = 0
        self._first: list[Any] = []
        self._held: dict[int, Any] = {}

    def __len__(self) -> int:
        return self._count

    def probes(self) -> Sequence[int]:
        return range(min(MOST_PROBES, self._count))

    def restart(self) -> bool:
        if self._comes_once:
            return False
        self._rest, self._next, self._first = iter(self._data), 0, []
        return True

    def read(self, index: int) -> Any:
        while self._next <= index:
            sample = self._pulled()
            if sample is _END:
                raise InvalidRequest(
                    f"{self._name}: ended after {counted(self._next, 'sample')}, length= says {self._count}; give the "
                    "number that there is"
                )
            if self._next < MOST_PROBES:
                self._first.append(sample)
            else:
                self._held[self._next] = sample
            self._next += 1
            if self._next == self._count and self._pulled() is not _END:
                raise InvalidRequest(
                    f"{self._name}: goes on after {counted(self._count, 'sample')}, as many as length= says; give the "
                    "number that there is, or take so many: itertools.islice"
                )
        return self._first[index] if index < len(self._first) else self._held.pop(index)

    def _pulled(self) -> Any:
        """The next sample, or _END. The first exception is raised at every later call: the iterable may be over."""
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._rest, _END)
        except (OSError, BadInput) as error:  # not of one sample alone: no other may follow
            self._failure = InvalidRequest(f"{self._name}: fails after {counted(self._next, 'sample')}: {error}")
            raise self._failure from error
        except BaseException as error:
            self._failure = error
            raise
