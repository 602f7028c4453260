"""Foreign part: a folder with a file that another tool opens by path, and what packer needs to read it at random.

Layout of `part-00000/`:
    <file of the tool>   such as data.tfrecord, and the tool's own index; all samples, in order, as that tool has them
    values.npz           written last; numpy.load opens it:
        packer.json          the end record, JSON {"fields": [names in order], "samples": n}
        foreign/places       int64 [n, fields, 2]: offset and size of each value in the tool's file, for the fields
                             whose encoded values stand there as they are, in the order of the schema; a size below
                             zero: the value is to be joined of as many bytes there, in the way of the tool
        <field>, <field>.data, <field>.offsets   every other field, as in hdf5 and pth (see `_columns`)

So each value stands in the part byte for byte once: in the tool's file where that holds it so, else in values.npz. That
is why a field for which the tool's records have no place is not lost, and why the reader is one for all of these
formats: it maps both files, and a record is slices of them. It parses nothing of the tool's, which is hostile input as
much as any, and looks up no tool's index. What a tool writes for a number (a varint, ASCII digits) stands in its file
besides, for the tool.
The tool's file holds samples alone: the end record, the index and the manifest are in files beside it, since LMDB
readers such as Caffe's count every entry.
"""

import mmap
import os
import stat
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import IO, ClassVar

import numpy as np
import numpy.typing as npt

from packer.errors import CorruptPack, InvalidRequest, PackerError, StorageError
from packer.files.safe_paths import open_beneath
from packer.formats import _zip_arrays as zip_arrays
from packer.formats import base
from packer.formats._columns import Array, MappedRecords, Spool, arrays, mapping, opening
from packer.schema import DTYPES, KEY, PIXEL_KINDS, Field, Schema, StoredForm

TABLE = "values.npz"
_FOREIGN, _PLACES = "foreign/", "places"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SHOWN = 10
_PNG_START = b"\x89PNG\r\n\x1a\n"  # of a file: a codec that keeps files says its suffix
_MATRIX = "matrix"  # of a pack whose images were moved, from the source's pixels to those that are stored
_PLACED = ("boxes", "points")
_BUFFER_BYTES = 1 << 20
_SPAN = Struct("<qq")
Places = npt.NDArray[np.int64]  # offset and size of one value after the other


_WHOLE = tuple(dtype for dtype in DTYPES if "int" in dtype or dtype == "bool")

IMAGE = base.Slot("image", "an image", lambda field: field.kind == "image", is_file=True)
LABEL = base.Slot(
    "label",
    "one whole number",
    lambda field: field.kind == "number" and field.shape == () and field.dtype in _WHOLE,
)


def in_slot_image(schema: Schema) -> tuple[str, ...]:
    """The held field of a layout that holds images alone."""
    return tuple(field.name for field in schema if field.slot == "image")


def holds_files(schema: Schema, name: str) -> bool:
    """Whether the values of an image field are files that other programs open."""
    return bool(schema.stored_form(name).suffixes(_PNG_START))


@dataclass(frozen=True)
class ForeignLayout:
    """What lies in a part of a format.

    tool: whose files they are, for messages. data: the file that holds the values, or the folder of such files.
    others: further files of the tool. held: the fields of a schema whose encoded values stand in `data` as they are.
    has_places: whether values.npz says where they stand; False where that follows from the row.
    held_before: as held, of parts that were written before another field stood in `data` otherwise; None for no such.
      A part is told by the arrays of its values.npz.
    """

    tool: str
    data: str
    others: tuple[str, ...]
    held: Callable[[Schema], tuple[str, ...]]
    has_places: bool = True
    held_before: Callable[[Schema], tuple[str, ...]] | None = None

    def held_by_parts(self, schema: Schema) -> list[tuple[str, ...]]:
        """What `data` holds in the parts that may be found: those of today first."""
        today = self.held(schema)
        before = self.held_before(schema) if self.held_before is not None else today
        return [today] if before == today else [today, before]

    def tables(self, schema: Schema, held: Sequence[str]) -> tuple[Schema, Schema]:
        """What values.npz holds: the other fields, and the places of those in `data`."""
        shape = (len(held), 2)
        form = StoredForm(("int64", shape), suffixes=lambda value: ())
        places = (Field(_PLACES, "number", "number", "int64", shape),) if self.has_places else ()
        return schema.select([name for name in schema.names if name not in held]), Schema(
            places, form_of=lambda field: form
        )

    def named(self, schema: Schema, held: Sequence[str]) -> Iterator[tuple[str, Schema]]:
        """Each with what the names of its arrays begin with."""
        return zip(("", _FOREIGN), self.tables(schema, held), strict=True)


