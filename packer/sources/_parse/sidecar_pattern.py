"""Sidecar pattern: where the files of a sidecar lie, relative to the source's folder, such as `masks/{stem}.png`.

| placeholder | of the sample `a/b/c.jpg` |
|-------------|---------------------------|
| `{stem}`    | `c`                       |
| `{name}`    | `c.jpg`                   |
| `{folder}`  | `a/b`, nothing directly in the root |
| `{parent}`  | `b`                       |
| `{top}`     | `a`                       |
| `{stem:c=d}` | `d`: with `d` for each `c` in it; of a name without `c` there is no file |

All but `{name}` may be followed by such a replacement: `{folder:images=masks}/{stem:_leftImg8bit=_gtFine}.png`.

A pattern may begin with `../`, if it then names a folder: what is read lies in that one, never anywhere else above.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from packer.errors import InvalidRequest

_PLACE = re.compile(r"\{[^{}]*\}")
_CHARACTER = {"stem": "[^/]", "name": "[^/]", "parent": "[^/]", "top": "[^/]", "folder": "."}


class _Placeholder(NamedTuple):
    """`{stem}`, or `{stem:old=new}`."""

    text: str
    name: str
    old: str = ""
    new: str = ""

    @classmethod
    def parse(cls, text: str) -> "_Placeholder | None":
        """None for text that is none."""
        name, colon, replacement = text[1:-1].partition(":")
        old, equals, new = replacement.partition("=")
        if name not in _CHARACTER or (
            colon and (not old or not equals or name == "name" or "/" in replacement or old == new)
        ):
            return None
        return cls(text, name, old, new)

    def value(self, values: Mapping[str, str]) -> str:
        """What stands in its place; the placeholder itself, which is no name of a file, where `old` is not there."""
        found = values[self.name]
        if not self.old:
            return found
        return found.replace(self.old, self.new) if self.old in found else self.text

    @property
    def expression(self) -> str:
        """What its values match."""
        character = _CHARACTER[self.name]
        if self.old and self.old not in self.new:  # none of them holds what was replaced
            character = f"(?:(?!{re.escape(self.old)}){character})"
        if self.new:
            return f"{character}*{re.escape(self.new)}{character}*"
        return f"{character}{'+' if self.name in ('stem', 'name') else '*'}"

    @property
    def may_be_empty(self) -> bool:
        """Whether it can be nothing, and then takes the separator behind it along."""
        return self.name not in ("stem", "name") and not self.new


@dataclass(frozen=True)
class Pattern:
    """A pattern as it was typed; raises InvalidRequest where it cannot name files."""

    text: str

    def __post_init__(self) -> None:
        unknown = [text for text in _PLACE.findall(self.text) if _Placeholder.parse(text) is None]
        if unknown or "{" in _PLACE.sub("", self.text) or "}" in _PLACE.sub("", self.text):
            names = ", ".join(f"{{{name}}}" for name in _CHARACTER)
            raise InvalidRequest(
                f"{self.text!r}: expected the placeholders {names}, or with a replacement such as {{stem:img=mask}}"
            )
        if self.text.startswith("/") or "\0" in self.text or self.text.endswith("/"):
            raise InvalidRequest(f"{self.text!r}: expected a path relative to the source, such as masks/{{stem}}.png")
        parts = self.text.split("/")
        ups = self._ups
        if ".." in parts[ups:] or "." in parts or "" in parts:
            raise InvalidRequest(
                f"{self.text!r}: expected .. at the beginning only, and a name in each part of the path"
            )
        if ups and (len(parts) < ups + 2 or "{" in parts[ups]):
            raise InvalidRequest(
                f"{self.text!r}: expected the name of a folder behind .., such as ../masks/{{stem}}.png: only what the "
                "option names is read above the source"
            )

    @property
    def _ups(self) -> int:
        parts = self.text.split("/")
        return next(number for number, part in enumerate((*parts, "")) if part != "..")

    @property
    def outside(self) -> str | None:
        """The folder above the source that the pattern names, `../masks`; None for a pattern inside."""
        ups = self._ups
        return "/".join(self.text.split("/")[: ups + 1]) if ups else None

    @property
    def top(self) -> str | None:
        """The folder directly in the source that it names, None where it names none."""
        first, slash, _ = self.text.partition("/")
        return first if slash and "{" not in first and first != ".." else None

    def path(self, main: str, stem: str) -> str:
        """The file of a sample. main: relative path of its main file. stem: of its name."""
        values = _values(main, stem)
        path = "".join(piece if isinstance(piece, str) else piece.value(values) for piece in self._pieces)
        return "/".join(part for part in path.split("/") if part)

    def unmet(self, main: str, stem: str) -> str | None:
        """The first text that the pattern replaces and this sample does not have; None where it has all."""
        values = _values(main, stem)
        pieces = (piece for piece in self._pieces if isinstance(piece, _Placeholder))
        return next((piece.old for piece in pieces if piece.old not in values[piece.name]), None)

    def matches(self, name: str) -> bool:
        """Whether a file in the source's folder may be one of the pattern's."""
        return self._expression.fullmatch(name) is not None

    @cached_property
    def _pieces(self) -> "list[str | _Placeholder]":
        """Literal, placeholder, literal ..."""
        literals, found = _PLACE.split(self.text), _PLACE.findall(self.text)
        pieces: list[str | _Placeholder] = [literals[0]]
        for text, literal in zip(found, literals[1:], strict=True):
            pieces += [_Placeholder.parse(text) or text, literal]
        return pieces

    @cached_property
    def _expression(self) -> "re.Pattern[str]":
        text, takes_separator = "", False
        for piece, after in zip(self._pieces, [*self._pieces[1:], ""], strict=True):
            if isinstance(piece, str):
                text += re.escape(piece.removeprefix("/") if takes_separator else piece)
            else:
                takes_separator = piece.may_be_empty and isinstance(after, str) and after.startswith("/")
                text += f"(?:{piece.expression}/)?" if takes_separator else piece.expression
        return re.compile(text, re.DOTALL)


def _values(main: str, stem: str) -> dict[str, str]:
    """What stands in the place of each placeholder."""
    folder, _, name = main.rpartition("/")
    parent, top = folder.rpartition("/")[2], folder.partition("/")[0]
    return {"stem": stem, "name": name, "folder": folder, "parent": parent, "top": top}


def stored_path(path: str) -> str:
    """How a file above the source is named in the pack: without what leads out of it."""
    while path.startswith("../"):
        path = path[3:]
    return path
