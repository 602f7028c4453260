"""Loader: epochs, endless streams, and going on where another process stopped."""

import gc
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Subset

import packer
from packer import Loader
from packer.datasets.pack_dataset import PackDataset
from packer.errors import InvalidRequest
from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop
from tests.support import marked_packs
from tests.support.child_processes import child
from tests.support.sample_digests import digest_of
from tests.support.waiting import packer_threads

RANDOM = Compose(RandomResizedCrop(32, scale=(0.3, 1)), RandomHorizontalFlip())
COUNT = 23


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.pack(tmp_path_factory.mktemp("posed") / "posed.pack", COUNT)


@pytest.fixture(scope="module")
def keyed(path: Path) -> PackDataset:
    """Only keys: quick."""
    return packer.open(path, fields=("key",))


@pytest.fixture
def dataset(path: Path) -> PackDataset:
    return packer.open(path, fields=("key", "image", "spots"))


def keys(batches: Any) -> list[str]:
    """Keys in the order in which they came."""
    return [key for batch in batches for key in batch["key"]]


# ---- epochs


def test_each_epoch_is_a_permutation_of_its_own(keyed: PackDataset) -> None:
    loader = Loader(keyed, 4, shuffle=True, seed=2)
    epochs = [keys(loader) for _ in range(4)]
    assert loader.epoch == 4
    assert all(sorted(each) == list(keyed.keys()) for each in epochs)
    assert len({tuple(each) for each in epochs}) == 4
    loader.set_epoch(1)
    assert [keys(loader), keys(loader)] == epochs[1:3]
    other = Loader(keyed, 7, shuffle=True, seed=2)
    other.set_epoch(3)
    assert keys(other) == epochs[3]
    assert keys(Loader(keyed, 4)) == list(keyed.keys())


def test_augmentation_differs_between_epochs_and_comes_again(dataset: PackDataset) -> None:
    loader = Loader(dataset, 4, geometry=RANDOM)
    epochs = [digest_of(loader) for _ in range(3)]
    assert len(set(epochs)) == 3
    loader.set_epoch(0)
    assert [digest_of(loader) for _ in range(3)] == epochs
    assert digest_of(Loader(dataset, 4, geometry=RANDOM, seed=1)) != epochs[0]


def test_a_broken_off_epoch_is_followed_by_the_next_and_one_that_was_set_starts_at_its_beginning(
    keyed: PackDataset,
) -> None:
    loader = Loader(keyed, 4, shuffle=True)
    whole = [keys(Loader(keyed, 4, shuffle=True))]
    for batch in loader:
        assert batch["key"] == whole[0][:4]
        break
    assert loader.epoch == 0
    assert keys(loader) != whole[0]
    assert loader.epoch == 2
    loader = Loader(keyed, 4, shuffle=True)
    next(iter(loader))
    state = loader.state_dict()
    loader.load_state_dict(state)
    loader.set_epoch(5)
    assert len(keys(loader)) == COUNT
    assert loader.epoch == 6


def test_two_iterators_of_one_loader_do_not_disturb_each_other(keyed: PackDataset) -> None:
    loader = Loader(keyed, 4, shuffle=True)
    first, second = iter(loader), iter(loader)
    pairs = list(zip(first, second, strict=True))
    assert [one["key"] for one, _ in pairs] == [other["key"] for _, other in pairs]
    assert loader.state_dict()["epoch"] == 1, "only the newest iterator is followed"


# ---- endless streams


def test_a_break_throws_no_batch_away_and_starts_no_thread(keyed: PackDataset) -> None:
    loader = Loader(keyed, 4, steps_per_epoch=6, shuffle=True, threads=2)
    found, threads = [], set()
    for _ in range(10):
        for number, batch in enumerate(loader):
            found += batch["key"]
            threads.add(tuple(thread.ident for thread in threading.enumerate() if "packer" in thread.name))
            if number == 2:
                break
    assert len(threads) == 1, "threads were started anew"
    fresh = Loader(keyed, 4, steps_per_epoch=30, shuffle=True)
    assert found == keys(fresh)
    assert loader.state_dict()["taken"] == 30
    loader.close()
    fresh.close()
    assert len(list(loader)) == 6  # it goes on
    del loader, fresh
    gc.collect()
    assert not packer_threads()


# ---- state


def rest_of(loader: Loader, epochs: int) -> list[str]:
    """Digests of what is left of the epoch, and of those up to `epochs`."""
    found = []
    while loader.epoch < epochs:
        found += [digest_of([batch]) for batch in loader]
    loader.close()
    return found


