"""File patterns: users declare the files of samples as NAME=PATTERN:KIND, such as `mask=masks/{stem}.png:mask`.

The option `--role` declares the files of a sample. The option `--sidecar` adds files to the samples of any source:

| placeholder      | in a role                               | in a sidecar, for the image `a/b/c.jpg`   |
|------------------|-----------------------------------------|-------------------------------------------|
| `{stem}`         | the common part of the file names       | `c`                                       |
| `{folder}`       | any number of folders                   | `a/b`                                     |
| `{split}`        | the split: a folder, or a part of one   |                                           |
| `{number}`       | digits that count the files of a sample |                                           |
| `{name}`         |                                         | `c.jpg`                                   |
| `{parent}`       |                                         | `b`                                       |
| `{top}`          |                                         | `a`                                       |

Files whose stem, folder and split are equal form one sample. The order of files has no meaning.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from packer.errors import InvalidRequest
from packer.schema import MASK_DTYPES

# torchvision's IMG_EXTENSIONS
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_ANY_SUFFIX = rf"(?i:{'|'.join(map(re.escape, IMAGE_SUFFIXES))})"
_PLACE = re.compile(r"\{([^{}]*)\}")
# regular expression of each placeholder; an empty value also removes the slash after the placeholder
_CHARACTERS = {"stem": "[^/]+", "name": "[^/]+", "split": "[^/]+", "number": "[0-9]+"}
_CHARACTERS |= {"folder": ".*", "parent": "[^/]*", "top": "[^/]*"}


class Declaration(NamedTuple):
    """The parts of NAME=PATTERN:KIND, NAME=PATTERN:depth:INVALID or NAME=PATTERN:mask:DTYPE. Absent parts are None."""

    name: str
    pattern: str
    kind: str
    dtype: str | None = None
    invalid: float | None = None

    @classmethod
    def parse(cls, option: str, text: str, kinds: Iterable[str]) -> "Declaration":
        """Parse a declaration with one of `kinds` as KIND. Raises InvalidRequest with `option` in the message."""
        name, _, rest = text.partition("=")
        pattern, _, kind = rest.rpartition(":")
        front, _, inner = pattern.rpartition(":")
        if kind in kinds and pattern:
            return cls(name, pattern, kind)
        if inner == "mask" and kind in MASK_DTYPES and front:
            return cls(name, front, inner, dtype=kind)
        with suppress(ValueError):
            if inner == "depth" and front:
                return cls(name, front, inner, invalid=float(kind))
        raise InvalidRequest(
            f"{option} {text!r}: expected NAME=PATTERN:KIND, such as mask=masks/{{stem}}.png:mask, with one of the "
            f"kinds {', '.join(kinds)}; also NAME=PATTERN:depth:INVALID with the value of a missing pixel, or "
            f"NAME=PATTERN:mask:DTYPE with {' or '.join(MASK_DTYPES)}"
        )


@dataclass(frozen=True)
class FilePattern:
    """A pattern of relative paths with placeholders. `text` is the pattern. An invalid text raises InvalidRequest."""

    text: str

    names: ClassVar[tuple[str, ...]]  # names of the valid placeholders
    expected: ClassVar[str]  # description of a valid pattern, for messages

    def __post_init__(self) -> None:
        rest = _PLACE.sub("", self.text)
        are_known = all(name in self.names for name in _PLACE.findall(self.text))
        if not are_known or {"{", "}", "\0"} & set(rest) or {"", "."} & set(self.text.split("/")) or not self._is_valid:
            names = ", ".join(f"{{{name}}}" for name in self.names)
            raise InvalidRequest(f"{self.text!r}: expected {self.expected} ({names})")

    @property
    def _is_valid(self) -> bool:
        return True

    @cached_property
    def expression(self) -> str:
        """Regular expression of the paths, with a named group for each placeholder."""
        return self._expression_of(self.text)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(self.expression, re.DOTALL)

    @staticmethod
    def _expression_of(text: str) -> str:
        expression, takes_slash = "", False
        pieces = _PLACE.split(text)  # literal, name of a placeholder, literal, ...
        for number, piece in enumerate(pieces):
            if number % 2 == 0:
                expression += re.escape(piece.removeprefix("/") if takes_slash else piece)
                continue
            characters = _CHARACTERS[piece]
            may_be_empty = characters.endswith("*")
            group = f"(?P<{piece}>{characters})"
            if group in expression:
                group = f"(?:{characters})" if may_be_empty else f"(?P={piece})"
            takes_slash = may_be_empty and pieces[number + 1].startswith("/")
            expression += f"(?:{group}/)?" if takes_slash else group
        return expression

    def matches(self, name: str) -> bool:
        """Return True if the relative path `name` matches the pattern."""
        return self._regex.fullmatch(name) is not None

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the path with a value for each placeholder. `values` is name of a placeholder -> value."""
        path = _PLACE.sub(lambda match: values[match[1]], self.text)
        return "/".join(part for part in path.split("/") if part)


