"""Weights: shares per pass, balance of classes, random numbers of repetitions, errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer import Loader
from packer.errors import InvalidRequest
from packer.geometry import RandomResizedCrop
from packer.loading import balanced
from packer.loading.weights import WeightedBatches
from tests.support import marked_packs

WEIGHTS = [0.0, 1, 1, 2, 5, 0.5, 0.5, 3, 7, 0.25, 0, 12]


def passed(loader: Any) -> list[int]:
    return [index for batch in loader for index in batch.tolist()]


def drawn(
    weights: list[float], number: int, *, batch_size: int = 1, count: int | None = None, seed: int = 3
) -> np.ndarray[Any, Any]:
    """How often each sample is in a pass, by default of as many samples as there are weights."""
    batches = WeightedBatches(np.asarray(weights), batch_size, count or len(weights)).of_pass(seed, number)
    assert {len(each.indices) for each in batches} == {batch_size}
    return np.bincount(np.concatenate([each.indices for each in batches]), minlength=len(weights))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(any), st.integers(1, 9), st.integers(1, 9))
def test_a_pass_has_each_share_rounded_down_or_up(weights: list[float], size: int, count: int) -> None:
    counts = drawn(weights, 1, batch_size=size, count=count)
    shares = np.asarray(weights) / np.sum(weights) * size * count
    assert counts.sum() == size * count
    assert (np.abs(counts - shares) < 1 + 1e-6).all()
    assert not counts[np.asarray(weights) == 0].any()


def test_the_mean_of_many_passes_is_the_share() -> None:
    passes = 3000
    counts = sum(drawn(WEIGHTS, number) for number in range(passes))
    shares = np.asarray(WEIGHTS) / sum(WEIGHTS) * len(WEIGHTS)
    assert np.abs(counts / passes - shares).max() < 0.05  # 5 standard deviations of a fair coin


@pytest.mark.parametrize("of_seed", [False, True])
def test_passes_and_seeds_draw_other_samples(of_seed: bool) -> None:
    """Half of ten equal samples would be one of two halves if their order did not change."""
    runs = [(1, seed) if of_seed else (seed, 1) for seed in range(400)]
    halves = {tuple(drawn([1] * 10, number, count=5, seed=seed)) for number, seed in runs[:20]}
    assert len(halves) > 4
    single = sum(drawn([3, 1], number, count=1, seed=seed) for number, seed in runs)
    assert abs(single[0] / 400 - 0.75) < 0.1  # 4 standard deviations


@given(st.integers(1, 60), st.integers(0, 3))
def test_equal_weights_are_a_shuffle(count: int, number: int) -> None:
    assert drawn([0.3] * count, number).tolist() == [1] * count


@pytest.mark.parametrize("as_text", [False, True])
def test_balanced_classes_have_equal_counts(as_text: bool) -> None:
    classes = np.random.default_rng(0).choice(4, size=900, p=[0.8, 0.15, 0.04, 0.01])
    labels = [f"class {each}" for each in classes] if as_text else classes
    loader = Loader(list(range(900)), 30, weights=balanced(labels))  # type: ignore[arg-type]
    for _ in range(3):
        counts = np.bincount(classes[passed(loader)], minlength=4)
        assert np.abs(counts - 225).max() <= 20
    assert balanced([7, 7, 8]).tolist() == [0.5, 0.5, 1]


@pytest.mark.parametrize("weights", [WEIGHTS, np.asarray(WEIGHTS, np.float32), torch.tensor(WEIGHTS)])
def test_epochs_and_seeds_differ(weights: Any) -> None:
    data: Any = list(range(12))
    one = Loader(data, 2, weights=weights, seed=4)
    epochs = [passed(one) for _ in range(3)]
    assert len({tuple(each) for each in epochs}) == 3
    assert passed(Loader(data, 2, weights=weights, seed=5)) != epochs[0]
    assert len(Loader(data, 5, weights=weights)) == 2
    assert len(Loader(data, 50, weights=weights)) == 1


def test_weights_that_change_later_change_nothing() -> None:
    weights = np.asarray(WEIGHTS)
    loader = Loader(list(range(12)), 2, weights=weights)  # type: ignore[arg-type]
    weights[:] = 1
    assert passed(loader) == passed(Loader(list(range(12)), 2, weights=WEIGHTS))  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [None, 5], ids=["pass", "stream"])
def test_a_repeated_sample_gets_other_random_numbers(tmp_path: Path, steps: int | None) -> None:
    dataset = packer.open(marked_packs.pack(tmp_path / "a.pack", 12), fields=("key", "image"))
    crop = RandomResizedCrop(24, scale=(0.2, 0.6))
    runs = []
    for threads in (1, 3):
        loader = Loader(dataset, 4, weights=[8, *[1] * 11], geometry=crop, threads=threads, steps_per_epoch=steps)
        images = [
            image
            for batch in loader
            for key, image in zip(batch["key"], batch["image"], strict=True)
            if key == "scene 0000"
        ]
        loader.close()
        runs.append([image.numpy().tobytes() for image in images])
    assert runs[0] == runs[1]
    assert len(runs[0]) >= 5
    assert len(set(runs[0])) == len(runs[0])


@pytest.mark.parametrize(
    ("message", "weights", "options"),
    [
        ("found shape", [1, 2], {}),
        ("found shape", 3, {}),
        ("at least 0", [1, -1, 1], {}),
        ("at least 0", [1, float("inf"), 1], {}),
        ("more than 0", [0, 0, 0], {}),
        ("weights=", ["a", "b", "c"], {}),
        ("and shuffle", [1, 1, 1], {"shuffle": True}),
        ("sampler", [1, 1, 1], {"sampler": [1]}),
    ],
)
def test_other_weights_are_refused(message: str, weights: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Loader([1, 2, 3], 2, weights=weights, **options)  # type: ignore[arg-type]


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="labels"):
        balanced(np.zeros((2, 2)))


def test_ranks_of_torch_distributed_share_weights_and_not_a_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    data: Any = list(range(12))
    loaders = [Loader(data, 2, weights=WEIGHTS), Loader(data, batch_sampler=[[1], [2], [3], [4]])]
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 3)
    assert [len(each) for each in loaders] == [2, 4]
