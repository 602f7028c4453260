"""Regions: the pixels that a crop needs, at the scale that it needs, in as little work as the file allows.

| file                                            | what is decoded                                                    |
|-------------------------------------------------|--------------------------------------------------------------------|
| JPEG with restart intervals that divide each    | a smaller JPEG of the intervals that the box touches, see          |
| row, one scan: packer's `jpeg:Q`, foreign ones  | packer.decoders.cutting                                            |
| any other JPEG, a box that is nearly all of it  | the whole picture, at the scale                                    |
| CMYK; a format that is not JPEG                 | the whole picture, not scaled, through OpenCV                      |

Whichever it is, the pixels are those of the whole picture decoded at that scale. What is damaged outside of what is
decoded is not seen: a record's crc32 is there for that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.arrays import deliver
from packer.decoders import cutting, libjpeg
from packer.decoders.cutting import FEWEST_PX, Box
from packer.decoders.header import Buffer, Header
from packer.decoders.pixels import NAMES, decode
from packer.errors import Refused
from packer.registry import import_or_explain
from packer.scratch import Scratch

Pixels = npt.NDArray[np.uint8]

FULL = 8  # eighths

_scratch = Scratch()  # each thread's own


@dataclass(slots=True)
class Region:
    """A part of a picture.

    pixels: uint8 (h, w, 3), RGB, C-contiguous: `out`, or memory of the thread that its next decode_region fills anew.
    top, left: where pixels[0, 0] lies in the whole picture, in px at this region's scale.
    full: (height, width) of the whole picture at this scale, each side times eighths / 8, rounded up.
    eighths: the scale, 1 to 8.
    """

    pixels: Pixels
    top: int
    left: int
    full: tuple[int, int]
    eighths: int


def decode_region(
    buffer: Buffer,
    found: Header,
    *,
    box: Box | None = None,
    eighths: int = FULL,
    fast_dct: bool = False,
    out: Any = None,
) -> Region:
    """At least the pixels of a box, of a picture scaled by eighths / 8, equal to those of the whole at that scale.

    found: what sniff(buffer) gave.
    box: (top, left, height, width) in px of the full size, inside the picture; None is all of it. The region covers
      the box times the scale, rounded outwards.
    eighths: 1 to 8. Region.eighths is the scale that was used: 8 where both sides of the picture are under 8 px, for
      CMYK and for what is not JPEG.
    fast_dct: the quicker, less exact inverse DCT (JDCT_IFAST); it is of no use below 8 eighths.
    out: C-contiguous writable uint8 (h, w, 3): filled where the whole picture is decoded and has that shape, otherwise
      left alone; zeros are left in it where the picture is damaged.
    Raises DamagedImage, as packer.decoders.decode, where what is decoded is damaged or a table of intervals is wrong;
    BadInput for a picture that is no image; Refused for a wrong box or scale.
    """
    _check_request(found, box, eighths)
    if found.format != "jpeg" or found.cmyk:
        return _unscaled(buffer, found, out=out)
    eighths = _scale(found, eighths)
    full = -(-found.height * eighths // 8), -(-found.width * eighths // 8)
    part = None if box is None or found.intervals is None else _cut(buffer, found, box, eighths)
    if part is None:
        array = out if out is not None and out.shape == (*full, 3) else _scratch.pixels(*full)
        libjpeg.decode(buffer, found, array, eighths=eighths, fast_dct=fast_dct)
        return Region(array, 0, 0, full, eighths)
    file, (height, width), (top, left) = part
    array = _scratch.pixels(-(-height * eighths // 8), -(-width * eighths // 8))
    libjpeg.library().decode(file, array, eighths=eighths, fast_dct=fast_dct)
    return Region(array, top, left, full, eighths)


class OpenCV:
    """decode_region through OpenCV, for those who ask for it: the same pixels at 1, 2, 4 and 8 eighths.

    Other scales are rounded up to one of these; fast_dct is not known to OpenCV and changes nothing.
    """

    def __init__(self, *, strict: bool = True) -> None:
        """strict: see packer.decoders.decode."""
        self._strict = strict

    def __call__(
        self,
        buffer: Buffer,
        found: Header,
        *,
        box: Box | None = None,
        eighths: int = FULL,
        fast_dct: bool = False,
        out: Any = None,
    ) -> Region:
        """See decode_region; `out`, where it is not filled with the whole picture, is left alone."""
        del fast_dct
        _check_request(found, box, eighths)
        if found.format != "jpeg" or found.cmyk:
            return _unscaled(buffer, found, out=out)
        eighths = _scale(found, 1 << (eighths - 1).bit_length())
        full = -(-found.height * eighths // 8), -(-found.width * eighths // 8)
        part = None if box is None else _cut(buffer, found, box, eighths)
        file, size, (top, left) = part or (buffer, (found.height, found.width), (0, 0))
        if self._strict:
            file = libjpeg.check(file, found)
        opencv = import_or_explain("packer.decoders.opencv", "decoding pictures")
        array = opencv.reduced(file, size, eighths=eighths)
        if part is None and out is not None and out.shape == array.shape:
            array = deliver(array, out=out)
        return Region(array, top, left, full, eighths)


def chosen(decoder: str, *, strict: bool = True) -> Callable[..., Region]:
    """decode_region of that decoder, a name of packer.decoders.NAMES; raises Refused for any other."""
    if decoder not in NAMES:
        raise Refused(f"unknown decoder {decoder!r}; expected one of {', '.join(NAMES)}")
    return OpenCV(strict=strict) if decoder == "opencv" else decode_region


def _scale(found: Header, eighths: int) -> int:
    """The scale that libjpeg-turbo can be asked for: by a size, which names no scale where both sides are short."""
    return FULL if found.height < FEWEST_PX and found.width < FEWEST_PX else eighths


def _cut(
    buffer: Buffer, found: Header, box: Box, eighths: int
) -> tuple[memoryview, tuple[int, int], tuple[int, int]] | None:
    """A smaller file that shows the box, the size of its picture in full, and its corner at the scale."""
    kept = cutting.window(found, box, eighths)
    if kept is None or found.intervals is None:
        return None
    file = cutting.cut(buffer, found, kept, _scratch)
    if file is None:
        return None
    return file, cutting.size(found, found.intervals, kept), cutting.corner(found.intervals, kept, eighths)


def _check_request(found: Header, box: Box | None, eighths: int) -> None:
    if not 1 <= eighths <= FULL:
        raise Refused(f"cannot decode at scale {eighths}/8; expected 1 to 8 eighths")
    if box is not None:
        top, left, height, width = box
        if not (0 <= top < top + height <= found.height and 0 <= left < left + width <= found.width):
            raise Refused(
                f"cannot decode {width}x{height} px from ({left}, {top}) on: the picture has "
                f"{found.width}x{found.height} px"
            )


def _unscaled(buffer: Buffer, found: Header, *, out: Any) -> Region:
    full = found.height, found.width
    if out is not None and out.shape != (*full, 3):
        out = None
    return Region(decode(buffer, "image", out=out), 0, 0, full, FULL)
