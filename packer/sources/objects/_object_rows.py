"""Object rows: samples of an object, by their numbers or one after the other."""

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from packer.errors import BadInput, InvalidRequest
from packer.sources._message_texts import counted
from packer.sources.base import MOST_PROBES

_END = object()  # in place of a sample


class Indexable(Protocol):
    """An object that returns a sample for a number: a torch Dataset, a list."""

    def __getitem__(self, index: int, /) -> Any:
        """Return the sample."""


class ObjectRows:
    """Samples that are read by their numbers. Not thread-safe: callers lock it."""

    is_sequential: ClassVar[bool] = False

    def __init__(self, data: Any, count: int) -> None:
        self._data = data
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> Any:
        """Return a sample as the object returns it."""
        return self._data[index]

    def restart(self) -> bool:
        """Begin another pass, so that samples can be read again; returns False if the object has a single pass."""
        return True


class SequentialRows(ObjectRows):
    """Samples that come one after the other; the user states how many.

    Threads may read them somewhat out of order: samples between are kept until they are read. The first samples stay,
    because they are inspected before any is packed. Each pass has one iterator, and the iterator of an earlier pass is
    not used again: passes of a stream may share its position.
    """

    is_sequential = True

    def __init__(self, data: Iterable[Any], count: int, name: str) -> None:
        """name: of the object, for messages."""
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
        """Return the next sample, or _END. Later calls raise the first exception again: the iterable may be over."""
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._rest, _END)
        except (OSError, BadInput) as error:  # concerns more than one sample, because no other may follow
            self._failure = InvalidRequest(f"{self._name}: fails after {counted(self._next, 'sample')}: {error}")
            raise self._failure from error
        except BaseException as error:
            self._failure = error
            raise
