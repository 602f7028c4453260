"""Region decoder: decodes the pixels that a crop or a view needs, at the scale that it needs, and little else.

| file                                            | what is decoded                                                    |
|-------------------------------------------------|--------------------------------------------------------------------|
| JPEG with restart intervals that divide each    | a smaller JPEG of the intervals that the box touches, see          |
| row, one scan: packer's `jpeg:Q`, foreign ones  | packer.images.lossless_jpeg_crop; where they are says packer's own |
|                                                 | table, in foreign files they are looked for                        |
| JPEG of one scan without any, its bytes trusted | the MCUs of the box, see `_cropping_region`, where      |
| for their checksum: the usual `encoded` ones    | libjpeg-turbo 3 is called by PyTurboJPEG; else the rows down to    |
|                                                 | the end of the box, see packer.images.lossless_jpeg_crop           |
| any other JPEG, a box that is nearly all of it  | the whole image, at the scale                                    |
| CMYK; a format that is not JPEG                 | the whole image, not scaled, through OpenCV                      |

Whichever it is, the pixels are those of the whole image decoded at that scale. What is damaged outside of what is
decoded is not seen: a record's crc32 is there for that.

Through a view, the scale is a half, a quarter or an eighth where the view shrinks by as much and wants antialiasing.
The other eighths are no gain: libjpeg-turbo has no vector code for them, and takes longer than for the whole.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import DamagedImage, InvalidRequest
from packer.geometry import View
from packer.geometry.warp import image
from packer.geometry.warp.axis_aligned import axis_aligned_steps, needed, shrinking
from packer.images import lossless_jpeg_crop
from packer.images.backends import strict_jpeg
from packer.images.backends.strict_jpeg import RegionDecoder
from packer.images.decode import DEFAULT_OPTIONS, DecodeOptions, decode
from packer.images.headers._header_record import Buffer, Header
from packer.images.headers.jpeg import END
from packer.images.lossless_jpeg_crop import FEWEST_PX, FULL_SCALE, Box, TopRows, Window, span
from packer.system.exact_casts import target
from packer.system.thread_scratch import ThreadScratch

Pixels = npt.NDArray[np.uint8]

FULL = FULL_SCALE
_MCUS = {(8, 8), (8, 16), (16, 16)}
_FEWEST_COLUMNS_PX = 16

_scratch = ThreadScratch()  # each thread's own


@dataclass(slots=True)
class Region:
    """A part of an image.

    pixels: uint8 (h, w, 3), RGB, C-contiguous: `out`, or memory of the thread that its next decode_region fills anew.
    top, left: where pixels[0, 0] lies in the whole image, in px at this region's scale.
    full: (height, width) of the whole image at this scale, each side times eighths / 8, rounded up.
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
    options: DecodeOptions = DEFAULT_OPTIONS,
    out: Any = None,
) -> Region:
    """Decode a region now; arguments as of `prepare_region`."""
    region, fill = prepare_region(buffer, found, box=box, eighths=eighths, options=options, out=out)
    fill()
    return region


