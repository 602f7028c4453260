"""OpenCV backend: decodes all formats except JPEG. It also decodes CMYK JPEGs, and any JPEG with decoder="opencv"."""

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import OutOfMemory
from packer.images.file_types import bmp, jpeg, png, tiff
from packer.images.file_types._header_record import Buffer, Header, damaged
from packer.schema import Value

NAME = f"OpenCV {cv2.__version__}"

Pixels = npt.NDArray[Value]

_RGB = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
# BGR: OpenCV has these flags only for BGR
_REDUCED = {4: cv2.IMREAD_REDUCED_COLOR_2, 2: cv2.IMREAD_REDUCED_COLOR_4, 1: cv2.IMREAD_REDUCED_COLOR_8}
_STORED = cv2.IMREAD_UNCHANGED  # never rotates, keeps dtype and channels; BGR


def color(buffer: Buffer, found: Header) -> Pixels:
    """Decode to uint8 (H, W, 3), RGB. Expand gray, drop alpha, convert palette and CMYK. Raises DamagedImage."""
    return _decode(_prepared(buffer, found), _RGB, found)


def stored(buffer: Buffer, found: Header) -> Pixels:
    """Decode to (H, W) or (H, W, C) in the dtype of the file, with colors in the order BGR. Raises DamagedImage."""
    pixels = _decode(_prepared(buffer, found), _STORED, found)
    if pixels.dtype != found.dtype:
        raise damaged(found.format, f"OpenCV gives {pixels.dtype}, the header has {found.dtype}")
    return pixels


def indices(buffer: Buffer, found: Header) -> Pixels:
    """Return the palette indices of a PNG, BMP or TIFF, uint8 (H, W). Raises DamagedImage.

    OpenCV returns colors only. So this function decodes a copy of the file in which it replaces the header or palette.
    """
    if found.format in ("bmp", "tiff"):
        changed = bmp.with_indices(buffer) if found.format == "bmp" else tiff.with_indices(buffer)
        return np.ascontiguousarray(_decode(changed, _RGB, found)[:, :, 0])
    pixels = _decode(png.bare(buffer, as_gray=True), _STORED, found)
    return pixels // (255 // ((1 << found.bits) - 1)) if found.bits < 8 else pixels


def decodes(buffer: Buffer) -> bool:
    """Return True if OpenCV decodes the file without an error. A damaged file may also give True."""
    return cv2.imdecode(np.frombuffer(buffer, np.uint8), _STORED) is not None


def _prepared(buffer: Buffer, found: Header) -> Buffer:
    if found.format == "png":
        return png.bare(buffer)
    if found.format == "tiff":
        return tiff.as_stored(buffer)
    if found.format == "jpeg" and buffer[-2:] != jpeg.END:
        return bytes(buffer) + jpeg.END  # OpenCV requires the marker, and ignores a second one
    return buffer


def _decode(buffer: Buffer, flags: int, found: Header) -> Pixels:
    try:
        pixels = cv2.imdecode(np.frombuffer(buffer, np.uint8), flags)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise OutOfMemory(f"{found.format.upper()} of {found.width}x{found.height} px: {error.err}") from error
        raise damaged(found.format, f"OpenCV: {error.err}") from error
    if pixels is None:
        raise damaged(found.format, "OpenCV cannot read its pixels")
    if pixels.shape[:2] != (found.height, found.width):
        height, width = pixels.shape[:2]
        raise damaged(found.format, f"OpenCV gives {width}x{height} px, the header has {found.width}x{found.height}")
    return pixels
