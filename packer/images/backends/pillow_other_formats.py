"""Pillow: decodes image formats that packer does not read, while files are packed with `--decode-with pillow`.

A file with more than 8 bits per channel or more than one image is refused, so that decoding loses nothing. An image
with an orientation (in HEIC, AVIF or EXIF) is rotated upright, because the pack does not store the orientation. Formats
that packer reads are never decoded by Pillow.
"""

import io
import struct
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, DamagedImage
from packer.images.file_types._header_record import MAX_PIXELS
from packer.images.mask_alpha_loss import is_alpha_lost
from packer.registry import import_or_explain

# suffix -> name of the format in Pillow; only the suffix chooses the reader
FORMATS = {
    ".heic": "HEIF",
    ".heif": "HEIF",
    ".hif": "HEIF",
    ".avif": "AVIF",
    ".gif": "GIF",
    ".jp2": "JPEG2000",
    ".j2k": "JPEG2000",
    ".j2c": "JPEG2000",
    ".jpc": "JPEG2000",
    ".jpf": "JPEG2000",
    ".jpx": "JPEG2000",
    ".tga": "TGA",
    ".ico": "ICO",
    ".psd": "PSD",
}
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
_LAYERED = ("PSD", "ICO")  # their frames are layers or sizes of one image
_ERRORS = (OSError, SyntaxError, ValueError, IndexError, EOFError, struct.error)  # of Pillow for damaged files
_J2K_START = b"\xff\x4f\xff\x51"  # SOC and SIZ, ISO/IEC 15444-1 A.5.1


def is_readable(name: str) -> bool:
    """Return True if this module decodes files with the suffix of this name."""
    return PurePosixPath(name).suffix.lower() in FORMATS


def check_installed(names: "list[str]") -> None:
    """Raise MissingPackage if files of these names need a package that is not installed."""
    import_or_explain("PIL.Image", "--decode-with pillow")
    if any(FORMATS[PurePosixPath(name).suffix.lower()] == "HEIF" for name in names):
        _register_heif()


def decode(data: bytes, name: str, kind: str = "image") -> npt.NDArray[np.uint8]:
    """Decode an image to RGB (H, W, 3), or a mask to (H, W).

    A mask contains the stored values: indices of a palette, or gray. Samples of one bit become 0 and 255.

    Args:
        data: The file.
        name: Name of the file; its suffix chooses the format.
        kind: image or mask.

    Raises:
        DamagedImage: The file cannot be decoded. Or the result would lose bits, images, alpha or channels of a mask.
        MissingPackage: Pillow or pillow-heif is not installed.
    """
    format_name = FORMATS[PurePosixPath(name).suffix.lower()]
    image_module: Any = import_or_explain("PIL.Image", "--decode-with pillow")
    image_ops: Any = import_or_explain("PIL.ImageOps", "--decode-with pillow")
    if format_name == "HEIF":
        _register_heif()
    try:
        with image_module.open(io.BytesIO(data), formats=(format_name,)) as image:
            _check(image, data, format_name)
            upright = image_ops.exif_transpose(image)
            if kind == "mask":
                return _mask(upright)
            if "transparency" in upright.info:
                upright = upright.convert("RGBA")
            return np.asarray(upright.convert("RGB"))
    except DamagedImage:
        raise
    except (*_ERRORS, image_module.DecompressionBombError) as error:
        raise DamagedImage(
            f"cannot decode as {format_name} with Pillow: {error}; replace it or leave it out"
        ) from error


def _mask(image: Any) -> npt.NDArray[np.uint8]:
    if image.mode in ("LA", "RGBA"):
        try:
            pixels = np.asarray(image)
            is_alpha_lost(pixels[:, :, :-1], pixels[:, :, -1])
        except BadInput as error:
            raise DamagedImage(error.message) from error
    if image.mode in ("P", "PA", "L", "LA"):
        return np.asarray(image.getchannel(0))
    if image.mode == "1":
        return np.asarray(image.convert("L"))
    pixels = np.asarray(image.convert("RGB"))
    if (pixels != pixels[:, :, :1]).any():
        raise DamagedImage("has channels that differ, a mask is gray or has a palette; convert it or leave it out")
    return np.ascontiguousarray(pixels[:, :, 0])


def _check(image: Any, data: bytes, format_name: str) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise DamagedImage(f"{width}x{height} px are too many: the limit is {MAX_PIXELS // 10**6} MP; leave it out")
    frames = 1 if format_name in _LAYERED else getattr(image, "n_frames", 1)
    if frames > 1:
        raise DamagedImage(f"contains {frames} images (animated?), expected one; split it or leave it out")
    bits = max(_bits(image, data, format_name), 8)
    if image.mode not in _MODES or bits > 8:
        raise DamagedImage(
            f"has pixels of mode {image.mode}, {bits} bits per channel, expected 8 bits, since none is made by "
            "narrowing; convert it or leave it out"
        )


def _bits(image: Any, data: bytes, format_name: str) -> int:
    """Return the bits per channel according to the file, because Pillow reduces all pixels to 8 bits."""
    if format_name == "HEIF":
        return int(image.info.get("bit_depth", 8))
    if format_name == "AVIF":  # AV1 codec configuration, AV1-ISOBMFF 2.3.3: the third byte has high_bitdepth
        places = _places(data, b"av1C")
        return max((10 if data[at + 6] & 0x40 else 8 for at in places if at + 6 < len(data)), default=8)
    start = data.find(_J2K_START) if format_name == "JPEG2000" else -1
    if start < 0 or start + 42 > len(data):
        return 8
    count = int.from_bytes(data[start + 40 : start + 42], "big")
    depths = data[start + 42 : start + 42 + 3 * count : 3]
    return max(((depth & 0x7F) + 1 for depth in depths), default=8)


def _places(data: bytes, word: bytes) -> "list[int]":
    places, at = [], data.find(word)
    while at >= 0:
        places.append(at)
        at = data.find(word, at + 1)
    return places


def _register_heif() -> None:
    heif: Any = import_or_explain("pillow_heif", "--decode-with pillow of HEIC")
    heif.register_heif_opener()
