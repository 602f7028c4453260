"""Okabe-Ito: the eight colours that colour-blind people tell apart, as RGB, 0-255, for sheets and plots.

M. Okabe, K. Ito, "Color Universal Design", 2008.
"""

Colour = tuple[int, int, int]

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
