"""Image sets: the lists in `ImageSets/Main`, one name a line, as splits.

A list of a class (`person_train.txt`) has the name of another list behind the class's, and 1, 0 or -1 behind each name
in it. It names no split, but a class. A list that holds nothing but what others hold (`trainval`) is passed over, so
that each picture has one split. Where lists overlap all the same there are no splits.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from packer.sources._parse.folder_layout import ordered_splits
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources._trees.file_tree import FileTree
from packer.sources._voc.files_by_picture import role_of

UNLISTED = "unlisted"
_FOLDER = "ImageSets"
_START_BYTES = 4096
_PRESENCE = re.compile(r"(.*\S)\s+(?:-1|0|1)")


class ImageSets(NamedTuple):
    """What the lists say. splits: key -> name, names: in order; empty where there is no list.

    classes: names that lists of classes have. tables: relative paths of the lists that were read. notes: for the user.
    """

    splits: Mapping[str, str]
    names: tuple[str, ...]
    classes: frozenset[str]
    tables: tuple[str, ...]
    notes: tuple[str, ...]


NO_SETS = ImageSets({}, (), frozenset(), (), ())


def read_image_sets(
    tree: FileTree,
    names: Sequence[str],
    *,
    there: Sequence[str],
    taken: Sequence[str],
    bases: Sequence[str],
    task: str,
) -> ImageSets:
    """The lists beneath every base.

    there, taken: keys of all pictures, and of those that are samples. bases: folders that hold folders of pictures.
    task: `Main`, or `Segmentation`, which is taken first; where it is not there, the other, or lists directly in
    ImageSets. The classes are those of Main for each task. Raises BadInput for what cannot be read.
    """
    known, chosen = set(there), set(taken)
    members: dict[str, dict[str, None]] = {}
    classes: set[str] = set()
    tables, notes, absent = [], [], []
    for base in bases:
        folder, lists = _lists(names, base, task)
        if not lists:
            continue
        plain = {stem for stem in lists if _class_of(tree, stem, lists) is None}
        _, main = _lists(names, base, "Main")
        classes.update(name for stem in main if (name := _class_of(tree, stem, main)))
        if folder != task:
            notes.append(f"no lists in {_FOLDER}/{task}: those in {shown(f'{_FOLDER}/{folder}'.rstrip('/'))} are used")
        prefix = f"{base}/" if base else ""
        for stem in sorted(plain):
            tables.append(lists[stem])
            inside = members.setdefault(stem, {})
            for line in _lines(tree.read(lists[stem])):
                key = _key(line, prefix, known)
                if key is None:
                    absent.append(f"{line} ({lists[stem]})")
                elif key in chosen:
                    inside[key] = None
    if absent:
        notes.append(f"{counted(len(absent), 'line')} of lists without a picture: {listed(absent)}")
    kept = _disjoint(members, notes)
    splits = {key: stem for stem, inside in kept.items() for key in inside}
    found = ordered_splits(kept)
    if found and len(splits) < len(chosen):
        notes.append(
            f"{counted(len(chosen) - len(splits), 'picture')} in no list of {_FOLDER}/{task}: split {UNLISTED!r}"
        )
        found = (*found, UNLISTED)
    return ImageSets(splits, found, frozenset(classes), tuple(tables), tuple(notes))


def _lists(names: Sequence[str], base: str, task: str) -> tuple[str, dict[str, str]]:
    """The folder in ImageSets whose lists are taken, and these: name without suffix -> path."""
    front = f"{base}/{_FOLDER}/" if base else f"{_FOLDER}/"
    inside = [name for name in names if name.startswith(front) and name.endswith(".txt")]
    for folder in dict.fromkeys((task, "Main", "Segmentation", "")):
        start = f"{front}{folder}/" if folder else front
        lists = {
            name[len(start) : -len(".txt")]: name
            for name in inside
            if name.startswith(start) and "/" not in name[len(start) :]
        }
        if lists:
            return folder, lists
    return task, {}


def _class_of(tree: FileTree, stem: str, lists: Mapping[str, str]) -> str | None:
    """`person` of `person_train` where there is a list `train`, "" where it is empty; None for a list of no class."""
    for at in (match.start() for match in re.finditer("_", stem)):
        if at and stem[at + 1 :] in lists:
            first = _lines(tree.start(lists[stem], _START_BYTES))[:1]
            if not first:
                return ""
            return stem[:at] if _PRESENCE.fullmatch(first[0]) else None
    return None


def _lines(data: bytes) -> list[str]:
    text = data.decode("utf-8-sig", errors="surrogateescape")
    lines = (line.strip() for line in re.split("\r\n|\r|\n", text))
    return [line for line in lines if line and not line.startswith("#")]


def _key(line: str, prefix: str, known: set[str]) -> str | None:
    """The picture that a line names; None for no picture.

    A line is a key, also with a presence behind it or with a suffix, or a path from the base or the root.
    """
    match = _PRESENCE.fullmatch(line)
    for name in (line, *([match[1]] if match else [])):
        path = name.removeprefix("./")
        for key in (prefix + name, prefix + name.rpartition(".")[0], role_of(prefix + path)[1], role_of(path)[1]):
            if key in known and key != prefix:
                return key
    return None


def _disjoint(members: Mapping[str, Mapping[str, None]], notes: list[str]) -> dict[str, Mapping[str, None]]:
    """The lists that hold anything, without those whose pictures all are in others; none where they overlap."""
    kept = {stem: inside for stem, inside in members.items() if inside}
    empty = sorted(set(members) - set(kept))
    if empty:
        notes.append(f"lists without any picture here: {listed(empty)}")
    by_size = sorted(kept, key=lambda stem: (-len(kept[stem]), "trainval" not in stem, stem))
    passed = []
    for stem in by_size:
        others: set[str] = set()
        for other, inside in kept.items():
            if other != stem:
                others.update(inside)
        if others and kept[stem].keys() <= others:
            del kept[stem]
            passed.append(stem)
    if passed:
        notes.append(f"lists whose pictures are all in others, passed over: {listed(passed)}")
    if sum(map(len, kept.values())) > len(set().union(*kept.values())):
        notes.append(
            f"lists of {_FOLDER} that overlap, so that a picture would have two splits: {listed(sorted(kept))}: no "
            "field split; --split NAME=FILE says which to take"
        )
        return {}
    return kept
