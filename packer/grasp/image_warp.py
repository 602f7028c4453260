"""Image warp: rotates, crops and zooms the images of training items in one warp of the stored pixels.

The loaders of the grasp networks change the complete image in three steps. They rotate around the center of the grasps
(Cornell) or of the image (Jacquard), with mirrored borders. They crop a window, and resize the middle of the window.
This module does the three steps in one bilinear warp. Only a rotation by a multiple of 90 degrees is a separate, exact
step after the warp.
"""

import math
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from packer.geometry import View, resized_crop
from packer.geometry.transforms import rotated
from packer.geometry.warp.axis_aligned_steps import axis_aligned_steps, inside, needed
from packer.grasp.targets import Frame
from packer.system.thread_scratch import ThreadScratch

Pixels = npt.NDArray[Any]

_QUARTER = math.pi / 2
_NEARLY = 1e-9  # tolerance, in quarter turns
_STEP_BITS = 5  # fraction bits of OpenCV's fixed-point coordinates
_STEPS = 1 << _STEP_BITS
_MOST_PLACES = 1 << 14
_ROTATIONS = {1: cv2.ROTATE_90_COUNTERCLOCKWISE, 2: cv2.ROTATE_180, 3: cv2.ROTATE_90_CLOCKWISE}

_upright = ThreadScratch()  # each thread has its own


class SourceImage(NamedTuple):
    """Size of a sample's source image, the center of its rotation and its visible window, in px of the source.

    Args:
        height: Height of the image.
        width: Width of the image.
        middle: (x, y) of the center of rotation. Pixel centers are at whole numbers.
        window: (top, left, height, width) of the part that an item without zoom shows.
    """

    height: int
    width: int
    middle: tuple[float, float]
    window: tuple[int, int, int, int]


class ItemView(NamedTuple):
    """A warp in two steps: `view` from stored pixels to unrotated output, then `quarters` rotations by 90 degrees."""

    view: View
    quarters: int


def around_grasps(frame: Frame, height: int, width: int, *, bounds: tuple[int, int] | None = None) -> SourceImage:
    """Return the source image for Cornell. Its window is that of `frame`, cut at the bottom and right of the image.

    `bounds` (height, width) in px from the top left of the image also cuts the window. None cuts at the image only.
    """
    top, left = frame.top, frame.left
    bottom, right = (height, width) if bounds is None else (min(height, bounds[0]), min(width, bounds[1]))
    window = (top, left, min(bottom, top + frame.size) - top, min(right, left + frame.size) - left)
    return SourceImage(height, width, (frame.center[1], frame.center[0]), window)


def whole(height: int, width: int) -> SourceImage:
    """Return the source image for Jacquard. Its window is the complete image."""
    return SourceImage(height, width, ((width - 1) / 2, (height - 1) / 2), (0, 0, height, width))


def item_view(source: SourceImage, stored: View | None, rot: float, zoom: float, size: tuple[int, int]) -> ItemView:
    """Return the warp from stored pixels to the output of one item.

    Args:
        source: Size, center and window of the source image.
        stored: View from source to stored pixels. None if the pack stores the source pixels unchanged.
        rot: Rotation in radians, counter-clockwise.
        zoom: Visible share of both sides of the window.
        size: (height, width) of the output in px.
    """
    turns = rot / _QUARTER
    quarters = round(turns) if abs(turns - round(turns)) < _NEARLY else 0
    degrees = 90 * quarters if quarters or rot == 0 else math.degrees(rot)
    turn = rotated(degrees, 1, 1)
    x, y = source.middle
    about = View((1, 0, -x, 0, 1, -y), (1, 1)).then(turn).then(View((1, 0, x, 0, 1, y), (1, 1)))
    top, left, height, width = source.window
    rows, columns = int(height * (1 - zoom)) // 2, int(width * (1 - zoom)) // 2
    cut = resized_crop(top + rows, left + columns, height - 2 * rows, width - 2 * columns, size=size, antialias=False)
    view = about.then(cut)
    if quarters % 4:
        unturned = size[::-1] if quarters % 2 else size
        view = view.then(_turned_back(quarters % 4, size)._replace(size=unturned))
    if stored is not None:
        view = _inverse(stored).then(view)
    return ItemView(view._replace(antialias=False), quarters % 4)


