"""Strict JPEG: decodes with libjpeg-turbo, and treats its warnings as errors.

PyTurboJPEG calls libjpeg-turbo of the system. If it does not work, simplejpeg is used, which contains a copy. One
warning is not an error: a file that lacks only its end marker is decoded with an added marker, as viewers do.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from packer.errors import DamagedImage, MissingPackage
from packer.images.file_types._header_record import Buffer, Header
from packer.images.file_types.jpeg import END, has_end
from packer.registry import import_or_explain

# test image for a library: 8x8 px, gray, quality 50
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
    """Decodes a region of a JPEG at full size, with filtered chroma. Raises DamagedImage if libjpeg fails or warns."""

    def __call__(self, buffer: Buffer, pixels: npt.NDArray[np.uint8], *, size: tuple[int, int], corner: Corner) -> None:
        """Decode into C-contiguous uint8 (H, W, 3), RGB.

        Args:
            buffer: The file.
            pixels: Memory for the region.
            size: (height, width) of the complete image.
            corner: (top, left) of the region in px. They must be multiples of the height and width of an MCU.
        """


class JPEGLibrary(Protocol):
    """A package that calls libjpeg-turbo, shared by all threads. It raises DamagedImage if libjpeg fails or warns."""

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
        """Decode into `pixels`, C-contiguous uint8 (H, W, 3) RGB or (H, W, 1) gray. An error leaves it partly written.

        Args:
            buffer: The file.
            pixels: Memory for the image. Each side is that of the image in the file times eighths / 8, rounded up.
            eighths: Scale, 1 to 8. Below 8, one side of the image must have at least 8 px: the library takes a size,
                which is ambiguous for shorter sides.
            fast_dct: True uses JDCT_IFAST and, at scale 8/8, `fast_upsampling`. False uses JDCT_ISLOW.
            fast_upsampling: True enlarges chroma by copying samples. False uses a filter.
            allow_trailing_data: True accepts data between the last row and the end marker. False raises DamagedImage.
        """

    @property
    def decode_region(self) -> "RegionDecoder | None":
        """Decoder of a region, which reads no data below the region. None if the library is not libjpeg-turbo 3."""

    def check(self, buffer: Buffer, found: Header) -> None:
        """Raise DamagedImage if a full decode would raise it.

        All entropy-coded data is decoded, but the image only at 1/8 and in gray, which takes a third less time.
        """


@functools.cache
def library() -> JPEGLibrary:
    """Return the first library that decodes a test image. Raise MissingPackage if none does."""
    reasons = []
    for found in attempts():
        if not isinstance(found, str):
            return found
        reasons.append(found)
    raise MissingPackage(f"no JPEG library works: {'; '.join(reasons)}; pip install simplejpeg")


def attempts() -> Iterator[JPEGLibrary | str]:
    """Yield each library in order of preference or, if it does not work, the reason as text."""
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
    """Return the name and version of the package and, if its shared object contains it, the libjpeg-turbo version."""
    maps = Path("/proc/self/maps")
    paths = {line.split()[-1] for line in maps.read_text().splitlines()} if maps.exists() else set()
    for path in sorted(paths):
        if path.startswith("/") and found.binary in path:
            match = _VERSION.search(Path(path).read_bytes())
            if match:
                return f"{found.name}, libjpeg-turbo {match[1].decode()}"
    return found.name


def is_trailing_data(message: str) -> bool:
    """Return True if the message warns only of data between the last row and the end marker.

    `message` is the text of libjpeg's first warning (jerror.c). No other warning can follow this one.
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
    """Decode into `pixels`, C-contiguous uint8 (H, W, 3) RGB or (H, W, 1) gray. DamagedImage leaves zeros in it.

    A file that lacks only its end marker is decoded with an added marker. `JPEGLibrary.decode` describes the options.
    """
    use = library()
    try:
        use.decode(buffer, pixels, eighths=eighths, fast_dct=fast_dct, fast_upsampling=fast_upsampling)
    except DamagedImage:
        try:
            if not _may_lack_end(buffer, found):
                raise
            file = bytes(buffer) + END
            use.decode(file, pixels, eighths=eighths, fast_dct=fast_dct, fast_upsampling=fast_upsampling)
        except DamagedImage:
            pixels.fill(0)
            raise


def check(buffer: Buffer, found: Header) -> Buffer:
    """Return the file, with an added end marker if it lacks only this. Raise DamagedImage if `decode` raises it."""
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
    """Return True if an end marker may be added to the file. False if it has one, or if it ends with zeros.

    A file that was cut and filled (a hole after a crash) ends with zeros. Entropy-coded data never ends with zeros.
    """
    return not has_end(buffer, found) and buffer[-2:] != b"\0\0"
