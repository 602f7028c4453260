"""PNG sheet: a contact sheet as one picture, drawn with OpenCV, so that no text is cut.

title
legend                                  as many lines as it needs
tile  tile  tile                        a tile: its pictures side by side, under each its field's name and size
tile  tile  tile                        (of a depth: its scale), then the key, then the other values

OpenCV 4 has stroke fonts for ASCII, OpenCV 5 letters of its own under the same names: both are measured, none is
assumed.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.files.terminal_output import shortened
from packer.inspect.contact_sheet.legend import Mark
from packer.inspect.contact_sheet.picture import hatch
from packer.inspect.contact_sheet.sheet import Sheet
from packer.inspect.contact_sheet.tile import Panel, Tile, range_texts
from packer.inspect.palette import GROUND, INK, MUTED, PAPER, Colour, viridis

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


# ---- the picture

MARGIN_PX = 24
GAP_PX = 20  # between tiles
_SEAM_PX = 6  # between the pictures of a tile
_FOOT_PX = 20  # under a picture: its name and scale
_BAR_PX = 7  # height of a scale's colours
_ITEM_GAP_PX = 12
_SWATCH_PX = 18
_LEAST_WIDTH_PX = 520
_MOST_WIDTH_PX = 1640
_PNG = (cv2.IMWRITE_PNG_COMPRESSION, 9, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_FILTERED)  # -3 %
_MOST_PIXELS = 100_000_000
_WANTED_RATIO = 1.5  # width to height
_KEY_LINES = 2
_MOST_ITEM_LINES = 6


class _TextPiece(NamedTuple):
    """A text at its place in a block of lines."""

    text: str
    x: int
    line: int
    colour: Colour


def draw_png(sheet: Sheet) -> bytes:
    """The sheet as a PNG file; raises InvalidRequest for one that would be too large."""
    tile_width = max(sheet.box[1], sheet.columns * sheet.box[1] + (sheet.columns - 1) * _SEAM_PX)
    blocks = [_items(tile, tile_width) for tile in sheet.tiles]
    heights = [_height(sheet, tile, block, tile_width) for tile, block in zip(sheet.tiles, blocks, strict=True)]
    across = _across(len(sheet.tiles), tile_width, max(heights))
    rows = [max(heights[at : at + across]) for at in range(0, len(heights), across)]
    width = max(_LEAST_WIDTH_PX, 2 * MARGIN_PX + across * (tile_width + GAP_PX) - GAP_PX)
    legend = _legend(sheet, width - 2 * MARGIN_PX)
    top = MARGIN_PX + TITLE.line_px + (legend[-1][0].line + 1) * PLAIN.line_px + GAP_PX if legend else 0
    top = top or MARGIN_PX + TITLE.line_px + GAP_PX // 2
    height = top + sum(rows) + GAP_PX * (len(rows) - 1) + MARGIN_PX
    if width * height > _MOST_PIXELS:
        raise InvalidRequest(
            f"a sheet of {width}x{height} px is too large for a PNG; show fewer samples with -n, or use .html"
        )
    canvas = np.full((height, width, 3), PAPER, np.uint8)
    title = fitted(ascii_text(sheet.title), width - 2 * MARGIN_PX, TITLE.width)
    put(canvas, title, (MARGIN_PX, MARGIN_PX + TITLE.line_px * 2 // 3), font=TITLE, colour=INK)
    _draw_legend(canvas, legend)
    for number, tile in enumerate(sheet.tiles):
        row, column = divmod(number, across)
        left = MARGIN_PX + column * (tile_width + GAP_PX)
        _draw_tile(canvas, (left, top + sum(rows[:row]) + GAP_PX * row), tile, sheet, blocks[number])
    done, data = cv2.imencode(".png", cv2.cvtColor(canvas, cv2.COLOR_RGB2BGR), _PNG)
    if not done:
        raise InvalidRequest(f"OpenCV cannot encode a PNG of {width}x{height} px; use .html")
    return data.tobytes()


def _across(count: int, width: int, height: int) -> int:
    """How many tiles stand side by side: a sheet of about 3:2, with few places left empty."""

    def badness(across: int) -> float:
        rows = -(-count // across)
        ratio = (across * (width + GAP_PX)) / (rows * (height + GAP_PX))
        return abs(math.log(ratio / _WANTED_RATIO)) + (rows * across - count) / count

    most = max(1, (_MOST_WIDTH_PX - 2 * MARGIN_PX + GAP_PX) // (width + GAP_PX))
    return min(range(1, min(most, count) + 1), key=badness)


def _height(sheet: Sheet, tile: Tile, items: list[_TextPiece], width: int) -> int:
    pictures = sheet.box[0] + _FOOT_PX if sheet.columns else 0
    lines = items[-1].line + 1 if items else 0
    return pictures + len(_key_lines(tile, width)) * BOLD.line_px + lines * PLAIN.line_px


def _key_lines(tile: Tile, width: int) -> list[str]:
    return lines_of(ascii_text(tile.key), width, BOLD.width, most=_KEY_LINES)


def _items(tile: Tile, width: int) -> list[_TextPiece]:
    """The values of a tile, name and value beside each other, as many on a line as there is room for."""
    pieces: list[_TextPiece] = []
    x = line = 0
    for name, value in tile.items:
        label = fitted(ascii_text(name), width // 2, PLAIN.width) + " "
        start = PLAIN.width(label + ".") - PLAIN.width(".") + 2
        text = fitted(ascii_text(value), width - start, PLAIN.width)
        needed = start + PLAIN.width(text)
        if x and x + needed > width:
            x, line = 0, line + 1
        if line == _MOST_ITEM_LINES:
            break
        pieces += [_TextPiece(label, x, line, MUTED), _TextPiece(text, x + start, line, INK)]
        x += needed + _ITEM_GAP_PX
    return pieces


def _draw_tile(canvas: Pixels, at: tuple[int, int], tile: Tile, sheet: Sheet, items: list[_TextPiece]) -> None:
    left, y = at
    for number, panel in enumerate(tile.panels):
        _draw_panel(canvas, (left + number * (sheet.box[1] + _SEAM_PX), y), panel, sheet.box)
    y += sheet.box[0] + _FOOT_PX if tile.panels else 0
    width = max(sheet.box[1], sheet.columns * sheet.box[1] + (sheet.columns - 1) * _SEAM_PX)
    for text in _key_lines(tile, width):
        put(canvas, text, (left, y + _drop(BOLD)), font=BOLD, colour=INK)
        y += BOLD.line_px
    for piece in items:
        at = (left + piece.x, y + piece.line * PLAIN.line_px + _drop(PLAIN))
        put(canvas, piece.text, at, font=PLAIN, colour=piece.colour)


def _drop(font: Font) -> int:
    """From the top of a line to its baseline, in px."""
    return font.line_px * 7 // 10


def _draw_panel(canvas: Pixels, at: tuple[int, int], panel: Panel, box: tuple[int, int]) -> None:
    left, top = at
    canvas[top : top + box[0], left : left + box[1]] = GROUND
    height, width = panel.pixels.shape[:2]
    y, x = top + (box[0] - height) // 2, left + (box[1] - width) // 2
    canvas[y : y + height, x : x + width] = panel.pixels
    base = top + box[0] + _drop(PLAIN) + 2
    size = f"{panel.size[1]}x{panel.size[0]}"
    room = box[1] - _draw_scale(canvas, (left + box[1], base), panel, box[1])
    text = f"{panel.name} {size}" if panel.scale is None else panel.name
    put(canvas, fitted(text, room, PLAIN.width), (left, base), font=PLAIN, colour=MUTED)


def _draw_scale(canvas: Pixels, at: tuple[int, int], panel: Panel, width: int) -> int:
    """The scale of a depth, its right end at `at`; returns the px that it takes."""
    right, base = at
    if panel.scale is None:
        return 0
    if panel.scale.low is None or panel.scale.high is None:
        text = "no valid pixel"
        put(canvas, text, (right - PLAIN.width(text), base), font=PLAIN, colour=INK)
        return PLAIN.width(text) + _ITEM_GAP_PX
    low, high = range_texts(panel.scale.low, panel.scale.high, panel.unit)
    bar = width // 4
    x = right - PLAIN.width(high)
    put(canvas, high, (x, base), font=PLAIN, colour=INK)
    x -= bar + 5
    colours = viridis()[np.arange(bar) * 255 // max(bar - 1, 1)]
    canvas[base - _BAR_PX : base, x : x + bar] = colours
    x -= PLAIN.width(low) + 5
    put(canvas, low, (x, base), font=PLAIN, colour=INK)
    return right - x + _ITEM_GAP_PX


def _legend(sheet: Sheet, width: int) -> list[tuple[_TextPiece, Mark | None]]:
    placed: list[tuple[_TextPiece, Mark | None]] = []
    x = line = 0
    for mark in (*sheet.marks, *((sheet.note,) if sheet.note else ())):
        start = _SWATCH_PX + 6 if isinstance(mark, Mark) and mark.form else 0
        text = fitted(ascii_text(mark.text if isinstance(mark, Mark) else mark), width - start, PLAIN.width)
        needed = start + PLAIN.width(text)
        if x and x + needed > width:
            x, line = 0, line + 1
        placed.append((_TextPiece(text, x + start, line, MUTED), mark if start and isinstance(mark, Mark) else None))
        x += needed + 2 * _ITEM_GAP_PX
    return placed


def _draw_legend(canvas: Pixels, legend: list[tuple[_TextPiece, Mark | None]]) -> None:
    for piece, mark in legend:
        x, base = MARGIN_PX + piece.x, MARGIN_PX + TITLE.line_px + piece.line * PLAIN.line_px + _drop(PLAIN)
        put(canvas, piece.text, (x, base), font=PLAIN, colour=piece.colour)
        if mark is not None:
            _draw_swatch(canvas[base - 9 : base + 1, x - _SWATCH_PX - 6 : x - 6], mark)


def _draw_swatch(place: Pixels, mark: Mark) -> None:
    if mark.form == "line":
        middle = len(place) // 2
        place[middle : middle + mark.thickness] = mark.colour
    else:
        place[:] = hatch(*place.shape[:2]) if mark.form == "hatch" else mark.colour
