"""Scan: reads the samples of a pack once, has every field measured, and finds duplicates.

The index holds a crc32 of every value: only those that share one are read, and told apart by sha256. The same picture
in another file form, or with other metadata, is no duplicate here.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.inspect.statistics.accumulators import Totals
from packer.inspect.statistics.field_collectors import (
    Collector,
    DepthCollector,
    ImageCollector,
    MaskCollector,
    RowClassCollector,
    ShapeCollector,
    TextCollector,
    WideMaskCollector,
    number_statistics,
)
from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from packer.pack.source_comparison import EVERYTHING, Subset
from packer.remote.read_once import read_once
from packer.schema import Field
from packer.system.parallel import ordered_map
from packer.system.progress_callback import ProgressCallback, ProgressCounter


def duplicates(pack: Pack, name: str, indices: npt.NDArray[np.int64]) -> list[list[int]]:
    """Groups of indices, each in order, whose values of that field are the same bytes; raises CorruptRecord."""
    sums = np.fromiter((pack.index.crc32(index, name) for index in indices.tolist()), np.uint32, len(indices))
    _, inverse, counts = np.unique(sums, return_inverse=True, return_counts=True)
    groups: dict[bytes, list[int]] = {}
    for index in indices[counts[inverse] > 1].tolist():
        with pack.record(index, [name]) as record:
            groups.setdefault(hashlib.sha256(record[name]).digest(), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


# ---- the scan

_COLLECTORS: dict[str, type[Collector]] = {
    "image": ImageCollector,
    "depth": DepthCollector,
    "mask": MaskCollector,
    "points": ShapeCollector,
    "boxes": ShapeCollector,
    "text": TextCollector,
}
_HASHED = ("image", "depth")  # equal masks, empty ones say, are no news


class StatisticsScan:
    """The statistics of a pack. collectors: by field, for plots; result: all that was found, as JSON has it."""

    def __init__(
        self,
        pack: Path,
        *,
        subset: Subset = EVERYTHING,
        scratch: Path | None = None,
        threads: int = 1,
        progress: ProgressCallback | None = None,
    ) -> None:
        """Read everything once; raises InvalidRequest where `pack` is none, CorruptPack where it is damaged.

        pack: its folder, or a URL; scratch: of one at a URL, see packer.remote.read_once. progress: called after each
        sample; its bytes are the stored ones.
        """
        with read_once(pack, scratch=scratch, in_order=subset == EVERYTHING) as opened:
            self._pack = opened
            self._sample_decoder = SampleDecoder(opened, None)
            fields = [field for field in self._sample_decoder.schema if field.name != "key"]
            self.collectors = {field.name: made(field) for field in fields if (made := _collector(field)) is not None}
            self.sizes = {field.name: Totals() for field in opened.schema}
            self.indices = np.arange(subset.number - 1, len(opened), subset.of, dtype=np.int64)
            counter = ProgressCounter(len(self.indices), progress)
            for sizes, measured in ordered_map(self._measure, self.indices.tolist(), threads=threads):
                for name, size in sizes.items():
                    self.sizes[name].add(size)
                for name, found in measured.items():
                    self.collectors[name].add(found)
                counter.add(1, sum(sizes.values()))
            self.result = self._result(pack)

    def _measure(self, index: int) -> tuple[dict[str, int], dict[str, Any]]:
        """Stored bytes of each field of a sample, and what the collectors measured."""
        sample_decoder = self._sample_decoder
        with self._pack.record(index, self._pack.schema.names) as record:
            sizes = {name: len(value) for name, value in record.items()}
            measured = {}
            for name, collector in self.collectors.items():
                field = collector.field
                stored = (
                    sample_decoder.stored_picture(index, name, record[name])
                    if name in sample_decoder.pictures
                    else None
                )
                measured[name] = collector.measure(
                    sample_decoder.decode(index, field, record[name], stored=stored), stored
                )
        return sizes, measured

    def _result(self, folder: Path) -> dict[str, Any]:
        return {
            "pack": str(folder),
            "format": self._pack.manifest.format,
            "samples": len(self._pack),
            "measured": len(self.indices),
            "fields": {field.name: self._field(field) for field in self._pack.schema},
            "duplicates": {
                field.name: self._groups(field.name) for field in self._sample_decoder.schema if _is_hashed(field)
            },
        }

    def _field(self, field: Field) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": field.kind, "codec": field.codec, "bytes": self.sizes[field.name].result()}
        if field.hidden:
            return {**found, "hidden": True}
        if field.name in self.collectors:
            return {**found, **self.collectors[field.name].result()}
        if field.is_column and not field.shape:
            column = self._pack.index.column(field.name)[self.indices]
            return {**found, **number_statistics(field, column.astype(column.dtype.newbyteorder("=")))}
        return found

    def _groups(self, name: str) -> list[list[str]]:
        found = duplicates(self._pack, name, self.indices)
        return [[self._pack.index.key(index) for index in group] for group in found]


def _collector(field: Field) -> type[Collector] | None:
    """What measures a field, None where nothing does: numbers are in the index, but for rows of them."""
    if field.of is not None and field.kind == "number" and field.classes is not None and not field.is_column:
        return RowClassCollector
    if field.is_wide_mask:
        return WideMaskCollector
    return _COLLECTORS.get(field.kind)


def _is_hashed(field: Field) -> bool:
    return field.kind in _HASHED
