"""JPEG headers: parses the segments up to the first scan. If a file has several scans, it checks all of them.

Layout: ITU-T T.81 annex B (markers and segments); Adobe APP14 as in Adobe technical note 5116.
"""

import re
import struct

from packer.images.file_types import exif
from packer.images.file_types._header_record import MAX_SCAN_PIXELS, MAX_SCANS, Buffer, Header, Intervals, Scan, damaged

MAGIC = b"\xff\xd8\xff"
END = b"\xff\xd9"

_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_FRAMES = frozenset((_BASELINE, _EXTENDED, _PROGRESSIVE))
# releases of libjpeg-turbo differ in these, so that they raise an error
_OTHER_FRAMES = {
    **dict.fromkeys((0xC3, 0xC7, 0xCB, 0xCF), "lossless"),
    **dict.fromkeys((0xC5, 0xC6, 0xCD, 0xCE), "hierarchical"),
    **dict.fromkeys((0xC9, 0xCA), "arithmetic coded"),
}
_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))  # markers without a segment
_SOI, _EOI, _SOS, _APP1 = 0xD8, 0xD9, 0xDA, 0xE1
_DRI, _APP11 = 0xDD, 0xEB
_PLAIN = frozenset(range(256)) - _FRAMES - _OTHER_FRAMES.keys() - _ALONE - {_SOI, _EOI, _SOS}  # any other segment
TABLE = b"packer\0"  # start of an APP11 segment with the lengths of restart intervals

# a marker in entropy-coded data, except stuffed bytes, fill bytes and restarts
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
# sampling factors that all releases of TurboJPEG decode; a fourth component has the factors of the first
_SAMPLINGS = frozenset(
    bytes.fromhex(factors)
    for factors in ("111111", "212121", "121212", "211111", "221111", "121111", "411111", "222121", "221212")
)
# height and width of an MCU; the MCU of a single component is one block (T.81 A.2.2)
_MCUS = {factors: (8 * max(f & 15 for f in factors), 8 * max(f >> 4 for f in factors)) for factors in _SAMPLINGS}


