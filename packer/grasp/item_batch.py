"""Item batch: a batch of grasp items, decoded slice by slice by any number of threads."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch

from packer.datasets.batch_decoder import Take
from packer.grasp import targets
from packer.grasp.item_reader import DEPTH, RGB, ItemReader
from packer.grasp.targets import MAPS, draw
from packer.system.thread_scratch import ThreadScratch

NAMES = ("x", "maps", "index", "rot", "zoom")

_pixels = ThreadScratch()  # each thread has its own


@dataclass(frozen=True)
class ItemForm:
    """What items are made of: size in px, what x holds, the picture as bytes or not. widest: see maps.draw."""

    size: int
    widest: float
    depth: bool
    rgb: bool
    as_bytes: bool

    @property
    def bytes(self) -> bool:
        """Whether the picture stays uint8."""
        return self.rgb and self.as_bytes

    @property
    def floats(self) -> int:
        """Planes of float32 in x."""
        return int(self.depth) + 3 * int(self.rgb and not self.as_bytes)


class GraspBatchDecoder:
    """The items at `places`, in that order."""

    only_copies = False
    at_once = 8

    def __init__(
        self,
        reader: ItemReader,
        places: npt.NDArray[np.int64],
        indices: npt.NDArray[np.int64],
        *,
        seen: Sequence[tuple[float, float]],
        form: ItemForm,
        take: Take,
    ) -> None:
        """places: sample indices of the pack; indices: of the data set. seen: turn and zoom of each."""
        self.places = places
        self.given_up = False
        self._reader = reader
        self._indices = indices
        self._rot, self._zoom = np.asarray(seen, np.float64).reshape(-1, 2).T
        self._form = form
        count, size = len(places), form.size
        self._maps, self._drawn = _taken(take, (len(MAPS), count, size, size))
        self._floats, self._float_arrays = _taken(take, (count, form.floats, size, size))
        self._bytes, self._byte_arrays = _taken(take, (count, size, size, 3 if form.bytes else 0), np.uint8)

    def fill(self, start: int, stop: int) -> None:
        """Make the items at those positions; other threads may fill other slices meanwhile."""
        places = self.places[start:stop].tolist()
        rots, zooms = self._rot[start:stop], self._zoom[start:stop]
        reader = self._reader
        with reader.reader.pack.records(places, reader.names) as records:
            items = [reader.item(place, record) for place, record in zip(places, records, strict=True)]
            owner = np.repeat(np.arange(len(items)), [len(item.points) for item in items])
            points = np.concatenate([item.points for item in items])
            points = targets.moved(points, owner, [item.frame for item in items], rots, zooms)
            draw(points, owner, self._form.widest, self._drawn[:, start:stop])
            for at, (item, rot, zoom) in enumerate(zip(items, rots.tolist(), zooms.tolist(), strict=True), start):
                if self.given_up:
                    return
                if DEPTH in item.pictures:
                    reader.depth(item, rot, zoom, self._float_arrays[at, 0])
                if self._form.bytes:
                    reader.rgb(item, rot, zoom, self._byte_arrays[at])
                elif RGB in item.pictures:
                    pixels = _pixels.pixels(self._form.size, self._form.size, 3)
                    reader.rgb(item, rot, zoom, pixels)
                    normalised(pixels, self._float_arrays[at, -3:])

    def fields(self) -> dict[str, Any]:
        """NAMES -> x, the four maps, and the numbers of the batch."""
        x: Any = self._floats
        if self._form.bytes:
            x = (self._bytes.movedim(-1, 1), *((self._floats,) if self._form.floats else ()))
        maps = tuple(each.unsqueeze(1) for each in self._maps)
        numbers = (torch.from_numpy(each.copy()) for each in (self._indices, self._rot, self._zoom))
        return dict(zip(NAMES, (x, maps, *numbers), strict=True))


def normalised(pixels: npt.NDArray[np.uint8], out: npt.NDArray[np.float32]) -> None:
    """Fill float32 (3, S, S) with uint8 (S, S, 3) / 255, less the mean of all of it."""
    mean = sum(cv2.mean(pixels)[:3]) / (3 * 255)
    for plane, made in zip(cv2.split(pixels), out, strict=True):
        cv2.addWeighted(plane, 1 / 255, plane, 0, -mean, dst=made, dtype=cv2.CV_32F)


def _taken(take: Take, shape: tuple[int, ...], dtype: Any = np.float32) -> tuple[torch.Tensor, npt.NDArray[Any]]:
    size = prod(shape) * np.dtype(dtype).itemsize
    tensor, memory = take(size) if size else (torch.empty(0, dtype=torch.uint8), np.empty(0, np.uint8))
    kind = torch.float32 if dtype == np.float32 else torch.uint8
    return tensor.view(kind).view(shape), memory.view(dtype).reshape(shape)


# ---- the network's input of pictures that travelled as bytes


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
