"""RLE and panoptic: run lengths of binary masks, and panoptic images of segments, as COCO stores them.

Run lengths count pixels column by column: first the pixels of value 0, then of value 1, then of value 0, and so on.
`counts` is a list of these numbers, or the text that pycocotools writes. The text splits each number into groups of 5
bits, lowest group first. Each group is one character, `chr(48 + value)`. Bit 5 of the value is set if another group of
the number follows. The highest bit of the last group is the sign. From the fourth number on, the text contains
`number[i] - number[i - 2]` instead of `number[i]` (pycocotools, common/maskApi.c: rleToString, rleFrString).

In a panoptic image, the color of a pixel encodes the id of a segment, R + 256 G + 65536 B. Black pixels belong to no
segment (cocodataset.org, "Data format", panoptic segmentation). A uint16 mask cannot store ids of 24 bits. The mask
therefore stores the position of the segment in `segments_info`, counted from 1, and 0 for no segment.
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
_MOST_GROUPS = 8  # per number: 40 bits are enough for every difference of two pixel counts
_MOST_SEGMENTS = 0xFFFF


def run_lengths(counts: str | Sequence[int], size: tuple[int, int]) -> npt.NDArray[np.int32]:
    """Return the run lengths of a binary mask, int32 (R,): numbers of pixels of value 0, 1, 0, 1 ..., column by column.

    Args:
        counts: The run lengths as numbers, or as the compressed text of pycocotools.
        size: Height and width of the mask in px.

    Raises:
        BadInput: `counts` is not valid, or the sum of the run lengths is not height * width.
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
    """Return a mask, uint16 (H, W): 1 + the index in `ids` of the segment of each pixel, 0 for no segment.

    Args:
        png: The bytes of the panoptic image.
        ids: The ids of the segments, all different and not 0.
        strict: True: a color that encodes no id raises BadInput. False: pixels of this color get the value 0.

    Raises:
        BadInput: `ids` has more than 65535 entries, or `strict` is true and a color is unknown.
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
            f"has colors that are not ids in segments_info: {listed(map(str, others))}; --bad-labels skip ignores them"
        )
    return np.where(is_known, numbers, 0).astype(np.uint16)
