"""Batches that other processes hold: nobody writes over them, whatever made them and however they were got."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import packer
from packer import Loader
from packer.geometry import RandomResizedCrop
from packer.grasp import GraspDataset
from tests.support import grasp_folders, marked_packs
from tests.support.batch_holders import (
    HOLDERS,
    Holder,
    digest,
    forked,
    memory_files,
    part_of,
    start_method,
    with_a_part,
)
from tests.support.child_processes import child
from tests.support.descriptors import open_files

ROUNDS = 3


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = marked_packs.every_format(tmp_path_factory.mktemp("held"), 24)
    grasp_folders.packs(folder)
    return folder


DATA: dict[str, Callable[[Path], Dataset[Any]]] = {
    "raw": lambda root: packer.open(root / "lmdb.pack"),
    "jpeg": lambda root: packer.open(root / "jpeg.pack"),
    "files": lambda root: packer.open(root / "bmp.pack"),
    "crops": lambda root: packer.open(root / "jpeg.pack", geometry=RandomResizedCrop(48)),
    "numpy": lambda root: packer.open(root / "lmdb.pack", fields=("image", "depth", "mask", "label"), output="numpy"),
    "tuples": lambda root: packer.open(root / "hdf5.pack", as_tuple=("image", "mask", "label")),
    "grasps": lambda root: GraspDataset(root / "cornell.pack", 48, seed=3),
}


def stock(method: str, **options: Any) -> Callable[[Dataset[Any]], Iterable[Any]]:
    """torch's DataLoader. What differs in length is left as it is, as collate functions of detection do."""

    def made(dataset: Dataset[Any]) -> Iterable[Any]:
        how: dict[str, Any] = {"shuffle": True, "num_workers": 2, "multiprocessing_context": method, **options}
        return DataLoader(dataset, 2, **how)

    return made


def loader(**options: Any) -> Callable[[Dataset[Any]], Iterable[Any]]:
    return lambda dataset: Loader(dataset, 2, shuffle=True, **options)


ENGINES: dict[str, tuple[str, Callable[[Dataset[Any]], Iterable[Any]]]] = {
    "threads": ("fork", loader(threads=2)),
    "threads, normalized": ("fork", loader(threads=2, normalize=((0.5,) * 3, (0.2,) * 3))),
    "one worker": ("fork", loader(num_workers=1)),
    "workers": ("fork", loader(num_workers=2)),
    "a stream of workers": ("fork", loader(num_workers=2, steps_per_epoch=5)),
    "stock": ("fork", stock("fork")),
    "stock, persistent": ("fork", stock("fork", persistent_workers=True)),
    "workers, spawned": ("spawn", loader(num_workers=2)),
    "workers, forkserver": ("forkserver", loader(num_workers=2)),
    "stock, spawned": ("spawn", stock("spawn", persistent_workers=True)),
    "stock, spawned anew": ("spawn", stock("spawn")),
    "stock, forkserver": ("forkserver", stock("forkserver", persistent_workers=True)),
}
NEVER = {("threads, normalized", "grasps"), ("threads, normalized", "numpy")}  # floats already; no image for torch
SOME_DATA = ("jpeg", "grasps")  # for processes that take seconds to start
STARTED_ANEW = ("spawned Process", "Queue", "Pipe")
ALWAYS = {
    ("threads", "os.fork", "raw"),
    ("workers", "os.fork", "raw"),
    ("workers", "Process", "jpeg"),
    ("workers", "a child of a child", "crops"),
    ("one worker", "a part", "grasps"),
    ("workers", "Queue", "jpeg"),
    ("a stream of workers", "os.fork", "files"),
    ("stock", "os.fork", "raw"),
    ("stock, persistent", "Process", "tuples"),
    ("stock, persistent", "a part", "grasps"),
}


def cases() -> Iterator[Any]:
    for engine, (method, _) in ENGINES.items():
        for holder in HOLDERS:
            for data in DATA if method == "fork" and holder not in STARTED_ANEW else SOME_DATA:
                marks = () if (engine, holder, data) in ALWAYS else (pytest.mark.full,)
                if (engine, data) not in NEVER:
                    yield pytest.param(engine, holder, data, marks=marks, id=f"{engine}-{holder}-{data}")


@pytest.mark.one_in(10)
@pytest.mark.parametrize(("engine", "holder", "data"), list(cases()))
def test_a_batch_that_another_process_holds_stays_as_it_is(engine: str, holder: str, data: str, root: Path) -> None:
    method, make = ENGINES[engine]
    with start_method(method):
        batches = make(DATA[data](root))
        held = list(handed_over(batches, HOLDERS[holder]))
        for _ in range(ROUNDS):
            for batch in batches:
                del batch
        found = [(wanted, each.first, each.again()) for wanted, each in held]
        if isinstance(batches, Loader):
            batches.close()
    assert [(first, again) for _, first, again in found] == [(wanted, wanted) for wanted, _, _ in found]


