"""Codec: one field's values <-> bytes. Knows nothing of disk or torch.

A codec module has `class Codec(base.Codec)`. One object serves one field for a whole run or data set:

* It keeps no state between calls that a second thread could see; threads share it.
* `encode` gives the same bytes for the same value, everywhere.
* `decode` copies out of the buffer, which may be a mapped page that goes away; what it returns is the caller's alone.
  It raises DamagedImage or CorruptRecord for bytes that `encode` did not make, and never returns memory that it
  did not write.
* `out`, where given, is C-contiguous with exactly the dtype and shape of the result, and is returned; anything else
  raises InvalidRequest.
* `view` asks for the picture through a View (image, depth and mask only). `header` is what `read_header` found in
  these very bytes, where the caller has asked: nothing is parsed twice then.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, cast

from packer.errors import InvalidRequest
from packer.geometry import View
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Decoder, Header
from packer.schema import Buffer as Buffer
from packer.schema import Field, Shape


class StoredPicture(NamedTuple):
    """What is known of a picture before it is decoded.

    shape: of its pixels as stored. header: of its file; None where the codec stores bare pixels.
    """

    shape: tuple[int, ...]
    header: Header | None


class Codec(ABC):
    """Base of all codecs; see the module's contract."""

    kinds: ClassVar[tuple[str, ...]]  # kinds of field that the codec can hold
    is_file: ClassVar[bool] = False  # whether `decode` of a picture is `pixels`, and nothing besides
    lossy: ClassVar[bool] = False
    has_table: ClassVar[bool] = False  # whether `encode` says where parts of a value are, so that they decode alone

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        """field: what is stored. options: how its pictures are decoded."""
        self.field = field
        self.pixels = Decoder(field.kind, options, invalid=field.invalid, max_pixels=field.pixel_limit)
        name, _, argument = field.codec.partition(":")
        self.argument = argument or None
        if field.kind not in self.kinds:
            raise InvalidRequest(
                f"field {field.name!r}: codec {name!r} cannot hold kind {field.kind!r}, only {', '.join(self.kinds)}"
            )

    @classmethod
    def complete(cls, field: Field) -> Field:
        """The field as the manifest will describe it, dtype and shape filled in where the codec fixes them."""
        return field

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """The bytes that are stored; raises InvalidRequest or BadInput for a value that it cannot hold exactly."""

    @abstractmethod
    def decode(self, buffer: Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None) -> Any:
        """The value; see the module's contract."""

    def check(self, buffer: Buffer) -> None:
        """Compare a value's table of its parts with the value; raises DamagedImage where they differ.

        Decoding the whole does not look at the table; decoding a part trusts it, once this has passed.
        """
        raise InvalidRequest(f"field {self.field.name!r}: values of codec {self.field.codec!r} have no table")

    def read_header(self, buffer: Buffer) -> StoredPicture:
        """Shape of what `decode(buffer)` gives for a picture, and its file's header, to be handed to `decode`."""
        return StoredPicture(cast(tuple[int, ...], self.shape(buffer)), None)  # the lengths of a picture are known

    def shape(self, buffer: Buffer) -> Shape:
        """Shape of what `decode(buffer)` gives, from the header alone; only array-valued codecs have one."""
        raise InvalidRequest(f"field {self.field.name!r}: values of codec {self.field.codec!r} have no shape")
