"""Strict JPEG: libjpeg-turbo whose warnings are errors, by PyTurboJPEG and the system's library, else by simplejpeg.

Whatever libjpeg warns about is an error, with one exception: a file that lacks nothing but its end marker is decoded
with the marker put back, as every viewer does.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from packer.errors import DamagedImage, MissingPackage
from packer.images.headers._header_record import Buffer, Header
from packer.images.headers.jpeg import END, has_end
from packer.registry import import_or_explain

# what a library must decode before it is relied on: 8x8 px, gray, quality 50
_TINY = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffdb004300100b0c0e0c0a100e0d0e1211101318281a181616183123251d283a333d3c"
    "3933384740485c4e404457453738506d51575f626768673e4d71797064785c656763ffc0000b080008000801011100ffc4001400010000"
    "0000000000000000000000000005ffc40014100100000000000000000000000000000000ffda0008010100003f0015ffd9"
)
_TINY_GRAY = 76
_CLASSES = {"packer.images.backends.turbojpeg": "PyTurboJPEG", "packer.images.backends.simplejpeg": "SimpleJPEG"}
Corner = tuple[int, int]
_VERSION = re.compile(rb"libjpeg-turbo version (\d[\d.]*)")


class RegionDecoder(Protocol):
    """Decodes a region of a JPEG, as it is stored and with filtered chroma. Raises as JPEGLibrary does."""

    def __call__(self, buffer: Buffer, pixels: npt.NDArray[np.uint8], *, size: tuple[int, int], corner: Corner) -> None:
        """Decode into C-contiguous uint8 (H, W, 3), RGB.

        size: (height, width) of the whole image. corner: (top, left) of the region, multiples of an MCU's sides.
        """


class JPEGLibrary(Protocol):
    """One way to call libjpeg-turbo, shared by all threads. Raises DamagedImage where libjpeg fails or warns."""

    name: str  # package and version
    binary: str  # part of the path of the shared object that holds libjpeg-turbo

    def decode(
        self,
        buffer: Buffer,
        pixels: npt.NDArray[np.uint8],
        *,
        eighths: int = 8,
        fast_dct: bool = False,
        fast_upsampling: bool = False,
        allow_trailing_data: bool = False,
    ) -> None:
        """Decode into C-contiguous uint8 (H, W, 3) RGB, or (H, W, 1) gray; part of it is written where this raises.

        eighths: the scale, 1 to 8; each side is that of the file times eighths / 8, rounded up. Below 8 one side of the
          file has at least 8 px: less do not tell the library which scale is meant.
        fast_dct: JDCT_IFAST and fast_upsampling, where the scale is 8/8.
        fast_upsampling: chroma at half the size is enlarged by copies of each sample, not filtered.
        allow_trailing_data: the scan has more rows than the frame says; that there are, see `is_trailing_data`, is no
          error.
        """

    @property
    def decode_region(self) -> "RegionDecoder | None":
        """Decodes a cropping region alone; None where this libjpeg-turbo cannot: before release 3, or without its API.

        What lies below the region is not read, and no error.
        """

    def check(self, buffer: Buffer, found: Header) -> None:
        """Raise exactly where a full decode would: entropy decoding, which is what warns, is done in full.

        The image is reconstructed at 1/8 and in gray only, which takes a third less time.
        """


@functools.cache
def library() -> JPEGLibrary:
    """The first library that decodes a test image; raises MissingPackage where none does."""
    reasons = []
    for found in attempts():
        if not isinstance(found, str):
            return found
        reasons.append(found)
    raise MissingPackage(f"no JPEG library works: {'; '.join(reasons)}; pip install simplejpeg")


def attempts() -> Iterator[JPEGLibrary | str]:
    """The libraries in order of preference; for one that does not decode here, the reason as a text."""
    for module, name in _CLASSES.items():
        try:
            found: JPEGLibrary = getattr(import_or_explain(module, "decoding JPEG"), name)()
            pixels = np.zeros((8, 8, 1), np.uint8)
            found.decode(_TINY, pixels)
        except (MissingPackage, RuntimeError, OSError, AttributeError, KeyError, DamagedImage) as error:
            yield str(error)
            continue
        yield found if (pixels == _TINY_GRAY).all() else f"{found.name} decodes wrong pixels"


def describe(found: JPEGLibrary) -> str:
    """Package and libjpeg-turbo version; the latter is read from the shared object that the process has mapped."""
    maps = Path("/proc/self/maps")
    paths = {line.split()[-1] for line in maps.read_text().splitlines()} if maps.exists() else set()
    for path in sorted(paths):
        if path.startswith("/") and found.binary in path:
            match = _VERSION.search(Path(path).read_bytes())
            if match:
                return f"{found.name}, libjpeg-turbo {match[1].decode()}"
    return found.name


def is_trailing_data(message: str) -> bool:
    """Whether all that libjpeg found is that data is left between the last row and the end marker.

    The message is that of its first warning (jerror.c of libjpeg-turbo puts out no other), and this one comes last.
    """
    return message.startswith("Corrupt JPEG data: ") and message.endswith(" extraneous bytes before marker 0xd9")


def decode(
    buffer: Buffer,
    found: Header,
    pixels: npt.NDArray[np.uint8],
    *,
    eighths: int = 8,
    fast_dct: bool = False,
    fast_upsampling: bool = False,
) -> None:
    """Decode strictly into C-contiguous uint8 (H, W, 3) RGB or (H, W, 1) gray; zeros are left where this raises.

    eighths, fast_dct, fast_upsampling: see JPEGLibrary.decode.
    """
    try:
        library().decode(buffer, pixels, eighths=eighths, fast_dct=fast_dct, fast_upsampling=fast_upsampling)
    except DamagedImage as error:
        decode_with_end(
            buffer, found, pixels, error, eighths=eighths, fast_dct=fast_dct, fast_upsampling=fast_upsampling
        )


def decode_with_end(
    buffer: Buffer,
    found: Header,
    pixels: npt.NDArray[np.uint8],
    error: DamagedImage,
    *,
    eighths: int = 8,
    fast_dct: bool = False,
    fast_upsampling: bool = False,
) -> None:
    """As `decode`, of a file that the library has refused with `error`: once more with an end marker, if it lacks one.

    Raises `error` where it has one. Zeros are left where this raises.
    """
    try:
        if not _may_lack_end(buffer, found):
            raise error
        library().decode(
            bytes(buffer) + END, pixels, eighths=eighths, fast_dct=fast_dct, fast_upsampling=fast_upsampling
        )
    except DamagedImage:
        pixels.fill(0)
        raise


def check(buffer: Buffer, found: Header) -> Buffer:
    """Raise DamagedImage exactly where `decode` would; returns the bytes with an end marker, a copy where it lacked."""
    use = library()
    try:
        use.check(buffer, found)
    except DamagedImage:
        if not _may_lack_end(buffer, found):
            raise
        buffer = bytes(buffer) + END
        use.check(buffer, found)
    return buffer


def _may_lack_end(buffer: Buffer, found: Header) -> bool:
    """Whether a second try with an end marker is due; not where zeros end the file, which can pass for image data.

    A file that was cut and filled up (a hole left by a crash) ends so; entropy-coded data ends with padding of ones.
    """
    return not has_end(buffer, found) and buffer[-2:] != b"\0\0"
