"""Shuffling by blocks: each sample once, few parts at a time, lanes of its own for a rank, one order for all ranks."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, Subset

import packer
from packer.datasets.pack_dataset import PackDataset
from packer.errors import InvalidRequest, WrongType
from packer.geometry import draw
from packer.loading import Loader
from packer.loading.block_order import block_order
from tests.support import marked_packs

Indices = npt.NDArray[np.int64]

PARTS, COUNT = 20, 90
part_sizes = st.lists(st.integers(0, 12), min_size=1, max_size=150)
windows = st.none() | st.integers(1, 160)
seeds = st.integers(-5, 1 << 70)


def numbers_of(sizes: list[int]) -> Indices:
    """The part of each sample."""
    return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)


def most_open(parts: Indices) -> int:
    """The most parts that a position is between the first and the last sample of."""
    places: dict[int, list[int]] = {}
    for place, part in enumerate(parts.tolist()):
        places.setdefault(part, []).append(place)
    change = np.zeros(len(parts) + 1, np.int64)
    for each in places.values():
        change[each[0]] += 1
        change[each[-1] + 1] -= 1
    return int(np.cumsum(change).max(initial=0))


@given(part_sizes, windows, seeds, st.integers(0, 1000))
def test_each_sample_comes_once(sizes: list[int], window: int | None, seed: int, number: int) -> None:
    blocks = block_order(numbers_of(sizes), window)
    found = blocks.of_pass(seed, number)
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == list(range(sum(sizes)))
    assert found.tolist() == blocks.of_pass(seed, number).tolist()
    if sum(sizes) >= 60:
        assert found.tolist() != blocks.of_pass(seed, number + 1).tolist()
        assert found.tolist() != blocks.of_pass(seed + 1, number).tolist()


@given(part_sizes, windows, seeds)
def test_a_pass_reads_from_no_more_parts_than_it_says(sizes: list[int], window: int | None, seed: int) -> None:
    numbers = numbers_of(sizes)
    blocks = block_order(numbers, window)
    read = numbers[blocks.of_pass(seed, 0)]
    assert most_open(read) <= blocks.most_parts <= blocks.window + blocks.lanes
    shares = [most_open(read[lane :: blocks.lanes]) for lane in range(blocks.lanes)]
    assert sum(shares) <= blocks.window
    assert max(shares) <= -(-blocks.window // blocks.lanes)


@pytest.mark.parametrize(("parts", "window"), [(20, 5), (64, 8), (64, 21), (130, 16), (130, 40)])
def test_large_parts_fill_the_window_and_no_more(parts: int, window: int) -> None:
    """Lanes that share a part at a cut read it at the same end of the pass: nobody keeps it from one to the other."""
    numbers = numbers_of([200 + part % 7 for part in range(parts)])
    blocks = block_order(numbers, window)
    read = numbers[blocks.of_pass(3, 0)]
    shares = [most_open(read[lane :: blocks.lanes]) for lane in range(blocks.lanes)]
    assert sum(shares) == window
    middle = read[len(read) // 3 : 2 * len(read) // 3]
    held = set(read[: len(read) // 3].tolist()) & set(read[2 * len(read) // 3 :].tolist())
    assert held <= set(middle.tolist()), "a part that is read at both ends alone"


@given(st.lists(st.integers(1, 9), min_size=8, max_size=150), windows, seeds)
def test_ranks_that_divide_the_lanes_read_parts_of_their_own(sizes: list[int], window: int | None, seed: int) -> None:
    numbers = numbers_of(sizes)
    blocks = block_order(numbers, window)
    read = numbers[blocks.of_pass(seed, 1)]
    world_size = blocks.lanes
    while world_size:
        fetched = sum(len(np.unique(read[rank::world_size])) for rank in range(world_size))
        assert fetched <= len(sizes) + (blocks.lanes - 1 if world_size > 1 else 0)
        world_size //= 2


def test_the_order_is_the_one_that_states_were_saved_in() -> None:
    """A state is a place in an order: another order for the same seed would go on with samples that came already."""
    small = block_order(numbers_of([3, 1, 2]), 2)
    assert (small.lanes, small.window) == (1, 2)
    assert [small.of_pass(1, number).tolist() for number in (0, 1)] == [[3, 0, 2, 4, 5, 1], [2, 0, 1, 4, 3, 5]]
    large = block_order(numbers_of([2, 1, 3, 0] * 6), 5)
    assert (large.lanes, large.window, large.parts) == (2, 5, 18)
    first = [28, 18, 27, 19, 29, 2, 7, 4, 33, 3, 34, 21, 6, 5, 26, 22, 35, 23]
    assert large.of_pass(-9, 4).tolist() == [*first, 8, 17, 30, 16, 31, 1, 32, 0, 10, 15, 9, 13, 14, 12, 11, 20, 24, 25]


@pytest.mark.parametrize(
    ("parts", "window", "lanes", "settled"),
    [
        (1, None, 1, 16),
        (15, None, 1, 16),
        (16, None, 2, 16),
        (255, None, 16, 26),
        (512, None, 64, 64),
        (40_000, None, 64, 4000),
        (512, 16, 16, 16),
        (512, 31, 16, 31),
        (512, 1, 1, 1),
        (16, 900, 2, 900),
    ],
)
def test_lanes_and_window(parts: int, window: int | None, lanes: int, settled: int) -> None:
    blocks = block_order(np.arange(parts), window)
    assert (blocks.lanes, blocks.window, blocks.parts) == (lanes, settled, parts)


def test_a_window_of_all_parts_is_a_shuffle_of_all_samples() -> None:
    """Every place holds every sample equally often."""
    blocks = block_order(numbers_of([3, 4, 1]))
    seen = np.zeros((8, 8))
    for number in range(4000):
        seen[np.arange(8), blocks.of_pass(3, number)] += 1
    assert np.abs(seen - 500).max() < 5 * np.sqrt(500 * 7 / 8)


def test_batches_are_of_many_parts_from_the_beginning_to_the_end() -> None:
    numbers = numbers_of([100] * 512)
    blocks = block_order(numbers, 64)
    batches = numbers[blocks.of_pass(1, 0)][: 800 * 64].reshape(800, 64)
    assert min(len(np.unique(batch)) for batch in batches) >= 50
    wide = numbers[block_order(numbers_of([100] * 7), 4).of_pass(1, 0)]  # of one lane
    assert {len(np.unique(wide[at : at + 64])) >= 3 for at in range(0, 700 - 64, 64)} == {True}


def test_the_order_says_nothing_about_the_numbers_of_a_geometry() -> None:
    """Drawn with the same key, they would be the same: what comes late in a window would always be turned alike."""
    blocks = block_order(numbers_of([20_000]))
    found = blocks.of_pass(5, 0)
    numbers = draw(5, 0, found, 3)
    assert np.abs([np.corrcoef(np.arange(20_000), column)[0, 1] for column in numbers.T]).max() < 0.03


def test_samples_that_are_not_in_the_order_of_the_parts() -> None:
    numbers = np.random.default_rng(1).permutation(numbers_of([5] * 30))
    blocks = block_order(numbers, 3)
    found = blocks.of_pass(0, 0)
    assert sorted(found.tolist()) == list(range(150))
    assert most_open(numbers[found]) <= blocks.most_parts == 5


@pytest.mark.parametrize("window", [0, -1, True, 2.0, "all"])
def test_a_window_that_is_none_is_refused(window: Any) -> None:
    with pytest.raises(InvalidRequest, match="window="):
        block_order(np.arange(9), window)


# ---- in a Loader


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> PackDataset:
    path = marked_packs.pack(tmp_path_factory.mktemp("blocks") / "a.pack", COUNT, parts=PARTS)
    return packer.open(path, fields=("key",))


def keys_of(loader: Loader, most: int = 1000) -> list[str]:
    """Keys of the next batches, at most so many."""
    found: list[str] = []
    for number, batch in enumerate(loader, 1):
        found += batch["key"]
        if number == most:
            break
    return found


def test_a_loader_gives_the_order_with_workers_and_from_pass_to_pass_too(keyed: PackDataset) -> None:
    loader = Loader(keyed, 4, shuffle="blocks", window=4, seed=3)
    blocks = block_order(keyed.part_numbers(), 4)
    for epoch in range(2):
        assert keys_of(loader) == [keyed.key(index) for index in blocks.of_pass(3, epoch).tolist()]
    assert repr(loader).endswith(", shuffled in 2 lanes, 4 of 20 parts)")
    assert most_open(keyed.part_numbers(blocks.of_pass(3, 0))) <= 6
    with Loader(keyed, 7, shuffle="blocks", num_workers=2) as loader:
        assert keys_of(loader) == keys_of(Loader(keyed, 7, shuffle="blocks"))
    with Loader(keyed, 20, shuffle="blocks", window=4, steps_per_epoch=9) as loader:
        keys = keys_of(loader)
    assert sorted(keys[:COUNT]) == sorted(keys[COUNT:]) == list(keyed.keys())
    assert keys[:COUNT] == keys_of(Loader(keyed, 90, shuffle="blocks", window=4))


def test_a_state_of_another_window_is_refused_and_one_from_before_there_were_windows_taken(keyed: PackDataset) -> None:
    state = Loader(keyed, 4, shuffle="blocks", window=4).state_dict()
    for options, name in (({"window": 5}, "window"), ({}, "window"), ({"shuffle": True}, "shuffle")):
        settled = {"shuffle": "blocks", **options}
        with pytest.raises(InvalidRequest, match=f"state_dict: {name} was"):
            Loader(keyed, 4, **settled).load_state_dict(state)
    Loader(keyed, 4, shuffle="blocks", window=16).load_state_dict(Loader(keyed, 4, shuffle="blocks").state_dict())
    loader = Loader(keyed, 4, shuffle=True)
    state = loader.state_dict()
    del state["window"]
    loader.load_state_dict(state)


def test_a_subset_in_any_order(keyed: PackDataset) -> None:
    chosen = [89, *range(0, 60, 2), -2]
    loader = Loader(Subset(keyed, chosen), 4, shuffle="blocks", window=2)
    assert sorted(keys_of(loader)) == sorted(keyed.key(index) for index in chosen)
    read = keyed.part_numbers(np.asarray(chosen))[loader.order.of_pass(0)]
    assert most_open(read) <= 3


class Twice(PackDataset):
    """Each sample twice."""

    def __len__(self) -> int:
        return 2 * super().__len__()

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index // 2)


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> int:
        return index


def test_what_has_no_parts_is_refused(keyed: PackDataset) -> None:
    for dataset in (Numbers(), Subset(Numbers(), [1, 2])):
        with pytest.raises(InvalidRequest, match="has no parts"):
            Loader(dataset, 4, shuffle="blocks")
    with pytest.raises(InvalidRequest, match="180 samples"):
        Loader(Twice(keyed.path), 4, shuffle="blocks")
    with pytest.raises(InvalidRequest, match='window=4.*shuffle="blocks"'):
        Loader(keyed, 4, shuffle=True, window=4)
    with pytest.raises(WrongType, match="shuffle='block'.*'blocks'"):
        Loader(keyed, 4, shuffle="block")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="sampler"):
        Loader(keyed, 4, shuffle="blocks", sampler=[1])
