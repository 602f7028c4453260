"""Tile: one sample as a sheet shows it: pictures with the labels drawn in, the key, and what else is known of it.

A zoom shows the part of a sample that its grasps and boxes are in, instead of the whole.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.codecs.base import StoredPicture
from packer.errors import InvalidRequest
from packer.geometry import View, move_values, resized_crop
from packer.geometry.warp.depth import is_valid
from packer.inspect.contact_sheet.legend import NO_DEPTH, Mark, mask_marks, shape_marks
from packer.inspect.contact_sheet.picture import Scale, alone, coloured, fit, overlaid, placing, scale_of
from packer.inspect.contact_sheet.shape_overlay import ShapeCounts, draw, draw_outlines, is_grasp
from packer.inspect.palette import GROUND
from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import PIXEL_KINDS, Field

_AROUND = 0.3  # of the labels' extent, on every side
_LEAST_PX = 24


class ZoomBox(NamedTuple):
    """A part of a picture, as fractions of its height and width: 0 <= top < bottom <= 1, left and right alike."""

    top: float
    left: float
    bottom: float
    right: float

    def cut(self, picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The whole px of a picture (H, W, ...) that lie in it, at least one; a view."""
        (top, bottom), (left, right) = self._rows(picture.shape[0]), self._columns(picture.shape[1])
        return picture[top:bottom, left:right]

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """(x, y) of the first px of the cut of a picture of that size."""
        return self._columns(width)[0], self._rows(height)[0]

    def _rows(self, height: int) -> tuple[int, int]:
        return _whole(self.top, self.bottom, height)

    def _columns(self, width: int) -> tuple[int, int]:
        return _whole(self.left, self.right, width)


def around(shapes: Sequence[npt.NDArray[Any]], size: tuple[int, int], box: tuple[int, int]) -> ZoomBox | None:
    """The part that all shapes are in, with something around it, of the shape of `box` (height, width) if possible.

    shapes: points (..., 2) as x, y in px of a picture of that (height, width); boxes as two corners. None: no shape
    has a finite corner inside the picture.
    """
    points = np.concatenate([shape.reshape(-1, 2).astype(np.float64) for shape in shapes] or [np.empty((0, 2))])
    height, width = size
    with np.errstate(invalid="ignore"):
        inside = ((points >= 0) & (points < (width, height))).all(axis=1)
    points = points[inside]
    if not len(points) or not height * width:
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    wide, tall = np.maximum((high - low) * (1 + 2 * _AROUND), _LEAST_PX)
    ratio = box[0] / box[1]
    wide, tall = max(wide, tall / ratio), max(tall, wide * ratio)
    center = (low + high) / 2
    left, right = _span(center[0], wide, width)
    top, bottom = _span(center[1], tall, height)
    return ZoomBox(top / height, left / width, bottom / height, right / width)


def _span(center: float, length: float, whole: int) -> tuple[float, float]:
    """A stretch of that length around the centre, moved inside 0 ... whole."""
    length = min(length, whole)
    start = min(max(center - length / 2, 0.0), whole - length)
    return start, start + length


def _whole(start: float, end: float, length: int) -> tuple[int, int]:
    first = min(round(start * length), length - 1)
    return first, max(first + 1, round(end * length))


# ---- tiles

_MOST_PICTURES = 8  # of one sample side by side
_MOST_ITEMS = 12
_SHAPE_RATIOS = (0.5, 1.5)  # height to width of a place on the sheet
_SHAPES = ("points", "boxes")

Pixels = npt.NDArray[np.uint8]


class Panel(NamedTuple):
    """One picture: its field, uint8 (h, w, 3) RGB that fits the place, stored (height, width), scale of a depth."""

    name: str
    pixels: Pixels
    size: tuple[int, int]
    scale: Scale | None = None
    unit: str = ""


class Tile(NamedTuple):
    """One sample. items: (name, value) as text, as the pack has it: nothing is escaped yet."""

    key: str
    panels: tuple[Panel, ...]
    items: tuple[tuple[str, str], ...]
    marks: tuple[Mark, ...]


