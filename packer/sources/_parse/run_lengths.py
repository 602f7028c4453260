"""Run lengths: masks as COCO files have them, pixels column by column: so many of 0, so many of 1, so many of 0 ...

`counts` is a list of numbers, or a text that pycocotools makes of it: each number in groups of 5 bits, the lowest
first, as characters from "0" on; the sixth bit says that a group follows, the highest of the last group is the sign.
From the fourth number on it is the difference to the number before the last (pycocotools, common/maskApi.c:
rleToString, rleFrString).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.schema import MOST_PIXELS

_FIRST = ord("0")
_MORE, _SIGN, _BITS = 0x20, 0x10, 5
_MOST_GROUPS = 8  # 40 bits hold every difference of two numbers of pixels

RunLengths = npt.NDArray[np.int32]


def run_lengths(counts: str | Sequence[int], size: tuple[int, int]) -> RunLengths:
    """The numbers of a mask of that (height, width), int32 (R,), of pixels of 0 and 1 in turn, column by column.

    Raises BadInput where they are no such numbers, or their sum is not that of the mask's pixels.
    """
    height, width = size
    if height < 1 or width < 1 or height * width > MOST_PIXELS:
        raise BadInput(f"run lengths of a mask of {width}x{height} px: expected at most {MOST_PIXELS} px")
    found = _unpacked(counts) if isinstance(counts, str) else _checked(counts)
    total = int(found.sum())
    if total != height * width:
        raise BadInput(f"run lengths of {total} px, of a mask of {width}x{height}: expected {height * width}")
    return found.astype(np.int32)


def _checked(counts: Sequence[int]) -> npt.NDArray[np.int64]:
    found = np.asarray(counts, np.int64)
    if (found < 0).any() or (found > MOST_PIXELS).any():
        raise BadInput(f"run lengths from {found.min()} to {found.max()}: expected numbers of pixels")
    return found


def _unpacked(text: str) -> npt.NDArray[np.int64]:
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int64) - _FIRST
    is_last = (codes & _MORE) == 0
    if ((codes < 0) | (codes >= 2 * _MORE)).any() or (len(codes) and not is_last[-1]):
        raise BadInput(
            "run lengths: expected the text that pycocotools makes of them, found other characters, or a cut"
        )
    ends = np.flatnonzero(is_last)
    firsts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    groups = ends - firsts + 1
    if (groups > _MOST_GROUPS).any():
        raise BadInput("run lengths: a number of more bits than any number of pixels has")
    places = np.arange(len(codes)) - np.repeat(firsts, groups)
    values = np.add.reduceat((codes & (_MORE - 1)) << (_BITS * places), firsts) if len(ends) else codes
    values = values - np.where(codes[ends] & _SIGN, 1 << (_BITS * groups), 0)
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    if (values < 0).any() or (values > MOST_PIXELS).any():
        raise BadInput("run lengths: numbers below 0, or of more pixels than any picture has")
    return values
