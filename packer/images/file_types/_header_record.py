"""Header record: the size, format and layout of an image according to its file, and the limits for decoding it."""

from typing import NamedTuple

import numpy as np

from packer.errors import DamagedImage, OutOfMemory
from packer.schema import MOST_PIXELS, USUAL_PIXELS
from packer.schema import Buffer as Buffer
from packer.system.machine_limits import Machine

MAX_PIXELS = USUAL_PIXELS
MAX_DECODED_BYTES = 1 << 30  # for images up to MAX_PIXELS; in proportion for larger ones
MAX_SCANS = 500
# scans times pixels of a JPEG: each scan is a pass over the image, even if it is empty; encoders write 10 to 20 scans
MAX_SCAN_PIXELS = 3_000_000_000


class Intervals(NamedTuple):
    """Restart intervals of a JPEG of one scan. Each row of MCUs consists of several intervals of equal size, or of one.

    Attributes:
        size: (height, width) of an interval in px.
        mcus: Number of MCUs in an interval.
        rows: Number of intervals in the height of the image.
        columns: Number of intervals in the width of the image.
        table_at: Offset of the table of their lengths (packer.images.restart_interval_table); 0 without a table.
    """

    size: tuple[int, int]
    mcus: int
    rows: int
    columns: int
    table_at: int


class Scan(NamedTuple):
    """The only scan of a JPEG. Parts of it can be decoded alone.

    Attributes:
        mcu: (height, width) of an MCU in px.
        size_at: Offset of height and width, big-endian uint16, in the frame header (SOF).
        intervals: Its restart intervals. None if it has no restart markers.
    """

    mcu: tuple[int, int]
    size_at: int
    intervals: Intervals | None = None


class Header(NamedTuple):
    """Header of an image file.

    Attributes:
        format: jpeg, png, bmp, tiff, webp, pnm or npy, according to the first bytes of the file.
        height: Stored height in px, before any EXIF rotation.
        width: Stored width in px.
        channels: Number of stored channels, including alpha; 3 for a palette of colors.
        dtype: NumPy name of a stored sample; uint8 for samples of 1, 2 and 4 bits.
        orientation: EXIF orientation, 1 to 8; 1 if it is absent or out of range.
        lossy: True if the format is lossy. Another encoding as JPEG then loses little more.
        palette: True if samples are palette indices, except in a BMP with a gray palette.
        bits: Number of bits of a stored sample.
        cmyk: True for a CMYK JPEG.
        progressive: True for a progressive JPEG.
        scans: Number of scans of a JPEG.
        data_at: Offset of a JPEG's first entropy-coded data, or of the samples in pnm and npy; 0 for other formats.
        scan: The only scan of a JPEG, if parts of it can be decoded alone; else None.
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
        """Restart intervals of a JPEG, if it has them and they can be decoded alone; else None."""
        return self.scan.intervals if self.scan is not None else None

    def check_limits(self, max_pixels: int = MAX_PIXELS) -> None:
        """Raise DamagedImage for an image without pixels, or with more pixels or bytes than the limits.

        Raise OutOfMemory if an image has more than MAX_PIXELS pixels, and they do not fit into the free memory.
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
                f"an image of {needed:,} bytes does not fit into {limit.name}: {limit.free_bytes:,} are free; "
                "end other programs, or pack it smaller elsewhere (convert --resize)"
            )


def damaged(form: str, cause: str) -> DamagedImage:
    """Return the error for a damaged file of the format `form`. Its message does not contain the path."""
    return DamagedImage(f"cannot decode {form.upper()}: {cause}; replace the file or leave it out")
