"""Role pattern: which files play one role in the samples of a set, such as `masks/{folder}/{stem}_mask.png`.

| placeholder | stands for                                                                                      |
|-------------|-------------------------------------------------------------------------------------------------|
| `{stem}`    | what the names of a sample's files have in common; in the file's name, with anything around it    |
| `{folder}`  | folders between others, any number of them or none                                               |
| `{split}`   | a folder, or a part of its name, that is the sample's split; where it stands again it is the same |
| `{number}`  | digits that count the files of a sample                                                          |

Files belong to one sample where stem, folder and split are equal: never by their places in sorted lists, in which one
file that is missing gives each sample behind it the file of another. Where nothing behind `{stem}` says a suffix, any
suffix of a picture is meant.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from packer.errors import InvalidRequest

PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_PLACE = re.compile(r"(\{[^{}]*\})")
_PIECE = re.compile(r"(\{folder\}/|\{[a-z]+\})")
_NAMES = ("stem", "folder", "split", "number")
_ANY_SUFFIX = rf"(?i:{'|'.join(map(re.escape, PICTURE_SUFFIXES))})"


class SampleName(NamedTuple):
    """What the files of one sample have in common; empty where a pattern does not have it."""

    split: str
    folder: str
    stem: str

    @property
    def key(self) -> str:
        """The sample's key: the three as one path."""
        return "/".join(part for part in self if part)


@dataclass(frozen=True)
class RolePattern:
    """A pattern as it was typed; raises InvalidRequest where it cannot name files."""

    text: str

    def __post_init__(self) -> None:
        found = _PLACE.findall(self.text)
        unknown = [place for place in found if place[1:-1] not in _NAMES]
        if unknown or "{" in _PLACE.sub("", self.text) or "}" in _PLACE.sub("", self.text):
            raise InvalidRequest(f"{self.text!r}: expected the placeholders {', '.join(f'{{{n}}}' for n in _NAMES)}")
        parts = self.text.split("/")
        if {"", ".", ".."} & set(parts) or "\0" in self.text:
            raise InvalidRequest(
                f"{self.text!r}: expected a path from the folder of the set, such as masks/{{stem}}.png"
            )
        if self.text.count("{stem}") != 1 or "{stem}" not in parts[-1]:
            raise InvalidRequest(f"{self.text!r}: expected {{stem}} once, in the name of the file")
        if self.text.count("{folder}") > 1 or any("{folder}" in part and part != "{folder}" for part in parts):
            raise InvalidRequest(f"{self.text!r}: expected {{folder}} once at most, as a part of the path of its own")
        if "{split}" in parts[-1]:
            raise InvalidRequest(f"{self.text!r}: expected {{split}} in the name of a folder")

    @property
    def places(self) -> frozenset[str]:
        """The placeholders that tell samples apart."""
        return frozenset(name for name in ("stem", "folder", "split") if f"{{{name}}}" in self.text)

    @cached_property
    def weight(self) -> int:
        """How much of it is no placeholder: of two patterns that fit a file, the one that says more is meant."""
        return len(_PLACE.sub("", self.text))

    @cached_property
    def takes_any_suffix(self) -> bool:
        """Whether any suffix of a picture is meant."""
        return "." not in _PLACE.sub("", self.text.partition("{stem}")[2])

    def match(self, name: str) -> SampleName | None:
        """Of which sample a file is, None for one that does not fit. name: its relative path."""
        if not name.startswith(self._head) or not name.endswith(self._tail):
            return None
        match = self._expression.fullmatch(name)
        if match is None:
            return None
        split, folder, stem = match.group("split", "folder", "stem")
        return SampleName(split, folder or "", stem)

    def fits_folder(self, folders: Iterable[str]) -> bool:
        """Whether its files may lie in one of these folders, which end with a slash; that is quickly said."""
        return any(map(self._folder_expression.fullmatch, folders))

    def fits_one(self, names: Iterable[str]) -> bool:
        """Whether one of these files is its."""
        likely = [name for name in names if name.endswith(self._tail)] if self._tail else names
        return any(self.match(name) is not None for name in likely)

    def path(self, sample: SampleName) -> str:
        """What the file of a sample is named, for messages: `*` stands for a suffix and for a number."""
        values = {"{stem}": sample.stem, "{split}": sample.split, "{number}": "*"}
        values["{folder}/"] = f"{sample.folder}/" if sample.folder else ""
        text = "".join(values.get(piece, piece) for piece in _PIECE.split(self.text))
        return text + ".*" if self.takes_any_suffix else text

    @cached_property
    def _head(self) -> str:
        return self.text.partition("{")[0]

    @cached_property
    def _tail(self) -> str:
        return "" if self.takes_any_suffix else self.text.rpartition("}")[2]

    @cached_property
    def _expression(self) -> "re.Pattern[str]":
        return _compiled(self.text, _ANY_SUFFIX if self.takes_any_suffix else "")

    @cached_property
    def _folder_expression(self) -> "re.Pattern[str]":
        return _compiled(self.text[: self.text.rfind("/") + 1], "")


def _compiled(text: str, ending: str) -> "re.Pattern[str]":
    expression = ""
    for piece in _PIECE.split(text):
        if piece == "{folder}/":
            expression += "(?:(?P<folder>.+)/)?"
        elif piece == "{split}":
            expression += "(?P=split)" if "<split>" in expression else "(?P<split>[^/]+)"
        elif piece == "{stem}":
            expression += "(?P<stem>[^/]+)"
        elif piece == "{number}":
            expression += "[0-9]+"
        else:
            expression += re.escape(piece)
    absent = "".join(f"(?P<{name}>)" for name in ("split", "folder", "stem") if f"<{name}>" not in expression)
    return re.compile(expression + ending + absent, re.DOTALL)
