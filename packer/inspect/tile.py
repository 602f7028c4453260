"""Tile: the images of one sample, on which its labels are drawn, its key, and its other values as text.

With a zoom, images show only the part that contains the points and boxes of the sample.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.codecs.base import StoredImage
from packer.errors import InvalidRequest
from packer.geometry import View, move_values, resized_crop
from packer.geometry.warp.depth_and_mask import is_valid
from packer.inspect.palette import GROUND, Pixels
from packer.inspect.value_drawing import (
    Form,
    Mark,
    Scale,
    ShapeCounts,
    colored_depth,
    colored_mask,
    draw_shapes,
    fit,
    mask_marks,
    overlaid,
    placing,
    scale_of,
    shape_marks,
)
from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import PIXEL_KINDS, Field, Schema

_MARGIN = 0.3  # around the labels of a zoom, of their extent
_LEAST_PX = 24


class ZoomBox(NamedTuple):
    """A part of an image, as fractions of height and width: 0 <= top < bottom <= 1 and 0 <= left < right <= 1."""

    top: float
    left: float
    bottom: float
    right: float

    def slices(self, height: int, width: int) -> tuple[slice, slice]:
        """Return (rows, columns) of the part in an image of `height` x `width` px, at least one px each."""
        return _pixels(self.top, self.bottom, height), _pixels(self.left, self.right, width)


def zoom_box(shapes: Sequence[npt.NDArray[Any]], size: tuple[int, int], box: tuple[int, int]) -> ZoomBox | None:
    """Return the part of an image that contains all shapes and a margin. None if no corner is inside the image.

    Args:
        shapes: Points (..., 2), x and y in px of the image. A box is two corners.
        size: (height, width) of the image.
        box: (height, width) with the aspect ratio for the part. At the edge of the image, the part may have another
            ratio.
    """
    points = np.concatenate([shape.reshape(-1, 2).astype(np.float64) for shape in shapes] or [np.empty((0, 2))])
    whole = np.asarray(size[::-1], np.float64)
    with np.errstate(invalid="ignore"):
        points = points[((points >= 0) & (points < whole)).all(axis=1)]
    if not len(points):
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    wide, tall = np.maximum((high - low) * (1 + 2 * _MARGIN), _LEAST_PX)
    ratio = box[0] / box[1]
    lengths = np.minimum((max(wide, tall / ratio), max(tall, wide * ratio)), whole)
    start = np.clip((low + high - lengths) / 2, 0, whole - lengths)
    (left, top), (right, bottom) = (start / whole).tolist(), ((start + lengths) / whole).tolist()
    return ZoomBox(top, left, bottom, right)


def _pixels(start: float, end: float, length: int) -> slice:
    first = min(round(start * length), length - 1)
    return slice(first, max(first + 1, round(end * length)))


# ---- tiles

_MOST_IMAGES = 8  # of one sample side by side
_MOST_ITEMS = 12
_SHAPE_RATIOS = (0.5, 1.5)  # height to width of the box of an image
_SHAPES = ("points", "boxes")


class Panel(NamedTuple):
    """One image of a tile.

    Attributes:
        name: Name of the field.
        pixels: uint8 (h, w, 3), RGB, in the largest size that fits into the box of an image.
        size: (height, width) of the stored image in px.
        scale: Scale of the colors of a depth, None for other images.
    """

    name: str
    pixels: Pixels
    size: tuple[int, int]
    scale: Scale | None = None


class Tile(NamedTuple):
    """One sample: its images `panels`, `items` (name, value) as text that is not escaped, and its legend `marks`."""

    key: str
    panels: tuple[Panel, ...]
    items: tuple[tuple[str, str], ...]
    marks: tuple[Mark, ...]


class _Sample(NamedTuple):
    """A decoded sample. Each attribute is a dict by field.

    Attributes:
        values: Decoded values. With a zoom, images and shapes are cropped.
        stored: Shapes and headers of the encoded images.
        sizes: (height, width) of the stored images.
        views: View that fits an image into its box. An image without pixels does not have one.
        missing: Share of invalid pixels in each depth, 0 to 1.
    """

    values: dict[str, Any]
    stored: dict[str, StoredImage]
    sizes: dict[str, tuple[int, int]]
    views: dict[str, View]
    missing: dict[str, float]


class Tiler:
    """Makes tiles of the samples of a pack. Thread-safe."""

    def __init__(
        self, pack: Pack, fields: Sequence[str] | None = None, *, most: int = 12, is_zoomed: bool = False
    ) -> None:
        """Choose the fields of an open pack.

        Args:
            pack: The pack.
            fields: Names of the fields to show. None for all that a tile can show.
            most: Largest number of shapes to draw per field and sample, 0 for all.
            is_zoomed: True shows only the part of an image that contains the shapes. False shows all of it.

        Raises:
            UnknownKey: The pack does not have a field.
            InvalidRequest: A sample has more than 8 images.
        """
        names = [field.name for field in pack.schema if _is_shown(field)] if fields is None else list(fields)
        starts = [field.name for name in names if name in pack.schema and (field := pack.schema.starts_of(name))]
        self.sample_decoder = SampleDecoder(pack, list(dict.fromkeys([*names, *starts])))
        self._listed = set(names)  # fields of starts are decoded, not listed
        self._most = most
        self._is_zoomed = is_zoomed
        self._images = images = self.sample_decoder.images
        if len(images) > _MOST_IMAGES:
            raise InvalidRequest(
                f"{pack.folder}: {len(images)} images in each sample, a sheet shows {_MOST_IMAGES}; "
                "choose some with --fields"
            )
        kinds = {name: pack.schema[name].kind for name in images}
        photos = [name for name in images if kinds[name] == "image"]
        masks = [name for name in images if kinds[name] == "mask"]
        self._main = next(iter(photos or images), "")
        self._over = masks[0] if photos and masks else ""  # the mask that is drawn over the main image
        self.columns = [name for name in images if name != self._over]
        self._forms = shape_forms(self.sample_decoder.schema)

    def box(self, indices: Sequence[int], width: int) -> tuple[int, int]:
        """Return the (height, width) in px of each image. The aspect ratio is the median of the main images."""
        if not self._main:
            return 0, width
        ratios = []
        for index in indices:
            with self.sample_decoder.pack.record(index, [self._main]) as record:
                height, wide, *_ = self.sample_decoder.stored_image(index, self._main, record[self._main]).shape
            ratios.append(height / max(wide, 1))
        low, high = _SHAPE_RATIOS
        return round(width * min(max(median(ratios), low), high)), width

    def tile(self, index: int, box: tuple[int, int]) -> Tile:
        """Return the tile of one sample. Its images fit into `box` (height, width). Raises CorruptRecord."""
        sample = self._sample(index, box)
        panels = {name: self._panel(self.sample_decoder.schema[name], sample) for name in self.columns}
        mask_entries = self._draw_mask(panels, sample)
        counts = self._draw_labels(panels, sample)
        shape_entries = [
            mark
            for name, (form, rank) in self._forms.items()
            if name in counts and counts[name].drawn
            for mark in shape_marks(name, form, rank)
        ]
        missing = [(f"{name} missing", share_text(share)) for name, share in sample.missing.items() if share]
        return Tile(
            self.sample_decoder.pack.index.key(index),
            tuple(panels.values()),
            (*self._items(sample, counts), *missing),
            (*shape_entries, *mask_entries, *([Mark("no depth", "hatch")] if missing else [])),
        )

    def _sample(self, index: int, box: tuple[int, int]) -> _Sample:
        decoder = self.sample_decoder
        with decoder.pack.record(index, decoder.stored) as read:
            record = decoder.completed(index, read)
            stored = {name: decoder.stored_image(index, name, record[name]) for name in self._images}
            values = {
                field.name: decoder.decode(index, field, record[field.name], stored=stored.get(field.name))
                if field.name in record
                else decoder.indexed(index, field)
                for field in decoder.schema
            }
        sizes = {name: _size(values[name]) for name in self._images}
        depths = [field for field in decoder.schema if field.kind == "depth" and values[field.name].size]
        missing = {field.name: 1 - float(is_valid(values[field.name], field.invalid).mean()) for field in depths}
        if self._is_zoomed and sizes:
            values |= self._zoomed(values, sizes, box)
        views = {name: placing(*_size(values[name]), box) for name in self._images if values[name].size}
        return _Sample(values, stored, sizes, views, missing)

    def _zoomed(
        self, values: dict[str, Any], sizes: dict[str, tuple[int, int]], box: tuple[int, int]
    ) -> dict[str, Any]:
        """Return images and shapes, cropped to the part that contains all shapes, by field. Empty without shapes."""
        first = sizes[self._images[0]]
        part = zoom_box([values[name] for name in self._forms], first, box)
        if part is None:
            return {}
        cut = {name: values[name][part.slices(*size)] for name, size in sizes.items() if values[name].size}
        rows, columns = part.slices(*first)
        for name in self._forms:
            offset = [columns.start, rows.start] * (2 if self.sample_decoder.schema[name].kind == "boxes" else 1)
            cut[name] = values[name] - np.asarray(offset, np.float32)
        return cut

    def _panel(self, field: Field, sample: _Sample) -> Panel:
        name, value = field.name, sample.values[field.name]
        if name not in sample.views:  # an array without pixels
            return Panel(name, np.full((1, 1, 3), GROUND, np.uint8), sample.sizes[name])
        fitted = fit(value, sample.views[name], field.kind, invalid=field.invalid)
        if field.kind != "depth":
            return Panel(name, fitted if field.kind == "image" else colored_mask(fitted), sample.sizes[name])
        header = sample.stored[name].header
        dtype = field.dtype or (header.dtype if header is not None else "float32")
        scale = scale_of(value, field.invalid, "m" if dtype.startswith("float") else "")
        return Panel(name, colored_depth(fitted, scale, invalid=field.invalid), sample.sizes[name], scale)

    def _draw_mask(self, panels: dict[str, Panel], sample: _Sample) -> list[Mark]:
        masks = {name: sample.values[name] for name in sample.views if self.sample_decoder.schema[name].kind == "mask"}
        if self._over in masks and self._main in sample.views:
            mask, main = masks[self._over], panels[self._main]
            view = resized_crop(0, 0, *_size(mask), size=sample.views[self._main].size)
            panels[self._main] = main._replace(pixels=overlaid(main.pixels, fit(mask, view, "mask")))
        return [mark for name, mask in masks.items() for mark in mask_marks(name, mask)]

    def _draw_labels(self, panels: dict[str, Panel], sample: _Sample) -> dict[str, ShapeCounts]:
        """Draw the shapes of a sample into its main image. Shapes are in px of the first image of the sample."""
        if self._main not in sample.views:
            return {}
        first, main = (_size(sample.values[name]) for name in (self._images[0], self._main))
        view = sample.views[self._main]
        if first != main and min(first):
            view = resized_crop(0, 0, *first, size=main).then(view)
        canvas = np.ascontiguousarray(panels[self._main].pixels)
        panels[self._main] = panels[self._main]._replace(pixels=canvas)
        counts: dict[str, ShapeCounts] = {}
        for name, (form, rank) in reversed(self._forms.items()):  # the first field on top
            schema = self.sample_decoder.schema
            with np.errstate(invalid="ignore", over="ignore"):  # `draw_shapes` counts values that are not finite
                moved = move_values(schema[name], sample.values[name], view.array)
                corners = shape_corners(schema, name, {**sample.values, name: moved})
            shapes = [each - 0.5 for each in corners]  # from edges to centers of px
            counts[name] = draw_shapes(canvas, shapes, form=form, rank=rank, most=self._most)
        return counts

    def _items(self, sample: _Sample, counts: dict[str, ShapeCounts]) -> list[tuple[str, str]]:
        fields = [
            field
            for field in self.sample_decoder.schema
            if field.name != "key" and field.kind not in PIXEL_KINDS and field.name in self._listed
        ]
        items = [
            (field.name, value_text(field, sample.values[field.name], counts.get(field.name)))
            for field in fields[:_MOST_ITEMS]
        ]
        return items if len(fields) <= _MOST_ITEMS else [*items, ("and", f"{len(fields) - _MOST_ITEMS} more fields")]


def _is_shown(field: Field) -> bool:
    if field.hidden:
        return False
    is_scalar = field.kind == "number" and field.is_column and not field.shape
    return is_scalar or _names_rows(field) or field.kind in (*PIXEL_KINDS, *_SHAPES, "text")


def _names_rows(field: Field) -> bool:
    """Return True if a value of the field contains a class for each row of another field, such as for each box."""
    return field.kind == "number" and field.of is not None and field.classes is not None and field.has_rows


def shape_forms(schema: Schema) -> dict[str, tuple[Form, int]]:
    """Return field -> (form, number of previous fields of this form), for all fields of points and boxes."""
    forms: dict[str, tuple[Form, int]] = {}
    for field in schema:
        if field.kind in _SHAPES:
            form = _form(field, has_starts=schema.starts_of(field.name) is not None)
            forms[field.name] = form, sum(other == form for other, _ in forms.values())
    return forms


def _form(field: Field, *, has_starts: bool) -> Form:
    if field.kind == "boxes":
        return "boxes"
    has_corners = field.shape is not None and field.shape[1:] == (4, 2)
    if has_starts or (has_corners and field.edges):
        return "outlines"
    return "grasps" if has_corners else "points"


def shape_corners(schema: Schema, name: str, values: Mapping[str, Any]) -> list[npt.NDArray[np.float64]]:
    """Return the corners (P, 2) of each shape of a field, in px. (0, 0) is the corner of the first pixel.

    `values` contains the decoded values of a sample, by field.
    """
    field, starts = schema[name], schema.starts_of(name)
    form = _form(field, has_starts=starts is not None)
    points = np.asarray(values[name], np.float64) + (0.0 if form == "boxes" or field.edges else 0.5)
    if form == "boxes":
        points = points[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    elif starts is not None:
        return [run.reshape(-1, 2) for run in np.split(points, values[starts.name])[1:]]
    elif form == "points":
        points = points.reshape(-1, 1, 2)
    return list(points)


def _size(value: npt.NDArray[Any]) -> tuple[int, int]:
    return int(value.shape[0]), int(value.shape[1])


# ---- values as text, not escaped


def value_text(field: Field, value: Any, counts: ShapeCounts | None = None) -> str:
    """Return a text for a value that is not an image, such as a class name, or the number of shapes.

    `counts` contains the number of all shapes and of drawn shapes. For None, the text contains the length of `value`.
    """
    if field.kind in _SHAPES:
        return str(len(value)) if counts is None else _count_text(counts)
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    if isinstance(value, np.ndarray) and _names_rows(field):
        return _class_counts(field, value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {'x'.join(map(str, value.shape))}"
    if field.classes is not None and isinstance(value, int):
        return _class_name(field, value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _class_name(field: Field, value: int) -> str:
    classes = field.classes or ()
    return classes[value] if 0 <= value < len(classes) else f"{value}, not a class"


def _class_counts(field: Field, values: npt.NDArray[Any]) -> str:
    """Return the classes in `values`, each with its number of rows if it has several: `dog 2, cat`."""
    found, counts = np.unique(values, return_counts=True)
    pairs = zip(found.tolist(), counts.tolist(), strict=True)
    texts = [_class_name(field, value) + (f" {count}" if count > 1 else "") for value, count in pairs]
    return ", ".join([*texts[:_MOST_ITEMS], *["..."] * (len(texts) > _MOST_ITEMS)]) or "none"


def _count_text(counts: ShapeCounts) -> str:
    shown = str(counts.total) if counts.drawn == counts.total else f"{counts.drawn} of {counts.total}"
    return f"{shown}, {counts.impossible} not drawable" if counts.impossible else shown


def share_text(share: float) -> str:
    """Return a share (0 to 1) as a percentage. A small share above 0 is shown as <0.1%."""
    return f"{share:.1%}" if share >= 0.0005 or not share else "<0.1%"
