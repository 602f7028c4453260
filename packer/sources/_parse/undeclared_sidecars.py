"""Undeclared sidecars: notes or refuses pictures that belong to other pictures, such as `1_mask.png` to `1.jpg`.

Without a word each would become a sample of its own, or their folders classes. Four kinds of evidence tell them:

| evidence                                                        | such as                                      |
|-----------------------------------------------------------------|----------------------------------------------|
| names that are equal but for words which say what a file is     | `img_1.png`, `mask_1.png`; `a_gtFine_labelIds.png` |
| one name in a folder with several suffixes                      | `1.jpg`, `1.png`                             |
| two folders of the same names, named as a usual pair            | `hr/1.png`, `lr/1.png`                       |
| names with one difference, or two folders of the same names:    | `1.jpg`, `1_b.png`; `A/1.jpg`, `B/1.png`     |
| photographs in the one, flat areas of one channel in the other  |                                              |
| several folders of the same names, or the same names in every   | `A/1.png`, `B/1.png`, `label/1.png`;         |
| folder: flat areas in one that is named as a companion          | `1/t1.png`, `1/seg.png`                      |

A set is refused where a quarter of its pictures, or more, are such companions, with the `--sidecar` that pairs them;
`pairs="samples"` says that each is a sample all the same. Where names alone hint at it, a note says so.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from packer import images
from packer.errors import InvalidRequest, PackerError
from packer.files.terminal_output import shell_word
from packer.images.backends import pillow
from packer.sources._parse.folder_layout import (
    COMPANION_WITHIN,
    DEPTH_WORDS,
    is_companion,
    is_picture_role,
    is_role,
    says_labels,
    split_rank,
    words,
)
from packer.sources._parse.folder_listing import counted, shown
from packer.sources._parse.sidecar_pattern import Pattern
from packer.sources._trees.file_tree import FileTree

CHOICES = ("refuse", "samples")
_LEAST_SHARE = 0.25
_LOOKED_AT = 200  # pairs that a pattern is derived from
_MOST_WORDS = 16  # at one place of names that are equal otherwise; more are no roles
_OPENED = 6  # pairs that are opened
_FEW_VALUES = 16  # of a picture of labels
_MOST_LABEL_COLOURS = 256  # of a label map
_MANY_COLOURS = 64  # of a photograph
_USUAL_PAIRS = (
    ("x", "y"),
    ("hr", "lr"),
    ("clean", "noisy"),
    ("sharp", "blur"),
    ("sharp", "blurred"),
    ("clear", "hazy"),
    ("fgr", "pha"),
    ("gt", "noisy"),
    ("norain", "rain"),
    ("norain", "rainy"),
)
_USUAL_OTHERS = frozenset(other for _, other in _USUAL_PAIRS) - {"y"}
_USUAL_WORDS = frozenset(word for pair in _USUAL_PAIRS for word in pair if len(word) > 1)
_MOST_FOLDERS = 6  # of the same names, or names in a folder per sample
_NEARLY_ALL = 0.9
_LEAST_TOLD = 6  # pictures of the same names, or of one ending, that a note tells
_OWN_NAMES = ("key", "image", "label", "split", "files")  # of the fields of a folder's samples
_PIECE = re.compile(r"[_\-. ]+|[A-Za-z]+8bit|[A-Za-z]+|[0-9]+|[^A-Za-z0-9_\-. ]+")
_SCALE = re.compile(r"(?<=.)[_\-]?x[0-9]+$")  # behind the names of pictures in low resolution
_NO_DIGITS = str.maketrans("", "", "0123456789")
_SEPARATOR = re.compile(r"[_\-. ]")
_FIRST_WORD = re.compile(r"^[A-Za-z]+[_\-. ]+(?=.)")
_LAST_WORD = re.compile(r"(?<=.)[_\-. ]+[A-Za-z]+$")
_CAPITALISED = re.compile(r"(.*[a-z0-9])([A-Z][a-z]+)")
_NUMBERED = re.compile(r"([A-Za-z]+)([0-9]+)|([0-9]+)([A-Za-z]+)")


class Pair(NamedTuple):
    """Relative paths of a picture and of its companion. word: what the companion's name says that it is."""

    main: str
    companion: str
    word: str = "mask"
    is_fixed: bool = False  # whether every folder has a file of the companion's name