MEAN_STD = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
OPTIONS: dict[str, dict[str, Any]] = {
    "shuffled": {"shuffle": True, "seed": 9},
    "in order, drop_last": {"drop_last": True},
    "stream": {"shuffle": True, "steps_per_epoch": 9},
    "transform": {"shuffle": True, "transform": dict},
    "second of two": {"shuffle": True, "rank": 1, "world_size": 2},
    "sampler": {"sampler": range(COUNT - 1, -1, -1)},
    "device": {"shuffle": True, "normalize": MEAN_STD},
    "device, stream": {"shuffle": True, "normalize": MEAN_STD, "steps_per_epoch": 9},
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("step", [0, 1, 4])
@pytest.mark.parametrize("name", OPTIONS)
def test_it_goes_on_exactly_where_it_stood(dataset: PackDataset, name: str, step: int) -> None:
    def make() -> Loader:
        return Loader(dataset, 2, geometry=RANDOM, **OPTIONS[name])

    whole = rest_of(make(), 3)
    loader = make()
    first = [digest_of([batch]) for batch in loader]
    batches = iter(loader)
    second = [digest_of([next(batches)]) for _ in range(step)]
    state = json.loads(json.dumps(loader.state_dict()))  # plain numbers and text
    assert (state["epoch"], state["step"]) == (1, step)
    assert first + second == whole[: len(first) + step]
    other = make()
    other.load_state_dict(state)
    assert other.epoch == 1
    other.set_epoch(1)  # as a training loop does, and it must not throw the place away
    assert len(first + second + rest_of(other, 3)) == len(whole)
    other.load_state_dict(state)
    assert first + second + rest_of(other, 3) == whole
    loader.load_state_dict(state)  # into the loader itself, with the old iterator still there
    if "stream" not in name:
        next(batches)
    assert rest_of(loader, 3) == whole[len(first) + step :]


@pytest.mark.parametrize("drawn", [False, True])
def test_an_iterator_without_a_batch_changes_no_place(keyed: PackDataset, drawn: bool) -> None:
    """Trainers call iter, then set_epoch, or iter twice."""

    def make() -> Loader:
        sampler = RandomSampler(range(COUNT), generator=torch.Generator().manual_seed(3))
        return Loader(keyed, 4, **{"sampler": sampler} if drawn else {"shuffle": True})  # type: ignore[arg-type]

    loader, other = make(), make()
    batches = iter(loader)
    loader.set_epoch(0)
    first = keys([next(batches), next(batches)])
    state = loader.state_dict()
    assert (state["epoch"], state["step"]) == (0, 2)
    other.load_state_dict(state)
    iter(other)
    other.set_epoch(0)
    assert sorted(first + keys(other)) == list(keyed.keys())
    loader.set_epoch(0)  # once more from its beginning
    assert sorted(keys(loader)) == list(keyed.keys())
    del batches


def test_a_foreign_state_is_refused(tmp_path: Path, keyed: PackDataset) -> None:
    state = Loader(keyed, 4).state_dict()
    for options, name in (
        ({"batch_size": 5}, "batch_size"),
        ({"shuffle": True}, "shuffle"),
        ({"seed": 1}, "seed"),
        ({"drop_last": True}, "drop_last"),
        ({"steps_per_epoch": 3}, "steps_per_epoch"),
        ({"sampler": range(COUNT)}, "sampler"),
    ):
        loader = Loader(keyed, **{"batch_size": 4, **options})  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match=f"state_dict: {name} was"):
            loader.load_state_dict(state)
    another = packer.open(marked_packs.pack(tmp_path / "other.pack", COUNT, image="png"), fields=("key",))
    with pytest.raises(InvalidRequest, match="pack was"):
        Loader(another, 4).load_state_dict(state)
    with pytest.raises(InvalidRequest, match="samples was"):
        Loader(Subset(keyed, [0, 1]), 4).load_state_dict(state)
    for broken in ({}, {**state, "epoch": "x"}, {**state, "step": -1}, {**state, "taken": None}):
        with pytest.raises(InvalidRequest, match="state_dict"):
            Loader(keyed, 4).load_state_dict(broken)


def test_a_forked_child_has_a_stream_of_its_own(keyed: PackDataset) -> None:
    loader = Loader(keyed, 4, steps_per_epoch=5)
    first = keys([next(iter(loader))])
    outcome = child(lambda: keys(loader))
    assert outcome.kind == "value", outcome
    whole = Loader(keyed, 4, steps_per_epoch=6)
    assert first + outcome.value == keys(whole)
    assert keys(loader) == outcome.value
    loader.close()
    whole.close()


# ---- a stock DataLoader


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stock_data_loader_augments_by_torchs_seed(path: Path, workers: int) -> None:
    dataset = packer.open(path, fields=("key", "image", "spots"), geometry=RANDOM)
    options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
    loader = DataLoader(dataset, 4, num_workers=workers, **options)

    def epochs(seed: int) -> list[str]:
        torch.manual_seed(seed)
        return [digest_of(loader), digest_of(loader)]

    one = epochs(1)
    assert one[0] != one[1], "both epochs are augmented alike"
    assert epochs(1) == one
    assert epochs(2) != one
    assert tuple(next(iter(loader))["image"].shape) == (4, 3, 32, 32)
