"""Palette: the eight colours that colour-blind people tell apart (Okabe-Ito), what each is for on contact sheets, and
the colours of depth.

RGB, 0-255. Plots take the eight too.

M. Okabe, K. Ito, "Color Universal Design", 2008.
"""

import colorsys
import functools
from typing import Any

import numpy as np
import numpy.typing as npt

Colour = tuple[int, int, int]
Pixels = npt.NDArray[np.uint8]

BLACK: Colour = (0, 0, 0)
ORANGE: Colour = (230, 159, 0)
SKY: Colour = (86, 180, 233)
GREEN: Colour = (0, 158, 115)
YELLOW: Colour = (240, 228, 66)
BLUE: Colour = (0, 114, 178)
VERMILION: Colour = (213, 94, 0)
PURPLE: Colour = (204, 121, 167)


def as_hex(colour: Colour) -> str:
    """`#rrggbb`, as matplotlib takes it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


# ---- what each colour of a contact sheet is for

PAPER: Colour = (255, 255, 255)
INK: Colour = (33, 37, 41)
MUTED: Colour = (108, 117, 125)
GROUND: Colour = (241, 243, 245)  # around a picture that does not fill its place

# opening and jaw sides of the first field of grasps, of the second, ...
GRASPS: tuple[tuple[Colour, Colour], ...] = (
    (ORANGE, BLUE),
    ((176, 176, 176), (84, 84, 84)),
    (YELLOW, PURPLE),
)
BOXES: tuple[Colour, ...] = (VERMILION, PURPLE, SKY)
OUTLINES: tuple[Colour, ...] = (SKY, YELLOW, PURPLE)
POINTS: tuple[Colour, ...] = (PURPLE, SKY, YELLOW)
_CLASSES: tuple[Colour, ...] = (GREEN, VERMILION, SKY, PURPLE, YELLOW)
VOID: Colour = (128, 128, 128)

HATCH: tuple[Colour, Colour] = ((233, 236, 239), (173, 181, 189))  # a pixel without depth; no colour of VIRIDIS
HATCH_PX = 4


def class_colour(value: int) -> Colour:
    """The colour of one value of a mask, from 1 on: five chosen ones, then hues as far apart as so many of them can be.

    Hues are multiples of the golden section of the circle.
    """
    if value <= len(_CLASSES):
        return _CLASSES[value - 1]
    red, green, blue = colorsys.hsv_to_rgb(value * 0.6180339887498949 % 1.0, 0.62 + 0.18 * (value % 2), 0.88)
    return round(255 * red), round(255 * green), round(255 * blue)


@functools.cache
def viridis() -> Pixels:
    """The 256 colours, uint8 (256, 3), RGB."""
    import cv2  # plots take colours of here without it

    ramp: Any = np.arange(256, dtype=np.uint8)[:, None]
    colours = cv2.applyColorMap(ramp, cv2.COLORMAP_VIRIDIS)
    return np.array(colours[:, 0, ::-1], np.uint8, order="C")
