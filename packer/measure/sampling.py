"""Sampling: the samples of a source that trials take, drawn at random but always the same, and what they tell of it."""

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from packer.conversion.carrying import choose
from packer.conversion.options import MOST_EXTRAS_BYTES
from packer.conversion.repacking import PackSource
from packer.conversion.subset import subset
from packer.decoders import sniff
from packer.errors import BadInput, Refused
from packer.geometry import Geometry, Resize
from packer.measure.prediction import Whole
from packer.schema import PIXEL_KINDS, USUAL_PIXELS
from packer.sources.base import Source

_SAMPLES = 64
_PIXEL_BYTES = 192 << 20  # of all that are drawn
_LEAST_SAMPLES = 4
_LOOKED_AT = 8  # samples whose pictures are looked at
_SIZED = 2000  # samples whose files are asked for their size
_BYTES = {"image": 3, "depth": 4, "mask": 1}
PHOTOS = "RandomResizedCrop(224), HorizontalFlip()"
LABELLED = "RandomRotate(choices=(0, 90, 180, 270)), RandomZoom(0.5, 1), Resize((300, 300))"


@dataclass(frozen=True)
class Sampling:
    """One source, not empty. max_pixels: the most of one picture, None for the usual limit."""

    source: Source
    max_pixels: int | None = None

    @cached_property
    def _order(self) -> list[int]:
        """Rows in an order of chance: each beginning of it is a fair choice."""
        rows: list[int] = np.random.default_rng(0).permutation(len(self.source))[:_SIZED].tolist()
        return rows

    @cached_property
    def whole(self) -> Whole:
        """The bytes of all files, judged from at most 2000 samples; raises BadInput for a file that vanished."""
        count = len(self.source)
        if isinstance(self.source, PackSource):
            total = int(self.source.sizes().sum())
        else:
            total = round(sum(_size(path) for path in self._files(self._order)) / len(self._order) * count)
        carried = choose(self.source, most_bytes=MOST_EXTRAS_BYTES)
        return Whole(count, total, sum(carried.sizes.values()))

    @cached_property
    def pictures(self) -> list[str]:
        """Names of the picture fields."""
        return [field.name for field in self.source.schema if field.kind in PIXEL_KINDS]

    @cached_property
    def _shapes(self) -> list[dict[str, tuple[int, int]]]:
        """Height and width of the pictures of a few samples; samples that cannot be read are passed over."""
        found, reason = [], None
        for row in self._order[:_LOOKED_AT]:
            try:
                sample = self.source[row]
                found.append({name: _shape(sample[name], self.max_pixels) for name in self.pictures})
            except BadInput as error:
                reason = error
        if reason is not None and not found:
            raise reason
        return found

    @cached_property
    def few(self) -> Source:
        """The samples that trials take: at most 64, fewer where their pictures are large."""
        kinds = {name: _BYTES[self.source.schema[name].kind] for name in self.pictures}
        sizes = [sum(kinds[name] * h * w for name, (h, w) in shapes.items()) for shapes in self._shapes]
        most = max(_LEAST_SAMPLES, int(_PIXEL_BYTES / max(1.0, statistics.mean(sizes))))
        return subset(self.source, self._order[: min(_SAMPLES, most)])

    @property
    def files(self) -> list[Path]:
        """Of these samples; none of a pack, whose parts hold others too."""
        return [] if isinstance(self.source, PackSource) else self._files(self._order[: len(self.few)])

    def usual(self) -> str:
        """A geometry as many use it, as people write it: for sets with labels in px, and for others."""
        kinds = {field.kind for field in self.source.schema}
        return LABELLED if kinds & {"points", "boxes"} else PHOTOS

    def sizes(self, geometry: Geometry, asked: Sequence[str] | None) -> tuple[list[str | None], list[str | None]]:
        """Sizes to try, None for pictures as they are; and of these the ones that may be recommended.

        Unless asked for: twice the shorter side of what the geometry makes, so that a zoom by 2 finds all its pixels,
        and 8/7 of it, which is only tried; each where the pictures are larger. Raises Refused for no size.
        """
        if asked is not None:
            for size in asked:
                Resize.parse(size)
            return [None, *asked], [None, *asked]
        if not self.pictures:
            raise Refused(f"{self.source.root}: its samples have no pictures; there is nothing to advise")
        main = [shapes[self.pictures[0]] for shapes in self._shapes]
        made = min(geometry.view(*main[0], [0.5] * geometry.draws).size)
        shorter = statistics.median(min(shape) for shape in main)
        found = [str(size) for size in (2 * made, round(made * 8 / 7)) if size < shorter]
        return [None, *found], [None, *(size for size in found if int(size) >= 2 * made)]

    def _files(self, rows: Sequence[int]) -> list[Path]:
        return sorted({path for row in rows for path in self.source.files(row) if path.is_file()})


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise BadInput(f"{path}: cannot read: {error.strerror}; the folder changed, run again") from error


def _shape(value: object, max_pixels: int | None) -> tuple[int, int]:
    if isinstance(value, bytes):
        header = sniff(value, USUAL_PIXELS if max_pixels is None else max_pixels)
        return header.height, header.width
    shape = np.asarray(value).shape
    return int(shape[0]), int(shape[1])
