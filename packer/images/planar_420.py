"""Planar 4:2:0: images as a plane of luma and two planes of chroma at half the size, and their conversion to RGB.

The samples follow JFIF 1.02: Y, Cb and Cr of ITU-R BT.601 in the full range 0-255. A chroma sample is the mean of 2x2
pixels, and is centered between them. If a side is odd, the last sample is the mean of the remaining pixels.
`jpeg_planes` returns the planes of a 4:2:0 JPEG, and `planes_of` computes them from other images.

| result                                | computation                                                                  |
|---------------------------------------|------------------------------------------------------------------------------|
| the image or a part in its size, also | chroma is enlarged bilinearly, 3/4 of the nearest sample and 1/4 of the next |
| mirrored or rotated by quarters       | in each direction, as libjpeg's fancy upsampling does; then converted        |
| a scaled part                         | each plane is cropped, filtered and scaled to the size of the output, and    |
|                                       | converted there; pixels of the stored size are never computed                |
| a rotation, a shear, a border         | the needed part is converted in its size, and warped as any image            |

A crop that begins at an odd pixel begins in the middle of a chroma sample. Its chroma is shifted by half a sample: each
value is the mean of two samples. Each plane is filtered for its own scale. Chroma that is enlarged is not filtered,
even if luma shrinks. Chroma needs less filtering than luma, since it is a mean over 2x2 pixels.

The conversion to RGB uses integers, 1024ths, so that the result is equal on every machine. Its coefficients differ from
those of JFIF by at most 2/1024.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from packer.geometry import View
from packer.geometry.warp import image
from packer.geometry.warp.axis_aligned_steps import AxisAlignedSteps, axis_aligned_steps, needed
from packer.images.backends import strict_jpeg
from packer.images.file_types._header_record import Buffer, Header
from packer.system.exact_casts import target
from packer.system.thread_scratch import ThreadArrays, ThreadScratch

Plane = npt.NDArray[np.uint8]
Pixels = npt.NDArray[Any]

NEUTRAL = 128  # the chroma of grays
_SHIFT = 10
# R, G and B from Y, Cb and Cr; cv2.transform rounds to the same 1024ths and adds integers
_TO_RGB = np.array([[1024, 0, 1436], [1024, -352, -731], [1024, 1815, 0]])
_MATRIX = np.column_stack([_TO_RGB, -NEUTRAL * _TO_RGB[:, 1:].sum(axis=1)]).astype(np.float32) / (1 << _SHIFT)
# Cb and Cr from R, G and B, in 65536ths: JFIF 1.02, page 3
_TO_CHROMA = np.array([[-11059, -21709, 32768], [32768, -27439, -5329]], np.int64)
_BAND_PX = 1 << 18  # converted at once, so that the planes stay in the CPU caches

_HALVED_VARIANCE = 1 / 12  # each chroma sample is a mean over its square

_MOVED_VARIANCE = 1 / 4  # added by a shift of half a sample
_JPEG_420 = bytes.fromhex("221111")
_ADOBE_RGB = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"  # transform 0: three components are R, G and B


class Planes(NamedTuple):
    """Planes of an image.

    Attributes:
        y: uint8 (H, W).
        cb: uint8 (ceil(H / 2), ceil(W / 2)), None for a gray image.
        cr: Shape and dtype of `cb`, None for a gray image.
    """

    y: Plane
    cb: Plane | None = None
    cr: Plane | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the image in px."""
        height, width = self.y.shape
        return height, width


def half(height: int, width: int) -> tuple[int, int]:
    """Return (height, width) of the chroma planes of an image of this size."""
    return (height + 1) // 2, (width + 1) // 2


# ---- making planes


def planes_of(rgb: Pixels) -> Planes:
    """Compute the planes of uint8 (H, W, 3) RGB."""
    y = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    height, width = rgb.shape[:2]
    even = np.pad(rgb, ((0, height % 2), (0, width % 2), (0, 0)), "edge") if height % 2 or width % 2 else rgb
    rows = even[0::2].astype(np.int64) + even[1::2]
    sums = rows[:, 0::2] + rows[:, 1::2]  # sums of 4 px
    chroma = (sums @ _TO_CHROMA.T + (NEUTRAL << 18) + (1 << 17)) >> 18
    cb, cr = np.clip(chroma, 0, 255).astype(np.uint8).transpose(2, 0, 1)
    return Planes(np.asarray(y, np.uint8), cb, cr)


def without_gray_chroma(planes: Planes) -> Planes:
    """Return only the luma if all chroma is NEUTRAL, else all planes. The pixels stay the same."""
    if planes.cb is None or planes.cr is None or (planes.cb != NEUTRAL).any() or (planes.cr != NEUTRAL).any():
        return planes
    return Planes(planes.y)