def header(buffer: Buffer) -> Header:
    """Parse the header of a JPEG file. Raise DamagedImage, struct.error or IndexError if it is damaged.

    Errors that libjpeg skips with a warning are also raised. One loop without a generator, because it is a hot path.
    """
    frame = frame_at = 0
    orientation = 1
    noted: dict[int, int] = {}  # offset of the last segment of each other marker
    at = 2
    while True:
        if buffer[at] != 0xFF:
            raise damaged("jpeg", f"expected a marker at byte {at}, found 0x{buffer[at]:02x}")
        marker = buffer[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        at += 2
        if marker in _PLAIN:
            noted[marker] = at
        elif marker in _FRAMES and not frame:
            frame, frame_at = marker, at
        elif marker in _ALONE:
            continue
        elif marker == _SOS and frame:
            noted[_SOS] = at
            _segment_length(buffer, at)
            return _assemble(buffer, frame, frame_at, orientation=orientation, noted=noted)
        else:
            _refuse(marker, at)
        length = buffer[at] << 8 | buffer[at + 1]
        if length < 2:
            _segment_length(buffer, at)
        if marker == _APP1 and orientation == 1 and buffer[at + 2 : at + 8] == b"Exif\0\0":
            orientation = exif.orientation(buffer, at + 8, at + length)
        at += length


def _segment_length(buffer: Buffer, at: int) -> None:
    length = buffer[at] << 8 | buffer[at + 1]
    if length < 2:
        raise damaged("jpeg", f"the segment at byte {at} has length {length}, expected at least 2")


def _refuse(marker: int, at: int) -> None:
    """Raise DamagedImage if `marker` must not precede the first scan. `at` is the offset after the marker."""
    if marker in (_SOI, _EOI):
        raise damaged("jpeg", f"found marker 0x{marker:02x} at byte {at - 2}, before any scan")
    if marker == _SOS:
        raise damaged("jpeg", "a scan comes before the frame header")
    if marker in _FRAMES or marker in _OTHER_FRAMES:
        kind = _OTHER_FRAMES.get(marker, "a second frame in one")
        raise damaged("jpeg", f"{kind} JPEG is not supported, expected baseline or progressive")


def _assemble(buffer: Buffer, frame: int, at: int, *, orientation: int, noted: dict[int, int]) -> Header:
    length, bits, height, width, count = struct.unpack_from(">HBHHB", buffer, at)
    if count not in (1, 3, 4) or length != 8 + 3 * count:
        raise damaged("jpeg", f"its frame has {count} components in {length} bytes, expected 1, 3 or 4 components")
    if bits != 8:
        raise damaged("jpeg", f"{bits} bit samples are not supported, expected 8")
    sampling = bytes(buffer[at + 9 : at + 9 + 3 * count : 3])
    if count > 1 and (sampling[:3] not in _SAMPLINGS or sampling[3:] not in (b"", sampling[:1])):
        raise damaged("jpeg", f"chroma sampling {sampling.hex(' ')} is not supported, expected 4:4:4, 4:2:2 or 4:2:0")
    scans, scan = 1, noted[_SOS]
    scan_length, in_scan = struct.unpack_from(">HB", buffer, scan)
    if frame == _PROGRESSIVE or in_scan != count:
        most = min(MAX_SCANS, MAX_SCAN_PIXELS // max(1, height * width))
        scans = _walk_scans(buffer, scan, bytes(buffer[at + 8 : at + 8 + 3 * count : 3]), most=most)
    return Header(
        "jpeg",
        height,
        width,
        count,
        "uint8",
        orientation,
        True,
        cmyk=count == 4,
        progressive=frame == _PROGRESSIVE,
        scans=scans,
        data_at=scan + scan_length,
        scan=_scan(buffer, noted, sampling, size_at=at + 3) if scans == 1 and count < 4 else None,
    )


def _scan(buffer: Buffer, noted: dict[int, int], sampling: bytes, *, size_at: int) -> Scan | None:
    """Return the only scan of a JPEG, or None if it has restart intervals that `_intervals` does not accept."""
    mcu = _MCUS.get(sampling, (8, 8))
    if _DRI not in noted:
        return Scan(mcu, size_at)
    height, width = struct.unpack_from(">HH", buffer, size_at)
    intervals = _intervals(buffer, noted, mcu, (height, width))
    return Scan(mcu, size_at, intervals) if intervals is not None else None


def _intervals(buffer: Buffer, noted: dict[int, int], mcu: tuple[int, int], size: tuple[int, int]) -> Intervals | None:
    """Return the restart intervals of an image. `noted` is a dict from each marker to the offset of its segment.

    Return None if they do not divide each row of MCUs into equal parts, or if there is only one interval.
    """
    length, mcus = struct.unpack_from(">HH", buffer, noted[_DRI])
    rows, row_mcus = -(-size[0] // mcu[0]), -(-size[1] // mcu[1])
    if length != 4 or not mcus or row_mcus % mcus or rows * row_mcus == mcus:
        return None
    at = noted.get(_APP11, 0)
    table_at = at if at and bytes(buffer[at + 2 : at + 2 + len(TABLE)]) == TABLE else 0
    return Intervals((mcu[0], mcu[1] * mcus), mcus, rows, row_mcus // mcus, table_at)


def _walk_scans(buffer: Buffer, scan: int, components: bytes, *, most: int) -> int:
    """Return the number of scans. The segment of the first one begins at offset `scan`.

    Raises DamagedImage for more than `most` scans, because each is a pass over the image, and for missing coefficients.
    Releases of libjpeg replace missing coefficients in different ways, without a warning.
    """
    missing = {component: [1] * 64 for component in components}  # missing low bits per coefficient
    scans, marker, at = 0, _SOS, scan
    while marker not in (_EOI, _SOI):
        if marker == _SOS:
            scans += 1
            if scans > most:
                raise damaged(
                    "jpeg", f"it has more than {most} scans, the limit for its size (jpegtran saves it with fewer)"
                )
            _note_scan(buffer, at, missing)
        match = _MARKER.search(buffer, at + int.from_bytes(buffer[at : at + 2], "big"))
        if match is None:
            break
        at = match.end()
        marker = buffer[at - 1]
    if any(map(any, missing.values())):
        raise damaged("jpeg", f"it is cut: its {scans} scans do not bring all of the image")
    return scans


def _note_scan(buffer: Buffer, at: int, missing: dict[int, list[int]]) -> None:
    """Remove the bits that the scan at offset `at` contains from `missing`. A truncated segment is ignored."""
    count = buffer[at + 2] if at + 2 < len(buffer) else 0
    tail = bytes(buffer[at + 3 + 2 * count : at + 6 + 2 * count])  # first and last coefficient, approximation
    if len(tail) < 3 or not tail[0] <= tail[1] <= 63:
        return
    for component in bytes(buffer[at + 3 : at + 3 + 2 * count : 2]):
        if component in missing:
            missing[component][tail[0] : tail[1] + 1] = [tail[2] & 15] * (tail[1] + 1 - tail[0])


def has_end(buffer: Buffer, found: Header) -> bool:
    """Return True if an end marker follows the first scan, even if other data follows the marker.

    Entropy-coded data cannot contain the marker, because a zero byte follows each byte FF in it.
    """
    return buffer[-2:] == END or END in bytes(buffer[found.data_at :])
