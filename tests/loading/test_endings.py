"""Loader: however it ends, what went wrong is told, and no thread, file or memory is left."""

import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import packer
from packer import Loader, formats
from packer.datasets.pack_dataset import PackDataset
from packer.errors import CorruptRecord
from packer.geometry import RandomResizedCrop
from packer.loading import BackgroundIterator, CUDAPrefetcher
from tests.support import built_packs, marked_packs, warm_python
from tests.support.descriptors import open_files
from tests.support.waiting import LONG_S, packer_threads, wait_until

COUNT = 40
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.pack(tmp_path_factory.mktemp("posed") / "posed.pack", COUNT, image="jpeg:90")


@pytest.fixture
def dataset(path: Path) -> PackDataset:
    return packer.open(path)


def wait_until_no_thread_is_left() -> None:
    """For the cases where nobody waits for them. A collection does nothing while another thread collects."""
    wait_until(lambda: gc.collect() < 0 or not packer_threads())


# ---- early ends


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", [{}, {"transform": dict}, {"threads": 4, "geometry": RandomResizedCrop(24)}])
def test_forty_early_breaks_leave_nothing(dataset: PackDataset, options: dict[str, Any]) -> None:
    loader = Loader(dataset, 4, **options)
    list(loader)  # every part is open now
    gc.collect()
    before = open_files()
    for number in range(40):
        for at, batch in enumerate(loader):
            assert len(batch["key"]) == 4
            if at == number % 3:
                break
        assert not packer_threads()
    del batch
    assert open_files() == before
    assert loader.stats().held_buffers == 0, "memory of batches is still held"


def test_an_iterator_that_nobody_holds_frees_its_threads(dataset: PackDataset) -> None:
    loader = Loader(dataset, 4)
    batches = iter(loader)
    next(batches)
    assert packer_threads()
    del batches
    assert not packer_threads()
    ring: list[Any] = [iter(loader)]
    ring.append(ring)  # only the garbage collector finds it
    next(ring[0])
    del ring
    gc.collect()
    assert not packer_threads()
    closed: Any = iter(loader)
    next(closed)
    closed.close()
    assert not packer_threads() and next(closed, None) is None


AHEAD: dict[str, Callable[[PackDataset], Iterable[Any]]] = {
    "Loader": lambda dataset: Loader(dataset, 2, threads=3),
    "BackgroundIterator": lambda _: BackgroundIterator(count()),
    "CUDAPrefetcher": lambda _: CUDAPrefetcher(count(), "cpu"),
}


@pytest.mark.parametrize("ahead", AHEAD)
def test_the_garbage_collector_may_end_a_pass_anywhere(dataset: PackDataset, ahead: str) -> None:
    """A finalizer that waits for a lock of its own thread would hang here, sooner or later."""
    threshold = gc.get_threshold()
    gc.set_threshold(1, 10, 1000)  # a collection at nearly every object, also inside of the engine
    try:
        for number in range(30):
            ring: list[Any] = [iter(AHEAD[ahead](dataset))]
            ring.append(ring)
            if number % 2:
                next(ring[0])
            del ring
    finally:
        gc.set_threshold(*threshold)
    wait_until_no_thread_is_left()


def test_threads_end_though_the_lock_that_they_need_to_end_is_held(dataset: PackDataset) -> None:
    """As in a collection inside of `threading.enumerate`: what waited for each thread to be gone took 10 s for each."""
    batches = iter(Loader(dataset, 2, threads=12))
    next(batches)
    begun = time.monotonic()
    with threading._active_limbo_lock:  # type: ignore[attr-defined]
        del batches
    assert time.monotonic() - begun < LONG_S, "it hung"
    wait_until_no_thread_is_left()


def test_a_kept_batch_stays_what_it_was(dataset: PackDataset) -> None:
    loader = Loader(dataset, 4, threads=2)
    kept = [batch["image"][1] for epoch in range(3) for batch in loader]
    assert all(torch.equal(image, dataset[4 * (at % 10) + 1]["image"]) for at, image in enumerate(kept))
    loose = [batch["mask"].numpy()[2] for batch in loader]
    del loader
    gc.collect()
    assert all((mask == dataset[4 * at + 2]["mask"].numpy()).all() for at, mask in enumerate(loose))


