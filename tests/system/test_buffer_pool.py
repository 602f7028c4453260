"""Memory that is used again when nobody holds anything over it, and never before."""

import gc
import os
import sys
import threading
from collections.abc import Callable
from itertools import count
from multiprocessing import Pipe
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from packer.datasets.batch_decoder import take_from
from packer.system import buffer_pool as packer_buffers
from packer.system.buffer_pool import BufferPool, pageable
from packer.system.shared_memory import SharedBuffer, shared
from tests.support.batch_holders import memory_files
from tests.support.child_processes import child, forked


def array(view: memoryview) -> npt.NDArray[np.uint8]:
    """The bytes as NumPy has them."""
    return np.frombuffer(view, np.uint8)


def tensor(view: memoryview) -> torch.Tensor:
    """The bytes as a batch has them, see `take_from`."""
    return torch.from_numpy(array(view))


HOLDS: dict[str, Callable[[memoryview], Any]] = {
    "itself": lambda view: view,
    "a slice": lambda view: view[3:5],
    "a slice of a slice": lambda view: view[3:8][1:2].toreadonly(),
    "an array": array,
    "a slice of an array": lambda view: array(view)[3:5],
    "a slice of a slice of an array": lambda view: array(view)[3:8][1:][:1],
    "an array of another form": lambda view: array(view).reshape(2, 5).T,
    "an array of another type": lambda view: np.frombuffer(view, np.int16)[1:],
    "a view of it": lambda view: array(array(view).data[2:]).view(np.int8),
    "a tensor": tensor,
    "a slice of a tensor": lambda view: tensor(view)[3:5],
    "one value of a tensor": lambda view: tensor(view)[3],
    "a row of a tensor": lambda view: tensor(view).view(2, 5)[1],
    "an unbound row": lambda view: tensor(view).view(2, 5).unbind()[1],
    "channels first": lambda view: tensor(view).view(2, 5, 1).movedim(-1, -3),
    "a tensor of another type": lambda view: tensor(view).view(torch.int16),
    "a detached tensor": lambda view: tensor(view).detach(),
    "a storage": lambda view: tensor(view).untyped_storage(),
    "dlpack": lambda view: torch.from_dlpack(tensor(view)),
    "a tensor that NumPy has": lambda view: tensor(view).view(5, 2).T.numpy()[1:],
    "NumPy's array of another type": lambda view: tensor(view).numpy().view(np.int16)[:3],
    "a memoryview of that": lambda view: memoryview(tensor(view).numpy())[1:],
    "NumPy and back": lambda view: torch.from_numpy(tensor(view).numpy())[5:],
}


def address(view: memoryview) -> int:
    """Where the bytes lie."""
    return array(view).ctypes.data


@pytest.mark.one_in(3)
@pytest.mark.parametrize("what", HOLDS)
def test_what_is_held_through_anything_is_not_given_out_again_before_it_is_gone(what: str) -> None:
    buffers = BufferPool(4, new=pageable)
    view = buffers.take(10)
    place, held = address(view), HOLDS[what](view)
    del view
    gc.collect()
    others = [buffers.take(10) for _ in range(6)]
    assert len(buffers) == 7
    assert place not in map(address, others)
    del held
    assert len(buffers) == 6
    assert address(buffers.take(10)) == place


def test_memory_is_used_again_when_it_fits() -> None:
    buffers = BufferPool(2, new=pageable)
    first = buffers.take(1000)
    place = address(first)
    del first
    assert address(buffers.take(900)) == place
    assert address(buffers.take(250)) == place
    assert address(buffers.take(200)) != place  # a buffer five times as large is left for others
    again = buffers.take(1000)
    assert address(again) == place
    assert address(buffers.take(1000)) != place
    del again
    assert address(buffers.take(1001)) != place


@pytest.mark.parametrize("size", [0, 1, 7])
def test_any_size_is_given(size: int) -> None:
    buffers = BufferPool(1, new=pageable)
    view = buffers.take(size)
    assert (view.nbytes, view.format, view.readonly) == (size, "B", False)


def test_no_more_is_kept_than_was_said() -> None:
    buffers = BufferPool(2, new=pageable)
    held = [buffers.take(100) for _ in range(5)]
    assert len({address(view) for view in held}) == 5
    del held
    assert len(buffers) == 0
    assert buffers.returned == 2


def test_giving_back_runs_no_python() -> None:
    """Where Python begins, Ctrl-C may come, and what a callback raises is lost."""
    buffers, began = BufferPool(1, new=pageable), list[str]()
    held = [buffers.take(100) for _ in range(3)]
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: began.append(frame.f_code.co_name) if event == "call" else None)
    try:
        held.clear()
    finally:
        sys.setprofile(before)
    assert (began, len(buffers), buffers.returned) == ([], 0, 1)


def test_buffers_outlive_their_pool() -> None:
    buffers = BufferPool(2, new=pageable)
    held = buffers.take(5)
    held[:] = b"seven"
    del buffers
    assert bytes(held) == b"seven"


