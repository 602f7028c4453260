"""Foreign part: base of the formats of other tools. A part is a folder with a file of the tool and values.npz.

Layout of `part-00000/` (see also `_folder_part`):

| file               | content                                                                                         |
|--------------------|-------------------------------------------------------------------------------------------------|
| file of the tool   | such as data.tfrecord, and the tool's own index: all samples, in order, in the tool's layout    |
| values.npz         | `foreign/places`: int64 [n, fields, 2], offset and size of each value in the tool's file, for   |
|                    | the held fields in the order of the schema. A negative size -k: the value is in several pieces, |
|                    | which span k bytes                                                                              |
|                    | every other field as in `_columns`                                                              |

A field is *held* if the tool's file contains its encoded values unchanged. The part contains each encoded value once:
values of held fields are in the tool's file, all others in values.npz. The reader maps both files and slices them. It
does not parse the tool's records or index, because they may be hostile. If the tool has its own form of a number (a
varint, ASCII digits), its file contains this form, and values.npz contains the encoded value. The tool's file contains
only samples, because LMDB readers such as Caffe's count every entry.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import IO, ClassVar

import numpy as np
import numpy.typing as npt

from packer.errors import CorruptPack, InvalidRequest
from packer.formats import base
from packer.formats._column_part import mapping
from packer.formats._folder_part import TABLE, FolderReader, FolderWriter, Tables, open_file
from packer.schema import DTYPES, KEY, PIXEL_KINDS, Field, Schema, StoredForm

_FOREIGN, _PLACES = "foreign/", "places"
_SHOWN = 10  # names of fields in a note
_PNG_START = b"\x89PNG\r\n\x1a\n"  # start of a file, for which a codec that keeps files returns a suffix
_MATRIX = "matrix"  # the field with a matrix for images that were moved
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
    """Return the name of the field with the slot `image` in a tuple, or an empty tuple if no field has it."""
    return tuple(field.name for field in schema if field.slot == "image")


def holds_files(schema: Schema, name: str) -> bool:
    """Return True if the encoded values of an image field are image files. False if they are raw pixels."""
    return bool(schema.stored_form(name).suffixes(_PNG_START))


@dataclass(frozen=True)
class ForeignLayout:
    """The files of a part.

    Attributes:
        tool: Name of the tool, for messages.
        data: The tool's file with the values of held fields, or a folder of these files.
        others: Further files of the tool.
        held: Function that returns the names of the held fields of a schema.
        has_places: True if values.npz contains the offset and size of each value in `data`. False if a subclass
            computes them from the row.
        held_before: The same function for parts that earlier versions of packer wrote, which are still read. None if
            earlier versions held the same fields.
    """

    tool: str
    data: str
    others: tuple[str, ...]
    held: Callable[[Schema], tuple[str, ...]]
    has_places: bool = True
    held_before: Callable[[Schema], tuple[str, ...]] | None = None

    def held_by_parts(self, schema: Schema) -> list[tuple[str, ...]]:
        """Return the held fields of new parts and, if they differ, the held fields of parts of earlier versions."""
        today = self.held(schema)
        before = self.held_before(schema) if self.held_before is not None else today
        return [today] if before == today else [today, before]

    def tables(self, schema: Schema, held: Sequence[str]) -> Tables:
        """Return the tables of values.npz: the fields that are not `held`, and the places of the values of `held`."""
        shape = (len(held), 2)
        form = StoredForm(("int64", shape), suffixes=lambda value: ())
        places = (Field(_PLACES, "number", "number", "int64", shape),) if self.has_places else ()
        others = schema.select([name for name in schema.names if name not in held])
        return {"": others, _FOREIGN: Schema(places, form_of=lambda field: form)}


class ForeignWriter(FolderWriter):
    """Writes values.npz. A subclass writes the tool's files, and describes them in `layout`.

    The subclass creates its files with `_make` in `_begin`, appends to them in `_append`, and completes them in
    `_complete`. It calls `_place` once for each row, in order, before `_complete` returns.

    Attributes:
        needs_label: True if the tool's records always contain a label. The label is 0 if no field has the slot `label`.
    """

    layout: ClassVar[ForeignLayout]
    order: ClassVar[base.Order] = "shuffled"
    instead_of_raw: ClassVar[Mapping[str, str]] = {"image": "png", "mask": "png", "depth": "npy"}
    needs_label: ClassVar[bool] = False

    @classmethod
    def shown(cls, schema: Schema) -> Mapping[str, str]:
        """Return field -> name in the tool's records for the fields that the tool reads. Default: fields with slots."""
        return {field.name: field.slot for field in schema if field.slot is not None}

    @classmethod
    def notes(cls, schema: Schema) -> tuple[str, ...]:
        """Return notes for the user: which fields the tool reads, which it does not, and where the class names are."""
        shown = cls.shown(schema)
        found = ", ".join(name if name == called else f"{called}={name}" for name, called in shown.items())
        hidden = [field.name for field in schema if field.name not in shown and not field.hidden]
        more = ["..."] * (len(hidden) > _SHOWN)
        if any(slot.name == "label" for slot in cls.slots) and schema.in_slot("label") is None and cls.needs_label:
            found += ", label 0 for all, since no field is the label: --export-as label=FIELD names one"
        rest = (
            f"; in values.npz alone, which it does not read: {', '.join([*hidden[:_SHOWN], *more])}" if hidden else ""
        )
        named = [name for name in shown if schema[name].classes is not None]
        classes = (f"{', '.join(named)}: class numbers; the names of the classes are in packer.json alone",)
        return (f"{cls.layout.tool} will find: {found}{rest}", *classes[: len(named)], *cls._about_pixels(schema))

    @classmethod
    def _about_pixels(cls, schema: Schema) -> Iterator[str]:
        """Yield a note on each image field that the tool cannot open, because it is stored as raw pixels."""
        for name in cls.images_of_tool(schema):
            if not holds_files(schema, name):
                instead = cls.instead_of_raw[schema[name].kind]
                yield (
                    f"{cls.layout.tool} cannot open {name}: pixels of codec {schema[name].codec} are not a file; "
                    f"--codec {name}={instead} stores files"
                )

    @classmethod
    def images_of_tool(cls, schema: Schema) -> tuple[str, ...]:
        if not any(slot.is_file for slot in cls.slots):
            return ()
        return tuple(name for name in cls.shown(schema) if schema[name].kind in PIXEL_KINDS)

    @classmethod
    def refusal(cls, schema: Schema) -> str | None:
        """Return why the tool finds no field, or why points and boxes do not fit moved images; None to accept."""
        shown = cls.shown(schema)
        if all(field.hidden or field.name == KEY for field in schema) and KEY not in cls.layout.held(schema):
            return f"{cls.layout.tool} would find no field in a pack of keys alone: name some more with --fields"
        moved = [name for name in shown if schema[name].kind in _PLACED]
        if not moved or _MATRIX not in schema:
            return None
        return (
            f"{', '.join(moved)}: in pixels of the source images, but --resize or --exif rotate moves the pixels that "
            f"{cls.layout.tool} would find: leave them out with --fields, or pack the original files unchanged"
        )

    @classmethod
    def misfit(cls, schema: Schema, record: base.Record) -> tuple[str, str] | None:
        """If the label is outside the range of the tool's records, return the label's field and a reason, else None."""
        label = schema.in_slot("label")
        number = _whole_label(schema, record)
        if label is None or number is None or number in cls.labels:
            return None
        reason = (
            f"label {number}: records of {cls.layout.tool} hold {cls.labels.start:,} to {cls.labels.stop - 1:,}; name "
            "another --export-as label"
        )
        return label.name, reason

    def __init__(self, path: Path, schema: Schema, *, payload_bytes: int) -> None:
        for slot in self.slots:
            if slot.is_needed and schema.in_slot(slot.name) is None:
                raise InvalidRequest(f"{path}: no field is the {slot.name}: --export-as {slot.name}=FIELD names one")
        self._held = self.layout.held(schema)
        super().__init__(path, schema, payload_bytes=payload_bytes)

    def _tables(self) -> Tables:
        return self.layout.tables(self.schema, self._held)

    def _make(self, name: str) -> IO[bytes]:
        """Create a file of the part and open it. It is closed together with the part. Raises OSError."""
        return self._own((self.path / name).open("xb", buffering=_BUFFER_BYTES))

    def _place(self, spans: Sequence[tuple[int, int]]) -> None:
        """Store the offset and size of each held value of the next row, in the order of `_held`."""
        self._open_spools()[_FOREIGN][_PLACES].add(b"".join([_SPAN.pack(*span) for span in spans]))

    def write(self, record: base.Record) -> None:
        self._open_spools()
        if misfit := self.misfit(self.schema, record):
            raise InvalidRequest(f"{self.path}: {misfit[1]}")
        super().write(record)

    def _label_of(self, values: Mapping[str, bytes]) -> int:
        """Return the whole number of the field with the slot `label`; 0 if no field has the slot."""
        return _whole_label(self.schema, values) or 0


