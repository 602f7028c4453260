"""Lettering: text drawn with OpenCV, so that none of it is cut.

OpenCV 4 has stroke fonts for ASCII, OpenCV 5 letters of its own under the same names: both are measured, none is
assumed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from packer.files.text import shortened
from packer.sheets.palette import Colour

_ELLIPSIS = "..."

Pixels = npt.NDArray[np.uint8]


class Font(NamedTuple):
    """One of OpenCV's faces at one size; line_px: from one line to the next."""

    face: int
    scale: float
    line_px: int

    def width(self, text: str) -> int:
        """px of a drawn text."""
        return int(cv2.getTextSize(text, self.face, self.scale, 1)[0][0])


PLAIN = Font(cv2.FONT_HERSHEY_SIMPLEX, 0.38, 16)
BOLD = Font(cv2.FONT_HERSHEY_DUPLEX, 0.42, 18)
TITLE = Font(cv2.FONT_HERSHEY_DUPLEX, 0.6, 28)


def ascii_text(text: str) -> str:
    """A printable text in ASCII, which is what OpenCV 4 can draw; other characters as escapes."""
    return shortened(text).encode("ascii", "backslashreplace").decode()


def fitted(text: str, width: int, width_of: Callable[[str], int]) -> str:
    """The text, or as much of its beginning and end as `width` has room for, with an ellipsis between."""
    if width_of(text) <= width:
        return text
    low, high = 0, len(text)  # characters that stay
    while low < high:
        middle = (low + high + 1) // 2
        if width_of(_without_middle(text, middle)) <= width:
            low = middle
        else:
            high = middle - 1
    return _without_middle(text, low)


def _without_middle(text: str, kept: int) -> str:
    tail = kept // 2
    return text[: kept - tail] + _ELLIPSIS + (text[-tail:] if tail else "")


def lines_of(text: str, width: int, width_of: Callable[[str], int], *, most: int) -> list[str]:
    """The text on at most `most` lines, broken wherever a line is full; the last one has an ellipsis if need be."""
    lines: list[str] = []
    while len(lines) < most - 1 and width_of(text) > width:
        count = _fitting(text, width, width_of)
        lines.append(text[:count])
        text = text[count:]
    return [*lines, fitted(text, width, width_of)]


def _fitting(text: str, width: int, width_of: Callable[[str], int]) -> int:
    """How many characters fit, at least one; after a slash or a blank rather than inside a word."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if width_of(text[:middle]) <= width else (low, middle - 1)
    at = max(text.rfind(mark, 0, low) for mark in "/ _-")
    return at + 1 if at + 1 > low // 2 else low


def put(canvas: Pixels, text: str, at: tuple[int, int], *, font: Font, colour: Colour) -> None:
    """Draw an ASCII text into uint8 (H, W, 3); at: (x, y) of its left end on the baseline."""
    target: Any = canvas
    cv2.putText(target, text, at, font.face, font.scale, colour, 1, cv2.LINE_AA)
