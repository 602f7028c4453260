"""Item decoder: decodes the training items of grasp networks from a pack's records, one by one or as a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import torch

from packer.codecs.base import StoredImage
from packer.datasets.batch_decoder import Take
from packer.errors import BadInput
from packer.formats.base import Record
from packer.geometry import View, resized_crop
from packer.grasp import image_warp, targets
from packer.grasp.image_warp import ItemView, SourceImage
from packer.grasp.pack_items import OWNER_FIELD
from packer.grasp.source_label_rules import LabelRule, of_label
from packer.grasp.targets import MAPS, draw
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import Schema
from packer.system.thread_scratch import ThreadScratch

RGB, DEPTH = "rgb", "depth"

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


class GraspItem(NamedTuple):
    """A sample that is about to be drawn: its index in the pack, record, images as stored, labels and view.

    points, frame, source: as packer.grasp.source_label_rules.PlacedLabels. stored: source -> stored pixels of each
    image, None where no pixel moved.
    """

    pack_index: int
    record: Record
    images: dict[str, StoredImage]
    points: Any
    frame: targets.Frame
    source: SourceImage
    stored: dict[str, View | None]


class ItemDecoder:
    """Makes items of one size from the records of an open pack; may be used by many threads."""

    def __init__(
        self, sample_decoder: SampleDecoder, size: int, *, rule: LabelRule, means: npt.NDArray[np.float64]
    ) -> None:
        """rule: of the labels. means: (samples of the pack, 4), the depth's mean per quarter turn, NaN where it is not
        known yet; is filled.
        """
        self.sample_decoder = sample_decoder
        self._size = size
        self._means = means
        self._rule = rule
        index, schema = sample_decoder.pack.index, sample_decoder.pack.schema
        self._matrices = index.column("matrix") if "matrix" in schema else None
        self._sizes = index.column("source_size") if "source_size" in schema else None
        # of a set whose images all have the same number of grasps
        self._columns = {name: index.column(name) for name in (rule.field, OWNER_FIELD) if _is_column(schema, name)}

    @property
    def names(self) -> list[str]:
        """The fields of the record that `item` wants."""
        return self.sample_decoder.stored

    def item(self, index: int, record: Record, label: int | None = None) -> GraspItem:
        """The item of a record, with the labels of that label file alone, None for all of them.

        Raises CorruptRecord, BadInput for an image whose size the rule cannot take.
        """
        sample_decoder = self.sample_decoder
        images = {name: sample_decoder.stored_image(index, name, record[name]) for name in sample_decoder.images}
        first = images[sample_decoder.images[0]].shape[:2]
        height, width = map(int, self._sizes[index]) if self._sizes is not None else first
        values = self._labels(index, record, self._rule.field)
        if label is not None:
            values = of_label(values, self._labels(index, record, OWNER_FIELD), label)
        try:
            points, frame, source = self._rule.place(values, height, width, self._size)
        except BadInput as error:
            raise BadInput(f"{sample_decoder.pack.where(index, RGB)}: {error}") from error
        stored = {name: self._stored(index, first, image.shape[:2]) for name, image in images.items()}
        return GraspItem(index, record, images, points, frame, source, stored)

    def _labels(self, index: int, record: Record, name: str) -> Any:
        if name in self._columns:
            return self._columns[name][index]
        return self.sample_decoder.as_stored(index, self.sample_decoder.schema[name], record[name])

    def _stored(self, index: int, first: tuple[int, ...], shape: tuple[int, ...]) -> View | None:
        """Source -> stored pixels of an image of that shape; the matrix is that of the first image."""
        view = None
        if self._matrices is not None:
            view = View(tuple(self._matrices[index].ravel().tolist()), (first[0], first[1]))
        if shape == first:
            return view
        other = resized_crop(0, 0, first[0], first[1], size=(shape[0], shape[1]))
        return other if view is None else view.then(other)

    def rgb(self, item: GraspItem, rot: float, zoom: float, out: Bytes) -> None:
        """Fill uint8 (S, S, 3) with the image, RGB."""
        shown = image_warp.item_view(item.source, item.stored[RGB], rot, zoom, (self._size, self._size))
        array, origin = self._part(item, RGB, shown)
        image_warp.warp(array, shown, out, origin=origin)

    def depth(self, item: GraspItem, rot: float, zoom: float, out: Floats) -> None:
        """Fill float32 (S, S) with the depth in m, less the mean of the unzoomed window, clipped to -1 ... 1."""
        shown = image_warp.item_view(item.source, item.stored[DEPTH], rot, zoom, (self._size, self._size))
        mean = self._means[item.pack_index, shown.quarters] if _is_exact(shown) else np.nan
        if np.isnan(mean):
            array, origin = self._whole(item, DEPTH), (0, 0)
            mean = self._mean(item, array, rot)
            if _is_exact(shown):
                self._means[item.pack_index, shown.quarters] = mean
        else:
            array, origin = self._part(item, DEPTH, shown)
        image_warp.warp(array, shown, out, origin=origin)
        np.subtract(out, np.float32(mean), out=out)
        np.clip(out, -1, 1, out=out)

    def _mean(self, item: GraspItem, array: Floats, rot: float) -> float:
        """Mean of the rotated window, before the zoom."""
        height, width = item.source.window[2:]
        shown = image_warp.item_view(item.source, item.stored[DEPTH], rot, 1.0, (height, width))
        if height == width and item.source == image_warp.whole(height, width) and _is_exact(shown):
            return cv2.mean(array)[0]  # every turn shows all of it
        seen = np.empty((height, width), np.float32)
        image_warp.warp(array, shown, seen)
        return cv2.mean(seen)[0]

    def _part(self, item: GraspItem, name: str, shown: ItemView) -> tuple[Any, tuple[int, int]]:
        """The part of a stored image that the view shows, and its first row and column; valid with the record."""
        shape = item.images[name].shape
        box = image_warp.part(shown, shape[0], shape[1])
        if box is None or box[2:] == shape[:2]:
            return self._whole(item, name), (0, 0)
        top, left, height, width = box
        stored = self._in_place(item, name)
        if stored is not None:
            return _as_kind(name, stored[top : top + height, left : left + width]), (top, left)
        cut = View((1.0, 0.0, float(-left), 0.0, 1.0, float(-top)), (height, width), antialias=False)
        return _as_kind(name, self._decoded(item, name, cut)), (top, left)

    def _whole(self, item: GraspItem, name: str) -> Any:
        stored = self._in_place(item, name)
        return _as_kind(name, stored if stored is not None else self._decoded(item, name, None))

    def _in_place(self, item: GraspItem, name: str) -> Any:
        """A raw image where the record holds it, not copied: it is read once, by the warp. None for other codecs."""
        return self.sample_decoder.in_place(self.sample_decoder.schema[name], item.record[name])

    def _decoded(self, item: GraspItem, name: str, view: View | None) -> Any:
        field = self.sample_decoder.schema[name]
        return self.sample_decoder.as_stored(
            item.pack_index, field, item.record[name], view=view, stored=item.images[name]
        )


def _is_column(schema: Schema, name: str) -> bool:
    return name in schema and schema[name].is_column


def _as_kind(name: str, found: Any) -> Any:
    """Depth as float32."""
    if name == DEPTH and found.dtype == np.float16:
        nothing: Any = 0.0
        return cv2.subtract(found, nothing, dtype=cv2.CV_32F)  # exact, and four times as fast as NumPy's astype
    return found if name == RGB else found.astype(np.float32, copy=False)


def _is_exact(shown: ItemView) -> bool:
    """Whether the image is rotated by multiples of 90 degrees only."""
    _, b, _, d, *_ = shown.view.matrix
    return b == d == 0


# ---- batches

NAMES = ("x", "maps", "index", "rot", "zoom")

_pixels = ThreadScratch()  # each thread has its own


@dataclass(frozen=True)
class ItemForm:
    """Form of the items: size in px, the images in x, and whether RGB stays uint8. widest: see targets.draw."""

    size: int
    widest: float
    depth: bool
    rgb: bool
    as_bytes: bool

    @property
    def bytes(self) -> bool:
        """Whether the image stays uint8."""
        return self.rgb and self.as_bytes

    @property
    def floats(self) -> int:
        """Planes of float32 in x."""
        return int(self.depth) + 3 * int(self.rgb and not self.as_bytes)


class GraspBatchDecoder:
    """The items at `indices`, in that order."""

    only_copies = False
    at_once = 8

    def __init__(
        self,
        item_decoder: ItemDecoder,
        indices: npt.NDArray[np.int64],
        dataset_indices: npt.NDArray[np.int64],
        *,
        augmentations: Sequence[tuple[float, float]],
        form: ItemForm,
        take: Take,
        labels: Sequence[int | None] | None = None,
    ) -> None:
        """indices: in the pack; dataset_indices: of the same samples in the data set. augmentations: (turn, zoom).

        labels: the label file of each item, None for all of its image.
        """
        self.indices = indices
        self.given_up = False
        self._item_decoder = item_decoder
        self._dataset_indices = dataset_indices
        self._rot, self._zoom = np.asarray(augmentations, np.float64).reshape(-1, 2).T
        self._form = form
        self._labels = [None] * len(indices) if labels is None else labels
        count, size = len(indices), form.size
        self._maps, self._drawn = _taken(take, (len(MAPS), count, size, size))
        self._floats, self._float_arrays = _taken(take, (count, form.floats, size, size))
        self._bytes, self._byte_arrays = _taken(take, (count, size, size, 3 if form.bytes else 0), np.uint8)

    def fill(self, start: int, stop: int) -> None:
        """Make the items at these positions; other threads may fill other slices at the same time."""
        chosen = self.indices[start:stop].tolist()
        rots, zooms = self._rot[start:stop], self._zoom[start:stop]
        item_decoder = self._item_decoder
        with item_decoder.sample_decoder.pack.records(chosen, item_decoder.names) as records:
            labels = self._labels[start:stop]
            items = [item_decoder.item(*each) for each in zip(chosen, records, labels, strict=True)]
            owner = np.repeat(np.arange(len(items)), [len(item.points) for item in items])
            points = np.concatenate([item.points for item in items])
            points = targets.moved(points, owner, [item.frame for item in items], rots, zooms)
            draw(points, owner, self._form.widest, self._drawn[:, start:stop])
            for at, (item, rot, zoom) in enumerate(zip(items, rots.tolist(), zooms.tolist(), strict=True), start):
                if self.given_up:
                    return
                if DEPTH in item.images:
                    item_decoder.depth(item, rot, zoom, self._float_arrays[at, 0])
                if self._form.bytes:
                    item_decoder.rgb(item, rot, zoom, self._byte_arrays[at])
                elif RGB in item.images:
                    pixels = _pixels.pixels(self._form.size, self._form.size, 3)
                    item_decoder.rgb(item, rot, zoom, pixels)
                    normalized(pixels, self._float_arrays[at, -3:])

    def fields(self) -> dict[str, Any]:
        """NAMES -> x, the four maps, and the numbers of the batch."""
        x: Any = self._floats
        if self._form.bytes:
            x = (self._bytes.movedim(-1, 1), *((self._floats,) if self._form.floats else ()))
        maps = tuple(each.unsqueeze(1) for each in self._maps)
        numbers = (torch.from_numpy(each.copy()) for each in (self._dataset_indices, self._rot, self._zoom))
        return dict(zip(NAMES, (x, maps, *numbers), strict=True))


def normalized(pixels: npt.NDArray[np.uint8], out: npt.NDArray[np.float32]) -> None:
    """Fill float32 (3, S, S) with uint8 (S, S, 3) / 255, less the mean of all of it."""
    mean = sum(cv2.mean(pixels)[:3]) / (3 * 255)
    for plane, made in zip(cv2.split(pixels), out, strict=True):
        cv2.addWeighted(plane, 1 / 255, plane, 0, -mean, dst=made, dtype=cv2.CV_32F)


def _taken(take: Take, shape: tuple[int, ...], dtype: Any = np.float32) -> tuple[torch.Tensor, npt.NDArray[Any]]:
    size = prod(shape) * np.dtype(dtype).itemsize
    tensor, memory = take(size) if size else (torch.empty(0, dtype=torch.uint8), np.empty(0, np.uint8))
    kind = torch.float32 if dtype == np.float32 else torch.uint8
    return tensor.view(kind).view(shape), memory.view(dtype).reshape(shape)


# ---- the network's input of images that travelled as bytes


def as_input(x: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """float32 (N, C, S, S), depth first, of what `GraspDataset(..., pixels="uint8")` gives as x, on the same device.

    x: uint8 (N, 3, S, S), and after it the depth, float32 (N, 1, S, S), where there is any. A finished float32 x is
    returned as it is.
    """
    if isinstance(x, torch.Tensor):
        return x
    pixels, *depth = x
    floats = pixels.float() / 255
    floats = floats - floats.mean(dim=(-3, -2, -1), keepdim=True)
    return torch.cat([*depth, floats], dim=-3)