class SampleName(NamedTuple):
    """The values of `{split}`, `{folder}` and `{stem}`, which together identify a sample. Absent values are ""."""

    split: str
    folder: str
    stem: str

    @classmethod
    def of(cls, match: re.Match[str]) -> "SampleName":
        """Create the name from a match of `RolePattern.expression`."""
        split, folder, stem = match.group("split", "folder", "stem")
        return cls(split, folder or "", stem)

    @property
    def key(self) -> str:
        """Key of the sample: `split/folder/stem`, without empty values."""
        return "/".join(filter(None, self))


class RolePattern(FilePattern):
    """The pattern of `--role`: the paths of one kind of file. Without a suffix, it matches all image suffixes."""

    names = ("stem", "folder", "split", "number")
    expected = (
        "a relative path such as masks/{stem}.png, with {stem} once, in the file name, {folder} at most once, as a "
        "folder of its own, and {split} in the name of a folder"
    )

    @property
    def _is_valid(self) -> bool:
        parts = self.text.split("/")
        has_stem = self.text.count("{stem}") == 1 and "{stem}" in parts[-1]
        folders = [part for part in parts if "{folder}" in part]
        return has_stem and folders in ([], ["{folder}"]) and "{split}" not in parts[-1] and ".." not in parts

    @property
    def places(self) -> frozenset[str]:
        """Placeholders in the pattern that identify a sample: some of "split", "folder" and "stem"."""
        return frozenset(name for name in SampleName._fields if f"{{{name}}}" in self.text)

    @cached_property
    def weight(self) -> int:
        """Length of the literal text. If two patterns match a file, the pattern with the greater weight applies."""
        return len(_PLACE.sub("", self.text))

    @cached_property
    def takes_any_suffix(self) -> bool:
        """True if the pattern has no suffix and therefore matches all image suffixes."""
        return "." not in _PLACE.sub("", self.text.partition("{stem}")[2])

    @cached_property
    def expression(self) -> str:
        """Regular expression of the paths, with a named group for each part of a `SampleName`."""
        absent = "".join(f"(?P<{name}>)" for name in SampleName._fields if name not in self.places)
        return self._expression_of(self.text) + (_ANY_SUFFIX if self.takes_any_suffix else "") + absent

    @cached_property
    def _ends(self) -> tuple[str, str]:
        return self.text.partition("{")[0], "" if self.takes_any_suffix else self.text.rpartition("}")[2]

    @cached_property
    def _folder_regex(self) -> re.Pattern[str]:
        return re.compile(self._expression_of(self.text[: self.text.rfind("/") + 1]), re.DOTALL)

    def match(self, name: str) -> SampleName | None:
        """Return the sample that the file `name` belongs to, None if the path does not match."""
        head, tail = self._ends
        match = self._regex.fullmatch(name) if name.startswith(head) and name.endswith(tail) else None
        return SampleName.of(match) if match else None

    def fits_folder(self, folders: Iterable[str]) -> bool:
        """Return True if files of the pattern may be in one of `folders`: relative paths that end with a slash."""
        return any(map(self._folder_regex.fullmatch, folders))

    def path(self, sample: SampleName) -> str:
        """Return the path of a file of a sample, for messages. `*` replaces an unknown suffix or number."""
        return self.filled({**sample._asdict(), "number": "*"}) + (".*" if self.takes_any_suffix else "")


class SidecarPattern(FilePattern):
    """The pattern of `--sidecar`: paths of additional files. The pattern may begin with `../` and a folder."""

    names = ("stem", "name", "folder", "parent", "top")
    expected = (
        "a path relative to the source, such as masks/{stem}.png or ../masks/{stem}.png, with .. only at the "
        "beginning, in front of the name of a folder"
    )

    @property
    def _is_valid(self) -> bool:
        ups, parts = self._ups, self.text.split("/")
        return ".." not in parts[ups:] and (not ups or (len(parts) >= ups + 2 and "{" not in parts[ups]))

    @property
    def _ups(self) -> int:
        return next(number for number, part in enumerate((*self.text.split("/"), "")) if part != "..")

    @property
    def outside(self) -> str | None:
        """Folder outside the source at the start of the pattern, such as `../masks`. None for a path in the source."""
        ups = self._ups
        return "/".join(self.text.split("/")[: ups + 1]) if ups else None

    @property
    def top(self) -> str | None:
        """First folder of the pattern, if literal. None for a placeholder, `..`, or a pattern without a folder."""
        first, slash, _ = self.text.partition("/")
        return first if slash and "{" not in first and first != ".." else None

    def path(self, main: str, stem: str) -> str:
        """Return the path of a sidecar for the main file `main` of a sample. `stem` is its name without suffix."""
        return self.filled(_values(main, stem))


def _values(main: str, stem: str) -> dict[str, str]:
    folder, _, name = main.rpartition("/")
    parent, top = folder.rpartition("/")[2], folder.partition("/")[0]
    return {"stem": stem, "name": name, "folder": folder, "parent": parent, "top": top}


def is_image(name: str) -> bool:
    """Return whether a file name has the suffix of an image format that packer reads."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def stored_path(path: str) -> str:
    """Return the path that a pack stores for a file outside the source: `path` without leading `../`."""
    while path.startswith("../"):
        path = path[3:]
    return path