def jpeg_planes(buffer: Buffer, found: Header) -> Planes | None:
    """Return the exact planes of a JPEG, without filter or conversion. Return None if it is not YCbCr 4:2:0.

    The header declares R, G and B instead, so libjpeg does not convert. It enlarges chroma by copying samples, and one
    of four copies is kept. Raises DamagedImage.
    """
    head = _head_as_rgb(buffer, found)
    if head is None:
        return None
    size = found.height, found.width
    pixels = np.empty((*size, 3), np.uint8)
    file = head + bytes(buffer[found.data_at :])
    strict_jpeg.decode(file, found._replace(data_at=len(head)), pixels, fast_upsampling=True)
    return Planes(
        *(np.ascontiguousarray(plane) for plane in (pixels[..., 0], pixels[::2, ::2, 1], pixels[::2, ::2, 2]))
    )


def _head_as_rgb(buffer: Buffer, found: Header) -> bytes | None:
    """Return the bytes before the data of the first scan, changed to R, G and B. Return None if not YCbCr 4:2:0."""
    if found.format != "jpeg" or found.channels != 3:
        return None
    kept = [b"\xff\xd8"]
    is_jfif, transform, components = False, None, b""
    at = 2
    while at < found.data_at:
        marker = buffer[at + 1]
        if marker == 0xFF or marker == 0x01 or 0xD0 <= marker <= 0xD7:  # fill bytes, and markers without a segment
            at += 1 if marker == 0xFF else 2
            continue
        end = at + 2 + (buffer[at + 2] << 8 | buffer[at + 3])
        data = bytes(buffer[at + 4 : end])
        if marker == 0xE0 and data[:5] == b"JFIF\0" and len(data) >= 14:
            is_jfif = True
        elif marker == 0xEE and data[:5] == b"Adobe" and len(data) >= 12:
            transform = data[11]
        elif marker in (0xC0, 0xC1, 0xC2):
            components = data[6:]
        if not 0xE0 <= marker <= 0xEF:
            kept.append(bytes(buffer[at:end]))
        at = end
    if components[1::3] != _JPEG_420 or not _is_ycbcr(is_jfif, transform, components[0::3]):
        return None
    return b"".join([kept[0], _ADOBE_RGB, *kept[1:]])


def _is_ycbcr(is_jfif: bool, transform: int | None, ids: bytes) -> bool:
    """Return True if libjpeg treats three components as YCbCr; see default_decompress_parms in jdapimin.c.

    `transform` is 0 or 1. For other numbers, libjpeg prints a warning, which strict decoding raises as an error.
    """
    if is_jfif:
        return True
    if transform is not None:
        return transform == 1
    return ids != b"RGB"


# ---- whole images and parts as they are


class _Joined(NamedTuple):
    """Memory for planes of the output, y, cb and cr (h, w), for `chroma` (h, w, 2), and for all three (h, w, 3)."""

    y: Plane
    cb: Plane
    cr: Plane
    chroma: Plane
    pixels: Plane


class _Enlarged(NamedTuple):
    """Memory in which both planes of chroma, each (h, w), are enlarged. Cr is below Cb.

    Attributes:
        pairs_cb: Each sample of Cb twice.
        pairs_cr: Each sample of Cr twice.
        pairs: Both as (2, h, 1, 2 w).
        rows: Each row of `pairs` twice, (2, h, 2, 2 w).
        doubled: `rows` with one more row above and below each plane, (2, 2 h + 2, 2 w).
        flat: `doubled` as one image.
        filtered: Filtered image in the shape of `flat`.
        planes: `filtered` in the shape of `doubled`.
    """

    pairs_cb: Plane
    pairs_cr: Plane
    pairs: Plane
    rows: Plane
    doubled: Plane
    flat: Plane
    filtered: Plane
    planes: Plane


def _joined(memory: Callable[[int], Plane], height: int, width: int) -> _Joined:
    count = height * width
    cr_at = 7 * count + (count + 1) % 2  # only one of cb and cr begins at an odd address, see below
    flat = memory(8 * count + 1)
    return _Joined(
        flat[5 * count : 6 * count].reshape(height, width),
        flat[6 * count : 7 * count].reshape(height, width),
        flat[cr_at : cr_at + count].reshape(height, width),
        flat[3 * count : 5 * count].reshape(height, width, 2),
        flat[: 3 * count].reshape(height, width, 3),
    )


