"""Batch order: batches of weights, buckets, mixes and batch samplers dealt out to ranks, resuming, errors."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from packer import Loader, Mix
from packer.errors import InvalidRequest
from packer.loading import SizeBuckets
from packer.loading.batch_sampler_order import BatchOrder
from packer.loading.sample_order import Span, Step

DATA: Any = list(range(40))


def lists(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


class Fixed:
    """Passes of batches of these lengths."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.ends = np.cumsum(lengths)

    def __len__(self) -> int:
        return len(self.ends)

    def of_pass(self, seed: int, number: int) -> list[Step]:
        batches = np.split(np.arange(self.ends[-1]) if len(self) else np.empty(0, np.int64), self.ends[:-1])
        return [Step(batch, np.full(len(batch), number)) for batch in batches][: len(self)]

    def identity(self) -> str:
        return "fixed"


def orders(lengths: Sequence[int], ranks: int, **options: Any) -> list[BatchOrder]:
    passes = Fixed(lengths)
    settings = {"shuffle": False, "seed": 0, "drop_last": False, "world_size": ranks, "passes": passes, **options}
    return [BatchOrder(len(passes), 1, rank=rank, **settings) for rank in range(ranks)]


lengths = st.lists(st.integers(2, 7), max_size=12)


@given(lengths, st.integers(1, 5), st.booleans())
def test_ranks_take_turns_in_batches(given_lengths: list[int], ranks: int, drop: bool) -> None:
    try:
        found = [list(each.begin(0)) for each in orders(given_lengths, ranks, drop_last=drop)]
    except InvalidRequest:
        assert not drop and -len(given_lengths) % ranks > len(given_lengths)
        return
    assert {len(each) for each in found} == {len(orders(given_lengths, ranks, drop_last=drop)[0])}
    whole = [step.indices.tolist() for step in Fixed(given_lengths).of_pass(0, 0)]
    mine = [step.indices.tolist() for each in found for step in each]
    if drop or len(whole) % ranks == 0:
        dealt = len(whole) // ranks * ranks
        assert sorted(mine) == sorted(whole[:dealt])
        assert [step.indices.tolist() for step in found[0]] == whole[:dealt:ranks]
    else:
        assert sorted(index for batch in mine for index in batch) == list(range(sum(given_lengths)))
        assert all(any(set(batch) <= set(other) for other in whole) for batch in mine)


@given(lengths.filter(lambda each: len(each) > 5), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.data())
def test_another_number_of_ranks_shares_the_rest(
    given_lengths: list[int], before: int, after: int, drop: bool, data: st.DataObject
) -> None:
    first = orders(given_lengths, before, drop_last=drop)
    steps = data.draw(st.integers(1, len(first[0])))
    begun = [step for each in first for step in list(each.begin(0))[:steps]]
    spans = (Span(before, 1, steps),)
    try:
        rest = [list(each.begin(0, 0, spans)) for each in orders(given_lengths, after, drop_last=drop)]
    except InvalidRequest:
        return  # too few samples are left
    assert {len(each) for each in rest} == {orders(given_lengths, after, drop_last=drop)[0].steps_after(spans)}
    seen = sorted(index for step in begun + [step for each in rest for step in each] for index in step.indices.tolist())
    assert len(set(seen)) == len(seen)
    if not drop:
        assert seen == list(range(sum(given_lengths)))


# ---- whatever makes the batches

BOTH = [DATA[:15], DATA[15:]]
SIZES = [(9 + at % 5, 9) for at in range(40)]
ORDERS: dict[str, Callable[..., Loader]] = {
    "weights": lambda **how: Loader(DATA, 3, weights=[at % 5 for at in range(40)], **how),
    "size buckets": lambda **how: Loader(DATA, batch_sampler=SizeBuckets(DATA, 3, sizes=SIZES), **how),
    "mix": lambda **how: Loader(Mix(BOTH, (0.6, 0.4), epoch="longest"), 3, shuffle=True, **how),
    "mix by chance": lambda **how: Loader(
        Mix([DATA[:15], DATA[15:]], (0.6, 0.4), epoch="longest", exact=False), 3, **how
    ),
}
STREAMS = ("weights", "mix", "mix by chance")
CASES = [(name, None) for name in ORDERS] + [(name, 11) for name in STREAMS]


def ranks_of(name: str, count: int, steps: int | None = None) -> list[Loader]:
    return [ORDERS[name](rank=rank, world_size=count, seed=3, steps_per_epoch=steps) for rank in range(count)]


def drawn(loaders: Iterable[Any]) -> list[int]:
    """The samples of an epoch of all of them, sorted."""
    return sorted(index for loader in loaders for batch in lists(loader) for index in batch)


@pytest.mark.parametrize("name", ORDERS)
def test_all_ranks_together_make_the_samples_of_one(name: str) -> None:
    wanted = drawn(ranks_of(name, 1))
    for count in (2, 3):
        assert len({len(each) for each in ranks_of(name, count)}) == 1
        assert drawn(ranks_of(name, count)) == wanted


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [(1, 2), (2, 3), (3, 1), (2, 1)])
@pytest.mark.parametrize(("name", "steps"), CASES)
def test_other_ranks_go_on_with_the_same_samples(name: str, steps: int | None, ranks: tuple[int, int]) -> None:
    before, after = ranks
    begun, others = ranks_of(name, before, steps), ranks_of(name, after, steps)
    seen = sorted(index for loader in begun for batch in islice(iter(loader), 3) for index in batch.tolist())
    state = json.loads(json.dumps(begun[0].state_dict()))
    for loader in others:
        loader.load_state_dict(state)
    whole = ranks_of(name, 1, steps and 3 * before + (steps - 3) * after)
    assert sorted(seen + drawn(others)) == drawn(whole)
    for loader in (*begun, *others, *whole):
        loader.close()


