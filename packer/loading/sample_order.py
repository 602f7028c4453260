"""Sample order: the order of the samples, as a function of seed, epoch, rank and number of ranks.

A pass is one order of all samples. A shuffled pass depends on (seed, pass) only. With shuffle="blocks" it also depends
on the parts of the pack (block_order.py). Rank r of w ranks reads the positions r, r + w, r + 2 w, ... of the pass. All
ranks make the same number of batches. If the number of ranks changes during a pass, the remaining samples are divided
in the same way. If a pass consists of batches, the batches are divided instead (batch_sampler_order.py).

A user's sampler needs no saved state if its order never changes or depends on `set_epoch` only. If it has a generator,
the state of the generator before the pass is saved. Otherwise the result of its `state_dict` is saved, if it has one.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import asdict, astuple, dataclass
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer.errors import InvalidRequest
from packer.geometry import shuffled
from packer.loading.block_order import BlockOrder
from packer.system.argument_types import check_parameters

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Step:
    """One batch: sample indices, and for each sample the number of its pass. Both arrays are int64 (N,).

    The random numbers for the geometry of a sample depend on its index and its pass.
    """

    indices: Indices
    passes: Indices


@dataclass(frozen=True)
class Span:
    """The batches of a pass before the number of ranks changed: each of `world_size` ranks made `steps` batches."""

    world_size: int
    batch_size: int
    steps: int


Spans = tuple[Span, ...]


@dataclass(frozen=True)
class Order:
    """The order of the batches of one rank.

    Args:
        count: Number of samples of the dataset.
        batch_size: Number of samples of a batch.
        shuffle: True shuffles each pass differently. False keeps the order of the dataset.
        seed: Seed of the shuffle.
        drop_last: True drops an incomplete last batch. False makes it.
        rank: Number of this process.
        world_size: Number of processes.
        steps_per_epoch: Batches per epoch of an endless stream of passes. None: an epoch is one pass.
        sampler: An iterable of sample indices with a length. It replaces the shuffle.
        blocks: A shuffle by blocks. It replaces the shuffle of all samples.
    """

    count: int
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    rank: int = 0
    world_size: int = 1
    steps_per_epoch: int | None = None
    sampler: Any = None
    blocks: BlockOrder | None = None

    def __post_init__(self) -> None:
        # None is torch's default of the two
        given = {**vars(self), "shuffle": self.shuffle or False, "drop_last": self.drop_last or False}
        check_parameters(Order.__init__, given)
        for name in ("batch_size", "world_size", "steps_per_epoch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name}={value!r}: expected a whole number, at least 1")
        if not 0 <= self.rank < self.world_size:
            raise InvalidRequest(
                f"rank={self.rank}: expected 0 to {self.world_size - 1}, world_size is {self.world_size}"
            )
        if self.sampler is not None and (self.shuffle or self.world_size > 1 or self.steps_per_epoch):
            raise InvalidRequest(
                "sampler or batch_sampler: your object decides the order alone; drop shuffle, rank, world_size and "
                "steps_per_epoch, or give weights= or a packer.loading.SizeBuckets, which ranks share"
            )
        if self.sampler is not None and not (isinstance(self.sampler, Iterable) and isinstance(self.sampler, Sized)):
            raise InvalidRequest(
                "sampler: expected an iterable of sample indices that has a length, as torch's samplers are"
            )
        if self.steps_per_epoch and not self.count:
            raise InvalidRequest("steps_per_epoch: an empty data set has no endless stream")
        if not self.steps_per_epoch:
            self._check_shares(self._samples_of_a_pass)

    def _check_shares(self, samples: int) -> None:
        if samples // self.world_size < self._steps_of(samples):
            raise InvalidRequest(
                f"{samples} samples do not divide into batches of {self.batch_size} on {self.world_size} ranks with "
                "one sample each in the last; pass drop_last=True or another batch_size"
            )

    @property
    def _samples_of_a_pass(self) -> int:
        return len(self.sampler) if self.sampler is not None else self.count

    def _steps_of(self, samples: int) -> int:
        return _steps(samples, self.batch_size * self.world_size, self.drop_last)

    def __len__(self) -> int:
        """Return the number of batches of an epoch, the same on every rank."""
        return self.steps_per_epoch or self._steps_of(self._samples_of_a_pass)

    def steps_after(self, before: Spans) -> int:
        """Return how many batches of an epoch remain after the batches of the spans `before`.

        Raises InvalidRequest if a rank would have no sample for one of its batches.
        """
        if self.steps_per_epoch is not None or not before:
            return len(self)
        left = len(self._left(before))
        self._check_shares(left)
        return self._steps_of(left)

    def begin(self, epoch: int, step: int = 0, before: Spans = ()) -> Iterator[Step]:
        """Return an iterator of the batches of an epoch. For an endless stream, the iterator never ends.

        Args:
            epoch: Number of the epoch.
            step: Number of the first batch, counted from the end of `before`.
            before: The batches at the beginning of this pass or stream that other numbers of ranks made.
        """
        if self.steps_per_epoch is None:
            indices = self.of_pass(epoch)
            return EpochSteps(self, epoch, step, indices[self._left(before)] if before else indices)
        done = sum(each.world_size * each.batch_size * each.steps for each in before)
        return _Stream(self, epoch * self.steps_per_epoch + step, done)

    def _left(self, before: Spans) -> Indices:
        """Return the positions of a pass that no rank of the spans `before` has read, int64, ascending."""
        left = np.arange(self._samples_of_a_pass, dtype=np.int64)
        for span in before:
            steps = _steps(len(left), span.batch_size * span.world_size, self.drop_last)
            kept = np.ones(len(left), bool)
            for rank in range(span.world_size):
                mine = kept[rank :: span.world_size]  # a view of `kept`
                mine[: _start(len(mine), span.batch_size, steps, span.steps)] = False
            left = left[kept]
        return left

    def of_pass(self, number: int) -> Indices:
        """Return the sample indices of pass `number`, of all ranks together, int64.

        Raises InvalidRequest if the sampler yields more or fewer indices than its length.
        """
        if self.sampler is None:
            if self.blocks is not None:
                return self.blocks.of_pass(int(self.seed), number)
            return shuffled(self.seed, number, self.count) if self.shuffle else np.arange(self.count)
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(number)
        try:
            indices = np.fromiter((index(each) for each in self.sampler), np.int64)
        except TypeError as error:
            raise InvalidRequest(f"sampler: expected sample indices one by one: {error}") from error
        if len(indices) != len(self.sampler):
            raise InvalidRequest(f"sampler: it gave {len(indices)} indices, and its length is {len(self.sampler)}")
        return indices


class Steps(Iterator[Step]):
    """An iterator of the batches of one rank, which reads every w-th sample if there are w ranks."""

    @abstractmethod
    def upcoming(self) -> Indices:
        """Return the sample indices of the current pass that remain for all ranks together, in order, int64."""


def _steps(samples: int, size: int, drop_last: bool) -> int:
    return samples // size if drop_last else -(-samples // size)


def _start(count: int, size: int, steps: int, step: int) -> int:
    """Return how many of the `count` samples of a rank come before batch number `step` of `steps`.

    Each batch has `size` samples, or fewer near the end, so that at least one sample is left for each later batch.
    """
    return min(step * size, max(0, count - (steps - step)))


class EpochSteps(Steps):
    """The batches of a rank in one pass, or in the rest of a pass."""

    def __init__(self, order: Order, epoch: int, step: int, indices: Indices) -> None:
        """Create an iterator of the batches from number `step`.

        Args:
            order: The order of the rank.
            epoch: Number of the epoch.
            step: Number of the first batch, from 0.
            indices: Sample indices in the order of the epoch, for all ranks together.
        """
        self.epoch = epoch
        self.mine = indices[order.rank :: order.world_size]
        self._of_all, self._world_size = indices, order.world_size
        self._step = step
        self._steps = order._steps_of(len(indices))  # its own
        self._size = order.batch_size

    def _begin_of(self, step: int) -> int:
        return _start(len(self.mine), self._size, self._steps, step)

    def at(self, step: int) -> Step:
        """Return batch number `step`, from 0 to the number of batches - 1."""
        indices = self.mine[self._begin_of(step) : self._begin_of(step + 1)]
        return Step(indices, np.full(len(indices), self.epoch, np.int64))

    def upcoming(self) -> Indices:
        return self._of_all[self._world_size * self._begin_of(self._step) :]

    def __next__(self) -> Step:
        if self._step >= self._steps:
            raise StopIteration
        self._step += 1
        return self.at(self._step - 1)


class _Stream(Steps):
    """Endless passes. A batch may contain the end of one pass and the beginning of the next."""

    def __init__(self, order: Order, step: int, done: int) -> None:
        """Start at batch number `step`. `done` is the number of samples of the stream before batch 0."""
        self._order = order
        self._step = step
        self._done = done
        self._pass = -1
        self._indices = np.empty(0, np.int64)

    def upcoming(self) -> Indices:
        order = self._order
        number, position = divmod(self._done + self._step * order.batch_size * order.world_size, order.count)
        return order.of_pass(number)[position:]

    def __next__(self) -> Step:
        order = self._order
        numbers = np.arange(self._step * order.batch_size, (self._step + 1) * order.batch_size, dtype=np.int64)
        positions = self._done + numbers * order.world_size + order.rank
        self._step += 1
        passes = positions // order.count
        indices = np.empty(len(positions), np.int64)
        for number in np.unique(passes).tolist():
            if number != self._pass:
                self._pass, self._indices = number, order.of_pass(number)
            chosen = passes == number
            indices[chosen] = self._indices[positions[chosen] % order.count]
        return Step(indices, passes)


# ---- the state of a user's sampler


def state_of(sampler: Any) -> dict[str, Any] | None:
    """Return the state of a user's sampler for `restore`. None if its order needs no saved state."""
    generator = getattr(sampler, "generator", None)
    if isinstance(generator, torch.Generator):
        return {"generator": generator.get_state().numpy().tobytes().hex()}
    if not hasattr(sampler, "set_epoch") and hasattr(sampler, "state_dict"):
        return {"state_dict": sampler.state_dict()}
    return None


