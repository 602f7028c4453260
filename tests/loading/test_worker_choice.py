"""Threads or processes: what is taken follows from what threads bring."""

import time
from pathlib import Path

import numpy as np
import pytest

import packer
from packer.errors import InvalidRequest
from packer.loading.sampling import Step
from packer.loading.worker_choice import LEAST_SHARE, WorkerChoice, choose
from packer.system.parallel import usable_cores
from tests.support.conversions import packed
from tests.support.source_trees import photos, picture


def wait(step: Step) -> None:
    """As decoding does: nothing of the interpreter is needed meanwhile."""
    time.sleep(0.002 * len(step.indices))


def count(step: Step) -> int:
    """Python alone, which one thread at a time can do."""
    return sum(number * number for number in range(20_000 * len(step.indices)))


def test_threads_are_taken_where_they_do_not_hold_each_other_up() -> None:
    choice = choose(wait, 1000, 2)
    assert choice.share is not None and choice.share >= LEAST_SHARE
    assert (choice.num_workers, choice.threads) == (0, 2)
    assert str(choice) == f"auto: 2 threads wait {1 - choice.share:.0%} of the time for each other"


def test_processes_are_taken_where_they_do() -> None:
    choice = choose(count, 1000, 3)
    assert choice.share is not None and choice.share < LEAST_SHARE
    assert (choice.num_workers, choice.threads) == (3, 3)


def test_every_thread_has_samples_of_its_own_and_none_is_outside() -> None:
    made: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    choose(lambda step: made.append(step.indices), 600, 2)
    largest = max(map(len, made))
    assert 4 <= largest <= 256 and all(part.min() >= 0 and part.max() < 600 for part in made)
    parts = [set(part.tolist()) for part in made if len(part) == largest]
    assert len({tuple(sorted(part)) for part in parts}) == 2 and parts[-1].isdisjoint(parts[-2])
    made.clear()
    choose(lambda step: made.append(step.indices), 3, 2)
    assert made and all(part.max() < 3 for part in made)


@pytest.mark.parametrize(("samples", "cores"), [(0, 4), (100, 1)])
def test_nothing_is_tried_where_there_is_nothing_to_choose(samples: int, cores: int) -> None:
    def fail(_: Step) -> None:
        raise AssertionError("made")

    choice = choose(fail, samples, cores)
    assert (choice, str(choice)) == (WorkerChoice(0, cores), "auto: nothing to choose")


def test_what_goes_wrong_in_a_thread_is_raised() -> None:
    made: list[Step] = []

    def fail(step: Step) -> None:
        made.append(step)
        if len(made) > 6:
            raise ValueError("a sample that is damaged")

    with pytest.raises(ValueError, match="a sample that is damaged"):
        choose(fail, 100, 2)


def test_a_loader_says_what_it_chose_and_gives_the_same_batches(tmp_path: Path) -> None:
    packed(photos(tmp_path / "in", 40), tmp_path / "a.pack")
    dataset = packer.open(tmp_path / "a.pack")
    with packer.Loader(dataset, 8, shuffle=True, seed=3, num_workers="auto") as chosen:
        assert (chosen.num_workers == 0) != (chosen.threads == 0)
        words = f"{chosen.num_workers} workers" if chosen.num_workers else f"{chosen.threads} threads"
        assert f"5 batches, {words} (auto: " in repr(chosen)
        assert ("of the time for each other" in repr(chosen)) == (usable_cores() > 1)
        batches = [batch["image"].clone() for batch in chosen]
    with packer.Loader(dataset, 8, shuffle=True, seed=3) as plain:
        assert "auto" not in repr(plain)
        assert all(np.array_equal(batch["image"], other) for batch, other in zip(plain, batches, strict=True))


def test_pictures_of_several_shapes_are_tried_too(tmp_path: Path) -> None:
    """One by one they are batches, and a user's function makes one of any."""
    root = photos(tmp_path / "in", 8)
    (root / "class1/0001.jpg").write_bytes(picture(4, suffix=".jpg", height=30, width=32))
    packed(root, tmp_path / "a.pack")
    dataset = packer.open(tmp_path / "a.pack")
    sizes: list[int] = []
    with packer.Loader(dataset, 1, num_workers="auto") as loader:
        assert sum(len(batch["image"]) for batch in loader) == 8
    with packer.Loader(dataset, 4, num_workers="auto", collate_fn=lambda samples: sizes.append(len(samples))) as loader:
        assert len(loader) == 2
        assert bool(sizes) == (usable_cores() > 1)


@pytest.mark.parametrize("given", [{"threads": 2}, {"prefetch_bytes": 1 << 20}])
def test_auto_is_refused_beside_what_is_of_threads_alone(tmp_path: Path, given: dict[str, int]) -> None:
    packed(photos(tmp_path / "in", 4), tmp_path / "a.pack")
    with pytest.raises(InvalidRequest, match="drop threads and prefetch_bytes"):
        packer.Loader(packer.open(tmp_path / "a.pack"), 2, num_workers="auto", **given)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="or 'auto'"):
        packer.Loader(packer.open(tmp_path / "a.pack"), 2, num_workers="many")  # type: ignore[arg-type]
