"""Shared memory: used again when nobody holds it, and never before."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from packer.datasets.pack_dataset import LMDBDataset
from packer.system import shared_memory
from packer.system.shared_memory import SharedMemory
from tests.support.child_processes import child, forked
from tests.support.conversions import packed
from tests.support.sample_digests import digest_of
from tests.support.source_trees import photos


def taken(pool: SharedMemory, size: int, value: int) -> torch.Tensor:
    """A tensor over a buffer, filled."""
    storage, memory = pool.take(size)
    memory[:] = value
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def test_what_is_written_through_the_buffer_is_in_the_tensor() -> None:
    tensor = taken(SharedMemory(), 5000, 7)
    assert tensor.is_shared()
    assert (tensor.numel(), int(tensor.min()), int(tensor.max())) == (5000, 7, 7)


def test_a_buffer_is_used_again_only_when_its_tensor_is_gone() -> None:
    pool = SharedMemory()
    first = taken(pool, 5000, 1)
    second = taken(pool, 4000, 2)
    assert len(pool.stats()) == 2
    view = first[10:20]
    del first  # a view holds the memory as well
    third = taken(pool, 5000, 3)
    assert len(pool.stats()) == 3
    del view
    fourth = taken(pool, 5000, 4)
    assert len(pool.stats()) == 3
    assert [int(tensor[0]) for tensor in (second, third, fourth)] == [2, 3, 4]


def test_a_descriptor_or_a_mapping_anywhere_holds_a_buffer() -> None:
    pool = SharedMemory()
    tensor = taken(pool, 5000, 1)
    descriptor, size = tensor.untyped_storage()._share_fd_cpu_()
    copy = os.dup(descriptor)  # as it lies in a socket on its way to the trainer
    del tensor
    assert not pool.stats()[0]
    received = torch.UntypedStorage._new_shared_fd_cpu(copy, size)  # as the trainer maps it
    os.close(copy)
    assert not pool.stats()[0]
    assert received[0] == 1
    del received
    assert pool.stats()[0]


def test_the_number_of_buffers_is_bounded_and_unfit_ones_go() -> None:
    pool = SharedMemory()
    held = [taken(pool, 5000, at) for at in range(20)]
    assert len(pool.stats()) == shared_memory._MOST_BUFFERS
    assert [int(tensor[0]) for tensor in held] == list(range(20))
    held.clear()
    large = taken(pool, 1 << 20, 9)
    assert len(pool.stats()) == shared_memory._MOST_BUFFERS
    assert int(large.sum()) == 9 << 20


def test_descriptors_are_given_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    pool = SharedMemory()
    held = [taken(pool, 5000, at) for at in range(12)]
    held.clear()
    del pool
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_leases_or_memfd_memory_is_never_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_leases(*_: Any) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", no_leases)
    pool = SharedMemory()
    for value in range(10):
        assert int(taken(pool, 5000, value)[0]) == value
    assert len(pool.stats()) == shared_memory._MOST_BUFFERS
    monkeypatch.delattr(os, "memfd_create")
    tensor = taken(SharedMemory(), 5000, 5)
    assert tensor.is_shared()
    assert int(tensor.sum()) == 25000


def test_a_forked_child_holds_a_buffer_and_has_buffers_of_its_own() -> None:
    """The kernel counts open descriptions, which a fork shares: while a child has the tensor, there is one."""
    pool = SharedMemory()
    tensor = taken(pool, 5000, 7)
    with holding(tensor) as digests:
        del tensor
        assert pool.stats() == [False]
        assert int(taken(pool, 5000, 9)[0]) == 9
        assert len(pool.stats()) == 2 and not pool.stats()[0]
        assert digests() == [7, 7]
    assert pool.stats()[0]
    outcome = child(lambda: [int(taken(pool, 5000, 3)[0]), len(pool.stats())])
    assert outcome.value == [3, 1], outcome


def test_buffers_that_are_held_for_ever_do_not_stop_others_from_being_used_again() -> None:
    pool = SharedMemory()
    kept = [taken(pool, 5000, at) for at in range(shared_memory._MOST_BUFFERS)]
    made = len({taken(pool, 5000, 50).untyped_storage().data_ptr() for _ in range(5)})
    before = pool.made
    for _ in range(5):
        taken(pool, 5000, 60)
    assert pool.made == before and made <= 5
    assert [int(tensor[0]) for tensor in kept] == list(range(shared_memory._MOST_BUFFERS))


@contextmanager
def holding(tensor: torch.Tensor) -> Iterator[Callable[[], list[int]]]:
    """A forked child with the tensor. What is given asks it for the least and the largest value."""
    holding, writing = os.pipe()
    answers, answering = os.pipe()

    def answer() -> None:
        while os.read(holding, 1) == b"?":
            os.write(answering, bytes([int(tensor.min()), int(tensor.max())]))

    pid = forked(answer)

    def ask() -> list[int]:
        os.write(writing, b"?")
        return list(os.read(answers, 2))

    try:
        yield ask
    finally:
        os.write(writing, b".")
        os.waitpid(pid, 0)
        for descriptor in (holding, writing, answers, answering):
            os.close(descriptor)


def test_a_worker_lets_go_of_a_buffer_that_its_owner_has_closed() -> None:
    """When it maps another one: a mapping would keep memory that is never used again."""
    held = [shared_memory.shared(1 << 12, number) for number in range(3)]
    mappings = shared_memory.MappedBuffers()
    for each in held:
        mappings.get(each.address)
    del held[:2], each
    last = shared_memory.shared(1 << 12, 3)  # its descriptor is one of those that were closed
    mappings.get(last.address)
    assert mappings.numbers() == [2, 3]


def test_batches_that_a_trainer_keeps_are_never_written_over(tmp_path: Path) -> None:
    packed(photos(tmp_path / "in", 60), tmp_path / "out.pack")
    want = digest_of(DataLoader(LMDBDataset(tmp_path / "out.pack"), batch_size=3))
    loader = DataLoader(
        LMDBDataset(tmp_path / "out.pack"),
        batch_size=3,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    kept = [list(loader) for _ in range(3)]  # 60 batches held at once
    passing = [digest_of(loader) for _ in range(3)]  # each batch dropped before the next
    assert [digest_of(batches) for batches in kept] == [want] * 3
    assert passing == [want] * 3


def test_a_kept_row_outlives_its_batch(tmp_path: Path) -> None:
    packed(photos(tmp_path / "in", 40), tmp_path / "out.pack")
    loader = DataLoader(LMDBDataset(tmp_path / "out.pack"), batch_size=2, num_workers=1, multiprocessing_context="fork")
    rows = [batch["image"][1] for batch in loader]
    want = [sample["image"] for sample in LMDBDataset(tmp_path / "out.pack")][1::2]
    assert all(np.array_equal(row, image) for row, image in zip(rows, want, strict=True))
