"""Panoptic mask: the picture of segments of COCO's panoptic files, as a mask of 16 bit.

A pixel's colour is the id of its segment, R + 256 G + 65536 B, black no segment (cocodataset.org, "Data format",
panoptic segmentation). Ids have 24 bits, which no mask holds, and mean nothing beyond their picture: a mask has the
number of the segment in `segments_info` instead, from 1, and 0 for none.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.images import decode
from packer.sources._parse.folder_listing import counted, listed

_MOST_SEGMENTS = 0xFFFF


def panoptic_mask(png: bytes, ids: Sequence[int], *, strict: bool) -> npt.NDArray[np.uint16]:
    """Numbers of the segments, uint16 (H, W): 0 for none, else 1 + the place of the pixel's id among `ids`.

    ids: of the segments, each once, none of them 0. strict: a colour that is none of them is an error, else no segment.
    Raises BadInput, DamagedImage.
    """
    if len(ids) > _MOST_SEGMENTS:
        raise BadInput(f"{len(ids)} segments, expected at most {_MOST_SEGMENTS}")
    colours = decode(png, "image").astype(np.int32)
    found = colours[..., 0] + (colours[..., 1] << 8) + (colours[..., 2] << 16)
    known = np.asarray([0, *ids], np.int32)
    order = np.argsort(known)
    places = np.searchsorted(known[order], found).clip(max=len(known) - 1)
    numbers = order[places]
    is_known = known[numbers] == found
    if strict and not is_known.all():
        others = np.unique(found[~is_known]).tolist()
        raise BadInput(
            f"has pixels of {counted(len(others), 'id')} that segments_info does not have: {listed(map(str, others))}; "
            "--labels lenient takes them for none"
        )
    return np.where(is_known, numbers, 0).astype(np.uint16)