def test_memory_is_used_again(path: Path) -> None:
    loader = Loader(packer.open(path, fields=("image",)), 4, threads=2, prefetch_bytes=0)
    places = {batch["image"].data_ptr() for _ in range(20) for batch in loader}
    assert len(places) <= 5  # two ahead, one in hand, one about to come, and one to spare


class _Large(Dataset[Any]):
    """Samples of 12 MiB that count how many of them were made."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        self.made += 1
        return torch.empty(12 << 20, dtype=torch.uint8)


def test_large_batches_are_made_no_more_than_two_ahead() -> None:
    dataset = _Large()
    with Loader(dataset, 2, threads=1) as loader:
        batches = iter(loader)
        next(batches)
        until = time.monotonic() + LONG_S
        while dataset.made < 6 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2)  # for one that should not be made
        assert dataset.made == 6, "three batches: the one in hand, and two of 24 MiB that 64 MiB have room for"


# ---- errors


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", formats.names())
@pytest.mark.parametrize(
    "options",
    [{}, {"transform": dict}, {"threads": 4, "geometry": RandomResizedCrop(24)}, {"num_workers": 2}],
    ids=["threads", "transform", "geometry", "workers"],
)
def test_a_damaged_value_names_pack_key_and_field(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    folder = marked_packs.pack(tmp_path / "damaged.pack", 12, format=name, image="png", parts=1)
    (part,) = folder.glob("part-*")
    value = built_packs.values(folder)[7]["image"]
    files = {path: path.read_bytes() for path in (part, *part.rglob("*")) if path.is_file()}  # bmp: a part is a folder
    file = next(path for path, data in files.items() if value in data)
    built_packs.flip(file, files[file].find(value) + len(value) // 2)
    found = []
    loader = Loader(packer.open(folder), 2, **options)
    with pytest.raises(CorruptRecord, match=rf"{part.name}.*'scene 0007'.*'image'") as caught:
        for batch in loader:
            found += batch["key"]
    assert "Traceback" not in str(caught.value)
    assert found == [f"scene {number:04d}" for number in range(6)], "the batches before it are whole"
    assert not packer_threads()
    assert next(iter(loader))["key"] == ["scene 0000", "scene 0001"], "another pass begins"
    loader.close()


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("steps", [None, 5])
def test_an_exception_in_a_transform_is_raised_where_the_batch_is_awaited(
    dataset: PackDataset, kind: type[BaseException], steps: int | None
) -> None:
    def transform(sample: dict[str, Any]) -> Any:
        if sample["key"] == "scene 0009":
            raise kind("no")
        return sample["label"]

    loader = Loader(dataset, 4, transform=transform, threads=2, steps_per_epoch=steps)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(kind, match="no") as caught:
        next(batches)
    assert not packer_threads()
    assert "in transform" in "".join(traceback.format_exception(caught.value)), "the place in the transform is lost"
    if kind is ZeroDivisionError:
        notes = caught.value.__notes__  # type: ignore[attr-defined]
        assert notes == [f"in sample 9 of {dataset.path}, key 'scene 0009'"]
    with pytest.raises(kind):  # it does not go away by asking again
        list(loader)


def test_an_exception_in_another_data_set_names_the_sample() -> None:
    class Broken(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> int:
            return 1 // (index - 5)

        def __repr__(self) -> str:
            return "Broken()"

    with pytest.raises(ZeroDivisionError) as caught:
        list(Loader(Broken(), 2))
    assert caught.value.__notes__ == ["in sample 5 of Broken()"]  # type: ignore[attr-defined]


# ---- the end of the process

SCRIPT = """
import sys, time
sys.path[:0] = {paths!r}
import packer
from packer.loading import BackgroundIterator, CUDAPrefetcher
dataset = packer.open({pack!r})
def slow(sample):
    time.sleep(0.005)
    return sample
class Endless:
    def __iter__(self):
        while True:
            time.sleep(0.02)
            yield 1
