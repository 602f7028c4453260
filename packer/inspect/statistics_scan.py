"""Statistics scan: reads every sample of a pack once, measures its fields, and finds duplicates.

Duplicates are values with equal bytes. The index contains a crc32 of every value. Only values with equal crc32 are read
again and compared by sha256. An image in two formats, or with two versions of metadata, is not a duplicate.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.copies.remote_pack import read_once
from packer.inspect.field_statistics import JSON, Totals, collector_of, number_statistics
from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from packer.pack.verification import EVERYTHING, Subset
from packer.schema import Field
from packer.system.parallel import ordered_map
from packer.system.progress_callback import ProgressCallback, ProgressCounter


def duplicates(pack: Pack, name: str, indices: npt.NDArray[np.int64]) -> list[list[int]]:
    """Return groups of samples whose values of the field `name` have equal bytes. Raises CorruptRecord."""
    sums = np.fromiter((pack.index.crc32(index, name) for index in indices.tolist()), np.uint32, len(indices))
    _, inverse, counts = np.unique(sums, return_inverse=True, return_counts=True)
    groups: dict[bytes, list[int]] = {}
    for index in indices[counts[inverse] > 1].tolist():
        with pack.record(index, [name]) as record:
            groups.setdefault(hashlib.sha256(record[name]).digest(), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


# ---- the scan

_HASHED = ("image", "depth")  # equal masks are common


class StatisticsScan:
    """The statistics of a pack, as JSON in `result`."""

    def __init__(
        self,
        pack: Path,
        *,
        subset: Subset = EVERYTHING,
        scratch: Path | None = None,
        threads: int = 1,
        progress: ProgressCallback | None = None,
    ) -> None:
        """Read a pack and compute its statistics.

        Args:
            pack: Folder or URL of the pack.
            subset: Samples to measure, such as every tenth sample. The default is all samples.
            scratch: Folder for the parts of a pack at a URL (packer.copies.remote_pack). None for the default.
            threads: Number of threads.
            progress: Called after each sample, with the size of the stored values in bytes.

        Raises:
            InvalidRequest: `pack` is not a pack.
            CorruptPack: The pack is damaged.
        """
        with read_once(pack, scratch=scratch, in_order=subset == EVERYTHING) as opened:
            self._pack = opened
            self._sample_decoder = SampleDecoder(opened, None)
            made = {field.name: collector_of(field) for field in self._sample_decoder.schema if field.name != "key"}
            self._collectors = {name: collector for name, collector in made.items() if collector is not None}
            self._sizes = {field.name: Totals() for field in opened.schema}
            self._indices = np.arange(subset.number - 1, len(opened), subset.of, dtype=np.int64)
            counter = ProgressCounter(len(self._indices), progress)
            for sizes, measured in ordered_map(self._measure, self._indices.tolist(), threads=threads):
                for name, size in sizes.items():
                    self._sizes[name].add(size)
                for name, found in measured.items():
                    self._collectors[name].add(found)
                counter.add(1, sum(sizes.values()))
            self.result = self._result(pack)

    def _measure(self, index: int) -> tuple[dict[str, int], dict[str, Any]]:
        """Return the stored bytes of each field of a sample, and the values that collectors have measured."""
        decoder = self._sample_decoder
        with self._pack.record(index, self._pack.schema.names) as record:
            sizes = {name: len(value) for name, value in record.items()}
            measured = {}
            for name, collector in self._collectors.items():
                stored = decoder.stored_image(index, name, record[name]) if name in decoder.images else None
                value = decoder.decode(index, collector.field, record[name], stored=stored)
                measured[name] = collector.measure(value, stored)
        return sizes, measured

    def _result(self, folder: Path) -> JSON:
        return {
            "pack": str(folder),
            "format": self._pack.manifest.format,
            "samples": len(self._pack),
            "measured": len(self._indices),
            "fields": {field.name: self._field(field) for field in self._pack.schema},
            "duplicates": {
                field.name: self._groups(field.name) for field in self._sample_decoder.schema if field.kind in _HASHED
            },
        }

    def _field(self, field: Field) -> JSON:
        found: JSON = {"kind": field.kind, "codec": field.codec, "bytes": self._sizes[field.name].result()}
        if field.hidden:
            return {**found, "hidden": True}
        if field.name in self._collectors:
            return {**found, **self._collectors[field.name].result()}
        if field.is_column and not field.shape:
            column = self._pack.index.column(field.name)[self._indices]
            return {**found, **number_statistics(field, column.astype(column.dtype.newbyteorder("=")))}
        return found

    def _groups(self, name: str) -> list[list[str]]:
        found = duplicates(self._pack, name, self._indices)
        return [[self._pack.index.key(index) for index in group] for group in found]
