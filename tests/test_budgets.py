"""The budget of each room, as the map in CONTRIBUTING.md states it: lines, files, and phrases that are to go."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
_ROW = re.compile(
    r"^\| `packer/(?P<room>\w+)` \| [^|]+ \| (?P<lines>\d+) \| (?P<files>\d+) \| (?P<phrases>\d+) \|$", re.M
)
# what "Words" in CONTRIBUTING.md replaces, as far as a pattern can tell
_PHRASES = re.compile(
    r"\b(whoever|nobody|somebody|anew|mend(s|ed|ing)?|beside|kin)\b|\b(is|are) (said|told)\b|\b(is|are) no [a-z]"
    r"|\bas of\b|\bof which\b|[.:] Of ",
)
_SLACK = 50  # lines that a room may have below its budget before the budget has to be lowered


class Size(NamedTuple):
    lines: int
    files: int
    phrases: int


def budgets() -> dict[str, Size]:
    """The rows of the map."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {row["room"]: Size(int(row["lines"]), int(row["files"]), int(row["phrases"])) for row in _ROW.finditer(text)}


def size(room: str) -> Size:
    """What a room has."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "packer" / room).rglob("*.py"))]
    return Size(sum(text.count("\n") for text in texts), len(texts), sum(len(_PHRASES.findall(text)) for text in texts))


def test_the_map_has_every_room() -> None:
    rooms = {path.name for path in (ROOT / "packer").iterdir() if (path / "__init__.py").exists()}
    assert budgets().keys() == rooms


@pytest.mark.parametrize("room", sorted(budgets()))
def test_a_room_keeps_its_budget(room: str) -> None:
    budget, found = budgets()[room], size(room)
    row = (
        f"packer/{room} has {found.lines} lines | {found.files} files | {found.phrases} phrases; its budget is {budget}"
    )
    assert all(have <= most for have, most in zip(found, budget, strict=True)), (
        f"{row}: which rule, made simpler, would make the new code unnecessary? A commit that raises a budget says why"
    )
    assert found.lines + _SLACK >= budget.lines and found[1:] == budget[1:], f"{row}: lower the budget"
