"""Pairs: pictures that belong to other pictures, told by their names: `1_mask.png` beside `1.jpg`.

Without a word each would become a sample of its own. A set is refused where a quarter of its pictures, or more, are
such companions; `pairs="samples"` says that each is a sample all the same.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from packer.errors import InvalidRequest
from packer.sources._parse.listing import counted, shown
from packer.sources._parse.role_words import is_companion, is_picture_role, words

CHOICES = ("refuse", "samples")
_LEAST_SHARE = 0.25
_LAST = re.compile(r"(?P<stem>.+)(?P<ending>[_\-. ]+[A-Za-z]+)")
_FIRST = re.compile(r"(?P<word>[A-Za-z]+)(?P<rest>[_\-. ]*.+)")


def check(root: Path, pictures: Sequence[str]) -> list[str]:
    """Notes on pictures that seem to be companions of others; raises InvalidRequest where many are.

    pictures: relative paths of all samples.
    """
    notes = []
    for find in (_by_folder, _by_ending, _by_suffix, _by_beginning):
        found = list(find(pictures))
        if found:
            notes.append(
                f"{counted(len(found), 'picture')} of {len(pictures)} may belong to others, such as "
                f"{shown(found[0][1])} to {shown(found[0][0])}; each is a sample"
            )
        if found and len(found) >= _LEAST_SHARE * len(pictures):
            picture, companion, say = found[0]
            raise InvalidRequest(
                f"{shown(str(root))}: {counted(len(found), 'picture')} of {len(pictures)} seem to belong to others, "
                f"such as {shown(companion)} to {shown(picture)}: {shown(say)}; or --pairs samples, if all are samples"
            )
    return notes


_Found = Iterable[tuple[str, str, str]]  # picture, its companion, what to type


def _by_folder(pictures: Sequence[str]) -> _Found:
    """`images/a/1.jpg` and `masks/a/1.png`: paths that differ in one folder, whose names are roles."""
    places: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for name in pictures:
        folders = name.split("/")[:-1]
        for number, folder in enumerate(folders):
            before, behind = "/".join(folders[:number]), "/".join(folders[number + 1 :])
            if is_picture_role(folder) or is_companion(folder):
                places[before, behind, PurePosixPath(name).stem].append((folder, name))
    for (before, behind, _), there in places.items():
        main = next((pair for pair in there if is_picture_role(pair[0])), None)
        for folder, name in there if main else ():
            if main and is_companion(folder):
                top = "{top}/" if before else ""
                path = f"{top}{folder}/{'{parent}/' if behind else ''}{{stem}}{PurePosixPath(name).suffix}"
                is_deep = before.count("/") + behind.count("/") > 0 or (before and behind)
                say = "say where with --sidecar" if is_deep else f"say --sidecar '{_kind(folder, path)}'"
                yield main[1], name, say


def _by_ending(pictures: Sequence[str]) -> _Found:
    """`1.jpg` and `1_mask.png`."""
    stems = _stems(pictures)
    for name in pictures:
        path = PurePosixPath(name)
        match = _LAST.fullmatch(path.stem)
        if match and is_companion(match["ending"]):
            picture = stems.get(str(path.with_name(match["stem"])))
            if picture:
                yield picture, name, f"say --sidecar '{_kind(match['ending'], match['ending'] + path.suffix)}'"


def _by_suffix(pictures: Sequence[str]) -> _Found:
    """`1.jpg` and `1.png`."""
    first: dict[str, str] = {}
    for name in sorted(pictures, key=lambda name: not name.lower().endswith((".jpg", ".jpeg"))):
        stem = str(PurePosixPath(name).with_suffix(""))
        if stem in first:
            yield first[stem], name, f"say --sidecar 'mask={PurePosixPath(name).suffix}:mask'"
        first.setdefault(stem, name)


def _by_beginning(pictures: Sequence[str]) -> _Found:
    """`img_1.png` and `mask_1.png`."""
    mains = {}
    companions = []
    for name in pictures:
        path = PurePosixPath(name)
        match = _FIRST.fullmatch(path.stem)
        if match and is_companion(match["word"]):
            companions.append((str(path.with_name(match["rest"])), match["word"], name))
        elif match and is_picture_role(match["word"]):
            mains[str(path.with_name(match["rest"]))] = name
    for rest, word, name in companions:
        if rest in mains:
            ending = f"_{word}{PurePosixPath(name).suffix}"
            renamed = PurePosixPath(mains[rest]).stem + ending
            yield mains[rest], name, f"say --sidecar '{_kind(word, ending)}' with that one renamed to {renamed}"


def _stems(pictures: Sequence[str]) -> dict[str, str]:
    return {str(PurePosixPath(name).with_suffix("")): name for name in pictures}


def _kind(word: str, path: str) -> str:
    """`mask=PATH:mask`, with the name and kind that the word means."""
    return f"depth={path}:depth" if {"depth", "depths"} & set(words(word)) else f"mask={path}:mask"
