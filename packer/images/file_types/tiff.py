"""TIFF: parses the first directory with its strips and tiles, and resets tags that OpenCV applies, such as orientation.

Layout: TIFF 6.0 section 2 (header, image file directory), section 8 (baseline tags); BigTIFF for 64 bit offsets.
"""

import struct

from packer.images.file_types._header_record import Buffer, Header, damaged

MAGICS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 256, 257, 258, 259, 262
STRIP_OFFSETS, _ORIENTATION, SAMPLES, STRIP_ROWS, STRIP_BYTES = 273, 274, 277, 278, 279
TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_BYTES = 322, 323, 324, 325
_EXTRA, _FORMAT = 338, 339
_CODES = {1: "B", 3: "H", 4: "I", 7: "B", 16: "Q"}  # BYTE, SHORT, LONG, UNDEFINED, LONG8
_SIZES = {  # bytes of one value by field type
    **dict.fromkeys((1, 2, 6, 7), 1),
    **dict.fromkeys((3, 8), 2),
    **dict.fromkeys((4, 9, 11, 13), 4),
    **dict.fromkeys((5, 10, 12, 16, 17, 18), 8),
}
_MAX_TAGS = 4096
_MAX_TILE_SIDE = 4096
_FORMATS = {1: "uint", 2: "int", 3: "float", 4: "uint"}
_LOSSY = (6, 7)  # JPEG, old and new
_PALETTE, YCBCR = 3, 6
_COLORS, _OF_8_BIT = 320, 257  # tag of the palette; factor from 8 to 16 bits

_LAB = (8, 9, 10)  # CIELab, ICCLab, ITULab

_SUBFILE, _NO_PAGES = 254, 0b101  # NewSubfileType, and its bits for a smaller version and a mask
_ASSOCIATED, _UNASSOCIATED = 1, 2

# tag -> (field type's code, number of values, offset of the values)
Directory = dict[int, tuple[str, int, int]]


def header(buffer: Buffer) -> Header:
    """Parse the header of the first image of a TIFF file. Raise DamagedImage or struct.error if it is damaged."""
    order, tags = directory(buffer)

    def first(tag: int, default: int) -> int:
        return values(buffer, order, tags.get(tag), limit=1)[0] if tag in tags else default

    if first(PHOTOMETRIC, 1) in _LAB:
        raise damaged("tiff", "its colors are CIELab, which decoders make RGB in different ways; convert it to RGB")
    if _has_more_images(buffer, order):
        raise damaged("tiff", "several images, expected one")
    bits, channels = first(BITS, 1), first(SAMPLES, 1)
    kind = _FORMATS.get(first(_FORMAT, 1), "")
    dtype = "uint8" if kind == "uint" and bits in (1, 2, 4) else f"{kind}{bits}"
    if dtype not in ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float32", "float64"):
        raise damaged("tiff", f"samples of {bits} bit in format {first(_FORMAT, 1)} are not supported")
    if not 1 <= channels <= 4:
        raise damaged("tiff", f"{channels} samples per pixel are not supported, expected 1 to 4")
    for side, tile in ((first(HEIGHT, 0), first(TILE_HEIGHT, 0)), (first(WIDTH, 0), first(TILE_WIDTH, 0))):
        if tile > max(side + 15, _MAX_TILE_SIDE):  # libtiff allocates a complete tile; its sides are multiples of 16
            raise damaged("tiff", f"its tiles have a side of {tile} px, the limit is {max(side + 15, _MAX_TILE_SIDE)}")
    orientation = first(_ORIENTATION, 1)
    palette = first(PHOTOMETRIC, 1) == _PALETTE
    return Header(
        "tiff",
        first(HEIGHT, 0),
        first(WIDTH, 0),
        3 if palette else channels,
        dtype,
        orientation=orientation if 1 <= orientation <= 8 else 1,
        lossy=first(COMPRESSION, 1) in _LOSSY,
        palette=palette,
        bits=bits,
    )


def _has_more_images(buffer: Buffer, order: str) -> bool:
    """Return True if a second image follows. A smaller version of the first one and its mask do not count."""
    offset, short, size, at = _form(buffer, order)
    (count,) = struct.unpack_from(order + short, buffer, at)
    (following,) = struct.unpack_from(order + offset, buffer, at + struct.calcsize(short) + count * size)
    if not following or following + size > len(buffer):
        return False
    _, tags = directory(buffer, following)
    found = values(buffer, order, tags.get(_SUBFILE), limit=1)
    return not (found and found[0] & _NO_PAGES)


def _form(buffer: Buffer, order: str) -> tuple[str, str, int, int]:
    """Return the struct codes of offset and count, the bytes of an entry, and the offset of the first directory."""
    big = 43 in (buffer[2], buffer[3])
    offset, short, size = ("Q", "Q", 20) if big else ("I", "H", 12)
    (at,) = struct.unpack_from(order + offset, buffer, 8 if big else 4)
    return offset, short, size, at


