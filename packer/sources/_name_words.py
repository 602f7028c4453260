"""Name words: classify names of files, folders and fields by their words: splits, images, masks, depth."""

import re
from collections.abc import Collection, Iterable, Sequence

from packer.errors import BadInput
from packer.sources._message_texts import counted, listed

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SPLITS = (
    ("train", "training", "tr", "trn"),
    ("val", "valid", "validation", "va", "dev"),
    ("test", "testing", "tst", "te", "eval", "evaluation"),
)
_SPLIT_WORDS = frozenset(word for names in _SPLITS for word in names) | {"fold", "folds"}
_FILLERS = frozenset(("set", "split", "data", "dataset"))
_IMAGES_TEXT = """
image images im img imgs jpegimages jpegs pic pics picture pictures photo photos rgb rgbs color colour frames
input inputs
"""
IMAGES = frozenset(_IMAGES_TEXT.split())
_LABELS_TEXT = """
mask masks seg segs segmentation segmentations label labels annotation annotations annot annots anno annos gt gts
groundtruth truth lab labs lbl lbls trimap trimaps instance instances ids
"""
_LABELS = frozenset(_LABELS_TEXT.split())
_COMPANIONS_TEXT = """
segmentationclass segmentationobject truths depth depths matte mattes alpha result results output outputs
prediction predictions pred preds bbox bboxes boxes target targets edges normals manual xml xmls json jsons txt csv
lr noisy pha
"""
_COMPANIONS = _LABELS | frozenset(_COMPANIONS_TEXT.split())
_LABEL_MAPS_TEXT = "msk msks labelmap labelmaps inst insts id labelids panoptic semantic semseg"
_LABEL_MAPS = _LABELS | frozenset(_LABEL_MAPS_TEXT.split())
DEPTHS = frozenset(("depth", "depths", "disparity", "disp"))


def words(name: str) -> list[str]:
    """Return the words of a name in lower case: `SegmentationClass` gives segmentation, class, segmentationclass."""
    return [word.lower() for word in (*_WORD.findall(name), *re.findall("[A-Za-z]+", name))]


def is_companion(name: str) -> bool:
    """Return True if a name contains a word for files that belong to images, such as `mask`."""
    return bool(_COMPANIONS.intersection(words(name)))


def is_image_word(name: str) -> bool:
    """Return True if a name contains a word for images, and no word for files that belong to images."""
    return bool(IMAGES.intersection(words(name))) and not is_companion(name)


def is_role(name: str) -> bool:
    """Return True if a name contains a word for images, or a word for files that belong to images."""
    return is_image_word(name) or is_companion(name)


def has_labels(name: str) -> bool:
    """Return True if a name contains a word for images whose pixels are labels, such as mask, and none for depth."""
    found = set(words(name))
    return bool(found & _LABEL_MAPS) and not found & DEPTHS


def split_rank(name: str) -> int | None:
    """Return 0 for the name of a training split, 1 for validation, 2 for test, None for any other name."""
    rest = {word.lower() for word in _WORD.findall(name)} - _FILLERS - IMAGES
    if len(rest) != 1:
        return None
    word = rest.pop()
    return next((rank for rank, names in enumerate(_SPLITS) if word in names), None)


def ordered_splits(names: Iterable[str]) -> tuple[str, ...]:
    """Sort names of splits: training, validation, test, others. Names of equal rank are sorted alphabetically."""

    def place(name: str) -> tuple[int, str]:
        rank = split_rank(name)
        return len(_SPLITS) if rank is None else rank, name

    return tuple(sorted(names, key=place))


def are_splits(names: Collection[str]) -> bool:
    """Return True if all names contain a word for splits, such as `train`, `trainA`, `seg_test` and `fold1`."""
    return all(any(word.lower() in _SPLIT_WORDS for word in _WORD.findall(name)) for name in names)


def numbered_classes(where: str, found: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the class names; the class with number i is at position i. They are `known`, or else the sorted `found`.

    `known` is empty without the option --classes-from. A class in `found` that is not in `known` raises BadInput.
    """
    unknown = sorted(set(found).difference(known)) if known else []
    if unknown:
        raise BadInput(
            f"{where}: {counted(len(unknown), 'class')} that the pack of --classes-from does not have: "
            f"{listed(unknown)}; it has {listed(known)}; rename or remove them, or omit --classes-from"
        )
    return tuple(known) or tuple(sorted(found))
