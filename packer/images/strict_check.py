"""Strict check: finds damage in the data of image files, except JPEG, that OpenCV does not report.

| format | check |
|---|---|
| PNG | the crc32 of each chunk; OpenCV compares the checksum of zlib |
| TIFF | each strip and tile, decoded to its exact length, as below |
| WebP | the last bytes of the image are needed to decode it: see `_check_webp` |
| PNM as text | the number of samples, and their range |
| BMP, binary PNM, npy | none: plain samples after a header with their length |

Decoding a JPEG is always strict, with the same result in all decoders: see packer.images.backends.strict_jpeg.

libtiff only prints a warning about damage, and OpenCV returns half an image. Each strip and tile is
therefore checked to its end before OpenCV decodes it. The check depends on the compression, and computes no pixels.

| compression | check |
|---|---|
| none | at least the bytes of its rows |
| LZW | codes of the table to the exact length, then the end code or nothing |
| Deflate | zlib decodes it to the exact length with a correct Adler-32 |
| PackBits | runs to the exact length |
| JPEG | libjpeg decodes it without a warning, to the exact size |

The exact length of the last strip is the length of its rows, or of a full strip, since some writers pad it. Damage in
other compressions cannot be detected, so that they raise DamagedImage.

Layout: TIFF 6.0 section 9 (PackBits), 13 (LZW), 14 (differencing), 15 (tiles), 21 (YCbCr); TIFF Technical Note 2
(JPEG); Adobe Photoshop TIFF Technical Notes, March 2002 (Deflate); TIFF Technical Note 3 (floating point predictor).
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from packer.errors import DamagedImage
from packer.images.backends import strict_jpeg
from packer.images.headers import jpeg, png, pnm, tiff, webp
from packer.images.headers._header_record import MAX_DECODED_BYTES, Buffer, Header, damaged
from packer.registry import import_or_explain

MAX_PIECES = 1 << 16  # strips or tiles; each costs up to 0.1 ms here

_FILL_ORDER, _PLANES, _PREDICTOR, _JPEG_TABLES, _SUBSAMPLING = 266, 284, 317, 347, 530
_PLAIN, _LZW, _JPEG, _DEFLATE, _OLD_DEFLATE, _PACKBITS = 1, 5, 7, 8, 32946, 32773
_NAMES = {
    2: "CCITT RLE",
    3: "CCITT T.4",
    4: "CCITT T.6",
    6: "old JPEG",
    9: "JBIG",
    32809: "ThunderScan",
    34712: "JPEG 2000",
    34887: "LERC",
    34925: "LZMA",
    50000: "Zstandard",
    50001: "WebP",
    50002: "JPEG XL",
    34676: "SGI LogLuv",
}
_SEPARATE = 2
_LOWEST_FIRST = 2
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_HORIZONTAL, _FLOATING = 2, 3
_MOST_IDLE = 1 << 16  # runs of nothing in PackBits data
_READ_BYTES, _MADE_BYTES = 1 << 16, 1 << 18  # input and output of one call of zlib


class _Strip(NamedTuple):
    """A strip or tile.

    Attributes:
        name: Name in messages.
        data: Its data if it is compressed.
        stored: Its bytes in the file.
        height: Height in px.
        width: Width in px.
        full_height: Height of a full strip.
    """

    name: str
    data: bytes
    stored: int
    height: int
    width: int
    full_height: int


class _RowLayout(NamedTuple):
    """Layout of rows.

    Attributes:
        bits: Bits of a pixel in one plane.
        blocks: Height and width of the pixels that share chroma samples, for YCbCr without JPEG.
    """

    bits: int
    blocks: tuple[int, int] | None

    def size(self, height: int, width: int) -> int:
        """Return the decoded bytes of a size in px."""
        if self.blocks is None:
            return (width * self.bits + 7) // 8 * height
        rows, columns = -(-height // self.blocks[0]), -(-width // self.blocks[1])
        return rows * columns * (self.blocks[0] * self.blocks[1] + 2)


_Check = Callable[[_Strip, _RowLayout], None]


class _Tags:
    """The tags of the first directory."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._order, self._tags = tiff.directory(buffer)

    def __contains__(self, tag: int) -> bool:
        return tag in self._tags

    def all(self, tag: int) -> tuple[int, ...]:
        """Return every value; none if the tag is absent."""
        return tiff.values(self._buffer, self._order, self._tags.get(tag))

    def first(self, tag: int, default: int) -> int:
        """Return the first value."""
        return (self.all(tag) or (default,))[0]