class ForeignReader(FolderReader):
    """Maps values.npz and the tool's file. Values are slices of these two files."""

    layout: ClassVar[ForeignLayout]
    _view: memoryview | None = None

    @classmethod
    def side_files(cls, schema: Schema) -> Sequence[str]:
        return cls.layout.others

    def _layouts(self) -> Sequence[Tables]:
        return [self.layout.tables(self.schema, held) for held in self.layout.held_by_parts(self.schema)]

    def _open(self, folder: int, layout: int, *, readahead: bool) -> None:
        held = self.layout.held_by_parts(self.schema)[layout]
        self._columns = {name: 2 * at for at, name in enumerate(held)}
        self._width = 2 * len(held)
        places = np.empty(0, np.int64)
        if self.layout.has_places:
            places = np.frombuffer(self._rows[_FOREIGN].block(_PLACES, self.samples), "<i8").astype(np.int64)
        self._places = places.data
        self._view = self._data(folder, places, readahead=readahead)

    def _data(self, folder: int, places: Places, *, readahead: bool) -> memoryview:
        """Map the tool's file. Raises OSError, and CorruptPack if a value is outside of the file."""
        path = self.path / self.layout.data
        with open_file(folder, self.layout.data) as file:
            size = os.fstat(file.fileno()).st_size
            self._check_places(places, size)
            if not size:  # without samples
                return memoryview(b"")
            with mapping(path, file.fileno(), readahead=readahead) as mapped:
                if len(mapped) < size:
                    raise CorruptPack(f"{path}: was cut while it was opened; copy the pack again")
                return memoryview(mapped)

    def _check_places(self, places: Places, size: int) -> None:
        """Raise CorruptPack if a value is outside the file, or if all values together are larger than the file."""
        offsets, sizes = places[0::2], places[1::2]
        inside = (offsets >= 0) & (offsets <= size) & (sizes >= -size) & (sizes <= size)
        outside = np.flatnonzero(~inside | (offsets + np.abs(sizes) > size))
        if len(outside):
            at = int(outside[0])
            raise CorruptPack(
                f"{self.path / self.layout.data}: row {at // len(self._columns)}: a value of {sizes[at]} bytes at "
                f"{offsets[at]} is outside the file, which has {size}; copy or pack it again"
            )
        total = float(np.abs(sizes).sum(dtype=np.float64))
        if total > size:
            raise CorruptPack(
                f"{self.path / self.layout.data}: values have {total:.0f} bytes together, the file {size}; pack again"
            )

    def read(self, row: int, names: Sequence[str]) -> base.Record:
        view = self._opened_view()
        return {name: self._value(view, name, row) for name in names}

    def values(self, rows: Sequence[int], name: str) -> Sequence[base.Buffer]:
        view = self._opened_view()
        if name not in self._columns:
            return self._rows[""].values(rows, name)
        return [self._value(view, name, row) for row in rows]

    def _opened_view(self) -> memoryview:
        if self._view is None:
            raise InvalidRequest(f"{self.path}: the reader is closed; open it again")
        return self._view

    def _value(self, view: memoryview, name: str, row: int) -> base.Buffer:
        column = self._columns.get(name)
        if column is None:
            return self._rows[""].values((row,), name)[0]
        at = row * self._width + column
        offset, size = self._places[at], self._places[at + 1]
        if size < 0:
            return self._joined(view[offset : offset - size], row)
        return view[offset : offset + size]

    def _joined(self, span: memoryview, row: int) -> bytes:
        """Return a value whose pieces are in `span`. Raises CorruptPack, also for tools that never split a value."""
        raise CorruptPack(f"{self.path}: row {row}: {self.layout.tool} never split a value into pieces; pack again")

    def files(self) -> Iterator[bytes]:
        for name in (TABLE, self.layout.data, *self.layout.others):
            yield name.encode()

    def close(self) -> None:
        self._view = None
        super().close()


def _whole_label(schema: Schema, record: base.Record) -> int | None:
    """Return the whole number of the field with the slot `label`. None without this field, or if it is not whole."""
    label = schema.in_slot("label")
    if label is None or not LABEL.fits(label):
        return None
    return int.from_bytes(record[label.name], "little", signed=str(label.dtype).startswith("int"))