def test_threads_never_share_a_buffer() -> None:
    buffers, wrong = BufferPool(3, new=pageable), list[int]()

    def work(mark: int) -> None:
        for _ in range(2000):
            taken = array(buffers.take(50))
            taken.fill(mark)
            if not (taken == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(buffers) == 0


class Rings(RuleBasedStateMachine):
    """Any taking, viewing and letting go of tensors: what is held keeps its content."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = BufferPool(4, new=pageable)
        self.held: list[tuple[torch.Tensor, int]] = []
        self.count = 0

    @rule(rows=st.integers(1, 12))
    def take(self, rows: int) -> None:
        self.count = (self.count + 1) % 251
        tensor, memory = take_from(self.buffers, 12 * rows)
        assert (tensor.dtype, tensor.shape, tensor.data_ptr()) == (torch.uint8, (12 * rows,), memory.ctypes.data)
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


# ---- forks


NEWEST: dict[int, int] = {}  # where a buffer begins -> the number of the last one that did


def shared_buffers() -> BufferPool[SharedBuffer]:
    """Buffers that other processes may see, numbered as they are made."""
    numbers = count()

    def new(size: int) -> SharedBuffer:
        buffer = shared(size, next(numbers))
        NEWEST[buffer.memory.ctypes.data] = buffer.address.number
        return buffer

    return BufferPool(4, new=new)


def number(view: memoryview) -> int:
    """Of the buffer under a view."""
    return NEWEST[address(view)]


def forked_child() -> Callable[[], object]:
    """One that lives until what is given is called."""
    holding, writing = os.pipe()

    def wait() -> None:
        os.close(writing)
        os.read(holding, 1)

    pid = forked(wait)
    os.close(holding)
    return lambda: (os.close(writing), os.waitpid(pid, 0))


def test_what_is_out_at_a_fork_never_comes_back_and_what_is_free_does() -> None:
    buffers = shared_buffers()
    reserved = buffers.reserve(100)
    views = [buffers.take(100) for _ in range(3)]
    held = views.pop(0)
    views.clear()
    buffers.put_back(buffers.reserve(100))  # the two are free
    end = forked_child()
    del held
    later = [buffers.take(100) for _ in range(4)]
    assert sorted(map(number, later)) == [2, 3, 4, 5], "1 is the child's"
    given = buffers.give(reserved, 100)  # nobody had anything over it at the fork
    assert number(given) == 0
    del given
    assert number(buffers.take(100)) == 0
    end()


@pytest.mark.parametrize("others", [0, 1])
def test_memory_that_was_out_at_a_fork_goes_with_its_last_view(others: int) -> None:
    """Whether the pool is asked again while it is held, or not."""
    buffers = shared_buffers()
    held = buffers.take(5000)
    forked_child()()
    taken = [buffers.take(5000) for _ in range(others)]
    del held
    taken.append(buffers.take(5000))
    assert len(buffers) == len(taken) == len(memory_files(os.getpid()))


def test_a_child_uses_nothing_of_its_parents() -> None:
    buffers = shared_buffers()
    held = [buffers.take(100) for _ in range(3)]
    held.clear()
    parents = buffers.take(100)
    outcome = child(lambda: [number(buffers.take(100)) for _ in range(5)])
    assert outcome.value == [3] * 5, "of its own, used again"
    assert number(parents) < 3


def test_within_a_fork_of_another_thread_nothing_is_used_again() -> None:
    """The child may be there already, or begin in a moment."""
    buffers = shared_buffers()
    first = buffers.take(100)
    packer_buffers._forks_begun.append(0)
    del first
    second = buffers.take(100)
    assert number(second) == 1
    del second
    third = buffers.take(100)
    kept = buffers.reserve(100)
    packer_buffers._forks_ended.append(0)
    del third
    assert number(buffers.take(100)) == 4, "none that was out meanwhile"
    buffers.put_back(kept)
    assert any(each is kept for each in (buffers.reserve(100), buffers.reserve(100)))


def test_threads_that_take_and_give_back_while_another_forks() -> None:
    buffers, ending = shared_buffers(), threading.Event()

    def work(mark: int) -> None:
        while not ending.is_set():
            array(buffers.take(4096)).fill(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        found = [seen_by_a_child(buffers) for _ in range(10)]
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    assert found == [{200}] * 10


def seen_by_a_child(buffers: BufferPool[SharedBuffer]) -> set[int]:
    """What is in memory that was 200 at the fork, after others have taken and filled all there was."""
    held = array(buffers.take(4096))
    held.fill(200)
    here, there = Pipe()

    def answer(held: np.ndarray = held) -> None:
        there.recv()
        there.send(set(held.tolist()))

    pid = forked(answer)
    del answer, held
    for mark in range(50):
        array(buffers.take(4096)).fill(mark)
    here.send("now")
    found: set[int] = here.recv()
    os.waitpid(pid, 0)
    return found


def test_a_fork_runs_no_python_of_ours() -> None:
    began: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: began.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        child(lambda: None)
    finally:
        sys.setprofile(before)
    assert not [name for name in began if name.endswith("system/buffer_pool.py") and "test_" not in name]
