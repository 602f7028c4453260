"""Sampling: which samples a batch holds, as a function of seed, epoch and rank.

One pass is one order of all samples; shuffled, it depends on (seed, pass) alone, and shuffled by blocks
(block_order.py) also on the parts that they lie in. Ranks take turns: of the positions of a pass, rank r of w has r,
r + w, r + 2 w and so on, so that every sample is in exactly one rank's pass. All ranks make the same number of batches.
Where another number of ranks goes on with a pass, they take turns in what is left of it.

A sampler of the user's whose order follows from `set_epoch`, or never changes, needs no state. One with a generator is
known by that generator's state before the pass; one of another kind by its own `state_dict`, where it has one.

LoaderState says where a loader stands, counted in batches that its caller has got, as plain values and back.
"""

from collections.abc import Iterable, Mapping, Sized
from dataclasses import asdict, astuple, dataclass
from operator import index
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from packer.errors import InvalidRequest
from packer.geometry import shuffled
from packer.loading.block_order import BlockOrder
from packer.system.argument_types import check_switches

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Step:
    """One batch: sample indices, and for each the pass that it belongs to."""

    indices: Indices
    passes: Indices


@dataclass(frozen=True)
class Span:
    """Steps that so many ranks have made, of the same pass or stream; others went on after them."""

    world_size: int
    batch_size: int
    steps: int


Spans = tuple[Span, ...]


@dataclass(frozen=True)
class Order:
    """count: samples of the data set. steps_per_epoch: batches of an endless stream, None for epochs of one pass.

    blocks: how they are shuffled, in place of a shuffle that reads from all parts at a time.
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
        for name in ("batch_size", "world_size", "steps_per_epoch"):
            value = getattr(self, name)
            if (value is not None or name == "batch_size") and not (
                isinstance(value, (int, np.integer)) and value >= 1
            ):
                raise InvalidRequest(f"{name}={value!r}: expected a whole number, at least 1")
        given = {"shuffle": self.shuffle, "drop_last": self.drop_last}
        check_switches({name: value for name, value in given.items() if value is not None})  # torch's default
        if not isinstance(self.seed, (int, np.integer)):
            raise InvalidRequest(f"seed={self.seed!r}: expected a whole number")
        if not 0 <= self.rank < self.world_size:
            raise InvalidRequest(
                f"rank={self.rank}: expected 0 to {self.world_size - 1}, world_size is {self.world_size}"
            )
        if self.sampler is not None and (self.shuffle or self.world_size > 1 or self.steps_per_epoch):
            raise InvalidRequest(
                "sampler: it decides the order alone; drop shuffle, rank, world_size and steps_per_epoch"
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
        """Raise InvalidRequest where a rank would be without a sample for one of its batches."""
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
        """Batches of an epoch, the same on every rank."""
        return self.steps_per_epoch or self._steps_of(self._samples_of_a_pass)

    def steps_after(self, before: Spans) -> int:
        """Batches of an epoch that began with those spans; raises InvalidRequest where what is left does not
        divide.
        """
        if self.steps_per_epoch is not None or not before:
            return len(self)
        left = len(self._left(before))
        self._check_shares(left)
        return self._steps_of(left)

    def begin(self, epoch: int, step: int = 0, before: Spans = ()) -> "Steps":
        """The batches of an epoch from `step` on; of an endless stream, all batches from that place on.

        before: what other numbers of ranks have made of that pass, or stream; `step` counts from its end.
        """
        if self.steps_per_epoch is None:
            indices = self.of_pass(epoch)
            return EpochSteps(self, epoch, step, indices[self._left(before)] if before else indices)
        done = sum(each.world_size * each.batch_size * each.steps for each in before)
        return _Stream(self, epoch * self.steps_per_epoch + step, done)

    def _left(self, before: Spans) -> Indices:
        """Positions of a pass that are left after those spans, in order."""
        left = np.arange(self._samples_of_a_pass, dtype=np.int64)
        for span in before:
            steps = _steps(len(left), span.batch_size * span.world_size, self.drop_last)
            kept = np.ones(len(left), bool)
            for rank in range(span.world_size):
                mine = kept[rank :: span.world_size]  # a view: what is written to it is written to kept
                mine[: _start(len(mine), span.batch_size, steps, span.steps)] = False
            left = left[kept]
        return left

    def of_pass(self, number: int) -> Indices:
        """All samples in the order of one pass, before ranks take turns; raises InvalidRequest for what a sampler
        gives.
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


class Steps(Protocol):
    """Batches one after the other."""

    def next(self) -> Step | None:
        """The next batch; None after the last."""

    def upcoming(self) -> Indices:
        """The samples that come on all ranks, in order; of an endless stream, those that are left of its pass."""


def _steps(samples: int, whole: int, drop_last: bool) -> int:
    """Batches that so many samples make, `whole` of them on all ranks together."""
    return samples // whole if drop_last else -(-samples // whole)


def _start(count: int, size: int, steps: int, step: int) -> int:
    """How many of a rank's `count` samples come before that one of its `steps` batches.

    Where others have one sample more and need a batch more, the last full batch gives up what the last one needs.
    """
    return min(step * size, max(0, count - (steps - step)))


