"""Memory that is used again when nobody holds anything over it, and never before."""

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from packer.slabs import Slabs


def array(view: memoryview) -> npt.NDArray[np.uint8]:
    """The bytes as NumPy has them."""
    return np.frombuffer(view, np.uint8)


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
    "a tensor": lambda view: torch.from_numpy(array(view)),
    "a row of a tensor": lambda view: torch.from_numpy(array(view)).view(2, 5)[1],
    "a tensor that NumPy has": lambda view: torch.from_numpy(array(view)).view(5, 2).T.numpy()[1:],
}


@pytest.mark.parametrize("what", HOLDS)
def test_what_is_held_through_anything_is_not_given_out_again(what: str) -> None:
    slabs = Slabs(4)
    held = HOLDS[what](slabs.take(10))
    others = [array(slabs.take(10)) for _ in range(6)]
    assert len(slabs) == 7
    assert not any(np.shares_memory(np.asarray(held), other) for other in others)
    del held, others
    gc.collect()
    assert len(slabs) == 0


def address(view: memoryview) -> int:
    """Where the bytes lie."""
    return array(view).ctypes.data


def test_memory_is_used_again_when_it_fits() -> None:
    slabs = Slabs(2)
    first = slabs.take(1000)
    place = address(first)
    del first
    assert address(slabs.take(900)) == place
    assert address(slabs.take(200)) != place  # a slab five times as large is left for others
    again = slabs.take(1000)
    assert address(again) == place
    assert address(slabs.take(1000)) != place


@pytest.mark.parametrize("size", [0, 1, 7])
def test_any_size_is_given(size: int) -> None:
    slabs = Slabs(1)
    view = slabs.take(size)
    assert (view.nbytes, view.format, view.readonly) == (size, "B", False)


def test_no_more_is_kept_than_was_said() -> None:
    slabs = Slabs(2)
    held = [slabs.take(100) for _ in range(5)]
    assert len({address(view) for view in held}) == 5
    del held
    assert len(slabs) == 0
    assert len(slabs._free) == 2


def test_giving_back_runs_no_python() -> None:
    """Where Python begins, Ctrl-C may come, and what a callback raises is lost."""
    slabs, began = Slabs(1), list[str]()
    held = [slabs.take(100) for _ in range(3)]
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: began.append(frame.f_code.co_name) if event == "call" else None)
    try:
        held.clear()
    finally:
        sys.setprofile(before)
    assert (began, len(slabs), len(slabs._free)) == ([], 0, 1)


def test_slabs_outlive_their_pool() -> None:
    slabs = Slabs(2)
    held = slabs.take(5)
    held[:] = b"seven"
    del slabs
    assert bytes(held) == b"seven"


def test_threads_never_share_a_slab() -> None:
    slabs, wrong = Slabs(3), list[int]()

    def work(mark: int) -> None:
        for _ in range(2000):
            taken = array(slabs.take(50))
            taken.fill(mark)
            if not (taken == mark).all():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(slabs) == 0
