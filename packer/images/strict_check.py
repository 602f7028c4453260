"""Strict check: raises DamagedImage for damaged image files that OpenCV would decode without an error.

| format | check |
|---|---|
| PNG | the crc32 of each chunk; OpenCV compares the checksum of zlib |
| TIFF | each strip and tile decodes to the length that the directory requires, see below |
| WebP | OpenCV fails to decode the image without its last bytes, see `_check_webp` |
| PNM as text | the number of samples, and their range |
| BMP, binary PNM, npy | none: the samples are not compressed, and the header gives their length |
| JPEG | none here: packer.images.backends.strict_jpeg checks a JPEG when it is decoded |

For a damaged TIFF, libtiff only prints a warning, and OpenCV returns half an image. The check of a strip or tile
depends on the compression. It computes no pixels.

| compression | check of a strip or tile |
|---|---|
| none | it has at least the bytes of its rows |
| LZW | its codes decode to the exact length; an end code or nothing follows |
| Deflate | zlib decodes it to the exact length, with a correct Adler-32 |
| PackBits | its runs have the exact length |
| JPEG | libjpeg decodes it to the exact size without a warning |

The exact length of the last strip is the length of its rows, or of a full strip, because some writers pad the last
strip. Any other compression raises DamagedImage, because its damage could not be detected.

Layout: TIFF 6.0 section 9 (PackBits), 13 (LZW), 14 (differencing), 15 (tiles), 21 (YCbCr); TIFF Technical Note 2
(JPEG); Adobe Photoshop TIFF Technical Notes, March 2002 (Deflate); TIFF Technical Note 3 (floating point predictor).
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from packer.errors import DamagedImage
from packer.images.backends import strict_jpeg
from packer.images.file_types import jpeg, png, pnm, tiff, webp
from packer.images.file_types._header_record import MAX_DECODED_BYTES, Buffer, Header, damaged
from packer.registry import import_or_explain

MAX_PIECES = 1 << 16  # strips or tiles; each costs up to 0.1 ms here

_FILL_ORDER, _PLANES, _PREDICTOR, _JPEG_TABLES, _SUBSAMPLING = 266, 284, 317, 347, 530
_PLAIN, _LZW, _JPEG, _DEFLATE, _OLD_DEFLATE, _PACKBITS = 1, 5, 7, 8, 32946, 32773
_SEPARATE = 2
_LOWEST_FIRST = 2
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_HORIZONTAL, _FLOATING = 2, 3
_MOST_EMPTY_RUNS = 1 << 16  # in PackBits data
_READ_BYTES, _MADE_BYTES = 1 << 16, 1 << 18  # input and output of one call of zlib


class _RowLayout(NamedTuple):
    """Layout of the decoded rows of a strip or tile.

    Attributes:
        bits: Bits of a pixel in one plane.
        blocks: (height, width) in px of the area of a chroma sample, for YCbCr without JPEG. None for other images.
    """

    bits: int
    blocks: tuple[int, int] | None

    def size(self, height: int, width: int) -> int:
        """Return the number of decoded bytes of `height` rows of `width` px."""
        if self.blocks is None:
            return (width * self.bits + 7) // 8 * height
        rows, columns = -(-height // self.blocks[0]), -(-width // self.blocks[1])
        return rows * columns * (self.blocks[0] * self.blocks[1] + 2)


class _Piece(NamedTuple):
    """A strip or tile.

    Attributes:
        name: Name in messages.
        data: The bytes in the file; empty if they are not compressed.
        stored_bytes: Number of bytes in the file.
        height: Height in px.
        width: Width in px.
        full_height: Height in px of a strip that is not the last one. For a tile, it is equal to `height`.
        layout: Layout of the decoded rows.
    """

    name: str
    data: bytes
    stored_bytes: int
    height: int
    width: int
    full_height: int
    layout: _RowLayout

    @property
    def decoded_bytes(self) -> int:
        """Number of bytes to which the piece must decode."""
        return self.layout.size(self.height, self.width)

    @property
    def full_bytes(self) -> int:
        """Number of bytes of a full strip, to which the last strip may also decode."""
        return self.layout.size(self.full_height, self.width)


class _Tags:
    """The tags of the first directory."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._order, self._tags = tiff.directory(buffer)

    def __contains__(self, tag: int) -> bool:
        return tag in self._tags

    def all(self, tag: int) -> tuple[int, ...]:
        """Return every value of a tag, or () if the tag is absent."""
        return tiff.values(self._buffer, self._order, self._tags.get(tag))

    def first(self, tag: int, default: int) -> int:
        """Return the first value of a tag, or `default` if the tag is absent."""
        return (self.all(tag) or (default,))[0]


