"""encoded: the bytes of a file, unchanged; images are decoded when they are read.

The files of one field may have different image formats, if packer.images reads them. `encode` does not decode a
file, because the conversion has checked it with packer.images.validate. For kind bytes, `decode` returns the bytes.
"""

from dataclasses import replace
from typing import Any

from packer.codecs import base
from packer.errors import BadInput, InvalidRequest
from packer.geometry import View
from packer.images import Header, file_suffixes, sniff
from packer.schema import PIXEL_KINDS, Field, Shape

_SHAPES: dict[str, Shape] = {"image": (None, None, 3), "mask": (None, None), "depth": (None, None)}


class Codec(base.Codec):
    """Stores the bytes of the file unchanged."""

    kinds = (*PIXEL_KINDS, "bytes")
    takes_argument = False
    any_image = True
    keeps_files = True
    verbatim = True

    @classmethod
    def complete(cls, field: Field) -> Field:
        """Return the field with a dtype and shape. Defaults are uint8 for images and masks, any height and width."""
        dtype = "uint8" if field.kind == "image" or (field.kind == "mask" and field.dtype is None) else field.dtype
        return replace(field, dtype=dtype, shape=field.shape or _SHAPES.get(field.kind))

    @classmethod
    def suffixes_of(cls, field: Field, value: base.Buffer) -> tuple[str, ...]:
        """Return the suffixes of the image's format; empty for kind bytes."""
        return file_suffixes(value) if field.kind in PIXEL_KINDS else ()

    def encode(self, value: Any) -> bytes:
        """Return `value`, the bytes of a file. Raises BadInput if a depth file has not the dtype of the field."""
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
        """Return the pixels of an image, mask or depth, and the bytes of a file for kind bytes."""
        if self.field.kind != "bytes":
            return self.pixels(buffer, view, out, header=header)
        if view is not None or out is not None:
            raise InvalidRequest(f"field {self.field.name!r}: bytes have no pixels; ask without a view and without out")
        return bytes(buffer)
