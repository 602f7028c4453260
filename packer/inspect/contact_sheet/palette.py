"""Palette: the colours of sheets, as RGB, 0-255. Most are those of Okabe and Ito, which colour-blind people tell apart.

M. Okabe, K. Ito, "Color Universal Design", 2008.
"""

import colorsys

Colour = tuple[int, int, int]

PAPER: Colour = (255, 255, 255)
INK: Colour = (33, 37, 41)
MUTED: Colour = (108, 117, 125)
GROUND: Colour = (241, 243, 245)  # around a picture that does not fill its place

# opening and jaw sides of the first field of grasps, of the second, ...
GRASPS: tuple[tuple[Colour, Colour], ...] = (
    ((230, 159, 0), (0, 114, 178)),
    ((176, 176, 176), (84, 84, 84)),
    ((240, 228, 66), (204, 121, 167)),
)
BOXES: tuple[Colour, ...] = ((213, 94, 0), (204, 121, 167), (86, 180, 233))
POINTS: tuple[Colour, ...] = ((204, 121, 167), (86, 180, 233), (240, 228, 66))
_CLASSES: tuple[Colour, ...] = ((0, 158, 115), (213, 94, 0), (86, 180, 233), (204, 121, 167), (240, 228, 66))
VOID: Colour = (128, 128, 128)

HATCH: tuple[Colour, Colour] = ((233, 236, 239), (173, 181, 189))  # a pixel without depth; no colour of VIRIDIS
HATCH_PX = 4


def class_colour(value: int) -> Colour:
    """The colour of one value of a mask, 1-255: five chosen ones, then hues as far apart as any number of them can be.

    Hues are multiples of the golden section of the circle.
    """
    if value <= len(_CLASSES):
        return _CLASSES[value - 1]
    red, green, blue = colorsys.hsv_to_rgb(value * 0.6180339887498949 % 1.0, 0.62 + 0.18 * (value % 2), 0.88)
    return round(255 * red), round(255 * green), round(255 * blue)
