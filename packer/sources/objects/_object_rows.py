"""Object rows: access to the samples of a Python object, such as a torch Dataset or a list, by index or in sequence."""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from packer.errors import BadInput, InvalidRequest
from packer.sources._message_texts import counted
from packer.sources.base import MOST_PROBES

_END = object()  # marks the end of the samples


class Indexable(Protocol):
    """An object that returns a sample for an index, such as a torch Dataset or a list."""

    def __getitem__(self, index: int, /) -> Any:
        """Return the sample at `index`."""


class ObjectRows:
    """The samples of an object, read by index. Not thread-safe: `ObjectSource` holds a lock.

    Attributes:
        ahead: The number of samples that `expect` reads ahead.
    """

    is_sequential: ClassVar[bool] = False
    ahead = 0

    def __init__(self, data: Any, count: int) -> None:
        self._data = data
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> Any:
        """Return the sample at `index`, unchanged."""
        return self._data[index]

    def expect(self, rows: Iterable[int]) -> None:
        """Begin to read the samples at `rows`, which are needed soon. Only `WorkerRows` reads ahead."""

    def restart(self) -> bool:
        """Prepare to read samples again, and return True. Return False if the object supports only one pass."""
        return True


class SequentialRows(ObjectRows):
    """Samples of an iterable. The user states the number of samples.

    Threads may read samples slightly out of order: samples in between are cached until they are read. The first samples
    remain cached, because packer inspects them before packing starts. Each pass creates a new iterator and discards the
    old iterator, because iterators of a stream may share a position.
    """

    is_sequential = True

    def __init__(self, data: Iterable[Any], count: int, name: str) -> None:
        """Begin the first pass. `name` is the name of the object in messages."""
        super().__init__(data, count)
        self._name = name
        self._rest = iter(data)
        self._has_one_pass = self._rest is data
        self._failure: BaseException | None = None
        self._next = 0
        self._first: list[Any] = []
        self._kept: dict[int, Any] = {}

    def restart(self) -> bool:
        if self._has_one_pass:
            return False
        self._rest, self._next, self._first = iter(self._data), 0, []
        return True

    def read(self, index: int) -> Any:
        while self._next <= index:
            sample = self._following()
            if sample is _END:
                raise self._wrong_length("ended")
            if self._next < MOST_PROBES:
                self._first.append(sample)
            else:
                self._kept[self._next] = sample
            self._next += 1
            if self._next == self._count and self._following() is not _END:
                raise self._wrong_length("goes on")
        return self._first[index] if index < len(self._first) else self._kept.pop(index)

    def _wrong_length(self, event: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self._name}: {event} after {counted(self._next, 'sample')}, length= is {self._count}: give the number "
            "of its samples, or select as many: itertools.islice"
        )

    def _following(self) -> Any:
        """Return the next sample, or `_END` after the last. If the iterable fails, later calls raise the same error."""
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._rest, _END)
        except (OSError, BadInput) as error:  # not a skippable bad sample, because the iterable may be finished
            self._failure = InvalidRequest(f"{self._name}: fails after {counted(self._next, 'sample')}: {error}")
            raise self._failure from error
        except BaseException as error:
            self._failure = error
            raise
