"""Folder dataset: an original data set as a torch data set, the way people read it without packer.

Every file of a sample is opened, decoded whole by OpenCV and warped once by the geometry; labels are parsed. What comes
out has the fields and the layout of the pack's data set, so that the two can be compared.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from packer.conversion.source_spec import SourceSpec, link_options
from packer.datasets.batch import as_torch
from packer.errors import UnknownKey
from packer.geometry import Geometry, View, move_boxes, move_points, resized_crop
from packer.geometry.warp import warp
from packer.images import DecodeOptions, decode, sniff
from packer.schema import PIXEL_KINDS, USUAL_PIXELS, Field, Schema
from packer.sources.base import Source

_DECODING = DecodeOptions(decoder="opencv", strict=False)
_MOVED = {"points": move_points, "boxes": move_boxes}


class FolderDataset(Dataset[dict[str, Any]]):
    """Samples of a source as dicts of tensors and plain values, as PackDataset gives them."""

    def __init__(
        self,
        path: Path,
        fields: Sequence[str] | None = None,
        *,
        geometry: Geometry | None = None,
        transform: Callable[[Any], Any] | None = None,
        follow_links: bool = False,
        max_pixels: int | None = None,
    ) -> None:
        """fields: names, None for all that are not bookkeeping. follow_links: those that lead out of the folder.

        max_pixels: the most of one picture, None for the usual limit.

        Raises UnknownKey, and what making the source does.
        """
        self.source: Source = SourceSpec(options=link_options(follow_links), checks_layout=False).open(path)[0]
        whole = self.source.schema
        if missing := sorted(set(fields or ()) - set(whole.names)):
            raise UnknownKey(f"{path}: no field {missing[0]!r}; there are: {', '.join(whole.names)}")
        names = fields if fields is not None else [field.name for field in whole if not field.hidden]
        self.schema: Schema = whole.select(names)
        self.geometry = geometry
        self.transform = transform
        self._max_pixels = USUAL_PIXELS if max_pixels is None else max_pixels

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        given = self.source[index]
        pictures = {
            field.name: _pixels(field, given[field.name], self._max_pixels)
            for field in self.source.schema
            if field.name in self._pictures
        }
        views = self._views({name: pixels.shape[:2] for name, pixels in pictures.items()})
        main = next(iter(views.values()), None)
        sample: dict[str, Any] = {}
        for field in self.schema:
            value = given[field.name]
            if field.name in pictures:
                value = _shown(field, pictures[field.name], views.get(field.name))
            elif field.kind in _MOVED and main is not None:
                value = _MOVED[field.kind](value, main.array)
            sample[field.name] = as_torch(field, value)
        return self.transform(sample) if self.transform else sample

    @property
    def _pictures(self) -> set[str]:
        return {field.name for field in self.schema if field.kind in PIXEL_KINDS}

    def _views(self, sizes: dict[str, tuple[int, ...]]) -> dict[str, View]:
        """A view per picture: all show the same part of the scene."""
        if self.geometry is None or not sizes:
            return {}
        height, width = next(iter(sizes.values()))
        main = self.geometry.view(height, width, torch.rand(self.geometry.draws, dtype=torch.float64).tolist())
        return {
            name: main if size == (height, width) else resized_crop(0, 0, *size, size=(height, width)).then(main)
            for name, size in sizes.items()
        }


def _pixels(field: Field, value: Any, max_pixels: int) -> Any:
    """Decoded by OpenCV, unless the source has computed it."""
    if isinstance(value, np.ndarray):
        return value
    return decode(value, field.kind, options=_DECODING, header=sniff(value, max_pixels))


def _shown(field: Field, pixels: Any, view: View | None) -> Any:
    """As the view shows it; depth as float32."""
    if view is not None:
        pixels = warp(pixels, view, field.kind, invalid=field.invalid)
    return pixels.astype(np.float32) if field.kind == "depth" else pixels
