"""Each room of `packer/` keeps its budget of lines and files, which the map in CONTRIBUTING.md states."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
_ROW = re.compile(r"^\| `packer/(?P<room>\w+)` \| [^|]+ \| (?P<lines>\d+) \| (?P<files>\d+) \|$", re.M)
_SLACK = 50  # lines that a room may have below its budget before the budget has to be lowered


class Size(NamedTuple):
    lines: int
    files: int


def budgets() -> dict[str, Size]:
    """Returns the rows of the map."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {row["room"]: Size(int(row["lines"]), int(row["files"])) for row in _ROW.finditer(text)}


def size(room: str) -> Size:
    """Returns the lines and files of a room."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "packer" / room).rglob("*.py"))]
    return Size(sum(text.count("\n") for text in texts), len(texts))


def test_the_map_has_every_room() -> None:
    rooms = {path.name for path in (ROOT / "packer").iterdir() if (path / "__init__.py").exists()}
    assert budgets().keys() == rooms


@pytest.mark.parametrize("room", sorted(budgets()))
def test_a_room_keeps_its_budget(room: str) -> None:
    budget, found = budgets()[room], size(room)
    row = f"packer/{room}: {found.lines} lines, {found.files} files; budget: {budget.lines} lines, {budget.files} files"
    assert found.lines <= budget.lines and found.files <= budget.files, (
        f"{row}: which simpler rule makes the new code unnecessary? A commit that raises a budget gives the reason"
    )
    assert found.lines + _SLACK >= budget.lines and found.files == budget.files, f"{row}: lower the budget"