class EpochSteps:
    """One pass, or what is left of one, cut into the batches of a rank: one after the other, or any by its number."""

    def __init__(self, order: Order, epoch: int, step: int, indices: Indices) -> None:
        """step: that `next` begins with. indices: of the samples of all ranks, in the order of the pass."""
        self.epoch = epoch
        self.mine = indices[order.rank :: order.world_size]
        self._of_all, self._world_size = indices, order.world_size
        self._step = step
        self._steps = order._steps_of(len(indices))  # its own
        self._size = order.batch_size

    def __len__(self) -> int:
        """Batches, the same on every rank."""
        return self._steps

    def at(self, step: int) -> Step:
        """The batch of that number, 0 <= step < len."""
        steps, count = self._steps, len(self.mine)
        indices = self.mine[_start(count, self._size, steps, step) : _start(count, self._size, steps, step + 1)]
        return Step(indices, np.full(len(indices), self.epoch, np.int64))

    def upcoming(self) -> Indices:
        return self._of_all[self._world_size * _start(len(self.mine), self._size, self._steps, self._step) :]

    def next(self) -> Step | None:
        if self._step >= self._steps:
            return None
        self._step += 1
        return self.at(self._step - 1)


class _Stream:
    """Pass after pass without an end; a batch may hold the end of one pass and the beginning of the next."""

    def __init__(self, order: Order, step: int, done: int) -> None:
        """done: samples that were taken from the stream before step 0."""
        self._order = order
        self._step = step
        self._done = done
        self._pass = -1
        self._indices = np.empty(0, np.int64)

    def upcoming(self) -> Indices:
        order = self._order
        number, position = divmod(self._done + self._step * order.batch_size * order.world_size, order.count)
        return order.of_pass(number)[position:]

    def next(self) -> Step:
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
    """The state of a sampler, for `restore`; plain values, where its own are."""
    generator = getattr(sampler, "generator", None)
    if isinstance(generator, torch.Generator):
        return {"generator": generator.get_state().numpy().tobytes().hex()}
    if not hasattr(sampler, "set_epoch") and hasattr(sampler, "state_dict"):
        return {"state_dict": sampler.state_dict()}
    return None


def restore(sampler: Any, state: Any, *, begun: bool) -> None:
    """Put a sampler where it was; begun: whether a pass is to be drawn again. Raises InvalidRequest where that cannot
    be.
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
        raise InvalidRequest(f"state_dict: the sampler's generator does not take its state: {error}") from error


# ---- the rank of this process


def rank_and_world_size(rank: int | None, world_size: int | None, *, distributed: bool) -> tuple[int, int]:
    """rank and world_size as given, else, if `distributed`, as torch.distributed has them now, else 0 of 1."""
    if (rank is None) != (world_size is None):
        raise InvalidRequest(f"rank={rank}, world_size={world_size}: pass both or neither")
    if rank is not None and world_size is not None:
        return rank, world_size
    group = torch.distributed
    if not distributed or not group.is_available() or not group.is_initialized():
        return 0, 1
    return group.get_rank(), group.get_world_size()


# ---- where a loader stands

_COUNTS = ("epoch", "step", "taken")
_SHARES = ("world_size", "batch_size")


@dataclass(frozen=True)
class LoaderState:
    """epoch, step: of the batch that comes next. taken: batches of the endless stream, 0 without one.

    world_size, batch_size: of the ranks that count step and taken. before: the spans of that epoch, or of the stream,
    that other numbers of ranks have made; step and taken count from their end.
    """

    world_size: int
    batch_size: int
    epoch: int = 0
    step: int = 0
    taken: int = 0
    before: Spans = ()

    def state(self) -> dict[str, Any]:
        """As numbers and lists of numbers."""
        return {**asdict(self), "before": [list(astuple(span)) for span in self.before]}

    def on(self, order: Order) -> "LoaderState":
        """This position for the ranks of `order`; itself where it is theirs.

        Raises InvalidRequest where the ranks of `order` cannot share what is left, and for another batch size on as
        many ranks.
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
            return LoaderState(*shares, state.epoch + 1)  # with drop_last, what is left may be no batch
        return state


def state_from(state: Mapping[str, Any]) -> LoaderState:
    """The LoaderState of plain values; raises InvalidRequest."""
    for name in _COUNTS:
        if not _is_count(state.get(name)):
            raise InvalidRequest(f"state_dict: {name} is {state.get(name)!r}: expected a whole number")
    for name in _SHARES:
        if not _is_count(state.get(name)) or not state[name]:
            raise InvalidRequest(f"state_dict: {name} is {state.get(name)!r}: expected a whole number, at least 1")
    before = state.get("before")
    if not isinstance(before, list) or not all(map(_is_span, before)):
        raise InvalidRequest(f"state_dict: before is {before!r}: expected lists of ranks, batch size and steps")
    counts = {name: state[name] for name in (*_SHARES, *_COUNTS)}
    return LoaderState(**counts, before=tuple(Span(*each) for each in before))


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_count, value)) and min(value) >= 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
