"""Region decoder: decodes only the part of an image that a crop or a view needs, at the scale that it needs.

| file                                            | what is decoded                                                    |
|-------------------------------------------------|--------------------------------------------------------------------|
| JPEG of one scan with restart intervals that    | a smaller JPEG of the intervals that the box touches, see          |
| divide each row: packer's `jpeg:Q` and others   | packer.images.lossless_jpeg_crop; packer's files have a table of   |
|                                                 | the intervals, in other files the markers are searched             |
| JPEG of one scan without intervals, trusted     | the MCUs of the box with libjpeg-turbo 3, see `_cropping_region`;  |
| by its checksum: most `encoded` files           | otherwise the rows down to the end of the box, see                 |
|                                                 | packer.images.lossless_jpeg_crop                                   |
| any other JPEG, or a box of nearly all of it    | the complete image, at the scale                                   |
| CMYK, and formats other than JPEG               | the complete image, not scaled, by OpenCV                          |

The pixels always equal those of the complete image, decoded at that scale. Only the crc32 of a record detects damage
outside of the decoded part.

Through a view, the scale is a half, a quarter or an eighth if the view shrinks at least as much and uses antialiasing.
Other eighths are slower than the full size, because libjpeg-turbo has no vector code for them.
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
from packer.geometry.warp.axis_aligned_steps import axis_aligned_steps, needed, shrinking
from packer.images import lossless_jpeg_crop
from packer.images.backends import strict_jpeg
from packer.images.backends.strict_jpeg import RegionDecoder
from packer.images.decode import DEFAULT_OPTIONS, DecodeOptions, decode
from packer.images.file_types._header_record import Buffer, Header
from packer.images.file_types.jpeg import END
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

    Attributes:
        pixels: uint8 (h, w, 3), RGB, C-contiguous: `out`, or memory that the next region of this thread overwrites.
        top: Row of pixels[0, 0] in the complete image, in px at the scale.
        left: Column of pixels[0, 0] in the complete image, in px at the scale.
        full: (height, width) of the complete image at the scale: each side times eighths / 8, rounded up.
        eighths: The scale, 1 to 8.
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
    """Decode a region and return it. `prepare_region` describes the arguments and errors."""
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
    """Return a region without pixels, and a function that decodes them. Formats other than JPEG are decoded at once.

    Several regions may be prepared before they are decoded. The thread that prepares a region decodes and uses it.

    Args:
        buffer: The file.
        found: Result of `sniff(buffer)`.
        box: (top, left, height, width) inside the image, in px of the full size; None for the complete image. The
            region covers the box times the scale, rounded outwards.
        eighths: 1 to 8. `Region.eighths` is the scale that is used. It is 8 for CMYK, for formats other than JPEG, and
            if both sides are below 8 px.
        options: Only dct (ignored below 8 eighths), trusted and interval_tables are used.
        out: C-contiguous uint8 (h, w, 3). It is only used if the complete image is decoded and has this shape. A
            damaged image leaves zeros in it.

    Raises:
        DamagedImage: The decoded part or the table of intervals is damaged. The returned function also raises this
            error.
        BadInput: The file does not fit the kind `image`.
        InvalidRequest: The box or the scale is wrong.
    """
    _check_request(found, box, eighths)
    if found.format != "jpeg" or found.cmyk:
        full = found.height, found.width
        pixels = decode(buffer, "image", out=out if out is not None and out.shape == (*full, 3) else None)
        return Region(pixels, 0, 0, full, FULL), _done
    if found.height < FEWEST_PX and found.width < FEWEST_PX:  # the size that TurboJPEG expects is ambiguous
        eighths = FULL
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
    """Do nothing, because the region is already decoded."""


def _reserved(size: tuple[int, int], corner: tuple[int, int], full: tuple[int, int], eighths: int) -> Region:
    """Return a region of `size` px at `corner`, (top, left), in the thread's memory. Its pixels are not decoded yet."""
    return Region(_scratch.pixels(*_scaled(size, eighths)), *corner, full, eighths)


def _fill_window(buffer: Buffer, found: Header, kept: Window, region: Region, options: DecodeOptions) -> None:
    # cut just before it is decoded, so that the file is in the CPU caches
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
    """Decode the complete image and copy the part of `region`, which alone cannot be decoded. Raises DamagedImage."""
    whole = np.empty((*region.full, 3), np.uint8)
    strict_jpeg.decode(buffer, found, whole, eighths=region.eighths, fast_dct=fast_dct)
    height, width = region.pixels.shape[:2]
    region.pixels[:] = whole[region.top : region.top + height, region.left : region.left + width]


def _scaled(size: tuple[int, int], eighths: int) -> tuple[int, int]:
    return -(-size[0] * eighths // 8), -(-size[1] * eighths // 8)


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
    """Return the region, (top, left, height, width) in px, that libjpeg-turbo 3 decodes for the pixels of `box`.

    `tj3SetCroppingRegion` decodes the entropy-coded data down to the region's last row, and converts only the region's
    MCUs. The region starts at an MCU. It has one more pixel on each side, since chroma is filtered, and at least 16 px
    a row, since shorter components are enlarged differently. Data below the region is not read.

    Return None if the file has no end marker at its end, has restart intervals or several scans, or if the region saves
    too little. Also return None for samplings other than 4:4:4, 4:2:2 and 4:2:0, which have had faults (ChangeLog of
    2.1.4).
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
    """Return a function that decodes a JPEG, not CMYK, through a view. Call it once, in the same thread.

    The function returns uint8 (h, w, 3), RGB: `out`, or new memory if `out` is None. It calls `decoded` between
    decoding
    and warping, so that their times can be measured. `prepare_region` describes `options`.
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
