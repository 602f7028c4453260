"""jpeg:Q, jpeg:Q:444: lossy JPEG of quality Q, 1-100, default 95; a baseline file with restart markers.

Up to quality 95, chroma is halved in both directions (4:2:0). Above 95, that would limit the quality, so chroma is
complete (4:4:4). `:444` keeps it complete at any quality.
Restart markers divide the file into intervals, so that a crop decodes only the intervals in it. An interval is a part
of a row of MCUs (16 x 16 px, or 8 x 8 with 4:4:4). An APP11 segment contains the lengths of the intervals, as
packer.images.restart_interval_table describes.
`decode` reads any image format, because a conversion may keep a lossless file unchanged in a jpeg field.
"""

import math
import re
from dataclasses import replace
from typing import Any

import cv2

from packer.codecs import base
from packer.errors import BadInput, InvalidRequest
from packer.geometry import View
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Header, file_suffixes, sniff
from packer.images.restart_interval_table import check_table, with_table
from packer.schema import Field

_DEFAULT_ARGUMENT = "95"
_ARGUMENT = re.compile(r"([0-9]{1,3})(:444)?")
_HALVED_CHROMA = 95  # the highest quality with halved chroma
_CHROMA_420, _CHROMA_444 = cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444
# time to decode a restart marker, and an MCU of 6 or 3 blocks
_MARKER_US, _MCU_US = 0.34, {16: 1.0, 8: 0.38}
_CROP = 0.64  # of the width: the mean crop of RandomResizedCrop(scale=(0.08, 1))
_LONGEST_PX = 65_500  # JPEG_MAX_DIMENSION of libjpeg


class Codec(base.Codec):
    """Stores pixels as a JPEG file."""

    kinds = ("image",)
    any_image = True
    lossy = True
    has_table = True

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(field, options)
        text = _DEFAULT_ARGUMENT if self.argument is None else self.argument
        found = _ARGUMENT.fullmatch(text)
        if found is None or not 1 <= int(found[1]) <= 100:
            raise InvalidRequest(
                f"field {field.name!r}: quality {text!r} of codec 'jpeg': expected 1 to 100, as in jpeg:95, or with "
                "full chroma jpeg:95:444"
            )
        self.quality = int(found[1])
        self._halves_chroma = found[2] is None and self.quality <= _HALVED_CHROMA

    @classmethod
    def complete(cls, field: Field) -> Field:
        """Return the field with dtype uint8, and (H, W, 3) of any size if it has no shape."""
        return replace(field, dtype="uint8", shape=field.shape or (None, None, 3))

    @classmethod
    def suffixes_of(cls, field: Field, value: base.Buffer) -> tuple[str, ...]:
        """Return the suffixes of JPEG, or of the format of a lossless file that was kept unchanged."""
        return file_suffixes(value)

    def encode(self, value: Any) -> bytes:
        """Return a baseline JFIF file of a uint8 (H, W, 3) RGB array; raises InvalidRequest for anything else.

        The only APP segments are JFIF and the table of restart intervals. Raises BadInput for a side over 65,500 px.
        """
        self.check_pixels(value, ("uint8",))
        if not value.flags.c_contiguous:
            raise InvalidRequest(
                f"field {self.field.name!r}: codec 'jpeg' takes C-contiguous arrays; use numpy.ascontiguousarray"
            )
        height, width = value.shape[:2]
        if not (0 < height <= _LONGEST_PX and 0 < width <= _LONGEST_PX):
            raise BadInput(f"{width}x{height} px do not fit a JPEG, 1 to {_LONGEST_PX} each way do; use codec raw")
        mcu_px, sampling = (16, _CHROMA_420) if self._halves_chroma else (8, _CHROMA_444)
        options = [
            cv2.IMWRITE_JPEG_QUALITY,
            self.quality,
            cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
            sampling,
            cv2.IMWRITE_JPEG_RST_INTERVAL,
            _interval(-(-width // mcu_px), mcu_px),
        ]
        done, data = cv2.imencode(".jpg", cv2.cvtColor(value, cv2.COLOR_RGB2BGR), options)
        if not done:
            raise BadInput(f"OpenCV cannot encode {width}x{height} px as JPEG; use codec raw")
        file = data.tobytes()
        return with_table(file, sniff(file, self.field.pixel_limit))

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """Return uint8 (H, W, 3), RGB."""
        return self.pixels(buffer, view, out, header=header)

    def check(self, buffer: base.Buffer) -> None:
        check_table(buffer, self.pixels.read_header(buffer))


def _interval(row: int, mcu_px: int) -> int:
    """Return the number of MCUs per restart interval: a divisor of `row`, the number of MCUs in a row.

    In each row, a crop decodes about one extra interval, and one marker per interval. For T MCUs per interval, these
    are T MCUs and crop / T markers. The result is the divisor nearest to the best T, sqrt(crop * marker / MCU).
    """
    best = math.sqrt(_CROP * row * _MARKER_US / _MCU_US[mcu_px])
    divisors = [count for count in range(2, row + 1) if row % count == 0]
    return min(divisors, key=lambda count: (abs(count - best), count), default=row)
