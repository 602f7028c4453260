"""Memory of batches: used again when nobody holds a tensor over it, and never before."""

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from packer.datasets.batch_decoder import take_from
from packer.system.buffer_pool import BufferPool, PooledBuffer, pageable

SIZE = 4 * 6 * 5 * 3

WAYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda tensor: tensor,
    "slice": lambda tensor: tensor[8:16],
    "row": lambda tensor: tensor.view(4, 90)[2],
    "one value": lambda tensor: tensor[3],
    "typed view": lambda tensor: tensor.view(torch.float32),
    "channels first": lambda tensor: tensor.view(4, 6, 5, 3).movedim(-1, -3),
    "numpy": lambda tensor: tensor.numpy(),
    "slice of numpy": lambda tensor: tensor[4:].numpy()[2:9],
    "typed numpy": lambda tensor: tensor.numpy().view(np.float32)[:3],
    "memoryview": lambda tensor: memoryview(tensor.numpy())[1:],
    "storage": lambda tensor: tensor.untyped_storage(),
    "detached": lambda tensor: tensor.detach(),
    "unbound": lambda tensor: tensor.view(4, 90).unbind()[1],
    "dlpack": lambda tensor: torch.from_dlpack(tensor),
    "numpy and back": lambda tensor: torch.from_numpy(tensor.numpy())[5:],
}


def address(buffers: BufferPool[PooledBuffer], size: int = SIZE) -> int:
    """Where the memory lies that would be given next."""
    tensor, memory = take_from(buffers, size)
    assert tensor.data_ptr() == memory.ctypes.data
    return tensor.data_ptr()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("way", WAYS)
def test_memory_is_used_again_only_after_the_last_view_is_gone(way: str) -> None:
    buffers = BufferPool(8, new=pageable)
    tensor, memory = take_from(buffers, SIZE)
    memory[:] = 7
    place = tensor.data_ptr()
    held = WAYS[way](tensor)
    del tensor, memory
    gc.collect()
    assert len(buffers) == 1
    other, filled = take_from(buffers, SIZE)
    filled[:] = 9
    assert other.data_ptr() != place, "the memory is still held"
    assert len(buffers) == 2
    del held
    assert len(buffers) == 1
    assert address(buffers) == place


def test_what_was_written_is_in_the_tensor() -> None:
    tensor, memory = take_from(BufferPool(8, new=pageable), 10)
    memory[:] = np.arange(10)
    assert tensor.tolist() == list(range(10))
    assert tensor.dtype == torch.uint8 and tensor.is_contiguous()


def test_a_consumer_that_keeps_nothing_needs_one_buffer() -> None:
    buffers = BufferPool(8, new=pageable)
    assert len({address(buffers) for _ in range(50)}) == 1
    assert len(buffers) == 0


def test_a_consumer_that_keeps_everything_gets_memory_of_its_own() -> None:
    buffers = BufferPool(8, new=pageable)
    kept = [take_from(buffers, SIZE)[0] for _ in range(50)]
    for number, tensor in enumerate(kept):
        tensor.fill_(number)
    assert [int(tensor[0]) for tensor in kept] == list(range(50))
    assert len(buffers) == 50


def test_no_more_is_kept_than_was_allowed() -> None:
    buffers = BufferPool(3, new=pageable)
    kept = [take_from(buffers, SIZE) for _ in range(10)]
    watched = [weakref.ref(memory.base) for _, memory in kept]
    del kept
    assert len(buffers) == 0
    assert sum(reference() is not None for reference in watched) == 3


def test_a_buffer_serves_smaller_batches_but_not_much_smaller_ones() -> None:
    buffers = BufferPool(8, new=pageable)
    place = address(buffers, 1000)
    assert address(buffers, 900) == place
    assert address(buffers, 250) == place
    assert address(buffers, 200) != place
    assert address(buffers, 1001) != place
    assert take_from(buffers, 0)[0].numel() == 0


def test_tensors_outlive_the_buffers() -> None:
    buffers = BufferPool(8, new=pageable)
    tensor, memory = take_from(buffers, SIZE)
    memory[:] = 5
    del buffers, memory
    gc.collect()
    assert bool((tensor == 5).all())


def test_many_threads_never_share_a_buffer() -> None:
    buffers = BufferPool(4, new=pageable)
    wrong = []

    def work(mark: int) -> None:
        for _ in range(300):
            tensor, memory = take_from(buffers, SIZE)
            memory[:] = mark
            held = tensor[5:9]
            del tensor, memory
            if held.tolist() != [mark] * 4:
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(buffers) == 0


class Rings(RuleBasedStateMachine):
    """Any taking, viewing and letting go: what is held keeps its content."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = BufferPool(4, new=pageable)
        self.held: list[tuple[torch.Tensor, int]] = []
        self.count = 0

    @rule(rows=st.integers(1, 12))
    def take(self, rows: int) -> None:
        self.count = (self.count + 1) % 251
        tensor, memory = take_from(self.buffers, 12 * rows)
        memory[:] = self.count
        self.held.append((tensor, self.count))

    @rule(which=st.integers(0, 9))
    def view(self, which: int) -> None:
        if which < len(self.held):
            tensor, mark = self.held[which]
            self.held.append((tensor[len(tensor) // 2 :], mark))

    @rule(which=st.integers(0, 9))
    def let_go(self, which: int) -> None:
        if which < len(self.held):
            del self.held[which]

    @invariant()
    def nothing_held_was_overwritten(self) -> None:
        assert all(bool((tensor == mark).all()) for tensor, mark in self.held)
        assert len(self.buffers) == len({tensor.untyped_storage().data_ptr() for tensor, _ in self.held})


Rings.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestRings = Rings.TestCase
