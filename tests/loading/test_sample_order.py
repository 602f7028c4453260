"""Order: partitions over ranks, equal numbers of batches, none empty, endless streams, resuming; nothing is read."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import RandomSampler, SequentialSampler, WeightedRandomSampler

from packer.errors import InvalidRequest
from packer.loading.sample_order import Order, Steps

counts = st.integers(0, 60)
sizes = st.integers(1, 9)
worlds = st.integers(1, 5)
seeds = st.integers(-5, 1 << 70)


def order(count: int, batch_size: int = 4, **options: Any) -> Order:
    """An order, as the Loader makes one where nothing is said."""
    defaults: dict[str, Any] = {"shuffle": False, "seed": 0, "drop_last": False}
    return Order(count, batch_size, **{**defaults, **options})


def batches(steps: Steps, most: int | None = None) -> list[list[int]]:
    """Indices of the batches, at most so many."""
    found: list[list[int]] = []
    for step in islice(steps, most):
        assert step.indices.dtype == step.passes.dtype == np.int64
        assert step.indices.shape == step.passes.shape
        found.append(step.indices.tolist())
    return found


@given(counts, sizes, worlds, st.booleans(), st.booleans(), st.integers(0, 3))
def test_ranks_share_a_pass_out(count: int, size: int, world: int, drop: bool, shuffle: bool, epoch: int) -> None:
    options = {"shuffle": shuffle, "drop_last": drop, "world_size": world}
    try:
        orders = [order(count, size, rank=rank, **options) for rank in range(world)]
    except InvalidRequest:
        steps = -(-count // (size * world))
        assert not drop
        assert count // world < steps, "refused although every rank has a sample for each batch"
        return
    every = [batches(each.begin(epoch)) for each in orders]
    assert len({len(each) for each in orders}) == 1, "ranks disagree on the number of batches"
    assert {len(found) for found in every} == {len(orders[0])}
    lengths = [[len(batch) for batch in found] for found in every]
    assert all(0 < length <= size for found in lengths for length in found)
    seen = sorted(index for found in every for batch in found for index in batch)
    if drop:
        assert all(length == size for found in lengths for length in found)
        assert len(set(seen)) == len(seen) == count // (size * world) * size * world
    else:
        assert seen == list(range(count))


@given(counts, sizes, st.booleans(), seeds)
def test_one_rank_gives_what_a_data_loader_gives(count: int, size: int, drop: bool, seed: int) -> None:
    every = batches(order(count, size, drop_last=drop, seed=seed).begin(0))
    loader = torch.utils.data.DataLoader(range(count), batch_size=size, drop_last=drop)  # type: ignore[arg-type]
    assert every == [batch.tolist() for batch in loader]


@given(st.integers(1, 40), sizes, worlds, st.integers(1, 7), st.booleans())
def test_a_stream_is_pass_after_pass(count: int, size: int, world: int, steps: int, shuffle: bool) -> None:
    orders = [
        order(count, size, rank=rank, world_size=world, steps_per_epoch=steps, shuffle=shuffle) for rank in range(world)
    ]
    assert {len(each) for each in orders} == {steps}
    rounds = 3 * count // (size * world) + 2
    every = [batches(each.begin(0), rounds) for each in orders]
    assert all(len(batch) == size for found in every for batch in found)
    flat = [[index for batch in found for index in batch] for found in every]
    stream = [index for turn in zip(*flat, strict=True) for index in turn]  # ranks take turns
    passes = [
        each.tolist() for number in range(rounds * size * world // count + 1) for each in [orders[0].of_pass(number)]
    ]
    assert stream == [index for each in passes for index in each][: len(stream)]
    assert all(sorted(each) == list(range(count)) for each in passes)


@given(st.integers(1, 30), sizes, st.integers(1, 5))
def test_a_stream_knows_the_pass_of_each_sample(count: int, size: int, steps: int) -> None:
    begun = order(count, size, steps_per_epoch=steps).begin(0)
    for number in range(8):
        step = next(begun)
        places = np.arange(number * size, (number + 1) * size)
        assert step.passes.tolist() == (places // count).tolist()


@given(counts, sizes, worlds, st.data())
def test_a_pass_goes_on_at_any_step(count: int, size: int, world: int, data: st.DataObject) -> None:
    assume(count >= -(-count // (size * world)) * world)
    one = order(count, size, shuffle=True, rank=data.draw(st.integers(0, world - 1)), world_size=world)
    step = data.draw(st.integers(0, len(one)))
    assert batches(one.begin(2, step)) == batches(one.begin(2))[step:]


@given(st.integers(1, 30), sizes, st.integers(1, 6), st.integers(0, 5), st.integers(0, 5))
def test_a_stream_goes_on_at_any_step(count: int, size: int, steps: int, epoch: int, step: int) -> None:
    one = order(count, size, shuffle=True, steps_per_epoch=steps)
    whole = batches(one.begin(0), epoch * steps + step + 9)
    assert batches(one.begin(epoch, step), 9) == whole[epoch * steps + step :]


@given(st.integers(0, 300), seeds, st.integers(0, 1000))
def test_shuffled_passes_are_permutations_of_their_own(count: int, seed: int, number: int) -> None:
    one = order(count, shuffle=True, seed=seed)
    found = one.of_pass(number)
    assert sorted(found.tolist()) == list(range(count))
    assert found.tolist() == one.of_pass(number).tolist()
    if count >= 30:
        assert found.tolist() != one.of_pass(number + 1).tolist()
        assert found.tolist() != order(count, shuffle=True, seed=seed + 1).of_pass(number).tolist()


def test_every_place_of_a_shuffled_pass_holds_every_sample_equally_often() -> None:
    passes, count = 4000, 8
    one = order(count, shuffle=True)
    found = np.stack([one.of_pass(number) for number in range(passes)])
    for place in range(count):
        times = np.bincount(found[:, place], minlength=count)
        chi_square = ((times - passes / count) ** 2 / (passes / count)).sum()
        assert chi_square < 24.3, place  # 7 degrees of freedom, p = 0.001; the seed is fixed
    pairs = np.bincount(found[:, 0] * count + found[:, 1], minlength=count * count).reshape(count, count)
    assert pairs.diagonal().sum() == 0
    assert pairs.sum() == passes
    assert pairs[~np.eye(count, dtype=bool)].min() > 35


class Epochs(SequentialSampler):
    """A sampler that depends on its epoch, as torch's DistributedSampler."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(np.roll(np.arange(len(self)), self.epoch).tolist())


