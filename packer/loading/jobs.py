"""Jobs of the engine: a batch decoded at once, and a batch of samples that a Python function sees one by one."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from packer.errors import PackerError
from packer.files.text import printable
from packer.loading.assembly import Filler
from packer.loading.collating import Collator, bytes_of

_SMALL_SLICES = 4  # per thread: they keep all threads busy to the end of a batch; each costs some microseconds

Random = TypeVar("Random")  # what a sample's random numbers come from
Where = Callable[[int], str]


class DecodeJob:
    """Samples of a pack, decoded into the batch's memory."""

    def __init__(self, assembly: Filler, as_tuple: tuple[str, ...] | None, collator: Collator) -> None:
        self._assembly = assembly
        self._as_tuple = as_tuple
        self._collator = collator
        self.fill = assembly.fill

    @property
    def given_up(self) -> bool:
        """See the engine's Job."""
        return self._assembly.given_up

    @given_up.setter
    def given_up(self, value: bool) -> None:
        self._assembly.given_up = value

    def __len__(self) -> int:
        return len(self._assembly.places)

    def slice(self, threads: int) -> int:
        """All of it where nothing is decoded; else equal parts of what is worked on at once, or less."""
        if self._assembly.only_copies:
            return len(self)
        rounds = _share(_share(len(self), threads), self._assembly.at_once)
        return _share(len(self), threads * rounds)

    def finish(self) -> tuple[Any, int]:
        """A dict of batched fields, or with `as_tuple` a list of them, as torch's default collate gives."""
        fields = self._collator.fields(self._assembly.fields())
        batch = fields if self._as_tuple is None else [fields[name] for name in self._as_tuple]
        return batch, bytes_of(batch)


class SampleJob(Generic[Random]):
    """Samples made by a function of (index, random numbers), put together as torch's default collate does."""

    def __init__(
        self,
        indices: Sequence[int],
        random: Sequence[Random],
        collator: Collator,
        *,
        get: Callable[[int, Random], Any],
        where: Where,
    ) -> None:
        """get: the sample of an index and random numbers. where: what to say of an index in an error."""
        self._indices = indices
        self._random = random
        self._get = get
        self._where = where
        self._collator = collator
        self._samples: list[Any] = [None] * len(indices)
        self.given_up = False

    def __len__(self) -> int:
        return len(self._indices)

    def slice(self, threads: int) -> int:
        """Small ones: nobody knows how long the function takes."""
        return _share(len(self), threads * _SMALL_SLICES)

    def fill(self, start: int, stop: int) -> None:
        """Make the samples at those positions."""
        for position in range(start, stop):
            if self.given_up:  # a slow function must not hold up an error or the end of the program
                return
            index = self._indices[position]
            try:
                self._samples[position] = self._get(index, self._random[position])
            except Exception as error:  # whatever a user's function raises goes on, with the sample's name
                note(error, self._where(index))
                raise

    def finish(self) -> tuple[Any, int]:
        """Dicts and tuples of tensors and numbers become batched ones; what has no one shape becomes a list."""
        batch = self._collator.samples(self._samples)
        return batch, bytes_of(batch)


def _share(count: int, among: int) -> int:
    return -(-count // among)


def note(error: Exception, where: str) -> None:
    """Say in the error which sample it came from; packer's own messages say it already."""
    if not isinstance(error, PackerError):
        notes = [*getattr(error, "__notes__", []), printable(where)]
        error.__dict__["__notes__"] = notes  # what add_note does, which Python 3.10 has not; shown from 3.11 on
