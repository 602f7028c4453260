"""Item decoder: decodes the training items of grasp networks from the records of a pack."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
import torch

from packer.codecs.base import StoredImage
from packer.datasets.batch_decoder import BatchDecoder, CollateFields, Take
from packer.errors import BadInput
from packer.formats.base import Record
from packer.geometry import View, resized_crop
from packer.grasp import image_warp, targets
from packer.grasp.image_warp import ItemView, SourceImage
from packer.grasp.item_list import OWNER_FIELD
from packer.grasp.source_label_rules import LabelRule, of_label
from packer.grasp.targets import MAPS, draw
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import Schema
from packer.system.thread_scratch import ThreadScratch

RGB, DEPTH = "rgb", "depth"

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


class GraspItem(NamedTuple):
    """An item before its images are decoded.

    Args:
        pack_index: Row of the sample in the pack.
        record: Encoded values of the sample.
        images: Field -> stored image.
        points: Corners (N, 4, 2) of the grasps, row and column, in px of the source or output (see PlacedLabels).
        frame: Size and position of the output in the source.
        source: Source image, and the part that the item shows.
        stored: Field -> view from source to stored pixels, or None if the pack stores the source pixels unchanged.
    """

    pack_index: int
    record: Record
    images: dict[str, StoredImage]
    points: Any
    frame: targets.Frame
    source: SourceImage
    stored: dict[str, View | None]


class ItemDecoder:
    """A thread-safe decoder of items from the records of an open pack."""

    def __init__(
        self, sample_decoder: SampleDecoder, size: int, *, rule: LabelRule, means: npt.NDArray[np.float64]
    ) -> None:
        """Create a decoder.

        Args:
            sample_decoder: Decoder of the values of the pack.
            size: Side of the output in px.
            rule: Rule that converts labels to rectangles and selects the part of the image.
            means: Cache for the mean depth of each sample of the pack at 0, 90, 180 and 270 degrees, float64 (N, 4).
                The decoder replaces NaN, an unknown mean, by the computed mean.
        """
        self.sample_decoder = sample_decoder
        self._size = size
        self._means = means
        self._rule = rule
        index, schema = sample_decoder.pack.index, sample_decoder.pack.schema
        self._matrices = index.column("matrix") if "matrix" in schema else None
        self._sizes = index.column("source_size") if "source_size" in schema else None
        # labels are a column if all images have the same number of grasps
        self._columns = {name: index.column(name) for name in (rule.field, OWNER_FIELD) if _is_column(schema, name)}

    def item(self, index: int, record: Record, label: int | None = None) -> GraspItem:
        """Return the item of a record, without decoding its images.

        Args:
            index: Row of the record in the pack.
            record: Encoded values of the fields that `sample_decoder.stored` names.
            label: Position of the label file in `label_keys`. None for all labels of the image.

        Raises:
            CorruptRecord: The record is damaged.
            BadInput: The rule does not allow the size of the image.
        """
        sample_decoder = self.sample_decoder
        record = sample_decoder.completed(index, record)
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
        """Return the view from source to stored pixels of an image of this shape. `first` is the first image's."""
        view = None
        if self._matrices is not None:
            view = View(tuple(self._matrices[index].ravel().tolist()), (first[0], first[1]))
        if shape == first:
            return view
        other = resized_crop(0, 0, first[0], first[1], size=(shape[0], shape[1]))
        return other if view is None else view.then(other)

    def rgb(self, item: GraspItem, rot: float, zoom: float, out: Bytes) -> None:
        """Write the RGB image, rotated by `rot` radians, to `out`, uint8 (S, S, 3). `zoom` is the visible share."""
        shown = image_warp.item_view(item.source, item.stored[RGB], rot, zoom, (self._size, self._size))
        array, origin = self._part(item, RGB, shown)
        image_warp.warp(array, shown, out, origin=origin)

    def depth(self, item: GraspItem, rot: float, zoom: float, out: Floats) -> None:
        """Write the depth in m to `out`, float32 (S, S), minus the mean without zoom, clipped to -1 ... 1."""
        shown = image_warp.item_view(item.source, item.stored[DEPTH], rot, zoom, (self._size, self._size))
        mean = self._means[item.pack_index, shown.quarters] if _is_exact(shown) else np.nan
        if np.isnan(mean):
            array, origin = self._part(item, DEPTH, None)
            mean = self._mean(item, array, rot)
            if _is_exact(shown):
                self._means[item.pack_index, shown.quarters] = mean
        else:
            array, origin = self._part(item, DEPTH, shown)
        image_warp.warp(array, shown, out, origin=origin)
        np.subtract(out, np.float32(mean), out=out)
        np.clip(out, -1, 1, out=out)

    def _mean(self, item: GraspItem, array: Floats, rot: float) -> float:
        """Return the mean of `array`, a depth in m, over the window that the rotated item shows without zoom."""
        height, width = item.source.window[2:]
        shown = image_warp.item_view(item.source, item.stored[DEPTH], rot, 1.0, (height, width))
        if height == width and item.source == image_warp.whole(height, width) and _is_exact(shown):
            return cv2.mean(array)[0]  # a rotation by 90 degrees shows the complete image
        seen = np.empty((height, width), np.float32)
        image_warp.warp(array, shown, seen)
        return cv2.mean(seen)[0]

    def _part(self, item: GraspItem, name: str, shown: ItemView | None) -> tuple[Any, tuple[int, int]]:
        """Return (pixels, (top, left)) of the part of the image `name` that `shown` reads, or of all of it for None.

        The pixels of an uncompressed image are not copied. They are valid as long as the record.
        """
        decoder, stored = self.sample_decoder, item.images[name]
        field, value = decoder.schema[name], item.record[name]
        all_of_it = (0, 0, *stored.shape[:2])
        top, left, height, width = (image_warp.part(shown, *stored.shape[:2]) if shown else None) or all_of_it
        found: Any = decoder.in_place(field, value)
        if found is not None:
            found = found[top : top + height, left : left + width]
        else:
            view = View((1.0, 0.0, float(-left), 0.0, 1.0, float(-top)), (height, width), antialias=False)
            is_part = (height, width) != stored.shape[:2]
            found = decoder.as_stored(item.pack_index, field, value, view=view if is_part else None, stored=stored)
        if name == DEPTH and found.dtype == np.float16:
            nothing: Any = 0.0
            found = cv2.subtract(found, nothing, dtype=cv2.CV_32F)  # exact, and faster than NumPy's astype
        elif name == DEPTH:
            found = found.astype(np.float32, copy=False)
        return found, (top, left)