def check(
    folder: FileTree, pictures: Sequence[str], unread: Iterable[str] = (), *, may_be_classes: bool = False
) -> list[str]:
    """Notes on pictures that seem to be companions of others; raises InvalidRequest where many are.

    pictures: relative paths of all samples. unread: of pictures that are no samples, since nobody reads them.
    may_be_classes: whether folders are taken for classes by habit, which a note asks about.
    """
    everything = [*pictures, *unread]
    notes = []
    for find in (_by_roles, _by_suffix, _by_role_folders, _by_usual_folders):
        found = find(pictures if find is _by_suffix else everything)
        if found and (find is _by_role_folders or len(found) >= _LEAST_SHARE * len(everything)):
            rest = _left_over(folder, everything, found)
            raise InvalidRequest(_refusal(folder, [*found, *rest], len(everything)))
        if found:
            notes.append(
                f"{counted(len(found), 'picture')} of {len(everything)} may belong to others, such as "
                f"{shown(found[0].companion)} to {shown(found[0].main)}; each is a sample"
            )
    by_ending = _by_ending(pictures)
    by_labels = [pair for pairs in by_ending for pair in _that_show_labels(folder, pairs)]
    if by_labels and len(by_labels) >= _LEAST_SHARE * len(everything):
        raise InvalidRequest(_refusal(folder, by_labels, len(everything)))
    for found in (*_by_equal_folders(pictures), _by_equal_files(pictures)):
        named = [pair for pair in found if _says_labels(pair.companion)]
        if named and all(_is_labels(folder, pair.companion) for pair in _few(named)):
            raise InvalidRequest(_refusal(folder, found, len(everything)))
    for found in _alike(pictures):
        if len(found) >= _LEAST_SHARE * len(everything) and (shown_pairs := _that_show_labels(folder, found)):
            raise InvalidRequest(_refusal(folder, shown_pairs, len(everything)))
    return [*notes, *(_hints(folder, pictures, by_ending, may_be_classes=may_be_classes) if not notes else ())]


def _hints(
    folder: FileTree, pictures: Sequence[str], by_ending: Sequence[Sequence[Pair]], *, may_be_classes: bool
) -> list[str]:
    """Notes on names alone: one ending behind the names of nearly all others, classes of the same names."""
    most = max(by_ending, key=len, default=())
    if len(most) >= _LEAST_TOLD and 2 * len(most) >= _NEARLY_ALL * len(pictures):
        return [
            f"{len(most)} of {len(pictures)} pictures are named as another with one ending more, such as "
            f"{shown(most[0].companion)} and {shown(most[0].main)}: samples? or, if they belong to these:"
            f"{_sidecars(folder, most, most)}"
        ]
    tops = sorted({name.partition("/")[0] for name in pictures})
    if not may_be_classes or not 2 <= len(tops) <= _MOST_FOLDERS or any(name.count("/") != 1 for name in pictures):
        return []
    there: dict[str, dict[str, str]] = defaultdict(dict)
    for name in pictures:
        top, _, file = name.partition("/")
        there[_without_suffix(file)][top] = name
    full = [one for one in there.values() if len(one) == len(tops)]
    if len(full) < max(_LEAST_TOLD, _NEARLY_ALL * len(there)):
        return []
    main, *others = sorted(tops, key=lambda top: (not is_picture_role(top), is_companion(top), top))
    pairs = [Pair(one[main], one[top], top) for one in full for top in others]
    said = _sidecars(folder, pairs, pairs)
    return (
        [
            f"the folders {', '.join(map(shown, tops))} hold pictures of the same names: classes? or, if they are "
            f"parts of one sample: --classes none{said}"
        ]
        if said
        else []
    )


def _refusal(folder: FileTree, pairs: Sequence[Pair], count: int) -> str:
    few = _few(pairs, _LOOKED_AT)
    wide = {_wide_labels(folder, pair.companion): pair.companion for pair in reversed(few)}
    coloured = next((pair.companion for pair in _few(pairs) if _is_coloured_labels(folder, pair.companion)), "")
    about_wide = ""
    if "mask:uint16" in wide:
        about_wide += (
            f"; label maps of 16 bit, such as {shown(wide['mask:uint16'])}, are no depth, which is interpolated, but "
            "masks of kind mask:uint16"
        )
    if "bytes" in wide:
        about_wide += (
            f"; label maps of more than 16 bit, such as {shown(wide['bytes'])}, are no masks, and no depth, which is "
            "interpolated: convert them to 16 bit and take them as mask:uint16, or keep the files as they are with "
            "kind bytes, which no geometry moves"
        )
    about_coloured = (
        f"; label maps in colors, such as {shown(coloured)}, become masks by a table of the colors: give kind mask and "
        "--mask-colours FILE; kind bytes keeps the files as they are, which no geometry moves"
    )
    return _refused_pairs(folder, pairs, count) + about_wide + (about_coloured if coloured else "")


def _refused_pairs(folder: FileTree, pairs: Sequence[Pair], count: int) -> str:
    return (
        f"{shown(str(folder.root))}: {counted(len(pairs), 'picture')} of {count} seem to belong to others, such as "
        f"{shown(pairs[0].companion)} to {shown(pairs[0].main)}: {_say(folder, pairs)}; "
        "or --pairs samples, if all are samples"
    )


# ---- what belongs together


class _Name(NamedTuple):
    """A picture's path, and what is left of folders and stem without the words that say what it is.

    outer: the folders without those that have such a word, `test_images` and `u2net_results` alike. rank: how many
    words say a companion, less one half for a word that says a picture. in_stem: whether one of these is in the stem.
    word: those that say a companion.
    """

    path: str
    folders: tuple[str, ...]
    outer: tuple[str, ...]
    stem: tuple[str, ...]
    short_stem: tuple[str, ...]
    rank: float
    in_stem: bool
    word: str

    @classmethod
    def of(cls, path: str) -> "_Name":
        *folders, file = path.split("/")
        found: list[str] = []
        bare = tuple(rest for name in folders if (rest := "/".join(_without_roles(name, found))))
        before = len(found)
        stem = _without_roles(PurePosixPath(file).stem, found)
        in_stem = any(map(is_companion, found[before:]))
        companions = [word for word in found if is_companion(word)]
        rank = len(companions) - 0.5 * any(map(is_picture_role, found))
        outer = tuple(name for name in folders if not is_role(name))
        return cls(path, bare, outer, stem, _cut_behind_role(file), rank, in_stem, " ".join(companions))


