"""Codec: one field's values <-> bytes. Knows nothing of disk or torch.

A codec module has `class Codec(base.Codec)`. One object serves one field for a whole run or data set:

* It keeps no state between calls that a second thread could see; threads share it.
* `encode` gives the same bytes for the same value, everywhere.
* `decode` copies out of the buffer, which may be a mapped page that goes away; what it returns is the caller's alone.
  It raises DamagedImage or CorruptRecord for bytes that `encode` did not make, and never returns memory that it
  did not write.
* `out`, where given, is C-contiguous with exactly the dtype and shape of the result, and is returned; anything else
  raises InvalidRequest.
* `view` asks for the image through a View (image, depth and mask only). `header` is what `read_header` found in
  these very bytes, where the caller has asked: nothing is parsed twice then.
"""

from abc import ABC, abstractmethod
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

Pixels = npt.NDArray[np.generic]


class Codec(ABC):
    """Base of all codecs; see the module's contract.

    What others need to know of a codec it says here, each with a default that holds for most.

    kinds: kinds of field that the codec can hold.
    suffixes: file suffixes of a value that is a file of its own, as other programs open it, the usual one first; empty
      where it is none. `packer extract` and the format bmp name files so. Where the bytes tell: override `suffixes_of`.
    image_suffix: where a value is a file that image viewers do not open, the suffix of what `as_image` makes.
    lossy: whether `decode(encode(value))` may differ from `value`.
    exact_views: whether a view of the value is, to the bit, what packer.geometry.warp makes of all of its pixels.
    any_image: whether a value of an image field may be an image file of any format that packer.images reads.
      `decode` is `self.pixels` then and nothing besides: readers call `file_decoder` instead.
    keeps_files: whether `encode` takes the file's own bytes and gives them back, instead of taking pixels.
    verbatim: whether a value is, byte for byte, the file that it was read from, unless its pixels were moved.
    has_table: whether `encode` says where parts of a value are, so that they decode alone; see `check`.
    """

    kinds: ClassVar[tuple[str, ...]]
    suffixes: ClassVar[tuple[str, ...]] = ()
    image_suffix: ClassVar[str | None] = None
    lossy: ClassVar[bool] = False
    exact_views: ClassVar[bool] = True
    any_image: ClassVar[bool] = False
    keeps_files: ClassVar[bool] = False
    verbatim: ClassVar[bool] = False
    has_table: ClassVar[bool] = False

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        """field: what is stored. options: how its images are decoded."""
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
        if field.kind == "mask" and field.dtype not in (None, *MASK_DTYPES):
            raise InvalidRequest(
                f"field {field.name!r}: a mask is {' or '.join(MASK_DTYPES)}, found {field.dtype}; use kind depth"
            )

    @classmethod
    def complete(cls, field: Field) -> Field:
        """The field as the manifest will describe it, dtype and shape filled in where the codec fixes them."""
        return field

    @classmethod
    def fixed_array(cls, field: Field) -> FixedArray | None:
        """Dtype and shape of the array whose numbers each value is, little-endian, in C order, and nothing else.

        None where values differ in length, or hold anything besides: a header, a compressed stream.
        """
        return None

    @classmethod
    def list_dtype(cls, field: Field) -> str | None:
        """NumPy name of the dtype where each value is a list of any length of such numbers, little-endian, bare."""
        return None

    @classmethod
    def suffixes_of(cls, field: Field, value: Buffer) -> tuple[str, ...]:
        """The file suffixes that fit one encoded value, the usual one first; empty where it is no file."""
        return cls.suffixes

    @classmethod
    def stored_form(cls, field: Field) -> StoredForm:
        """What formats, which know no codec, are told of the field's encoded values."""
        return StoredForm(cls.fixed_array(field), partial(cls.suffixes_of, field), cls.list_dtype(field))

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """The bytes that are stored; raises InvalidRequest or BadInput for a value that it cannot hold exactly."""

    def encode_file(self, file: Buffer, header: Header) -> bytes | None:
        """The bytes that are stored for an image file, where there is a better way than through its pixels; else None.

        Raises DamagedImage exactly where decoding the file does.
        """
        return None

    @abstractmethod
    def decode(self, buffer: Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None) -> Any:
        """The value; see the module's contract."""

    def in_place(self, buffer: Buffer) -> Pixels | None:
        """The array that `decode(buffer)` gives, as a view of the buffer; None where the bytes must be decoded.

        The view ends with the buffer: it is for whoever warps or copies it at once. Raises as `decode` does.
        """
        return None

    def as_image(self, buffer: Buffer) -> bytes:
        """A value as a file that image viewers open, of the suffix `image_suffix`; raises as `decode` does."""
        raise InvalidRequest(f"field {self.field.name!r}: values of codec {self.field.codec!r} are what they are")

    def check(self, buffer: Buffer) -> None:
        """Compare a value's table of its parts with the value; raises DamagedImage where they differ.

        Decoding the whole does not look at the table; decoding a part trusts it, once this has passed.
        """
        raise InvalidRequest(f"field {self.field.name!r}: values of codec {self.field.codec!r} have no table")

    @property
    def file_decoder(self) -> Decoder | None:
        """What decodes values that are image files; None where they are none."""
        return self.pixels if self.any_image and self.field.kind in PIXEL_KINDS else None

    def read_header(self, buffer: Buffer) -> StoredImage:
        """Shape of what `decode(buffer)` gives for an image, and its file's header, to be handed to `decode`."""
        if self.file_decoder is not None:
            return self.file_decoder.stored_image(buffer)
        return StoredImage(cast(tuple[int, ...], self.shape(buffer)), None)  # the lengths of an image are known

    def shape(self, buffer: Buffer) -> Shape:
        """Shape of what `decode(buffer)` gives, from the header alone; only array-valued codecs have one."""
        if self.file_decoder is not None:
            return self.file_decoder.stored_image(buffer).shape
        raise InvalidRequest(f"field {self.field.name!r}: values of codec {self.field.codec!r} have no shape")


def array_of(field: Field) -> FixedArray | None:
    """The array that a field describes: the dtype of its codec's argument, else its own; None where a length is open.

    Raises InvalidRequest for an argument that is no dtype.
    """
    dtype = field.codec_argument or field.dtype
    if dtype is None or field.shape is None:
        return None
    if dtype not in DTYPES:
        raise InvalidRequest(f"field {field.name!r}: codec {field.codec!r:.80}: expected one of {', '.join(DTYPES)}")
    shape = tuple(length for length in field.shape if length is not None)
    return (dtype, shape) if len(shape) == len(field.shape) else None
