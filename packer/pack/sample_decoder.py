"""Sample decoder: decoded samples of an open pack, as NumPy arrays and plain values, points in output pixels.

It stands on reader.Pack, which finds the part of a sample, reads the stored bytes and compares their checksums. Here
they become pixels and values: warped by a geometry's view, with points and boxes moved along.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import codecs, images
from packer.codecs.base import Codec
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.geometry import BoxRule, Geometry, View, move_values, resized_crop
from packer.images import DCT, DecodeOptions, Decoder, DecoderName, Header, StoredImage
from packer.pack.reader import Pack
from packer.pack.related_rows import RowRelations, Values
from packer.schema import PIXEL_KINDS, Buffer, Field, Schema

Views = tuple[View | None, dict[str, View]]  # of the first image, points and boxes; of images of another size
_NO_VIEWS: Views = (None, {})
_SMALL_FILE_BYTES = 1 << 18  # where calls of the system take as long as the copies: an image of 295 px


class SampleDecoder:
    """Decodes the chosen fields; may be used by many threads.

    The key and the number columns come from the index, which was checked as a whole when the pack was opened. Of all
    other fields `pack` reads and checks the stored bytes, which are decoded here.
    """

    def __init__(
        self,
        pack: Pack,
        names: Sequence[str] | None,
        *,
        decoder: DecoderName = "auto",
        dct: DCT = "accurate",
        boxes: BoxRule | None = None,
    ) -> None:
        """names: fields to decode, None for all that are not hidden; raises UnknownKey for one that is not there.

        boxes: what becomes of those that reach out of the image; raises InvalidRequest where it needs another field.
        """
        if decoder not in images.NAMES:
            raise InvalidRequest(f"decoder={decoder!r}: expected one of {', '.join(images.NAMES)}")
        self.pack = pack
        chosen = names if names is not None else [field.name for field in pack.schema if not field.hidden]
        self.schema: Schema = pack.schema.select(chosen)
        self._stored = [field.name for field in self.schema if not field.is_column and field.name != "key"]
        self._moving = {field.name for field in self.schema if field.moves}
        # a crc32 says that the bytes are those that were validated when packed
        checked = pack.verify != "never"
        # reading without a crc32 is asked for to be fast: the ends of files are looked at, not all of their data
        options = DecodeOptions(
            decoder=decoder,
            dct=dct,
            strict=not checked,
            check_data=False,
            trusted=checked and pack.manifest.validated,
        )
        self._codecs = {name: _codec(pack.schema[name], options, checked=checked) for name in self._stored}
        # of image files the decoder itself, which is all that their codec would call
        self._file_decoders = {name: codec.file_decoder for name, codec in self._codecs.items()}
        self._decode = {name: self._file_decoders[name] or codec.decode for name, codec in self._codecs.items()}
        self._read_header = {
            name: decoder.stored_image if decoder is not None else self._codecs[name].read_header
            for name, decoder in self._file_decoders.items()
        }
        for name, codec in self._codecs.items():
            if codec.has_table:
                pack.add_check(name, codec.check)
        # in the pack's order: points are measured in its first image, whichever the caller names first
        chosen_names = set(self.schema.names)
        self.images = [field.name for field in pack.schema if field.kind in PIXEL_KINDS and field.name in chosen_names]
        # asked once: every batch wants to know
        self.pixel_dtypes = {name: self.schema[name].pixel_dtype for name in self.images}  # asked for in each batch
        self._cast_to = {name: np.dtype(dtype) for name, dtype in self.pixel_dtypes.items() if self._is_cast(name)}
        self._of_fixed_size = {name for name in self.images if self._has_fixed_size(self.schema[name])}
        self._columns = {field.name: pack.index.column(field.name) for field in self.schema if field.is_column}
        self._matrices = pack.index.column("matrix") if "matrix" in pack.schema else None
        self.relations = RowRelations(self.schema, pack.schema, boxes) if boxes is not None else None

    def sample(self, index: int, geometry: Geometry | None = None, random: Sequence[float] = ()) -> dict[str, Any]:
        """All chosen fields of a sample, in their order; raises CorruptRecord. 0 <= index < len(pack).

        geometry: makes the view, of the first image's size and the random numbers.
        """
        sample: dict[str, Any] = {}
        with self.pack.record(index, self._stored) as record:
            stored = {name: self.stored_image(index, name, record[name]) for name in self.images}
            main, others = self.views(index, geometry, stored, random)
            for field in self.schema.fields:
                name = field.name
                if name in record:
                    value, view = record[name], others.get(name, main)
                    sample[name] = self.decode(index, field, value, stored=stored.get(name), view=view)
                else:
                    sample[name] = self.indexed(index, field)
        if self.relations is not None and self.images:
            values = {name: sample[name] for name in self.relations.names}
            sample |= self.ruled(index, self.relations, values, self.shown_size(stored, main))
        return sample

    def shown_size(self, stored: dict[str, StoredImage], main: View | None) -> tuple[int, int]:
        """(height, width) of a sample's first image as it is returned. stored: of its images but fixed shapes."""
        if main is not None:
            return main.size
        name = self.images[0]
        height, width, *_ = stored[name].shape if name in stored else self.schema[name].shape or (0, 0)
        return height or 0, width or 0

    def ruled(self, index: int, relations: RowRelations, values: Values, size: tuple[int, int]) -> Values:
        """The fields in `relations.names` of a sample as its rule of boxes leaves them; raises CorruptRecord.

        size: of the sample's first image, which the boxes are in px of.
        """
        try:
            return relations.ruled(values, size)
        except BadInput as error:  # packed fields fit together
            raise CorruptRecord(f"{self.pack.where(index, self.images[0])}: {error}") from error

    def indexed(self, index: int, field: Field) -> Any:
        """A value that the index holds: the key, or a number (a Python number, or a copied array)."""
        if field.name == "key":
            return self.pack.index.key(index)
        value = self._columns[field.name][index]
        return value.item() if not field.shape else value.astype(field.dtype)

    def is_column(self, name: str) -> bool:
        """Whether the index holds the field's numbers."""
        return name in self._columns

    def column(self, name: str, indices: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """A number column at these samples: a copy in native byte order."""
        values = self._columns[name]
        return values[indices].astype(values.dtype.newbyteorder("="))

    def stored_image(self, index: int, name: str, value: Buffer) -> StoredImage:
        """Shape and header of an image; raises CorruptRecord."""
        try:
            return self._read_header[name](value)
        except (BadInput, CorruptRecord) as error:
            raise self.undecodable(index, name, error) from error

    def views(
        self, index: int, geometry: Geometry | None, stored: dict[str, StoredImage], random: Sequence[float]
    ) -> Views:
        """The view of a sample, made of the size of its first image; raises BadInput, InvalidRequest without a
        image.

        An image of another stored size shows the same part of the scene.
        """
        if geometry is None:
            return _NO_VIEWS
        if not self.images:
            raise InvalidRequest(f"{self.pack.folder}: a geometry needs an image among the fields; add one to fields=")
        height, width, *_ = stored[self.images[0]].shape
        try:
            main = geometry.view(height, width, random)
        except BadInput as error:
            raise BadInput(f"{self.pack.where(index, self.images[0])}: {error}") from error
        if len(stored) == 1:
            return main, {}
        others = {
            name: resized_crop(0, 0, *shape[:2], size=(height, width)).then(main)
            for name, (shape, _) in stored.items()
            if shape[:2] != (height, width)
        }
        return main, others

    def decode(
        self,
        index: int,
        field: Field,
        value: Buffer,
        out: npt.NDArray[Any] | None = None,
        *,
        stored: StoredImage | None = None,
        view: View | None = None,
    ) -> Any:
        """One value in the dtype that samples have it in (`Field.pixel_dtype`), points, boxes and areas in px of what
        is returned. out: as Codec.decode wants it, of that dtype.

        stored: of an image, where the caller has asked. view: as `views` gives it, for pixels, points and boxes alike.
        """
        if field.name in self._moving:
            return self._moved(index, field, self._decoded(index, field, value, None), view)
        header = stored.header if stored is not None else None
        if field.kind not in PIXEL_KINDS:
            view = None
        if field.name not in self._cast_to:
            return self._decoded(index, field, value, out, view=view, header=header)
        decoded = self._decoded(index, field, value, None, view=view, header=header)
        if out is None:
            return decoded.astype(self._cast_to[field.name])
        out[...] = decoded
        return out

    def as_stored(
        self,
        index: int,
        field: Field,
        value: Buffer,
        *,
        view: View | None = None,
        stored: StoredImage | None = None,
    ) -> Any:
        """One value in the dtype that is stored, points and boxes in source px. view, stored: of an image."""
        return self._decoded(index, field, value, None, view=view, header=stored.header if stored is not None else None)

    def _decoded(
        self,
        index: int,
        field: Field,
        value: Buffer,
        out: Any,
        *,
        view: View | None = None,
        header: Header | None = None,
    ) -> Any:
        try:
            return self._decode[field.name](value, view, out, header=header)
        except (BadInput, CorruptRecord) as error:
            raise self.undecodable(index, field.name, error) from error

    def in_place(self, field: Field, value: Buffer) -> npt.NDArray[Any] | None:
        """An image that needs no decoding, as a view of `value`, which ends with it; None for any other."""
        return self._codecs[field.name].in_place(value)

    def decoder(self, field: Field) -> Decoder | None:
        """What decodes an image straight into its place, where `decode` does nothing besides; raises as that does."""
        return self.file_decoder(field) if field.kind == "image" else None

    def file_decoder(self, field: Field) -> Decoder | None:
        """What decodes the files of an image field; None where pixels are stored otherwise."""
        return self._file_decoders[field.name]

    def undecodable(self, index: int, name: str, error: Exception) -> CorruptRecord:
        """The error for a value that does not decode."""
        return CorruptRecord(f"{self.pack.where(index, name)}: does not decode: {error}")

    def _moved(self, index: int, field: Field, decoded: Any, view: View | None) -> Any:
        """Points, boxes or areas from source px to px of the output."""
        if self._matrices is not None:
            stored = View(tuple(self._matrices[index].ravel().tolist()), (1, 1))
            return move_values(field, decoded, (stored.then(view) if view is not None else stored).array)
        return move_values(field, decoded, view.array) if view is not None else decoded

    def is_fixed_size(self, field: Field) -> bool:
        """Whether the stored bytes of an image field are the pixels that a sample has, all of one shape."""
        return field.name in self._of_fixed_size

    @property
    def copies_small_files(self) -> bool:
        """Whether all that is read for a sample is small files of bare pixels: many short calls of the system."""
        if self.pack.is_mapped or any(self._file_decoders[name] is not None for name in self.images):
            return False
        files = len(self.pack) * sum(field.kind in PIXEL_KINDS for field in self.pack.schema)
        size = sum(part.bytes for part in self.pack.manifest.parts)
        return bool(self.images) and size <= _SMALL_FILE_BYTES * files

    def _is_cast(self, name: str) -> bool:
        """Whether samples have an image in another dtype than it is stored in, or may have."""
        field = self.schema[name]
        return field.is_wide_mask or (field.kind == "depth" and field.dtype != field.pixel_dtype)

    def _has_fixed_size(self, field: Field) -> bool:
        array = self.schema.stored_form(field.name).array
        return array is not None and array[0] == field.pixel_dtype and all(array[1])

    @property
    def stored(self) -> list[str]:
        """Names of the chosen fields that are read from the part."""
        return self._stored


def _codec(field: Field, options: DecodeOptions, *, checked: bool) -> Codec:
    """checked: whether Pack compares a value's table before it is used; of other codecs than its own none is used."""
    made = codecs.codec_class(field)
    return made(field, replace(options, interval_tables=checked and made.has_table))
