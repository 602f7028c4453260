"""Drawing: images of everyday objects on tables, seen from above, and encoding of these images.

An object consists of flat shapes. A later shape covers earlier shapes. Images are uint8 (H, W, 3), RGB.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import PackerError

Color = tuple[int, int, int]
Floats = npt.NDArray[np.float64]
Generator = np.random.Generator
Image = npt.NDArray[np.uint8]
Pixels = npt.NDArray[np.bool_]
Plane = npt.NDArray[np.float32]
Size = tuple[int, int]

PALETTE: dict[str, Color] = {
    "red": (196, 50, 48),
    "orange": (232, 126, 40),
    "yellow": (230, 190, 52),
    "green": (62, 150, 76),
    "teal": (40, 146, 148),
    "blue": (56, 92, 184),
    "violet": (126, 74, 164),
    "pink": (224, 130, 158),
    "brown": (122, 82, 54),
    "white": (228, 226, 220),
    "gray": (136, 138, 140),
    "black": (46, 46, 50),
}
_FIXED: dict[str, Color] = {"dark": (52, 50, 54), "light": (226, 222, 212), "metal": (168, 172, 178)}

# --- objects

_TURN = np.linspace(0, 2 * math.pi, 48, endpoint=False)
_OVAL = np.stack([np.cos(_TURN), np.sin(_TURN)], 1)
_X, _Y = _OVAL.T
# name -> closed outline (N, 2), x and y from -1 to 1
_OUTLINES: dict[str, Floats] = {
    "arc": np.stack([_X, 0.5 - _X**2 + 0.5 * _Y], 1),
    "box": np.array([[-1, -1], [1, -1], [1, 1], [-1, 1.0]]),
    "fall": np.array([[-1, -1], [-0.9, -1], [1, 0.5], [1, 1], [0.8, 1], [-1, -0.7]]),
    "oval": _OVAL,
    "rise": np.array([[-1, 1], [-0.9, 1], [1, -0.5], [1, -1], [0.8, -1], [-1, 0.7]]),
    "round": np.sign(_OVAL) * np.abs(_OVAL) ** 0.4,
    "wedge": np.array([[-1, -1], [1, -0.4], [1, 0.4], [-1, 1]]),
}
# (outline, x and y of the center, half of the length and of the width, color); lengths in mm
_Shape = tuple[str, float, float, float, float, Literal["own", "dark", "light", "metal"]]
# kind -> (height in mm, shapes)
_OBJECTS: dict[str, tuple[float, tuple[_Shape, ...]]] = {
    "ball": (74, (("oval", 0, 0, 37, 37, "own"), ("oval", 0, 0, 13, 36, "light"))),
    "banana": (32, (("arc", 0, 0, 80, 30, "own"), ("oval", -79, -15, 6, 6, "dark"), ("oval", 79, -15, 5, 5, "dark"))),
    "bottle": (
        60,
        (
            ("wedge", 48, 0, 36, 24, "own"),
            ("round", -24, 0, 52, 30, "own"),
            ("box", -26, 0, 27, 29, "light"),
            ("round", 88, 0, 9, 13, "dark"),
        ),
    ),
    "bowl": (42, (("oval", 0, 0, 66, 66, "own"), ("oval", 0, 0, 57, 57, "light"))),
    "box": (46, (("box", 0, 0, 80, 52, "own"), ("oval", -44, -16, 22, 22, "light"), ("box", 6, 30, 60, 8, "light"))),
    "bracket": (24, (("box", 0, -30, 72, 12, "own"), ("box", -60, 8, 12, 50, "own"), ("oval", 52, -30, 6, 6, "dark"))),
    "can": (99, (("oval", 0, 0, 33, 33, "own"), ("oval", 0, 0, 28, 28, "metal"), ("oval", 10, 0, 10, 6, "dark"))),
    "dumbbell": (62, (("box", 0, 0, 60, 11, "dark"), ("oval", -58, 0, 17, 31, "own"), ("oval", 58, 0, 17, 31, "own"))),
    "frame": (18, (("box", 0, 0, 90, 66, "own"), ("box", 0, 0, 76, 52, "light"), ("oval", 0, 0, 24, 32, "metal"))),
    "hammer": (
        30,
        (("round", -14, 0, 86, 11, "own"), ("box", 72, -4, 11, 30, "metal"), ("oval", 72, 34, 11, 9, "dark")),
    ),
    "marker": (20, (("box", -20, 0, 50, 8, "light"), ("round", 46, 0, 26, 10, "own"))),
    "mouse": (38, (("round", 0, 0, 55, 31, "own"), ("round", 26, 0, 9, 4, "metal"))),
    "mug": (84, (("round", 46, 0, 20, 11, "own"), ("oval", 0, 0, 40, 40, "own"), ("oval", 0, 0, 33, 33, "dark"))),
    "remote": (20, (("round", 0, 0, 82, 23, "own"), ("oval", 62, 0, 9, 9, "light"), ("box", -20, 0, 44, 14, "light"))),
    "scissors": (
        14,
        (
            ("fall", 40, 0, 60, 15, "metal"),
            ("rise", 40, 0, 60, 15, "metal"),
            ("oval", -38, -22, 28, 18, "own"),
            ("oval", -38, 22, 28, 18, "own"),
        ),
    ),
    "screwdriver": (30, (("box", 36, 0, 50, 6, "metal"), ("round", -56, 0, 42, 15, "own"))),
    "sunglasses": (
        14,
        (
            ("box", 0, -8, 56, 4, "own"),
            ("round", -32, 0, 28, 23, "own"),
            ("round", 32, 0, 28, 23, "own"),
            ("round", -32, 0, 22, 17, "dark"),
            ("round", 32, 0, 22, 17, "dark"),
        ),
    ),
    "tape": (28, (("oval", 0, 0, 48, 48, "own"), ("oval", 0, 0, 34, 34, "light"), ("oval", 0, 0, 30, 30, "dark"))),
    "wrench": (12, (("box", 0, 0, 64, 8, "own"), ("oval", -62, 0, 18, 18, "own"), ("oval", 62, 0, 15, 15, "own"))),
}
KINDS = tuple(_OBJECTS)


@dataclass(frozen=True)
class DrawnObject:
    """An object to draw: height in meters, outline of each shape (N, 2; x, y in meters), RGB color of each shape."""

    height: float
    outlines: tuple[Floats, ...]
    colors: tuple[Floats, ...]

    @property
    def radius(self) -> float:
        """Largest distance of an outline point from the origin, in meters."""
        return max(float(np.hypot(*outline.T).max()) for outline in self.outlines)


def make_object(kind: str, random: Generator, *, color: str | None = None) -> DrawnObject:
    """Return an object with random proportions. `color` is a key of PALETTE. None selects a random color."""
    own = PALETTE[color or tuple(PALETTE)[random.integers(len(PALETTE))]]
    tint, stretch = random.uniform(0.85, 1.1), random.uniform(0.88, 1.12, 2) / 1000
    height, shapes = _OBJECTS[kind]
    outlines = ((_OUTLINES[outline] * [length, width] + [x, y]) * stretch for outline, x, y, length, width, _ in shapes)
    colors = (np.clip(np.array(_FIXED.get(paint, own)) * tint, 0, 255) for *_, paint in shapes)
    return DrawnObject(height / 1000, tuple(outlines), tuple(colors))


def draw_object(image: Image, drawn: DrawnObject, *, at: tuple[float, float], turn: float, scale: float) -> Plane:
    """Draw an object and its shadow into an image, in place.

    Args:
        at: (x, y) of the object's origin in the image, in pixels.
        turn: Clockwise rotation in rad.
        scale: Pixels per meter.

    Returns:
        float32 (H, W): height above the table in meters, 0 at pixels without the object.
    """
    c, s = math.cos(turn) * scale, math.sin(turn) * scale
    outlines = [outline @ [[c, s], [-s, c]] + at for outline in drawn.outlines]
    size, width = image.shape[:2], (1 + int(0.012 * scale),) * 2
    shadow, heights = np.zeros(size, np.uint8), np.zeros(size, np.float32)
    for outline in outlines:
        _fill(shadow, outline + 0.006 * scale)
    light = 255 - cv2.blur(cv2.blur(shadow, width), width) // 2
    cv2.multiply(image, cv2.cvtColor(light, cv2.COLOR_GRAY2RGB), dst=image, scale=1 / 255)
    for outline, color in zip(outlines, drawn.colors, strict=True):
        area = _fill(np.zeros(size, np.uint8), outline)
        inside = area > 0
        from_edge = cv2.distanceTransform(area, cv2.DIST_L2, 3)[inside]
        bulge = np.sqrt(from_edge / from_edge.max(initial=1))
        heights[inside] = drawn.height * (0.8 + 0.2 * bulge)
        image[inside] = color * (0.68 + 0.32 * bulge)[:, None]
    return heights


def _fill(area: Image, outline: Floats) -> Image:
    cv2.fillPoly(area, [np.rint(outline * 16).astype(np.int32)], 255, shift=4)
    return area


# --- tables

GRAY, WHITE = 0, 5  # indices of _TABLES
# (dark color, light color, pattern) of each table
_TABLES: tuple[tuple[Color, Color, Literal["plain", "planks", "tiles"]], ...] = (
    ((96, 98, 96), (204, 206, 204), "plain"),
    ((74, 44, 24), (196, 152, 104), "planks"),
    ((96, 48, 48), (150, 84, 80), "plain"),
    ((110, 106, 98), (222, 214, 198), "tiles"),
    ((66, 84, 66), (120, 142, 116), "plain"),
    ((196, 192, 188), (246, 244, 242), "plain"),
)


def draw_table(random: Generator, size: Size, *, number: int | None = None) -> Image:
    """Return an image of an empty table. `number` selects one of six tables. None selects a random table."""
    dark, light, pattern = _TABLES[random.integers(len(_TABLES)) if number is None else number]
    value = 0.5 + 0.09 * clouds(random, size, cells=3) + 0.05 * clouds(random, size, cells=24)
    turn = random.uniform(0, math.pi)
    row, column = (np.arange(length, dtype=np.float32) * 5 / min(size) for length in size)
    across = math.cos(turn) * column + math.sin(turn) * row[:, None]
    if pattern == "planks":
        value += 0.1 * np.sin(across * 19 + 2.5 * clouds(random, size, cells=4))
        value[np.abs(across % 1 - 0.5) > 0.485] -= 0.3
    elif pattern == "tiles":
        along = math.cos(turn) * row[:, None] - math.sin(turn) * column
        value[(np.abs(across % 1 - 0.5) > 0.475) | (np.abs(along % 1 - 0.5) > 0.475)] -= 0.35
    shades = np.linspace(dark, light, 256).astype(np.uint8)
    return np.asarray(shades.take(np.clip(value * 255, 0, 255).astype(np.uint8), axis=0), np.uint8)


def clouds(random: Generator, size: Size, *, cells: int) -> Plane:
    """Return smooth noise, float32 (H, W), with standard deviation 1 and about `cells` bright spots along each side."""
    coarse = random.standard_normal((cells + 1, cells + 1), np.float32)
    return np.asarray(cv2.resize(coarse, size[::-1], interpolation=cv2.INTER_CUBIC), np.float32)


# --- images


def photograph(image: Image, random: Generator, *, grain: float) -> Image:
    """Return a slightly blurred image with noise of the standard deviation `grain`, similar to a photo."""
    noise = cv2.GaussianBlur(random.integers(0, 256, image.shape, np.uint8), (3, 3), 0.6)
    share = grain / 36.8  # standard deviation of the blurred noise
    soft = cv2.GaussianBlur(image, (3, 3), 0.6)
    return np.asarray(cv2.addWeighted(soft, 1.0, noise, share, -127.5 * share), np.uint8)


def encode(suffix: str, pixels: npt.NDArray[Any], *settings: int) -> bytes:
    """Return a file such as ".png" with these pixels. Three channels are RGB. `settings` go to cv2.imencode."""
    done, data = cv2.imencode(suffix, pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), settings)
    if not done:
        raise PackerError(f"{suffix}: OpenCV cannot encode an array of shape {pixels.shape}; install another build")
    return data.tobytes()


def encode_photo(image: Image) -> bytes:
    """Return the bytes of a baseline JPEG file (4:2:0, quality 90, without EXIF)."""
    return encode(".jpg", image, cv2.IMWRITE_JPEG_QUALITY, 90)
