"""YOLO splits: the pictures of each split, as the folders and lists in a set's description name them.

Without a description, folders that are named as splits beside or below `images` are the splits: `images/train/1.jpg`,
`train/images/1.jpg`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from packer.errors import BadInput, InvalidRequest
from packer.sources._name_words import ordered_splits, split_rank
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources._parse.yolo_description import NEEDED, YoloDescription
from packer.sources._parse.yolo_pictures import SetPaths, listed_paths
from packer.sources._trees.file_tree import FileTree

_IMAGES = "images"


class YoloSplit(NamedTuple):
    """A split and its pictures, sorted, each once. name: empty for a set without splits."""

    name: str
    pictures: Sequence[str]


@dataclass
class NamedPictures:
    """What a description names. pictures: split -> their names, those that are named twice twice.

    lists: the lists that were read. unread: pictures in formats that nobody reads. notes: for the user. left_out: (path
    as written, reason) of pictures that are not there.
    """

    pictures: dict[str, list[str]] = field(default_factory=dict)
    lists: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def named_pictures(
    tree: FileTree, paths: SetPaths, description: YoloDescription, *, said_in: str, missing: str
) -> NamedPictures:
    """The pictures of every split that a description names.

    said_in: the name of its file. missing: `skip` leaves out what is not there. Raises BadInput, naming all of it, and
    InvalidRequest where two paths of other machines lead to one folder.
    """
    return _SplitReader(tree, paths, description, said_in).read(missing)


def splits_by_folders(pictures: Sequence[str]) -> list[YoloSplit]:
    """The splits that folders are named as, where every picture lies in one; else one without a name."""
    words = [_split_word(name) for name in pictures]
    named = {word for word in words if word}
    if not named or "" in words:
        return [YoloSplit("", pictures)]
    members: dict[str, list[str]] = {word: [] for word in ordered_splits(named)}
    for word, name in zip(words, pictures, strict=True):
        members[word].append(name)
    return [YoloSplit(word, names) for word, names in members.items()]


def without_duplicates(
    found: Mapping[str, Sequence[str]], duplicates: str, where: str
) -> tuple[list[YoloSplit], list[str], list[str]]:
    """The splits, each picture in one of them; notes; and the pictures that are left out.

    duplicates: what a picture is that is named twice: `error`, `first`, `skip`. where: the description, for messages. A
    split that names the pictures of an earlier one, as `val` does in coco128, is none, and told.
    """
    members: dict[str, set[str]] = {}
    notes = []
    for split, names in found.items():
        alike = next((other for other, earlier in members.items() if names and earlier == set(names)), None)
        if alike is None:
            members[split] = set(names)
        else:
            notes.append(f"split {split} names the pictures of {alike}: packed once, as {alike}")
    counts = Counter(name for split in members for name in found[split])
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice and duplicates == "error":
        places = (f"{name} ({', '.join(split for split in members if name in members[split])})" for name in twice)
        raise BadInput(
            f"{where}: {counted(len(twice), 'picture')} named twice by its splits: {listed(places)}; say --duplicates "
            "first or --duplicates skip, or mend the lists"
        )
    if twice and duplicates == "first":
        notes.append(f"{counted(len(twice), 'picture')} named twice: in the first split that names it")
    left_out = twice if duplicates == "skip" else []
    taken = set(left_out)
    splits = []
    for split, pictures in members.items():
        if pictures - taken:
            splits.append(YoloSplit(split, sorted(pictures - taken)))
        taken |= pictures
    return splits, notes, left_out


class _SplitReader:
    """Reads what the entries of a description name."""

    def __init__(self, tree: FileTree, paths: SetPaths, description: YoloDescription, said_in: str) -> None:
        self._tree = tree
        self._where = shown(str(tree.root / said_in))
        self._paths = paths
        self._description = description
        self._said_in = said_in
        self._base = paths.base(description.base)
        self._named_by: dict[str, tuple[str, str]] = {}  # folder or list -> the split and the path that lead to it
        self._absent: dict[str, str] = {}  # picture as written -> where
        self._absent_paths: list[tuple[str, str]] = []  # split, folder or list as written
        self._found = NamedPictures()

    def read(self, missing: str) -> NamedPictures:
        found = self._found
        if self._base is None:
            found.notes.append(
                f"path: {shown(self._description.base)} of {shown(self._said_in)} is not in the folder that was given: "
                "taken for that folder"
            )
        for split, paths in self._description.splits.items():
            found.pictures[split] = []
            for path in paths:
                self._add(split, path)
        self._check_absent(missing)
        found.notes += self._about_left_away()
        return found

    def _add(self, split: str, path: str) -> None:
        """Take the pictures of a folder or of a list, or one picture."""
        place = self._paths.find(self._relative(path), self._base or "")
        if place is None:
            self._absent_paths.append((split, path))
            return
        self._paths.note(place)
        other, text = self._named_by.setdefault(place.name, (split, path))
        if text != path:
            raise InvalidRequest(
                f"{self._where}: {other}: {shown(text)} and {split}: {shown(path)} seem to be "
                f"{shown(place.name) or 'the folder that was given'} both: cannot decide whose it is; correct the "
                "paths, or give the folder that they begin from"
            )
        if place.is_folder:
            self._found.pictures[split] += self._paths.inside(place.name)
            prefix = f"{place.name}/" if place.name else ""
            self._found.unread |= {name for name in self._paths.unread if name.startswith(prefix)}
        elif place.name.endswith(".txt"):
            self._found.lists.append(place.name)
            self._add_list(split, place.name)
        else:
            self._add_file(split, place.name, self._said_in)

    def _relative(self, path: str) -> str:
        """A path below the `path` of the description, which is the folder that was given, from that folder."""
        base = self._description.base.rstrip("/")
        return path[len(base) + 1 :] if base and path.startswith(f"{base}/") else path

    def _add_list(self, split: str, name: str) -> None:
        folder = name.rpartition("/")[0]
        for number, line in listed_paths(self._tree.read(name), self._tree.root / name):
            place = self._paths.find(self._relative(line), folder, self._base or "")
            if place is None or place.is_folder:
                self._absent.setdefault(line, f"{name}:{number}")
            else:
                self._paths.note(place)
                self._add_file(split, place.name, f"{name}:{number}")

    def _add_file(self, split: str, name: str, said_in: str) -> None:
        if self._paths.is_picture(name):
            self._found.pictures[split].append(name)
        elif name in self._paths.unread:
            self._found.unread.add(name)
        else:
            raise BadInput(
                f"{shown(str(self._tree.root / said_in))}: names {shown(name)}, which is no picture; correct it"
            )

    def _check_absent(self, missing: str) -> None:
        """Raise BadInput for what is named and not there, where that is no test data and nobody leaves it out."""
        for split, path in self._absent_paths:
            if split in NEEDED and missing != "skip":
                raise BadInput(
                    f"{self._where}: {split}: {shown(path)}: nothing of that name is here; get it, correct the path, "
                    "or say --missing skip, which leaves it out"
                )
            self._found.notes.append(f"split {split}: {shown(path)} is not here: left out")
        if self._absent and missing != "skip":
            raise BadInput(
                f"{self._where}: {counted(len(self._absent), 'picture')} of its lists not there: "
                f"{listed(f'{line} ({where})' for line, where in self._absent.items())}; get them, or say --missing "
                "skip, which leaves them out"
            )
        self._found.left_out += [
            (line, f"named in {where}, and not there") for line, where in sorted(self._absent.items())
        ]

    def _about_left_away(self) -> Iterator[str]:
        for beginning, count in sorted(self._paths.left_away.items()):
            verb = "begins" if count == 1 else "begin"
            yield f"{counted(count, 'path')} {verb} with {shown(beginning)}, which is not here: taken without it"


def _split_word(name: str) -> str:
    """The folder beside or below the last `images` above a picture that is named as a split; empty for none."""
    parts = name.split("/")[:-1]
    if _IMAGES not in parts:
        return ""
    at = len(parts) - 1 - parts[::-1].index(_IMAGES)
    near = parts[at + 1 : at + 2] + parts[max(at - 1, 0) : at]
    return next((part for part in near if split_rank(part) is not None), "")