def _tokens(name: str) -> list[str]:
    """Words and numbers of a name, without what separates them: `mask0` and `a0Mask` are two, `leftImg8bit` one."""
    found = []
    for piece in re.split(r"[_\-. ]+", name):
        ending = _CAPITALISED.fullmatch(piece)
        if ending and is_companion(ending[2]):
            found += [*_tokens(ending[1]), ending[2]]
            continue
        match = _NUMBERED.fullmatch(piece)
        found += [group for group in match.groups() if group] if match else [piece]
    return [token for token in found if token]


def _without_roles(name: str, found: list[str]) -> tuple[str, ...]:
    """The tokens that say no role; those that do are added to `found`."""
    rest = []
    for token in _tokens(name):
        ending = next((token[end:] for end in range(2, len(token)) if _is_split_and_role(token, end)), "")
        if ending:  # trainannot
            found.append(ending)
            rest.append(token.removesuffix(ending))
        elif is_role(token):
            found.append(token)
        else:
            rest.append(token)
    return tuple(rest)


def _is_split_and_role(token: str, end: int) -> bool:
    return token[end:].islower() and split_rank(token[:end]) is not None and is_companion(token[end:])


def _cut_behind_role(file: str) -> tuple[str, ...]:
    """The stem's tokens up to the first that says a companion, where only words follow: `a_gtFine_color`."""
    tokens = _tokens(PurePosixPath(file).stem)
    at = next((number for number, token in enumerate(tokens) if is_companion(token)), len(tokens))
    rest = tokens[at:]
    return tuple(token for token in (tokens[:at] if all(map(str.isalpha, rest)) else tokens) if not is_role(token))


def _by_roles(pictures: Sequence[str]) -> list[Pair]:
    """Names that are equal but for words that say what a file is."""
    distinct = {name.translate(_NO_DIGITS) for name in pictures}  # few, where names are numbered
    if not any(map(COMPANION_WITHIN.search, distinct)):  # as of most sets, which is quickly said
        return []
    names = list(map(_Name.of, pictures))
    found = max(_in_places(names, lambda name: name.folders), _in_places(names, lambda name: name.outer), key=len)
    return found or _by_stem_roles(names)


_Words = tuple[str, ...]


def _in_places(names: Sequence[_Name], place: Callable[[_Name], _Words]) -> list[Pair]:
    groups: dict[tuple[_Words, _Words], list[_Name]] = defaultdict(list)
    for name in names:
        groups[place(name), name.stem].append(name)
    mains = {key: _main(group) for key, group in groups.items()}
    found = []
    for name in names:
        for stem in (name.stem, name.short_stem, *_without_last_word(name)):
            main = mains.get((place(name), stem))
            if main is not None and int(name.rank + 0.5) > int(main.rank + 0.5):
                found.append(Pair(main.path, name.path, name.word))
                break
    return found


def _without_last_word(name: _Name) -> list[_Words]:
    """Of `train_labels/1_L.png`, whose folder says the role, the stem without the word that says it again."""
    is_said = name.rank >= 1 and not name.in_stem and len(name.stem) > 1 and name.stem[-1].isalpha()
    return [name.stem[:-1]] if is_said else []


def _by_stem_roles(names: Sequence[_Name]) -> list[Pair]:
    """The same for files in folders of any names: `a/img_1.jpg`, `b/mask_1.png`; one folder for each role."""
    groups: dict[tuple[int, tuple[str, ...]], list[_Name]] = defaultdict(list)
    for name in names:
        groups[name.path.count("/"), name.stem].append(name)
    found, places = [], set()
    for group in groups.values():
        mains = [name for name in group if not name.in_stem]
        if len(mains) == 1 and group[0].stem:
            for name in group:
                if name.in_stem:
                    places.add((mains[0].path.rpartition("/")[0], name.path.rpartition("/")[0]))
                    found.append(Pair(mains[0].path, name.path, name.word))
    return found if len(places) == 1 else []


def _main(group: Sequence[_Name]) -> _Name:
    """What the others belong to: what says least of belonging; a picture by its name, a JPEG among equals."""
    return min(group, key=lambda name: (name.rank, not _is_jpeg(name.path), name.path))


def _is_jpeg(name: str) -> bool:
    return name.lower().endswith((".jpg", ".jpeg"))


def _without_suffix(name: str) -> str:
    dot = name.rfind(".")
    return name[:dot] if dot > name.rfind("/") + 1 else name


def _by_suffix(pictures: Sequence[str]) -> list[Pair]:
    """`1.jpg` and `1.png`."""
    if len(set(map(_without_suffix, pictures))) == len(pictures):  # as of most sets, which is quickly said
        return []
    first: dict[str, str] = {}
    found = []
    for name in sorted(pictures, key=lambda name: not _is_jpeg(name)):
        stem = _without_suffix(name)
        if stem in first:
            found.append(Pair(first[stem], name))
        first.setdefault(stem, name)
    return found


