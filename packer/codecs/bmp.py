"""bmp: lossless and uncompressed, decoded at memory speed. Images have 24 bit, masks 8 bit and a palette of grays.

Layout of BITMAPFILEHEADER and BITMAPINFOHEADER, little-endian:

| offset | content                                                                                                    |
|--------|------------------------------------------------------------------------------------------------------------|
| 0      | "BM", uint32 size of the file, 4 zeros, uint32 offset of the pixels: 54, with a palette 1078               |
| 14     | uint32 40, int32 width, int32 height, uint16 1, uint16 bits a pixel: 24 or 8, uint32 0 (not compressed),   |
|        | uint32 size of the pixels, 8 zeros (no resolution), uint32 colors of the palette: 0 or 256, uint32 0       |
| 54     | the palette of a mask: 256 times blue, green, red, 0, all three equal to the index                         |
| then   | the rows, the lowest first, each padded with zeros to a multiple of 4 bytes; an image as blue, green, red  |

Every reader of BMP supports this form. Rows from the top (a negative height) would decode faster, but not every program
reads them. A value with any other header is refused.
Source: Microsoft, "Bitmap Storage".
"""

import struct
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.codecs import base
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.geometry import View, upright
from packer.geometry.warp import warp
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Header
from packer.schema import Field, Shape
from packer.system.exact_casts import deliver, target

_HEADER = struct.Struct("<2sIIIIiiHHIIIIII")
_GRAYS = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 4, axis=1)
_GRAYS[:, 3] = 0
_PALETTE = _GRAYS.tobytes()
_MOST_BYTES = 1 << 30  # OpenCV's limit
_TOP_DOWN = 4  # the EXIF orientation of rows from below
_SHAPES: dict[str, Shape] = {"image": (None, None, 3), "mask": (None, None)}


class Codec(base.Codec):
    """Stores pixels as a BMP file."""

    kinds = ("image", "mask")
    takes_argument = False
    suffixes = (".bmp",)

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(field, options)
        if field.dtype not in (None, "uint8"):
            raise InvalidRequest(
                f"field {field.name!r}: codec 'bmp' holds uint8, not {field.dtype}; use codec npy, png or raw"
            )
        self._palette = _PALETTE if field.kind == "mask" else b""
        self._channels = 1 if self._palette else 3
        self._start = _HEADER.size + len(self._palette)

    @classmethod
    def complete(cls, field: Field) -> Field:
        """Return the field with dtype uint8 and a shape. A 16 bit mask keeps its dtype: `Codec` refuses it."""
        dtype = field.dtype if field.is_wide_mask else "uint8"
        return replace(field, dtype=dtype, shape=field.shape or _SHAPES.get(field.kind))

    def encode(self, value: Any) -> bytes:
        """Return a BMP file of uint8 (H, W, 3) RGB, (H, W) for a mask. Raises InvalidRequest, BadInput from 1 GiB."""
        self.check_pixels(value, ("uint8",))
        height, width = value.shape[:2]
        start = self._head(height, width)
        size_bytes = len(start) + height * self._row_bytes(width)
        if 0 in value.shape or size_bytes >= _MOST_BYTES:
            raise BadInput(f"an image of {width}x{height} px does not fit a BMP of less than 1 GiB; use codec raw")
        file = np.zeros(size_bytes, np.uint8)
        file[: len(start)] = np.frombuffer(start, np.uint8)
        stored = cv2.cvtColor(value, cv2.COLOR_RGB2BGR) if self._channels == 3 else value
        rows = file[len(start) :].reshape(height, -1)
        rows[::-1, : width * self._channels] = stored.reshape(height, -1)
        return file.tobytes()

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """Return uint8 (H, W, 3) RGB, or (H, W) for a mask; raises CorruptRecord unless `encode` made the value."""
        height, width = self._size(buffer)
        row_bytes = self._row_bytes(width)
        rows = np.frombuffer(buffer, np.uint8, height * row_bytes, self._start).reshape(height, row_bytes)
        stored = rows[:, : width * self._channels]
        if self._channels == 1:
            if view is not None:
                return warp(stored[::-1], view, "mask", out=out)
            return np.array(stored[::-1], order="C") if out is None else deliver(stored[::-1], out=out)
        upside_down: npt.NDArray[Any] = stored.reshape(height, width, 3)
        if view is None:
            made = target(upside_down.shape, np.uint8, out=out)
            np.copyto(made, upside_down[::-1])
        else:  # the view flips the rows, and may show only a part
            made = warp(upside_down, upright(_TOP_DOWN, height, width).then(view), "image", out=out)
        cv2.cvtColor(made, cv2.COLOR_BGR2RGB, dst=made)
        return made if out is None else out

    def shape(self, buffer: base.Buffer) -> Shape:
        """Return (H, W, 3) of an image, (H, W) of a mask; raises CorruptRecord unless `encode` made the header."""
        size = self._size(buffer)
        return (*size, 3) if self._channels == 3 else size

    def _size(self, buffer: base.Buffer) -> tuple[int, int]:
        """Return (height, width) in px; raises CorruptRecord for a wrong header or size of the file."""
        height, width = 0, 0
        if len(buffer) >= self._start:
            width, height = struct.unpack_from("<ii", buffer, 18)
        expected = self._start + height * self._row_bytes(width)
        if height < 1 or width < 1 or not len(buffer) == expected < _MOST_BYTES:
            raise CorruptRecord(
                f"field {self.field.name!r}: {len(buffer)} bytes are not a BMP of {width}x{height} px, expected "
                f"{expected}; pack again from the source"
            )
        if buffer[: self._start] != self._head(height, width):
            raise CorruptRecord(
                f"field {self.field.name!r}: not the BMP header that was packed; pack again from the source"
            )
        return height, width

    def _row_bytes(self, width: int) -> int:
        return (width * self._channels + 3) // 4 * 4

    def _head(self, height: int, width: int) -> bytes:
        """Return the bytes before the pixels, or b"" for an image that is too large for the codec."""
        pixel_bytes = height * self._row_bytes(width)
        file_bytes = self._start + pixel_bytes
        if max(file_bytes, height, width) >= _MOST_BYTES:
            return b""
        colors = len(self._palette) // 4
        about = (40, width, height, 1, 8 * self._channels, 0, pixel_bytes, 0, 0, colors, 0)
        return _HEADER.pack(b"BM", file_bytes, 0, self._start, *about) + self._palette
