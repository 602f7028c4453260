"""Run lengths in pycocotools' text: the numbers are those of a reading character by character."""

from collections.abc import Iterator

from packer.errors import PackerError
from packer.sources.annotations._rle_and_panoptic import run_lengths
from tests.fuzz.target import Disagreement

TOKENS = (b"oooooooo", b"P", b"@", b"0", b"\x00")


def seeds() -> Iterator[bytes]:
    yield b"::50:"
    yield b"PT1@"
    yield b"T1P1d0oN10"


def check(data: bytes) -> None:
    text = data.decode("latin-1")
    expected = _numbers(text)
    total = sum(expected) if expected is not None else 1
    size = (1, min(max(total, 1), 1_000_000_000))
    try:
        found = run_lengths(text, size).tolist()
    except PackerError:
        if expected is not None and 0 < total == size[1] and min(expected) >= 0:
            raise Disagreement(f"refused: {expected}") from None
        raise
    if found != expected:
        raise Disagreement(f"{found}, character by character {expected}")


def _numbers(text: str) -> list[int] | None:
    """The numbers, None where the text is none of pycocotools'."""
    found: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64 or shift > 35:
            return None
        value |= (code & 31) << shift
        shift += 5
        if not code & 32:
            value -= (code & 16) << (shift - 4)
            found.append(value + found[-2] if len(found) > 2 else value)
            value = shift = 0
    return None if shift else found
