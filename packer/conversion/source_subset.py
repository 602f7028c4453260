"""Source subset: some samples of a source as a source of its own, for trying things out on them."""

from collections.abc import Sequence

from packer.sources._extend.source_wrapper import AddedFields, DerivedSource
from packer.sources.base import Sample, Source


def subset(source: Source, rows: Sequence[int]) -> Source:
    """The samples of these rows, in their order; each row at most once."""
    own = source.subset(rows)
    if own is not None:
        return own
    return DerivedSource(source, _Nothing(), rows=rows, left_out=(), note=f"{len(rows)} of {len(source)} samples")


class _Nothing(AddedFields):
    fields = ()

    def values(self, sample: Sample, source: Source, row: int) -> Sample:
        return {}