def restore(sampler: Any, state: Any, *, begun: bool) -> None:
    """Restore the state of a user's sampler.

    Args:
        sampler: The sampler, or None.
        state: The result of `state_of`.
        begun: True if a pass is continued, so that the sampler must repeat its order. False if a pass begins.

    Raises:
        InvalidRequest: The sampler cannot repeat its order, or the state is that of another sampler.
    """
    mine = state_of(sampler)
    if begun and mine is None and hasattr(sampler, "generator"):
        raise InvalidRequest(
            f"state_dict: {type(sampler).__name__} without a generator draws another order each time; "
            "pass generator=torch.Generator() to it, and save again"
        )
    kind = next(iter(mine)) if mine else None
    if not isinstance(state, dict | None) or (set(state or ()) != set(mine or ())):
        raise InvalidRequest(f"state_dict: the sampler's state is {type(state).__name__}, expected one with {kind!r}")
    if not state:
        return
    if kind == "state_dict":
        sampler.load_state_dict(state[kind])
        return
    try:
        sampler.generator.set_state(torch.frombuffer(bytearray.fromhex(state[kind]), dtype=torch.uint8))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidRequest(f"state_dict: the sampler's generator does not accept its state: {error}") from error


def rank_and_world_size(rank: int | None, world_size: int | None, *, distributed: bool) -> tuple[int, int]:
    """Return (rank, world_size): the arguments, or without them the values of torch.distributed, or else (0, 1).

    torch.distributed is used only if `distributed` is true. Raises InvalidRequest if only one argument is None.
    """
    if (rank is None) != (world_size is None):
        raise InvalidRequest(f"rank={rank}, world_size={world_size}: pass both or neither")
    if rank is not None and world_size is not None:
        return rank, world_size
    group = torch.distributed
    if not distributed or not group.is_available() or not group.is_initialized():
        return 0, 1
    return group.get_rank(), group.get_world_size()