def prepare_region(
    buffer: Buffer,
    found: Header,
    *,
    box: Box | None = None,
    eighths: int = FULL,
    options: DecodeOptions = DEFAULT_OPTIONS,
    out: Any = None,
) -> tuple[Region, Callable[[], None]]:
    """A region whose pixels are not yet there, and what decodes them; of other formats than JPEG they are.

    More regions may be prepared before a first is filled; it is filled, and used, by the thread that prepared it.
    It covers at least a box of an image that is scaled by eighths / 8, with the pixels of the whole at that scale.

    found: what sniff(buffer) gave.
    box: (top, left, height, width) in px of the full size, inside the image; None is all of it. The region covers
      the box times the scale, rounded outwards.
    eighths: 1 to 8. Region.eighths is the scale that was used: 8 where both sides of the image are under 8 px, for
      CMYK and for what is not JPEG.
    options: dct (of no use below 8 eighths), trusted and interval_tables; a JPEG is decoded by libjpeg-turbo.
    out: C-contiguous writable uint8 (h, w, 3): filled where the whole image is decoded and has that shape, otherwise
      left alone; zeros are left in it where the image is damaged.
    Both raise DamagedImage, as packer.images.decode, where what is decoded is damaged or a table of intervals is
    wrong; this one BadInput for an image that is no image and InvalidRequest for a wrong box or scale.
    """
    _check_request(found, box, eighths)
    if found.format != "jpeg" or found.cmyk:
        return _unscaled(buffer, found, out=out), _done
    eighths = _scale(found, eighths)
    full = _scaled((found.height, found.width), eighths)
    kept = lossless_jpeg_crop.window(found, box, eighths) if box is not None else None
    if kept is not None:
        size, corner = lossless_jpeg_crop.size(found, kept), lossless_jpeg_crop.corner(kept, eighths)
        region = _reserved(size, corner, full, eighths)
        return region, partial(_fill_window, buffer, found, kept, region, options)
    if box is not None and options.trusted and eighths == FULL and options.dct != "fast":
        decode_part = strict_jpeg.library().decode_region
        part = _cropping_region(buffer, found, box) if decode_part is not None else None
        if decode_part is not None and part is not None:
            region = _reserved(part[2:], part[:2], full, eighths)
            return region, partial(_fill_part, buffer, found, decode_part, region)
    rows = lossless_jpeg_crop.rows(buffer, found, box, eighths) if box is not None and options.trusted else None
    if rows is not None:
        region = _reserved((rows.height, found.width), (0, 0), full, eighths)
        return region, partial(_fill_rows, buffer, found, rows, region, options.dct == "fast")
    array = out if out is not None and out.shape == (*full, 3) else _scratch.pixels(*full)
    fill = partial(strict_jpeg.decode, buffer, found, array, eighths=eighths, fast_dct=options.dct == "fast")
    return Region(array, 0, 0, full, eighths), fill


def _done() -> None:
    """Does nothing: the region is decoded already."""


def _reserved(size: tuple[int, int], corner: tuple[int, int], full: tuple[int, int], eighths: int) -> Region:
    """A region in the thread's memory, not yet decoded."""
    return Region(_scratch.pixels(*_scaled(size, eighths)), *corner, full, eighths)


def _fill_window(buffer: Buffer, found: Header, kept: Window, region: Region, options: DecodeOptions) -> None:
    # not before it is decoded: it comes from the caches then
    file = lossless_jpeg_crop.cut(buffer, found, kept, _scratch, table=options.interval_tables)
    if file is None:
        _fill_from_whole(buffer, found, region, options.dct == "fast")
    else:
        strict_jpeg.library().decode(file, region.pixels, eighths=region.eighths, fast_dct=options.dct == "fast")


def _fill_part(buffer: Buffer, found: Header, decode_part: RegionDecoder, region: Region) -> None:
    try:
        decode_part(buffer, region.pixels, size=region.full, corner=(region.top, region.left))
    except DamagedImage:
        _fill_from_whole(buffer, found, region, False)


def _fill_rows(buffer: Buffer, found: Header, rows: TopRows, region: Region, fast_dct: bool) -> None:
    file = lossless_jpeg_crop.truncated(buffer, rows, _scratch)
    try:
        strict_jpeg.library().decode(
            file, region.pixels, eighths=region.eighths, fast_dct=fast_dct, allow_trailing_data=True
        )
    except DamagedImage:
        _fill_from_whole(buffer, found, region, fast_dct)


def _fill_from_whole(buffer: Buffer, found: Header, region: Region, fast_dct: bool) -> None:
    """Decode the whole image where the part does not decode alone; raises DamagedImage where that fails too."""
    whole = np.empty((*region.full, 3), np.uint8)
    strict_jpeg.decode(buffer, found, whole, eighths=region.eighths, fast_dct=fast_dct)
    height, width = region.pixels.shape[:2]
    region.pixels[:] = whole[region.top : region.top + height, region.left : region.left + width]