def handed_over(batches: Iterable[Any], hold: Callable[[Any], Holder]) -> Iterator[tuple[str, Holder]]:
    """The first batches of the second pass, each with a process that holds it and what it was; nobody here does."""
    for batch in batches:
        del batch
    for at, batch in enumerate(batches):
        if at < 2:
            yield digest(part_of(batch) if hold is with_a_part else batch), hold(batch)
        del batch


def of_images(root: Path, **options: Any) -> Any:
    """A data set of one tensor, the largest, so that a batch is a buffer."""
    return packer.open(root / "lmdb.pack", fields=("image",), **options)


def workers() -> list[int]:
    return [process.pid or 0 for process in multiprocessing.active_children()]


MAKERS: dict[str, Callable[[Dataset[Any]], Iterable[Any]]] = {
    "workers": loader(num_workers=2),
    "stock": stock("fork", persistent_workers=True),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("engine", MAKERS)
def test_a_loop_that_forks_again_and_again_needs_no_more_memory(engine: str, root: Path) -> None:
    """A saver every three batches, each alive until the next one has begun.

    How much is in the making at once differs by a batch or two with the timing; a file lost with every saver would be
    a dozen more in the second half.
    """
    batches = MAKERS[engine](of_images(root))
    found, saver, wanted = [], None, ""
    for _ in range(6):
        for at, batch in enumerate(batches):
            if at % 3:
                continue
            if saver is not None:
                assert saver.again() == wanted
            saver, wanted = forked(batch["image"]), digest(batch["image"])
            found.append(len(memory_files(os.getpid(), *workers())))
    assert saver is not None and saver.again() == wanted
    half = len(found) // 2
    assert half >= 12 and max(found) <= 18, found
    assert max(found[half:]) <= max(found[:half]) + 2, found
    if isinstance(batches, Loader):
        batches.close()


def test_a_child_that_lives_on_costs_the_batches_that_it_was_given(root: Path) -> None:
    """And one that had come back since the last one was begun; what was free or in the making goes on being used."""
    open_before = open_files()
    batches = Loader(of_images(root), 2, num_workers=2, shuffle=True)
    found, savers = [], list[Holder]()
    for epoch in range(6):
        for at, batch in enumerate(batches):
            if at == 5 and epoch >= 3:
                savers.append(forked(batch["image"]))
            del batch
        found.append(memory_files(os.getpid()))
    before, after = found[2], found[-1]
    assert len(after) <= len(before), "of the process that trains"
    assert len(after - before) <= 2 * len(savers)
    for saver in savers:
        assert saver.first == saver.again()
    batches.close()
    still_open = {number: name for number, name in open_files().items() if number not in open_before}
    assert not [name for name in still_open.values() if "memfd:packer" in name]


def test_a_child_makes_batches_of_its_own_beside_its_parent(root: Path) -> None:
    """With threads and with workers: neither writes into what the other has."""
    wanted = []
    for epoch in (3, 4):
        alone = Loader(of_images(root), 2, shuffle=True)
        alone.set_epoch(epoch)
        wanted += [digest(batch) for batch in alone]
    for options in ({"threads": 2}, {"num_workers": 1}):
        batches = Loader(of_images(root), 2, shuffle=True, **options)
        for _ in range(2):
            for batch in batches:
                del batch
        passing = iter(batches)
        first = next(passing)
        before = digest(first)

        def in_the_child(batches: Loader = batches, first: Any = first) -> list[str]:
            found = [digest(batch) for _ in range(2) for batch in batches]
            batches.close()
            return [*found, digest(first)]

        outcome = child(in_the_child)
        assert outcome.value == [*wanted, before], outcome
        assert digest(first) == before
        assert len(list(passing)) == len(batches) - 1
        del passing, first, in_the_child
        batches.close()


def test_a_batch_that_torch_shares_is_a_copy(root: Path) -> None:
    batches = Loader(of_images(root), 2, num_workers=1, shuffle=True)
    for batch in batches:
        del batch
    kept = [batch["image"].share_memory_() for batch in batches]
    wanted = [digest(each) for each in kept]
    assert all(each.is_shared() for each in kept)
    for _ in range(3):
        for batch in batches:
            batch["image"].zero_()
            del batch
    assert [digest(each) for each in kept] == wanted
    batches.close()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("engine", ["workers", "stock"])
def test_with_files_as_torchs_way_of_sharing(engine: str, root: Path) -> None:
    """torch.multiprocessing.set_sharing_strategy("file_system")."""
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        batches = MAKERS[engine](of_images(root))
        held = list(handed_over(batches, forked))
        for batch in batches:
            del batch
        assert [(each.first, each.again()) for _, each in held] == [(wanted, wanted) for wanted, _ in held]
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
    if isinstance(batches, Loader):
        batches.close()
