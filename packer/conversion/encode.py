"""Encode: converts one sample of a source to one record of a pack.

`RecordEncoder` in pack_source.py converts records of another pack.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from packer import codecs, formats, images
from packer.codecs.base import Codec
from packer.conversion.plan import Plan
from packer.conversion.stored_schema import ORIENTATION, SOURCE_SIZE
from packer.errors import BadInput, CorruptRecord, DamagedImage, PackerError, naming_memory
from packer.files.npy_arrays import npy_file
from packer.geometry import View, identity, move_values, upright
from packer.images import MAX_PIXELS, Header, loses_alpha, restart_interval_table
from packer.images.field_decoder import HeaderCache
from packer.pack.field_row_relations import check_rows
from packer.pack.label_orientation import ImageFrame, labels_are_upright
from packer.pack.sample_index import ColumnEntries
from packer.schema import MATRIX, PIXEL_KINDS, Buffer, Field
from packer.sources._message_texts import shown
from packer.sources._text_value_parsers import check_boxes
from packer.sources.base import UNTAKEN, Sample, sample_name

_LOSSY = "jpeg:95"
SKIP_ADVICE = "; --on-error skip leaves it out"  # the end of the message for a sample that cannot be packed


class Encoded(NamedTuple):
    """Encoded sample with the entries for the index and the manifest.

    Attributes:
        key: the encoded key.
        record: the encoded value of each field, in schema order.
        entries: the entries in the columns of the index; see `ColumnEntries`.
        crc32s: the CRC-32 of each encoded value, in schema order.
        source_bytes: the bytes of the sample in the source.
        incomplete: the reason why a field has no value, or None if the sample is complete.
        findings: lines on suspicious values. `convert` reports each line once, with the number of samples.
    """

    key: bytes
    record: Mapping[str, bytes]
    entries: Mapping[str, Buffer]
    crc32s: tuple[int, ...]
    source_bytes: int
    incomplete: str | None = None
    findings: Sequence[str] = ()


class Record(NamedTuple):
    """Encoded values of one sample.

    Attributes:
        values: the encoded value of each field, in schema order.
        notes: the reasons why the sample is incomplete; empty if the sample is complete.
        findings: lines on suspicious values.
    """

    values: dict[str, bytes]
    notes: Sequence[str] = ()
    findings: Sequence[str] = ()


class Failure(NamedTuple):
    """Sample that cannot be packed. `reason` is one line that begins with the file name."""

    key: str
    reason: str


class _Image(NamedTuple):
    """Main image of a sample, with the notes on the sample. `orientation` is that of EXIF.

    Attributes:
        header: the header of the file; None if the image is an array.
        notes: the reasons why the sample is incomplete.
        findings: lines on suspicious values.
        turned_alike: the names of sidecars whose files have the EXIF orientation of the main image.
        frame: the size, the EXIF orientation, and the size of the image that the label file states.
    """

    height: int
    width: int
    orientation: int
    header: Header | None
    notes: list[str]
    findings: list[str]
    turned_alike: set[str]
    frame: ImageFrame


_SHAPE_TOLERANCE = 0.02  # of the ratio of the sides, which resizing rounds
_TOLERANCE_PX = 1.0  # of boxes, which are rounded
_NAME_LENGTH = 80  # characters of a name in a note

# Steps receive the encoder as an argument. A step that contains the encoder would form a reference cycle with it. Then
# files of the source would stay open until the garbage collector runs.
_Step = Callable[["SampleEncoder", Sample, _Image], bytes]


class Encoder(ABC):
    """Base class of encoders for the samples of one plan. Thread-safe. `encoder(index)` encodes one sample."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._main = next((field.name for field in plan.schema if field.kind in PIXEL_KINDS), "")
        self._columns = ColumnEntries(plan.schema)
        self._misfit = formats.load(plan.options.to).Writer.misfit

    def __call__(self, index: int) -> Encoded | Failure:
        """Return the encoded sample. If reading or encoding raises BadInput, return a Failure instead."""
        source = self._plan.source
        try:
            with naming_memory(lambda: sample_name(source, index)):
                record, notes, found = self._record(index)
                entries = self._entries(index, record)
        except BadInput as error:
            return Failure(source.key(index), error.message)
        if misfit := self._misfit(self._plan.schema, record):
            name, reason = misfit
            where = f"{self._where(index, name)}: cannot pack (sample {index}, field {name!r})"
            return Failure(source.key(index), f"{where}: {reason}, or --on-error skip leaves it out")
        crc32s = tuple(map(zlib.crc32, record.values()))
        missing = source.missing(index)
        incomplete = "; ".join([*([missing] if missing else []), *notes]) or None
        return Encoded(record["key"], record, entries, crc32s, self._plan.size(index), incomplete, found)

    def _entries(self, index: int, record: Mapping[str, bytes]) -> Mapping[str, Buffer]:
        entries: dict[str, Buffer] = {}
        name, matrix = "", record.get(MATRIX.name, b"")
        try:
            for name, file, step in self._columns.steps:
                entries[file] = step(record[name], matrix)
        except (BadInput, CorruptRecord) as error:
            raise BadInput(f"{self._where(index, name)}: does not decode: {error.message}{SKIP_ADVICE}") from error
        return entries

    def _where(self, index: int, name: str) -> str:
        return sample_name(self._plan.source, index)

    @abstractmethod
    def _record(self, index: int) -> Record:
        """Return the record of a sample. A bad sample raises BadInput."""


