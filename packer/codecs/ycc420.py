"""ycc420: planar YCbCr 4:2:0 in the full range of JFIF, 1.5 bytes a pixel: a JPEG that is already decompressed.

The planes of a 4:2:0 JPEG are stored unchanged. For another image, luma is complete, and each chroma sample is the mean
of 2x2 pixels. This loses chroma, so the codec is only used on request: --codec image=ycc420. Decoded pixels are within
2 gray levels of libjpeg's. packer.images.planar_420 cuts a crop from the planes, and scales it to the output.

Layout: a YUV4MPEG2 file of one frame, which FFmpeg, mpv and VLC open:

| offset | content                                                                                                    |
|--------|------------------------------------------------------------------------------------------------------------|
| 0      | "YUV4MPEG2 W00500 H00375 F1:1 Ip A1:1 C420jpeg XCOLORRANGE=FULL\\nFRAME\\n", both lengths in 5 digits       |
|        | A gray image has "Cmono XY" instead of "C420jpeg", of equal length: readers skip words that begin with X   |
| 69     | Y, uint8 [H, W]                                                                                            |
| then   | Cb, uint8 [ceil(H / 2), ceil(W / 2)], then Cr; both are absent in a gray image                             |

A value with any other header is refused.
Source: yuv4mpeg(5) of mjpegtools.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import cv2
import numpy as np

from packer.codecs import base
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.geometry import View
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Header
from packer.images.planar_420 import Planes, half, jpeg_planes, planes_of, through_view, to_rgb, without_gray_chroma
from packer.schema import Field, Shape

_HEADER = "YUV4MPEG2 W{width:05} H{height:05} F1:1 Ip A1:1 {form} XCOLORRANGE=FULL\nFRAME\n"
_COLOR, _GRAY = "C420jpeg", "Cmono XY"
_START = len(_HEADER.format(width=0, height=0, form=_COLOR))
_WIDTH, _HEIGHT, _FORM = slice(11, 16), slice(18, 23), slice(37, 45)
_LONGEST_PX = 99_999


class Codec(base.Codec):
    """Stores the planes of a JPEG before color conversion."""

    kinds = ("image",)
    takes_argument = False
    suffixes = (".y4m",)
    image_suffix = ".png"
    lossy = True
    exact_views = False

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(field, options)
        if field.dtype not in (None, "uint8"):
            raise InvalidRequest(f"field {field.name!r}: codec 'ycc420' holds uint8, not {field.dtype}; use codec raw")

    @classmethod
    def complete(cls, field: Field) -> Field:
        """Return the field with dtype uint8, and (H, W, 3) of any size if it has no shape."""
        return replace(field, dtype="uint8", shape=field.shape or (None, None, 3))

    def encode(self, value: Any) -> bytes:
        """Return the planes of a uint8 (H, W, 3) RGB array; raises InvalidRequest for anything else."""
        self.check_pixels(value, ("uint8",))
        height, width = value.shape[:2]
        if not (0 < height <= _LONGEST_PX and 0 < width <= _LONGEST_PX):
            raise BadInput(f"{width}x{height} px: codec ycc420 holds 1 to {_LONGEST_PX} each way; use codec raw")
        return _file(planes_of(np.ascontiguousarray(value)))

    def encode_file(self, file: base.Buffer, header: Header) -> bytes | None:
        """Return the unchanged planes of a 4:2:0 JPEG. None for another file means that its pixels must be encoded."""
        planes = jpeg_planes(file, header)
        return _file(planes) if planes is not None else None

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """Return uint8 (H, W, 3) RGB; raises CorruptRecord unless `encode` made the value."""
        height, width, is_gray = self._layout(buffer)
        values = np.frombuffer(buffer, np.uint8)
        middle = _START + height * width
        y = values[_START:middle].reshape(height, width)
        if is_gray:
            planes = Planes(y)
        else:
            cb, cr = values[middle:].reshape(2, *half(height, width))
            planes = Planes(y, cb, cr)
        if view is None or view.is_identity(height, width):
            return to_rgb(planes, out=out)
        return through_view(planes, view, out=out)

    def shape(self, buffer: base.Buffer) -> Shape:
        """Return (H, W, 3) from the header; raises CorruptRecord unless `encode` made the header."""
        height, width, _ = self._layout(buffer)
        return height, width, 3

    def as_image(self, buffer: base.Buffer) -> bytes:
        """Return a PNG file of the pixels, because image viewers do not open planes."""
        done, data = cv2.imencode(".png", cv2.cvtColor(self.decode(buffer), cv2.COLOR_RGB2BGR))
        if not done:
            raise BadInput("OpenCV cannot encode the image as PNG; read it from the pack")
        return data.tobytes()

    def _layout(self, buffer: base.Buffer) -> tuple[int, int, bool]:
        """Return (height, width, is_gray); raise CorruptRecord for a wrong header or length."""
        height, width, is_gray, expected = _parsed(bytes(buffer[:_START]))
        wanted = self.field.shape or (None, None)
        if len(buffer) != expected or not expected:
            raise CorruptRecord(
                f"field {self.field.name!r}: {len(buffer)} bytes are not planes of {width}x{height} px, expected "
                f"{expected or 'the header that was packed'}; pack again from the source"
            )
        if wanted[0] not in (None, height) or wanted[1] not in (None, width):
            raise CorruptRecord(
                f"field {self.field.name!r}: planes of {width}x{height} px, expected {wanted[1]}x{wanted[0]}, which "
                "the field has; pack again from the source"
            )
        return height, width, is_gray


@lru_cache(maxsize=4096)
def _parsed(start: bytes) -> tuple[int, int, bool, int]:
    """Return (height, width, is_gray, size of the value in bytes); all 0 for a header that `encode` does not write.

    Results are cached, because the images of a data set have few sizes.
    """
    width, height = start[_WIDTH], start[_HEIGHT]
    if not (width.isdigit() and height.isdigit() and int(width) and int(height)):
        return 0, 0, False, 0
    size = int(height), int(width)
    is_gray = start[_FORM] == _GRAY.encode()
    if start != _header(size, is_gray):
        return 0, 0, False, 0
    rows, columns = half(*size)
    return *size, is_gray, _START + size[0] * size[1] + (0 if is_gray else 2 * rows * columns)


def _header(size: tuple[int, int], is_gray: bool) -> bytes:
    return _HEADER.format(width=size[1], height=size[0], form=_GRAY if is_gray else _COLOR).encode()


def _file(planes: Planes) -> bytes:
    planes = without_gray_chroma(planes)
    chroma = [] if planes.cb is None or planes.cr is None else [planes.cb.tobytes(), planes.cr.tobytes()]
    return b"".join([_header(planes.size, planes.cb is None), planes.y.tobytes(), *chroma])
