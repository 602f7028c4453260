"""Size buckets: the bound of the padding, each sample once, padded batches, errors."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Subset

import packer
from packer import Loader
from packer.datasets.pack_dataset import PackDataset
from packer.errors import InvalidRequest
from packer.loading import SizeBuckets
from tests.support import marked_packs

pairs = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=50)


@given(pairs, st.integers(1, 9), st.floats(0, 0.9), st.integers(0, 3))
def test_each_batch_keeps_the_bound_and_each_sample_is_in_one(
    sizes: list[tuple[int, int]], batch_size: int, most_padding: float, number: int
) -> None:
    data: Any = range(len(sizes))
    buckets = SizeBuckets(data, batch_size, most_padding=most_padding, sizes=sizes)
    batches = buckets.of_pass(1, number)
    assert len(batches) == len(buckets)
    assert sorted(index for batch in batches for index in batch.indices.tolist()) == list(data)
    for batch in batches:
        chosen = np.asarray(sizes)[batch.indices]
        assert 1 <= len(chosen) <= batch_size
        assert (batch.passes == number).all()
        assert (chosen.prod(axis=1) >= (1 - most_padding) * chosen.max(axis=0).prod() - 1e-6).all()


def test_equal_sizes_make_full_batches_in_a_new_order_each_epoch() -> None:
    data: Any = range(60)
    loader = Loader(list(data), batch_sampler=SizeBuckets(data, 10, sizes=[(4, 6)] * 30 + [(6, 4)] * 30))  # type: ignore[arg-type]
    epochs = [[batch.tolist() for batch in loader] for _ in range(3)]
    assert all(len(batch) == 10 for epoch in epochs for batch in epoch)
    assert all(len({index // 30 for index in batch}) == 1 for epoch in epochs for batch in epoch)
    assert len({str(each) for each in epochs}) == 3
    assert not {frozenset(batch) for batch in epochs[0]} & {frozenset(batch) for batch in epochs[1]}
    assert len({tuple(batch[0] // 30 for batch in epoch) for epoch in epochs}) > 1, "buckets take turns by chance"


def test_a_bucket_is_cut_in_the_middle() -> None:
    """Of 64 heights, each bucket has those from one to its double: log2 64 buckets, and not one for each height."""
    data: Any = range(64)
    assert len(SizeBuckets(data, 64, most_padding=0.5, sizes=[(1 + at, 1) for at in data])) <= 9


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> PackDataset:
    """Scenes of 30 sizes."""
    path = tmp_path_factory.mktemp("sizes") / "sizes.pack"
    samples = [marked_packs.scene(at, height=40 + at % 5, width=50 + 10 * (at % 6)) for at in range(31)]
    return packer.open(marked_packs.write(path, samples, marked_packs.schema()), fields=("key", "image", "mask"))


@pytest.mark.parametrize("how", [{}, {"transform": dict}, {"num_workers": 1}], ids=str)
def test_padded_images_are_the_images_and_zeros(dataset: PackDataset, how: dict[str, Any]) -> None:
    chosen = Subset(dataset, [1, 2, 8, 14, 20, 30])
    with Loader(chosen, batch_sampler=SizeBuckets(chosen, 3, most_padding=0.5), ragged="pad", **how) as loader:
        batches = list(loader)
    for batch in batches:
        assert how.get("num_workers") or batch["image"].is_contiguous(memory_format=torch.channels_last)
        for name in ("image", "mask"):
            padded, sizes = batch[name], batch[f"{name}_size"]
            assert sizes.dtype == torch.int64
            assert padded.shape[-2:] == tuple(sizes.max(dim=0).values.tolist())
            for at, key in enumerate(batch["key"]):
                height, width = sizes[at].tolist()
                assert torch.equal(padded[at, ..., :height, :width], dataset[dataset.index_of(key)][name])
                assert not padded[at, ..., height:, :].any() and not padded[at, ..., width:].any()
    assert len(batches) < 6


def test_images_of_one_size_by_chance_have_their_size_too(dataset: PackDataset) -> None:
    (batch,) = Loader(Subset(dataset, [0, 30]), 2, ragged="pad")
    assert batch["image_size"].tolist() == [[40, 50], [40, 50]]


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("most_padding", {"most_padding": 1.0}),
        ("most_padding", {"most_padding": -0.1}),
        ("most_padding=", {"most_padding": "little"}),
        ("batch_size", {"batch_size": 0}),
        ("give sizes=", {"sizes": None}),
        ("pairs", {"sizes": [(1, 2)]}),
        ("pairs", {"sizes": [(1, 2), (0, 3), (1, 1)]}),
        ("pairs", {"sizes": [1, 2, 3]}),
    ],
)
def test_what_makes_no_buckets_is_refused(message: str, options: dict[str, Any]) -> None:
    data: Any = range(3)
    with pytest.raises(InvalidRequest, match=message):
        SizeBuckets(data, **{"batch_size": 2, "sizes": [(1, 2)] * 3, **options})


def test_a_pack_without_images_needs_sizes(dataset: PackDataset) -> None:
    with pytest.raises(InvalidRequest, match="give sizes="):
        SizeBuckets(packer.open(str(dataset.path), fields=("key",)), 2)