class _Sample(NamedTuple):
    """What a tile is made of. sizes: stored (height, width) of the pictures; views: into their places.

    missing: share of each depth, as stored, that has no measurement.
    """

    values: dict[str, Any]
    stored: dict[str, StoredPicture]
    sizes: dict[str, tuple[int, int]]
    views: dict[str, View]
    missing: dict[str, float]


class Tiler:
    """Makes tiles of the samples of a pack; may be used by many threads."""

    def __init__(
        self, pack: Pack, fields: Sequence[str] | None = None, *, most: int = 12, is_zoomed: bool = False
    ) -> None:
        """fields: None for all that a sheet can show. most: shapes drawn of one field and sample, 0 for all.

        is_zoomed: show of each sample the part that its labels are in. Raises UnknownKey, and InvalidRequest for more
        pictures than stand side by side.
        """
        names = [field.name for field in pack.schema if _is_shown(field)] if fields is None else list(fields)
        starts = [field.name for name in names if name in pack.schema and (field := pack.schema.starts_of(name))]
        self.sample_decoder = SampleDecoder(pack, list(dict.fromkeys([*names, *starts])))
        self._listed = set(names)  # those that only say where others start are drawn, and not listed
        self._most = most
        self._is_zoomed = is_zoomed
        pictures = self.sample_decoder.pictures
        if len(pictures) > _MOST_PICTURES:
            raise InvalidRequest(
                f"{pack.folder}: {len(pictures)} pictures in each sample, a sheet shows {_MOST_PICTURES}; "
                "choose some with --fields"
            )
        images = [name for name in pictures if pack.schema[name].kind == "image"]
        masks = [name for name in pictures if pack.schema[name].kind == "mask"]
        self._main = next(iter(images or pictures), "")
        self._over = masks[0] if images and masks else ""  # the mask that lies over the image
        self.columns = [name for name in pictures if name != self._over]

    def box(self, indices: Sequence[int], width: int) -> tuple[int, int]:
        """(height, width) of a picture's place, of the shape that the first pictures of these samples mostly have."""
        if not self._main:
            return 0, width
        ratios = []
        for index in indices:
            with self.sample_decoder.pack.record(index, [self._main]) as record:
                height, wide, *_ = self.sample_decoder.stored_picture(index, self._main, record[self._main]).shape
            ratios.append(height / max(wide, 1))
        low, high = _SHAPE_RATIOS
        return round(width * min(max(median(ratios), low), high)), width

    def tile(self, index: int, box: tuple[int, int]) -> Tile:
        """The tile of one sample, its pictures fitted into `box`; raises CorruptRecord."""
        sample = self._sample(index, box)
        panels = {name: self._panel(self.sample_decoder.schema[name], sample) for name in self.columns}
        marks = self._lay_mask(panels, sample)
        drawn = self._draw_shapes(panels, sample)
        shapes = [
            mark
            for name, (kind, rank) in self._ranks().items()
            if name in drawn and drawn[name].drawn
            for mark in shape_marks(name, kind, rank)
        ]
        missing = [(f"{name} missing", share_text(share)) for name, share in sample.missing.items() if share]
        marks = [*shapes, *marks, *([NO_DEPTH] if missing else [])]
        return Tile(
            self.sample_decoder.pack.index.key(index),
            tuple(panels.values()),
            (*self._items(sample, drawn), *missing),
            tuple(marks),
        )

    def _sample(self, index: int, box: tuple[int, int]) -> _Sample:
        sample_decoder = self.sample_decoder
        with sample_decoder.pack.record(index, sample_decoder.stored) as record:
            stored = {
                name: sample_decoder.stored_picture(index, name, record[name]) for name in sample_decoder.pictures
            }
            values = {
                field.name: sample_decoder.decode(index, field, record[field.name], stored=stored.get(field.name))
                if field.name in record
                else sample_decoder.indexed(index, field)
                for field in sample_decoder.schema
            }
        sizes = {name: _size(values[name]) for name in sample_decoder.pictures}
        depths = [field for field in sample_decoder.schema if field.kind == "depth" and values[field.name].size]
        missing = {field.name: 1 - float(is_valid(values[field.name], field.invalid).mean()) for field in depths}
        if self._is_zoomed and (part := self._part(values, sizes, box)) is not None:
            values = self._cut(values, sizes, part)
        views = {name: placing(*_size(values[name]), box) for name in sample_decoder.pictures if values[name].size}
        return _Sample(values, stored, sizes, views, missing)

    def _part(self, values: dict[str, Any], sizes: dict[str, tuple[int, int]], box: tuple[int, int]) -> ZoomBox | None:
        shapes = [values[field.name] for field in self.sample_decoder.schema if field.kind in _SHAPES]
        return around(shapes, sizes[self.sample_decoder.pictures[0]], box) if sizes else None

    def _cut(self, values: dict[str, Any], sizes: dict[str, tuple[int, int]], part: ZoomBox) -> dict[str, Any]:
        """The values of that part; points are measured in the first picture."""
        corner = part.corner(*sizes[self.sample_decoder.pictures[0]])
        cut = {name: part.cut(values[name]) for name in sizes if values[name].size}
        for field in self.sample_decoder.schema:
            if field.kind in _SHAPES:
                offset = np.asarray(corner * (2 if field.kind == "boxes" else 1), np.float32)
                cut[field.name] = values[field.name] - offset
        return {**values, **cut}

    def _panel(self, field: Field, sample: _Sample) -> Panel:
        name, value = field.name, sample.values[field.name]
        if name not in sample.views:  # a picture of no pixels, which only an array can be
            return Panel(name, np.full((1, 1, 3), GROUND, np.uint8), sample.sizes[name])
        fitted = fit(value, sample.views[name], field.kind, invalid=field.invalid)
        if field.kind != "depth":
            return Panel(name, fitted if field.kind == "image" else alone(fitted), sample.sizes[name])
        scale = scale_of(value, field.invalid)
        header = sample.stored[name].header
        dtype = field.dtype or (header.dtype if header is not None else "float32")
        pixels = coloured(fitted, scale, invalid=field.invalid)
        return Panel(name, pixels, sample.sizes[name], scale, "m" if dtype.startswith("float") else "")

    def _lay_mask(self, panels: dict[str, Panel], sample: _Sample) -> list[Mark]:
        masks = {name: sample.values[name] for name in sample.views if self.sample_decoder.schema[name].kind == "mask"}
        if self._over in masks and self._main in sample.views:
            mask, main = masks[self._over], panels[self._main]
            view = resized_crop(0, 0, *_size(mask), size=sample.views[self._main].size)
            panels[self._main] = main._replace(pixels=overlaid(main.pixels, fit(mask, view, "mask")))
        return [mark for name, mask in masks.items() for mark in mask_marks(name, mask)]

    def _ranks(self) -> dict[str, tuple[str, int]]:
        """Field -> grasps, boxes, outlines or points, and its place among those of its kind."""
        ranks: dict[str, tuple[str, int]] = {}
        for field in self.sample_decoder.schema:
            if field.kind in _SHAPES:
                kind = self._form(field)
                ranks[field.name] = kind, sum(other == kind for other, _ in ranks.values())
        return ranks

    def _form(self, field: Field) -> str:
        """What the values of a field of points or boxes are drawn as."""
        if field.kind == "points" and self.sample_decoder.schema.starts_of(field.name) is not None:
            return "outlines"
        if field.kind == "points" and is_grasp(field.shape):
            return "outlines" if field.edges else "grasps"
        return field.kind

    def _draw_shapes(self, panels: dict[str, Panel], sample: _Sample) -> dict[str, ShapeCounts]:
        """The shapes of a sample, measured in px of its first picture, drawn into its first image."""
        if self._main not in sample.views:
            return {}
        first, shown = (_size(sample.values[name]) for name in (self.sample_decoder.pictures[0], self._main))
        view = sample.views[self._main]
        if first != shown and min(first):
            view = resized_crop(0, 0, *first, size=shown).then(view)
        canvas = np.ascontiguousarray(panels[self._main].pixels)
        panels[self._main] = panels[self._main]._replace(pixels=canvas)
        drawn: dict[str, ShapeCounts] = {}
        for name, (kind, rank) in reversed(self._ranks().items()):  # the first field on top
            field = self.sample_decoder.schema[name]
            are_edges = kind == "boxes" or field.edges
            with np.errstate(invalid="ignore", over="ignore"):  # `draw` counts what is not finite
                shapes = move_values(field, sample.values[name], view.array) - (0.5 if are_edges else 0)  # to centres
            if kind == "outlines":
                outlines = self._outlines(field, shapes, sample)
                drawn[name] = draw_outlines(canvas, outlines, rank=rank, most=self._most)
                continue
            shapes = shapes.reshape(-1, 2) if kind == "points" else shapes
            drawn[name] = draw(canvas, shapes, kind=kind, rank=rank, most=self._most)
        return drawn

    def _outlines(self, field: Field, points: npt.NDArray[Any], sample: _Sample) -> list[npt.NDArray[Any]]:
        """The polygons of a field, each (P, 2)."""
        starts = self.sample_decoder.schema.starts_of(field.name)
        if starts is None:
            return list(points)
        return [run.reshape(-1, 2) for run in np.split(points, sample.values[starts.name])[1:]]

    def _items(self, sample: _Sample, drawn: dict[str, ShapeCounts]) -> list[tuple[str, str]]:
        fields = [
            field
            for field in self.sample_decoder.schema
            if field.name != "key" and field.kind not in PIXEL_KINDS and field.name in self._listed
        ]
        items = [
            (field.name, value_text(field, sample.values[field.name], drawn.get(field.name)))
            for field in fields[:_MOST_ITEMS]
        ]
        return items if len(fields) <= _MOST_ITEMS else [*items, ("and", f"{len(fields) - _MOST_ITEMS} more fields")]


