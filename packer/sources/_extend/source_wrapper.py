"""Source wrapper: fewer samples and more fields than the source inside; sidecars and splits are made of it."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._trees.file_tree import FileTree


class AddedFields(ABC):
    """What is added to each sample; `row` counts the samples of the inner source. Picklable, shared by threads."""

    fields: tuple[Field, ...]
    changed: tuple[Field, ...] = ()  # fields of the source that it gives anew, under their names
    decodes: bool = False  # whether pictures are decoded here that are files for any other source
    sidecars: tuple[str, ...] = ()  # those of the fields that come out of files beside the samples' own
    outside: tuple[str, ...] = ()  # folders above the source's that its files lie in

    @abstractmethod
    def values(self, sample: base.Sample, source: base.Source, row: int) -> base.Sample:
        """The added or changed fields of a sample; raises BadInput."""

    def value(self, source: base.Source, row: int, name: str) -> Any:
        """One of the added fields of a sample; raises BadInput."""
        return self.values(source[row], source, row)[name]

    def files(self, source: base.Source, row: int) -> tuple[Path, ...]:
        """The files that `values` reads."""
        return ()

    def asked(self, of_source: dict[str, Any]) -> dict[str, Any]:
        """As of a source, whose own is given: with what was asked of this, too."""
        return of_source


class DerivedSource(base.Source):
    """The chosen rows of another source, in its order, with the fields of an addition."""

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
        """unread: those of the source's that stay; None for all.

        Raises InvalidRequest where an added field has the name of another."""
        self.kind = source.kind
        self.root = source.root
        self.follow_links = source.follow_links
        self.holds_records = source.holds_records
        self.outside = (*source.outside, *addition.outside)
        changed = {field.name: field for field in addition.changed}
        self.schema = Schema((*(changed.get(field.name, field) for field in source.schema), *addition.fields))
        self.notes = [*source.notes, note]
        self.left_out = [*source.left_out, *left_out]
        self.unread = source.unread if unread is None else unread
        self.unread_message = source.unread_message if self.unread else ""
        self.sidecars = (*source.sidecars, *addition.sidecars)
        self.companions = (*source.companions, *addition.sidecars)
        self.frame = source.frame
        self.decodes = source.decodes or addition.decodes
        self._source = source
        self._addition = addition
        self._rows = array("q", rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> base.Sample:
        row = self._row(index)
        sample = self._source[row]
        return sample | self._addition.values(sample, self._source, row)

    def value(self, index: int, name: str) -> Any:
        row = self._row(index)
        if any(field.name == name for field in (*self._addition.fields, *self._addition.changed)):
            return self._addition.value(self._source, row, name)
        return self._source.value(row, name)

    def key(self, index: int) -> str:
        return self._source.key(self._row(index))

    def files(self, index: int) -> tuple[Path, ...]:
        row = self._row(index)
        return (*self._source.files(row), *self._addition.files(self._source, row))

    def file_names(self, index: int) -> tuple[str, ...]:
        row = self._row(index)
        added, root = self._addition.files(self._source, row), str(self.folder.root)
        return (*self._source.file_names(row), *(base.relative_name(path, root) for path in added))

    def stated_size(self, index: int) -> tuple[int, int] | None:
        return self._source.stated_size(self._row(index))

    def extent(self, index: int) -> base.Extent | None:
        return self._source.extent(self._row(index))

    def more_files(self) -> Sequence[str]:
        return self._source.more_files()

    def where(self, index: int, path: str | None = None) -> str:
        return self._source.where(self._row(index), path) if self.holds_records else super().where(index, path)

    @property
    def folder(self) -> FileTree:
        return self._source.folder

    @property
    def named(self) -> Path:
        return self._source.named

    def stem(self, index: int) -> Path:
        return self._source.stem(self._row(index))

    def asked(self) -> dict[str, Any]:
        return self._addition.asked(self._source.asked())

    def places(self) -> Mapping[str, str]:
        return self._source.places()

    def assumed(self) -> Mapping[str, str]:
        return self._source.assumed()

    def tables(self) -> tuple[Path, ...]:
        return self._source.tables()

    def extras(self) -> Sequence[str]:
        found = self._source.extras()
        added = (path for row in range(len(self._source)) for path in self._addition.files(self._source, row))
        taken = {path.relative_to(self.root).as_posix() for path in added} if found else set()
        return [name for name in found if name not in taken]

    def missing(self, index: int) -> str | None:
        return self._source.missing(self._row(index))

    def _row(self, index: int) -> int:
        return self._rows[self.checked(index)]


class _NoFields(AddedFields):
    """What a subset adds."""

    fields = ()

    def values(self, sample: base.Sample, source: base.Source, row: int) -> base.Sample:
        return {}


def subset(source: base.Source, rows: Sequence[int]) -> base.Source:
    """Some samples of a source as a source of its own, in the order of the rows, each of them at most once."""
    own = source.subset(rows)
    if own is not None:
        return own
    return DerivedSource(source, _NoFields(), rows=rows, left_out=(), note=f"{len(rows)} of {len(source)} samples")
