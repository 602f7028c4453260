"""Layout hints: refuses images that seem to belong to others, such as `1_mask.png` to `1.jpg`. Only names decide.

Without the refusal each file would silently become a sample, or each folder a class. Each reading below cuts the names
into a differing part and a rest; files with an equal rest are one sample. The reading that pairs most images counts:

| differing part                                                   | example                              |
|------------------------------------------------------------------|--------------------------------------|
| words that name a role: `mask`, `gt`, `depth`, `rgb`             | `img_1.png`, `mask_1.png`            |
| the words of a usual pair                                        | `hr/1.png`, `lr/1.png`               |
| a folder or the file name, if one of them names a companion      | `A/1.png`, `B/1.png`, `label/1.png`  |
| an ending that names a companion                                 | `1.png`, `1_mask0.png`               |
| the suffix                                                       | `1.jpg`, `1.png`                     |

A folder is refused if a quarter of its images are such companions. The error lists the options for each reading. If
names are equal and no word names a companion, a note lists the options.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from packer.errors import InvalidRequest
from packer.files.terminal_output import shell_word
from packer.images.backends import pillow
from packer.sources._parse.folder_layout import (
    COMPANION_WITHIN,
    DEPTH_WORDS,
    inside,
    is_companion,
    is_picture_role,
    is_role,
    says_labels,
    split_rank,
    words,
)
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources._parse.sidecar_pattern import Pattern
from packer.sources._trees.listing import Listing

CHOICES = ("refuse", "samples")
_LEAST_SHARE = 0.25
_NEARLY_ALL = 0.9
_MOST_NAMES = 6  # of folders or files that differ at one place of a path
_LEAST_TOLD = 6  # pairs in a note
_LOOKED_AT = 200  # pairs that patterns are derived from
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
_USUAL_OTHERS = frozenset(other for _, other in _USUAL_PAIRS)
_DEGRADED = frozenset(("bicubic", "unknown", "mild", "wild", "difficult"))  # next to `lr`
_SCALE = re.compile(r"[_\-]?x[0-9]+$")  # behind the names of images in low resolution
_KINDS = {".txt": "text", ".xml": "text", ".json": "json"}
_PICTURES = re.compile(r"(?i)\.(jpe?g|png|ppm|bmp|pgm|tiff?|webp)")
_PIECE = re.compile(r"[_\-. ]+|[A-Za-z]+8bit|[A-Za-z]+|[0-9]+|[^A-Za-z0-9_\-. ]+")
_NO_DIGITS = str.maketrans("", "", "0123456789")
_CAPITALISED = re.compile(r"(.*[a-z0-9])([A-Z][a-z]+)")
_NUMBERED = re.compile(r"([A-Za-z]+)([0-9]+)|([0-9]+)([A-Za-z]+)")

_Words = tuple[str, ...]


class Pair(NamedTuple):
    """Relative paths of an image and of a file that belongs to it."""

    main: str
    companion: str

    @property
    def said(self) -> set[str]:
        """The words of the companion's path that the image's path does not have."""
        return set(words(_without_suffix(self.companion))) - set(words(_without_suffix(self.main)))


def check(
    root: Path, pictures: Sequence[str], unread: Iterable[str] = (), *, may_be_classes: bool = False
) -> list[str]:
    """Notes on images that may belong to others; raises InvalidRequest if a quarter of them seem to.

    pictures: relative paths of all samples. unread: images in formats that packer does not read.
    may_be_classes: whether folders become classes by default, which a note then questions.
    """
    everything = [*pictures, *unread]
    found = _best_reading(everything)
    if found and len(found) >= _LEAST_SHARE * len(everything):
        raise InvalidRequest(
            f"{shown(str(root))}: {counted(len(found), 'picture')} of {len(everything)} seem to belong to others, such "
            f"as {shown(found[0].companion)} to {shown(found[0].main)}; {_readings(root, found)}; if each is a sample, "
            "add: --pairs samples"
        )
    if found:
        return [
            f"{counted(len(found), 'picture')} of {len(everything)} may belong to others, such as "
            f"{shown(found[0].companion)} to {shown(found[0].main)}; each is a sample"
        ]
    found = max(_by_ending(pictures), _by_equal_folders(pictures) if may_be_classes else [], key=len)
    options = _sidecars(found) if len(found) >= max(_LEAST_TOLD, _LEAST_SHARE * len(pictures)) else ""
    return (
        [
            f"{len(found)} of {len(pictures)} pictures have the name of another, but for a folder or an ending, such "
            f"as {shown(found[0].companion)} and {shown(found[0].main)}; if they belong to these, add: "
            f"{f'{_layout(found)}{options}'.strip()}"
        ]
        if options
        else []
    )


def check_roles(root: Path, listing: Listing, pictures: Sequence[str]) -> None:
    """Raise InvalidRequest if the folders are named as images and what belongs to them, not as classes."""
    taken = set(pictures)
    tops = sorted({name.partition("/")[0] for name in pictures if "/" in name})
    beside = [name for name in listing.names if name not in taken and is_companion(name.rpartition("/")[0])]
    are_images = all(any(map(is_picture_role, folder.split("/"))) for folder in _folders(pictures))
    are_images = are_images and all(is_role(top) or split_rank(top) is not None for top in tops)
    pairs = _best_reading([*pictures, *beside]) if beside and are_images else []
    others = [name for name in listing.folders if "/" not in name and is_companion(name)]
    is_sole = len(tops) == 1 and is_picture_role(tops[0]) and split_rank(tops[0]) is None
    if not pairs and not is_sole and not (others and any(map(is_picture_role, tops)) and all(map(is_role, tops))):
        return
    readings = [_readings(root, pairs)] if pairs else ["for images without labels, add: --classes none"]
    if is_sole and not pairs and any(name.count("/") > 1 for name in pictures):
        readings.append(f"if the folders in {shown(tops[0])} are the classes, give {inside(root, tops[0])}")
    named = _folders(name for pair in pairs for name in pair) or {*tops, *others}
    raise InvalidRequest(
        f"{shown(str(root))}: {listed(sorted(named))}: folders named as pictures and files that belong to them, not as "
        f"classes; {'; '.join(readings)}; if these are classes, add: --layout class"
    )


# ---- which files belong together


class _Cut(NamedTuple):
    """A path without the words that name roles.

    folders: the words of the folders; role_free: those of the folders without any role. stem: the words of the file.
    rank: number of words that name a companion, less one half if a word names an image.
    """

    path: str
    folders: _Words
    role_free: _Words
    stem: _Words
    rank: float
    has_role_folder: bool

    @classmethod
    def of(cls, path: str) -> "_Cut":
        *folders, file = path.split("/")
        rests: list[str] = []
        roles: list[str] = []
        for part in (*folders, PurePosixPath(file).stem):
            rest = []
            for token in _tokens(part):
                ending = next((token[end:] for end in range(2, len(token)) if _is_split_and_role(token, end)), "")
                if ending or is_role(token):
                    roles.append(ending or token)
                if ending or not is_role(token):
                    rest.append(token.removesuffix(ending))
            rests.append("/".join(rest))
        rank = sum(map(is_companion, roles)) - 0.5 * any(map(is_picture_role, roles))
        role_free = tuple(name for name in folders if not is_role(name))
        has_role_folder = any(map(is_companion, folders))
        return cls(path, tuple(filter(None, rests[:-1])), role_free, tuple(rests[-1:]), rank, has_role_folder)


def _tokens(name: str) -> list[str]:
    """Words and numbers of a name: `mask0` and `a0Mask` are two, `leftImg8bit` is one."""
    found = []
    for piece in re.split(r"[_\-. ]+", name):
        ending = _CAPITALISED.fullmatch(piece)
        if ending and is_companion(ending[2]):
            found += [*_tokens(ending[1]), ending[2]]
            continue
        match = _NUMBERED.fullmatch(piece)
        found += [group for group in match.groups() if group] if match else [piece]
    return [token for token in found if token]


def _is_split_and_role(token: str, end: int) -> bool:
    """Whether a token is such as `trainannot`."""
    return token[end:].islower() and split_rank(token[:end]) is not None and is_companion(token[end:])


def _best_reading(names: Sequence[str]) -> list[Pair]:
    """The pairs of the reading that pairs most files, or of the first that pairs half of them."""
    found: list[Pair] = []
    for pairs in _all_readings(names):
        found = max(found, pairs, key=len)
        if 2 * len(found) >= len(names):
            break
    return found or _by_role_folders(names)


def _all_readings(names: Sequence[str]) -> Iterator[list[Pair]]:
    distinct = "\n".join({name.translate(_NO_DIGITS) for name in names}).lower()  # short if names are numbered
    for main, other in _USUAL_PAIRS:
        if main in distinct and other in distinct:
            yield _by_usual_pair(names, main, other)
    if COMPANION_WITHIN.search(distinct):
        cuts = list(map(_Cut.of, names))
        yield _by_key(cuts, lambda cut: (cut.folders, cut.stem))
        yield _by_key(cuts, lambda cut: (cut.role_free, cut.stem))
        yield from _by_level(cuts)
        yield [pair for pair in _by_ending(names) if is_companion(_ending(pair))]
        in_role_folders = [cut for cut in cuts if cut.has_role_folder or cut.rank < 1]
        yield _by_key(in_role_folders, lambda cut: _numbered(cut.folders, cut), is_single=True)
        yield _by_key(in_role_folders, lambda cut: _numbered(cut.role_free, cut), is_single=True)
    yield _by_suffix(names)


def _by_key(cuts: Sequence[_Cut], key: Callable[[_Cut], Hashable], *, is_single: bool = False) -> list[Pair]:
    """The pairs of equal keys; a key of None is none. is_single: whether a key may have only one image."""
    groups: dict[Hashable, list[_Cut]] = defaultdict(list)
    for cut in cuts:
        if (found := key(cut)) is not None:
            groups[found].append(cut)
    pairs = []
    for group in groups.values():
        main = min(group, key=lambda cut: (cut.rank, _is_no_jpeg(cut.path), cut.path))
        if not is_single or sum(cut.rank < 1 for cut in group) == 1:
            pairs += [Pair(main.path, cut.path) for cut in group if int(cut.rank + 0.5) > int(main.rank + 0.5)]
    return pairs


def _numbered(folders: _Words, cut: _Cut) -> Hashable:
    """The folders with the first number in the stem."""
    match = re.search("[0-9]+", PurePosixPath(cut.path).stem)
    return (folders, int(match[0])) if match else None


def _by_level(cuts: Sequence[_Cut]) -> Iterator[list[Pair]]:
    """For each place in the paths, the pairs of paths that differ only there, if one name there is a companion's."""
    parted = [(cut, [*cut.path.split("/")[:-1], _without_suffix(cut.path).rpartition("/")[2]]) for cut in cuts]
    for level in range(max((len(parts) for _, parts in parted), default=0)):
        groups: dict[Hashable, dict[str, _Cut]] = defaultdict(dict)
        lowest: dict[str, float] = {}
        for cut, parts in parted:
            if len(parts) > level:
                is_file = len(parts) == level + 1
                rest = parts[:-1] if is_file else [*parts[:level], *parts[level + 1 : -1], *cut.stem]
                groups[is_file, tuple(rest)][parts[level]] = cut
                lowest[parts[level]] = min(lowest.get(parts[level], cut.rank), cut.rank)
                if len(lowest) > _MOST_NAMES:
                    break
        names = sorted(lowest, key=lambda name: (lowest[name], name))
        full = [group for group in groups.values() if len(group) == len(names)]
        if not 2 <= len(names) <= _MOST_NAMES or lowest[names[0]] >= 1 or lowest[names[-1]] < 1:
            continue
        if len(full) >= max(1, _NEARLY_ALL * len(groups)) and (len(full) > 2 or "/" in full[0][names[0]].path):
            yield [Pair(group[names[0]].path, group[name].path) for group in full for name in names[1:]]


