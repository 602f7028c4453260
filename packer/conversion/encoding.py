"""Encoder: one sample of a source -> its record, with everything that the index needs to know of it."""

import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from packer import codecs, decoders
from packer.codecs.base import Codec
from packer.conversion.plan import MATRIX, ORIENTATION, SOURCE_SIZE, Plan
from packer.errors import BadInput, PackerError
from packer.geometry import View, identity, upright
from packer.schema import PIXEL_KINDS, Field
from packer.sources.base import Sample

_LOSSY = "jpeg:95"


@dataclass(frozen=True)
class Encoded:
    """A sample ready to be written. crc32s are in schema order; source_bytes is what was read for it;
    incomplete says what its files lack."""

    key: bytes
    record: Mapping[str, bytes]
    crc32s: tuple[int, ...]
    source_bytes: int
    incomplete: str | None = None


@dataclass(frozen=True)
class Failure:
    """A sample that cannot be packed, and why, in one line that begins with the file."""

    key: str
    reason: str


@dataclass(frozen=True)
class _Picture:
    """What the sample's first pixel field says: its size and EXIF orientation."""

    height: int
    width: int
    orientation: int


class Encoder:
    """Encodes samples of one plan; shared by threads."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._source = plan.source
        self._codecs: dict[str, Codec] = {field.name: _codec(field) for field in plan.schema}
        self._pixels = [field for field in plan.schema if field.kind in PIXEL_KINDS]
        self._full = plan.options.validate == "full"

    def __call__(self, index: int) -> Encoded | Failure:
        """Encode one sample; a damaged or unfitting file becomes a Failure, anything unexpected is raised."""
        try:
            return self._encode(index)
        except BadInput as error:
            return Failure(self._source.key(index), str(error))

    def _encode(self, index: int) -> Encoded:
        sample = self._source[index]
        picture = self._picture(index, sample)
        record: dict[str, bytes] = {}
        for field in self._plan.schema:
            try:
                record[field.name] = self._field(field, sample, picture)
            except BadInput as error:
                where = self._path(index, sample, field.name)
                raise BadInput(
                    f"{where}: cannot pack (sample {index}, field {field.name!r}): {error}; "
                    "--on-error skip leaves it out"
                ) from error
        crc32s = tuple(map(zlib.crc32, record.values()))
        incomplete = self._source.missing(index)
        return Encoded(record["key"], record, crc32s, int(self._plan.sizes[index]), incomplete)

    def _path(self, index: int, sample: Sample, name: str) -> str:
        files = sample.get("files")
        if isinstance(files, dict) and name in files:
            return str(self._source.root / files[name])
        return str(self._source.files(index)[0])

    def _picture(self, index: int, sample: Sample) -> _Picture | None:
        for field in self._pixels:
            value = sample[field.name]
            try:
                if isinstance(value, bytes):
                    header = decoders.sniff(value)
                    return _Picture(header.height, header.width, header.orientation)
                return _Picture(value.shape[0], value.shape[1], 1)
            except BadInput as error:
                where = self._path(index, sample, field.name)
                raise BadInput(
                    f"{where}: cannot pack (sample {index}, field {field.name!r}): {error}; "
                    "--on-error skip leaves it out"
                ) from error
        return None

    def _field(self, field: Field, sample: Sample, picture: _Picture | None) -> bytes:
        codec = self._codecs[field.name]
        if picture is not None:
            if field.kind in PIXEL_KINDS:
                return self._pixel(field, codec, sample[field.name], picture)
            if field == ORIENTATION:
                return codec.encode(picture.orientation)
            if field == MATRIX:
                return codec.encode(self._view(picture.height, picture.width, picture).array)
            if field == SOURCE_SIZE:
                return codec.encode(np.asarray([picture.height, picture.width], np.int64))
        return codec.encode(sample[field.name])

    def _view(self, height: int, width: int, picture: _Picture) -> View:
        view = identity(height, width)
        if self._plan.options.exif == "rotate":
            view = upright(picture.orientation, height, width)
        if self._plan.resize is not None:
            view = view.then(self._plan.resize.view(*view.size))
        return view

    def _pixel(self, field: Field, codec: Codec, value: Any, picture: _Picture) -> bytes:
        if not isinstance(value, bytes):
            return self._computed(field, codec, value, picture)
        name = field.codec.partition(":")[0]
        header = decoders.sniff(value)
        view = self._view(header.height, header.width, picture)
        moved = not view.is_identity(header.height, header.width)
        if name == "encoded" and not moved:
            decoders.validate(value, field.kind, full=self._full)
            return codec.encode(value)
        array = decoders.decode(value, field.kind, view=view if moved else None, invalid=field.invalid)
        array = np.ascontiguousarray(array)  # a turned picture is a view of the decoded one
        if name == "encoded":
            return _as_file(field, array, lossy=header.lossy)
        if name == "jpeg" and not header.lossy and field.name in self._plan.defaulted:
            return _as_file(field, array, lossy=False)  # nobody asked to make a lossless picture lossy
        return codec.encode(array)

    def _computed(self, field: Field, codec: Codec, value: Any, picture: _Picture) -> bytes:
        from packer.warping import warp  # noqa: PLC0415  brings OpenCV, which packing kept bytes does without

        view = self._view(value.shape[0], value.shape[1], picture)
        if not view.is_identity(value.shape[0], value.shape[1]):
            value = np.ascontiguousarray(warp(value, view, field.kind, invalid=field.invalid))
        if field.codec == "encoded":
            return _as_file(field, value, lossy=False)
        return codec.encode(value)


def _codec(field: Field) -> Codec:
    codec: Codec = codecs.load(field.codec.partition(":")[0]).Codec(field)
    return codec


def _as_file(field: Field, array: Any, *, lossy: bool) -> bytes:
    """The array as an ordinary image file: jpeg where the source was lossy, else png; depth as .npy."""
    if field.kind == "depth":
        file = io.BytesIO()
        np.lib.format.write_array(file, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
        return file.getvalue()
    codec = _LOSSY if lossy and field.kind == "image" else "png"
    shape = (None, None, 3) if field.kind == "image" else (None, None)
    try:
        return _codec(replace(field, codec=codec, dtype="uint8", shape=shape)).encode(array)
    except PackerError as error:
        raise BadInput(f"cannot be stored as {codec}: {error}") from error