def _by_role_folders(pictures: Sequence[str]) -> list[Pair]:
    """All pictures in folders named as pictures and as what belongs to them, whatever the files are named."""
    if not all(any(map(is_role, folder.split("/"))) for folder in _folders(pictures)):
        return []
    groups: dict[tuple[str, ...], list[_Name]] = defaultdict(list)
    for name in map(_Name.of, pictures):
        groups[name.folders].append(name)
    found = []
    for group in groups.values():
        mains = [name for name in group if any(map(is_picture_role, name.path.split("/")[:-1]))]
        found += [
            Pair(mains[min(number, len(mains) - 1)].path, name.path, name.word)
            for number, name in enumerate(name for name in group if mains and name.rank >= 1)
        ]
    return (_by_roles(pictures) or found) if found else []


def _folders(pictures: Iterable[str]) -> set[str]:
    """The folders that pictures lie in."""
    return {name.rpartition("/")[0] for name in pictures}


def _by_ending(pictures: Sequence[str]) -> list[list[Pair]]:
    """For each ending that names have behind another's in their folder, such as `_1stHO` or `_2`, the pairs."""
    stems: dict[str, dict[str, str]] = defaultdict(dict)
    for name in pictures:
        place, _, stem = _without_suffix(name).rpartition("/")
        stems[place].setdefault(stem, name)
    found: dict[str, list[Pair]] = defaultdict(list)
    for there in stems.values():
        for stem, name in there.items():
            places = [match.start() for match in _SEPARATOR.finditer(stem, 1)]
            cut = next((at for at in reversed(places) if stem[:at] in there), 0)
            if cut:
                ending = stem[cut:]
                found[ending].append(Pair(there[stem[:cut]], name, ending.strip("_-. ") or "mask"))
    least = len(pictures) // 20
    return [pairs for pairs in sorted(found.values(), key=len, reverse=True) if len(pairs) > least][:_OPENED]


def _by_equal_folders(pictures: Sequence[str]) -> Iterator[list[Pair]]:
    """For each level of folders that hold the same names and of which one is named as a companion, the pairs."""
    folders = [name.split("/") for name in _folders(pictures) if name]
    for level in range(max(map(len, folders), default=0)):
        names = sorted({parts[level] for parts in folders if len(parts) > level})
        mains = [name for name in names if not is_companion(name)]
        if not 2 <= len(names) <= _MOST_FOLDERS or not mains or len(mains) == len(names):
            continue
        places: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for name in pictures:
            parts = _without_suffix(name).split("/")
            if len(parts) > level + 1:
                places["/".join(parts[:level]), "/".join(parts[level + 1 :])][parts[level]] = name
        full = [there for there in places.values() if len(there) == len(names)]
        if full and len(full) >= _NEARLY_ALL * len(places):
            yield [Pair(there[mains[0]], there[name], name) for there in full for name in names if name != mains[0]]


def _by_equal_files(pictures: Sequence[str]) -> list[Pair]:
    """`1/t1.png` and `1/seg.png`: the same few names in every folder, of which one is named as a companion."""
    folders: dict[str, dict[str, str]] = defaultdict(dict)
    for name in pictures:
        place, _, file = name.rpartition("/")
        folders[place][file] = name
        if len(folders[place]) > _MOST_FOLDERS:
            return []
    files = sorted(set.union(*map(set, folders.values()))) if folders else []
    mains = [file for file in files if not is_companion(PurePosixPath(file).stem)]
    full = [there for there in folders.values() if len(there) == len(files)]
    if len(folders) < 3 or not mains or len(mains) == len(files) or len(full) < _NEARLY_ALL * len(folders):
        return []
    return [
        Pair(there[mains[0]], there[file], PurePosixPath(file).stem, is_fixed=True)
        for there in full
        for file in files
        if file != mains[0]
    ]


