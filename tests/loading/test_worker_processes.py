"""Loader with worker processes: the batches of threads, whatever happens to the processes."""

import gc
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, RandomSampler, Subset

import packer
from packer import Loader, formats
from packer.datasets.pack_dataset import PackDataset
from packer.errors import InvalidRequest
from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop
from packer.system import shared_memory
from tests.support import marked_packs, warm_python
from tests.support.child_processes import child
from tests.support.descriptors import open_files
from tests.support.sample_digests import digest_of

LONG_S = 60.0
ROOT = Path(__file__).parents[2]
RANDOM = Compose(RandomResizedCrop((40, 48), scale=(0.3, 1)), RandomHorizontalFlip())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.every_format(tmp_path_factory.mktemp("posed"), 23)


@pytest.fixture
def dataset(root: Path) -> PackDataset:
    return packer.open(root / "jpeg.pack")


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert multiprocessing.active_children() == []


def brighter(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"image": sample["image"] // 2 + 100}


class Squares(Dataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 20, 30), index * index), index


MEAN_STD = ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "geometry": {"geometry": RANDOM},
    "padded": {"ragged": "pad", "drop_last": True},
    "transform": {"transform": brighter, "geometry": RANDOM},
    "normalized": {"device": "cpu", "normalize": MEAN_STD},
    "rank": {"rank": 1, "world_size": 3},
    "stream": {"steps_per_epoch": 7, "geometry": RANDOM},
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("way", WAYS)
def test_batches_are_those_of_threads(dataset: PackDataset, way: str) -> None:
    """Three epochs: the first one's batches travel by value, the others' in buffers."""
    options = {"shuffle": True, "seed": 5, **WAYS[way]}
    threads, workers = Loader(dataset, 4, **options), Loader(dataset, 4, num_workers=2, **options)
    assert [digest_of(workers) for _ in range(3)] == [digest_of(threads) for _ in range(3)]
    assert workers.stats().worker_buffer_bytes > 0
    threads.close()


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", formats.names())
def test_of_every_format(root: Path, name: str) -> None:
    dataset = packer.open(root / f"{name}.pack")
    workers = Loader(dataset, 5, num_workers=1)
    assert [digest_of(workers) for _ in range(2)] == [digest_of(Loader(dataset, 5))] * 2


def test_of_tuples_subsets_samplers_and_other_data_sets(root: Path) -> None:
    pairs = packer.open(root / "jpeg.pack", as_tuple=("image", "label"))
    for made, options in (
        (pairs, {"sampler": RandomSampler(pairs, generator=torch.Generator())}),
        (Subset(pairs, [4, 2, 9]), {}),
        (Squares(), {"shuffle": True}),
    ):
        found = []
        for workers in (0, 2):
            if "sampler" in options:
                options["sampler"].generator.manual_seed(4)
            found.append(list(Loader(made, 2, num_workers=workers, **options)))
        for one, other in zip(*found, strict=True):
            assert type(one) is type(other) is list
            assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


