"""COCO masks: run lengths, and images of segments.

Run lengths are numbers of pixels, column by column: so many of 0, so many of 1, so many of 0 ... `counts` is a list of
numbers, or the text that pycocotools writes. In the text, each number is in groups of 5 bits, the lowest first, as
characters from "0" on. The sixth bit is set if a group follows; the highest bit of the last group is the sign. From the
fourth number on, the text contains the difference to the number before the last (pycocotools, common/maskApi.c:
rleToString, rleFrString).

In an image of segments, the color of a pixel is the id of its segment, R + 256 G + 65536 B. Black pixels have none
(cocodataset.org, "Data format", panoptic segmentation). A mask cannot store ids of 24 bits. It stores the number of
the segment in `segments_info` instead, from 1, and 0 for no segment.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.images import decode
from packer.schema import MOST_PIXELS
from packer.sources._message_texts import listed

_FIRST = ord("0")
_MORE, _SIGN, _BITS = 0x20, 0x10, 5
_MOST_GROUPS = 8  # 40 bits hold every difference of two numbers of pixels
_MOST_SEGMENTS = 0xFFFF


def run_lengths(counts: str | Sequence[int], size: tuple[int, int]) -> npt.NDArray[np.int32]:
    """Return the run lengths of a mask, int32 (R,): pixels of 0 and 1 in turn, column by column.

    Args:
        counts: The numbers, or the text of pycocotools.
        size: Height and width of the mask in px.

    Raises:
        BadInput: The counts are not valid, or their sum is not the number of pixels.
    """
    height, width = size
    if height < 1 or width < 1 or height * width > MOST_PIXELS:
        raise BadInput(f"run lengths of a mask of {width}x{height} px: expected 1 to {MOST_PIXELS} px")
    lengths = _unpacked(counts) if isinstance(counts, str) else np.asarray(counts, np.int64)
    if (lengths < 0).any() or (lengths > MOST_PIXELS).any():
        raise BadInput(f"run lengths from {lengths.min()} to {lengths.max()}: expected numbers of pixels")
    if int(lengths.sum()) != height * width:
        raise BadInput(f"run lengths of {lengths.sum()} px in a mask of {width}x{height}: expected {height * width}")
    return lengths.astype(np.int32)


def _unpacked(text: str) -> npt.NDArray[np.int64]:
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int64) - _FIRST
    ends = np.flatnonzero((codes & _MORE) == 0)
    firsts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    groups = ends - firsts + 1
    is_cut = len(codes) > 0 and (not len(ends) or ends[-1] != len(codes) - 1)
    if is_cut or ((codes < 0) | (codes >= 2 * _MORE)).any() or (groups > _MOST_GROUPS).any():
        raise BadInput("run lengths: expected the text that pycocotools writes, found other characters or a cut")
    places = np.arange(len(codes)) - np.repeat(firsts, groups)
    values = np.add.reduceat((codes & (_MORE - 1)) << (_BITS * places), firsts) if len(ends) else codes
    values = values - np.where(codes[ends] & _SIGN, 1 << (_BITS * groups), 0)
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values


def panoptic_mask(png: bytes, ids: Sequence[int], *, strict: bool) -> npt.NDArray[np.uint16]:
    """Return the number of the segment of each pixel, uint16 (H, W): 0 for none, else 1 + the position of its id.

    Args:
        png: The image of segments.
        ids: The ids of the segments, all different and not 0.
        strict: Whether a color that is not an id is an error; otherwise the pixel does not have a segment.

    Raises:
        BadInput: There are too many segments, or unknown colors.
        DamagedImage: The image cannot be decoded.
    """
    if len(ids) > _MOST_SEGMENTS:
        raise BadInput(f"{len(ids)} segments, expected at most {_MOST_SEGMENTS}")
    colors = decode(png, "image").astype(np.int32)
    pixels = colors[..., 0] + (colors[..., 1] << 8) + (colors[..., 2] << 16)
    values = np.asarray([0, *ids], np.int32)
    order = np.argsort(values)
    numbers = order[np.searchsorted(values[order], pixels).clip(max=len(values) - 1)]
    is_known = values[numbers] == pixels
    if strict and not is_known.all():
        others = np.unique(pixels[~is_known]).tolist()
        raise BadInput(
            f"has colors that are not ids in segments_info: {listed(map(str, others))}; --labels lenient ignores them"
        )
    return np.where(is_known, numbers, 0).astype(np.uint16)
