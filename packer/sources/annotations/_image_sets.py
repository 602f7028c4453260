"""Image sets: the splits of a VOC data set, from the text files in `ImageSets/Main` with one image per line.

The file name of a list is the name of a split. Exceptions:
* A class list, such as `person_train.txt`, is not a split. The file name is a class followed by the name of another
  list. Each line contains an image and 1, 0 or -1.
* A list whose images are all in other lists, such as `trainval`, is ignored, so that each image has one split.
* If the remaining lists overlap, the images have no split.
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
    """The splits and classes in the lists of the folders `ImageSets`.

    Attributes:
        splits: Key of a sample -> split.
        names: The names of the splits in order. Empty: no splits.
        classes: The names of classes that have class lists.
        tables: The relative paths of the lists that were read.
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
    """Return the splits and classes in the lists of all folders `ImageSets` whose parent folder contains images.

    Args:
        tree: The data set.
        names: The relative paths to search for lists.
        images: Relative path of an image -> key, for all images.
        samples: The keys of the images that are samples.
        task: The preferred folder in `ImageSets`, `Main` or `Segmentation`. If it is absent, lists of the other folder
            or directly in `ImageSets` are read. Class lists are always read from `Main`, if present.

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
    """Return name -> key. An image has three names: its key, its path, and its path without suffix."""
    stems = {path.rpartition(".")[0]: key for path, key in images.items()}
    return {**stems, **images, **{key: key for key in images.values()}}


def _base(path: str, key: str) -> str:
    """Return the data set's folder: `VOC2012/` for the path `VOC2012/JPEGImages/1.jpg` and the key `VOC2012/1`."""
    common = os.path.commonprefix((path, key))
    return common[: common.rfind("/") + 1]


def _class_of(tree: FileTree, stem: str, lists: Mapping[str, str]) -> str | None:
    """Return the class of a class list: `person` for the stem `person_train` if a list `train` exists, else None.

    An empty list with a stem of this form gives "".
    """
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
    """Return the key of the image in a line, or None if absent. Paths are relative to `base` or to the root."""
    match = _PRESENCE.fullmatch(line)
    for name in (line, *([match[1]] if match else [])):
        path = name.removeprefix("./")
        for each in (base + path, base + path.rpartition(".")[0], path, path.rpartition(".")[0]):
            if each in known:
                return known[each]
    return None


def _disjoint(members: Mapping[str, Mapping[str, None]], notes: list[str]) -> dict[str, Mapping[str, None]]:
    """Return the lists that are splits: not empty, not contained in others. If they overlap, add a note, return {}."""
    kept = {stem: inside for stem, inside in members.items() if inside}
    for stem in sorted(kept, key=lambda stem: (-len(kept[stem]), "trainval" not in stem, stem)):
        others = set().union(*(inside for other, inside in kept.items() if other != stem))
        if others and kept[stem].keys() <= others:
            del kept[stem]
    if sum(map(len, kept.values())) > len(set().union(*kept.values())):
        notes.append(
            f"no field split: lists of ImageSets overlap: {listed(sorted(kept))}; --split NAME=FILE chooses lists"
        )
        return {}
    return kept
