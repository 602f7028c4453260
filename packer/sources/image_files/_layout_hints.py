"""Layout hints: the meaning of files and folders that the user has not declared. Only names decide.

Two guesses would be silent errors: each mask becomes a sample, or each folder becomes a class. `check_pairs` refuses
images that seem to belong to others; `check_classes` refuses folders that do not seem to be classes. Each error lists
the options for the possible readings.

`check_pairs` removes from each name the words for images and for companions (mask, gt, depth, lr). Files whose names
are then equal form one sample. Files that differ only in their suffix form one sample, too.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from packer.errors import InvalidRequest
from packer.files.terminal_output import shell_word
from packer.images.backends import pillow_other_formats as pillow
from packer.sources._file_pattern import SidecarPattern
from packer.sources._message_texts import counted, listed, shown
from packer.sources._name_words import (
    COMPANION_WITHIN,
    DEPTHS,
    are_splits,
    has_labels,
    is_companion,
    is_image_word,
    is_role,
    split_rank,
    words,
)

_LEAST_SHARE = 0.25  # of the images, which are refused as companions
_LEAST_NOTED = 6  # pairs
_PROBED = 200  # pairs that patterns are derived from
_MOST_TOPS = 6  # folders whose images may have equal names
# the folders of usual pairs: of images in full quality, and of the same images changed
_FULL = frozenset(("hr", "clean", "sharp", "clear", "fgr", "norain", "x"))
_CHANGED = frozenset(("lr", "noisy", "blur", "blurred", "hazy", "pha", "rain", "rainy", "y"))
_CHANGED_WITHIN = re.compile(rf"(?<![a-z])(?:{'|'.join(sorted(_CHANGED))})(?![a-z])")
_DEGRADED = frozenset(("bicubic", "unknown", "mild", "wild", "difficult"))  # next to `lr`
_SCALE = re.compile(r"(?:^|[_\-]|(?<=[0-9]))[xX][0-9]+$")  # of images in low resolution
_KINDS = {".txt": "text", ".xml": "text", ".json": "json"}
_IMAGE_SUFFIX = re.compile(r"(?i)\.(jpe?g|png|ppm|bmp|pgm|tiff?|webp)")
_PIECE = re.compile(r"[_\-. ]+|[A-Za-z]+8bit|[A-Za-z]+|[0-9]+|[^A-Za-z0-9_\-. ]+")
_NO_DIGITS = str.maketrans("", "", "0123456789")
_ENDING = re.compile(r"(.*[a-z0-9])([A-Z][a-z]+)")
_NUMBERED = re.compile(r"([A-Za-z]+)([0-9]+)|([0-9]+)([A-Za-z]+)")


class Pair(NamedTuple):
    """Relative paths of an image and of a file that belongs to it."""

    main: str
    companion: str


def check_pairs(
    root: Path, images: Sequence[str], unread: Iterable[str] = (), *, others: Sequence[str] = (), by_habit: bool = False
) -> list[str]:
    """Return notes on images that may belong to others.

    Args:
        root: The folder, for messages.
        images: The relative paths of all images that packer reads.
        unread: Images in other formats.
        others: Files that are no images, if the folders would become classes.
        by_habit: Whether folders become classes by default.

    Raises:
        InvalidRequest: A quarter of the images seem to belong to others.
    """
    names = [*images, *unread]
    pairs = _best(_readings([*names, *_annotations(names, others)]), len(names))
    companions = {pair.companion for pair in pairs}
    example = f", such as {shown(pairs[0].companion)} to {shown(pairs[0].main)}" if pairs else ""
    if len(companions) >= _LEAST_SHARE * len(names) and pairs:
        raise InvalidRequest(
            f"{shown(str(root))}: {counted(len(companions), 'file')} for {len(names)} images seem to belong to "
            f"others{example}; {_options(root, pairs)}; if each image is a sample, add: --pairs samples"
        )
    if pairs:
        return [f"{counted(len(pairs), 'image')} of {len(names)} may belong to others{example}; each is a sample"]
    pairs = max(_by_ending(images), _by_equal_names(images) if by_habit else [], key=len)
    options = _sidecars(pairs) if len(pairs) >= max(_LEAST_NOTED, _LEAST_SHARE * len(images)) else ""
    if not options:
        return []
    return [
        f"{len(pairs)} of {len(images)} images have the name of another, except for a folder or an ending, such as "
        f"{shown(pairs[0].companion)} and {shown(pairs[0].main)}; if they belong to these, add: "
        f"{f'{_layout(pairs)}{options}'.strip()}"
    ]


def check_classes(root: Path, images: Sequence[str], *, may_have_roles: bool = False) -> None:
    """Check that the folders directly under the root seem to be classes.

    Args:
        root: The folder, for messages.
        images: The relative paths of all images.
        may_have_roles: Whether folders named as images and masks may be classes.

    Raises:
        InvalidRequest: They seem to be splits, images and masks, or to contain the classes.
    """
    inner: dict[str, set[str]] = {}  # folder -> the folders in it; "" if images are directly in it
    for name in images:
        top, *parts = name.split("/")
        if parts:
            inner.setdefault(top, set()).add(parts[0] if len(parts) > 1 else "")
    tops = sorted(inner)
    if not tops:
        return
    shared = set.intersection(*(set(words(name)) for name in tops)) if len(tops) > 1 else set()
    splits = [name for name in tops if {split_rank(name), split_rank(name, shared)} != {None}]
    may_be_roles = may_have_roles and len(tops) > 1
    contain_classes = any("" not in inner[name] and len(inner[name]) > 1 for name in splits)
    have_words = are_splits(tops) and not (may_be_roles and any(map(is_companion, tops)))
    is_split = len(splits) > 1 or contain_classes or have_words
    has_roles = all(map(is_role, tops)) and any(map(is_image_word, tops)) and not may_be_roles
    below = _classes_below(images, tops)
    if not (is_split or has_roles or below):
        return
    readings = ["if they are classes, add: --layout class"]
    folders = [inner[top] - {""} for top in tops]
    is_below = any(folders) and not any(names and all(map(is_role, names)) or are_splits(names) for names in folders)
    if len(tops) > 1 and is_below and not any(inner[top] == {top} for top in tops):
        readings.append("if they are splits that contain classes, add: --layout split/class")
    readings.append("for no labels, add: " + ("--layout split" if is_split else "--classes none"))
    if place := below or next((top for top in splits if is_below and "" not in inner[top]), ""):
        readings.append(f"if the folders in {shown(place)} are the classes, give {_inside(root, place)}")
    raise InvalidRequest(
        f"{shown(str(root))}: cannot decide whether these folders are classes: {listed(tops)}; {'; '.join(readings)}"
    )


def _classes_below(images: Sequence[str], tops: Sequence[str]) -> str:
    """Return the first folder that seems to contain the classes; empty if they are the folders in the root."""
    parts = [name.split("/")[:-1] for name in images if "/" in name]
    if doubled := next((path for path in parts if len(path) > 2 and path[0] == path[1]), None):
        return "/".join(doubled[:2])
    for depth in (1, 2):
        if any(len(path) <= depth for path in parts):
            return ""
        below: dict[str, set[str]] = {top: set() for top in tops}
        for path in parts:
            below[path[0]].add(path[depth])
        if any(len(names) > 1 for names in below.values()):
            common = set.intersection(*below.values())
            are_alike = len(common) > 1 and 2 * len(common) >= len(set.union(*below.values()))
            return "/".join(min(path for path in parts if path[0] == tops[0])[:depth]) if are_alike else ""
    return ""


def _inside(root: Path, name: str) -> str:
    """Return a folder in the root, as the user gives it. An archive has to be unpacked first."""
    return shown(str(root / name)) if root.is_dir() else f"{shown(name)} of the archive, unpacked"


# ---- which files belong together


class _Name(NamedTuple):
    """A path without the words for images and companions.

    Attributes:
        path: The path.
        folders: The other words of each folder that has any.
        stem: The other words of the file name.
        rank: High for companions, low for images.
        is_companion: Whether a word names a companion.
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
        changed = [token for token in roles if token.lower() in _CHANGED]
        companions = [token for token in roles if is_companion(token)]
        has_image = any(is_image_word(token) or token.lower() in _FULL for token in roles)
        return cls(
            path,
            tuple(filter(None, rests[:-1])),
            rests[-1],
            3 * len(changed) + 2 * len(companions) - has_image,
            bool(changed or companions),
        )