def directory(buffer: Buffer, place_of: int | None = None) -> tuple[str, Directory]:
    """Return (byte order "<" or ">", tags) of the directory at offset `place_of`, or of the first one for None.

    Raises DamagedImage if the directory or its values are not complete.
    """
    order = "<" if buffer[:2] == b"II" else ">"
    offset, short, size, at = _form(buffer, order)
    at = at if place_of is None else place_of
    (count,) = struct.unpack_from(order + short, buffer, at)
    start = at + struct.calcsize(short)
    end = start + count * size
    if count > _MAX_TAGS or end + struct.calcsize(offset) > len(buffer):
        raise damaged("tiff", f"its directory at byte {at} with {count} tags is not all in its {len(buffer)} bytes")
    tags: Directory = {}
    for entry in range(start, end, size):
        tag, kind, number = struct.unpack_from(order + "HH" + offset, buffer, entry)
        place = entry + size - struct.calcsize(offset)
        needed = number * _SIZES.get(kind, 0)
        if needed > struct.calcsize(offset):
            (place,) = struct.unpack_from(order + offset, buffer, place)
        if place + needed > len(buffer):
            raise damaged("tiff", f"{number} values of tag {tag} at byte {place} are beyond its {len(buffer)} bytes")
        if kind in _CODES:
            tags.setdefault(tag, (_CODES[kind], number, place))
    return order, tags


def values(buffer: Buffer, order: str, entry: tuple[str, int, int] | None, *, limit: int = 0) -> tuple[int, ...]:
    """Return the first `limit` values of a tag, or all of them if `limit` is 0. Return () if `entry` is None."""
    if entry is None:
        return ()
    code, number, where = entry
    number = min(number, limit) if limit else number
    if number < 1:
        raise damaged("tiff", "a tag that describes the pixels has no value")
    found: tuple[int, ...] = struct.unpack_from(f"{order}{number}{code}", buffer, where)
    return found


def check_end(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if strips or tiles are absent or extend beyond the end of the file."""
    order, tags = directory(buffer)
    offsets = values(buffer, order, tags.get(STRIP_OFFSETS) or tags.get(TILE_OFFSETS))
    sizes = values(buffer, order, tags.get(STRIP_BYTES) or tags.get(TILE_BYTES))
    if not offsets or len(offsets) != len(sizes):
        raise damaged("tiff", f"it has {len(offsets)} strips or tiles and {len(sizes)} sizes of them")
    end = max(map(sum, zip(offsets, sizes, strict=True)))
    if end > len(buffer):
        raise damaged("tiff", f"it is cut: {len(buffer)} bytes, expected {end}")
    plain = values(buffer, order, tags.get(COMPRESSION)) in ((1,), ())
    samples = values(buffer, order, tags.get(SAMPLES)) or (1,)
    needed = (found.width * found.bits * samples[0] + 7) // 8 * found.height
    subsampled = values(buffer, order, tags.get(PHOTOMETRIC)) == (YCBCR,)
    if plain and sum(sizes) < needed and not subsampled and TILE_OFFSETS not in tags:
        raise damaged("tiff", f"its strips hold {sum(sizes)} bytes, expected {needed}")


def with_indices(buffer: Buffer) -> Buffer:
    """Return a copy of a file with a palette of grays, so that a decoder returns the indices as gray values."""
    order, tags = directory(buffer)
    code, number, at = tags.get(_COLORS, ("", 0, 0))
    bits = values(buffer, order, tags.get(BITS), limit=1) or (1,)
    if code != "H" or bits[0] > 8 or number != 3 << bits[0]:
        raise damaged("tiff", f"its palette has {number} values, expected 3 of 16 bit for each value of {bits[0]} bit")
    changed = bytearray(as_stored(buffer))
    struct.pack_into(f"{order}{number}H", changed, at, *[_OF_8_BIT * index for index in range(number // 3)] * 3)
    return changed


def as_stored(buffer: Buffer) -> Buffer:
    """Return the file with orientation 1 and with associated alpha. It is a copy if a tag has another value.

    OpenCV always applies the orientation tag, and multiplies colors by unassociated alpha.
    """
    order, tags = directory(buffer)
    changed: bytearray | None = None
    for tag, found, wanted in ((_ORIENTATION, None, 1), (_EXTRA, _UNASSOCIATED, _ASSOCIATED)):
        entry = tags.get(tag)
        if entry is None:
            continue
        value = values(buffer, order, entry, limit=1)[0]
        if value != wanted and (found is None or value == found):
            changed = bytearray(buffer) if changed is None else changed
            struct.pack_into(order + entry[0], changed, entry[2], wanted)
    return buffer if changed is None else changed
