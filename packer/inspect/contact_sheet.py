"""Contact sheet: shows chosen samples as tiles below a title and a legend. Rows and stacks contain texts and images.

The legend explains each color. A tile contains the images of a sample side by side, the key, and the other values. The
caption of an image is its field and its size, or the scale of a depth. png_sheet.py and html_sheet.py draw the layout.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from packer.copies.remote_pack import read_once
from packer.errors import InvalidRequest
from packer.files.terminal_output import shortened
from packer.inspect.palette import GROUND, PAPER, Pixels, viridis
from packer.inspect.tile import Panel, Tile, Tiler
from packer.inspect.value_drawing import Mark, Scale, hatch
from packer.pack.reader import Pack
from packer.stores.url import URLPath
from packer.system.parallel import ordered_map

# ---- samples


@dataclass(frozen=True)
class SheetRequest:
    """Options of a sheet.

    Attributes:
        count: Number of samples, spread evenly over the pack or, with a seed, drawn at random.
        keys: Keys of the samples to show, used instead of `count`.
        fields: Names of the fields to show. None for all fields that a sheet can show.
        seed: Seed to draw samples at random. None for evenly spread samples.
        width: Width of the box of one image, in px.
        most: Largest number of shapes to draw per field and sample, 0 for all.
        zoom: True shows only the part of an image that contains the shapes. False shows all of it.
    """

    count: int = 24
    keys: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = None
    seed: int | None = None
    width: int = 240
    most: int = 12
    zoom: bool = False


class Sheet(NamedTuple):
    """A sheet: its tiles, its legend `marks`, the `box` (height, width) in px of an image, and the images per tile."""

    title: str
    note: str
    tiles: tuple[Tile, ...]
    marks: tuple[Mark, ...]
    box: tuple[int, int]
    columns: int


_NOTE = "depth colors: 1st to 99th percentile of each image"
_MOST_MARKS = 12
_MARK_ORDER = ("line", "fill", "hatch", "")


def choose(pack: Pack, *, count: int, keys: Sequence[str] = (), seed: int | None = None) -> list[int]:
    """Return the indices of the samples to show.

    Args:
        count: Number of samples. The rows are divided into `count` equal ranges, and each range gives one sample.
        keys: Keys of the samples to show, used instead of `count`.
        seed: Seed to draw a random sample of each range. None for the first sample of each range.

    Raises:
        UnknownKey: A key is not in the pack.
        InvalidRequest: The pack has no sample.
    """
    if keys:
        return [pack.index.index_of(key) for key in keys]
    if not len(pack):
        raise InvalidRequest(f"{pack.folder}: the pack has no sample to show; packer info lists what was skipped")
    count = min(count, len(pack))
    starts = [number * len(pack) // count for number in range(count + 1)]
    if seed is None:
        return starts[:-1]
    random = np.random.default_rng(seed)
    return [int(random.integers(low, high)) for low, high in zip(starts, starts[1:], strict=False)]


def make_sheet(pack: Path, request: SheetRequest, *, scratch: Path | None = None, threads: int = 1) -> Sheet:
    """Return the sheet of a pack in a folder or at a URL. From a URL, only parts with shown samples are read.

    `scratch` is that of packer.copies.remote_pack. Raises InvalidRequest, UnknownKey, CorruptPack, StoreError.
    """
    name = pack.name if isinstance(pack, URLPath) else pack.absolute().name
    with read_once(pack, scratch=scratch, in_order=False) as opened:
        return sheet_of(opened, name, request, threads=threads)


def sheet_of(pack: Pack, name: str, request: SheetRequest, *, threads: int = 1) -> Sheet:
    """Return the sheet of an open pack. The title contains `name`. Raises InvalidRequest, UnknownKey, CorruptPack."""
    tiler = Tiler(pack, request.fields, most=request.most, is_zoomed=request.zoom)
    indices = choose(pack, count=request.count, keys=request.keys, seed=request.seed)
    box = tiler.box(indices, request.width)
    tiles = tuple(ordered_map(lambda index: tiler.tile(index, box), indices, threads=threads))
    title = (
        f"{name}: {len(tiles)} of {len(pack)} samples{', close-ups' if request.zoom else ''}, "
        f"format {pack.manifest.format}"
    )
    marks = dict.fromkeys(mark for tile in tiles for mark in tile.marks)
    ordered = sorted(marks, key=lambda mark: _MARK_ORDER.index(mark.form))
    more = [Mark(f"and {len(ordered) - _MOST_MARKS} more")] if len(ordered) > _MOST_MARKS else []
    has_depth = any(panel.scale is not None for tile in tiles for panel in tile.panels)
    note = _NOTE if has_depth else ""
    return Sheet(title, note, tiles, (*ordered[:_MOST_MARKS], *more), box, len(tiler.columns))


# ---- layout

Style = Literal["title", "key", "label", "value"]

_SEAM_PX = 6  # between the images of a tile
_ITEM_GAP_PX = 12
_VALUE_GAP_PX = 4  # between a name and its value
_SWATCH = (10, 18)  # height, width
_RAMP_PX = 7  # height of the colors of a scale
_RAMP_SHARE = 4  # of the width of an image


@dataclass(frozen=True)
class Text:
    """A text of printable characters. It may take several lines."""

    text: str
    style: Style


@dataclass(frozen=True)
class Image:
    """An image uint8 (H, W, 3), RGB, in its own size. If `is_photo` is True, lossy compression is allowed."""

    pixels: Pixels
    is_photo: bool = False


@dataclass(frozen=True)
class Row:
    """Items side by side, on as many lines as they need. With `spread`, the last item of a line is at its right end."""

    items: "tuple[Item, ...]"
    gap_px: int
    spread: bool = False


@dataclass(frozen=True)
class Stack:
    """Items below each other."""

    items: "tuple[Item, ...]"
    width_px: int


Item = Text | Image | Row | Stack


class Layout(NamedTuple):
    """The title, legend and tiles of a sheet, and the width of a tile in px."""

    title: Text
    legend: Row
    tiles: tuple[Stack, ...]
    tile_width_px: int


def layout(sheet: Sheet) -> Layout:
    """Arrange the title, the legend and the tiles of a sheet, and return this layout."""
    width = max(1, sheet.columns) * (sheet.box[1] + _SEAM_PX) - _SEAM_PX
    marks = (*sheet.marks, *([Mark(sheet.note)] if sheet.note else []))
    legend = Row(tuple(map(_mark, marks)), 2 * _ITEM_GAP_PX)
    tiles = tuple(Stack(tuple(_tile(tile, sheet)), width) for tile in sheet.tiles)
    return Layout(_text(sheet.title, "title"), legend, tiles, width)


def _text(text: str, style: Style) -> Text:
    return Text(shortened(text), style)


def _mark(mark: Mark) -> Item:
    text = _text(mark.text, "label")
    if not mark.form:
        return text
    height, width = _SWATCH
    swatch = np.full((height, width, 3), PAPER if mark.form == "line" else mark.color, np.uint8)
    if mark.form == "line":
        swatch[height // 2 : height // 2 + mark.thickness] = mark.color
    return Row((Image(hatch(height, width) if mark.form == "hatch" else swatch), text), _SEAM_PX)


def _tile(tile: Tile, sheet: Sheet) -> Iterator[Item]:
    if tile.panels:
        yield Row(tuple(_panel(panel, sheet.box) for panel in tile.panels), _SEAM_PX)
    yield _text(tile.key, "key")
    items = (Row((_text(name, "label"), _text(value, "value")), _VALUE_GAP_PX) for name, value in tile.items)
    yield Row(tuple(items), _ITEM_GAP_PX)


def _panel(panel: Panel, box: tuple[int, int]) -> Stack:
    height, width = panel.pixels.shape[:2]
    pixels = np.full((*box, 3), GROUND, np.uint8)
    y, x = (box[0] - height) // 2, (box[1] - width) // 2
    pixels[y : y + height, x : x + width] = panel.pixels
    caption: tuple[Item, ...] = (_text(f"{panel.name} {panel.size[1]}x{panel.size[0]}", "label"),)
    if panel.scale is not None:
        caption = _text(panel.name, "label"), _scale(panel.scale, box[1] // _RAMP_SHARE)
    row = Row(caption, _ITEM_GAP_PX, spread=True)
    return Stack((Image(pixels, is_photo=panel.scale is None), row), box[1])


def _scale(scale: Scale, width: int) -> Item:
    if scale.low is None or scale.high is None:
        return Text("no valid pixel", "value")
    low, high = range_texts(scale.low, scale.high, scale.unit)
    ramp = viridis()[np.arange(width) * 255 // max(width - 1, 1)]
    image = Image(np.broadcast_to(ramp, (_RAMP_PX, width, 3)))
    return Row((Text(low, "value"), image, Text(high, "value")), _SEAM_PX)


def range_texts(low: float, high: float, unit: str) -> tuple[str, str]:
    """Return `low` and `high` as texts, with enough digits to distinguish them. The unit follows `high`."""
    if not unit and low == round(low) and high == round(high):
        return f"{low:.0f}", f"{high:.0f}"
    places = min(6, max(2, math.ceil(-math.log10(high - low)))) if high > low else 2
    return f"{low:.{places}f}", f"{high:.{places}f} {unit}".rstrip()
