"""Folder layout: what the folders directly under the root are: classes, splits above classes, or roles of files.

ImageFolder takes them for classes whatever they hold, and so `train` and `val`, or `images` and `masks`, become labels
without a word. Here such names are refused with what to type instead; `layout="class"` says that they are classes.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from packer.errors import InvalidRequest
from packer.sources._parse.folder_listing import counted, listed, shown

UNCHECKED = "unchecked"  # as auto, whatever the folders are named: where nobody trains on the labels
CHOICES = ("auto", "class", "split/class", "split", UNCHECKED)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SPLITS = (
    ("train", "training", "tr", "trn"),
    ("val", "valid", "validation", "va", "dev"),
    ("test", "testing", "tst", "te", "eval", "evaluation"),
)
_SPLIT_WORDS = frozenset(word for names in _SPLITS for word in names) | {"fold", "folds"}
_BESIDE_SPLITS = frozenset(("holdout", "unlabeled", "unlabelled", "background", "query", "gallery"))
_FILLERS = frozenset(("set", "split", "data", "dataset"))
_PICTURES_TEXT = """
image images im img imgs jpegimages jpegs pic pics picture pictures photo photos rgb rgbs color colour frames
input inputs
"""
PICTURES = frozenset(_PICTURES_TEXT.split())
_COMPANIONS_TEXT = """
mask masks segmentation segmentations segmentationclass segmentationobject seg segs label labels lbl lbls annotation
annotations annot annots anno annos gt gts groundtruth truth truths trimap trimaps depth depths matte mattes
alpha result results output outputs prediction predictions pred preds bbox bboxes boxes target targets edges
normals instance instances ids lab labs manual xml xmls json jsons txt csv
"""
_COMPANIONS = frozenset(_COMPANIONS_TEXT.split())
_LABEL_WORDS_TEXT = """
mask masks msk msks seg segs segmentation segmentations label labels lbl lbls labelmap labelmaps annotation annotations
annot annots anno annos gt gts groundtruth truth lab labs trimap trimaps instance instances inst insts id ids labelids
panoptic semantic semseg
"""
_LABEL_WORDS = frozenset(_LABEL_WORDS_TEXT.split())
DEPTH_WORDS = frozenset(("depth", "depths", "disparity", "disp"))
COMPANION_WITHIN = re.compile("|".join(sorted(_COMPANIONS)), re.IGNORECASE)  # finds more than is_companion does


def is_role(name: str) -> bool:
    """Whether a folder is named as pictures, or as what belongs to them."""
    return is_picture_role(name) or is_companion(name)


def is_picture_role(name: str) -> bool:
    """Whether a name says pictures, and nothing that belongs to them."""
    return bool(PICTURES.intersection(words(name))) and not is_companion(name)


def is_companion(name: str) -> bool:
    """Whether a name says what belongs to pictures, as masks do."""
    return bool(_COMPANIONS.intersection(words(name)))


def says_labels(name: str) -> bool:
    """Whether a name says a picture whose values are labels, as masks are, and no depth."""
    said = set(words(name))
    return bool(said & _LABEL_WORDS) and not said & DEPTH_WORDS


def words(name: str) -> list[str]:
    """The words of a name in small letters: of `SegmentationClass`, `u2net_results`."""
    return [word.lower() for word in (*_WORD.findall(name), *re.findall("[A-Za-z]+", name))]


def split_rank(name: str, passed_over: Collection[str] = ()) -> int | None:
    """0 for a folder named as training data, 1 validation, 2 test; None for any other name.

    passed_over: words that say nothing here, such as what all folders have in their names.
    """
    meant = {word.lower() for word in _WORD.findall(name)} - _FILLERS - PICTURES - set(passed_over)
    if len(meant) != 1:
        return None
    word = meant.pop()
    return next((rank for rank, names in enumerate(_SPLITS) if word in names), None)


def ordered_splits(names: Iterable[str]) -> tuple[str, ...]:
    """Training, validation, test, then all others; by name among equals."""

    def place(name: str) -> tuple[int, str]:
        rank = split_rank(name)
        return len(_SPLITS) if rank is None else rank, name

    return tuple(sorted(names, key=place))


def check_classes(root: Path, pictures: Sequence[str], *, may_have_roles: bool = False) -> None:
    """Raise InvalidRequest if the folders directly under the root do not seem to be classes.

    pictures: relative paths of all samples. may_have_roles: whether folders named as images and masks may be classes.
    """
    inner: dict[str, set[str]] = {}  # folder -> the folders in it; "" if images are directly in it
    for name in pictures:
        top, *parts = name.split("/")
        if parts:
            inner.setdefault(top, set()).add(parts[0] if len(parts) > 1 else "")
    tops = sorted(inner)
    if not tops:
        return
    doubled = [top for top in tops if inner[top] == {top}]
    if doubled:
        first = max(doubled, key=lambda top: len(_folders_in(pictures, top, top)))
        raise InvalidRequest(_about_inner(root, tops, (first, first), _folders_in(pictures, first, first)))
    shared = set.intersection(*(set(words(name)) for name in tops)) if len(tops) > 1 else set()
    splits = [name for name in tops if {split_rank(name), split_rank(name, shared)} != {None}]
    if len(splits) > 1 or splits == tops:
        raise InvalidRequest(_about_splits(root, ordered_splits(splits), inner, pictures))
    are_roles = may_have_roles and any(map(is_companion, tops))
    holds_classes = any("" not in inner[name] and len(inner[name]) > 1 for name in splits)
    if (not are_roles and _all_contain_split_words(tops)) or holds_classes:
        raise InvalidRequest(_about_splits(root, ordered_splits(tops), inner, pictures))
    if any(name.count("/") < 2 for name in pictures):
        return
    if len(tops) == 1:
        if len(inner[tops[0]]) > 1:
            raise InvalidRequest(_about_inner(root, tops, (tops[0],), inner[tops[0]]))
        return
    if all(len(folders) == 1 for folders in inner.values()):  # Office-31: `amazon/images/bike`
        common = _common([_folders_in(pictures, top, *inner[top]) for top in tops])
        if common:
            raise InvalidRequest(_about_inner(root, tops, (tops[0], *inner[tops[0]]), common))
    if common := _common(list(inner.values())):
        are_splits = all(split_rank(name) is not None for name in common)
        move = f"move {_some(common)} above the classes, as {shown(min(common))}/{shown(tops[0])}, and " * are_splits
        raise InvalidRequest(
            f"{shown(str(root))}: {_some(tops)} contain the same folders: {_some(common)}; for one pack with the field "
            f"split, {move}add: --layout split/class; if {_some(tops)} are the classes, add: --layout class"
        )


def _folders_in(pictures: Iterable[str], *names: str) -> set[str]:
    """The folders that a folder contains, by the images in them."""
    place = f"{'/'.join(names)}/"
    rests = (name.removeprefix(place) for name in pictures if name.startswith(place))
    return {rest.partition("/")[0] for rest in rests if "/" in rest}


def _common(folders: Sequence[set[str]]) -> set[str]:
    """The names in all of these; empty if there are not two, or if they are not half of all names."""
    common = set.intersection(*folders) - {""}
    return common if len(common) > 1 and 2 * len(common) >= len(set.union(*folders)) else set()


def _all_contain_split_words(names: Sequence[str]) -> bool:
    """Whether all names contain a word for splits, as `trainA` and `testB`, or `fold1` and `fold2`, do."""
    found = [{word.lower() for word in _WORD.findall(name)} for name in names]
    are_all = all(one & (_SPLIT_WORDS | _BESIDE_SPLITS) for one in found)
    return len(names) > 1 and are_all and any(one & _SPLIT_WORDS for one in found)


def _about_inner(root: Path, tops: Sequence[str], place: Sequence[str], classes: Iterable[str]) -> str:
    """The error for classes that seem to be deeper. place: the first folder that contains them."""
    more = "; for one pack of each such folder, add --classes-from PACK to all but the first" if len(tops) > 1 else ""
    return (
        f"{shown(str(root))}: the classes seem to be the folders in {shown('/'.join(place))}: {_some(classes)}; if so, "
        f"give {inside(root, *place)}{more}; if {_some(tops)} are the classes, add: --layout class"
    )


def _about_splits(root: Path, splits: Sequence[str], inner: Mapping[str, set[str]], pictures: Sequence[str]) -> str:
    """The error for folders that are named as splits, with the options for each reading."""
    counts = Counter(name.partition("/")[0] for name in pictures)
    folders = {split: inner[split] - {""} for split in splits}
    found = [
        f"{shown(split)} ({counted(counts[split], 'image')}"
        + (f" in {counted(len(names), 'folder')}: {_some(names)})" if names else ")")
        for split, names in folders.items()
    ]
    of_roles = [split for split, names in folders.items() if names and all(map(is_role, names))]
    of_classes = [split for split, names in folders.items() if names and split not in of_roles]
    if max(map(len, folders.values())) == 1 and len(of_classes) < len(splits):  # `set_HR/1.png`, `set_LR/X2/1.png`
        of_classes = []
    without = [split for split in splits if split not in of_classes]
    others = sorted(inner.keys() - set(splits))
    readings = []
    if of_classes and not of_roles:
        move = f"move {_some(others)} out of {shown(str(root))}, which would become a split, and " if others else ""
        loose = f", which leaves out the images of {_some(without)}" if without else ""
        readings.append(f"for classes in splits, {move}add: --layout split/class{loose}")
    if of_classes and without:
        readings.append(f"for the classes of {shown(of_classes[0])} alone, give {inside(root, of_classes[0])}")
    readings.append("for the field split without labels, add: --layout split")
    return (
        f"{shown(str(root))}: folders named as splits, not as classes: {', '.join(found)}; {'; '.join(readings)}; if "
        "these are classes, add: --layout class"
    )


def check_inner_classes(root: Path, names: Sequence[str]) -> None:
    """Raise InvalidRequest if the folders in splits are roles of files, as `train/images` and `train/masks`."""
    if names and all(map(is_role, names)) and any(map(is_picture_role, names)):
        raise InvalidRequest(
            f"{shown(str(root))}: the folders in the splits are {listed(names)}: these are not classes; for no labels, "
            "add: --layout split"
        )


def inside(root: Path, *names: str) -> str:
    """A folder in the root, as the user gives it. An archive has to be unpacked first."""
    if root.is_dir():
        return shown(str(root.joinpath(*names)))
    return f"{shown('/'.join(names))} of the archive, unpacked"


def _some(names: Iterable[str], most: int = 5) -> str:
    first = ordered_splits(names)
    more = f" and {len(first) - most} more" if len(first) > most else ""
    return ", ".join(map(shown, first[:most])) + more
