"""Names: words in names of files and folders that say what belongs to what: pictures, and masks or labels of them."""

import re

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PICTURES_TEXT = """
image images img imgs jpegimages jpegs pic pics picture pictures photo photos rgb rgbs frames input inputs
"""
PICTURES = frozenset(_PICTURES_TEXT.split())
_COMPANIONS_TEXT = """
mask masks segmentation segmentations segmentationclass segmentationobject seg segs label labels lbl lbls annotation
annotations annot annots anno annos gt gts groundtruth truth truths trimap trimaps depth depths matte mattes
alpha result results output outputs prediction predictions pred preds bbox bboxes boxes target targets edges
normals xml xmls json jsons txt csv
"""
_COMPANIONS = frozenset(_COMPANIONS_TEXT.split())


def is_role(name: str) -> bool:
    """Whether a folder is named as pictures, or as what belongs to them."""
    return is_picture_role(name) or is_companion(name)


def is_picture_role(name: str) -> bool:
    """Whether a name says pictures, and nothing that belongs to them."""
    return bool(PICTURES.intersection(words(name))) and not is_companion(name)


def is_companion(name: str) -> bool:
    """Whether a name says what belongs to pictures, as masks do."""
    return bool(_COMPANIONS.intersection(words(name)))


def words(name: str) -> list[str]:
    """The words of a name in small letters: of `SegmentationClass`, `u2net_results`."""
    return [word.lower() for word in (*_WORD.findall(name), *re.findall("[A-Za-z]+", name))]
