"""Mutation: an input as a Hypothesis strategy, a start with some changes; for where atheris is not installed.

The grammar is that of binary files: bits flip, numbers of 1 to 8 bytes in either order take values at the edges of
their range or near what they were, blocks are cut out, doubled, moved and taken from another start, words come in.
"""

from collections.abc import Sequence

from hypothesis import strategies as st

_EDGES = (0, 1, 2, 7, 8, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 62)


@st.composite
def mutated(draw: st.DrawFn, starts: Sequence[bytes], tokens: Sequence[bytes], most_bytes: int) -> bytes:
    """A start with up to eight changes; now and then plain bytes."""
    if draw(st.integers(0, 49)) == 0:
        return draw(st.binary(max_size=min(most_bytes, 256)))
    data = bytearray(draw(st.sampled_from(starts)))
    for _ in range(draw(st.integers(1, 8))):
        _change(draw, data, starts, tokens)
    return bytes(data[:most_bytes])


def _change(draw: st.DrawFn, data: bytearray, starts: Sequence[bytes], tokens: Sequence[bytes]) -> None:
    at = draw(st.integers(0, len(data)))
    change = draw(st.sampled_from((_flip, _number, _block, _word)))
    change(draw, data, at, (starts, tokens))


_Words = tuple[Sequence[bytes], Sequence[bytes]]


def _flip(draw: st.DrawFn, data: bytearray, at: int, _: _Words) -> None:
    if at < len(data):
        data[at] ^= 1 << draw(st.integers(0, 7))


def _number(draw: st.DrawFn, data: bytearray, at: int, _: _Words) -> None:
    """Another number in its place: one at the edge of a range, or one near it."""
    size, order = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from(("little", "big")))
    near = int.from_bytes(data[at : at + size], order) + draw(st.integers(-16, 16))
    value = draw(st.sampled_from(_EDGES)) if draw(st.booleans()) else near
    data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, order)


def _block(draw: st.DrawFn, data: bytearray, at: int, words: _Words) -> None:
    """A block is cut out, repeated, or replaced by one of another start; or the rest is cut off."""
    block = bytes(data[at : at + draw(st.integers(1, 64))])
    kind = draw(st.sampled_from(("cut", "end", "repeat", "other")))
    if kind == "repeat":
        data[at:at] = block * draw(st.sampled_from((1, 2, 16)))
        return
    del data[at : at + len(block) if kind != "end" else len(data)]
    if kind == "other":
        other = draw(st.sampled_from(words[0]))
        start = draw(st.integers(0, len(other)))
        data[at:at] = other[start : start + draw(st.integers(0, 256))]


def _word(draw: st.DrawFn, data: bytearray, at: int, words: _Words) -> None:
    """A word of the grammar, or some bytes, in the place of up to eight."""
    word = draw(st.sampled_from(words[1])) if words[1] else draw(st.binary(max_size=16))
    data[at : at + draw(st.integers(0, 8))] = word