# The threads of multiprocessing's queues are waited for: the interpreter's end may stop one after it has unlinked a
# semaphore and before it has told the tracker of such things, which then prints that it was leaked.
ANEW = """
import multiprocessing, sys, threading
sys.path[:0] = {paths!r}
import packer, test_worker_processes
from tests.support.sample_digests import digest_of
if __name__ == "__main__":
    multiprocessing.set_start_method({method!r})
    dataset = packer.open({pack!r})
    options = dict(transform=test_worker_processes.brighter, geometry=test_worker_processes.RANDOM, shuffle=True)
    found = [packer.Loader(dataset, 4, num_workers=workers, **options) for workers in (0, 1)]
    digests = [[digest_of(loader) for _ in range(2)] for loader in found]
    assert digests[0] == digests[1], digests
    for loader in found:
        loader.close()
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join()
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.full)])
def test_workers_may_be_started_anew(root: Path, method: str) -> None:
    given = {"paths": [str(ROOT), str(ROOT / "tests" / "loading")], "pack": str(root / "jpeg.pack"), "method": method}
    with warm_python.started(ANEW.format(**given)) as process:
        _, errors = process.communicate(timeout=LONG_S)
        assert (process.returncode, errors) == (0, "")


def test_a_state_goes_on_with_workers_and_back(dataset: PackDataset) -> None:
    options: dict[str, Any] = {"shuffle": True, "geometry": RANDOM}
    whole = [batch["image"].clone() for batch in Loader(dataset, 4, **options)]
    for first, second in ((0, 2), (2, 0), (1, 2)):
        one = Loader(dataset, 4, num_workers=first, **options)
        batches = iter(one)
        next(batches), next(batches)
        other = Loader(dataset, 4, num_workers=second, **options)
        other.load_state_dict(one.state_dict())
        left = [batch["image"] for batch in other]
        assert all(torch.equal(*pair) for pair in zip(left, whole[2:], strict=True))


def test_the_callers_generators_stay_as_they_are(dataset: PackDataset) -> None:
    before = torch.get_rng_state()
    list(Loader(dataset, 4, num_workers=1, shuffle=True))
    assert torch.equal(torch.get_rng_state(), before)


# ---- memory


def test_memory_is_used_again_and_never_while_it_is_held(dataset: PackDataset) -> None:
    loader = Loader(dataset, 4, num_workers=2, geometry=RANDOM)
    wanted = [batch["image"].clone() for epoch in range(4) for batch in Loader(dataset, 4, geometry=RANDOM, seed=0)]
    del wanted[6:]
    list(loader)
    loader.set_epoch(0)
    kept = [batch["image"] for batch in loader]
    places = set()
    for _ in range(8):
        for batch in loader:
            places.add(batch["image"].data_ptr())
            batch["image"].zero_()  # it is the caller's
    assert all(torch.equal(*pair) for pair in zip(kept, wanted, strict=True))
    assert len(places) <= 8, "two ahead for each worker, one in hand, one about to come, and some to spare"
    del kept, batch
    loader.close()
    assert not [name for name in open_files().values() if "memfd:packer" in name]


def test_a_batch_outlives_loader_and_workers(dataset: PackDataset) -> None:
    loader = Loader(dataset, 4, num_workers=1)
    list(loader)
    batch = next(iter(loader))
    del loader
    gc.collect()
    assert torch.equal(batch["image"][1], dataset[1]["image"])


def test_early_breaks_leave_nothing(dataset: PackDataset) -> None:
    loader = Loader(dataset, 2, num_workers=2, shuffle=True)
    list(loader)
    list(loader)
    before = len(open_files())
    for number in range(20):
        for at, batch in enumerate(loader):
            assert len(batch["key"]) == 2
            if at == number % 4:
                break
    assert len(open_files()) <= before + 12, "buffers: two ahead for each worker and as many that were given back"
    assert digest_of(loader) == digest_of(epoch_of(dataset, 22))
    loader.close()
    loader.close()


def epoch_of(dataset: PackDataset, epoch: int) -> Loader:
    loader = Loader(dataset, 2, shuffle=True)
    loader.set_epoch(epoch)
    return loader


@pytest.mark.one_in(2)
@pytest.mark.parametrize("hidden", ["memfd_create", "open"])
def test_without_shared_memory_batches_travel_by_value(
    dataset: PackDataset, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = digest_of(Loader(dataset, 4))
    if hidden == "memfd_create":
        monkeypatch.delattr(os, "memfd_create")
    else:
        monkeypatch.setattr(shared_memory.MappedBuffers, "get", refused)
    loader = Loader(dataset, 4, num_workers=1)
    assert [digest_of(loader) for _ in range(2)] == [wanted] * 2


def refused(*_: object) -> None:
    raise PermissionError("no entry")


# ---- what goes wrong


class Raising:
    """A transform that fails at one sample."""

    def __init__(self, make: Callable[[], BaseException]) -> None:
        self.make = make

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        if sample["key"] == "scene 0005":
            raise self.make()
        return sample


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("error", "kind"), [(ZeroDivisionError, ZeroDivisionError), (KeyError, KeyError), (StopIteration, RuntimeError)]
)
def test_an_exception_in_a_transform_is_raised_where_the_batch_is_awaited(
    dataset: PackDataset, error: Any, kind: Any
) -> None:
    loader = Loader(dataset, 2, num_workers=2, transform=Raising(error))
    found = []
    with pytest.raises(kind, match=f"(?s){error.__name__}"):
        found.extend(batch["key"] for batch in loader)
    assert len(found) == 2


def test_a_killed_worker_is_an_error_and_the_next_pass_works(dataset: PackDataset) -> None:
    loader = Loader(dataset, 2, num_workers=2)
    batches = iter(loader)
    next(batches)
    for process in multiprocessing.active_children():
        os.kill(process.pid or 0, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="worker"):
        list(batches)
    assert digest_of(loader) == digest_of(Loader(dataset, 2))


def test_an_interrupt_between_a_batch_and_its_buffer_mixes_nothing_up(
    dataset: PackDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next batch would be read from the buffer of the one that was lost."""
    loader = Loader(dataset, 4, num_workers=2)
    wanted = [digest_of(loader) for _ in range(2)]
    batches = iter(loader)
    next(batches)
    held = loader._worker_pool._tasks.held  # type: ignore[union-attr]
    with monkeypatch.context() as patch:
        patch.setattr(loader._worker_pool._tasks, "held", Interrupted(held))  # type: ignore[union-attr]
        with pytest.raises(KeyboardInterrupt):
            next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    loader.close()
    assert digest_of(loader) == wanted[0]


class Interrupted(deque[Any]):
    """Ctrl-C comes to it first."""

    def popleft(self) -> None:
        raise KeyboardInterrupt


def test_one_pass_at_a_time(dataset: PackDataset) -> None:
    loader = Loader(dataset, 2, num_workers=1)
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    with pytest.raises(InvalidRequest, match="one pass"):
        next(first)
    assert next(second)["key"] == ["scene 0002", "scene 0003"]
    loader.close()
    with pytest.raises(StopIteration):
        next(second)


def test_a_forked_child_begins_its_own(dataset: PackDataset) -> None:
    loader = Loader(dataset, 4, num_workers=1)
    batches = iter(loader)
    next(batches)
    outcome = child(lambda: next(batches))
    assert (outcome.kind, outcome.error) == ("error", "InvalidRequest"), outcome
    outcome = child(lambda: [[len(batch["key"]) for batch in loader], loader.close()])
    assert outcome.value == [[4, 4, 4, 4, 4, 3], None], outcome
    assert sum(len(batch["key"]) for batch in batches) == 19


def test_it_says_what_makes_the_batches(dataset: PackDataset) -> None:
    assert "6 batches, 2 workers" in repr(Loader(dataset, 4, num_workers=2))