def check_tiff(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if a strip or tile does not decode to the size in the directory."""
    tags = _Tags(buffer)
    compression = tags.first(tiff.COMPRESSION, _PLAIN)
    check_piece = _CHECKS.get(compression)
    if check_piece is None:
        name = _NAMES.get(compression, "unknown")
        raise damaged(
            "tiff",
            f"compression {compression} ({name}) is not supported, expected none, LZW, Deflate, PackBits or JPEG",
        )
    form = _form(tags, found, compression)
    tables = bytes(tags.all(_JPEG_TABLES)) if compression == _JPEG else b""
    for piece in _pieces(buffer, tags, found, form):
        if tables:
            piece = piece._replace(data=tables.removesuffix(jpeg.END) + piece.data[2:])
        check_piece(piece, form)


def _form(tags: _Tags, found: Header, compression: int) -> _RowLayout:
    predictor, is_float = tags.first(_PREDICTOR, 1), found.dtype.startswith("float")
    predicts = compression in (_LZW, _DEFLATE, _OLD_DEFLATE)
    fits = {1: True, _HORIZONTAL: found.bits >= 8, _FLOATING: is_float}
    if predicts and not fits.get(predictor, False):
        raise damaged("tiff", f"predictor {predictor} does not go with samples of {found.dtype}")
    samples = tags.first(tiff.SAMPLES, 1)
    if len(set(tags.all(tiff.BITS))) > 1:
        raise damaged("tiff", f"samples of {tags.all(tiff.BITS)} bit in one pixel are not supported")
    if tags.first(tiff.PHOTOMETRIC, 1) == tiff.YCBCR and compression != _JPEG:
        across, down = tags.all(_SUBSAMPLING) or (2, 2)
        if samples != 3 or tags.first(_PLANES, 1) == _SEPARATE or across not in (1, 2, 4) or down not in (1, 2, 4):
            raise damaged("tiff", f"YCbCr of {samples} samples, subsampled {across}x{down}, is not supported")
        return _RowLayout(found.bits, (down, across))
    return _RowLayout(found.bits * (1 if tags.first(_PLANES, 1) == _SEPARATE else samples), None)


def _pieces(buffer: Buffer, tags: _Tags, found: Header, form: _RowLayout) -> Iterator[_Strip]:
    """Yield the strips or tiles; tiff.check_end has checked that their data is in the file."""
    tiled = tiff.TILE_OFFSETS in tags
    offsets = tags.all(tiff.TILE_OFFSETS if tiled else tiff.STRIP_OFFSETS)
    sizes = tags.all(tiff.TILE_BYTES if tiled else tiff.STRIP_BYTES)
    height, width = found.height, found.width
    if tiled:
        height, width = tags.first(tiff.TILE_HEIGHT, 0), tags.first(tiff.TILE_WIDTH, 0)
    else:
        height = min(height, tags.first(tiff.STRIP_ROWS, height))
    if height < 1 or width < 1:
        raise damaged("tiff", f"its strips or tiles have {width}x{height} px, expected at least 1x1")
    down, across = -(-found.height // height), -(-found.width // width)
    planes = tags.first(tiff.SAMPLES, 1) if tags.first(_PLANES, 1) == _SEPARATE else 1
    count, what = down * across * planes, "tile" if tiled else "strip"
    if count > MAX_PIECES:
        raise damaged("tiff", f"it has {count} {what}s, the limit is {MAX_PIECES}; save it with larger ones")
    if len(offsets) < count:
        raise damaged("tiff", f"it has {len(offsets)} {what}s, expected {count}")
    if form.size(height, width) * count > 2 * MAX_DECODED_BYTES or sum(sizes[:count]) > len(buffer):
        raise damaged("tiff", f"its {count} {what}s hold more bytes than the limit, or overlap in the file")
    compression = tags.first(tiff.COMPRESSION, _PLAIN)
    backwards = tags.first(_FILL_ORDER, 1) == _LOWEST_FIRST and compression != _JPEG
    for number, (at, size) in enumerate(zip(offsets[:count], sizes[:count], strict=True)):
        rows = height if tiled else min(height, found.height - number % down * height)
        data = b"" if compression == _PLAIN else bytes(buffer[at : at + size])
        yield _Strip(f"{what} {number}", data.translate(_REVERSED) if backwards else data, size, rows, width, height)


def _check_size(piece: _Strip, form: _RowLayout, size: int) -> None:
    wanted = form.size(piece.height, piece.width)
    if size not in (wanted, form.size(piece.full_height, piece.width)):
        raise damaged("tiff", f"{piece.name} of {piece.stored} bytes decodes to {size} bytes, expected {wanted}")


def _plain(piece: _Strip, form: _RowLayout) -> None:
    wanted = form.size(piece.height, piece.width)
    if piece.stored < wanted:
        raise damaged("tiff", f"{piece.name} has {piece.stored} bytes, expected {wanted}")


def _lzw(piece: _Strip, form: _RowLayout) -> None:
    from packer.images import lzw_decoded_size  # computing its tables takes time, and few files need them

    most = form.size(piece.full_height, piece.width)
    _check_size(piece, form, lzw_decoded_size.decoded_size(piece.data, piece.name, most=most))


def _deflate(piece: _Strip, form: _RowLayout) -> None:
    most = form.size(piece.full_height, piece.width)
    stream, size, at, rest = zlib.decompressobj(), 0, 0, b""
    try:
        while not stream.eof and size <= most:
            if not rest:
                rest = piece.data[at : at + _READ_BYTES]
                at += _READ_BYTES
            made = len(stream.decompress(rest, _MADE_BYTES))
            if not made and not rest:
                raise damaged("tiff", f"{piece.name}: its Deflate data end after {size} bytes, without their checksum")
            size += made
            rest = stream.unconsumed_tail
    except zlib.error as error:
        raise damaged("tiff", f"{piece.name}: its Deflate data are damaged: {error}") from error
    _check_size(piece, form, size)


def _packbits(piece: _Strip, form: _RowLayout) -> None:
    """Check runs: a byte n and n + 1 bytes (n < 128), or n and one byte for 257 - n (n > 128); 128 is nothing."""
    wanted, most = form.size(piece.height, piece.width), form.size(piece.full_height, piece.width)
    data, at, size, idle = piece.data, 0, 0, 0
    end = len(data)
    while at < end and size < most:
        if size == wanted and end - at <= 1:  # data may be padded to an even length
            break
        count = data[at]
        if count < 128:
            at += count + 2
            size += count + 1
        elif count > 128:
            at += 2
            size += 257 - count
        else:
            at += 1
            idle += 1
            if idle > _MOST_IDLE:
                raise damaged(
                    "tiff", f"{piece.name}: its PackBits data have {idle} runs of nothing, the limit is {_MOST_IDLE}"
                )
    if at > end:
        raise damaged("tiff", f"{piece.name}: its PackBits data end inside a run")
    _check_size(piece, form, size)
    if end - at > 1:
        raise damaged("tiff", f"{piece.name}: its PackBits data go on for {end - at} bytes after the last row")


def _jpeg(piece: _Strip, form: _RowLayout) -> None:
    try:
        found = jpeg.header(piece.data)
        strict_jpeg.check(piece.data, found)
    except (DamagedImage, struct.error, IndexError) as error:
        raise damaged("tiff", f"{piece.name}: its JPEG data are damaged") from error
    fits = found.width == piece.width and piece.height <= found.height <= piece.full_height
    if not fits or 8 * found.channels != form.bits:
        what, wanted = f"{found.width}x{found.height}", f"{piece.width}x{piece.height}"
        raise damaged(
            "tiff", f"{piece.name}: its JPEG data have {what} px of {found.channels} samples, expected {wanted}"
        )


_CHECKS: dict[int, _Check] = {
    _PLAIN: _plain,
    _LZW: _lzw,
    _DEFLATE: _deflate,
    _OLD_DEFLATE: _deflate,
    _PACKBITS: _packbits,
    _JPEG: _jpeg,
}


# ---- every format


def check_data(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if the data of a file, not a JPEG, does not match its header."""
    check = _BY_FORMAT.get(found.format)
    if check is not None:
        check(buffer, found)


def _check_webp(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if the image can be decoded without its last bytes.

    libwebp reads an image up to the data of its last pixel, and fails if the data end before. Data that was cut and
    padded, or changed in the middle, decodes to other pixels without an error. It hardly ever ends at the right byte.
    """
    shorter = webp.shortened(buffer)
    if shorter is not None and import_or_explain("packer.images.backends.opencv", "decoding images").decodes(shorter):
        raise damaged("webp", f"the last {webp.SPARE_BYTES} bytes of its image are not needed to decode it")


_BY_FORMAT: dict[str, Callable[[Buffer, Header], None]] = {
    "png": lambda buffer, _: png.check_chunks(buffer),
    "tiff": check_tiff,
    "webp": _check_webp,
    "pnm": pnm.check_text,
}