def test_a_sampler_decides_the_order_and_the_length() -> None:
    assert batches(order(9, 4, sampler=[5, 3, 3, 8, 0]).begin(0)) == [[5, 3, 3, 8], [0]]
    assert batches(order(9, 4, sampler=[5, 3, 3, 8, 0], drop_last=True).begin(0)) == [[5, 3, 3, 8]]
    assert batches(order(5, 2, sampler=Epochs(range(5))).begin(2)) == [[3, 4], [0, 1], [2]]
    generator = torch.Generator().manual_seed(1)
    found = batches(order(7, 3, sampler=RandomSampler(range(7), generator=generator)).begin(0))
    assert sorted(sum(found, [])) == list(range(7))
    sampler = WeightedRandomSampler([1.0, 0.0, 1.0], 100)
    found = batches(order(3, 1, sampler=sampler).begin(0))
    assert len(found) == 100
    assert {index for batch in found for index in batch} == {0, 2}


class Short(SequentialSampler):
    """A sampler whose length is wrong."""

    def __iter__(self) -> Iterator[int]:
        return iter([0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"batch_size": None}, "batch_size=None"),
        ({"steps_per_epoch": 0}, "steps_per_epoch=0"),
        ({"world_size": 0}, "world_size=0"),
        ({"rank": 2, "world_size": 2}, "rank=2"),
        ({"rank": -1}, "rank=-1"),
        ({"sampler": [1], "shuffle": True}, "sampler"),
        ({"sampler": [1], "world_size": 2}, "sampler"),
        ({"sampler": [1], "steps_per_epoch": 2}, "sampler"),
        ({"sampler": iter([1])}, "length"),
        ({"sampler": 5}, "length"),
        ({"count": 0, "steps_per_epoch": 3}, "empty"),
        ({"count": 5, "batch_size": 1, "world_size": 4}, "drop_last=True"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        order(**{"count": 10, **options})


@pytest.mark.parametrize("sampler", [Short(range(9)), [[0, 1], [2, 3]], ["a"], [0.5]])
def test_a_sampler_that_gives_something_else_is_refused(sampler: Any) -> None:
    with pytest.raises(InvalidRequest, match="sampler"):
        order(9, sampler=sampler).begin(0)


def test_an_empty_set_has_no_batch() -> None:
    assert len(order(0)) == 0
    assert batches(order(0, world_size=3, rank=1).begin(0)) == []
    assert batches(order(3, drop_last=True).begin(0)) == []
