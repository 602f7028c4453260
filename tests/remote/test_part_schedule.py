"""Part schedule: what a supply is told of a pass, and which passes it cannot serve."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.datasets.pack_dataset import PartSchedule
from packer.errors import InvalidRequest
from packer.pack.part_readers import Key, PartLease


class Supply:
    """Writes down what it is told."""

    url = "s3://b/x.pack"

    def __init__(self, sizes: Sequence[int], room: int | None) -> None:
        self.part_bytes = sizes
        self.room_bytes = room
        self.wanted: list[int] = []
        self.given_up: list[int] = []

    def key(self, number: int) -> Key:
        raise AssertionError

    def where(self, number: int) -> str:
        raise AssertionError

    def lease(self, number: int) -> PartLease:
        raise AssertionError

    def fetch_ahead(self, parts: Sequence[int]) -> None:
        self.wanted += parts

    def give_up(self, parts: Sequence[int]) -> None:
        self.given_up += parts

    def close(self) -> None:
        raise AssertionError


def most_at_once(numbers: list[int], sizes: list[int]) -> int:
    """By definition: at each position, the parts that lie before and behind it, or at it."""
    return max(sum(sizes[part] for part in set(numbers[: at + 1]) & set(numbers[at:])) for at in range(len(numbers)))


@given(
    numbers=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 9), min_size=6, max_size=6),
    spare=st.integers(0, 3),
)
def test_parts_are_wanted_by_their_first_sample_and_given_up_behind_their_last(
    numbers: list[int], sizes: list[int], spare: int
) -> None:
    needed = most_at_once(numbers, sizes)
    with pytest.raises(InvalidRequest, match=f"reads from {needed} bytes of parts at a time, and the cache holds"):
        PartSchedule(Supply(sizes, needed - 1), np.asarray(numbers))
    supply = Supply(sizes, needed + spare)
    schedule = PartSchedule(supply, np.asarray(numbers))
    assert supply.wanted == list(dict.fromkeys(numbers))
    fits = sum(sizes[part] for part in set(numbers)) <= needed + spare
    for count in range(len(numbers) + 1):
        schedule.advance(count)
        behind = set(numbers[:count]) - set(numbers[count:])
        assert set(supply.given_up) == (set() if fits else behind)
        assert len(supply.given_up) == len(set(supply.given_up))
        assert schedule.is_over(count) == (count == len(numbers))


def test_a_supply_without_a_limit_keeps_all() -> None:
    supply = Supply([5, 5], None)
    schedule = PartSchedule(supply, np.asarray([1, 0, 1]))
    schedule.advance(3)
    assert (supply.wanted, supply.given_up) == ([1, 0], [])


def test_a_pass_without_samples_wants_nothing() -> None:
    supply = Supply([5, 5], 4)
    schedule = PartSchedule(supply, np.asarray([], np.int64))
    assert supply.wanted == []
    assert schedule.is_over(0)