def _by_usual_pair(names: Sequence[str], main: str, other: str) -> list[Pair]:
    """`hr/1.png` and `lr/1.png`, `1_HR.png` and `1_LR.png`: names that are equal except for the words of the pair."""
    found: dict[_Words, dict[bool, str]] = defaultdict(dict)
    for name in names:
        lower = _without_suffix(name).lower()
        if main not in lower and other not in lower:
            continue
        parts = [_tokens(_SCALE.sub("", part)) if len(main) > 1 else [part] for part in lower.split("/")]
        told = parts if len(main) > 1 else parts[:-1]  # x.jpg and y.jpg are two images
        said = {token for part in told for token in part}
        if main in said or other in said:
            rests = ["/".join(token for token in part if token not in _DEGRADED | {main, other}) for part in parts]
            found[tuple(filter(None, rests))].setdefault(other in said, name)
    return [Pair(both[False], both[True]) for both in found.values() if len(both) == 2]


def _by_ending(names: Sequence[str]) -> list[Pair]:
    """Names that are another name of their folder with an ending more, such as `_2`. Rare endings do not count."""
    stems: dict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        place, _, stem = _without_suffix(name).rpartition("/")
        stems[place].setdefault(stem, name)
    pairs = []
    for there in stems.values():
        for stem, name in there.items():
            places = [match.start() for match in re.finditer(r"[_\-. ]", stem) if match.start()]
            if main := next((there[stem[:at]] for at in reversed(places) if stem[:at] in there), None):
                pairs.append(Pair(main, name))
    counts = Counter(map(_ending, pairs))
    return [pair for pair in pairs if counts[_ending(pair)] > len(names) // 20]


def _ending(pair: Pair) -> str:
    return _without_suffix(pair.companion).removeprefix(_without_suffix(pair.main))


def _by_suffix(names: Sequence[str]) -> list[Pair]:
    """`1.jpg` and `1.png`."""
    first: dict[str, str] = {}
    pairs = [Pair(first.setdefault(_without_suffix(name), name), name) for name in sorted(names, key=_is_no_jpeg)]
    return [pair for pair in pairs if pair.main != pair.companion]


def _by_role_folders(names: Sequence[str]) -> list[Pair]:
    """`1/images/a.png` and `1/masks/b.png`: all folders name roles, and the names of the files do not follow."""
    if not all(any(map(is_role, folder.split("/"))) for folder in _folders(names)):
        return []
    return _by_key(list(map(_Cut.of, names)), lambda cut: cut.folders)


def _by_equal_folders(pictures: Sequence[str]) -> list[Pair]:
    """Images of the same names in each of a few folders, none of which is named as a companion."""
    there: dict[str, dict[str, str]] = defaultdict(dict)
    tops = {name.partition("/")[0] for name in pictures}
    if not 2 <= len(tops) <= _MOST_NAMES or any(name.count("/") != 1 for name in pictures):
        return []
    for name in pictures:
        top, _, file = name.partition("/")
        there[_without_suffix(file)][top] = name
    main, *others = sorted(tops, key=lambda top: (not is_picture_role(top), top))
    full = [one for one in there.values() if len(one) == len(tops)]
    return (
        [Pair(one[main], one[top]) for one in full for top in others] if len(full) >= _NEARLY_ALL * len(there) else []
    )


def _folders(names: Iterable[str]) -> set[str]:
    return {name.rpartition("/")[0] for name in names}


def _without_suffix(name: str) -> str:
    dot = name.rfind(".")
    return name[:dot] if dot > name.rfind("/") + 1 else name


def _is_no_jpeg(name: str) -> bool:
    return not name.lower().endswith((".jpg", ".jpeg"))


# ---- the options for each reading


def _readings(root: Path, pairs: Sequence[Pair]) -> str:
    """The options that pack the pairs as samples, one part for each reading of the folders."""
    mains = sorted({pair.main for pair in pairs})
    decode = " --decode-with pillow" if any(pillow.is_readable(name) for pair in pairs for name in pair) else ""
    tops = {name.partition("/")[0] for name in mains}
    inner = {name.split("/")[1] for name in mains} if all(name.count("/") > 1 for name in mains) else set()
    readings = []
    if options := _sidecars(pairs):
        readings.append(f"if they do, add: {f'{_layout(pairs)}{options}{decode}'.strip()}")
    if len(tops) == 1 and inner and split_rank(top := min(tops)) is None:
        below = [Pair(pair.main.removeprefix(f"{top}/"), _seen_from(top, pair.companion)) for pair in pairs]
        are_splits = all(split_rank(name) is not None for name in inner)
        if options := _sidecars(below):
            folder = shown(shell_word(str(root / top if root.is_dir() else top)))
            unpacked = "" if root.is_dir() else ", of the archive, unpacked"
            command = f"packer convert {folder} PACK{' --layout split' * are_splits}{options}{decode}{unpacked}"
            if are_splits:
                return f"if they do, run: {command}"
            readings.append(f"if also the folders in {shown(top)} are classes, run: {command}")
    return "; ".join(readings) or (
        "no --sidecar pattern pairs them: rename them by the names of their pictures, merge several masks of one "
        "picture into one, or declare the files with --from pairs --role"
    )


def _seen_from(top: str, companion: str) -> str:
    return companion.removeprefix(f"{top}/") if companion.startswith(f"{top}/") else f"../{companion}"


def _layout(pairs: Sequence[Pair]) -> str:
    """The option for the folders of the images; empty if they are classes, or if there are none."""
    mains = {pair.main for pair in pairs}
    tops = Counter(name.partition("/")[0] for name in mains if "/" in name)
    if not tops:
        return ""
    shared = set.intersection(*(set(words(name)) for name in tops)) if len(tops) > 1 else set()
    is_together = _folders(pair.main for pair in pairs) == _folders(pair.companion for pair in pairs)
    if len(tops) > 1 and all({split_rank(name), split_rank(name, shared)} != {None} for name in tops):
        return f"--layout split{'/class' * (is_together and all(name.count('/') > 1 for name in mains))}"
    return "" if len(tops) > 1 and max(tops.values()) > 1 and all(map(_is_in_class, pairs)) else "--classes none"


def _is_in_class(pair: Pair) -> bool:
    """Whether the image's folder may be a class: the companion is in it, or in a folder that has its name too."""
    top, *rest = pair.main.split("/")
    other = pair.companion.split("/")
    is_named_after = tuple(_tokens(top)) == tuple(token for token in _tokens(other[0]) if not is_role(token))
    return not is_role(top) and (top in other[:2] if len(rest) > 1 or top in other else is_named_after)


def _sidecars(pairs: Sequence[Pair]) -> str:
    """The options that pair them; empty if no pattern does."""
    pairs = pairs[:: max(1, len(pairs) // _LOOKED_AT)]
    kinds = {text: _kind(next(pair for pair in pairs if text in _candidates(pair))) for text in _patterns(pairs)}
    options, taken = "", list[str]()
    for text, kind in kinds.items():
        pair = next(pair for pair in pairs if text in _candidates(pair))
        literal = re.sub(r"\{[^}=]*=?([^}]*)\}", r"\1", text.rpartition(".")[0])
        usual = kind.partition(":")[0]
        name = next(
            (word for word in pair.said if word in _USUAL_OTHERS - {"y"}),
            next(reversed(re.findall("[A-Za-z]{3,}", literal)), min(pair.said, default="")),
        )
        is_sole = len(kinds) == 1 and kind not in ("image", "bytes", "text", "json")
        name = re.sub(r"[^a-z0-9]+", "_", usual if is_sole else name.lower()).strip("_")
        if not name[:1].isalpha() or name in ("key", "image", "label", "split", "files"):
            name = usual if name else "added"
        taken.append(name)
        name += str(taken.count(name)) if taken.count(name) > 1 else ""
        options += shown(f" --sidecar '{name}={text}:{kind}'")
    return options


def _kind(pair: Pair) -> str:
    """The kind of the companion by its name: depth, mask, image, or that of a file that is not an image."""
    said, suffix = pair.said, PurePosixPath(pair.companion).suffix.lower()
    is_picture = _PICTURES.fullmatch(suffix) is not None or pillow.is_readable(pair.companion)
    if not is_picture and not (suffix == ".npy" and DEPTH_WORDS & said):
        return _KINDS.get(suffix, "bytes")
    if DEPTH_WORDS & said:
        return "depth"
    if any(map(says_labels, said)) and said & {"color", "colors", "colour", "colours"}:
        return "bytes"  # classes are colors: `mask` needs a table of them
    if said & {"instance", "instances", "inst", "insts"}:
        return "mask:uint16"
    is_mask = any(map(COMPANION_WITHIN.search, said - {"normals"})) or said & {"pha", "y"}
    return "mask" if is_mask or _without_suffix(pair.main) == _without_suffix(pair.companion) else "image"


def _patterns(pairs: Sequence[Pair]) -> list[str]:
    """The patterns that together name the companions of most images; none if they leave half of them out."""
    mains = sorted({pair.main for pair in pairs})
    left = [set(_candidates(pair)) for pair in pairs]
    order = {text: at for pair in pairs for at, text in enumerate(_candidates(pair))}
    usable = {text for text in order if not any(_matches(text, main) for main in mains[:: max(1, len(mains) // 20)])}
    chosen: list[str] = []
    covered: list[set[str]] = []
    while counts := Counter(text for texts in left for text in texts & usable):
        text = min(counts, key=lambda text: (-counts[text], order[text]))
        if 20 * counts[text] < len(mains) or (2 * counts[text] < len(mains) and not chosen):
            break
        chosen.append(text)
        covered.append({pair.main for pair, texts in zip(pairs, left, strict=True) if text in texts})
        left = [set() if text in texts else texts for texts in left]
    is_split = len(covered) > 1 and not covered[0] & covered[1]  # each names the companions of other images
    return chosen if not is_split and 2 * sum(map(bool, left)) < len(pairs) else []


def _matches(text: str, main: str) -> bool:
    return Pattern(text).matches(main) if "{" in text else main.endswith(text)


def _candidates(pair: Pair) -> list[str]:
    """Patterns that give the companion of this image, the simplest first."""
    folder, _, file = pair.companion.rpartition("/")
    main_folder, _, main_file = pair.main.rpartition("/")
    stem = PurePosixPath(main_file).stem
    other, suffix = PurePosixPath(file).stem, PurePosixPath(file).suffix
    found = [other.removeprefix(stem) + suffix] if folder == main_folder and other.startswith(stem) else []
    for place in _folder_patterns(main_folder, folder):
        for name in _stem_patterns(stem, other):
            text = f"{place}{name}{suffix}"
            if "{" in text and _gives(text, pair):
                found.append(text)
    return found


def _gives(text: str, pair: Pair) -> bool:
    try:
        return Pattern(text).path(pair.main, PurePosixPath(pair.main).stem) == pair.companion
    except InvalidRequest:
        return False


def _folder_patterns(main: str, other: str) -> Iterator[str]:
    if other != main:
        yield f"{other}/"
    if main and main in other:
        yield f"{other.replace(main, '{folder}', 1)}/"
    elif not main and not other:
        yield ""
    parts, others = main.split("/"), other.split("/")
    differing = [(old, new) for old, new in zip(parts, others, strict=False) if old != new]
    if main and len(parts) <= len(others) and len(differing) == 1:
        below = "".join(f"{name}/" for name in others[len(parts) :])
        for old, new in (_difference(*differing[0]), differing[0]):
            yield f"{{folder:{old}={new}}}/{below}"


def _stem_patterns(stem: str, other: str) -> Iterator[str]:
    for match in re.finditer(f"(?={re.escape(stem)})", other):  # 0 in 0000 has four places
        yield f"{other[: match.start()]}{{stem}}{other[match.start() + len(stem) :]}"
    old, new = _difference(stem, other)
    if old and not re.search("[0-9](?!bit)", old):  # a number belongs to one image
        yield f"{{stem:{old}={new}}}"
    elif not old and (before := _PIECE.findall(stem)):  # an insertion, `a_1` and `a_mask_1`
        yield f"{{stem:{before[0]}={before[0]}{new}}}"
    if not re.search("[0-9]", other):  # `seg` of `1/t1.png` and `1/seg.png`
        yield other


def _difference(text: str, other: str) -> tuple[str, str]:
    """The middle pieces that differ: of `train_images` and `train_masks` these are `images` and `masks`."""
    pieces, others = _PIECE.findall(text), _PIECE.findall(other)
    most = min(len(pieces), len(others))
    first = next((at for at in range(most) if pieces[at] != others[at]), most)
    last = next((at for at in range(most - first) if pieces[-1 - at] != others[-1 - at]), most - first)
    return "".join(pieces[first : len(pieces) - last]), "".join(others[first : len(others) - last])
