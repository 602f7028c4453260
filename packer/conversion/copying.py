"""Copier: one record of a pack -> the record of another, decoding only what changes.

A value whose field keeps its codec is copied as it is, its crc32 checked on the way. What --resize moves and what
--codec names is decoded and encoded anew. Labels in pixels stay as they are: in source pixels. The matrix of the new
pack leads from there to the new stored pixels: the old one, then the new step.
"""

import zlib
from collections.abc import Callable
from functools import partial

import numpy as np

from packer.codecs.base import Codec
from packer.conversion.encoding import Encoded, Encoder, Failure, as_file
from packer.conversion.plan import MATRIX, ORIENTATION, SOURCE_SIZE, Plan
from packer.conversion.repacking import PackSource, is_picture, load_codec
from packer.decoders import sniff
from packer.errors import BadInput, CorruptRecord
from packer.geometry import View, identity
from packer.schema import PIXEL_KINDS, Field

_Values = dict[str, bytes]
_Step = Callable[[_Values], bytes]


def encoder_of(plan: Plan) -> "Encoder | Copier":
    """What makes the records of a plan."""
    return Copier(plan, plan.source) if isinstance(plan.source, PackSource) else Encoder(plan)


class Copier:
    """Makes records of the records of a pack; shared by threads."""

    def __init__(self, plan: Plan, source: PackSource) -> None:
        self._plan = plan
        self._source = source
        self._old = source.schema
        pixels = [field.name for field in plan.schema if field.kind in PIXEL_KINDS]
        self._main = pixels[0] if pixels else None
        self._needed = [name for name in source.schema.names if name in plan.schema]
        self._steps = {field.name: self._step(field) for field in plan.schema}

    def __call__(self, index: int) -> Encoded | Failure:
        """Copy one sample; a damaged value becomes a Failure, anything unexpected is raised."""
        record = {}
        name = "key"
        try:
            values = self._source.values(index, self._needed)
            for name, step in self._steps.items():
                record[name] = step(values)
        except CorruptRecord as error:
            return Failure(
                self._source.key(index),
                f"{self._source.pack.where(self._source.row(index), name)}: does not decode: {error.message}",
            )
        except BadInput as error:
            return Failure(self._source.key(index), error.message)
        crc32s = tuple(map(zlib.crc32, record.values()))
        missing = self._source.missing(index)
        return Encoded(record["key"], record, crc32s, int(self._plan.sizes[index]), missing)

    def _step(self, field: Field) -> _Step:
        """How one field's bytes come about."""
        moved = self._plan.moves_pixels
        codec = load_codec(field)
        if field == MATRIX and (moved or field.name not in self._old):
            return lambda values: codec.encode(self._matrix(values).array)
        if field == SOURCE_SIZE and field.name not in self._old:
            return lambda values: codec.encode(np.asarray(self._size(self._main or "", values), np.int64))
        if field == ORIENTATION and field.name not in self._old:
            return lambda values: codec.encode(self._orientation(values))
        if field.kind in PIXEL_KINDS and (moved or field.codec != self._old[field.name].codec):
            return partial(self._pixels, field, codec)
        if field.codec != self._old[field.name].codec:
            return lambda values: codec.encode(self._source.codecs[field.name].decode(values[field.name]))
        return lambda values: values[field.name]

    def _pixels(self, field: Field, codec: Codec, values: _Values) -> bytes:
        value, old = values[field.name], self._old[field.name]
        size = self._size(field.name, values)
        resize = self._plan.resize
        view = resize.view(*size) if resize is not None else identity(*size)
        stays = view.is_identity(*size)
        if stays and field.codec == old.codec:
            return value
        array = np.ascontiguousarray(self._source.codecs[field.name].decode(value, None if stays else view))
        lossy = sniff(value, old.pixel_limit).lossy if is_picture(old) else False
        is_kept_lossless = field.codec.startswith("jpeg") and not lossy and field.name in self._plan.defaulted
        if field.codec == "encoded" or is_kept_lossless:
            return as_file(field, array, lossy=lossy)
        return codec.encode(array)

    def _matrix(self, values: _Values) -> View:
        """Source pixels -> new stored pixels."""
        size = self._size(self._main or "", values)
        view = identity(*size)
        if MATRIX.name in self._old:
            old = np.asarray(self._source.codecs[MATRIX.name].decode(values[MATRIX.name]))
            view = View(tuple(old.ravel().tolist()), size)
        return view if self._plan.resize is None else view.then(self._plan.resize.view(*size))

    def _size(self, name: str, values: _Values) -> tuple[int, int]:
        """Height and width in px of a stored picture, from its header."""
        shape = self._source.codecs[name].shape(values[name])
        return int(shape[0] or 0), int(shape[1] or 0)

    def _orientation(self, values: _Values) -> int:
        """Of a pack that another program made, without the field."""
        name = self._main or ""
        old = self._old[name]
        return sniff(values[name], old.pixel_limit).orientation if is_picture(old) else 1
