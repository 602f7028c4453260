"""Header record: size, format and layout that an image file announces, and the limits for decoding it."""

from typing import NamedTuple

import numpy as np

from packer.errors import DamagedImage, OutOfMemory
from packer.schema import MOST_PIXELS, USUAL_PIXELS
from packer.schema import Buffer as Buffer
from packer.system.machine_limits import Machine

MAX_PIXELS = USUAL_PIXELS
MAX_DECODED_BYTES = 1 << 30  # of images within MAX_PIXELS; in proportion where more are allowed
MAX_SCANS = 500
# Scans times pixels of a JPEG: a scan is a pass over the image, of 0.6 ms per megapixel even where it brings nothing.
# Encoders write 10 scans or so, jpegtran and mozjpeg up to twice as many: 100 MP may have 30, 6 MP all 500.
MAX_SCAN_PIXELS = 3_000_000_000


class Intervals(NamedTuple):
    """Restart intervals of a JPEG of one scan, each a whole fraction of a row of MCUs: see
    packer.images.restart_interval_table.

    size: (height, width) of an interval in px. mcus: MCUs in an interval.
    rows, columns: intervals in the image's height and width.
    table_at: offset of a table of the intervals' lengths, or 0.
    """

    size: tuple[int, int]
    mcus: int
    rows: int
    columns: int
    table_at: int


class Scan(NamedTuple):
    """The one scan of a JPEG, which brings all of its image and of which a part can be decoded.

    mcu: (height, width) of an MCU in px. size_at: offset of the frame's height and width, a big-endian uint16 each.
    intervals: how restart markers divide it; None where there are none.
    """

    mcu: tuple[int, int]
    size_at: int
    intervals: Intervals | None = None


class Header(NamedTuple):
    """One image file as it announces itself.

    format: jpeg, png, bmp, tiff, webp, pnm or npy, told by magic bytes alone.
    height, width: px as stored, before any EXIF rotation.
    channels: as stored, alpha included; 3 for a palette whose entries are colors.
    dtype: NumPy name of one stored sample; 1, 2 and 4 bit samples are uint8.
    orientation: EXIF value 1-8; 1 where absent or out of range.
    lossy: whether the format threw information away; packing it again as JPEG loses little more.
    palette: whether the stored samples are palette indices; not for a BMP whose table is the plain grays, as for a
      1-bit one black and white. bits: of one stored sample.
    cmyk, progressive, scans: of a JPEG. data_at: offset of its first scan's data. scan: that one, where a part of it
      can be decoded.
    """

    format: str
    height: int
    width: int
    channels: int
    dtype: str = "uint8"
    orientation: int = 1
    lossy: bool = False
    palette: bool = False
    bits: int = 8
    cmyk: bool = False
    progressive: bool = False
    scans: int = 1
    data_at: int = 0
    scan: Scan | None = None

    @property
    def intervals(self) -> Intervals | None:
        """The restart intervals of a JPEG of which parts can be decoded."""
        return self.scan.intervals if self.scan is not None else None

    def check_limits(self, max_pixels: int = MAX_PIXELS) -> None:
        """Raise DamagedImage for an image without pixels or beyond the limits.

        Raises OutOfMemory for one beyond the usual limit whose pixels this machine has no room for now.
        """
        if self.height < 1 or self.width < 1:
            raise damaged(self.format, f"it announces {self.width}x{self.height} px, expected at least 1x1")
        if self.height * self.width > max_pixels:
            most = f"up to {MOST_PIXELS // 1_000_000}M, "
            raise DamagedImage(
                f"cannot decode {self.format.upper()}: it announces {self.width}x{self.height} px = "
                f"{self.height * self.width / 1e6:.1f} MP, the limit is {max_pixels / 1e6:g} MP; replace the file, "
                f"raise the limit when packing (convert --max-pixels N, {most}memory for each thread), or leave it out"
            )
        pixel_values = decoded_bytes = self.height * self.width * self.channels
        if self.dtype != "uint8":
            decoded_bytes *= np.dtype(self.dtype).itemsize
        limit = MAX_DECODED_BYTES * max(max_pixels, MAX_PIXELS) // MAX_PIXELS
        if decoded_bytes > limit:
            raise damaged(self.format, f"it announces {decoded_bytes} bytes of pixels, the limit is {limit}")
        if self.height * self.width > MAX_PIXELS:
            _check_memory(self.height * self.width * max(3, self.channels) * decoded_bytes // pixel_values)


def _check_memory(needed: int) -> None:
    machine = Machine()
    for limit in machine.memory_limits():
        if needed > limit.free_bytes:
            raise OutOfMemory(
                f"an image of {needed:,} bytes does not fit into {limit.name}, of which {limit.free_bytes:,} are "
                "free; end other programs, or pack it smaller elsewhere (convert --resize)"
            )


def damaged(form: str, cause: str) -> DamagedImage:
    """The error for a file of that format; the caller puts the path before it."""
    return DamagedImage(f"cannot decode {form.upper()}: {cause}; replace the file or leave it out")
