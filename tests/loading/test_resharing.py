"""Going on with another number of ranks: what is left of the pass is shared out among them, each sample once."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

import packer
from packer.datasets.pack_dataset import PackDataset
from packer.errors import InvalidRequest
from packer.geometry import RandomResizedCrop
from packer.loading import Loader
from packer.loading.sample_order import Order, Span, Spans, Step
from tests.support import marked_packs
from tests.support.sample_digests import digest_of

COUNT = 23
numbers = st.integers(1, 5)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.pack(tmp_path_factory.mktemp("posed") / "posed.pack", COUNT)


@pytest.fixture(scope="module")
def keyed(path: Path) -> PackDataset:
    """Only keys: quick."""
    return packer.open(path, fields=("key",))


def steps_of(order: Order, epoch: int, before: Spans, most: int) -> list[Step]:
    """At most so many steps of one rank."""
    return list(islice(order.begin(epoch, 0, before), most))


@given(st.integers(1, 60), st.lists(st.tuples(numbers, numbers, st.integers(1, 6)), max_size=3), numbers, numbers)
def test_each_sample_comes_once_whoever_goes_on(count: int, turns: list[Any], world: int, size: int) -> None:
    """turns: ranks, batch size and steps of those who have come here; then others finish the pass."""
    seen: list[int] = []
    before: Spans = ()
    whole = Order(count, 1, shuffle=True, seed=3, drop_last=False).of_pass(2).tolist()
    for ranks, batch_size, wanted in [*turns, (world, size, 1000)]:
        options = {"shuffle": True, "seed": 3, "drop_last": False, "world_size": ranks}
        try:
            orders = [Order(count, batch_size, rank=rank, **options) for rank in range(ranks)]  # type: ignore[arg-type]
            left = orders[0].steps_after(before)
        except InvalidRequest:
            assume(False)
        upcoming = [index for index in whole if index not in seen]
        assert all(order.begin(2, 0, before).upcoming().tolist() == upcoming for order in orders)
        found = [steps_of(order, 2, before, wanted) for order in orders]
        assert {len(steps) for steps in found} == {min(left, wanted)}
        assert all(0 < len(step.indices) <= batch_size for steps in found for step in steps)
        seen += [index for steps in found for step in steps for index in step.indices.tolist()]
        if min(left, wanted):
            before = (*before, Span(ranks, batch_size, min(left, wanted)))
    assert sorted(seen) == list(range(count))


@given(st.integers(1, 30), st.lists(st.tuples(numbers, numbers, st.integers(1, 6)), min_size=1, max_size=4))
def test_a_stream_goes_on_where_all_ranks_stood(count: int, turns: list[Any]) -> None:
    stream: list[int] = []
    before: Spans = ()
    for ranks, batch_size, wanted in turns:
        options: dict[str, Any] = {"shuffle": True, "seed": 3, "drop_last": False, "steps_per_epoch": 5}
        orders = [Order(count, batch_size, world_size=ranks, rank=rank, **options) for rank in range(ranks)]
        found = [np.concatenate([each.indices for each in steps_of(order, 0, before, wanted)]) for order in orders]
        stream += np.stack(found, 1).ravel().tolist()
        before = (*before, Span(ranks, batch_size, wanted))
    one = Order(count, len(stream), shuffle=True, seed=3, drop_last=False, steps_per_epoch=1)
    assert stream == steps_of(one, 0, (), 1)[0].indices.tolist()


def loaders(dataset: PackDataset, world_size: int, batch_size: int, **options: Any) -> list[Loader]:
    return [
        Loader(dataset, batch_size, shuffle=True, rank=rank, world_size=world_size, threads=1, **options)
        for rank in range(world_size)
    ]


def taken(group: list[Loader], most: int) -> list[list[str]]:
    """Keys of the next batches, at most so many of each rank, at the same pace."""
    going = [iter(loader) for loader in group]
    found: list[list[str]] = [[] for _ in group]
    for _ in range(most):
        batches = [next(each, None) for each in going]
        assert len({batch is None for batch in batches}) == 1, "ranks disagree on the number of steps"
        if batches[0] is None:
            break
        for keys, batch in zip(found, batches, strict=True):
            keys += batch["key"]
    return found


@pytest.mark.parametrize(
    ("worlds", "sizes"), [((2, 3), (3, 2)), ((3, 2), (2, 2)), ((5, 1), (2, 5)), ((1, 2, 3), (2, 2, 2))]
)
def test_other_ranks_finish_the_epoch(keyed: PackDataset, worlds: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    seen, state = [], None
    for turn, (world_size, size) in enumerate(zip(worlds, sizes, strict=True)):
        group = loaders(keyed, world_size, size)
        for loader in group:
            if state is not None:
                loader.load_state_dict(state)
                assert loader.epoch == 0
                loader.set_epoch(0)
        last = turn == len(worlds) - 1
        seen += [key for keys in taken(group, 99 if last else 2) for key in keys]
        states = [json.loads(json.dumps(loader.state_dict())) for loader in group]
        assert all(each == states[0] for each in states), "a state of rank 0 is not good for all"
        state = states[0]
    assert sorted(seen) == list(keyed.keys())
    assert (state["epoch"], state["step"], state["before"]) == (1, 0, [])
    again = loaders(keyed, 4, 3)
    for loader in again:
        loader.load_state_dict(state)
    assert sorted(key for keys in taken(again, 99) for key in keys) == list(keyed.keys()), "the next epoch is whole"


def test_one_rank_goes_on_exactly_after_a_change(path: Path) -> None:
    """A second stop, after the change: same samples, same augmentation, whoever has them."""
    dataset = packer.open(path, fields=("key", "image"), geometry=RandomResizedCrop(20))
    first = loaders(dataset, 3, 2, seed=5)
    taken(first, 2)
    state = first[0].state_dict()

    def resumed(state: Any) -> Loader:
        (loader,) = loaders(dataset, 1, 2, seed=5)
        loader.load_state_dict(state)
        return loader

    whole = [digest_of([batch]) for batch in resumed(state)]
    loader = resumed(state)
    batches = iter(loader)
    some = [digest_of([next(batches)]) for _ in range(3)]
    assert loader.state_dict()["before"] == [[3, 2, 2]]
    assert some + [digest_of([batch]) for batch in resumed(loader.state_dict())] == whole


def test_what_cannot_be_shared_out_is_refused(keyed: PackDataset) -> None:
    (loader,) = loaders(keyed, 1, 11)
    taken([loader], 2)
    state = loader.state_dict()  # one sample is left
    with pytest.raises(InvalidRequest, match="1 samples.*2 ranks.*drop_last"):
        loaders(keyed, 2, 11)[0].load_state_dict(state)
    with pytest.raises(InvalidRequest, match="batch_size was 11"):
        loaders(keyed, 1, 4)[0].load_state_dict(state)
    for broken in ([[2, 2]], [[0, 1, 1]], [[2, 1, 1.0]], "x", None):
        with pytest.raises(InvalidRequest, match="before is"):
            loader.load_state_dict({**state, "before": broken})


def test_with_drop_last_a_rest_that_is_no_batch_is_left_out(keyed: PackDataset) -> None:
    (loader,) = loaders(keyed, 1, 7, drop_last=True)
    taken([loader], 2)  # 9 are left, and a batch of all ranks takes 10
    group = loaders(keyed, 2, 5, drop_last=True)
    for each in group:
        each.load_state_dict(loader.state_dict())
        assert each.epoch == 1
    assert [len(keys) for keys in taken(group, 99)] == [10, 10]


# ---- samplers


class Turned:
    """A sampler with a state of its own: each pass begins one further."""

    def __init__(self) -> None:
        self.turn = 0

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Any:
        self.turn += 1
        return iter(np.roll(np.arange(COUNT), self.turn).tolist())

    def state_dict(self) -> dict[str, int]:
        return {"turn": self.turn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.turn = state["turn"]


def seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


SAMPLERS: dict[str, Any] = {
    "RandomSampler": lambda seed: RandomSampler(range(COUNT), generator=seeded(seed)),
    "SubsetRandomSampler": lambda seed: SubsetRandomSampler(range(0, COUNT, 2), generator=seeded(seed)),
    "WeightedRandomSampler": lambda seed: WeightedRandomSampler([1.0] * COUNT, 30, generator=seeded(seed)),
    "Turned": lambda seed: Turned(),
}


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_draws_the_same_pass_again(keyed: PackDataset, name: str, step: int) -> None:
    loader = Loader(keyed, 3, sampler=SAMPLERS[name](1))
    list(loader)
    batches = iter(loader)
    for _ in range(step):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [batch["key"] for batch in batches] + [batch["key"] for batch in loader]
    other = Loader(keyed, 3, sampler=SAMPLERS[name](2))
    other.load_state_dict(state)
    assert [batch["key"] for batch in other] + [batch["key"] for batch in other] == rest


def test_a_sampler_that_cannot_be_put_back_is_refused(keyed: PackDataset) -> None:
    def made(generator: torch.Generator | None) -> Loader:
        return Loader(keyed, 3, sampler=RandomSampler(range(COUNT), generator=generator))

    loader = made(None)
    batches = iter(loader)
    made(None).load_state_dict(loader.state_dict())  # nothing is drawn yet
    next(batches)
    with pytest.raises(InvalidRequest, match="RandomSampler.*generator=torch.Generator"):
        made(None).load_state_dict(loader.state_dict())
    with pytest.raises(InvalidRequest, match="sampler's state"):
        made(seeded(1)).load_state_dict(loader.state_dict())
    state = made(seeded(1)).state_dict()
    for broken in ("00", "xyz", 3):
        with pytest.raises(InvalidRequest, match="generator"):
            made(seeded(1)).load_state_dict({**state, "sampler_state": {"generator": broken}})
