"""Buffers of each thread: reused for one size, grown for a larger, apart between threads, at odd addresses."""

import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest

from packer.system.thread_scratch import Bytes, ThreadArrays, ThreadScratch


class Two(NamedTuple):
    plane: Bytes
    pixels: Bytes


def two(memory: Callable[[int], Bytes], height: int, width: int) -> Two:
    flat = memory(4 * height * width)
    count = height * width
    return Two(flat[:count].reshape(height, width), flat[count:].reshape(height, width, 3))


@pytest.mark.parametrize("size", [(1, 1), (5, 7), (300, 400)])
def test_pixels_begin_where_they_are_asked_to(size: tuple[int, int]) -> None:
    for scratch in (ThreadScratch(), ThreadScratch(odd=True)):
        first = scratch.pixels(*size)
        assert first.shape == (*size, 3)
        assert scratch.pixels(*size).ctypes.data == first.ctypes.data, "the same memory"
    assert first.ctypes.data % 2 == 1


def test_arrays_are_made_anew_for_another_size_only() -> None:
    arrays = ThreadArrays(two)
    small = arrays.of(5, 7)
    assert arrays.of(5, 7) is small
    assert small.plane.ctypes.data % 2 == 1
    large = arrays.of(300, 400)
    assert large.plane.shape == (300, 400) and large.pixels.shape == (300, 400, 3)
    again = arrays.of(5, 7)
    assert again.pixels.shape == (5, 7, 3) and again.plane.ctypes.data == large.plane.ctypes.data


def test_each_thread_has_its_own() -> None:
    arrays, found = ThreadArrays(two), []
    arrays.of(5, 7).plane.fill(1)
    thread = threading.Thread(target=lambda: found.append(arrays.of(5, 7)))
    thread.start()
    thread.join()
    found[0].plane.fill(2)
    assert (arrays.of(5, 7).plane == 1).all()
