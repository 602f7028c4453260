"""What the tests of crop-aware decoding share: JPEGs with restart intervals, and each JPEG library on its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import cv2
import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.images import Header, lossless_jpeg_crop, sniff
from packer.images.backends import strict_jpeg
from packer.images.lossless_jpeg_crop import Box
from packer.images.region_decoder import Region
from packer.images.restart_interval_table import HEAD_BYTES, with_table
from packer.schema import Field
from tests.support import image_files
from tests.support.jpeg_libraries import LIBRARIES

SAMPLINGS = {
    "444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "411": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}
NAMES = (*SAMPLINGS, "gray")


def jpeg(sampling: str, *, height: int, width: int, mcus: int, table: bool = False, quality: int = 85) -> bytes:
    """A JPEG with a restart marker after every so many MCUs; table: with their lengths, where they can be cut."""
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, mcus]
    if sampling == "gray":
        file = image_files.with_opencv(image_files.grays(height=height, width=width), ".jpg", *options)
    else:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling]]
        file = image_files.with_opencv(image_files.colors(height=height, width=width), ".jpg", *options)
    return with_table(file, sniff(file)) if table else file


def with_lengths(file: bytes, lengths: npt.NDArray[np.int64]) -> bytes:
    """The same JPEG with another table of restart intervals, of as many bytes a length as it had."""
    at = table_at(file)
    size = file[at + HEAD_BYTES - 1]
    return (
        file[: at + HEAD_BYTES] + lengths.astype(f">u{size}").tobytes() + file[at + HEAD_BYTES + size * len(lengths) :]
    )


def lengths_of(file: bytes) -> npt.NDArray[np.int64]:
    """What its table says."""
    layout, at = sniff(file).intervals, table_at(file)
    assert layout is not None
    count, size = layout.rows * layout.columns, file[at + HEAD_BYTES - 1]
    return np.frombuffer(file, f">u{size}", count, at + HEAD_BYTES).astype(np.int64)


def table_at(file: bytes) -> int:
    """Offset of the table's segment behind its marker."""
    layout = sniff(file).intervals
    assert layout is not None and layout.table_at
    return layout.table_at


def shifted(file: bytes, by: int) -> bytes:
    """The same JPEG with a table whose entries, from the second on, are those of the intervals `by` further on.

    For a multiple of eight each entry ends at a marker of the right number, but for those near the end.
    """
    lengths = lengths_of(file)
    new = [[lengths[: by + 1].sum()], lengths[by + 1 : -1], np.zeros(by, np.int64), lengths[-1:]]
    return with_lengths(file, np.concatenate(new))


def packed(height: int = 150, width: int = 230, quality: int | str = 90, seed: int = 0) -> bytes:
    """What packer's codec jpeg stores. quality: its argument, such as 90 or 90:444."""
    codec = codecs.load("jpeg").Codec(Field("image", "image", f"jpeg:{quality}", dtype="uint8", shape=(None, None, 3)))
    file = codec.encode(image_files.colors(seed, height=height, width=width))
    assert isinstance(file, bytes)
    return file


@contextmanager
def through(library: str, *, always: bool = True) -> Iterator[None]:
    """One library as if it were the only one; always: cut however little there is to gain."""
    with (
        mock.patch.object(strict_jpeg, "library", lambda: LIBRARIES[library]),
        mock.patch.object(lossless_jpeg_crop, "WORTH_PX", 1 if always else lossless_jpeg_crop.WORTH_PX),
    ):
        yield


def scaled(box: Box, eighths: int) -> tuple[int, int, int, int]:
    """Top, left, bottom and right of a box at a scale, rounded outwards."""
    top, left, height, width = box
    return top * eighths // 8, left * eighths // 8, -(-(top + height) * eighths // 8), -(-(left + width) * eighths // 8)


def shows(region: Region, whole: image_files.Pixels, box: Box) -> bool:
    """Whether a region covers the box and has the pixels of the whole image there; whole: at the region's scale."""
    top, left, bottom, right = scaled(box, region.eighths)
    height, width = region.pixels.shape[:2]
    assert region.full == whole.shape[:2]
    assert region.top <= top and bottom <= region.top + height <= region.full[0]
    assert region.left <= left and right <= region.left + width <= region.full[1]
    rows, columns = slice(top - region.top, bottom - region.top), slice(left - region.left, right - region.left)
    return np.array_equal(region.pixels[rows, columns], whole[top:bottom, left:right])


def is_part(region: Region) -> bool:
    """Whether less than the whole image was decoded."""
    return region.pixels.shape[:2] != region.full


def boxes(found: Header) -> dict[str, Box]:
    """Corners, edges, inside and one pixel."""
    height, width = found.height, found.width
    h, w = max(height // 4, 1), max(width // 4, 1)
    return {
        "top left": (0, 0, h, w),
        "bottom right": (height - h, width - w, h, w),
        "right edge": (height // 3, width - 1, h, 1),
        "bottom edge": (height - 1, width // 3, 1, w),
        "inside": (height // 3, width // 3, h, w),
        "a pixel": (height // 2, width // 2, 1, 1),
        "rows": (height // 2, 0, h, width),
        "columns": (0, width // 2, height, w),
    }
