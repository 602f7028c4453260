"""Mix: composition against a plain simulation, states of other mixes, batches of packs, errors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Subset

import packer
from packer import Loader, Mix
from packer.datasets.pack_dataset import PackDataset
from packer.errors import InvalidRequest, WrongType
from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop
from tests.support import marked_packs, source_trees
from tests.support.conversions import packed
from tests.support.sample_digests import digest_of

RANDOM = Compose(RandomResizedCrop(32, scale=(0.3, 1)), RandomHorizontalFlip())


class Numbers(torch.utils.data.Dataset[Any]):
    """Samples that are their numbers, from `first` on."""

    def __init__(self, first: int, count: int) -> None:
        self.numbers = range(first, first + count)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> int:
        return self.numbers[index]


def numbers(counts: Sequence[int]) -> list[Numbers]:
    """Datasets of these lengths; dataset k begins at 1000 k."""
    return [Numbers(1000 * at, count) for at, count in enumerate(counts)]


def lists(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


# ---- the composition

weights = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(weights, st.integers(1, 6), st.integers(0, 3), st.data())
def test_the_sequence_is_that_of_a_plain_simulation(
    given_weights: list[int], size: int, number: int, data: st.DataObject
) -> None:
    """Each next sample is of the dataset that has the smallest (samples so far + 1/2) / share."""
    sizes = [data.draw(st.integers(1, 20)) for _ in given_weights]
    shares = np.asarray(given_weights) / sum(given_weights)
    passes = Mix(numbers(sizes), given_weights, epoch="longest").batches(size, shuffle=False)
    count = len(passes)
    taken = [0] * len(sizes)
    simulated = []
    for _ in range((number + 1) * count * size):
        member = min(range(len(sizes)), key=lambda at: ((taken[at] + 0.5) / shares[at], at))
        simulated.append((sum(sizes[:member]) + taken[member] % sizes[member], taken[member] // sizes[member]))
        taken[member] += 1
    found = passes.of_pass(7, number)
    assert [len(step.indices) for step in found] == [size] * count
    pairs = [pair for step in found for pair in zip(step.indices.tolist(), step.passes.tolist(), strict=True)]
    assert pairs == simulated[-count * size :]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.61, 0.39), (0.5, 0.3, 0.2), (0.4, 0.3, 0.17, 0.13), (5, 1, 1, 1, 1)])
def test_ten_thousand_batches_keep_the_shares(shares: tuple[float, ...]) -> None:
    loader = Loader(Mix(numbers([97] * len(shares)), shares), 16, shuffle=True, steps_per_epoch=10_000)
    steps = loader.order.begin(0)
    members = np.stack([next(steps).indices // 97 for _ in range(10_000)])
    counts = np.stack([(members == at).sum(axis=1) for at in range(len(shares))], axis=1)
    part = np.asarray(shares) / sum(shares)
    bound = 0.5 + part * (len(shares) - 2) / 2 + 1e-6
    after = np.arange(1, 10_001)[:, None] * 16 * part
    assert (np.abs(np.cumsum(counts, axis=0) - after) <= bound).all()


def test_in_expectation_the_datasets_are_drawn_by_chance() -> None:
    loader = Loader(Mix(numbers([50, 20]), (0.7, 0.3), exact=False), 10, steps_per_epoch=2000)
    counts = [int((batch < 1000).sum()) for batch in loader]
    assert len(set(counts)) > 4
    assert abs(np.mean(counts) - 7) < 0.2  # 6 standard deviations
    loader.close()


# ---- epochs


def test_an_epoch_ends_with_the_shortest_or_the_longest_dataset() -> None:
    short, long = numbers([30, 70])
    assert len(Loader(Mix([short, long], (0.5, 0.5)), 6)) == 10
    assert len(Loader(Mix([short, long], (0.5, 0.5), epoch="longest"), 6)) == 24
    assert len(Loader(Mix([short, long], (0.3, 0.7)), 10)) == 10  # both end together
    assert len(Loader(Mix(numbers([9, 21]), (0.3, 0.7), epoch="longest"), 10)) == 3  # 21 / 0.7 is more than 30
    assert len(Loader(Mix(numbers([27, 33]), (0.45, 0.55)), 10)) == 6  # 33 / 0.55 is less than 60
    assert len(Loader(Mix([short, long], (0.5, 0.5)), 100)) == 1
    assert len(Loader(Mix([short, long], (0.5, 0.5)), 7)) == 8
    assert len(Loader(Mix([short, long], (1, 1)), 6, steps_per_epoch=7)) == 7
    every = lists(Loader(Mix([short, long], (0.5, 0.5), epoch="longest"), 6, shuffle=True))
    assert {index for batch in every for index in batch} == {*short.numbers, *long.numbers}


def test_each_dataset_is_read_pass_by_pass_also_across_epochs() -> None:
    loader = Loader(Mix(numbers([10, 37]), (0.5, 0.5)), 4, shuffle=True)
    seen = [index for _ in range(37) for batch in loader for index in batch.tolist()]
    for at, count in enumerate((10, 37)):
        mine = [index - 1000 * at for index in seen if index // 1000 == at]
        passes = [mine[begin : begin + count] for begin in range(0, len(mine) - count + 1, count)]
        assert len(passes) >= 5
        assert all(sorted(each) == list(range(count)) for each in passes)
        assert len({tuple(each) for each in passes}) == len(passes)


def test_datasets_and_seeds_have_orders_of_their_own() -> None:
    orders = set()
    for seed in (3, 4):
        (batch,) = lists(Loader(Mix(numbers([20, 20]), (1, 1)), 40, shuffle=True, seed=seed))
        orders |= {tuple(index % 1000 for index in batch if index // 1000 == at) for at in range(2)}
    assert len(orders) == 4


# ---- resuming; ranks are shared out by BatchOrder, see test_batch_order.py


@pytest.mark.parametrize(
    ("other", "options"),
    [
        (Mix(numbers([30, 41]), (0.49, 0.51)), {}),  # as many batches
        (Mix(numbers([30, 41]), (1, 1), exact=False), {}),
        (Mix(numbers([30, 41]), (1, 1), epoch="longest"), {}),
        (Mix(numbers([31, 40]), (1, 1)), {}),
        (Mix(numbers([30, 41]), (1, 1)), {"shuffle": True}),
    ],
)
def test_a_state_of_another_mix_is_refused(other: Mix, options: dict[str, Any]) -> None:
    state = Loader(Mix(numbers([30, 41]), (1, 1)), 4).state_dict()
    with pytest.raises(InvalidRequest, match="was"):
        Loader(other, 4, **options).load_state_dict(state)


# ---- packs


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> list[PackDataset]:
    folder = tmp_path_factory.mktemp("mixed")
    return [packer.open(marked_packs.pack(folder / f"{count}.pack", count)) for count in (9, 14)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("is_of_packs", [False, True])
def test_batches_of_packs_do_not_depend_on_threads_and_workers(packs: list[PackDataset], is_of_packs: bool) -> None:
    """The geometry is that of the loader, or of each pack."""
    if is_of_packs:
        flip = RandomHorizontalFlip()
        packs = [packs[0].with_(geometry=RANDOM), packs[1].with_(geometry=Compose(RandomResizedCrop(32), flip, flip))]
    mix = Mix([packs[0], Subset(packs[1], range(1, 12))], (0.5, 0.5))
    geometry = None if is_of_packs else RANDOM
    found = set()
    for how in ({"threads": 1}, {"threads": 3}, {"num_workers": 1}, {"num_workers": 2}):
        with Loader(mix, 4, shuffle=True, geometry=geometry, **how) as loader:  # type: ignore[arg-type]
            found.add(digest_of([batch for _ in range(2) for batch in loader]))
    assert len(found) == 1


def test_a_sample_that_comes_again_in_an_epoch_is_augmented_differently(packs: list[PackDataset]) -> None:
    loader = Loader(Mix([Subset(packs[0], [0]), packs[1]], (0.5, 0.5), epoch="longest"), 4, geometry=RANDOM)
    images = [
        image
        for batch in loader
        for key, image, weight in zip(batch["key"], batch["image"], batch["weight"], strict=True)
        if (key, weight) == ("scene 0000", 0)
    ]
    assert len(images) >= 14
    assert len({image.numpy().tobytes() for image in images}) >= 14


def test_class_lists_that_differ_are_merged_by_name(tmp_path: Path) -> None:
    datasets = []
    for name, classes in (("one", "ab"), ("two", "bc")):
        files = {f"{each}/{name}.png": source_trees.image(0) for each in classes}
        packed(source_trees.write(tmp_path / "in" / name, files), tmp_path / f"{name}.pack")
        datasets.append(packer.open(tmp_path / f"{name}.pack"))
    mix = Mix(datasets, (1, 1))
    assert [mix.dataset.classes[number] for batch in Loader(mix, 2) for number in batch["label"]] == [
        "a",
        "b",
        "b",
        "c",
    ]
    with pytest.raises(InvalidRequest, match=r"'label'.*packer\.concat"):
        Loader(ConcatDataset(datasets), 2)


def test_packs_are_one_collection_if_they_make_equal_samples(packs: list[PackDataset]) -> None:
    assert isinstance(Mix(packs, (1, 1)).dataset, PackDataset)
    assert isinstance(Mix([packs[0], Subset(packs[1], [3, 1])], (1, 1)).dataset, PackDataset)
    for others in ([packs[0], packs[1].with_(geometry=RANDOM)], [packs[0], Subset(packs[1], [3, 3])]):
        mix = Mix(others, (1, 1), epoch="longest")
        assert isinstance(mix.dataset, ConcatDataset)
        assert len(Loader(mix, 4, geometry=RANDOM)) == len(list(Loader(mix, 4, geometry=RANDOM)))
    alone = Mix([packs[0].with_(fields=["image", "key"], as_tuple=("image", "key")), packs[1]], (1, 1))
    assert isinstance(alone.dataset, ConcatDataset)


def test_a_collection_gives_the_batches_of_sample_by_sample_reading(packs: list[PackDataset]) -> None:
    fast, slow = (Mix(packs, (0.6, 0.4)) for _ in range(2))
    slow.dataset = ConcatDataset(packs)
    options: dict[str, Any] = {"shuffle": True, "geometry": RANDOM, "seed": 4}
    for one, other in zip(Loader(fast, 5, **options), Loader(slow, 5, **options), strict=True):
        assert digest_of([one]) == digest_of([other])
    (last,) = Loader(Subset(ConcatDataset(packs), [-1, 0]), 2)
    assert torch.equal(last["image"], torch.stack([packs[1][13]["image"], packs[0][0]["image"]]))


def test_stock_loaders_are_told_which_loader_takes_a_mix(packs: list[PackDataset]) -> None:
    with pytest.raises(WrongType, match=r"packer\.Loader\(mix"):
        list(torch.utils.data.DataLoader(Mix(packs, (1, 1))))  # type: ignore[arg-type]


# ---- errors


@pytest.mark.parametrize(
    ("message", "datasets", "given_weights", "options"),
    [
        ("weights", numbers([3, 3]), (1,), {}),
        ("weights", [], (), {}),
        ("weights=", numbers([3, 3]), (1, 0), {}),
        ("weights=", numbers([3, 3]), (1, float("nan")), {}),
        ("weights=", numbers([3, 3]), (1, float("inf")), {}),
        ("number 1 is empty", numbers([3, 0]), (1, 1), {}),
        ("epoch=", numbers([3]), (1,), {"epoch": "middle"}),
        ("weights=", numbers([3]), ("1",), {}),
        ("datasets", [iter(())], (1,), {}),
    ],
)
def test_what_makes_no_mix_is_refused(message: str, datasets: Any, given_weights: Any, options: dict[str, Any]) -> None:
    with pytest.raises((InvalidRequest, WrongType), match=message):
        Mix(datasets, given_weights, **options)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("sampler", {"sampler": [1, 2]}),
        ("weights", {"weights": [1] * 60}),
        ("batch_sampler", {"batch_sampler": [[1, 2]]}),
        ("blocks", {"shuffle": "blocks"}),
        ("batch_size=0", {"batch_size": 0}),
    ],
)
def test_what_a_mix_does_not_go_with_is_refused(message: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Loader(Mix(numbers([30, 30]), (1, 1)), **{"batch_size": 4, **options})
