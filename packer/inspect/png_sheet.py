"""PNG sheet: a contact sheet as one image, drawn with OpenCV. Characters outside ASCII are drawn as escapes."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np

from packer.errors import InvalidRequest
from packer.inspect.contact_sheet import Image, Item, Row, Sheet, Stack, Style, Text, layout
from packer.inspect.palette import INK, MUTED, PAPER, Color, Pixels
from packer.inspect.value_drawing import png_bytes

MARGIN_PX = 24
GAP_PX = 20  # between tiles
_LEAST_WIDTH_PX = 520
_MOST_WIDTH_PX = 1640
_MOST_PIXELS = 100_000_000
_WANTED_RATIO = 1.5  # width to height


class _Font(NamedTuple):
    """A font face of OpenCV at one size. `line_px` is the distance between lines."""

    face: int
    scale: float
    line_px: int
    color: Color

    def width(self, text: str) -> int:
        return int(cv2.getTextSize(text, self.face, self.scale, 1)[0][0])


_FONTS: dict[Style, _Font] = {
    "title": _Font(cv2.FONT_HERSHEY_DUPLEX, 0.6, 28, INK),
    "key": _Font(cv2.FONT_HERSHEY_DUPLEX, 0.42, 18, INK),
    "label": _Font(cv2.FONT_HERSHEY_SIMPLEX, 0.38, 16, MUTED),
    "value": _Font(cv2.FONT_HERSHEY_SIMPLEX, 0.38, 16, INK),
}


def draw_png(sheet: Sheet) -> bytes:
    """Return the sheet as a PNG file. Raises InvalidRequest if the image would be too large."""
    page = layout(sheet)
    tiles = [_drawn(tile, page.tile_width_px) for tile in page.tiles]
    across = _across(len(tiles), page.tile_width_px, max(map(len, tiles)))
    rows = [tiles[first : first + across] for first in range(0, len(tiles), across)]
    width = max(_LEAST_WIDTH_PX - 2 * MARGIN_PX, across * (page.tile_width_px + GAP_PX) - GAP_PX)
    head = _drawn(Stack((page.title, page.legend), width), width)
    height = len(head) + sum(GAP_PX + max(map(len, row)) for row in rows)
    canvas_size = height + 2 * MARGIN_PX, width + 2 * MARGIN_PX
    if math.prod(canvas_size) > _MOST_PIXELS:
        raise InvalidRequest(
            f"a sheet of {canvas_size[1]}x{canvas_size[0]} px is too large for a PNG; "
            "show fewer samples with -n, or use .html"
        )
    canvas = _blank(*canvas_size)
    _paste(canvas, head, MARGIN_PX, MARGIN_PX)
    y = MARGIN_PX + len(head)
    for row in rows:
        y += GAP_PX
        for column, tile in enumerate(row):
            _paste(canvas, tile, y, MARGIN_PX + column * (page.tile_width_px + GAP_PX))
        y += max(map(len, row))
    return png_bytes(canvas)


def _across(count: int, width: int, height: int) -> int:
    """Return the number of tiles in a row. It gives a sheet of about 3:2 with few empty positions."""

    def badness(across: int) -> float:
        rows = -(-count // across)
        ratio = (across * (width + GAP_PX)) / (rows * (height + GAP_PX))
        return abs(math.log(ratio / _WANTED_RATIO)) + (rows * across - count) / count

    most = max(1, (_MOST_WIDTH_PX - 2 * MARGIN_PX + GAP_PX) // (width + GAP_PX))
    return min(range(1, min(most, count) + 1), key=badness)


# ---- items


def _drawn(item: Item, room: int) -> Pixels:
    """Draw an item so that it is at most `room` px wide."""
    match item:
        case Image():
            return item.pixels
        case Text():
            return _written(item, room)
        case Stack():
            return _stacked([_drawn(part, item.width_px) for part in item.items], item.width_px)
        case Row():
            lines = [_line(item, parts, room) for parts in _lines(item, room)]
            return _stacked(lines, max((line.shape[1] for line in lines), default=0))


def _lines(row: Row, room: int) -> list[list[Pixels]]:
    lines: list[list[Pixels]] = []
    left = 0
    for item in row.items:
        part = _drawn(item, room)
        needed = row.gap_px + part.shape[1]
        if not lines or needed > left:
            lines.append([])
            left = room + row.gap_px
        lines[-1].append(part)
        left -= needed
    return lines


def _line(row: Row, parts: Sequence[Pixels], room: int) -> Pixels:
    """Put parts side by side: stacks at the top, texts and images in the vertical middle."""
    needed = sum(part.shape[1] + row.gap_px for part in parts) - row.gap_px
    canvas = _blank(max(map(len, parts)), room if row.spread else needed)
    x = 0
    for number, part in enumerate(parts):
        if row.spread and number and number == len(parts) - 1:
            x = room - part.shape[1]
        _paste(canvas, part, 0 if isinstance(row.items[0], Stack) else (len(canvas) - len(part)) // 2, x)
        x += part.shape[1] + row.gap_px
    return canvas


def _stacked(parts: Sequence[Pixels], width: int) -> Pixels:
    canvas = _blank(sum(map(len, parts)), width)
    y = 0
    for part in parts:
        _paste(canvas, part, y, 0)
        y += len(part)
    return canvas


def _blank(height: int, width: int) -> Pixels:
    return np.full((height, width, 3), PAPER, np.uint8)


def _paste(canvas: Pixels, part: Pixels, y: int, x: int) -> None:
    height, width = min(len(part), len(canvas) - y), min(part.shape[1], canvas.shape[1] - x)
    canvas[y : y + height, x : x + width] = part[:height, :width]


# ---- text


def _written(text: Text, room: int) -> Pixels:
    font = _FONTS[text.style]
    lines = broken(text.text.encode("ascii", "backslashreplace").decode(), room, font.width)
    canvas = _blank(len(lines) * font.line_px, min(room, max(map(font.width, lines))))
    target: Any = canvas
    for number, line in enumerate(lines):
        baseline = number * font.line_px + font.line_px * 7 // 10
        cv2.putText(target, line, (0, baseline), font.face, font.scale, font.color, 1, cv2.LINE_AA)
    return canvas


def broken(text: str, room: int, width: Callable[[str], int]) -> list[str]:
    """Return the lines of a text, each at most `room` px. Lines end after a slash or a blank if possible.

    `width` is a function that returns the width of a text in px.
    """
    lines: list[str] = []
    while width(text) > room and len(text) > 1:
        count = max(1, bisect_right(range(len(text)), room, key=lambda end: width(text[:end])) - 1)
        after_break = 1 + max(text.rfind(mark, 0, count) for mark in "/ _-")
        count = after_break if after_break > count // 2 else count
        lines.append(text[:count])
        text = text[count:]
    return [*lines, text]