# ---- the position of a loader

_COUNTS = {"world_size": 1, "batch_size": 1, "epoch": 0, "step": 0, "taken": 0}  # name -> the smallest value


@dataclass(frozen=True)
class LoaderState:
    """Position of a loader, counted in the batches that it has returned.

    Args:
        world_size: Number of ranks since the end of `before`.
        batch_size: Batch size of these ranks.
        epoch: Epoch of the next batch.
        step: Number of the next batch in its epoch, counted from the end of `before`.
        taken: Number of returned batches of an endless stream, counted from the end of `before`. 0 without a stream.
        before: The batches at the beginning of the epoch or stream that other numbers of ranks made.
    """

    world_size: int
    batch_size: int
    epoch: int = 0
    step: int = 0
    taken: int = 0
    before: Spans = ()

    def state(self) -> dict[str, Any]:
        """Return the fields as a dict. Each span is a list [world_size, batch_size, steps]."""
        return {**asdict(self), "before": [list(astuple(span)) for span in self.before]}

    def on(self, order: Order) -> "LoaderState":
        """Return this position for `order`, which may have another number of ranks, and then another batch size.

        Raises InvalidRequest if the remaining samples do not divide among the ranks, or if only the batch size differs.
        """
        state, shares = self, (order.world_size, int(order.batch_size))
        if self.world_size != order.world_size:
            steps = self.step if order.steps_per_epoch is None else self.taken
            spans = (*self.before, *((Span(self.world_size, self.batch_size, steps),) if steps else ()))
            state = LoaderState(*shares, self.epoch, 0 if order.steps_per_epoch is None else self.step, 0, spans)
        elif self.batch_size != order.batch_size:
            raise InvalidRequest(
                f"state_dict: batch_size was {self.batch_size}, here it is {order.batch_size}, on as many ranks; make "
                "the loader as it was, or load the state after torch.distributed is initialized"
            )
        if order.steps_per_epoch is None and order.steps_after(state.before) == 0 != len(order):
            return LoaderState(*shares, state.epoch + 1)  # with drop_last, the rest may be less than a batch
        return state


def state_from(state: Mapping[str, Any]) -> LoaderState:
    """Return the position from a result of `LoaderState.state`. Raises InvalidRequest if `state` is malformed."""
    for name, least in _COUNTS.items():
        if not _is_count(state.get(name), least):
            found = state.get(name)
            raise InvalidRequest(f"state_dict: {name} is {found!r}: expected a whole number, at least {least}")
    before = state.get("before")
    if not isinstance(before, list) or not all(map(_is_span, before)):
        raise InvalidRequest(f"state_dict: before is {before!r}: expected lists of ranks, batch size and steps")
    return LoaderState(**{name: state[name] for name in _COUNTS}, before=tuple(Span(*each) for each in before))


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(_is_count(each, 1) for each in value)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
