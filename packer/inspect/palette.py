"""Palette: eight colors that color-blind people can distinguish, where contact sheets use them, and the depth colors.

RGB, 0-255. Plots use the same eight colors: M. Okabe, K. Ito, "Color Universal Design", 2008.
"""

import colorsys
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

Color = tuple[int, int, int]
Pixels = npt.NDArray[np.uint8]

BLACK: Color = (0, 0, 0)
ORANGE: Color = (230, 159, 0)
SKY: Color = (86, 180, 233)
GREEN: Color = (0, 158, 115)
YELLOW: Color = (240, 228, 66)
BLUE: Color = (0, 114, 178)
VERMILION: Color = (213, 94, 0)
PURPLE: Color = (204, 121, 167)


def as_hex(color: Color) -> str:
    """Return a color as `#rrggbb`, for CSS."""
    return "#{:02x}{:02x}{:02x}".format(*color)


# ---- use on contact sheets

PAPER: Color = (255, 255, 255)
INK: Color = (33, 37, 41)
MUTED: Color = (108, 117, 125)
GROUND: Color = (241, 243, 245)  # around an image that does not fill its box

# form of shapes -> colors of its first field, of the second, ...; those of grasps are for the opening and the jaws
SHAPES: dict[str, tuple[tuple[Color, ...], ...]] = {
    "grasps": ((ORANGE, BLUE), ((176, 176, 176), (84, 84, 84)), (YELLOW, PURPLE)),
    "boxes": ((VERMILION,), (PURPLE,), (SKY,)),
    "outlines": ((SKY,), (YELLOW,), (PURPLE,)),
    "points": ((PURPLE,), (SKY,), (YELLOW,)),
}
_CLASSES: tuple[Color, ...] = (GREEN, VERMILION, SKY, PURPLE, YELLOW)
VOID: Color = (128, 128, 128)

HATCH: tuple[Color, Color] = ((233, 236, 239), (173, 181, 189))  # a pixel without depth; not a color of viridis
HATCH_PX = 4


def class_color(value: int) -> Color:
    """Return the color of a mask value >= 1: one of five fixed colors, then hues in steps of the golden section."""
    if value <= len(_CLASSES):
        return _CLASSES[value - 1]
    red, green, blue = colorsys.hsv_to_rgb(value * 0.6180339887498949 % 1.0, 0.62 + 0.18 * (value % 2), 0.88)
    return round(255 * red), round(255 * green), round(255 * blue)


@functools.cache
def viridis() -> Pixels:
    """Return the 256 colors of viridis, uint8 (256, 3), RGB."""
    import cv2  # plots import this module without it

    ramp: Any = np.arange(256, dtype=np.uint8)[:, None]
    colors = cv2.applyColorMap(ramp, cv2.COLORMAP_VIRIDIS)
    return np.array(colors[:, 0, ::-1], np.uint8, order="C")
