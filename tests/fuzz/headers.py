"""What the targets of image headers have in common."""

import io
import struct
import warnings

from PIL import Image

from packer.errors import PackerError
from packer.images.field_decoder import HeaderCache
from packer.images.file_types import check_end, sniff
from packer.images.file_types._header_record import MAX_PIXELS, Header
from tests.fuzz.target import Disagreement

_LEARNT = HeaderCache()  # of many files, as a field has them
_SILENT = (
    struct.error,
    OSError,
    ValueError,
    SyntaxError,
    KeyError,
    IndexError,
    TypeError,
    EOFError,
    AttributeError,
    OverflowError,
)


def check_header(data: bytes, *, compare: bool = True) -> Header:
    """Sniff and look at the end; every way to ask says the same. compare: with Pillow, where that reads the header."""
    found = sniff(data)
    if found != sniff(memoryview(data)) or found != _LEARNT.of(data) or found != _LEARNT.of(memoryview(data)):
        raise Disagreement(f"a header that is remembered is not the one that is read: {found}")
    if not (found.height >= 1 and found.width >= 1 and found.height * found.width <= MAX_PIXELS):
        raise Disagreement(f"{found} is beyond the limits")
    try:
        check_end(data, found) if found.format != "jpeg" else None
    except PackerError:
        return found
    if compare and (size := _with_pillow(data)) not in (None, (found.width, found.height)):
        raise Disagreement(f"{found.width}x{found.height} px, of which Pillow says {size}")
    return found


def _with_pillow(data: bytes) -> tuple[int, int] | None:
    """(width, height); None where Pillow does not open it, for whatever reason of its own."""
    Image.MAX_IMAGE_PIXELS = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data)) as image:
                return image.size
        except _SILENT:
            return None
