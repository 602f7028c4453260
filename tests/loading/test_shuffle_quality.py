"""How well a shuffle by blocks mixes the classes: the measure and the warning."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import packer
from packer.conversion.convert import convert
from packer.loading.shuffle_quality import label_field, shuffle_quality
from tests.support import source_trees

BATCH = 16


def brute_force(labels: list[int], order: list[int], size: int) -> float:
    """The same ratio, batch by batch and class by class."""
    count = len(labels)
    total, batches = 0.0, 0
    for at in range(0, len(order) - size + 1, size):
        batch = [labels[index] for index in order[at : at + size]]
        batches += 1
        for each in set(labels):
            total += (batch.count(each) - size * labels.count(each) / count) ** 2
    expected = sum(
        size * (share := labels.count(each) / count) * (1 - share) * (count - size) / (count - 1)
        for each in set(labels)
    )
    return total / batches / expected


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_variance_of_the_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 7, 500)
    order = random.permutation(500)
    found = shuffle_quality(labels, order, batch_size=BATCH)
    assert found is not None
    assert found.variance_ratio == pytest.approx(brute_force(labels.tolist(), order.tolist(), BATCH))
    batches = order[: 31 * BATCH].reshape(31, BATCH)
    assert found.classes == pytest.approx(np.mean([len(set(labels[batch])) for batch in batches]))


def test_where_nothing_can_vary_there_is_no_figure() -> None:
    order = np.arange(40)
    assert shuffle_quality(np.zeros(40, np.int64), order, batch_size=4) is None
    assert shuffle_quality(np.arange(40), order, batch_size=41) is None
    assert shuffle_quality(np.arange(40), order, batch_size=40) is None


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A set of six classes in many parts, in order and shuffled."""
    root = tmp_path_factory.mktemp("shuffle")
    for number in range(240):
        image = source_trees.image(number, height=12, width=16)
        source_trees.write(root / "photos", {f"c{number // 40}/{number:03d}.png": image})
    for order in ("stored", "shuffled"):
        convert(root / "photos", root / order, order=order, part_bytes=6_000)  # type: ignore[arg-type]
    return {order: root / order for order in ("stored", "shuffled")}


def test_a_loader_warns_of_classes_in_order_and_not_of_mixed_ones(packs: dict[str, Path]) -> None:
    with packer.open(packs["stored"]) as dataset:
        with pytest.warns(RuntimeWarning, match="vary.*'label'.*--order shuffled"):
            packer.Loader(dataset, BATCH, shuffle="blocks", window=2).close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            packer.Loader(dataset, BATCH, shuffle=True).close()
    with packer.open(packs["shuffled"]) as dataset, warnings.catch_warnings():
        warnings.simplefilter("error")
        packer.Loader(dataset, BATCH, shuffle="blocks", window=2).close()


def test_a_pack_without_classes_is_not_judged(tmp_path: Path) -> None:
    source_trees.write(tmp_path / "flat", {f"{number}.png": source_trees.image(number) for number in range(4)})
    convert(tmp_path / "flat", tmp_path / "flat.pack")
    with packer.open(tmp_path / "flat.pack") as dataset, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert label_field(dataset.schema) is None
        packer.Loader(dataset, 2, shuffle="blocks").close()
