"""Sized cache: what it keeps, against a plain list."""

from hypothesis import given
from hypothesis import strategies as st

from packer.browse.sized_cache import SizedCache

LIMIT = 10


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12))))
def test_the_values_that_were_used_last_stay(steps: list[tuple[int, int]]) -> None:
    cache: SizedCache[bytes] = SizedCache(LIMIT, len)
    kept: list[tuple[int, int]] = []  # key, size; the one that was used last at the end
    for key, size in steps:
        known = dict(kept)
        expected = known.get(key, size)
        assert len(cache.get(key, lambda size=size: bytes(size))) == expected  # type: ignore[misc]
        kept = [each for each in kept if each[0] != key] + [(key, expected)]
        while sum(size for _, size in kept) > LIMIT:
            del kept[0]
        assert cache.bytes == sum(size for _, size in kept)
