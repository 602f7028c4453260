"""Image sets: the lists in `ImageSets/Main`, with one image per line, as splits.

A list of a class, such as `person_train.txt`, has the name of another list after the class, and 1, 0 or -1 after each
image. It names a class and is not a split. A list whose images are all in other lists, such as `trainval`, is ignored,
so that each image has one split. If the remaining lists overlap, images have no split.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from packer.sources._message_texts import counted, listed, shown
from packer.sources._name_words import ordered_splits
from packer.sources._trees.file_tree import FileTree

UNLISTED = "unlisted"
_START_BYTES = 4096
_LIST = re.compile(r"(?P<base>(?:.*/)?)ImageSets/(?:(?P<folder>[^/]+)/)?(?P<name>[^/]+)\.txt", re.DOTALL)
_PRESENCE = re.compile(r"(.*\S)\s+(?:-1|0|1)")


class ImageSets(NamedTuple):
    """The content of the lists.

    Attributes:
        splits: Key -> split.
        names: The splits in order; empty without lists.
        classes: Names of classes that have lists.
        tables: Relative paths of the lists that were read.
        notes: Notes for the user.
    """

    splits: Mapping[str, str]
    names: tuple[str, ...]
    classes: frozenset[str]
    tables: tuple[str, ...]
    notes: tuple[str, ...]


NO_SETS = ImageSets({}, (), frozenset(), (), ())


def read_image_sets(
    tree: FileTree, names: Iterable[str], *, images: Mapping[str, str], samples: Collection[str], task: str
) -> ImageSets:
    """Read the lists of all folders `ImageSets` that have images next to them.

    Args:
        tree: The files of the data set.
        names: Relative paths, in which lists are looked for.
        images: Relative path -> key of all images.
        samples: Keys of the images that are samples.
        task: The folder whose lists are preferred, `Main` or `Segmentation`. Without it, the lists of the other folder
            are read, or those directly in `ImageSets`. Classes come from `Main` for both tasks.

    Raises:
        BadInput: A list is not readable.
    """
    lists: dict[str, dict[str, dict[str, str]]] = {}  # base -> folder -> name -> relative path
    for match in filter(None, map(_LIST.fullmatch, names)):
        lists.setdefault(match["base"], {}).setdefault(match["folder"] or "", {})[match["name"]] = match[0]
    known = _known(images) if lists else {}
    bases = {_base(path, key) for path, key in images.items()} if lists else set()
    chosen = set(samples)
    members: dict[str, dict[str, None]] = {}
    classes: set[str] = set()
    tables, notes, absent = [], [], []
    for base, folders in sorted(lists.items()):
        order = [folder for folder in (task, "Main", "Segmentation", "") if folder in folders]
        if not order or base not in bases:
            continue
        if order[0] != task:
            notes.append(
                f"no lists in ImageSets/{task}: those in {shown(f'ImageSets/{order[0]}'.rstrip('/'))} are used"
            )
        main = folders["Main"] if "Main" in folders else folders[order[0]]
        classes.update(name for stem in main if (name := _class_of(tree, stem, main)))
        for stem, path in sorted(folders[order[0]].items()):
            if _class_of(tree, stem, folders[order[0]]) is not None:
                continue
            tables.append(path)
            inside = members.setdefault(stem, {})
            for line in _lines(tree.read(path)):
                key = _key(line, base, known)
                if key is None:
                    absent.append(f"{line} ({path})")
                elif key in chosen:
                    inside[key] = None
    if absent:
        notes.append(f"{counted(len(absent), 'line')} of lists without an image: {listed(absent)}")
    kept = _disjoint(members, notes)
    splits = {key: stem for stem, inside in kept.items() for key in inside}
    found = ordered_splits(kept)
    if found and len(splits) < len(chosen):
        notes.append(f"{counted(len(chosen) - len(splits), 'image')} in no list of ImageSets: split {UNLISTED!r}")
        found = (*found, UNLISTED)
    return ImageSets(splits, found, frozenset(classes), tuple(tables), tuple(notes))


def _known(images: Mapping[str, str]) -> dict[str, str]:
    """Return the key by all names that a line may have: key, path, and path without suffix."""
    stems = {path.rpartition(".")[0]: key for path, key in images.items()}
    return {**stems, **images, **{key: key for key in images.values()}}


def _base(path: str, key: str) -> str:
    """Return the folder that contains the folder of an image: the key lacks the latter."""
    common = os.path.commonprefix((path, key))
    return common[: common.rfind("/") + 1]


def _class_of(tree: FileTree, stem: str, lists: Mapping[str, str]) -> str | None:
    """Return `person` of `person_train` if there is a list `train`, "" if it is empty; None for a list of no class."""
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


def _key(line: str, base: str, known: Mapping[str, str]) -> str | None:
    """Return the key of the image that a line names, by its path from the folder of the lists or from the root."""
    match = _PRESENCE.fullmatch(line)
    for name in (line, *([match[1]] if match else [])):
        path = name.removeprefix("./")
        for each in (base + path, base + path.rpartition(".")[0], path, path.rpartition(".")[0]):
            if each in known:
                return known[each]
    return None


def _disjoint(members: Mapping[str, Mapping[str, None]], notes: list[str]) -> dict[str, Mapping[str, None]]:
    """Return the lists with images that no other list has; none if these overlap."""
    kept = {stem: inside for stem, inside in members.items() if inside}
    empty = sorted(set(members) - set(kept))
    if empty:
        notes.append(f"lists without images: {listed(empty)}")
    ignored = []
    for stem in sorted(kept, key=lambda stem: (-len(kept[stem]), "trainval" not in stem, stem)):
        others = set().union(*(inside for other, inside in kept.items() if other != stem))
        if others and kept[stem].keys() <= others:
            del kept[stem]
            ignored.append(stem)
    if ignored:
        notes.append(f"lists whose images are all in other lists, ignored: {listed(ignored)}")
    if sum(map(len, kept.values())) > len(set().union(*kept.values())):
        notes.append(
            f"no field split: lists of ImageSets overlap: {listed(sorted(kept))}; --split NAME=FILE chooses lists"
        )
        return {}
    return kept
