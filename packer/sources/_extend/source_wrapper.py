"""Source wrapper: another source with fewer samples or more fields; sidecars, splits and mask colors are made of it."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer.schema import Field, Schema
from packer.sources import base


class AddedFields(ABC):
    """Fields that are added to each sample; `row` is a position in the inner source. Picklable, thread-safe.

    Attributes:
        fields: the added fields.
        changed: fields of the inner source that get other values under their names.
        decodes: whether `values` decodes images that are files in other sources.
        sidecars: the added fields that come from files next to the samples' own.
        outside: folders above the root that contain these files.
    """

    fields: tuple[Field, ...]
    changed: tuple[Field, ...] = ()
    decodes: bool = False
    sidecars: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

    @abstractmethod
    def values(self, sample: base.Sample, source: base.Source, row: int) -> base.Sample:
        """Return the added and changed fields of a sample; raises BadInput."""

    def value(self, source: base.Source, row: int, name: str) -> Any:
        """Return one of these fields of a sample; raises BadInput."""
        return self.values(source[row], source, row)[name]

    def files(self, source: base.Source, row: int) -> tuple[Path, ...]:
        """Return the files that `values` reads."""
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
        for name in ("kind", "root", "follow_links", "holds_records", "frame", "unread_message"):
            setattr(self, name, getattr(source, name))
        self._tree = source.folder
        self.outside = (*source.outside, *addition.outside)
        changed = {field.name: field for field in addition.changed}
        self.schema = Schema((*(changed.get(field.name, field) for field in source.schema), *addition.fields))
        self.notes = [*source.notes, note]
        self.left_out = [*source.left_out, *left_out]
        self.unread = source.unread if unread is None else unread
        if not self.unread:
            self.unread_message = ""
        self.sidecars = (*source.sidecars, *addition.sidecars)
        self.companions = (*source.companions, *addition.sidecars)
        self.decodes = source.decodes or addition.decodes
        self._source = source
        self._addition = addition
        self._added = {field.name for field in (*addition.fields, *addition.changed)}
        self._rows = array("q", rows)

    def _row(self, index: int) -> int:
        return self._rows[self.checked(index)]

    # ---- a sample, with the added fields

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> base.Sample:
        row = self._row(index)
        sample = self._source[row]
        return sample | self._addition.values(sample, self._source, row)

    def value(self, index: int, name: str) -> Any:
        row = self._row(index)
        if name in self._added:
            return self._addition.value(self._source, row, name)
        return self._source.value(row, name)

    def files(self, index: int) -> tuple[Path, ...]:
        row = self._row(index)
        return (*self._source.files(row), *self._addition.files(self._source, row))

    # ---- the inner source, with entries of the addition

    def extras(self) -> Sequence[str]:
        names = self._source.extras()
        rows = range(len(self._source)) if names else ()
        added = {path for row in rows for path in self._addition.files(self._source, row)}
        used = {path.relative_to(self.root).as_posix() for path in added}
        return [name for name in names if name not in used]

    def asked(self) -> dict[str, Any]:
        return self._addition.asked(self._source.asked())

    def key(self, index: int) -> str:
        return self._source.key(self._row(index))

    def stem(self, index: int) -> Path:
        return self._source.stem(self._row(index))

    def stated_size(self, index: int) -> tuple[int, int] | None:
        return self._source.stated_size(self._row(index))

    def extent(self, index: int) -> base.Extent | None:
        return self._source.extent(self._row(index))

    def missing(self, index: int) -> str | None:
        return self._source.missing(self._row(index))

    def where(self, index: int, path: str | None = None) -> str:
        return self._source.where(self._row(index), path) if self.holds_records else super().where(index, path)

    @property
    def named(self) -> Path:
        return self._source.named

    def more_files(self) -> Sequence[str]:
        return self._source.more_files()

    def places(self) -> Mapping[str, str]:
        return self._source.places()

    def assumed(self) -> Mapping[str, str]:
        return self._source.assumed()

    def tables(self) -> tuple[Path, ...]:
        return self._source.tables()


class _NoFields(AddedFields):
    """The addition of a subset."""

    fields = ()

    def values(self, sample: base.Sample, source: base.Source, row: int) -> base.Sample:
        return {}


def subset(source: base.Source, rows: Sequence[int]) -> base.Source:
    """Return some samples of a source as a source, in the order of the rows, each of them at most once."""
    own = source.subset(rows)
    if own is not None:
        return own
    return DerivedSource(source, _NoFields(), rows=rows, left_out=(), note=f"{len(rows)} of {len(source)} samples")
