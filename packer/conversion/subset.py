"""subset: some samples of a source as a source of its own, for trying things out on them."""

from collections.abc import Sequence

from packer.conversion.repacking import PackSource
from packer.sources.adding.wrapping import Addition, Wrapped
from packer.sources.base import Sample, Source


def subset(source: Source, rows: Sequence[int]) -> Source:
    """The samples of these rows, in their order; each row at most once."""
    if isinstance(source, PackSource):
        return PackSource(source.root, rows)
    return Wrapped(source, _Nothing(), rows=rows, left_out=(), note=f"{len(rows)} of {len(source)} samples")


class _Nothing(Addition):
    fields = ()

    def values(self, sample: Sample, source: Source, row: int) -> Sample:
        return {}
