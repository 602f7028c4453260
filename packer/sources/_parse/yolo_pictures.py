"""YOLO pictures: which files the paths in a description and in its lists name, and where the label file of each lies.

Paths are often those of another machine, or of another tool: `/home/me/coco/images/train`, `../train/images` as
Roboflow writes it, `data/obj_train_data/1.jpg` as darknet and CVAT do. A path is taken as it stands, from where it is
written and from the folder of the set; where nothing is there, what it ends with: the longest end that names something.
A folder is not taken by the last part of its path alone: `test/images` is not `images`. What was left away is counted,
to be told.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packer.errors import BadInput
from packer.sources._parse.folder_listing import shown

_MOST_PARTS = 64  # folders in a path; one that has more names nothing
_IMAGES, _LABELS = "/images/", "/labels/"
_DARKNET_IMAGES = "/JPEGImages/"


def label_name(picture: str) -> str:
    """Where ultralytics looks for the labels: below `labels` in place of the last `images` above the picture, else
    beside it.
    """
    return _below_labels(picture, _IMAGES)


def darknet_label_names(picture: str) -> tuple[str, ...]:
    """Where darknet's labels may lie: below `labels` in place of `JPEGImages` or `images`, or beside the picture."""
    found = (_below_labels(picture, _DARKNET_IMAGES), label_name(picture), f"{_without_suffix(picture)}.txt")
    return tuple(dict.fromkeys(found))


def _below_labels(picture: str, images: str) -> str:
    above, found, rest = f"/{picture}".rpartition(images)
    return f"{_without_suffix(f'{above}{_LABELS}{rest}' if found else f'/{picture}')[1:]}.txt"


def _without_suffix(name: str) -> str:
    return name[: name.rindex(".")] if "." in name.rpartition("/")[2] else name


class PathInSet(NamedTuple):
    """What a path names: a folder or a file, and what was left away at its front to find it."""

    name: str
    left_away: str
    is_folder: bool


class SetPaths:
    """Finds what the paths of a description name.

    pictures: sorted. unread: pictures in formats that nobody reads -> the format. left_away: beginning -> how many
    paths were taken without it.
    """

    def __init__(
        self, names: Sequence[str], folders: Sequence[str], pictures: list[str], unread: Mapping[str, str]
    ) -> None:
        """names, folders: everything in the set. pictures: those of the names that are pictures, sorted."""
        self._names = set(names)
        self._folders = {"", *folders}
        self.pictures = pictures
        self.unread = unread
        self.left_away: Counter[str] = Counter()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def in_other_case(self, names: Sequence[str]) -> list[str]:
        """The files of the set that are called as one of these but for the case of letters, sorted."""
        lower = {name.lower() for name in names}
        return sorted(name for name in self._names.difference(names) if name.lower() in lower) if lower else []

    def base(self, text: str) -> str | None:
        """The folder that the `path` of a description is, in the set; None where it is elsewhere. Empty for no path."""
        found = _joined("", _slashed(text)) if not _is_absolute(text) else None
        return found if found in self._folders else None

    def find(self, text: str, *folders: str) -> PathInSet | None:
        """What a path names that is written in these folders, or from the folder of the set; None for nothing."""
        for spelled in dict.fromkeys((text, _slashed(text))):
            for folder in dict.fromkeys((*folders, "")):
                name = None if _is_absolute(spelled) else _joined(folder, spelled)
                if name is not None and (found := self._named(name, "")) is not None:
                    return found
        spelled = _slashed(text)
        parts = [part for part in spelled.split("/", _MOST_PARTS + 1) if part not in ("", ".")]
        if len(parts) > _MOST_PARTS:
            return None
        front = "/" if spelled.startswith("/") else ""
        for start in range(len(parts)):
            tail = _joined("", "/".join(parts[start:]))
            left_away = front + "".join(f"{part}/" for part in parts[:start])
            found = self._named(tail, left_away) if tail else None
            if found is not None:
                is_last_part = start == len(parts) - 1 and any(part != ".." for part in parts[:start])
                return None if found.is_folder and is_last_part else found
        return None

    def _named(self, name: str, left_away: str) -> PathInSet | None:
        if name in self._names:
            return PathInSet(name, left_away, is_folder=False)
        return PathInSet(name, left_away, is_folder=True) if name in self._folders else None

    def note(self, found: PathInSet) -> None:
        """Count what was left away; `../` is how Roboflow writes the folder of the set."""
        if found.left_away.strip("./"):
            self.left_away[found.left_away] += 1

    def is_picture(self, name: str) -> bool:
        """Whether a file is one of the pictures."""
        at = bisect_left(self.pictures, name)
        return self.pictures[at : at + 1] == [name]

    def inside(self, folder: str) -> list[str]:
        """Every picture in a folder and below it."""
        if not folder:
            return self.pictures
        first = bisect_left(self.pictures, f"{folder}/")
        return self.pictures[first : bisect_left(self.pictures, f"{folder}0", first)]  # "0" follows "/"


def listed_paths(data: bytes, path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a list of pictures, with their numbers; raises BadInput for bytes that are no text."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{shown(str(path))}:{at}: not UTF-8; expected a list of pictures, a path a line") from error
    for number, line in enumerate(text.split("\n"), start=1):
        name = line.strip()
        if name:
            yield number, name


def _slashed(text: str) -> str:
    return text.replace("\\", "/")


def _is_absolute(text: str) -> bool:
    return text.startswith("/") or text[1:3] in (":/", ":\\")


def _joined(folder: str, text: str) -> str | None:
    """The relative path of what `text` says in a folder; None where it leads above the set."""
    parts = folder.split("/") if folder else []
    for part in text.split("/", _MOST_PARTS + 1):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