def check_tiff(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if a strip or tile does not decode to the size that the directory requires."""
    tags = _Tags(buffer)
    compression = tags.first(tiff.COMPRESSION, _PLAIN)
    check_piece = _CHECKS.get(compression)
    if check_piece is None:
        raise damaged(
            "tiff", f"compression {compression} is not supported, expected none, LZW, Deflate, PackBits or JPEG"
        )
    layout = _row_layout(tags, found, compression)
    tables = bytes(tags.all(_JPEG_TABLES)) if compression == _JPEG else b""
    for piece in _pieces(buffer, tags, found, layout):
        if tables:
            piece = piece._replace(data=tables.removesuffix(jpeg.END) + piece.data[2:])
        check_piece(piece)


def _row_layout(tags: _Tags, found: Header, compression: int) -> _RowLayout:
    """Return the layout of the rows. Raise DamagedImage for a combination of tags that packer does not read."""
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


def _pieces(buffer: Buffer, tags: _Tags, found: Header, layout: _RowLayout) -> Iterator[_Piece]:
    """Yield the strips or tiles. Call tiff.check_end before, which checks that their data is in the file."""
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
    if layout.size(height, width) * count > 2 * MAX_DECODED_BYTES or sum(sizes[:count]) > len(buffer):
        raise damaged("tiff", f"its {count} {what}s hold more bytes than the limit, or overlap in the file")
    compression = tags.first(tiff.COMPRESSION, _PLAIN)
    backwards = tags.first(_FILL_ORDER, 1) == _LOWEST_FIRST and compression != _JPEG
    for number, (at, size) in enumerate(zip(offsets[:count], sizes[:count], strict=True)):
        rows = height if tiled else min(height, found.height - number % down * height)
        data = b"" if compression == _PLAIN else bytes(buffer[at : at + size])
        data = data.translate(_REVERSED) if backwards else data
        yield _Piece(f"{what} {number}", data, size, rows, width, height, layout)


def _check_size(piece: _Piece, size: int) -> None:
    if size not in (piece.decoded_bytes, piece.full_bytes):
        raise damaged(
            "tiff",
            f"{piece.name} of {piece.stored_bytes} bytes decodes to {size} bytes, expected {piece.decoded_bytes}",
        )


def _plain(piece: _Piece) -> None:
    if piece.stored_bytes < piece.decoded_bytes:
        raise damaged("tiff", f"{piece.name} has {piece.stored_bytes} bytes, expected {piece.decoded_bytes}")


def _lzw(piece: _Piece) -> None:
    from packer.images import lzw_decoded_size  # computing its tables takes time, and few files need them

    _check_size(piece, lzw_decoded_size.decoded_size(piece.data, piece.name, most=piece.full_bytes))


def _deflate(piece: _Piece) -> None:
    most = piece.full_bytes
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
    _check_size(piece, size)


def _packbits(piece: _Piece) -> None:
    """Raise DamagedImage unless the runs decode to the exact length, and the last one ends with the data.

    A run begins with a byte n. If n < 128, the next n + 1 bytes are literals. If n > 128, the next byte is repeated 257
    - n times. If n = 128, the run is empty.
    """
    wanted, most = piece.decoded_bytes, piece.full_bytes
    data, at, size, empty_runs = piece.data, 0, 0, 0
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
            empty_runs += 1
            if empty_runs > _MOST_EMPTY_RUNS:
                raise damaged(
                    "tiff",
                    f"{piece.name}: its PackBits data have more than {_MOST_EMPTY_RUNS} empty runs, the limit",
                )
    if at > end:
        raise damaged("tiff", f"{piece.name}: its PackBits data end inside a run")
    _check_size(piece, size)
    if end - at > 1:
        raise damaged("tiff", f"{piece.name}: its PackBits data go on for {end - at} bytes after the last row")


def _jpeg(piece: _Piece) -> None:
    try:
        found = jpeg.header(piece.data)
        strict_jpeg.check(piece.data, found)
    except (DamagedImage, struct.error, IndexError) as error:
        raise damaged("tiff", f"{piece.name}: its JPEG data are damaged") from error
    fits = found.width == piece.width and piece.height <= found.height <= piece.full_height
    if not fits or 8 * found.channels != piece.layout.bits:
        what, wanted = f"{found.width}x{found.height}", f"{piece.width}x{piece.height}"
        raise damaged(
            "tiff", f"{piece.name}: its JPEG data have {what} px of {found.channels} samples, expected {wanted}"
        )


_CHECKS: dict[int, Callable[[_Piece], None]] = {
    _PLAIN: _plain,
    _LZW: _lzw,
    _DEFLATE: _deflate,
    _OLD_DEFLATE: _deflate,
    _PACKBITS: _packbits,
    _JPEG: _jpeg,
}


# ---- every format


def check_data(buffer: Buffer, found: Header) -> None:
    """Check the data of an image file by the rule of its format (see the module). `found` is its header.

    Raises DamagedImage for damaged data, and for a TIFF with a compression that cannot be checked.
    """
    check = _BY_FORMAT.get(found.format)
    if check is not None:
        check(buffer, found)


def _check_webp(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if OpenCV can decode the image without its last bytes.

    libwebp stops after the last pixel, and fails only if the data end before that pixel. Damaged data decodes to wrong
    pixels without an error. The decoder then almost always reads fewer or more bytes than those of the intact image.
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
