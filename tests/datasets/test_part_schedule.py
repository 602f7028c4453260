"""Part schedule: what a supply is told of a pass, and which passes it cannot serve."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.copies.part_schedule import PartSchedule
from packer.errors import InvalidRequest
from packer.loading.block_order import block_order
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

    def fetch_ahead(self, parts: Sequence[int], *, more: bool = False) -> None:
        assert more == bool(self.wanted) or not parts
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
    with pytest.raises(InvalidRequest, match=f"{needed} bytes.*cache"):
        PartSchedule(Supply(sizes, needed - 1), np.asarray(numbers))
    supply = Supply(sizes, needed + spare)
    schedule = PartSchedule(supply, np.asarray(numbers))
    order = list(dict.fromkeys(numbers))
    beyond = order[len(supply.wanted) :]
    assert supply.given_up == beyond
    fits = sum(sizes[part] for part in set(numbers)) <= needed + spare
    for count in range(len(numbers) + 1):
        schedule.advance(count)
        behind = set(numbers[:count]) - set(numbers[count:])
        given_up = supply.given_up[len(beyond) :]
        assert set(given_up) == (set() if fits else behind)
        assert len(given_up) == len(set(given_up))
        assert sum(sizes[part] for part in set(supply.wanted) - behind) <= needed + spare
        assert supply.wanted == order[: len(supply.wanted)]
        assert set(numbers[count : count + 1]) <= set(supply.wanted)  # before it is read
        assert schedule.is_over(count) == (count == len(numbers))
    assert supply.wanted == order


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("window", [4, 8])
def test_ranks_that_share_a_cache_want_no_more_than_it_holds(window: int, ranks: int) -> None:
    """At each step, what all of them have fetched ahead and not given up."""
    blocks = block_order(np.repeat(np.arange(33), 25), window)
    assert blocks.lanes % ranks == 0
    numbers = np.arange(33 * 25)[blocks.of_pass(0, 0)] // 25
    room = window + blocks.lanes
    supplies = [Supply([1] * 33, room) for _ in range(ranks)]
    schedules = [PartSchedule(supply, numbers, rank=rank, world_size=ranks) for rank, supply in enumerate(supplies)]
    beyond = [len(supply.given_up) for supply in supplies]
    for count in range(33 * 25 // ranks + 1):
        kept: set[int] = set()
        for rank, (supply, schedule) in enumerate(zip(supplies, schedules, strict=True)):
            schedule.advance(count)
            mine = set(supply.wanted) - set(supply.given_up[beyond[rank] :])
            assert set(numbers[count * ranks + rank : count * ranks + rank + 1].tolist()) <= mine
            kept |= mine
        assert len(kept) <= room


def test_a_part_that_another_rank_reads_later_is_not_given_up() -> None:
    numbers = np.asarray([0, 0, 1, 0, 1, 2, 3, 2, 3, 2])  # rank 0 has 0, 1, 1, 3, 3
    supply = Supply([1] * 4, 3)
    schedule = PartSchedule(supply, numbers, rank=0, world_size=2)
    assert (supply.wanted, supply.given_up) == ([0, 1], [3])
    schedule.advance(1)
    assert supply.given_up == [3]
    schedule.advance(2)
    assert (supply.wanted, supply.given_up) == ([0, 1, 3], [3, 0])


def test_a_supply_without_a_limit_keeps_all_and_a_pass_without_samples_wants_nothing() -> None:
    supply = Supply([5, 5], None)
    schedule = PartSchedule(supply, np.asarray([1, 0, 1]))
    schedule.advance(3)
    assert (supply.wanted, supply.given_up) == ([1, 0], [])
    supply = Supply([5, 5], 4)
    schedule = PartSchedule(supply, np.asarray([], np.int64))
    assert supply.wanted == []
    assert schedule.is_over(0)
