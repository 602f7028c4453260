"""encoded: the file's own bytes, kept as they are; images are decoded when read.

A pixel field may hold any image format that packer.images knows, JPEG beside PNG if need be; whether the bytes are
sound is for packer.images.validate to say before they come here. A field of kind bytes is given back verbatim.
"""

from dataclasses import replace
from typing import Any

from packer.codecs import base
from packer.errors import BadInput, InvalidRequest
from packer.geometry import View
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Header, file_suffixes, sniff
from packer.schema import PIXEL_KINDS, Field, Shape

_SHAPES: dict[str, Shape] = {"image": (None, None, 3), "mask": (None, None), "depth": (None, None)}


class Codec(base.Codec):
    """See the module and packer.codecs.base."""

    kinds = (*PIXEL_KINDS, "bytes")
    any_image = True
    keeps_files = True
    verbatim = True

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(field, options)
        if self.argument is not None:
            raise InvalidRequest(f"field {field.name!r}: codec 'encoded' takes no argument, found {self.argument!r}")

    @classmethod
    def complete(cls, field: Field) -> Field:
        """8 bit for an image, and for a mask whose field says no more; a depth has a dtype only if its field has."""
        dtype = "uint8" if field.kind == "image" or (field.kind == "mask" and field.dtype is None) else field.dtype
        return replace(field, dtype=dtype, shape=field.shape or _SHAPES.get(field.kind))

    @classmethod
    def suffixes_of(cls, field: Field, value: base.Buffer) -> tuple[str, ...]:
        """Those of the image's format; bytes are of no known one."""
        return file_suffixes(value) if field.kind in PIXEL_KINDS else ()

    def encode(self, value: Any) -> bytes:
        """The bytes themselves; raises BadInput for a depth whose header says another dtype than the field."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise InvalidRequest(
                f"field {self.field.name!r}: codec 'encoded' keeps the bytes of a file, found {type(value).__name__}; "
                f"use codec raw, png or jpeg for arrays"
            )
        if self.field.kind == "depth" and self.field.dtype is not None:
            found = sniff(value, self.field.pixel_limit).dtype
            if found != self.field.dtype:
                raise BadInput(f"a depth of {found}, expected {self.field.dtype}, which the field has; leave it out")
        return bytes(value)

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """The pixels, as packer.images.decode gives them; kind bytes: the bytes."""
        if self.field.kind != "bytes":
            return self.pixels(buffer, view, out, header=header)
        if view is not None or out is not None:
            raise InvalidRequest(f"field {self.field.name!r}: bytes have no pixels; ask without a view and without out")
        return bytes(buffer)