loader = {loader}
batches = iter(loader)
next(batches)
print("ready", flush=True)
{end}
"""
WAYS = {
    "decoded": "packer.Loader(dataset, 4, threads=3)",
    "stream": "packer.Loader(dataset, 4, threads=3, steps_per_epoch=1000)",
    "transform": "packer.Loader(dataset, 4, threads=3, transform=slow)",
    "workers": "packer.Loader(dataset, 4, num_workers=2)",
    "background": "BackgroundIterator(Endless())",
    "prefetcher": "CUDAPrefetcher(Endless(), 'cpu')",
}
ENDS = ("", "sys.exit(0)", "del loader", "keep = [batches]; keep.append(keep)")
FULL = pytest.mark.full  # a process takes seconds to import torch


def in_full(values: tuple[str, str]) -> Any:
    """A case of the longer sweep."""
    return pytest.param(*values, marks=FULL)


def started(path: Path, way: str, end: str) -> AbstractContextManager[warm_python.Program]:
    """A program in the middle of an epoch."""
    return warm_python.started(SCRIPT.format(paths=[str(ROOT)], pack=str(path), loader=WAYS[way], end=end))


@pytest.mark.parametrize(
    "way", ["decoded", "transform", "workers", "background", *(pytest.param(way, marks=FULL) for way in WAYS)]
)
def test_ctrl_c_ends_a_program_in_the_middle_of_an_epoch(path: Path, way: str) -> None:
    end = "while True:\n    for batch in loader:\n        time.sleep(0.001)\n"
    with started(path, way, end) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LONG_S)
    assert process.returncode == -signal.SIGINT, errors
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert errors.count("Traceback") == 1, errors


@pytest.mark.parametrize(
    ("way", "end"),
    [("stream", ""), ("transform", ENDS[-1]), ("workers", ""), ("prefetcher", ""), *map(in_full, product(WAYS, ENDS))],
)
def test_a_program_may_end_in_the_middle_of_an_epoch(path: Path, way: str, end: str) -> None:
    with started(path, way, end) as process:
        _, errors = process.communicate(timeout=LONG_S)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.full
def test_memory_does_not_grow_over_epochs(dataset: PackDataset) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    loader = Loader(dataset, 4, threads=2, shuffle=True, geometry=RandomResizedCrop(200))
    for number in range(200):
        for at, _ in enumerate(loader):
            if at == number % 11:
                break
        if number == 50:
            gc.collect()
            before = resident()
    gc.collect()
    assert resident() - before < 30 << 20
    del _
    assert loader.stats().held_buffers == 0


# ---- close and with


@pytest.mark.parametrize("options", [{"threads": 2}, {"num_workers": 1}, {"threads": 2, "steps_per_epoch": 5}], ids=str)
def test_closing_a_loader_leaves_no_thread_process_or_file(dataset: PackDataset, options: dict[str, Any]) -> None:
    list(Loader(dataset, 4))  # every part is open now
    gc.collect()
    before = open_files()
    with Loader(dataset, 4, **options) as loader:
        batches = iter(loader)
        assert len(next(batches)["key"]) == 4
    assert not packer_threads() and not multiprocessing.active_children()
    assert next(batches, None) is None
    del batches
    # a thread of multiprocessing's closes the queue of a worker that has ended
    wait_until(lambda: gc.collect() < 0 or open_files() == before)
    loader.close()
    assert len(next(iter(loader))["key"]) == 4, "a closed loader goes on with the next iter"
    loader.close()


def test_closing_a_data_set_closes_its_files(path: Path) -> None:
    gc.collect()
    before = open_files()
    with packer.open(path) as dataset:
        first = dataset[0]["image"].clone()
        assert open_files() != before
    assert open_files() == before
    dataset.close()
    assert torch.equal(dataset[0]["image"], first), "reading on opens them again"
    dataset.close()
    assert open_files() == before


def test_a_data_set_that_is_closed_under_a_running_loader_does_it_no_harm(path: Path) -> None:
    wanted = [batch["image"].clone() for batch in Loader(packer.open(path), 4)]
    dataset = packer.open(path)
    for batch, expected in zip(Loader(dataset, 4, threads=2), wanted, strict=True):
        dataset.close()
        assert torch.equal(batch["image"], expected)