def _enlarging(memory: Callable[[int], Plane], height: int, width: int) -> _Enlarged:
    samples, rows = 4 * height * width, 4 * height + 4
    flat = memory(samples + 2 * rows * 2 * width)
    pairs = flat[:samples].reshape(2 * height, width, 2)
    doubled, filtered = flat[samples:].reshape(2, 2, rows // 2, 2 * width)
    return _Enlarged(
        pairs[:height],
        pairs[height:],
        pairs.reshape(2, height, 1, 2 * width),
        doubled[:, 1:-1].reshape(2, height, 2, 2 * width),
        doubled,
        doubled.reshape(rows, 2 * width),
        filtered.reshape(rows, 2 * width),
        filtered,
    )


# Memory of each thread. cv2.merge and cv2.split bypass the CPU caches for aligned outputs. Memory that is read again at
# once therefore begins at an odd address.
_joined_planes, _enlarged_planes = ThreadArrays(_joined), ThreadArrays(_enlarging)
_pairs, _part = ThreadScratch(odd=True), ThreadScratch()


def to_rgb(planes: Planes, *, out: Any = None) -> Pixels:
    """Convert planes to uint8 (H, W, 3), RGB. The result is in `out`, or in new memory for None."""
    made = target((*planes.size, 3), np.uint8, out=out)
    _convert(planes, 0, 0, made)
    return made if out is None else out


def _convert(planes: Planes, top: int, left: int, made: Pixels) -> None:
    """Convert the part of the image that begins at (top, left), as large as `made`, to RGB in `made`."""
    height, width = made.shape[:2]
    band = max(2, _BAND_PX // width // 2 * 2)
    for begin in range(0, height, band):
        _convert_band(planes, top + begin, left, made[begin : begin + band])


def _convert_band(planes: Planes, top: int, left: int, made: Pixels) -> None:
    height, width = made.shape[:2]
    y = planes.y[top : top + height, left : left + width]
    if planes.cb is None or planes.cr is None:
        image.copy_unless_same(made, cv2.merge([y, y, y], made))
        return
    cb, cr = _enlarged(planes.cb, planes.cr, top, left, (height, width))
    _join(y, cb, cr, _joined_planes.of(height, width).pixels, made)


def _join(y: Pixels, cb: Pixels, cr: Pixels, pixels: Plane, made: Pixels) -> None:
    """Convert three planes of one size to RGB in `made`. `pixels` is memory for the interleaved planes."""
    cv2.merge([y, cb, cr], pixels)
    image.copy_unless_same(made, cv2.transform(pixels, _MATRIX, dst=made))


def _enlarged(cb: Plane, cr: Plane, top: int, left: int, size: tuple[int, int]) -> tuple[Plane, Plane]:
    """Return (cb, cr) enlarged, for the part of the image at (top, left) with `size`, until the thread's next call.

    Each sample is doubled in both directions, and the result is filtered by 1/4, 1/2, 1/4. This adds 3/4 of the nearest
    sample and 1/4 of the next, as cv2.resize does, in two thirds of its time. One call filters both planes. The rows
    between the planes repeat their edges.
    """
    height, width = size
    # the samples of the part, and the neighboring ones
    first_row, last_row = max(0, top // 2 - 1), min(cb.shape[0], (top + height - 1) // 2 + 2)
    first, last = max(0, left // 2 - 1), min(cb.shape[1], (left + width - 1) // 2 + 2)
    memory = _enlarged_planes.of(last_row - first_row, last - first)
    for plane, pairs in ((cb, memory.pairs_cb), (cr, memory.pairs_cr)):
        part = plane[first_row:last_row, first:last]
        cv2.merge([part, part], pairs)
    np.copyto(memory.rows, memory.pairs)
    memory.doubled[:, 0], memory.doubled[:, -1] = memory.doubled[:, 1], memory.doubled[:, -2]
    filtered = cv2.GaussianBlur(memory.flat, (3, 3), 0, dst=memory.filtered, borderType=cv2.BORDER_REPLICATE)
    image.copy_unless_same(memory.filtered, filtered)
    at, across = 1 + top - 2 * first_row, left - 2 * first
    blue, red = memory.planes[:, at : at + height, across : across + width]
    return blue, red


# ---- through a view


def through_view(planes: Planes, view: View, *, out: Any = None) -> Pixels:
    """Return the image through a view, uint8 (h, w, 3), RGB. The result is in `out`, or in new memory for None."""
    height, width = planes.size
    made: Pixels = target((*view.size, 3), np.uint8, out=out)
    result = made if out is None else out
    steps = axis_aligned_steps(view, height, width)
    if steps is not None and steps.frame is None:
        _axis_aligned(planes, steps, made, antialias=view.antialias)
        return result
    top, left, rows, columns = needed(view, steps, height, width)
    if not (rows and columns):
        made.fill(0)
        return result
    part = _part.pixels(rows, columns)
    _convert(planes, top, left, part)
    inner = view.of(top, left)
    image.warp(part, inner, axis_aligned_steps(inner, rows, columns), prescaled=False, out=made)
    return result


def _axis_aligned(planes: Planes, steps: AxisAlignedSteps, made: Pixels, *, antialias: bool) -> None:
    """Apply `steps` (crop, scale, rotation, flip) and write the result as RGB to `made`."""
    upright = _part.pixels(*steps.size) if steps.transpose else made
    if steps.shape == steps.size:
        _convert(planes, steps.rows.start, steps.columns.start, upright)
    else:
        _scale(planes, steps, upright, antialias=antialias)
    if steps.transpose:
        image.copy_unless_same(made, cv2.transpose(upright, dst=made))
    if steps.flip is not None:
        image.copy_unless_same(made, cv2.flip(made, steps.flip, dst=made))


def _scale(planes: Planes, steps: AxisAlignedSteps, made: Pixels, *, antialias: bool) -> None:
    rows, columns = steps.rows, steps.columns
    memory = _joined_planes.of(*steps.size)
    y = planes.y[rows, columns]
    y = _resized(y, y.shape, memory.y, antialias=antialias, variance=(0.0, 0.0))
    if planes.cb is None or planes.cr is None:
        image.copy_unless_same(made, cv2.merge([y, y, y], made))
        return
    length = (rows.stop - rows.start) / 2, (columns.stop - columns.start) / 2
    variance = (
        _HALVED_VARIANCE + _MOVED_VARIANCE * (rows.start % 2),
        _HALVED_VARIANCE + _MOVED_VARIANCE * (columns.start % 2),
    )
    chroma = _cut(planes.cb, planes.cr, rows, columns)
    chroma = _resized(chroma, length, memory.chroma, antialias=antialias, variance=variance)
    cb, cr = cv2.split(chroma, [memory.cb, memory.cr])
    _join(y, cb, cr, memory.pixels, made)


def _cut(cb: Plane, cr: Plane, rows: slice, columns: slice) -> Pixels:
    """Return the samples of both chroma planes in the crop `rows`, `columns` (in px): (h, w, 2).

    The last samples may extend beyond the crop by half a sample. Two channels need fewer calls than two planes.
    """
    top, bottom = _span(rows)
    left, right = _span(columns)
    planes = cb[top:bottom, left:right], cr[top:bottom, left:right]
    height, width = planes[0].shape
    part: Pixels = _pairs.pixels(height, width, 2)
    cv2.merge(planes, part)
    more = bottom - top - height, right - left - width
    if any(more):
        part = cv2.copyMakeBorder(part, 0, more[0], 0, more[1], cv2.BORDER_REPLICATE)
    if rows.start % 2:
        part = cv2.addWeighted(part[:-1], 0.5, part[1:], 0.5, 0)
    if columns.start % 2:
        part = cv2.addWeighted(part[:, :-1], 0.5, part[:, 1:], 0.5, 0)
    return part


def _span(cut: slice) -> tuple[int, int]:
    """Return (start, end) of the chroma samples of `cut`, in px, with one more if it is shifted by half a sample."""
    return cut.start // 2, (cut.stop + 1) // 2 + (cut.start % 2 and cut.stop % 2 == 0)


def _resized(
    samples: Pixels,
    length: tuple[float, float],
    into: Pixels,
    *,
    antialias: bool,
    variance: tuple[float, float],
) -> Pixels:
    """Resize the first `length` samples to the size of `into`, with the filters of packer.geometry.warp.image.

    Args:
        samples: (h, w), or (h, w, 2) of two planes.
        length: (down, across), multiples of one half.
        into: Memory for the result, which is used if the size changes.
        antialias: True filters samples that shrink. False interpolates between four samples only.
        variance: (down, across) of an earlier low-pass filter of the samples.
    """
    size = into.shape[0], into.shape[1]
    shrink = length[0] / size[0], length[1] / size[1]
    if antialias and max(shrink) >= image.FROM_AREA:
        step = max(1.0, shrink[0]), max(1.0, shrink[1])
        samples = cv2.resize(samples, None, fx=1 / step[1], fy=1 / step[0], interpolation=cv2.INTER_AREA)
        length = length[0] / step[0], length[1] / step[1]
    elif antialias and max(shrink) > 1:
        samples = image.widened(samples, shrink, variance)
    if length != size:
        fx, fy = size[1] / length[1], size[0] / length[0]
        samples = cv2.resize(samples, None, dst=into, fx=fx, fy=fy, interpolation=cv2.INTER_LINEAR)
    return samples[: size[0], : size[1]]