def _left_over(folder: FileTree, pictures: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """More pairs, by the numbers in names, of a folder of labels beside that of the pictures: `21_manual1.png`."""
    mains = {pair.main for pair in pairs}
    taken = mains | {pair.companion for pair in pairs}
    numbered = {(name.rpartition("/")[0], number): name for name in mains if (number := _number_in(name)) is not None}
    folders = _folders(mains)
    places: dict[str, list[str]] = defaultdict(list)
    for name in pictures:
        if name not in taken:
            places[name.rpartition("/")[0]].append(name)
    found = []
    for place, names in places.items():
        above, _, last = place.rpartition("/")
        if place in folders or is_picture_role(last) or any(split_rank(word) is not None for word in words(last)):
            continue
        for other in sorted(one for one in folders if one.rpartition("/")[0] == above):
            fit = [Pair(numbered[key], name, last) for name in names if (key := (other, _number_in(name))) in numbered]
            if len(fit) >= _NEARLY_ALL * len(names) and len({pair.main for pair in fit}) == len(fit):
                show = all(
                    pillow.is_readable(pair.companion) or _is_labels(folder, pair.companion) for pair in _few(fit)
                )
                found += fit if show else []
                break
    return found


def _number_in(name: str) -> int | None:
    """The first number in a file's stem."""
    match = re.search("[0-9]+", PurePosixPath(name).stem)
    return int(match[0]) if match else None


def _by_two_folders(
    pictures: Sequence[str], cut: Callable[[str], str]
) -> Iterator[tuple[list[str], list[dict[str, str]]]]:
    """For each level of folders with two names: these, and folder -> path of the pictures that only differ in it.

    cut: what is compared of a stem.
    """
    folders = [name.split("/") for name in _folders(pictures) if name]
    for level in range(max(map(len, folders), default=0)):
        names = sorted({parts[level] for parts in folders if len(parts) > level})
        if len(names) != 2:
            continue
        places: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
        for name in pictures:
            parts = _without_suffix(name).split("/")
            if len(parts) > level + 1:
                key = "/".join(parts[:level]), "/".join(parts[level + 1 : -1]), cut(parts[-1])
                places[key].setdefault(parts[level], name)
        yield names, [there for there in places.values() if len(there) == 2]


def _by_usual_folders(pictures: Sequence[str]) -> list[Pair]:
    """`hr/1.png` and `lr/1.png`: all pictures in two folders that are named as a usual pair."""
    for folders, both in _by_two_folders(pictures, str):
        named = {folder.lower(): folder for folder in folders}
        for main, other in _USUAL_PAIRS:
            if both and named.keys() == {main, other}:
                return [Pair(there[named[main]], there[named[other]], named[other]) for there in both]
    return max(_by_usual_words(pictures), _by_usual_stems(pictures), key=len)


def _by_usual_stems(pictures: Sequence[str]) -> list[Pair]:
    """`1_HR.png` and `1_LR.png`: a word of a usual pair in names of one folder that are equal otherwise."""
    distinct = "\n".join({name.translate(_NO_DIGITS).lower() for name in pictures})  # few, where names are numbered
    if not any(word in distinct for word in _USUAL_WORDS):  # as of most sets, which is quickly said
        return []
    named: dict[tuple[str, tuple[str, ...]], dict[str, str]] = defaultdict(dict)
    for name in pictures:
        place, _, stem = _without_suffix(name).rpartition("/")
        tokens = [token.lower() for token in _tokens(_SCALE.sub("", stem))]
        said = [token for token in tokens if token in _USUAL_WORDS]
        if len(said) == 1:
            named[place, tuple(token for token in tokens if token != said[0])].setdefault(said[0], name)
    return [
        Pair(there[main], there[other], other)
        for there in named.values()
        for main, other in _USUAL_PAIRS
        if main in there and other in there
    ]


def _by_usual_words(pictures: Sequence[str]) -> list[Pair]:
    """`DIV2K_train_HR/1.png` and `DIV2K_train_LR_bicubic/X2/1x2.png`: a word of a usual pair in names of folders."""
    tops = {top: frozenset(token.lower() for token in _tokens(top)) for top in _top_folders(pictures)}
    found = []
    for main, other in _USUAL_PAIRS:
        if len(main) == 1:  # x and y say too little among other words
            continue
        others = {rest - {other}: top for top, rest in tops.items() if other in rest}
        partners = {
            top: partner
            for top, rest in tops.items()
            if main in rest
            for words_of, partner in others.items()
            if rest - {main} <= words_of
        }
        if not partners:
            continue
        stems = {(top, PurePosixPath(name).stem): name for name in pictures if (top := _top(name)) in partners}
        mains_of = {partner: top for top, partner in partners.items()}
        for name in pictures:
            stem = _SCALE.sub("", PurePosixPath(name).stem)
            paired_with = stems.get((mains_of.get(_top(name), ""), stem))
            if paired_with is not None:
                found.append(Pair(paired_with, name, other))
    return found


def _top(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _top_folders(pictures: Iterable[str]) -> list[str]:
    return sorted({_top(name) for name in pictures} - {""})


# ---- what the pictures show


def _alike(pictures: Sequence[str]) -> Iterator[list[Pair]]:
    """Pairs that may be: two folders of the same names, or names with the same difference; either order."""
    for cut in (str, _without_last, _without_first):
        for folders, both in _by_two_folders(pictures, cut):
            for main, other in (folders, folders[::-1]):
                yield [Pair(there[main], there[other]) for there in both]
    differences: dict[tuple[str, str, bool], list[Pair]] = defaultdict(list)
    placed = [(*_without_suffix(name).rpartition("/")[::2], name) for name in pictures]
    for is_ending in (True, False):
        parted = [(folder, stem, *_parted(stem, is_ending=is_ending), name) for folder, stem, name in placed]
        rests = Counter((folder, rest) for folder, _, rest, difference, _ in parted if difference)
        if max(rests.values(), default=0) < 2 and not any((folder, stem) in rests for folder, stem, _ in placed):
            continue  # as of most sets: no two names differ in a word alone
        groups: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for folder, stem, rest, difference, name in parted:
            groups[folder, rest][difference] = name
            if difference:
                groups[folder, stem].setdefault("", name)
        for group in (group for group in groups.values() if len(group) <= _MOST_WORDS):
            for main, path in group.items():
                for other, companion in group.items():
                    if main != other and path != companion:
                        differences[main, other, is_ending].append(Pair(path, companion, other.strip("_-. ") or "mask"))
    yield from sorted(differences.values(), key=len, reverse=True)[:_OPENED]


def _parted(stem: str, *, is_ending: bool) -> tuple[str, str]:
    """A name without its last or its first word, and that word with its separator; numbers are no words here."""
    if stem[-1:].isdigit() if is_ending else stem[:1].isdigit():  # as of most names, which is quickly said
        return stem, ""
    match = (_LAST_WORD if is_ending else _FIRST_WORD).search(stem)
    return (
        (stem.replace(match[0], "", 1) if not is_ending else stem[: match.start()], match[0]) if match else (stem, "")
    )


def _without_last(stem: str) -> str:
    return _parted(stem, is_ending=True)[0]


def _without_first(stem: str) -> str:
    return _parted(stem, is_ending=False)[0]


def _few(pairs: Sequence[Pair], most: int = _OPENED) -> Sequence[Pair]:
    """At most so many of them, from all over."""
    return pairs[:: max(1, len(pairs) // most)][:most]


def _says_labels(name: str) -> bool:
    """Whether a folder or the name of a file says a companion."""
    return any(map(is_companion, _without_suffix(name).split("/")))


def _wide_labels(folder: FileTree, name: str) -> str:
    """The kind of a file that has more than 8 bit and is named as labels, as `gtFine/1_instanceIds.png` is; else empty.

    It is mask:uint16, or bytes where it holds more than 16 bit, signed numbers or fractions.
    """
    if not says_labels(_without_suffix(name)):
        return ""
    try:
        header = images.sniff(folder.read(name))
    except PackerError:
        return ""
    if header.dtype == "uint8" or header.channels != 1:
        return ""
    return "mask:uint16" if header.dtype == "uint16" else "bytes"


def _is_coloured_labels(folder: FileTree, name: str) -> bool:
    """Whether a file is named as labels and has a few colours alone, as of CamVid."""
    if not says_labels(_without_suffix(name)):
        return False
    try:
        data = folder.read(name)
        header = images.sniff(data)
        if header.channels < 3 or header.palette or header.lossy:
            return False
        pixels = images.decode(data, "image")
    except PackerError:
        return False
    packed = pixels.reshape(-1, 3).astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
    is_gray = (pixels == pixels[..., :1]).all()
    return not is_gray and len(np.unique(packed)) <= _MOST_LABEL_COLOURS


def _that_show_labels(folder: FileTree, pairs: Sequence[Pair]) -> Sequence[Pair]:
    """The pairs, where the first of each is a photograph and the other one flat areas; few are opened."""
    few = _few(pairs)
    return (
        pairs
        if few and all(_is_labels(folder, pair.companion) and _is_photo(folder, pair.main) for pair in few)
        else ()
    )


def _is_labels(folder: FileTree, name: str) -> bool:
    try:
        return len(np.unique(images.decode(folder.read(name), "mask"))) <= _FEW_VALUES
    except PackerError:  # what cannot be read is no evidence; packing it says what is wrong
        return False


def _is_photo(folder: FileTree, name: str) -> bool:
    try:
        data = folder.read(name)
        header = images.sniff(data)
        if header.channels < 3 or header.palette:
            return False
        colours = images.decode(data, "image").reshape(-1, 3)
    except PackerError:
        return False
    return len(np.unique(colours, axis=0)) > _MANY_COLOURS


# ---- what to type


def _say(folder: FileTree, pairs: Sequence[Pair]) -> str:
    """The options that pack the set, or why none does."""
    needs_pillow = any(pillow.is_readable(name) for pair in pairs for name in (pair.main, pair.companion))
    decode = " --decode-with pillow" if needs_pillow else ""
    tops = {pair.main.partition("/")[0] for pair in pairs}
    top = tops.pop() if len(tops) == 1 else ""
    inner = {pair.main.split("/")[1] for pair in pairs} if all(pair.main.count("/") > 1 for pair in pairs) else set()
    below = ""
    if top and inner and split_rank(top) is None:
        seen = [Pair(pair.main.removeprefix(f"{top}/"), _seen_from(top, pair.companion), pair.word) for pair in pairs]
        layout = " --layout split" if all(split_rank(name) is not None for name in inner) else ""
        if sidecars := _sidecars(folder, pairs, seen):
            below = f"packer convert {shown(shell_word(str(folder.root / top)))} PACK{layout}{sidecars}{decode}"
        if below and layout:
            return f"say {below}, with the field split"
    sidecars = _sidecars(folder, pairs, pairs)
    if not sidecars:
        return _no_pattern(pairs)
    return f"say {f'{_layout(pairs)}{sidecars}{decode}'.strip()}" + (
        f"; or {below}, if the folders in {shown(top)} are classes" if below else ""
    )


def _seen_from(top: str, companion: str) -> str:
    return companion.removeprefix(f"{top}/") if companion.startswith(f"{top}/") else f"../{companion}"


def _no_pattern(pairs: Sequence[Pair]) -> str:
    main, companion = pairs[0].main, pairs[0].companion
    return (
        f"no --sidecar pattern pairs them, as their names do not follow from those of their pictures: rename or link "
        f"{shown(companion)} by the name of its picture, such as "
        f"{shown(str(PurePosixPath(companion).with_stem(PurePosixPath(main).stem)))}, and merge several masks of one "
        "picture into one"
    )


def _layout(pairs: Sequence[Pair]) -> str:
    """The option that says what the folders of the pictures are; none where they are classes, or there are none."""
    mains = {pair.main for pair in pairs}
    tops = Counter(name.partition("/")[0] for name in mains if "/" in name)
    if not tops:
        return ""
    shared = set.intersection(*(set(words(name)) for name in tops)) if len(tops) > 1 else set()
    if len(tops) > 1 and all({split_rank(name), split_rank(name, shared)} != {None} for name in tops):
        beside = all(name.count("/") > 1 for name in mains) and not any(_is_elsewhere(pair) for pair in pairs)
        return "--layout split/class" if beside else "--layout split"
    if len(tops) == 1 or max(tops.values()) == 1 or not all(map(_is_in_class, pairs)):
        return "--classes none"
    return ""


def _is_in_class(pair: Pair) -> bool:
    """Whether the picture's folder may be a class: `cat/1.jpg`, or `cat/images/1.jpg`, with its mask in the same one
    or in one that is named after it, `cat_mask/1.png`, `masks/cat/1.png`."""
    top, other = pair.main.partition("/")[0], pair.companion.partition("/")[0]
    in_one = pair.main.count("/") > 1 and top == other
    is_named_after = not is_role(top) and tuple(_tokens(top)) == _without_roles(other, [])
    is_below_role = is_companion(other) and not is_role(top) and pair.companion.split("/")[1:2] == [top]
    return in_one or is_named_after or is_below_role or not _is_elsewhere(pair)


def _is_elsewhere(pair: Pair) -> bool:
    """Whether the companion lies in another folder, so that the picture's says a role and no class."""
    return pair.main.rpartition("/")[0] != pair.companion.rpartition("/")[0]


def _sidecars(folder: FileTree, pairs: Sequence[Pair], seen: Sequence[Pair]) -> str:
    """The options that pair them, empty where no pattern does. seen: the pairs from the folder that is to be given."""
    step = max(1, len(pairs) // _LOOKED_AT)
    pairs, seen = pairs[::step], seen[::step]
    patterns = _patterns(seen)
    said, taken = "", list[str]()
    fits = {
        text: [pair for pair, one in zip(pairs, seen, strict=True) if text in _candidates(one)] for text in patterns
    }
    kinds = {text: _kind(folder, fit) for text, fit in fits.items()}
    if set(kinds.values()) != {"bytes"}:  # of label maps in colours: no samples by themselves where they lie outside
        kinds = {text: kind for text, kind in kinds.items() if kind != "bytes" or not text.startswith("../")}
    for text, kind in kinds.items():
        is_sole = kind not in ("image", "bytes") and len(kinds) == 1
        word = fits[text][0].word
        usual = kind.partition(":")[0]
        name = usual if is_sole else _field_name(word if word in _USUAL_OTHERS else _last_word(text) or word)
        if name in _OWN_NAMES:
            name = usual
        taken.append(name)
        name += str(taken.count(name)) if taken.count(name) > 1 else ""
        said += shown(f" --sidecar '{name}={text}:{kind}'")
    return said


def _last_word(pattern: str) -> str:
    """What tells a pattern from others: its last word of three letters or more."""
    literal = re.sub(r"\{[^}=]*=?([^}]*)\}", r"\1", pattern.rpartition(".")[0])
    return next(reversed(re.findall("[A-Za-z]{3,}", literal)), "")


def _patterns(pairs: Sequence[Pair]) -> list[str]:
    """The patterns that together name the companions of nearly all; none where half are left over."""
    mains = sorted({pair.main for pair in pairs})
    offered = [_candidates(pair) for pair in pairs]
    left = set(range(len(pairs)))
    chosen: list[str] = []
    while left:
        counts = Counter(text for number in left for text in offered[number])
        places = {text: at for number in left for at, text in enumerate(offered[number])}
        usable = (
            text for text in counts if not any(_matches(text, main) for main in mains[:: max(1, len(mains) // 20)])
        )
        text = min(usable, key=lambda text: (-counts[text], places[text]), default=None)
        if text is None or 20 * counts[text] < len(mains) or (2 * counts[text] < len(mains) and not chosen):
            break
        chosen.append(text)
        left = {number for number in left if text not in offered[number]}
    if len(chosen) > 1:  # of which each names the files of other pictures: one field, and no pattern for it
        mains_of = [
            {pair.main for pair, texts in zip(pairs, offered, strict=True) if text in texts} for text in chosen[:2]
        ]
        if not mains_of[0] & mains_of[1]:
            return []
    return chosen if 2 * len(left) < len(pairs) else []


def _matches(text: str, main: str) -> bool:
    return Pattern(text).matches(main) if "{" in text else main.endswith(text)


def _candidates(pair: Pair) -> list[str]:
    """Patterns that give the companion of this picture, the simplest first."""
    folder, _, file = pair.companion.rpartition("/")
    main_folder, _, main_file = pair.main.rpartition("/")
    stem = PurePosixPath(main_file).stem
    other, suffix = PurePosixPath(file).stem, PurePosixPath(file).suffix
    found = []
    if pair.is_fixed and folder == main_folder:
        found.append(f"{{folder}}/{file}")
    if folder == main_folder and other.startswith(stem):
        found.append(other.removeprefix(stem) + suffix)
    for place in _folder_patterns(main_folder, folder):
        for name in _stem_patterns(stem, other):
            text = f"{place}{name}{suffix}"
            if "{" in text:
                found.append(text)
    return [text for text in found if "{" not in text or _gives(text, pair)]


def _gives(text: str, pair: Pair) -> bool:
    try:
        return Pattern(text).path(pair.main, PurePosixPath(pair.main).stem) == pair.companion
    except InvalidRequest:
        return False


def _folder_patterns(main: str, other: str) -> Iterator[str]:
    if not main and not other:
        yield ""
        return
    parts, others = main.split("/"), other.split("/")
    if other == main:
        yield "{folder}/"
        return
    if main and other.endswith(f"/{main}"):
        yield f"{other.removesuffix(main)}{{folder}}/"
    if len(parts) > 1 and others[0] == parts[0]:
        yield f"{{top}}/{'/'.join(others[1:])}/"
    yield f"{other}/"
    if main and other.startswith(main):
        yield f"{{folder}}{other.removeprefix(main)}/"
    if len(parts) > 1 and others[-1] == parts[-1]:
        yield f"{'/'.join(others[:-1])}/{{parent}}/"
    if len(parts) <= len(others):
        below = "".join(f"{name}/" for name in others[len(parts) :])
        differing = [(old, new) for old, new in zip(parts, others, strict=False) if old != new]
        if main and len(differing) == 1:
            old, new = differing[0]
            if inner := _inner_difference(old, new):
                yield f"{{folder:{inner[0]}={inner[1]}}}/{below}"
            yield f"{{folder:{old}={new}}}/{below}"


def _inner_difference(old: str, new: str) -> tuple[str, str] | None:
    """What tells `train_images` from `train_masks`: images, masks; None where it is all, or nothing on one side."""
    pieces, others = _PIECE.findall(old), _PIECE.findall(new)
    first, last = _shared_ends(pieces, others)
    before, after = "".join(pieces[first : len(pieces) - last]), "".join(others[first : len(others) - last])
    return (before, after) if before and after and first + last else None


def _shared_ends(pieces: Sequence[str], others: Sequence[str]) -> tuple[int, int]:
    """How many of the first, and of the last that are left, are equal."""
    most = min(len(pieces), len(others))
    first = next((at for at in range(most) if pieces[at] != others[at]), most)
    last = next((at for at in range(most - first) if pieces[-1 - at] != others[-1 - at]), most - first)
    return first, last


def _stem_patterns(stem: str, other: str) -> Iterator[str]:
    for match in re.finditer(f"(?={re.escape(stem)})", other):  # 0 in 0000 is at four places
        yield f"{other[: match.start()]}{{stem}}{other[match.start() + len(stem) :]}"
    pieces, others = _PIECE.findall(stem), _PIECE.findall(other)
    first, last = _shared_ends(pieces, others)
    old, new = "".join(pieces[first : len(pieces) - last]), "".join(others[first : len(others) - last])
    if all(map(is_role, _tokens(other))):  # image.jpg and mask.png in a folder per sample
        yield other
    if old and not re.search("[0-9](?!bit)", old):  # a number is of one picture
        yield f"{{stem:{old}={new}}}"
    if not old and first and last:  # an insertion, a_1 and a_mask_1
        old = pieces[first - 1]
        yield f"{{stem:{old}={old}{new}}}"


def _kind(folder: FileTree, pairs: Sequence[Pair]) -> str:
    """mask, mask:uint16, depth or image, by the word and by the files, bytes for label maps in colours or of more than
    16 bit; mask where none can be read.

    Depth is interpolated by a geometry, which makes other labels of labels.
    """
    is_depth = bool(DEPTH_WORDS & {word for pair in pairs for word in words(pair.word)})
    for pair in pairs[:_OPENED]:
        try:
            data = folder.read(pair.companion)
            header = images.sniff(data)
            if header.dtype != "uint8":
                if header.channels > 1:
                    return "image"
                return (not is_depth and _wide_labels(folder, pair.companion)) or "depth"
            if is_depth and header.channels == 1:
                return "depth"
            if _is_coloured_labels(folder, pair.companion):
                return "bytes"
            images.decode(data, "mask")
        except PackerError:
            if _is_photo_like(folder, pair.companion):
                return "image"
    return "depth" if is_depth else "mask"


def _is_photo_like(folder: FileTree, name: str) -> bool:
    """Whether it is a picture of colours, which a mask is not."""
    try:
        return images.sniff(folder.read(name)).channels >= 3
    except PackerError:
        return False


def _field_name(word: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_")
    return name if name and name[0].isalpha() else "added"
