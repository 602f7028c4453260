"""Grasp items in batches: packer.Loader, a stock DataLoader, the same items in both, going on after a stop."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import packer
from packer.errors import InvalidRequest
from packer.geometry import Resize
from packer.grasp import GraspDataset, SliceSplit, TurnAndZoom
from tests.support import grasp_folders
from tests.support.grasp_folders import equal, flat

SIZE = 24


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return grasp_folders.packs(tmp_path_factory.mktemp("loader"))


def same(one: Any, other: Any) -> bool:
    return all(equal(a, b) for a, b in zip(flat(one), flat(other), strict=True))


def items(batches: Any) -> dict[int, list[Any]]:
    """index -> the item, of all batches."""
    found = {}
    for batch in batches:
        parts = flat(batch)
        for at, index in enumerate(parts[-3].tolist()):
            found[index] = [part[at] for part in parts]
    return found


@pytest.mark.parametrize("pixels", ["float32", "uint8"])
@pytest.mark.parametrize("name", ["cornell", "jacquard"])
def test_a_batch_is_what_a_stock_data_loader_makes(name: str, pixels: str, made: dict[str, Path]) -> None:
    dataset = GraspDataset(made[name], SIZE, seed=7, pixels=pixels)
    loader = packer.Loader(dataset, 4, seed=7, threads=2)
    stock = DataLoader(dataset, 4, num_workers=0)
    for one, other in zip(loader, stock, strict=True):
        x, maps, index, rot, zoom = one
        assert [tuple(each.shape) for each in maps] == 4 * [(len(index), 1, SIZE, SIZE)]
        assert (index.dtype, rot.dtype, zoom.dtype) == (torch.int64, torch.float64, torch.float64)
        assert same(one, other)
        assert all(a.dtype == b.dtype for a, b in zip(flat(one), flat(other), strict=True))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("persistent", [False, True])
def test_two_workers_give_the_items_of_the_loader_in_every_epoch(persistent: bool, made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["cornell"], SIZE, seed=3)
    stock = DataLoader(dataset, 2, num_workers=2, shuffle=True, persistent_workers=persistent)
    loader = packer.Loader(GraspDataset(made["cornell"], SIZE), 4, shuffle=True, seed=3)
    turns = set()
    for epoch in range(2):
        dataset.set_epoch(epoch)
        loader.set_epoch(epoch)
        one, other = items(stock), items(loader)
        assert set(one) == set(other) == set(range(6))
        for index, parts in one.items():
            assert all(equal(a, b) for a, b in zip(parts, other[index], strict=True))
            turns.add((index, float(parts[-1])))
    assert len(turns) == 12  # another zoom in each epoch


def test_single_items_are_those_of_a_batch(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["jacquard"], SIZE, seed=3)
    dataset.set_epoch(5)
    batch = dataset.__getitems__([4, -6, 1])
    for position, index in enumerate((4, 0, 1)):
        assert same(batch[position], dataset[index])
        assert isinstance(batch[position][1], tuple)
    assert same(dataset[-1], dataset[5])
    assert dataset[-1][2] == 5


def test_rows_that_a_collate_function_put_in_a_list_become_the_batch(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["jacquard"], SIZE, seed=3)
    batch = dataset.__getitems__([0, 1, 2])
    assert same(torch.utils.data.default_collate(list(batch)), batch.collated())


def test_without_a_seed_items_follow_torchs_generator(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["cornell"], SIZE)
    torch.manual_seed(1)
    one = [dataset[0][3:], dataset[0][3:]]
    torch.manual_seed(1)
    assert [dataset[0][3:], dataset[0][3:]] == one
    assert one[0] != one[1]


def test_items_do_not_depend_on_threads_or_batch_size(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["jacquard"], SIZE)
    one = items(packer.Loader(dataset, 6, seed=2, threads=1))
    other = items(packer.Loader(dataset, 1, seed=2, threads=3, shuffle=True))
    assert all(equal(a, b) for index in one for a, b in zip(one[index], other[index], strict=True))


@pytest.mark.parametrize("name", ["cornell", "jacquard"])
def test_after_a_stop_in_the_middle_of_an_epoch_the_same_batches_follow(name: str, made: dict[str, Path]) -> None:
    def loader() -> packer.Loader:
        return packer.Loader(GraspDataset(made[name], SIZE, split=SliceSplit(0, 1, 0.5)), 2, shuffle=True, seed=9)

    one = loader()
    expected = [batch for _ in range(2) for batch in one]
    stopped = loader()
    for _, _batch in zip(range(2), stopped, strict=False):
        pass
    state = json.loads(json.dumps(stopped.state_dict()))
    again = loader()
    again.load_state_dict(state)
    found = [batch for _ in range(2) for batch in again]
    assert len(found) == 4
    assert all(same(a, b) for a, b in zip(found, expected[2:], strict=True))


def test_a_state_of_another_split_is_refused(made: dict[str, Path]) -> None:
    one, other = (
        packer.Loader(GraspDataset(made["cornell"], SIZE, split=split), 2)
        for split in (SliceSplit(0, 0.5), SliceSplit(0.5, 1))
    )
    with pytest.raises(InvalidRequest, match="split was"):
        other.load_state_dict(one.state_dict())


def test_a_loaders_own_augmentation_takes_the_place_of_the_data_sets(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["cornell"], SIZE)
    for batch in packer.Loader(dataset, 3, geometry=TurnAndZoom(zoom=False), seed=1):
        assert batch[4].tolist() == 3 * [1.0]
    with pytest.raises(InvalidRequest, match="TurnAndZoom only"):
        next(iter(packer.Loader(dataset, 3, geometry=Resize(20))))


def test_a_transform_in_the_loader_gets_items(made: dict[str, Path]) -> None:
    loader = packer.Loader(GraspDataset(made["cornell"], SIZE), 3, transform=lambda item: item[0][:1])
    assert [tuple(batch.shape) for batch in loader] == 2 * [(3, 1, SIZE, SIZE)]


def test_padding_leaves_grasp_batches_as_they_are(made: dict[str, Path]) -> None:
    one, other = (
        next(iter(packer.Loader(GraspDataset(made["cornell"], SIZE), 3, ragged=ragged))) for ragged in ("list", "pad")
    )
    assert same(one, other)


def test_a_batch_that_is_kept_stays_what_it_was(made: dict[str, Path]) -> None:
    loader = packer.Loader(GraspDataset(made["cornell"], SIZE), 2)
    kept = [(batch, [part.clone() for part in flat(batch)]) for batch in loader]
    for _ in range(3):
        list(loader)
    assert all(equal(a, b) for batch, parts in kept for a, b in zip(flat(batch), parts, strict=True))
