"""Path pattern: where the files of a sidecar lie, relative to the source's folder, such as `masks/{stem}.png`.

| placeholder | of the sample `a/b/c.jpg` |
|-------------|---------------------------|
| `{stem}`    | `c`                       |
| `{name}`    | `c.jpg`                   |
| `{folder}`  | `a/b`, nothing directly in the root |
| `{parent}`  | `b`                       |
| `{top}`     | `a`                       |

A pattern may begin with `../`, if it then names a folder: what is read lies in that one, never anywhere else above.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from packer.errors import InvalidRequest

_PLACE = re.compile(r"\{([^{}]*)\}")
_FITS = {"stem": "[^/]+", "name": "[^/]+", "parent": "[^/]*", "top": "[^/]*", "folder": ".*"}


@dataclass(frozen=True)
class Pattern:
    """A pattern as it was typed; raises InvalidRequest where it cannot name files."""

    text: str

    def __post_init__(self) -> None:
        unknown = [name for name in _PLACE.findall(self.text) if name not in _FITS]
        if unknown or "{" in _PLACE.sub("", self.text) or "}" in _PLACE.sub("", self.text):
            raise InvalidRequest(
                f"{self.text!r}: expected the placeholders {', '.join(f'{{{name}}}' for name in _FITS)}"
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
        folder, _, name = main.rpartition("/")
        values = {"stem": stem, "name": name, "folder": folder, "parent": folder.rpartition("/")[2]}
        values["top"] = folder.partition("/")[0]
        path = _PLACE.sub(lambda match: values[match[1]], self.text)
        return "/".join(part for part in path.split("/") if part)

    def matches(self, name: str) -> bool:
        """Whether a file in the source's folder may be one of the pattern's."""
        return self._expression.fullmatch(name) is not None

    @cached_property
    def _expression(self) -> "re.Pattern[str]":
        pieces = _PLACE.split(self.text)  # literal, placeholder, literal ...
        parts = [re.escape(piece) if number % 2 == 0 else _FITS[piece] for number, piece in enumerate(pieces)]
        text = "".join(parts)
        for piece in (".*/", "[^/]*/"):  # a folder that may be none takes its separator along
            text = text.replace(piece, f"(?:{piece})?")
        return re.compile(text, re.DOTALL)


def stored_path(path: str) -> str:
    """How a file above the source is named in the pack: without what leads out of it."""
    while path.startswith("../"):
        path = path[3:]
    return path
