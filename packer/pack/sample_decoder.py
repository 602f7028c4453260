"""Sample decoder: decodes the samples of an open pack to NumPy arrays and Python values.

`reader.Pack` reads the encoded values. The decoder applies the view (matrix and output size) of a geometry to images,
points and boxes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from packer import codecs, images
from packer.codecs.base import Codec
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.formats.base import Record
from packer.geometry import BoxRule, Geometry, View, move_values, resized_crop
from packer.images import DCT, DecodeOptions, Decoder, DecoderName, Header, StoredImage
from packer.pack.field_row_relations import RowRelations, Values
from packer.pack.reader import Pack
from packer.schema import PIXEL_KINDS, Buffer, Field, Schema

Views = tuple[View | None, dict[str, View]]  # see `SampleDecoder.views`
_NO_VIEWS: Views = (None, {})
_SMALL_FILE_BYTES = 1 << 18  # the system calls of a read take as long as the copy; an image of 295 px


class SampleDecoder:
    """Decodes the chosen fields of samples. Thread-safe.

    Number fields of fixed shape, and fields whose encoded values are in the index, such as key and texts, are read from
    the index. All other fields are read from the parts.

    Attributes:
        pack: the pack.
        schema: the chosen fields.
        stored: names of the chosen fields that are read from the parts.
        images: names of the chosen images, in the order of the pack. Points and boxes are in px of the first image.
        pixel_dtypes: image -> its dtype in a sample.
        relations: applies the rule for boxes; None without a rule.
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
        """Choose the fields to decode.

        Args:
            pack: the open pack.
            names: fields, or None for all that are not hidden.
            decoder: the library for image files.
            dct: the inverse DCT for JPEG files.
            boxes: rule for boxes that extend beyond the image. None keeps such boxes.

        Raises:
            UnknownKey: a field is not in the pack.
            InvalidRequest: the rule for boxes needs a field that is not chosen.
        """
        if decoder not in images.NAMES:
            raise InvalidRequest(f"decoder={decoder!r}: expected one of {', '.join(images.NAMES)}")
        self.pack = pack
        chosen = names if names is not None else [field.name for field in pack.schema if not field.hidden]
        self.schema: Schema = pack.schema.select(chosen)
        free = [field.name for field in self.schema if not field.is_column]
        self._indexed = [name for name in free if pack.index.contains(name)]
        self.stored = [name for name in free if name not in self._indexed]
        self._moving = {field.name for field in self.schema if field.moves}
        checked = pack.verify != "never"
        # A crc32 proves that the bytes are those that the conversion validated. Without it, in the fast mode, decoders
        # check the ends of files instead of all their data.
        options = DecodeOptions(
            decoder=decoder,
            dct=dct,
            strict=not checked,
            check_data=False,
            trusted=checked and pack.manifest.validated,
        )
        self._codecs = {name: _codec(pack.schema[name], options, checked=checked) for name in free}
        self._file_decoders = {name: codec.file_decoder for name, codec in self._codecs.items()}
        self._decode = {name: self._file_decoders[name] or codec.decode for name, codec in self._codecs.items()}
        self._read_header = {
            name: decoder.stored_image if decoder is not None else self._codecs[name].read_header
            for name, decoder in self._file_decoders.items()
        }
        for name, codec in self._codecs.items():
            if codec.has_table:
                pack.add_check(name, codec.check)
        self.images = [field.name for field in pack.schema if field.kind in PIXEL_KINDS and field.name in self.schema]
        self.pixel_dtypes = {name: self.schema[name].pixel_dtype for name in self.images}
        self._cast_to = {name: np.dtype(dtype) for name, dtype in self.pixel_dtypes.items() if self._is_cast(name)}
        self._fixed_size = {name for name in self.images if self._has_fixed_size(self.schema[name])}
        self._columns = {field.name: pack.index.column(field.name) for field in self.schema if field.is_column}
        self._matrices = pack.index.column("matrix") if "matrix" in pack.schema else None
        self.relations = RowRelations(self.schema, pack.schema, boxes) if boxes is not None else None

    def sample(self, index: int, geometry: Geometry | None = None, random: Sequence[float] = ()) -> dict[str, Any]:
        """Return the chosen fields of a sample, by name; raises CorruptRecord.

        Args:
            index: 0 <= index < len(pack).
            geometry: computes the view from the size of the first image and the random numbers.
            random: `geometry.draws` numbers, 0 <= number < 1.
        """
        sample: dict[str, Any] = {}
        with self.pack.record(index, self.stored) as read:
            stored = {name: self.stored_image(index, name, read[name]) for name in self.images}
            main, others = self.views(index, geometry, stored, random)
            for field in self.schema.fields:
                name = field.name
                if name in read:
                    view = others.get(name, main)
                    sample[name] = self.decode(index, field, read[name], stored=stored.get(name), view=view)
                else:
                    sample[name] = self.indexed(index, field, main)
        if self.relations is not None and self.images:
            values = {name: sample[name] for name in self.relations.names}
            sample |= self.ruled(index, self.relations, values, self.shown_size(stored, main))
        return sample

    def shown_size(self, stored: dict[str, StoredImage], main: View | None) -> tuple[int, int]:
        """Return (height, width) in px of the first image of a sample after decoding.

        Args:
            stored: image -> shape and header. Images of a fixed shape may be absent.
            main: the view of the first image, or None.
        """
        if main is not None:
            return main.size
        name = self.images[0]
        height, width, *_ = stored[name].shape if name in stored else self.schema[name].shape or (0, 0)
        return height or 0, width or 0

    def ruled(self, index: int, relations: RowRelations, values: Values, size: tuple[int, int]) -> Values:
        """Return the fields of a sample after the rule for boxes in `relations`. Raises CorruptRecord."""
        try:
            return relations.ruled(values, size)
        except BadInput as error:
            raise CorruptRecord(f"{self.pack.where(index, self.images[0])}: {error}") from error

    def completed(self, index: int, record: Record) -> Record:
        """Return a record with the values of `record` and the encoded values of chosen fields in the index.

        Number fields of fixed shape are not added. Raises CorruptPack.
        """
        return {**record, **{name: self.pack.index.value(index, name) for name in self._indexed}}

    def indexed(self, index: int, field: Field, view: View | None = None) -> Any:
        """Return the value of a field that is read from the index, as a Python value or a copied array.

        `view` moves points, boxes and areas to px of the output. Raises CorruptPack, CorruptRecord.
        """
        if field.kind == "text":
            return self.pack.index.text(index, field.name)
        if field.name not in self._columns:
            return self.decode(index, field, self.pack.index.value(index, field.name), view=view)
        value = self._columns[field.name][index]
        return value.item() if not field.shape else value.astype(field.dtype)

    def is_column(self, field: Field) -> bool:
        """Return True if `column` accepts the field: numbers of fixed shape, or texts in the index."""
        return field.name in self._columns or (field.kind == "text" and field.name in self._indexed)

    def column(self, field: Field, indices: npt.NDArray[np.int64]) -> npt.NDArray[Any] | list[str]:
        """Return the values of the samples `indices`: a copied array in native byte order, or a list of texts."""
        if field.kind == "text":
            return self.pack.index.texts_at(indices.tolist(), field.name)
        values = self._columns[field.name]
        return values[indices].astype(values.dtype.newbyteorder("="))

    def stored_image(self, index: int, name: str, value: Buffer) -> StoredImage:
        """Return shape and header of an image; raises CorruptRecord."""
        try:
            return self._read_header[name](value)
        except (BadInput, CorruptRecord) as error:
            raise self.undecodable(index, name, error) from error

    def views(
        self, index: int, geometry: Geometry | None, stored: dict[str, StoredImage], random: Sequence[float]
    ) -> Views:
        """Return the views of the images of a sample.

        Returns:
            A pair. First, the view of the first image, which points and boxes share; None without a geometry. Second,
            image -> view, only for images whose stored size differs from that of the first. All views show the same
            scene.

        Raises:
            BadInput: the geometry does not accept the size of the image.
            InvalidRequest: no image is chosen.
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
        """Return one value as in a sample: images in `Field.pixel_dtype`; points, boxes and areas in px of the output.

        Args:
            index: the sample, for messages and for the field `matrix`, which maps points and boxes to stored pixels.
            field: the field.
            value: the encoded value.
            out: array to decode into, with the dtype of samples. None: a new array.
            stored: result of `stored_image` for an image. None: the header is parsed again.
            view: the view of this field in the result of `views`; None to keep all pixels.
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
        """Return one value in the stored dtype. `view` applies to images only; points and boxes stay in source px."""
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
        """Return an array over the memory of `value` if the value is raw pixels, else None."""
        return self._codecs[field.name].in_place(value)

    def decoder(self, field: Field) -> Decoder | None:
        """Return the `file_decoder` of an image, else None: for other kinds, `decode` also converts the dtype."""
        return self.file_decoder(field) if field.kind == "image" else None

    def file_decoder(self, field: Field) -> Decoder | None:
        """Return the decoder of a field whose values are image files, else None. The decoder keeps the stored dtype."""
        return self._file_decoders[field.name]

    def undecodable(self, index: int, name: str, error: Exception) -> CorruptRecord:
        """Return the error for a value that does not decode."""
        return CorruptRecord(f"{self.pack.where(index, name)}: does not decode: {error}")

    def _moved(self, index: int, field: Field, decoded: Any, view: View | None) -> Any:
        """Return points, boxes or areas in px of the output: moved by the field `matrix` and by the view."""
        if self._matrices is not None:
            stored = View(tuple(self._matrices[index].ravel().tolist()), (1, 1))
            return move_values(field, decoded, (stored.then(view) if view is not None else stored).array)
        return move_values(field, decoded, view.array) if view is not None else decoded

    def is_fixed_size(self, field: Field) -> bool:
        """Return True if the encoded values of an image are raw pixels of one shape."""
        return field.name in self._fixed_size

    @property
    def copies_small_files(self) -> bool:
        """True if the format copies values to memory, and the values of images are small files of raw pixels."""
        if self.pack.is_mapped or any(self._file_decoders[name] is not None for name in self.images):
            return False
        files = len(self.pack) * sum(field.kind in PIXEL_KINDS for field in self.pack.schema)
        return bool(self.images) and self.pack.part_bytes <= _SMALL_FILE_BYTES * files

    def _is_cast(self, name: str) -> bool:
        """Return True if the dtype of an image in a sample may differ from the stored dtype."""
        field = self.schema[name]
        return field.is_wide_mask or (field.kind == "depth" and field.dtype != field.pixel_dtype)

    def _has_fixed_size(self, field: Field) -> bool:
        array = self.schema.stored_form(field.name).array
        return array is not None and array[0] == field.pixel_dtype and all(array[1])


def _codec(field: Field, options: DecodeOptions, *, checked: bool) -> Codec:
    """Return the codec of a field. `checked`: the pack runs `Codec.check` on a value before it is decoded."""
    made = codecs.codec_class(field)
    return made(field, replace(options, interval_tables=checked and made.has_table))