class SampleEncoder(Encoder):
    """Encoder for samples of a source that is not a pack."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._source = plan.source
        self._full = plan.options.validate == "full"
        self._headers = {
            field.name: HeaderCache(plan.options.pixel_limit) for field in plan.schema if field.kind in PIXEL_KINDS
        }
        self._is_stated = plan.source.frame == "stated"
        self._steps: list[tuple[str, _Step]] = [(field.name, self._step(field)) for field in plan.schema]

    def _record(self, index: int) -> Record:
        return self.encode(index, self._source[index])

    def encode(self, index: int, sample: Sample) -> Record:
        """Return the record of `sample`, which is `source[index]`. A bad sample raises BadInput."""
        record = {}
        name = self._main
        try:
            image = self._first_image(index, sample)
            for name, step in self._steps:
                record[name] = step(self, sample, image)
            check_rows(self._plan.schema, sample)
        except BadInput as error:
            where = f"{self.path(index, sample, name)}: cannot pack (sample {index}, field {name!r})"
            raise BadInput(f"{where}: {error.message}{SKIP_ADVICE}") from error
        image.findings.extend(
            f"{shown(name[:_NAME_LENGTH])}: not packed, since no record that was read for the fields has an entry of "
            "that name"
            for name in sample.get(UNTAKEN, ())
        )
        return Record(record, image.notes, image.findings)

    def _first_image(self, index: int, sample: Sample) -> _Image:
        image = self._image(sample[self._main]) if self._main else _no_image()
        return self._with_stated_size(index, image) if self._is_stated and self._main else image

    def path(self, index: int, sample: Sample, name: str) -> str:
        """Return the path of the file that contains field `name` of a sample, for messages."""
        files = sample.get("files")
        return sample_name(self._source, index, files.get(name) if isinstance(files, dict) else None)

    def _step(self, field: Field) -> _Step:
        codec, name = codecs.make(field), field.name
        if field.kind in PIXEL_KINDS:
            return lambda encoder, sample, image: encoder._pixel(field, codec, sample[name], image)
        if field == ORIENTATION:
            return lambda encoder, sample, image: codec.encode(image.orientation)
        if field == MATRIX:
            return lambda encoder, sample, image: codec.encode(encoder._view(image.height, image.width, image).array)
        if field == SOURCE_SIZE:
            return lambda encoder, sample, image: codec.encode(np.asarray([image.height, image.width], np.int64))
        if field.kind == "boxes":
            return lambda encoder, sample, image: codec.encode(encoder._boxes(field, sample[name], image))
        if field.kind == "points" and self._is_placed(field):
            return lambda encoder, sample, image: codec.encode(encoder._placed(field, sample[name], image))
        return lambda encoder, sample, image: codec.encode(sample[name])

    def _with_stated_size(self, index: int, image: _Image) -> _Image:
        """Return the image with the size that the label file states. If its own size differs, add a note."""
        frame = image.frame._replace(stated=self._source.stated_size(index))
        if frame.size_note is not None:
            image.notes.append(frame.size_note)
        return image._replace(frame=frame)

    def _boxes(self, field: Field, values: Any, image: _Image) -> Any:
        check_boxes(values, may_be_exchanged=True)  # packs may contain boxes with exchanged corners
        return self._placed(field, values, image) if self._is_placed(field) else values

    def _is_placed(self, field: Field) -> bool:
        """Return True for boxes, and for points that may be in px of the upright image. Without image, return False."""
        return bool(self._main) and (
            field.kind == "boxes" or field.name in self._source.companions or self._source.frame != "stored"
        )

    def _is_upright(self, field: Field, image: _Image) -> bool:
        """Return True if a field describes the upright image. If this is unknown or not storable, raise BadInput."""
        if image.orientation == 1 or field.name in image.turned_alike:
            return False
        orientation = self._plan.options.labels_orientation
        is_upright = labels_are_upright(self._source, field, image.frame, main=self._main, orientation=orientation)
        if is_upright and field.kind in PIXEL_KINDS and self._plan.options.exif != "rotate":
            raise BadInput(
                f"its image has EXIF orientation {image.orientation}, and it describes the upright image: --exif "
                "rotate stores both upright"
            )
        return is_upright

    def _placed(self, field: Field, values: Any, image: _Image) -> Any:
        if not len(values) and field.name not in self._source.companions:
            return values
        is_upright = self._is_upright(field, image)
        if field.kind == "boxes":
            height, width = image.frame.upright if is_upright else image.frame.stored
            image.findings.extend(_box_findings(field.name, values, height, width))
        return move_values(field, values, image.frame.from_upright) if is_upright else values

    def _look_at_companion(self, field: Field, height: int, width: int, image: _Image) -> None:
        """Add a note if the size of another image of the sample does not fit the main image.

        A sidecar whose orientation contradicts the option labels_orientation raises BadInput.
        """
        is_upright = self._is_upright(field, image)
        if field.name == self._main or not image.height:
            return
        is_turned, shown = image.frame.is_transposed, image.frame.upright
        here = shown if is_upright else (image.height, image.width)
        other = shown if here != shown else (image.height, image.width)
        is_ours = field.name in self._source.companions  # --labels-orientation applies to these fields
        if is_ours and is_turned and here[0] != here[1] and (height, width) == other:
            raise BadInput(
                f"it is {width}x{height}, its image {here[1]}x{here[0]} with --labels-orientation "
                f"{self._plan.options.labels_orientation}: it has the other orientation; give that, or fix the file"
            )
        if abs(height * here[1] - width * here[0]) > _SHAPE_TOLERANCE * max(height * here[1], width * here[0]):
            image.notes.append(
                f"{field.name} is {width}x{height}, its image {here[1]}x{here[0]}: another shape, which geometries "
                "stretch over it"
            )
        elif (height, width) != here:
            image.findings.append(
                f"{field.name}: another size than the image; --resize and geometries store all fields in one size"
            )

    def _look(self, field: str, value: bytes) -> Header:
        header = self._headers[field].of(value)
        if header.height * header.width > MAX_PIXELS:  # again for each image: less memory may be free
            header.check_limits(self._plan.options.pixel_limit)
        return header

    def _image(self, value: Any) -> _Image:
        header = self._look(self._main, value) if isinstance(value, bytes) else None
        height, width = value.shape[:2] if header is None else (header.height, header.width)
        orientation = 1 if header is None else header.orientation
        return _Image(height, width, orientation, header, [], [], set(), ImageFrame((height, width), orientation))

    def _view(self, height: int, width: int, image: _Image, field: Field | None = None) -> View:
        view = identity(height, width)
        if self._plan.options.exif == "rotate" and not (field is not None and self._is_upright(field, image)):
            view = upright(image.orientation, height, width)
        if self._plan.resize is not None:
            view = view.then(self._plan.resize.view(*view.size))
        return view

    def _pixel(self, field: Field, codec: Codec, value: Any, image: _Image) -> bytes:
        if not isinstance(value, bytes):
            return self._computed(field, codec, value, image)
        header = image.header if field.name == self._main and image.header else self._look(field.name, value)
        if field.name in self._source.companions:
            _check_orientation(header, image)
            if header.orientation == image.orientation:
                image.turned_alike.add(field.name)
        self._look_at_companion(field, header.height, header.width, image)
        if field.kind == "mask" and loses_alpha(value, header):
            image.findings.append(f"{field.name}: the alpha channel, which is dropped, differs within one gray value")
        if field.kind == "depth":
            _check_invalid(field, header)
        view = self._view(header.height, header.width, image, field) if self._plan.moves_pixels else None
        if view is not None and view.is_identity(header.height, header.width):
            view = None
        if codec.keeps_files and view is None:
            images.validate(value, field.kind, wide=field.is_wide_mask, full=self._full, header=header)
            if note := _false_table(field, value, header):
                image.notes.append(note)
            return codec.encode(value)
        if view is None and (stored := codec.encode_file(value, header)) is not None:
            return stored
        array = np.ascontiguousarray(codec.pixels(value, view, header=header))  # a rotated image is not contiguous
        return stored_bytes(field, codec, array, lossy=header.lossy, plan=self._plan)

    def _computed(self, field: Field, codec: Codec, value: Any, image: _Image) -> bytes:
        from packer.geometry.warp import warp  # imports OpenCV

        height, width = value.shape[:2]
        limit = self._plan.options.pixel_limit
        if height * width > limit:
            raise BadInput(
                f"field {field.name!r}: {width}x{height} px, the limit is {limit} px; raise it: --max-pixels N"
            )
        self._look_at_companion(field, height, width, image)
        view = self._view(height, width, image, field)
        if not view.is_identity(height, width):
            value = np.ascontiguousarray(warp(value, view, field.kind, invalid=field.invalid))
        return stored_bytes(field, codec, value, lossy=False, plan=self._plan)


def _box_findings(name: str, boxes: Any, height: int, width: int) -> Iterator[str]:
    """Yield a note if boxes (N, 4) exceed the image, and a note if boxes do not seem to be in px."""
    if not len(boxes):
        return
    if boxes.min() >= 0 and boxes.max() <= 1:
        yield f"{name}: all boxes are within 0 to 1; kind boxes is x0 y0 x1 y1 in px: multiply shares by the size"
    if boxes.min() < -_TOLERANCE_PX or (boxes[:, 2:] > (width + _TOLERANCE_PX, height + _TOLERANCE_PX)).any():
        yield f"{name}: boxes reach out of the image"


def _check_orientation(header: Header, image: _Image) -> None:
    if header.orientation not in (1, image.orientation):
        raise BadInput(
            f"it has EXIF orientation {header.orientation}, the sample's first image {image.orientation}, which "
            "turns all images of the sample: turn the files upright, or pack one of them as bytes"
        )


def _check_invalid(field: Field, header: Header) -> None:
    """Raise BadInput if the dtype of a file cannot represent `field.invalid`."""
    if field.invalid is not None and np.dtype(header.dtype).kind in "iu":
        bounds = np.iinfo(header.dtype)
        if field.invalid != int(field.invalid) or not bounds.min <= field.invalid <= bounds.max:
            raise BadInput(
                f"its samples are {header.dtype}, which have no {field.invalid:g} for a missing pixel; name the value "
                "that they have for it, or none"
            )


def _false_table(field: Field, value: bytes, header: Header) -> str | None:
    """Return a note if the table of restart intervals in a JPEG file is wrong, or None. Readers ignore wrong tables."""
    try:
        restart_interval_table.check_table(value, header)
    except DamagedImage:
        return f"the table of restart intervals in {field.name} is not that of its data: kept, and not used"
    return None


def _no_image() -> _Image:
    return _Image(0, 0, 1, None, [], [], set(), ImageFrame((0, 0), 1))


def stored_bytes(field: Field, codec: Codec, array: Any, *, lossy: bool, plan: Plan) -> bytes:
    """Return the encoded value of `array`, the decoded pixels of an image.

    If the codec stores image files, or if a default codec would make a lossless image lossy, return `as_file(array)`.
    Otherwise, return the value that `codec` encodes.

    Args:
        codec: the codec of the field.
        array: the pixels (H, W, 3) or (H, W).
        lossy: True if the original image file is lossy.
    """
    if field.is_wide_mask and array.dtype == np.uint8:
        array = array.astype(np.uint16)
    unasked = codec.lossy and codec.any_image and field.name in plan.defaulted
    if codec.keeps_files or (unasked and not lossy):
        return as_file(field, array, lossy=lossy)
    return codec.encode(array)


def as_file(field: Field, array: Any, *, lossy: bool) -> bytes:
    """Return the bytes of a file: .npy for depth, JPEG for an image if `lossy` is true, otherwise PNG."""
    if field.kind == "depth":
        return npy_file(np.ascontiguousarray(array))
    codec = _LOSSY if lossy and field.kind == "image" else "png"
    shape = (None, None, 3) if field.kind == "image" else (None, None)
    try:
        dtype = "uint16" if field.is_wide_mask else "uint8"
        return codecs.make(replace(field, codec=codec, dtype=dtype, shape=shape)).encode(array)
    except PackerError as error:
        raise BadInput(f"cannot be stored as {codec}: {error}") from error