def warp(whole_or_part: Pixels, at: ItemView, out: Pixels, *, origin: tuple[int, int] = (0, 0)) -> None:
    """Warp an image or a part of it, and write the result to `out`.

    Args:
        whole_or_part: The stored image, or only its pixels at the position that the function `part` returns.
        at: The warp.
        out: Output, (height, width) or (height, width, C), with the dtype of the image.
        origin: (row, column) in the stored image of the first pixel of `whole_or_part`.
    """
    if not at.quarters:
        _warp(whole_or_part, at.view.of(*origin), out)
        return
    shape = (*at.view.size, *out.shape[2:])
    size = math.prod(shape) * out.itemsize
    upright = _upright.pixels(1, size, 1).reshape(-1).view(out.dtype).reshape(shape)
    _warp(whole_or_part, at.view.of(*origin), upright)
    _done(out, cv2.rotate(upright, _ROTATIONS[at.quarters], dst=out))


def part(at: ItemView, height: int, width: int) -> tuple[int, int, int, int] | None:
    """Return (top, left, height, width) of the part of a `height` x `width` image that a warp reads. None means all."""
    if not inside(at.view, height, width):
        return None  # pixels beyond the border are mirrored
    return needed(at.view, axis_aligned_steps(at.view, height, width), height, width)


def _warp(array: Pixels, view: View, out: Pixels) -> None:
    steps = axis_aligned_steps(view, *array.shape[:2])
    size = (view.size[1], view.size[0])
    if steps is not None and not (steps.frame or steps.transpose or steps.flip is not None):
        cut = array[steps.rows, steps.columns]
        if cut.shape == out.shape:
            np.copyto(out, cut)
        else:
            _done(out, cv2.resize(cut, size, dst=out, interpolation=cv2.INTER_LINEAR))
        return
    maps = _places(view) if array.dtype == np.uint8 and max(array.shape) < _MOST_PLACES else None
    if maps is not None:
        how: dict[str, Any] = {"interpolation": cv2.INTER_LINEAR, "borderMode": cv2.BORDER_REFLECT}
        _done(out, cv2.remap(array, *maps, dst=out, **how))
    else:
        how = {"flags": cv2.INTER_LINEAR, "borderMode": cv2.BORDER_REFLECT}
        _done(out, cv2.warpAffine(array, view.array, size, dst=out, **how))


def _places(view: View) -> tuple[Pixels, Pixels] | None:
    """Return two maps for cv2.remap: whole px, int16 (H, W, 2), and 1/32 px of both axes in one uint16 (H, W).

    Return None if the view rotates or reads positions that int16 cannot store. On uint8, OpenCV 5 is faster with maps.
    """
    a, b, c, d, e, f = view.matrix
    if b != 0 or d != 0:
        return None
    rows, columns = (
        np.rint((np.arange(length) - shift) / scale * _STEPS).astype(np.int64)
        for length, shift, scale in ((view.size[0], f, e), (view.size[1], c, a))
    )
    if max(abs(int(at)) for axis in (rows, columns) for at in (axis[0], axis[-1])) >= _MOST_PLACES * _STEPS:
        return None
    whole_px = np.empty((*view.size, 2), np.int16)
    whole_px[..., 0], whole_px[..., 1] = columns >> _STEP_BITS, (rows >> _STEP_BITS)[:, None]
    parts = ((rows % _STEPS * _STEPS)[:, None] + columns % _STEPS).astype(np.uint16)
    return whole_px, parts


def _turned_back(quarters: int, size: tuple[int, int]) -> View:
    """Return the view that reverts `quarters` rotations by 90 degrees of an image, which then has `size`."""
    height, width = size
    back = rotated(-90 * quarters, 1, 1)
    x, y = (width - 1) / 2, (height - 1) / 2
    after_x, after_y = (y, x) if quarters % 2 else (x, y)
    to, fro = View((1, 0, -x, 0, 1, -y), (1, 1)), View((1, 0, after_x, 0, 1, after_y), (1, 1))
    return to.then(back).then(fro)


def _inverse(view: View) -> View:
    a, b, c, d, e, f = view.matrix
    determinant = a * e - b * d
    p, q, s, t = e / determinant, -b / determinant, -d / determinant, a / determinant
    return View((p, q, -(p * c + q * f), s, t, -(s * c + t * f)), (1, 1))


def _done(out: Pixels, result: Any) -> None:
    if result is not out:
        np.copyto(out, result.reshape(out.shape))