def _is_shown(field: Field) -> bool:
    if field.hidden:
        return False
    scalar = field.kind == "number" and field.is_column and not field.shape
    scalar = scalar or _names_rows(field)
    return scalar or field.kind in (*PIXEL_KINDS, *_SHAPES, "text")


def _names_rows(field: Field) -> bool:
    """Whether values are the classes of rows: those of boxes."""
    return field.kind == "number" and field.of is not None and field.classes is not None and field.has_rows


def _size(value: npt.NDArray[Any]) -> tuple[int, int]:
    return int(value.shape[0]), int(value.shape[1])


# ---- values in a few words, as the pack has them: nothing is escaped here


def value_text(field: Field, value: Any, drawn: ShapeCounts | None = None) -> str:
    """A value that is no picture: the class instead of its number, how many shapes instead of the shapes."""
    if field.kind in ("points", "boxes"):
        return _count_text(len(value) if drawn is None else drawn.total, drawn)
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    if isinstance(value, np.ndarray) and _names_rows(field):
        return _class_counts(field, value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {'x'.join(map(str, value.shape))}"
    if field.classes is not None and isinstance(value, int):
        return field.classes[value] if 0 <= value < len(field.classes) else f"{value}, which is no class"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _class_counts(field: Field, values: npt.NDArray[Any]) -> str:
    """Which classes the rows have, and how many of each: `dog 2, cat`."""
    found, counts = np.unique(values, return_counts=True)
    classes = field.classes or ()
    texts = []
    for value, count in list(zip(found.tolist(), counts.tolist(), strict=True))[:_MOST_ITEMS]:
        name = classes[value] if 0 <= value < len(classes) else f"{value}, which is no class"
        texts.append(name if count == 1 else f"{name} {count}")
    return ", ".join([*texts, *["..."] * (len(found) > _MOST_ITEMS)]) or "none"


def _count_text(count: int, drawn: ShapeCounts | None) -> str:
    if drawn is None:
        return str(count)
    shown = str(count) if drawn.drawn == count else f"{drawn.drawn} of {count}"
    return f"{shown}, {drawn.impossible} not drawable" if drawn.impossible else shown


def share_text(share: float) -> str:
    """A share as a percentage; what is there is never rounded to nothing."""
    return f"{share:.1%}" if share >= 0.0005 or not share else "<0.1%"


def range_texts(low: float, high: float, unit: str) -> tuple[str, str]:
    """Both ends of a depth's scale, with as many digits as tell them apart."""
    if not unit and low == round(low) and high == round(high):
        return f"{low:.0f}", f"{high:.0f}"
    places = min(6, max(2, math.ceil(-math.log10(high - low)))) if high > low else 2
    return f"{low:.{places}f}", f"{high:.{places}f} {unit}".rstrip()