class ForeignWriter(base.Writer):
    """Writes the tool's file through a subclass, and spools the rest until the end.

    A subclass has `layout`, makes its files in `_begin` by `_make`, appends to them in `_append`, and ends them in
    `_complete`. It says where the values of a row lie, by `_place`, row after row, before `_complete` returns.
    """

    layout: ClassVar[ForeignLayout]
    order: ClassVar[base.Order] = "shuffled"
    instead_of_raw: ClassVar[Mapping[str, str]] = {"image": "png", "mask": "png", "depth": "npy"}
    needs_label: ClassVar[bool] = False  # whether a record must have a label, so that it is 0 where no field is one

    @classmethod
    @abstractmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        """Field -> what the tool's records call it, of those that the tool will find."""

    @classmethod
    def notes(cls, schema: Schema) -> tuple[str, ...]:
        """What the tool will find, what stands beside it in values.npz alone, and that it finds no names of classes."""
        shown = cls.shown(schema)
        found = ", ".join(name if name == called else f"{called}={name}" for name, called in shown.items())
        beside = [field.name for field in schema if field.name not in shown and not field.hidden]
        more = ["..."] * (len(beside) > _SHOWN)
        if any(slot.name == "label" for slot in cls.slots) and schema.in_slot("label") is None and cls.needs_label:
            found += ", label 0 for all, since no field is the label: --slot label=FIELD names one"
        rest = f"; kept beside, where it does not look: {', '.join([*beside[:_SHOWN], *more])}" if beside else ""
        named = [name for name in shown if schema[name].classes is not None]
        classes = (f"{', '.join(named)}: class numbers; the names of the classes are in packer.json alone",)
        return (f"{cls.layout.tool} will find: {found}{rest}", *classes[: len(named)], *cls._about_pixels(schema))

    @classmethod
    def _about_pixels(cls, schema: Schema) -> Iterator[str]:
        """A note on each image of the records that no tool can open, since that was asked for."""
        for name in cls.images_of_tool(schema):
            if not holds_files(schema, name):
                instead = cls.instead_of_raw[schema[name].kind]
                yield (
                    f"{cls.layout.tool} cannot open {name}: pixels of codec {schema[name].codec} are no file; --codec "
                    f"{name}={instead} stores files"
                )

    @classmethod
    def images_of_tool(cls, schema: Schema) -> tuple[str, ...]:
        """All images that it will find, but of N5, which holds pixels."""
        if not any(slot.is_file for slot in cls.slots):
            return ()
        return tuple(name for name in cls.shown(schema) if schema[name].kind in PIXEL_KINDS)

    @classmethod
    def refusal(cls, schema: Schema) -> str | None:
        """Keys alone; or labels, which stay in the source's pixels, beside images that were moved."""
        shown = cls.shown(schema)
        if all(field.hidden or field.name == KEY for field in schema) and KEY not in cls.layout.held(schema):
            return f"{cls.layout.tool} would find no field in a pack of keys alone: name some more with --fields"
        moved = [name for name in shown if schema[name].kind in _PLACED]
        if not moved or _MATRIX not in schema:
            return None
        return (
            f"{', '.join(moved)}: of the source's pixels, which --resize and --exif rotate move, and {cls.layout.tool} "
            "would find them as they were: leave them out with --fields, or pack the original files as they are"
        )

    @classmethod
    def misfit(cls, schema: Schema, record: base.Record) -> tuple[str, str] | None:
        """A label out of the range of the tool's records."""
        label = schema.in_slot("label")
        number = _whole_label(schema, record)
        if label is None or number is None or number in cls.labels:
            return None
        reason = (
            f"label {number}: records of {cls.layout.tool} hold {cls.labels.start:,} to {cls.labels.stop - 1:,}; name "
            "another --slot label"
        )
        return label.name, reason

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        super().__init__(path, schema, payload_bytes=payload_bytes)
        self._samples = 0
        self._finished = False
        self._files: list[IO[bytes]] = []
        self._held = self.layout.held(schema)
        for slot in self.slots:
            if slot.is_needed and schema.in_slot(slot.name) is None:
                raise InvalidRequest(f"{path}: no field has the slot {slot.name}: --slot {slot.name}=FIELD names one")
        self._spools: tuple[dict[str, Spool], dict[str, Spool]] | None = None
        try:
            os.mkdir(path)
        except FileExistsError as error:
            raise InvalidRequest(f"{path}: a part must be new, found a file or folder; remove it") from error
        except OSError as error:
            raise StorageError(f"{path}: cannot make the part: {error.strerror}; choose another folder") from error
        values, places = self.layout.tables(schema, self._held)
        self._spools = (
            {name: Spool(values, name, path) for name in values.names},
            {name: Spool(places, name, path) for name in places.names},
        )
        with self._failing():
            self._begin(payload_bytes)

    # ---- what a subclass does

    @abstractmethod
    def _begin(self, payload_bytes: int) -> None:
        """Make the tool's files; raises OSError, StorageError."""

    @abstractmethod
    def _append(self, row: int, values: Mapping[str, bytes]) -> None:
        """Append one record, every field in it; raises OSError, StorageError, InvalidRequest."""

    def _complete(self) -> None:
        """End the tool's files, which are closed then; raises OSError, StorageError."""

    def _make(self, name: str) -> IO[bytes]:
        """A new file of the part, closed with it; raises OSError."""
        file = (self.path / name).open("xb", buffering=_BUFFER_BYTES)
        self._files.append(file)
        return file

    def _place(self, spans: Sequence[tuple[int, int]]) -> None:
        """Offset and size of the values of the next row in the tool's file, in the order of `_held`."""
        self._checked()[1][_PLACES].add(b"".join([_SPAN.pack(*span) for span in spans]))

    # ---- what others ask

    def write(self, record: base.Record) -> None:
        spools = self._checked()
        values = {name: bytes(record[name]) for name in self.schema.names}
        if misfit := self.misfit(self.schema, values):
            raise InvalidRequest(f"{self.path}: {misfit[1]}")
        self._check(values)
        with self._failing():
            self._append(self._samples, values)
            for table in spools:
                for name, spool in table.items():
                    if table is spools[0]:
                        spool.add(values[name])
                    spool.settle()
        self._samples += 1

    def _check(self, values: Mapping[str, bytes]) -> None:
        """Raise InvalidRequest for a record that the layout cannot hold, before anything of it is written."""

    def finish(self) -> None:
        if self._finished:
            return
        spools = self._checked()
        try:
            with self._failing():
                self._complete()
                for file in self._files:
                    file.close()
                self._save(spools)
        finally:
            self.close()
        self._finished = True

    def _save(self, spools: tuple[dict[str, Spool], dict[str, Spool]]) -> None:
        contents = {}
        for (prefix, _), table in zip(self.layout.named(self.schema, self._held), spools, strict=True):
            for spool in table.values():
                for array, content in spool.contents(self._samples):
                    contents[f"{prefix}{array.name('.')}"] = (array, content)
        zip_arrays.save(self.path / TABLE, contents, schema=self.schema, samples=self._samples)

    def close(self) -> None:
        for file in self._files:
            with suppress(OSError):  # what a full disk did not take; the part is not complete, or was closed before
                file.close()
        for table in self._spools or ():
            for spool in table.values():
                spool.close()
        self._spools = None

    def _checked(self) -> tuple[dict[str, Spool], dict[str, Spool]]:
        if self._spools is None:
            raise InvalidRequest(f"{self.path}: the part is closed; write it anew")
        return self._spools

    def _label_of(self, values: Mapping[str, bytes]) -> int:
        """The whole number in the slot label; 0 where no field is, or one of other numbers."""
        return _whole_label(self.schema, values) or 0

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Close the part where the block fails, since half a record may be written; an OSError is a StorageError."""
        try:
            yield
        except PackerError:
            self.close()
            raise
        except OSError as error:
            self.close()
            cause = error.strerror or str(error)
            raise StorageError(f"{self.path}: cannot write: {cause}; free space or choose another folder") from error


class ForeignReader(base.Reader):
    """Maps values.npz and the tool's file; values are slices of them."""

    layout: ClassVar[ForeignLayout]
    is_folder = True

    @classmethod
    def side_files(cls, schema: Schema) -> Sequence[str]:
        return cls.layout.others

    def __init__(self, path: Path, schema: Schema, *, samples: int, readahead: bool = True) -> None:
        super().__init__(path, schema, samples=samples, readahead=readahead)
        self._view: memoryview | None = None
        with (
            opening(path),
            _folder(path) as folder,
            _file(folder, TABLE) as file,
            mapping(path / TABLE, file.fileno(), readahead=readahead) as mapped,
        ):
            held, rows, places = self._tables(mapped, file)
            self._columns = {name: 2 * at for at, name in enumerate(held)}
            try:
                self._view = self._data(folder, places, readahead=readahead)
            except BaseException:
                rows.close()  # or the file could not be unmapped
                raise
        self._places = places.data
        self._width = 2 * len(self._columns)
        self._rows = rows

    def _tables(self, mapped: mmap.mmap, file: IO[bytes]) -> tuple[tuple[str, ...], MappedRecords, Places]:
        """The fields in the tool's file, the others, mapped, and a copy of the places of the former, flat."""
        path = self.path / TABLE
        candidates = self.layout.held_by_parts(self.schema)
        named = [
            [
                (table, {f"{prefix}{array.name('.')}": array for array in self._arrays(table)})
                for prefix, table in self.layout.named(self.schema, held)
            ]
            for held in candidates
        ]
        wanted = [{**of_values, **of_places} for (_, of_values), (_, of_places) in named]
        at, spans = zip_arrays.places_of_either(path, mapped, file, wanted, schema=self.schema, samples=self.samples)
        (values, of_values), (_, of_places) = named[at]
        places = np.empty(0, np.int64)
        for span in (spans[name] for name in of_places):  # one, or none
            places = np.frombuffer(mapped, "<i8", span.size_bytes // 8, span.offset).astype(np.int64)
        spans_of_values = {array: spans[name] for name, array in of_values.items()}
        return candidates[at], MappedRecords(path, mapped, schema=values, places=spans_of_values), places

    def _arrays(self, table: Schema) -> Iterator[Array]:
        return (array for name in table.names for array in arrays(table, name, self.samples))

    def _data(self, folder: int, places: Places, *, readahead: bool) -> memoryview:
        """The tool's file, once every value is known to lie in it; raises OSError, CorruptPack."""
        path = self.path / self.layout.data
        with _file(folder, self.layout.data) as file:
            size = os.fstat(file.fileno()).st_size
            self._check_places(places, size)
            if not size:  # of no samples
                return memoryview(b"")
            with mapping(path, file.fileno(), readahead=readahead) as mapped:
                if len(mapped) < size:
                    raise CorruptPack(f"{path}: was cut while it was opened; copy the pack again")
                return memoryview(mapped)

    def _check_places(self, places: Places, size: int) -> None:
        """Raise CorruptPack unless all values lie in the file, and have no more bytes together than it has."""
        offsets, sizes = places[0::2], places[1::2]
        inside = (offsets >= 0) & (offsets <= size) & (sizes >= -size) & (sizes <= size)
        outside = np.flatnonzero(~inside | (offsets + np.abs(sizes) > size))
        if len(outside):
            at = int(outside[0])
            raise CorruptPack(
                f"{self.path / self.layout.data}: row {at // len(self._columns)}: a value of {sizes[at]} bytes at "
                f"{offsets[at]} lies outside the file, which has {size}; copy or pack it again"
            )
        total = float(np.abs(sizes).sum(dtype=np.float64))
        if total > size:
            raise CorruptPack(
                f"{self.path / self.layout.data}: values have {total:.0f} bytes together, the file {size}; pack again"
            )

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        view = self._view
        if view is None:
            raise InvalidRequest(f"{self.path}: the reader is closed; open it again")
        return {name: self._value(view, name, row) for name in names}

    def values(self, rows: Sequence[int], name: str) -> Sequence[base.Buffer]:
        view = self._view
        if view is None:
            raise InvalidRequest(f"{self.path}: the reader is closed; open it again")
        if name not in self._columns:
            return self._rows.values(rows, name)
        return [self._value(view, name, row) for row in rows]

    def _value(self, view: memoryview, name: str, row: int) -> base.Buffer:
        column = self._columns.get(name)
        if column is None:
            return self._rows.values((row,), name)[0]
        at = row * self._width + column
        offset, size = self._places[at], self._places[at + 1]
        if size < 0:
            return self._joined(view[offset : offset - size], row)
        return view[offset : offset + size]

    def _joined(self, span: memoryview, row: int) -> bytes:
        """A value that does not stand in the tool's file in one piece; raises CorruptPack."""
        raise CorruptPack(f"{self.path}: row {row}: a value in pieces, which {self.layout.tool} has not; pack again")

    def files(self) -> Iterator[bytes]:
        for name in (TABLE, self.layout.data, *self.layout.others):
            yield name.encode()

    def close(self) -> None:
        self._view = None
        self._rows.close()


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    """A descriptor of the part; raises OSError where it is a link, or no folder."""
    descriptor = os.open(path, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _file(folder: int, name: str) -> IO[bytes]:
    """A plain file of the part; raises OSError, CorruptPack."""
    file = os.fdopen(open_beneath(folder, name.encode()), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise CorruptPack(f"{name}: expected a file, found a folder or a device; copy the pack again")
    return file


def _whole_label(schema: Schema, record: base.Record) -> int | None:
    """The whole number in the slot label; None where no field is, or one of other numbers."""
    label = schema.in_slot("label")
    if label is None or not LABEL.fits(label):
        return None
    return int.from_bytes(record[label.name], "little", signed=str(label.dtype).startswith("int"))