def _scaled(size: tuple[int, int], eighths: int) -> tuple[int, int]:
    return -(-size[0] * eighths // 8), -(-size[1] * eighths // 8)


def _scale(found: Header, eighths: int) -> int:
    """The scale, or 8/8 where both sides are short: TurboJPEG takes a size, which is ambiguous for them."""
    return FULL if found.height < FEWEST_PX and found.width < FEWEST_PX else eighths


def _check_request(found: Header, box: Box | None, eighths: int) -> None:
    if not 1 <= eighths <= FULL:
        raise InvalidRequest(f"cannot decode at scale {eighths}/8; expected 1 to 8 eighths")
    if box is not None:
        top, left, height, width = box
        if not (0 <= top < top + height <= found.height and 0 <= left < left + width <= found.width):
            raise InvalidRequest(
                f"cannot decode {width}x{height} px from ({left}, {top}) on: the image has "
                f"{found.width}x{found.height} px"
            )


def _cropping_region(buffer: Buffer, found: Header, box: Box) -> Box | None:
    """The region, (top, left, height, width) in px, that has all pixels of `box`.

    None where the file does not end with an end marker, has restart intervals, several scans or another sampling, and
    where too little would be left out.
    """
    scan = found.scan
    if scan is None or scan.intervals is not None or scan.mcu not in _MCUS or buffer[-2:] != END:
        return None
    top, left, height, width = box
    first, last = span(top, height, scan.mcu[0], eighths=FULL_SCALE)
    begin, end = span(left, width, scan.mcu[1], eighths=FULL_SCALE)
    while begin and min(end * scan.mcu[1], found.width) - begin * scan.mcu[1] < _FEWEST_COLUMNS_PX:
        begin -= 1
    top, left = first * scan.mcu[0], begin * scan.mcu[1]
    height = min(last * scan.mcu[0], found.height) - top
    width = min(end * scan.mcu[1], found.width) - left
    left_out = found.height * found.width - height * width
    return (top, left, height, width) if left_out >= lossless_jpeg_crop.WORTH_PX else None


def _unscaled(buffer: Buffer, found: Header, *, out: Any) -> Region:
    full = found.height, found.width
    if out is not None and out.shape != (*full, 3):
        out = None
    return Region(decode(buffer, "image", out=out), 0, 0, full, FULL)


# ---- through a view


def prepare_view(
    buffer: Buffer,
    found: Header,
    view: View,
    *,
    options: DecodeOptions,
    out: Any,
    decoded: Callable[[], object] | None = None,
) -> Callable[[], Pixels]:
    """What makes uint8 (h, w, 3), RGB, as packer.images.decode has it, of a JPEG that is not CMYK, in this thread.

    options: as prepare_region takes them. decoded: called between decoding and warping, by who wants to know how long
      each takes.
    """
    steps = axis_aligned_steps(view, found.height, found.width)
    made: Pixels = target((*view.size, 3), np.uint8, out=out)
    result = made if out is None else out
    top, left, height, width = box = needed(view, steps, found.height, found.width)
    if not (height and width):
        return partial(_in_turn, (partial(made.fill, 0),), result)
    eighths = FULL
    if view.antialias and (shrink := min(shrinking(view))) >= 2:
        eighths = FULL >> min(3, int(math.log2(shrink)))
    region, fill = prepare_region(buffer, found, box=box, eighths=eighths, options=options)
    show: Callable[[], object]
    if steps is not None and steps.frame is None and region.eighths == FULL:
        top, left = top - region.top, left - region.left
        part = region.pixels[top : top + height, left : left + width]
        show = partial(image.apply_steps, part, steps, made, antialias=view.antialias)
    else:
        inner = view.of(region.top, region.left, region.eighths / FULL)
        steps = axis_aligned_steps(inner, *region.pixels.shape[:2])
        show = partial(image.warp, region.pixels, inner, steps, prescaled=region.eighths < FULL, out=made)
    return partial(_in_turn, (fill, show) if decoded is None else (fill, decoded, show), result)


def _in_turn(steps: tuple[Callable[[], object], ...], result: Pixels) -> Pixels:
    for step in steps:
        step()
    return result