@pytest.mark.parametrize("step", [0, 1, 5])
@pytest.mark.parametrize(("name", "steps"), CASES)
def test_a_state_goes_on_at_the_next_batch(name: str, steps: int | None, step: int) -> None:
    (whole,), (first,), (again,) = (ranks_of(name, 1, steps) for _ in range(3))
    for loader in (whole, first):
        loader.set_epoch(2)
    wanted = lists(whole)
    batches = iter(first)
    assert [next(batches).tolist() for _ in range(step)] == wanted[:step]
    again.load_state_dict(first.state_dict())
    again.set_epoch(2)
    assert lists(again) == wanted[step:]
    for loader in (whole, first, again):
        loader.close()


def test_a_state_of_other_batches_is_refused() -> None:
    for name, other in (
        ("weights", Loader(DATA, 3, weights=[1] * 40)),
        ("size buckets", Loader(DATA, batch_sampler=SizeBuckets(DATA, 4, sizes=SIZES))),
        ("size buckets", Loader(DATA, batch_sampler=SizeBuckets(DATA, 3, sizes=[(9, 9)] * 40))),
        ("size buckets", Loader(DATA, batch_sampler=SizeBuckets(DATA, 3, most_padding=0.3, sizes=SIZES))),
    ):
        with pytest.raises(InvalidRequest, match="batches was"):
            other.load_state_dict(ORDERS[name]().state_dict())


def test_short_batches_are_not_cut() -> None:
    with pytest.raises(InvalidRequest, match="drop_last"):
        list(orders([1, 1, 1], 2)[0].begin(0))
    assert len(list(orders([1, 1, 1], 2, drop_last=True)[0].begin(0))) == 1


# ---- the samplers of users


@pytest.mark.parametrize(
    "sampler",
    [[[3, 1], [2], [39, 0, 5]], BatchSampler(SequentialSampler(range(40)), 7, drop_last=False), [(1, 2)], []],
)
@pytest.mark.parametrize("how", [{"threads": 2}, {"num_workers": 1}], ids=str)
def test_a_batch_sampler_gives_what_a_data_loader_gives(sampler: Any, how: dict[str, int]) -> None:
    wanted = [batch.tolist() for batch in DataLoader(DATA, batch_sampler=sampler)]
    with Loader(DATA, batch_sampler=sampler, **how) as loader:  # type: ignore[arg-type]
        assert len(loader) == len(wanted)
        assert lists(loader) == wanted
        assert lists(loader) == wanted


def shuffled(seed: int | None = 0) -> BatchSampler:
    """A batch sampler of torch whose order a generator decides."""
    generator = torch.Generator().manual_seed(seed) if seed is not None else None
    return BatchSampler(RandomSampler(range(40), generator=generator), 6, drop_last=False)


def test_a_batch_sampler_with_a_generator_resumes() -> None:
    whole = Loader(DATA, batch_sampler=shuffled())
    epochs = [lists(whole), lists(whole)]
    assert epochs[0] != epochs[1]
    first = Loader(DATA, batch_sampler=shuffled())
    lists(first)
    batches = iter(first)
    assert [next(batches).tolist() for _ in range(3)] == epochs[1][:3]
    again = Loader(DATA, batch_sampler=shuffled(9))
    again.load_state_dict(first.state_dict())
    assert lists(again) == epochs[1][3:]
    first.close()
    state = first.state_dict()
    with pytest.raises(InvalidRequest, match="generator"):
        Loader(DATA, batch_sampler=shuffled(None)).load_state_dict({**state, "sampler_state": None})


class Epochs:
    """A batch sampler whose order depends on `set_epoch`."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[self.epoch], [self.epoch + 1, self.epoch]])


def test_the_epoch_reaches_the_batch_sampler() -> None:
    loader = Loader(DATA, batch_sampler=Epochs())
    assert [lists(loader) for _ in range(2)] == [[[0], [1, 0]], [[1], [2, 1]]]


class Short(Epochs):
    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("message", "sampler", "options"),
    [
        ("has a length", iter([[1]]), {}),
        ("its length is 3", Short(), {}),
        ("lists of sample indices", [1, 2], {}),
        ("lists of sample indices", [["a"]], {}),
        ("and shuffle", [[1]], {"shuffle": True}),
        ("and batch_size", [[1]], {"batch_size": 4}),
        ("weights and", [[1]], {"weights": [1] * 40}),
        ("and sampler", [[1]], {"sampler": [1]}),
        ("weights=", [[1]], {"rank": 0, "world_size": 2}),
        ("weights=", [[1]], {"steps_per_epoch": 2}),
    ],
)
def test_other_batch_samplers_are_refused(message: str, sampler: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=message):
        lists(Loader(DATA, batch_sampler=sampler, **options))
