"""Folder layout: what the folders directly under the root are: classes, splits above classes, or roles of files.

ImageFolder takes them for classes whatever they hold, and so `train` and `val`, or `images` and `masks`, become labels
without a word. Here such names are refused with what to type instead; `layout="class"` says that they are classes.
"""

import re
from collections.abc import Collection, Iterable, Sequence
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
    """Raise InvalidRequest where the folders directly under the root are not named as classes are.

    pictures: relative paths of all samples. may_have_roles: whether folders of pictures that are named as pictures and
    as what belongs to them are classes all the same.
    """
    filled = sorted({name.partition("/")[0] for name in pictures if "/" in name})
    shared = set.intersection(*(set(words(name)) for name in filled)) if len(filled) > 1 else set()
    splits = [name for name in filled if {split_rank(name), split_rank(name, shared)} != {None}]
    _check_doubled(root, pictures, filled)
    if len(splits) > 1 or (splits and splits == filled):
        raise InvalidRequest(f"{shown(str(root))}: {_about_splits(root, ordered_splits(splits), pictures)}")
    are_roles = may_have_roles and any(map(is_companion, filled))
    if (not are_roles and _all_hold_split_words(filled)) or any(_holds_classes(name, pictures) for name in splits):
        raise InvalidRequest(f"{shown(str(root))}: {_about_splits(root, ordered_splits(filled), pictures)}")
    _check_depth(root, pictures, filled)


def _all_hold_split_words(names: Sequence[str]) -> bool:
    """Whether all names hold a word of splits, as `trainA` and `testB`, or `fold1` and `fold2`, do."""
    found = [{word.lower() for word in _WORD.findall(name)} for name in names]
    return (
        len(names) > 1
        and all(one & (_SPLIT_WORDS | _BESIDE_SPLITS) for one in found)
        and any(one & _SPLIT_WORDS for one in found)
    )


def _holds_classes(top: str, pictures: Sequence[str]) -> bool:
    """Whether a folder holds several folders of pictures and none directly, which would become one class."""
    inside = [name for name in pictures if name.startswith(f"{top}/")]
    return all(name.count("/") > 1 for name in inside) and len({name.split("/")[1] for name in inside}) > 1


def _check_doubled(root: Path, pictures: Sequence[str], filled: Sequence[str]) -> None:
    """Raise InvalidRequest where a folder holds nothing but one of its own name, as some archives are unpacked."""
    inner: dict[str, set[str]] = {top: set() for top in filled}
    deeper: dict[str, set[str]] = {top: set() for top in filled}
    for name in pictures:
        top, *parts = name.split("/")
        if parts:
            inner[top].add(parts[0])
            deeper[top].update(parts[1:2] if len(parts) > 2 else ())
    doubled = [top for top in filled if inner[top] == {top}]
    if not doubled:
        return
    first = max(doubled, key=lambda top: len(deeper[top]))
    classes = f", in {counted(len(deeper[first]), 'folder')}: {_some(sorted(deeper[first]))}" if deeper[first] else ""
    more = (
        "; each such folder makes a pack of its own, and --classes-from PACK numbers the classes as in the first"
        if len(filled) > 1 and classes
        else ""
    )
    raise InvalidRequest(
        f"{shown(str(root))}: all images of {shown(first)} lie in a folder of the same name{classes}; give "
        f"{inside(root, first, first)}{more}; or --layout class, if {_some(filled)} are the classes"
    )


def _check_depth(root: Path, pictures: Sequence[str], filled: Sequence[str]) -> None:
    """Raise InvalidRequest where the classes seem to be the folders one level below."""
    if not filled or any(name.count("/") < 2 for name in pictures):
        return
    inner = {top: {name.split("/")[1] for name in pictures if name.startswith(f"{top}/")} for top in filled}
    if len(filled) > 1 and all(len(one) == 1 for one in inner.values()):
        _check_wrapped(root, pictures, filled)
    if len(filled) == 1 and len(inner[filled[0]]) > 1:
        raise InvalidRequest(
            f"{shown(str(root))}: all images lie in {shown(filled[0])}, in {counted(len(inner[filled[0]]), 'folder')}: "
            f"{_some(sorted(inner[filled[0]]))}; give {inside(root, filled[0])}, if these are the classes; or "
            "--layout class, if all are one class"
        )
    common = set.intersection(*inner.values())
    if len(filled) > 1 and len(common) > 1 and all(split_rank(name) is not None for name in common):
        raise InvalidRequest(
            f"{shown(str(root))}: {_some(filled)} hold the same folders, named as splits: {_some(sorted(common))}; "
            f"move these above the classes, as {shown(min(common))}/{shown(filled[0])}, and say --layout split/class; "
            f"or --layout class, if {_some(filled)} are the classes and the splits make no difference"
        )
    if len(filled) > 1 and len(common) > 1 and 2 * len(common) >= len(set.union(*inner.values())):
        raise InvalidRequest(
            f"{shown(str(root))}: {_some(filled)} hold the same folders: {_some(sorted(common))}; say --layout "
            "split/class, if these are the classes, which makes one pack with the field split; or --layout class, if "
            f"{_some(filled)} are the classes"
        )