def _is_column(schema: Schema, name: str) -> bool:
    return name in schema and schema[name].is_column


def _is_exact(shown: ItemView) -> bool:
    _, b, _, d, *_ = shown.view.matrix
    return b == d == 0


# ---- batches

NAMES = ("x", "maps", "index", "rot", "zoom")

_pixels = ThreadScratch()  # each thread has its own


@dataclass(frozen=True)
class ItemForm:
    """Size and content of the network input x.

    Args:
        size: Side of the output in px.
        widest: Opening in px at which the width map is 1.
        depth: True if x contains the depth.
        rgb: True if x contains the image.
        as_bytes: True for an image in uint8, False for float32.
    """

    size: int
    widest: float
    depth: bool
    rgb: bool
    as_bytes: bool

    @property
    def bytes(self) -> bool:
        """True if x contains an image in uint8, False if it contains none or one in float32."""
        return self.rgb and self.as_bytes

    @property
    def floats(self) -> int:
        """Number of float32 channels in x."""
        return int(self.depth) + 3 * int(self.rgb and not self.as_bytes)


class GraspBatchDecoder(BatchDecoder):
    """A decoder of one batch of items."""

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
        collate: CollateFields = dict,
    ) -> None:
        """Create a batch.

        Args:
            item_decoder: Decoder of the items of the pack.
            indices: Rows of the pack, int64 (N,).
            dataset_indices: Indices of these items in the dataset, int64 (N,).
            augmentations: (rotation in radians, zoom) of each item.
            form: Size and content of x.
            take: Function of a size in bytes that returns memory, as a flat uint8 tensor and as a NumPy array.
            labels: Position of the label file of each item in `label_keys`. None for all labels of the image.
            collate: Function of the dict of batched fields that returns the batch.
        """
        super().__init__(indices, collate)
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
        """Decode the items at the positions `start` to `stop` - 1 of the batch."""
        chosen = self.indices[start:stop].tolist()
        rots, zooms = self._rot[start:stop], self._zoom[start:stop]
        item_decoder = self._item_decoder
        with item_decoder.sample_decoder.pack.records(chosen, item_decoder.sample_decoder.stored) as records:
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
        """Return a dict: x, maps (a tuple of four tensors (N, 1, S, S)), and index, rot and zoom (tensors (N,))."""
        x: Any = self._floats
        if self._form.bytes:
            x = (self._bytes.movedim(-1, 1), *((self._floats,) if self._form.floats else ()))
        maps = tuple(each.unsqueeze(1) for each in self._maps)
        numbers = (torch.from_numpy(each.copy()) for each in (self._dataset_indices, self._rot, self._zoom))
        return dict(zip(NAMES, (x, maps, *numbers), strict=True))


def normalized(pixels: npt.NDArray[np.uint8], out: npt.NDArray[np.float32]) -> None:
    """Scale pixels, uint8 (S, S, 3), to 0 ... 1 and subtract their mean. Write them to `out`, float32 (3, S, S)."""
    mean = sum(cv2.mean(pixels)[:3]) / (3 * 255)
    for plane, made in zip(cv2.split(pixels), out, strict=True):
        cv2.addWeighted(plane, 1 / 255, plane, 0, -mean, dst=made, dtype=cv2.CV_32F)


def _taken(take: Take, shape: tuple[int, ...], dtype: Any = np.float32) -> tuple[torch.Tensor, npt.NDArray[Any]]:
    size = prod(shape) * np.dtype(dtype).itemsize
    tensor, memory = take(size) if size else (torch.empty(0, dtype=torch.uint8), np.empty(0, np.uint8))
    kind = torch.float32 if dtype == np.float32 else torch.uint8
    return tensor.view(kind).view(shape), memory.view(dtype).reshape(shape)


def as_input(x: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """Convert a batched x of `GraspDataset(..., pixels="uint8")` to the input of the network, on the same device.

    Args:
        x: Tuple of image, uint8 (N, 3, S, S), and optionally depth, float32 (N, 1, S, S). A tensor stays unchanged.

    Returns:
        float32 (N, C, S, S), depth first.
    """
    if isinstance(x, torch.Tensor):
        return x
    pixels, *depth = x
    floats = pixels.float() / 255
    floats = floats - floats.mean(dim=(-3, -2, -1), keepdim=True)
    return torch.cat([*depth, floats], dim=-3)
