"""Batch sampler order: passes of complete batches, for weights, Mix, SizeBuckets and the batch samplers of users.

Ranks take turns in the batches: rank r of w makes the batches r, r + w, r + 2 w, ... So a batch is the same on any
number of ranks. If the batches do not divide among the ranks, the longest batches are cut into halves, and each sample
is still on exactly one rank. With drop_last, the last batches are dropped instead.
"""

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import count
from operator import index
from typing import Any, Protocol, runtime_checkable

import numpy as np

from packer.errors import InvalidRequest
from packer.loading.sample_order import Order, Span, Spans, Step


@runtime_checkable
class BatchPasses(Protocol):
    """The batches of each pass. All passes have the same number of batches."""

    def __len__(self) -> int:
        """Return the number of batches of a pass."""

    def of_pass(self, seed: int, number: int) -> Sequence[Step]:
        """Return the batches of pass `number`. Equal arguments give equal batches."""

    def identity(self) -> str:
        """Return a text that identifies the batches: equal texts mean equal batches."""


class UserBatches:
    """The batches of a user's batch sampler. `deciding` is the object that decides the order and may have a state."""

    def __init__(self, sampler: Any) -> None:
        """Wrap a batch sampler. Raises InvalidRequest if it is not an iterable with a length."""
        if not isinstance(sampler, Iterable) or not isinstance(sampler, Sized):
            raise InvalidRequest("batch_sampler: expected an iterable of lists of sample indices that has a length")
        self._sampler: Any = sampler
        self.deciding = getattr(sampler, "sampler", sampler)  # torch's BatchSampler cuts the order of a sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def of_pass(self, seed: int, number: int) -> list[Step]:
        """Return the batches that the sampler yields. Raises InvalidRequest if they are not as many as its length."""
        for each in (self._sampler, self.deciding):
            if hasattr(each, "set_epoch"):
                each.set_epoch(number)
        try:
            batches = [np.fromiter(map(index, batch), np.int64) for batch in self._sampler]
        except TypeError as error:
            raise InvalidRequest(f"batch_sampler: expected lists of sample indices: {error}") from error
        if len(batches) != len(self):
            raise InvalidRequest(f"batch_sampler: it gave {len(batches)} lists, and its length is {len(self)}")
        return [Step(batch, np.full(len(batch), number)) for batch in batches]

    def identity(self) -> str:
        """Return the class of the sampler."""
        return type(self._sampler).__name__


@dataclass(frozen=True)
class BatchOrder(Order):
    """The order of the batches of one rank, if a pass consists of batches. `count` and `batch_size` count batches.

    Args:
        passes: The batches of each pass.
    """

    passes: BatchPasses = field(kw_only=True)

    def _check_shares(self, samples: int) -> None:
        """Check nothing, because `_dealt` divides the batches."""

    @property
    def _samples_of_a_pass(self) -> int:
        return self.count

    def steps_after(self, before: Spans) -> int:
        if self.steps_per_epoch is not None:
            return len(self)
        left = self.count
        for span in before:
            left -= span.world_size * span.steps - (0 if self.drop_last else -left % span.world_size)
        return self._steps_of(left)

    def begin(self, epoch: int, step: int = 0, before: Spans = ()) -> Iterator[Step]:
        if self.steps_per_epoch is not None:
            done = sum(span.world_size * span.steps for span in before)
            return self._stream(done + (epoch * self.steps_per_epoch + step) * self.world_size)
        batches = self.passes.of_pass(int(self.seed), epoch)
        for span in (*before, Span(self.world_size, 1, step)):
            batches = self._dealt(batches, span.world_size)[span.world_size * span.steps :]
        return iter(batches[self.rank :: self.world_size][: len(batches) // self.world_size])

    def _stream(self, done: int) -> Iterator[Step]:
        """Yield the batches of endless passes. done: number of batches that all ranks have made."""
        newest, batches = -1, self.passes.of_pass(int(self.seed), 0)[:0]
        for position in count(done + self.rank, self.world_size):
            number, place = divmod(position, self.count)
            if number != newest:
                newest, batches = number, self.passes.of_pass(int(self.seed), number)
            yield batches[place]

    def _dealt(self, batches: Sequence[Step], ranks: int) -> Sequence[Step]:
        """Return the batches, the longest of them cut into halves, in a number that divides among the ranks.

        With drop_last, return the argument. Raises InvalidRequest if the batches have too few samples.
        """
        lacking = 0 if self.drop_last else -len(batches) % ranks
        sizes = [len(batch.indices) for batch in batches]
        longest = np.argsort(sizes, kind="stable")[::-1][:lacking].tolist()
        if lacking > sum(sizes[at] > 1 for at in longest):
            raise InvalidRequest(
                f"{len(batches)} batches do not divide among {ranks} ranks, and are too short to be cut; pass "
                "drop_last=True or another batch_size"
            )
        dealt: list[Step] = []
        for at, batch in enumerate(batches):
            parts = 1 + (at in longest)
            dealt += map(Step, np.array_split(batch.indices, parts), np.array_split(batch.passes, parts))
        return dealt