def _check_wrapped(root: Path, pictures: Sequence[str], filled: Sequence[str]) -> None:
    """Raise InvalidRequest where the same folders lie one level deeper, as of Office-31: `amazon/images/bike`."""
    deeper = {
        top: {name.split("/")[2] for name in pictures if name.startswith(f"{top}/") and name.count("/") > 2}
        for top in filled
    }
    common = set.intersection(*deeper.values())
    if len(common) > 1 and 2 * len(common) >= len(set.union(*deeper.values())):
        wrapped = next(name for name in pictures if name.startswith(f"{filled[0]}/")).split("/")[1]
        raise InvalidRequest(
            f"{shown(str(root))}: {_some(filled)} hold the same folders, in {shown(wrapped)}: {_some(sorted(common))}; "
            f"if these are the classes, pack each by itself, as {inside(root, filled[0], wrapped)}, and all but "
            f"the first with --classes-from PACK; or --layout class, if {_some(filled)} are the classes"
        )


def check_inner_classes(root: Path, names: Sequence[str]) -> None:
    """Raise InvalidRequest where the folders in split folders are roles of files, as `train/images` and
    `train/masks`.
    """
    if names and all(is_role(name) for name in names) and any(is_picture_role(name) for name in names):
        raise InvalidRequest(
            f"{shown(str(root))}: the folders in the splits are {listed(names)}: these are no classes; "
            "say --layout split, which gives no labels"
        )


def _about_splits(root: Path, splits: Sequence[str], pictures: Sequence[str]) -> str:
    found = []
    of_classes: list[str] = []
    of_roles: list[str] = []
    most = 0
    for split in splits:
        inside = [name for name in pictures if name.startswith(f"{split}/")]
        classes = sorted({name.split("/")[1] for name in inside if name.count("/") > 1})
        most = max(most, len(classes))
        if classes:
            (of_roles if all(map(is_role, classes)) else of_classes).append(split)
        folders = f" in {counted(len(classes), 'folder')}: {_some(classes)}" if classes else ""
        found.append(f"{shown(split)} ({counted(len(inside), 'image')}{folders})")
    if most == 1 and len(of_classes) < len(splits) and not of_roles:  # DIV2K_train_HR/1.png, ..._LR_bicubic/X2/1x2.png
        of_classes = []
    return (
        f"folders named as splits, not as classes: {', '.join(found)}; "
        f"{_way_out(root, splits, pictures, of_classes, of_roles)}; or --layout class, if these are classes"
    )


def _way_out(
    root: Path,
    splits: Sequence[str],
    pictures: Sequence[str],
    of_classes: Sequence[str],
    of_roles: Sequence[str],
) -> str:
    """What to do with folders that are splits. of_classes, of_roles: those that hold classes, and roles of files."""
    if of_classes and of_roles:
        return (
            f"give {inside(root, of_classes[0])}, whose folders are the classes; {_some(of_roles)} hold no class "
            "folders, so that no layout labels them: sort their images into class folders first"
        )
    others = sorted({name.partition("/")[0] for name in pictures if "/" in name} - set(splits))
    if of_classes and others:
        belonging = [name for name in others if is_companion(name)]
        what = "what belongs to pictures" if belonging else "something else"
        return (
            f"{_some(belonging or others)} beside them seems to be {what}, and would become a split: move it out of "
            f"{shown(str(root))}, and then say --layout split/class"
        )
    if of_classes:
        flat = [name for name in splits if name not in of_classes]
        loose = f"; it leaves out the images of {_some(flat)}, which lie in no class folder" if flat else ""
        alone = f"; or give {inside(root, of_classes[0])}, for its classes alone" if flat else ""
        return (
            "say --layout split/class, which makes one pack with the field split and classes that all splits share"
            f"{loose}{alone}; or --layout split, if the folders in them are no classes"
        )
    alone = "" if all(split_rank(name) is not None for name in splits) else "; or give one of them as FOLDER"
    return f"say --layout split, which makes one pack with the field split and no labels{alone}"


def inside(root: Path, *names: str) -> str:
    """A folder in the root, as the user gives it. An archive has to be unpacked first."""
    if root.is_dir():
        return shown(str(root.joinpath(*names)))
    return f"{shown('/'.join(names))} of the archive, unpacked"


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more
