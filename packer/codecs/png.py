"""png: lossless PNG; 8 bit images, 8 or 16 bit masks and depth. Values that PNG cannot hold exactly are refused."""

from dataclasses import replace
from typing import Any

import cv2

from packer.codecs import base
from packer.errors import BadInput, InvalidRequest
from packer.geometry import View
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Header
from packer.schema import MASK_DTYPES, PIXEL_KINDS, Field, Shape

_DTYPES = {"image": ("uint8",), "mask": MASK_DTYPES, "depth": ("uint8", "uint16")}
_SHAPES: dict[str, Shape] = {"image": (None, None, 3), "mask": (None, None), "depth": (None, None)}


class Codec(base.Codec):
    """Stores pixels as a PNG file."""

    kinds = PIXEL_KINDS
    takes_argument = False
    suffixes = (".png",)
    any_image = True

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(field, options)
        if field.dtype is not None and field.dtype not in _DTYPES[field.kind]:
            raise InvalidRequest(
                f"field {field.name!r}: codec 'png' holds a {field.kind} as {' or '.join(_DTYPES[field.kind])}, "
                f"not {field.dtype}; use codec raw"
            )

    @classmethod
    def complete(cls, field: Field) -> Field:
        """Return the field with a dtype and shape. Defaults are uint8 for images and masks, any height and width."""
        dtype = "uint8" if field.kind == "image" or (field.kind == "mask" and field.dtype is None) else field.dtype
        return replace(field, dtype=dtype, shape=field.shape or _SHAPES.get(field.kind))

    def encode(self, value: Any) -> bytes:
        """Return a PNG file of uint8 (H, W, 3) RGB, or of a mask or depth in uint8 or uint16 (H, W).

        Raises InvalidRequest for other arrays or a dtype that the field does not have, BadInput without pixels.
        """
        self.check_pixels(value, (self.field.dtype,) if self.field.dtype else _DTYPES[self.field.kind])
        if 0 in value.shape:
            raise BadInput(f"an image of {value.shape[1]}x{value.shape[0]} px does not fit a PNG; use codec raw")
        done, data = cv2.imencode(".png", cv2.cvtColor(value, cv2.COLOR_RGB2BGR) if value.ndim == 3 else value)
        if not done:
            raise BadInput(f"OpenCV cannot encode {value.dtype} {value.shape} as PNG; use codec raw")
        return data.tobytes()

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """Return the pixels in the encoded dtype."""
        return self.pixels(buffer, view, out, header=header)