def _tokens(name: str) -> list[str]:
    """Return the words and numbers of a name: `mask0` and `a0Mask` have two, `leftImg8bit` has one."""
    tokens = []
    for piece in re.split(r"[_\-. ]+", name):
        ending = _ENDING.fullmatch(piece)
        if ending and is_companion(ending[2]):
            tokens += [*_tokens(ending[1]), ending[2]]
            continue
        match = _NUMBERED.fullmatch(piece)
        tokens += [group for group in match.groups() if group] if match else [piece]
    return [token for token in tokens if token]


def _annotations(images: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the files in folders of companions, if all images are in folders named as images."""
    in_folders = [name for name in others if is_companion(name.rpartition("/")[0])]
    folders = {name.rpartition("/")[0] for name in images} if in_folders else set()
    are_images = folders and all(any(map(is_image_word, folder.split("/"))) for folder in folders)
    tops = {folder.partition("/")[0] for folder in folders}
    return in_folders if are_images and all(is_role(top) or split_rank(top) is not None for top in tops) else []


def _best(readings: Iterator[list[Pair]], count: int) -> list[Pair]:
    """Return the pairs of the reading that pairs most files, or of the first that pairs half of them."""
    best: list[Pair] = []
    for pairs in readings:
        best = max(best, pairs, key=len)
        if 2 * len(best) >= count:
            break
    return best


def _readings(names: Sequence[str]) -> Iterator[list[Pair]]:
    distinct = "\n".join({name.translate(_NO_DIGITS) for name in names}).lower()  # short if names are numbered
    if COMPANION_WITHIN.search(distinct) or _CHANGED_WITHIN.search(distinct):
        parsed = list(map(_Name.of, names))
        yield _by_key(parsed, lambda name: (name.folders, name.stem))
        yield [pair for pair in _by_ending(names) if is_companion(_ending(pair))]
        yield _by_key(parsed, lambda name: name.folders or None, is_single=True)
        yield _by_key(parsed, lambda name: name.stem or None, is_single=True)
    first: dict[str, str] = {}
    pairs = [Pair(first.setdefault(_without_suffix(name), name), name) for name in sorted(names, key=_is_no_jpeg)]
    yield [pair for pair in pairs if pair.main != pair.companion]


def _by_key(names: Sequence[_Name], key: Callable[[_Name], Hashable], *, is_single: bool = False) -> list[Pair]:
    """Return the pairs of equal keys; a key of None is no key.

    Args:
        names: The files.
        key: The key of a file.
        is_single: Whether a key with several images has no pairs.
    """
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


def _by_ending(names: Sequence[str]) -> list[Pair]:
    """Return names that consist of another name of their folder and an ending, such as `_2`.

    Rare endings do not count.
    """
    stems: dict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        place, _, stem = _without_suffix(name).rpartition("/")
        stems[place].setdefault(stem, name)
    pairs = []
    for in_folder in stems.values():
        for stem, name in in_folder.items():
            places = [match.start() for match in re.finditer(r"[_\-. ]", stem) if match.start()]
            if main := next((in_folder[stem[:at]] for at in reversed(places) if stem[:at] in in_folder), None):
                pairs.append(Pair(main, name))
    counts = Counter(map(_ending, pairs))
    return [pair for pair in pairs if counts[_ending(pair)] > len(names) // 20]


def _by_equal_names(images: Sequence[str]) -> list[Pair]:
    """Return images with one name in each of a few folders."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    tops = {name.partition("/")[0] for name in images}
    if not 2 <= len(tops) <= _MOST_TOPS or any(name.count("/") != 1 for name in images):
        return []
    for name in images:
        top, _, file = name.partition("/")
        groups[_without_suffix(file)][top] = name
    main, *others = sorted(tops, key=lambda top: (not is_image_word(top), top))
    full = [group for group in groups.values() if len(group) == len(tops)]
    return [Pair(group[main], group[top]) for group in full for top in others] if 2 * len(full) > len(groups) else []


def _ending(pair: Pair) -> str:
    return _without_suffix(pair.companion).removeprefix(_without_suffix(pair.main))


def _without_suffix(name: str) -> str:
    dot = name.rfind(".")
    return name[:dot] if dot > name.rfind("/") + 1 else name


def _is_no_jpeg(name: str) -> bool:
    return not name.lower().endswith((".jpg", ".jpeg"))


# ---- the options that declare the pairs


def _options(root: Path, pairs: Sequence[Pair]) -> str:
    """Return the options that pack each image with its companions as one sample."""
    tops = {pair.main.partition("/")[0] for pair in pairs}
    inner = {pair.main.split("/")[1] for pair in pairs if pair.main.count("/") > 1}
    decode = " --decode-with pillow" if any(pillow.is_readable(name) for pair in pairs for name in pair) else ""
    top = min(tops)
    if len(tops) == 1 and is_role(top) and are_splits(inner):  # the splits are below the folder of the images
        below = [Pair(pair.main.removeprefix(f"{top}/"), _seen_from(top, pair.companion)) for pair in pairs]
        if options := _sidecars(below):
            folder = shown(shell_word(str(root / top if root.is_dir() else top)))
            return f"if they do, run: packer convert {folder} PACK --layout split{options}{decode}"
    if options := _sidecars(pairs):
        return f"if they do, add: {f'{_layout(pairs)}{options}{decode}'.strip()}"
    return "if they do, rename them by the names of their images, or declare the files with --from pairs --role"


def _seen_from(top: str, companion: str) -> str:
    return companion.removeprefix(f"{top}/") if companion.startswith(f"{top}/") else f"../{companion}"


def _layout(pairs: Sequence[Pair]) -> str:
    """Return the option for the folders of the images; empty if they are classes, or if there are none."""
    mains = {pair.main for pair in pairs}
    tops = Counter(name.partition("/")[0] for name in mains if "/" in name)
    if not tops:
        return ""
    if len(tops) > 1 and are_splits(tops):
        is_class = all(name.count("/") > 1 for name in mains) and not any(
            is_role(folder) or folder.lower() in _FULL for name in mains for folder in name.split("/")[1:-1]
        )
        return f"--layout split{'/class' * is_class}"
    return "" if len(tops) > 1 and max(tops.values()) > 1 and all(map(_is_in_class, pairs)) else "--classes none"


def _is_in_class(pair: Pair) -> bool:
    """Return True if the image's folder may be a class: the folders of the companion contain its name, too."""
    top = pair.main.partition("/")[0]
    tokens = {token for folder in pair.companion.split("/")[:-1] for token in _tokens(folder)}
    return not is_role(top) and tokens.issuperset(_tokens(top))


def _sidecars(pairs: Sequence[Pair]) -> str:
    """Return a `--sidecar` option for each kind of companion; empty if patterns pair less than half of them."""
    left = pairs[:: max(1, len(pairs) // _PROBED)]
    mains = sorted({pair.main for pair in left})
    count, skipped = len(left), 0
    chosen: list[tuple[str, Pair]] = []
    while left:
        counts = {text: sum(_gives(text, pair) for pair in left) for text in _patterns(left[0])}
        usable = [text for text in counts if not any(_takes(text, main) for main in mains[:20])]
        text = max(usable, key=lambda text: counts[text], default="")
        if 2 * counts.get(text, 0) < len(mains):
            left, skipped = left[1:], skipped + 1
        else:
            chosen.append((text, left[0]))
            left = [pair for pair in left if not _gives(text, pair)]
    names: Counter[str] = Counter()
    options = ""
    for text, pair in chosen:
        kind = _kind(pair)
        is_sole = len(chosen) == 1 and kind.startswith(("mask", "depth"))
        name = kind.partition(":")[0] if is_sole else _field_name(text, pair)
        names[name] += 1
        options += shown(f" --sidecar '{name}{names[name] if names[name] > 1 else ''}={text}:{kind}'")
    return options if 2 * skipped < count else ""


def _field_name(text: str, pair: Pair) -> str:
    """Return the last word of a pattern that no placeholder stands for."""
    literal = re.sub(r"\{[^}=]*=?([^}]*)\}", r"\1", text.rpartition(".")[0])
    found = [word.lower() for word in re.findall("[A-Za-z]{2,}", literal)] or sorted(_new_words(pair)) or ["added"]
    name = next((word for word in found if word in _CHANGED), found[-1])
    return f"{name}_of_image" if name in ("key", "image", "label", "split", "files") else name


def _new_words(pair: Pair) -> set[str]:
    """Return the words of the companion's path that the image's path does not have."""
    return set(words(_without_suffix(pair.companion))) - set(words(_without_suffix(pair.main)))


def _kind(pair: Pair) -> str:
    """Return the kind of the companion by its name: depth, mask, image, or that of a file that is not an image."""
    new, suffix = _new_words(pair), PurePosixPath(pair.companion).suffix.lower()
    is_image = _IMAGE_SUFFIX.fullmatch(suffix) is not None or pillow.is_readable(pair.companion)
    if DEPTHS & new and (is_image or suffix == ".npy"):
        return "depth"
    if not is_image:
        return _KINDS.get(suffix, "bytes")
    if any(map(has_labels, new)) and new & {"color", "colors", "colour", "colours"}:
        return "bytes"  # classes are colors: `mask` needs a table of them
    if new & {"instance", "instances", "inst", "insts"}:
        return "mask:uint16"
    is_mask = any(map(COMPANION_WITHIN.search, new - {"normals"})) or new & {"pha", "y"}
    return "mask" if is_mask or _without_suffix(pair.main) == _without_suffix(pair.companion) else "image"


def _patterns(pair: Pair) -> list[str]:
    """Return patterns that give the companion of this image, the simplest first."""
    folder, _, file = pair.companion.rpartition("/")
    main_folder, _, main_file = pair.main.rpartition("/")
    stem = PurePosixPath(main_file).stem
    other, suffix = PurePosixPath(file).stem, PurePosixPath(file).suffix
    ending = [other.removeprefix(stem) + suffix] if folder == main_folder and other.startswith(stem) else []
    texts = (f"{place}{name}{suffix}" for place in _folders(main_folder, folder) for name in _stems(stem, other))
    return [*ending, *(text for text in texts if "{" in text and _gives(text, pair))]


def _gives(text: str, pair: Pair) -> bool:
    stem = _without_suffix(pair.main)
    if "{" not in text:
        return stem + text == pair.companion
    try:
        return SidecarPattern(text).path(pair.main, stem.rpartition("/")[2]) == pair.companion
    except InvalidRequest:
        return False


def _takes(text: str, main: str) -> bool:
    return SidecarPattern(text).matches(main) if "{" in text else main.endswith(text)


def _folders(main: str, other: str) -> Iterator[str]:
    """Yield patterns of the companion's folder. main, other: the folders of the image and of the companion."""
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


def _stems(stem: str, other: str) -> Iterator[str]:
    """Yield patterns of the companion's name. stem, other: the names of the image and of the companion."""
    for match in re.finditer(f"(?={re.escape(stem)})", other):  # 0 in 0000 has four places
        yield f"{other[: match.start()]}{{stem}}{other[match.start() + len(stem) :]}"
    old, new = _difference(stem, other)
    if old and not re.search("[0-9](?!bit)", old):  # a number belongs to one image
        yield f"{{stem:{old}={new}}}"
    elif not old and (first := _PIECE.findall(stem)):  # an insertion, `a_1` and `a_mask_1`
        yield f"{{stem:{first[0]}={first[0]}{new}}}"
    if not re.search("[0-9]", other):  # `seg` of `1/t1.png` and `1/seg.png`
        yield other


def _difference(text: str, other: str) -> tuple[str, str]:
    """Return the middle pieces that differ: `images` and `masks` for `train_images` and `train_masks`."""
    pieces, others = _PIECE.findall(text), _PIECE.findall(other)
    most = min(len(pieces), len(others))
    first = next((at for at in range(most) if pieces[at] != others[at]), most)
    last = next((at for at in range(most - first) if pieces[-1 - at] != others[-1 - at]), most - first)
    return "".join(pieces[first : len(pieces) - last]), "".join(others[first : len(others) - last])
