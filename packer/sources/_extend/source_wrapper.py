"""Source wrapper: a source with fewer samples or more fields than an inner source, for sidecars, splits and colors."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from packer.schema import Field, Schema
from packer.sources import base

_SAME = (  # attributes that a derived source copies from the inner source
    *("kind", "root", "folder", "holds_records", "frame", "unread_message"),
    *("tables", "more_files", "places", "assumed"),
)


class AddedFields(ABC):
    """Fields that a `DerivedSource` adds to each sample of an inner source. Picklable and thread-safe.

    Attributes:
        fields: The added fields.
        changed: Fields of the inner source that keep the name and get other values.
        needs: The names of fields of the inner source that `values` reads.
        decodes: True if `values` decodes images and returns arrays, False if it returns the bytes of image files.
        companions: The names of added fields whose values come from additional files, such as sidecars.
        outside: Folders outside of the root that contain additional files.
    """

    fields: tuple[Field, ...]
    changed: tuple[Field, ...] = ()
    needs: tuple[str, ...] = ()
    decodes: bool = False
    companions: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

    @abstractmethod
    def values(self, sample: base.Sample, source: base.Source, row: int, names: Collection[str]) -> base.Sample:
        """Return name -> value for the added or changed fields `names`. Raise BadInput if a file is not valid.

        `sample` contains the fields `needs` of the sample at position `row` of the inner source `source`.
        """

    def files(self, source: base.Source, row: int) -> tuple[str, ...]:
        """Return the relative paths of the additional files that `values` reads for the sample at position `row`."""
        return ()

    def asked(self, of_source: dict[str, Any]) -> dict[str, Any]:
        """Return the manifest entries of the inner source, `of_source`, with the entries for the added fields."""
        return of_source


class DerivedSource(base.Source):
    """A source with some samples of an inner source, in a given order, and with added fields."""

    def __init__(
        self,
        source: base.Source,
        addition: AddedFields,
        *,
        rows: Iterable[int],
        left_out: Sequence[tuple[str, str]],
        note: str,
        unread: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        """Wrap a source. Raise InvalidRequest if an added field has the name of another field.

        Args:
            source: The inner source.
            addition: The added fields.
            rows: The positions of the samples to keep.
            left_out: (key, reason) for each skipped sample.
            note: An additional note for the user.
            unread: (path, reason) for each unreadable image to report. None: all unreadable images of `source`.
        """
        for name in _SAME:
            setattr(self, name, getattr(source, name))
        self.outside = (*source.outside, *addition.outside)
        changed = {field.name: field for field in addition.changed}
        self.schema = Schema((*(changed.get(field.name, field) for field in source.schema), *addition.fields))
        self.notes = [*source.notes, note]
        self.left_out = [*source.left_out, *left_out]
        self.unread = source.unread if unread is None else unread
        if not self.unread:
            self.unread_message = ""
        self.companions = (*source.companions, *addition.companions)
        self.decodes = source.decodes or addition.decodes
        self._source = source
        self._addition = addition
        self._added = {field.name for field in (*addition.fields, *addition.changed)}
        self._rows = array("q", rows)
        inner = range(len(source)) if source.extras else ()
        added = {path for row in inner for path in addition.files(source, row)}
        self.extras = [name for name in source.extras if name not in added]

    def _row(self, index: int) -> int:
        return self._rows[self.checked(index)]

    # ---- a sample, with the added fields

    def __len__(self) -> int:
        return len(self._rows)

    def entry(self, index: int) -> base.SampleEntry:
        row = self._row(index)
        entry = self._source.entry(row)
        return entry._replace(files=(*entry.files, *self._addition.files(self._source, row)))

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        row = self._row(index)
        added = self._added.intersection(names)
        inner = [name for name in names if name not in added]
        if added:
            inner += self._addition.needs
        sample = self._source.read(row, inner) if inner else {}
        return sample | self._addition.values(sample, self._source, row, added) if added else sample

    def key(self, index: int) -> str:
        return self._source.key(self._row(index))

    # ---- the inner source, with entries of the addition

    def asked(self) -> dict[str, Any]:
        return self._addition.asked(self._source.asked())

    def stated_size(self, index: int) -> tuple[int, int] | None:
        return self._source.stated_size(self._row(index))

    def missing(self, index: int) -> str | None:
        return self._source.missing(self._row(index))


class _NoFields(AddedFields):
    fields = ()

    def values(self, sample: base.Sample, source: base.Source, row: int, names: Collection[str]) -> base.Sample:
        return {}


def subset(source: base.Source, rows: Sequence[int]) -> base.Source:
    """Return a source with the samples at the positions `rows`, in this order. No position may occur twice."""
    own = source.subset(rows)
    if own is not None:
        return own
    return DerivedSource(source, _NoFields(), rows=rows, left_out=(), note=f"{len(rows)} of {len(source)} samples")
