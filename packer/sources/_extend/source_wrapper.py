"""Source wrapper: another source with fewer samples or more fields; sidecars, splits and mask colors are made of it."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from packer.schema import Field, Schema
from packer.sources import base

_SAME = (  # attributes of a derived source that are those of its inner source
    *("kind", "root", "folder", "holds_records", "frame", "unread_message"),
    *("tables", "more_files", "places", "assumed"),
)


class AddedFields(ABC):
    """Fields that are added to each sample; `row` is a position in the inner source. Picklable, thread-safe.

    Attributes:
        fields: the added fields.
        changed: fields of the inner source that get other values under their names.
        needs: fields of the inner source that `values` reads.
        decodes: whether `values` decodes images that are files in other sources.
        companions: the added fields that come from files next to the samples' own.
        outside: folders above the root that contain these files.
    """

    fields: tuple[Field, ...]
    changed: tuple[Field, ...] = ()
    needs: tuple[str, ...] = ()
    decodes: bool = False
    companions: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

    @abstractmethod
    def values(self, sample: base.Sample, source: base.Source, row: int, names: Collection[str]) -> base.Sample:
        """Return the named ones of these fields of a sample. Raises BadInput.

        Args:
            sample: The fields `needs` of the inner source.
            source: The inner source.
            row: The position of the sample in it.
            names: Added and changed fields.
        """

    def files(self, source: base.Source, row: int) -> tuple[str, ...]:
        """Return the relative paths of the files that `values` reads."""
        return ()

    def asked(self, of_source: dict[str, Any]) -> dict[str, Any]:
        """Return the inner source's entries for the manifest, with those of the addition."""
        return of_source


class DerivedSource(base.Source):
    """Some rows of another source, in the order of the rows, with added fields."""

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
        """Raises InvalidRequest if an added field has the name of another field.

        Args:
            source: the inner source.
            addition: the added fields.
            rows: the rows of the inner source to keep.
            left_out: key and reason of each other row.
            note: one more line for the user.
            unread: the unreadable images that stay; None for all.
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
    """The addition of a subset."""

    fields = ()

    def values(self, sample: base.Sample, source: base.Source, row: int, names: Collection[str]) -> base.Sample:
        return {}


def subset(source: base.Source, rows: Sequence[int]) -> base.Source:
    """Return some samples of a source as a source, in the order of the rows, each of them at most once."""
    own = source.subset(rows)
    if own is not None:
        return own
    return DerivedSource(source, _NoFields(), rows=rows, left_out=(), note=f"{len(rows)} of {len(source)} samples")
