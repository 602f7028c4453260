"""Beside torch's own tools: pinned memory, persistent workers, ConcatDataset, Subset, random_split."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

import packer
from packer.datasets.pack_dataset import PackDataset
from packer.loading import CUDAPrefetcher, DataLoaderX, Loader
from tests.support import marked_packs
from tests.support.sample_digests import digest_of

COUNT = 24


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.pack(tmp_path_factory.mktemp("posed") / "posed.pack", COUNT)


@pytest.fixture
def dataset(path: Path) -> PackDataset:
    return packer.open(path, fields=("key", "image", "label", "grasps"))


@pytest.mark.full
@pytest.mark.parametrize("kind", [DataLoader, DataLoaderX])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("persistent", [False, True])
def test_pinned_memory_and_workers_of_any_start(path: Path, kind: Any, method: str, persistent: bool) -> None:
    dataset = packer.open(path, fields=("key", "image", "label"))
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": persistent, "multiprocessing_context": method}
    loader = kind(dataset, 4, pin_memory=True, **options)
    wanted = [digest_of([batch]) for batch in Loader(dataset, 4)]
    with warnings.catch_warnings():
        if not torch.cuda.is_available():  # torch says so at each pass, and goes on without pinning
            warnings.filterwarnings("ignore", "'pin_memory' argument is set as true but no accelerator", UserWarning)
        for _ in range(2):
            assert [digest_of([batch]) for batch in CUDAPrefetcher(loader, "cpu")] == wanted
    del loader


def test_parts_of_data_sets(dataset: PackDataset) -> None:
    both = ConcatDataset([dataset, Subset(dataset, [3, 1])])
    keys = [key for batch in DataLoader(both, 5, collate_fn=list) for key in (sample["key"] for sample in batch)]
    assert keys == [*dataset.keys(), dataset.key(3), dataset.key(1)]
    train, val = random_split(dataset, [0.75, 0.25], generator=torch.Generator().manual_seed(1))
    found = [[key for batch in Loader(part, 4, shuffle=True) for key in batch["key"]] for part in (train, val)]
    assert [len(keys) for keys in found] == [18, 6]
    assert sorted(found[0] + found[1]) == list(dataset.keys())
    (stock,) = DataLoader(Subset(packer.open(dataset.path, fields=("key", "image")), [5, 2]), 2)
    assert stock["key"] == [dataset.key(5), dataset.key(2)]
    assert torch.equal(stock["image"][1], dataset[2]["image"])
