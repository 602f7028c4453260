"""Pack source: a pack or collection as the source of another pack, for `packer convert a.pack b.pack`.

If a field keeps its codec, `RecordEncoder` checks the CRC-32 of each value and copies the value. If `--resize` or
`--codec` changes a field, the encoder decodes each value and encodes it again. Labels stay in pixels of the original
image. The field `matrix` maps these to pixels of the new pack: it is the old matrix, followed by the resize.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.codecs.base import Codec
from packer.conversion.encode import SKIP_ADVICE, Encoder, Record, stored_bytes
from packer.conversion.plan import Plan
from packer.conversion.stored_schema import ORIENTATION, SOURCE_SIZE
from packer.errors import BadInput, CorruptPack, CorruptRecord, InvalidRequest
from packer.geometry import View, identity
from packer.images import sniff
from packer.pack.derived_pack import ChangedPack, PackRecipe, selected
from packer.pack.extra_files import ExtraFiles
from packer.pack.manifest import PACK_KIND, Manifest
from packer.pack.source_paths import made_of
from packer.schema import MATRIX, PIXEL_KINDS, Field
from packer.sources import base
from packer.sources._trees.file_tree import Contents, FileState, FileTree


class PackSource(base.Source):
    """Source whose samples are those of an existing pack. Each read checks the CRC-32 of the values. Picklable."""

    kind = PACK_KIND
    is_encoded = True
    folder: "_ExtrasTree"

    def __init__(self, recipe: PackRecipe) -> None:
        """Open the pack.

        Raises:
            InvalidRequest: the folder or URL is not a pack.
            CorruptPack: a file of the pack is missing or damaged.
        """
        self.pack = recipe.open("always", isolate_damaged=True)
        self.recipe = recipe.pinned(self.pack)
        self.root = self.pack.folder
        self.manifest = self.pack.manifest
        self.schema = self.pack.schema
        self.left_out = self.manifest.skipped
        self.notes = [f"made of: {self.manifest.source.get('kind')}; pack id {self.manifest.pack_id}"]
        self.codecs = {field.name: codecs.make(field) for field in self.schema}
        for name, codec in self.codecs.items():
            if codec.has_table:  # the table is copied with the value
                self.pack.add_check(name, codec.check)
        self.folder = _ExtrasTree(self.root, self.manifest)
        self._incomplete = dict(self.manifest.incomplete)

    def __reduce__(self) -> tuple[Callable[[PackRecipe], "PackSource"], tuple[PackRecipe]]:
        return PackSource, (self.recipe,)

    def __len__(self) -> int:
        return len(self.pack)

    def entry(self, index: int) -> base.SampleEntry:
        number, _ = self.pack.locate(self.checked(index))
        key = self.key(index)
        return base.SampleEntry(key, (self.pack.listed_parts[number].name,), key)

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        return {name: self._decoded(name, value) for name, value in self.values(index, names).items()}

    def _decoded(self, name: str, value: bytes) -> Any:
        return value if self.holds_files(name) else self.codecs[name].decode(value)

    def holds_files(self, name: str) -> bool:
        """Return True if the encoded values of field `name` are image files."""
        return self.codecs[name].file_decoder is not None

    def values(self, index: int, names: Sequence[str]) -> dict[str, bytes]:
        """Return the encoded values of a sample, by field. A damaged value raises BadInput."""
        try:
            with self.pack.record(self.checked(index), names) as record:
                return {name: bytes(record[name]) for name in names}
        except CorruptPack as error:
            raise BadInput(error.message) from error

    def key(self, index: int) -> str:
        return self.pack.index.key(self.checked(index))

    @cached_property
    def extras(self) -> Sequence[str]:  # type: ignore[override]
        return self.folder.contents.names

    def missing(self, index: int) -> str | None:
        return self._incomplete.get(self.key(index))

    def subset(self, rows: Sequence[int]) -> "PackSource":
        return PackSource(ChangedPack(self.recipe, partial(selected, indices=np.asarray(rows, np.int64))))

    def provenance(self) -> base.Provenance:
        found = self.manifest
        ids = [member.manifest.pack_id for member in self.pack.members] if self.pack.is_in_memory else [found.pack_id]
        return base.Provenance(
            sizes=self._sizes(),
            files=len(self.pack.listed_parts),
            digest="+".join(ids),
            identity=found.to_bytes(),
            origin=found.source,
            asked={**made_of(self.pack), "pack_id": "+".join(ids)},
        )

    def _sizes(self) -> npt.NDArray[np.int64]:
        shares = np.asarray([part.bytes // max(1, part.samples) for part in self.pack.listed_parts], np.int64)
        return shares[self.pack.part_numbers(np.arange(len(self)))]


class _ExtrasTree(FileTree):
    """Extras of a pack as a file tree. The files are opened at the first read."""

    def __init__(self, root: Path, manifest: Manifest) -> None:
        self.root = root
        self._manifest = manifest

    @cached_property
    def _files(self) -> dict[str, memoryview]:
        return dict(ExtraFiles(self.root, self._manifest))

    @property
    def contents(self) -> Contents:
        return Contents(list(self._files), [])

    def read(self, name: str, *, is_table: bool = False) -> bytes:
        return bytes(self._files[name])

    def start(self, name: str, count: int) -> bytes:
        return bytes(self._files[name][:count])

    def state(self, name: str) -> FileState:
        return FileState(len(self._files[name]), 0, is_regular=True)


# ---- records of records

_Values = dict[str, bytes]
# Steps receive the encoder as an argument. A step that contains the encoder would form a reference cycle with it. Then
# the files of the pack would stay open until the garbage collector runs.
_Step = Callable[["RecordEncoder", _Values], bytes]


class RecordEncoder(Encoder):
    """Encoder that makes records of a new pack from records of an existing pack."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        source = plan.source
        if not isinstance(source, PackSource):
            raise InvalidRequest(f"{source.root}: has encoded values, but is not a pack: {source.kind}")
        self._source = source
        self._old = source.schema
        self._needed = [name for name in source.schema.names if name in plan.schema]
        self._steps = {field.name: self._step(field) for field in plan.schema}

    def _record(self, index: int) -> Record:
        record = {}
        name = "key"
        values = self._source.values(index, self._needed)
        try:
            for name, step in self._steps.items():
                record[name] = step(self, values)
        except CorruptRecord as error:
            where = self._source.pack.where(index, name)
            raise BadInput(f"{where}: does not decode: {error.message}") from error
        except BadInput as error:
            where = f"{self._where(index, name)}: cannot pack (sample {index}, field {name!r})"
            raise BadInput(f"{where}: {error.message}{SKIP_ADVICE}") from error
        return Record(record)

    def _where(self, index: int, name: str) -> str:
        return self._source.pack.where(index, name)

    def _step(self, field: Field) -> _Step:
        codec = codecs.make(field)
        is_new = field.name not in self._old
        if field == MATRIX and (is_new or self._plan.moves_pixels):
            return lambda encoder, values: codec.encode(encoder._matrix(values).array)
        if field == SOURCE_SIZE and is_new:
            return lambda encoder, values: codec.encode(np.asarray(encoder._size(encoder._main, values), np.int64))
        if field == ORIENTATION and is_new:
            return lambda encoder, values: codec.encode(encoder._orientation(values))
        is_alike = _is_stored_alike(field, self._old[field.name])
        if field.kind in PIXEL_KINDS and (self._plan.moves_pixels or not is_alike):
            return lambda encoder, values: encoder._pixels(field, codec, values)
        if is_alike:
            return lambda encoder, values: values[field.name]
        old = self._source.codecs[field.name]
        return lambda encoder, values: codec.encode(old.decode(values[field.name]))

    def _pixels(self, field: Field, codec: Codec, values: _Values) -> bytes:
        value, old = values[field.name], self._old[field.name]
        size = self._size(field.name, values)
        resize = self._plan.resize
        view = resize.view(*size) if resize is not None else identity(*size)
        stays = view.is_identity(*size)
        if stays and _is_stored_alike(field, old):
            return value
        is_file = self._source.holds_files(field.name)
        header = sniff(value, old.pixel_limit) if is_file else None
        if stays and header is not None and (stored := codec.encode_file(value, header)) is not None:
            return stored
        array = np.ascontiguousarray(self._source.codecs[field.name].decode(value, None if stays else view))
        lossy = header.lossy if header is not None else self._source.codecs[field.name].lossy
        return stored_bytes(field, codec, array, lossy=lossy, plan=self._plan)

    def _matrix(self, values: _Values) -> View:
        """Return the view of the main image: its matrix maps pixels of the original image to pixels of the new pack."""
        size = self._size(self._main, values)
        view = identity(*size)
        if MATRIX.name in self._old:
            old = np.asarray(self._source.codecs[MATRIX.name].decode(values[MATRIX.name]))
            view = View(tuple(old.ravel().tolist()), size)
        return view if self._plan.resize is None else view.then(self._plan.resize.view(*size))

    def _size(self, name: str, values: _Values) -> tuple[int, int]:
        shape = self._source.codecs[name].shape(values[name])
        return int(shape[0] or 0), int(shape[1] or 0)

    def _orientation(self, values: _Values) -> int:
        """Return the EXIF orientation in the file of the main image, or 1 if its value is not a file."""
        name = self._main
        old = self._old[name]
        return sniff(values[name], old.pixel_limit).orientation if self._source.holds_files(name) else 1


def _is_stored_alike(field: Field, old: Field) -> bool:
    return (field.codec, field.dtype, field.shape) == (old.codec, old.dtype, old.shape)
