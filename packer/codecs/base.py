"""Codec: base class that converts the values of one field to bytes and back. It does not depend on files or torch.

Each codec module contains a subclass `Codec`. One object serves one field for a complete conversion or data set:

* It is shared by threads and has no mutable state.
* `encode` returns equal bytes for equal values, on any machine.
* `decode` copies from the buffer, which may be a mapped page. It raises DamagedImage or CorruptRecord for bytes that
  `encode` did not make, and never returns memory that it did not write.
* If `out` is given, `decode` writes the result to it and returns it. `out` must be C-contiguous, with the dtype and
  shape of the result. Otherwise, `decode` raises InvalidRequest.
* `view` is the matrix and output size that `decode` applies to an image, depth or mask. `header` is the header that
  `read_header` returned for the same bytes, so that it is parsed once.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.geometry import View
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Decoder, Header
from packer.images import StoredImage as StoredImage
from packer.schema import DTYPES, MASK_DTYPES, PIXEL_KINDS, Field, FixedArray, Shape, StoredForm
from packer.schema import Buffer as Buffer
from packer.system.exact_casts import form

Pixels = npt.NDArray[np.generic]


class Codec(ABC):
    """Base class of all codecs. The docstring of the module describes the contract.

    Attributes:
        kinds: Kinds of field that the codec can hold.
        takes_argument: True if the name may have an argument, as in `raw:float16`.
        suffixes: File suffixes of values that other programs open as files, the usual one first. `packer extract` and
            the format bmp use them. Override `suffixes_of` if the suffixes depend on the bytes.
        image_suffix: Suffix of the file that `as_image` returns; None if `as_image` is not supported.
        lossy: True if `decode(encode(value))` may differ from `value`.
        exact_views: True if `decode` with a view is equal to `decode` without it, followed by packer.geometry.warp.
        any_image: True if a value may be an image file of any format that packer.images reads. Then `decode` must only
            call `self.pixels`, because readers call `file_decoder`, which is the same object, instead of `decode`.
        keeps_files: True if `encode` takes the bytes of a file and returns them. False if it takes decoded values.
        verbatim: True if a value has the bytes of its original file, unless the image was resized or rotated.
        has_table: True if `encode` adds a table of sections, with which a crop decodes only the sections in it.
    """

    kinds: ClassVar[tuple[str, ...]]
    takes_argument: ClassVar[bool] = True
    suffixes: ClassVar[tuple[str, ...]] = ()
    image_suffix: ClassVar[str | None] = None
    lossy: ClassVar[bool] = False
    exact_views: ClassVar[bool] = True
    any_image: ClassVar[bool] = False
    keeps_files: ClassVar[bool] = False
    verbatim: ClassVar[bool] = False
    has_table: ClassVar[bool] = False

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        """Create a codec. Raises InvalidRequest if it cannot hold the field.

        Args:
            field: The field whose values are stored.
            options: Options for decoding its images.
        """
        self.field = field
        self.pixels = Decoder(
            field.kind, options, wide=field.is_wide_mask, invalid=field.invalid, max_pixels=field.pixel_limit
        )
        self.argument = field.codec_argument
        if field.kind not in self.kinds:
            raise InvalidRequest(
                f"field {field.name!r}: codec {field.codec_name!r} cannot hold kind {field.kind!r}, "
                f"only {', '.join(self.kinds)}"
            )
        if self.argument is not None and not self.takes_argument:
            raise InvalidRequest(
                f"field {field.name!r}: codec {field.codec_name!r} takes no argument, found {self.argument!r}"
            )
        if field.kind == "mask" and field.dtype not in (None, *MASK_DTYPES):
            raise InvalidRequest(
                f"field {field.name!r}: a mask is {' or '.join(MASK_DTYPES)}, found {field.dtype}; use kind depth"
            )

    @classmethod
    def complete(cls, field: Field) -> Field:
        """Return the field for the manifest, with the dtype and shape that the codec determines."""
        return field

    @classmethod
    def fixed_array(cls, field: Field) -> FixedArray | None:
        """Return the dtype and shape of the array whose numbers, little-endian, in C order, are each encoded value.

        Return None if values differ in length, have a header, or are compressed.
        """
        return None

    @classmethod
    def list_dtype(cls, field: Field) -> str | None:
        """Return the dtype if each encoded value contains only little-endian numbers, any count of them, else None."""
        return None

    @classmethod
    def suffixes_of(cls, field: Field, value: Buffer) -> tuple[str, ...]:
        """Return the file suffixes for one encoded value, the usual one first; empty if it is not a file."""
        return cls.suffixes

    @classmethod
    def stored_form(cls, field: Field) -> StoredForm:
        """Return the byte layout of the field's encoded values, for formats."""
        return StoredForm(cls.fixed_array(field), partial(cls.suffixes_of, field), cls.list_dtype(field))

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the bytes to store; raises InvalidRequest or BadInput for a value that cannot be stored exactly."""

    def check_pixels(self, value: Any, dtypes: Sequence[str]) -> None:
        """Raise InvalidRequest unless a value is an array of one of the dtypes: (H, W, 3) for an image, else (H, W)."""
        is_image = self.field.kind == "image"
        is_array = isinstance(value, np.ndarray) and value.dtype.name in dtypes and value.ndim == (3 if is_image else 2)
        if not is_array or (is_image and value.shape[2] != 3):
            wanted = f"{' or '.join(dtypes)} {'(H, W, 3)' if is_image else '(H, W)'}"
            raise InvalidRequest(
                f"field {self.field.name!r}: codec {self.field.codec_name!r} holds {wanted}, found {form(value)}"
            )

    def encode_file(self, file: Buffer, header: Header) -> bytes | None:
        """Return the bytes to store for an image file. None means that `encode` must be called with its decoded pixels.

        Raises DamagedImage if the file cannot be decoded.
        """
        return None

    @abstractmethod
    def decode(self, buffer: Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None) -> Any:
        """Return the decoded value, in `out` if given. The docstring of the module describes arguments and errors."""

    def in_place(self, buffer: Buffer) -> Pixels | None:
        """Return an array in the memory of the buffer, equal to `decode(buffer)`; None if the bytes must be decoded.

        The array must be warped or copied while the buffer is valid. Raises the errors of `decode`.
        """
        return None

    def as_image(self, buffer: Buffer) -> bytes:
        """Return a value as a file with `image_suffix`; raises InvalidRequest if this is None, else as `decode`."""
        raise InvalidRequest(f"field {self.field.name!r}: values of codec {self.field.codec!r} have no other form")

    def check(self, buffer: Buffer) -> None:
        """Raise DamagedImage if the table of sections in a value is wrong, InvalidRequest if `has_table` is False.

        Decoding of a crop trusts the table. Decoding of the complete image ignores it.
        """
        raise InvalidRequest(f"field {self.field.name!r}: values of codec {self.field.codec!r} have no table")

    @property
    def file_decoder(self) -> Decoder | None:
        """The decoder of values that are image files; None for other values."""
        return self.pixels if self.any_image and self.field.kind in PIXEL_KINDS else None

    def read_header(self, buffer: Buffer) -> StoredImage:
        """Return the shape of a decoded image, and the header of its file for `decode`, None if it is not a file."""
        if self.file_decoder is not None:
            return self.file_decoder.stored_image(buffer)
        return StoredImage(cast(tuple[int, ...], self.shape(buffer)), None)  # the lengths of an image are known

    def shape(self, buffer: Buffer) -> Shape:
        """Return the shape of the decoded array without decoding it. Raises InvalidRequest if values are not arrays."""
        if self.file_decoder is not None:
            return self.file_decoder.stored_image(buffer).shape
        raise InvalidRequest(f"field {self.field.name!r}: values of codec {self.field.codec!r} have no shape")


def array_of(field: Field) -> FixedArray | None:
    """Return the dtype and shape of the values of a field; the argument of the codec replaces the dtype of the field.

    Return None if the dtype or shape is unknown, or if a length varies. Raises InvalidRequest for an unknown dtype.
    """
    dtype = field.codec_argument or field.dtype
    if dtype is None or field.shape is None:
        return None
    if dtype not in DTYPES:
        raise InvalidRequest(f"field {field.name!r}: codec {field.codec!r:.80}: expected one of {', '.join(DTYPES)}")
    shape = tuple(length for length in field.shape if length is not None)
    return (dtype, shape) if len(shape) == len(field.shape) else None
