"""Value drawing: draws images, depth, masks and labels of a sample as RGB arrays, and returns the legend entries.

Depth has the colors of viridis, whose lightness grows evenly with the value (S. van der Walt, N. Smith, "A better
default colormap for matplotlib", SciPy 2015). The colors span the 1st to the 99th percentile of the valid pixels, so
one wrong pixel does not remove the contrast. Invalid pixels are hatched.

A grasp rectangle has the corners p0 to p3. The sides p0 p1 and p2 p3 are the opening of the gripper, the others its
jaws. Opening and jaws have two colors. Jaws have thicker lines if they are long. All fields of grasps after the first
have thin lines.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.geometry import View, resized_crop
from packer.geometry.warp import warp
from packer.geometry.warp.depth_and_mask import is_valid
from packer.inspect.palette import GROUND, HATCH, HATCH_PX, SHAPES, VOID, Color, Pixels, class_color, viridis

_OPACITY = 0.3  # A mask over an image has an opaque outline.
_SLACK = 0.015  # An image is stretched if less than this share of the box remains empty.
_TINY = 4  # An image that fits this often is enlarged by a whole factor.
_SOFT_VALUES = 32  # A mask with more distinct values is soft: its values are opacities.

Mask = npt.NDArray[np.uint8] | npt.NDArray[np.int32]  # of 8 or of 16 bit, as decoded


class Mark(NamedTuple):
    """One entry of a legend: text, and a color in a `form` ("" for text only). `thickness` is that of a line in px."""

    text: str
    form: Literal["line", "fill", "hatch", ""] = ""
    color: Color = GROUND
    thickness: int = 0


def png_bytes(pixels: Pixels, *, level: int = 9) -> bytes:
    """Encode uint8 (H, W, 3) or (H, W, 4), RGB or RGBA, as a PNG file. InvalidRequest if the size is too large.

    `level` is the compression, 0 to 9. Level 1 is ten times as fast as 9.
    """
    filtered = cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_FILTERED
    return _encoded(pixels, ".png", (cv2.IMWRITE_PNG_COMPRESSION, level, *filtered))


def jpeg_bytes(pixels: Pixels) -> bytes:
    """Encode uint8 (H, W, 3), RGB, as a JPEG file of quality 92. Raises InvalidRequest if the size is too large."""
    return _encoded(pixels, ".jpg", (cv2.IMWRITE_JPEG_QUALITY, 92))


def bmp_bytes(pixels: Pixels) -> bytes:
    """Encode uint8 (H, W, 3), RGB, as a BMP file, ten times as fast as PNG. InvalidRequest if the size is too large."""
    return _encoded(pixels, ".bmp", ())


def _encoded(pixels: Pixels, suffix: str, options: Sequence[int]) -> bytes:
    swap = cv2.COLOR_RGBA2BGRA if pixels.shape[2] == 4 else cv2.COLOR_RGB2BGR
    done, data = cv2.imencode(suffix, cv2.cvtColor(pixels, swap), options)
    if not done:
        raise InvalidRequest(
            f"OpenCV cannot encode {pixels.shape[1]}x{pixels.shape[0]} px as {suffix}; choose another --size"
        )
    return data.tobytes()


# ---- fitting


def placing(height: int, width: int, box: tuple[int, int]) -> View:
    """Return the view that fits an image into `box` (height, width). A tiny image is enlarged by a whole factor."""
    factor = min(box[0] / height, box[1] / width)
    if factor >= _TINY:
        return resized_crop(0, 0, height, width, size=(height * int(factor), width * int(factor)))
    size = min(box[0], max(1, round(height * factor))), min(box[1], max(1, round(width * factor)))
    if max(box[0] - size[0], box[1] - size[1]) <= _SLACK * min(box):
        size = box
    return resized_crop(0, 0, height, width, size=size)


def fit(array: npt.NDArray[Any], view: View, kind: str, *, invalid: float | None = None) -> npt.NDArray[Any]:
    """Return an array warped by a view of `placing`, in the same dtype. Pixels of a tiny image become squares."""
    height, width = array.shape[:2]
    factor = view.size[0] // height
    if factor >= _TINY and view.size == (height * factor, width * factor):
        return np.repeat(np.repeat(array, factor, axis=0), factor, axis=1)
    return warp(array, view, kind, invalid=invalid)


# ---- depth


class Scale(NamedTuple):
    """The depths with the first and the last color, or None if no pixel is valid. `unit` is "m", or "" if unknown."""

    low: float | None
    high: float | None
    unit: str = ""


def scale_of(depth: npt.NDArray[Any], invalid: float | None, unit: str = "") -> Scale:
    """Return the scale of a depth (H, W): the 1st and 99th percentile of pixels that are finite and not `invalid`."""
    values = depth[is_valid(depth, invalid)]
    if not values.size:
        return Scale(None, None, unit)
    low, high = np.percentile(values.astype(np.float64), (1, 99))
    return Scale(float(low), float(high), unit)


def colored_depth(depth: npt.NDArray[Any], scale: Scale, *, invalid: float | None) -> Pixels:
    """Return a depth (H, W) in the colors of viridis, uint8 (H, W, 3). Invalid pixels are hatched."""
    made = hatch(*depth.shape)
    if scale.low is None or scale.high is None:
        return made
    valid = is_valid(depth, invalid)
    span = scale.high - scale.low
    share = (np.where(valid, depth, scale.low).astype(np.float64) - scale.low) / span if span > 0 else 0.5
    levels = np.rint(np.clip(np.broadcast_to(share, depth.shape), 0, 1) * 255).astype(np.uint8)
    made[valid] = viridis()[levels[valid]]
    return made


def hatch(height: int, width: int) -> Pixels:
    """Return the stripes that mark invalid depth, uint8 (height, width, 3)."""
    rows, columns = np.ogrid[:height, :width]
    colors: Any = np.asarray(HATCH, np.uint8)
    made: Pixels = colors[(rows + columns) // HATCH_PX % 2]
    return made


# ---- masks


def overlaid(pixels: Pixels, mask: Mask) -> Pixels:
    """Return an image with a mask drawn over it. Value 0 is transparent. Other values have a color and an outline."""
    colors, opacity = mask_colors(mask)
    weight = np.where(_outline(mask) & (opacity == 1), 1.0, _OPACITY * opacity)[..., None]
    mixed: npt.NDArray[np.float64] = np.rint(pixels * (1 - weight) + colors * weight)
    return mixed.astype(np.uint8)


def colored_mask(mask: Mask) -> Pixels:
    """Return a mask (H, W) in colors on black, uint8 (H, W, 3)."""
    colors, opacity = mask_colors(mask)
    return np.rint(colors * opacity[..., None]).astype(np.uint8)


def _outline(mask: Mask) -> npt.NDArray[np.bool_]:
    """Return a mask of the pixels whose neighbor above, below, left or right has another value."""
    found = np.zeros(mask.shape, bool)
    down, right = mask[1:] != mask[:-1], mask[:, 1:] != mask[:, :-1]
    found[1:] |= down
    found[:-1] |= down
    found[:, 1:] |= right
    found[:, :-1] |= right
    return found


def mask_colors(mask: Mask) -> tuple[Pixels, npt.NDArray[np.float64]]:
    """Return the color, uint8 (H, W, 3), and the opacity, float64 (H, W) from 0 to 1, of each pixel of a mask.

    In a mask of 8 bit with many values, value / 255 is the opacity of one color. Otherwise each value has a color.
    """
    values, positions = np.unique(mask, return_inverse=True)
    colors, opacity = _value_colors(mask, values.tolist()), (values != 0).astype(np.float64)
    if mask.dtype == np.uint8 and len(values) > _SOFT_VALUES:
        colors, opacity = [class_color(1)] * len(values), values.astype(np.float64) / 255
    painted = np.asarray(colors, np.uint8).reshape(-1, 3)[positions]
    return painted.reshape(*mask.shape, 3), opacity[positions].reshape(mask.shape)


def _value_colors(mask: Mask, values: list[int]) -> list[Color]:
    """Return the color of each value that a mask contains.

    In a mask of 8 bit, 255 has the color of ignored pixels (void in VOC). If all others are 0, 255 is an object.
    """
    colors = {value: class_color(value) if value else (0, 0, 0) for value in values}
    if 255 in colors and mask.dtype == np.uint8:
        colors[255] = VOID if any(0 < value < 255 for value in values) else class_color(1)
    return list(colors.values())


_MARKED_VALUES = 6  # of one mask


def mask_marks(name: str, mask: Mask) -> list[Mark]:
    """Return the legend entries of the mask field `name`, one for each value.

    There is only one entry if values are 0 and 255, if they are opacities, or if there are too many.
    """
    values = [value for value in np.unique(mask).tolist() if value]
    if len(values) > _MARKED_VALUES and mask.dtype != np.uint8:
        return [Mark(f"{name}: a color per value")]
    if len(values) > _MARKED_VALUES or (mask.dtype == np.uint8 and values == [255]):
        return [Mark(name, "fill", class_color(1))]
    colors = _value_colors(mask, values)
    return [Mark(f"{name} {value}", "fill", color) for value, color in zip(values, colors, strict=True)]


# ---- labels

Form = Literal["grasps", "boxes", "outlines", "points"]

_SHIFT = 4  # OpenCV's coordinates are whole sixteenths of a px
_FARTHEST_PX = 100_000.0  # a label beyond it would overflow
_OPENING_PX, _JAW_PX = 1, 2
_ROOM_PX = 14.0  # a jaw as long as this is drawn thick
_DOT_PX = 2


class ShapeCounts(NamedTuple):
    """Numbers of all shapes of one field, of drawn shapes, and of impossible shapes (not finite or far outside)."""

    total: int
    drawn: int
    impossible: int


def draw_shapes(pixels: Pixels, shapes: Sequence[npt.NDArray[Any]], *, form: Form, rank: int, most: int) -> ShapeCounts:
    """Draw the shapes of one field into `pixels`, uint8 (H, W, 3), and return their numbers.

    Args:
        shapes: Corners of each shape, (P, 2) in px of `pixels`: 4 for a grasp or a box, 1 for a point.
        rank: Number of previous fields of the same form. It determines the colors.
        most: Largest number of shapes to draw, spread evenly over `shapes`. 0 draws all.
    """
    kept = [shape for shape in shapes if len(shape) and np.abs(shape).max() <= _FARTHEST_PX]  # false for NaN
    count = min(most, len(kept)) if most else len(kept)
    for number in range(count):
        corners = kept[number * len(kept) // count]
        if form == "grasps":
            _draw_grasp(pixels, corners, rank)
        elif form == "points":
            _draw_dot(pixels, corners[0], shape_colors(form, rank)[0])
        else:
            thickness = _JAW_PX if form == "boxes" else _OPENING_PX
            _draw_line(pixels, [*corners, corners[0]], shape_colors(form, rank)[0], thickness)
    return ShapeCounts(len(shapes), count, len(shapes) - len(kept))


def shape_marks(name: str, form: Form, rank: int) -> list[Mark]:
    """Return the legend entries of a field of shapes. `rank` is that of `draw_shapes`."""
    color, *jaws = shape_colors(form, rank)
    if jaws:
        return [Mark(f"{name}: opening", "line", color, _OPENING_PX), Mark(f"{name}: jaw", "line", jaws[0], _JAW_PX)]
    if form == "points":
        return [Mark(name, "fill", color)]
    return [Mark(name, "line", color, _JAW_PX if form == "boxes" else _OPENING_PX)]


def shape_colors(form: Form, rank: int) -> tuple[Color, ...]:
    """Return the color of the shapes of a field, or two for grasps (opening, jaws). `rank` is that of `draw_shapes`."""
    return SHAPES[form][rank % len(SHAPES[form])]


def _draw_grasp(pixels: Pixels, corners: npt.NDArray[Any], rank: int) -> None:
    opening, jaw = shape_colors("grasps", rank)
    is_thick = not rank and np.linalg.norm(corners[2] - corners[1]) >= _ROOM_PX
    for first in (0, 2):
        _draw_line(pixels, [corners[first], corners[first + 1]], opening, _OPENING_PX)
    for first in (1, 3):
        _draw_line(pixels, [corners[first], corners[(first + 1) % 4]], jaw, _JAW_PX if is_thick else _OPENING_PX)


def _draw_line(pixels: Pixels, points: Any, color: Color, thickness: int) -> None:
    fixed = np.rint(np.asarray(points, np.float64) * (1 << _SHIFT)).astype(np.int32)
    target: Any = pixels
    cv2.polylines(target, [fixed.reshape(-1, 1, 2)], False, color, thickness, cv2.LINE_AA, _SHIFT)


def _draw_dot(pixels: Pixels, point: npt.NDArray[Any], color: Color) -> None:
    x, y = (round(float(value) * (1 << _SHIFT)) for value in point)
    target: Any = pixels
    cv2.circle(target, (x, y), _DOT_PX << _SHIFT, color, -1, cv2.LINE_AA, _SHIFT)
