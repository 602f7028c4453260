"""Layout hints: checks of file and folder names for an image folder whose layout the user has not declared.

The checks prevent two silent errors: each mask becomes a sample, or folders that are not classes become classes.
`check_pairs` refuses images that seem to annotate other images, such as masks. `check_classes` refuses folders that do
not seem to be classes. Each error lists the possible meanings, with one option for each meaning.

Files form a pair if the names differ only in the suffix, or in words such as mask, gt, depth or lr (low resolution).
The annotating file of a pair is called the companion of the image.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from packer.errors import InvalidRequest
from packer.sources._file_pattern import SidecarPattern
from packer.sources._message_texts import counted, listed, shown
from packer.sources._name_words import (
    COMPANION_WITHIN,
    DEPTHS,
    are_splits,
    is_companion,
    is_image_word,
    is_role,
    split_rank,
    words,
)

_LEAST_SHARE = 0.25  # fraction of images that are companions, from which on `check_pairs` raises an error
_PROBED = 200  # pairs from which to find sidecar patterns

# words for images in full quality, and words for degraded or computed versions of these images
_FULL = frozenset(("hr", "clean", "sharp", "clear", "fgr", "norain", "x"))
_CHANGED = frozenset(("lr", "noisy", "blur", "blurred", "hazy", "pha", "rain", "rainy", "y"))
_CHANGED_WITHIN = re.compile(rf"(?<![a-z])(?:{'|'.join(sorted(_CHANGED))})(?![a-z])")
_DEGRADED = frozenset(("bicubic", "unknown", "mild", "wild", "difficult"))  # next to `lr`
_SCALE = re.compile(r"(?:^|[_\-]|(?<=[0-9]))[xX][0-9]+$")  # scale of low resolution images, such as x4
_PIECE = re.compile(r"[_\-. ]+|[A-Za-z]+8bit|[A-Za-z]+|[0-9]+|[^A-Za-z0-9_\-. ]+")
_NO_DIGITS = str.maketrans("", "", "0123456789")
_ENDING = re.compile(r"(.*[a-z0-9])([A-Z][a-z]+)")
_NUMBERED = re.compile(r"([A-Za-z]+)([0-9]+)|([0-9]+)([A-Za-z]+)")


class Pair(NamedTuple):
    """Relative paths of an image, and of a companion of this image, such as a mask."""

    main: str
    companion: str


def check_pairs(root: Path, names: Sequence[str]) -> list[str]:
    """Return a list with a note if some images seem to be companions, such as masks, of other images, otherwise [].

    `root` is only used in messages. `names` are the relative paths of all images.

    Raises:
        InvalidRequest: At least a quarter of the images seem to be companions.
    """
    pairs: list[Pair] = []
    for found in _readings(names):
        pairs = max(pairs, found, key=len)
        if 2 * len(pairs) >= len(names):
            break
    if not pairs:
        return []
    count = len({pair.companion for pair in pairs})
    example = f"such as {shown(pairs[0].companion)} to {shown(pairs[0].main)}"
    if count < _LEAST_SHARE * len(names):
        return [f"{counted(count, 'image')} of {len(names)} may belong to others, {example}; each is a sample"]
    raise InvalidRequest(
        f"{shown(str(root))}: {count} of {len(names)} images seem to belong to others, {example}; "
        f"{_sidecars(pairs)}; if each image is a sample, add: --companions samples"
    )


def check_classes(root: Path, images: Sequence[str]) -> None:
    """Check that the folders directly under the root seem to be classes. `images` are relative paths.

    Raises:
        InvalidRequest: The folders seem to be splits, to contain images and masks, or to contain class folders.
    """
    inner: dict[str, set[str]] = {}  # folder -> names of subfolders, and "" if images are directly in the folder
    for name in images:
        top, *parts = name.split("/")
        if parts:
            inner.setdefault(top, set()).add(parts[0] if len(parts) > 1 else "")
    tops = sorted(inner)
    if not tops:
        return
    shared = set.intersection(*(set(words(name)) for name in tops)) if len(tops) > 1 else set()
    splits = [name for name in tops if {split_rank(name), split_rank(name, shared)} != {None}]
    contain_classes = any("" not in inner[name] and len(inner[name]) > 1 for name in splits)
    is_split = len(splits) > 1 or contain_classes or are_splits(tops)
    has_roles = all(map(is_role, tops)) and any(map(is_image_word, tops))
    below = _classes_below(images, tops)
    if not (is_split or has_roles or below):
        return
    readings = ["if they are classes, add: --folders class"]
    folders = [inner[top] - {""} for top in tops]
    is_below = any(folders) and not any(names and all(map(is_role, names)) or are_splits(names) for names in folders)
    if (len(tops) > 1 or splits) and is_below and not any(inner[top] == {top} for top in tops):
        readings.append("if they are splits that contain classes, add: --folders split/class")
    readings.append("for no labels, add: " + ("--folders split" if is_split else "--folders none"))
    if place := below or next((top for top in splits if is_below and "" not in inner[top]), ""):
        source = shown(str(root / place)) if root.is_dir() else f"{shown(place)} of the archive, unpacked,"
        readings.append(f"if the folders in {shown(place)} are the classes, give {source} as SOURCE")
    raise InvalidRequest(
        f"{shown(str(root))}: cannot decide whether these folders are classes: {listed(tops)}; {', or '.join(readings)}"
    )


def _classes_below(images: Sequence[str], tops: Sequence[str]) -> str:
    """Return the first folder that seems to contain class folders. Empty: the folders in the root are the classes."""
    parts = [name.split("/")[:-1] for name in images if "/" in name]
    if doubled := next((path for path in parts if len(path) > 2 and path[0] == path[1]), None):
        return "/".join(doubled[:2])
    for depth in (1, 2):
        below: dict[str, set[str]] = {top: set() for top in tops}
        for path in parts:
            below[path[0]].add("" if len(path) <= depth else path[depth])
        common, everything = set.intersection(*below.values()), set.union(*below.values())
        if "" in everything:
            return ""
        if any(len(names) > 1 for names in below.values()):
            are_alike = len(common) > 1 and 2 * len(common) >= len(everything)
            return "/".join(min(path for path in parts if path[0] == tops[0])[:depth]) if are_alike else ""
    return ""


class _Name(NamedTuple):
    """A path without the words for images and companions.

    Attributes:
        path: The complete relative path.
        folders: The remaining words of each folder, without empty entries.
        stem: The remaining words of the file name.
        rank: High for companions, low for images.
        is_companion: True: the path contains a word for companions.
    """

    path: str
    folders: tuple[str, ...]
    stem: str
    rank: int
    is_companion: bool

    @classmethod
    def of(cls, path: str) -> "_Name":
        *folders, file = path.split("/")
        rests, roles = list[str](), list[str]()
        for part in (*folders, PurePosixPath(file).stem):
            is_file = len(rests) == len(folders)
            tokens = _tokens(_SCALE.sub("", part))
            usual = (_FULL | _CHANGED) - ({"x", "y"} if is_file else set())
            found = [token for token in tokens if is_role(token) or token.lower() in usual]
            roles += found
            rests.append("/".join(token for token in tokens if token not in found and token.lower() not in _DEGRADED))
        changed = sum(token.lower() in _CHANGED for token in roles)
        companions = sum(map(is_companion, roles))
        has_image = any(is_image_word(token) or token.lower() in _FULL for token in roles)
        rank = 3 * changed + 2 * companions - has_image
        return cls(path, tuple(filter(None, rests[:-1])), rests[-1], rank, bool(changed or companions))


def _tokens(name: str) -> list[str]:
    """Return the words and numbers in a name: `mask` and `0` for `mask0`. `leftImg8bit` is one word."""
    tokens = []
    for piece in re.split(r"[_\-. ]+", name):
        ending = _ENDING.fullmatch(piece)
        if ending and is_companion(ending[2]):
            tokens += [*_tokens(ending[1]), ending[2]]
            continue
        match = _NUMBERED.fullmatch(piece)
        parts = [group for group in match.groups() if group] if match else [piece]
        is_count = bool(tokens) and is_companion(parts[0])  # 0 in `a_mask0` counts masks
        tokens += parts[:1] if is_count else parts
    return [token for token in tokens if token]


def _readings(names: Sequence[str]) -> Iterator[list[Pair]]:
    """Yield one list of pairs for each naming rule, from the most to the least reliable rule."""
    distinct = "\n".join({name.translate(_NO_DIGITS) for name in names}).lower()  # short if names are numbered
    if COMPANION_WITHIN.search(distinct) or _CHANGED_WITHIN.search(distinct):
        parsed = list(map(_Name.of, names))
        yield _by_key(parsed, lambda name: (name.folders, name.stem))
        yield _by_key(parsed, lambda name: name.folders or None, is_single=True)
        yield _by_key(parsed, lambda name: name.stem or None, is_single=True)
    first: dict[str, str] = {}
    pairs = [Pair(first.setdefault(_without_suffix(name), name), name) for name in sorted(names, key=_is_no_jpeg)]
    yield [pair for pair in pairs if pair.main != pair.companion]


def _by_key(names: Sequence[_Name], key: Callable[[_Name], Hashable], *, is_single: bool = False) -> list[Pair]:
    """Return the pairs of files with equal keys. Ignore the key None. is_single: ignore keys with several images."""
    groups: dict[Hashable, list[_Name]] = defaultdict(list)
    for name in names:
        if (found := key(name)) is not None:
            groups[found].append(name)
    pairs = []
    for group in groups.values():
        main = min(group, key=lambda name: (name.rank, _is_no_jpeg(name.path), name.path))
        if not is_single or sum(not name.is_companion for name in group) == 1:
            pairs += [Pair(main.path, name.path) for name in group if name.is_companion and name.rank > main.rank]
    return pairs


def _without_suffix(name: str) -> str:
    dot = name.rfind(".")
    return name[:dot] if dot > name.rfind("/") + 1 else name


def _is_no_jpeg(name: str) -> bool:
    return not name.lower().endswith((".jpg", ".jpeg"))


def _sidecars(pairs: Sequence[Pair]) -> str:
    """Return advice for the user: the options, if any, with which an image and all companions form one sample."""
    left = pairs[:: max(1, len(pairs) // _PROBED)]
    mains = sorted({pair.main for pair in left})
    options = _layout(left)
    names: list[str] = []
    while left:
        pattern = max(_patterns(left[0]), key=lambda pattern: sum(_gives(pattern, pair) for pair in left), default=None)
        found = [pair for pair in left if pattern is not None and _gives(pattern, pair)]
        if pattern is None or 2 * len(found) < len(mains) or any(map(pattern.matches, mains)):
            left = left[1:]
            continue
        kind = _kind(found[0])
        changed = sorted(_CHANGED.intersection(_new_words(found[0]))) if kind == "image" else []
        names.append(changed[0] if changed else "added" if kind == "image" else kind)
        number = names.count(names[-1])
        options += shown(f" --sidecar '{names[-1]}{number if number > 1 else ''}={pattern.text}:{kind}'")
        left = [pair for pair in left if pair not in found]
    if names:
        return f"if they do, add: {options.strip()}"
    return "if they do, rename them by the names of their images, or declare the files with --from pairs --role"


def _layout(pairs: Sequence[Pair]) -> str:
    """Return the option for the folders of the images. Empty: the folders are classes, or folders are absent."""
    folders = {pair.main.rpartition("/")[0] for pair in pairs}
    tops = {folder.partition("/")[0] for folder in folders}
    if tops == {""}:
        return ""
    if len(tops) > 1 and are_splits(tops):
        inner = [folder.split("/")[1:] for folder in folders]
        is_class = all(inner) and not any(is_role(name) or name.lower() in _FULL for names in inner for name in names)
        return "--folders split/class" if is_class else "--folders split"
    are_classes = len(tops) > 1 and all(pair.main.partition("/")[0] in pair.companion for pair in pairs)
    is_one_each = len(tops) == len({pair.main for pair in pairs})
    return "" if are_classes and not is_one_each and not any(map(is_role, tops)) else "--folders none"


def _new_words(pair: Pair) -> set[str]:
    """Return the words in the companion's path that are not in the image's path."""
    return set(words(_without_suffix(pair.companion))) - set(words(_without_suffix(pair.main)))


def _kind(pair: Pair) -> str:
    """Return the kind of the companion, depth, mask or image, from the words in the path."""
    new = _new_words(pair)
    if DEPTHS & new:
        return "depth"
    is_mask = any(map(COMPANION_WITHIN.search, new - {"normals"})) or new & {"pha", "y"}
    return "mask" if is_mask or _without_suffix(pair.main) == _without_suffix(pair.companion) else "image"


def _gives(pattern: SidecarPattern, pair: Pair) -> bool:
    return pattern.path(pair.main, PurePosixPath(pair.main).stem) == pair.companion


def _patterns(pair: Pair) -> Iterator[SidecarPattern]:
    """Yield patterns that map the image of a pair to the companion, from the simplest pattern on."""
    main, other = PurePosixPath(pair.main), PurePosixPath(pair.companion)
    folder, parts = str(main.parent), other.parent.parts
    above, below = "/".join(parts[: len(main.parts) - 1]), "/".join(parts[len(main.parts) - 1 :])
    places = [str(other.parent)] if other.parent != main.parent else []
    places += [*_replaced(folder, str(other.parent), "folder")]
    places += [f"{place}/{below}" for place in _replaced(folder, above, "folder")]
    names = [*_replaced(main.stem, other.stem, "stem")]
    names += [] if re.search("[0-9]", other.stem) else [other.stem]  # `seg` of `1/t1.png` and `1/seg.png`
    for text in (f"{place}/{name}{other.suffix}".removeprefix("./") for place in places for name in names):
        with suppress(InvalidRequest):  # a name contains braces
            pattern = SidecarPattern(text)
            if "{" in text and _gives(pattern, pair):
                yield pattern


def _replaced(main: str, other: str, placeholder: str) -> Iterator[str]:
    """Yield patterns that replace the image name `main` in the companion name `other` by a placeholder."""
    if main in other:
        yield other.replace(main, f"{{{placeholder}}}", 1)
    pieces, others = _PIECE.findall(main), _PIECE.findall(other)
    most = min(len(pieces), len(others))
    first = next((at for at in range(most) if pieces[at] != others[at]), most)
    last = next((at for at in range(most - first) if pieces[-1 - at] != others[-1 - at]), most - first)
    old, new = "".join(pieces[first : len(pieces) - last]), "".join(others[first : len(others) - last])
    if not old and pieces:  # an insertion: `a_1` and `a_mask_1`
        old, new = pieces[0], pieces[0] + new
    if old and not re.search("[0-9](?!bit)", old):  # a number belongs to one image
        yield f"{{{placeholder}:{old}={new}}}"
