"""PNM headers (PBM, PGM, PPM; text and binary).

Layout: netpbm manual pages pbm(5), pgm(5), ppm(5). Samples of 16 bit are big-endian.
"""

import re
from collections.abc import Iterator

from packer.images.file_types._header_record import Buffer, Header, damaged

_GAP = rb"(?:[ \t\r\n\v\f]|#[^\r\n]*[\r\n])+"
_NUMBER = _GAP + rb"(\d{1,9})"
_BITMAP = re.compile(rb"P[14]" + 2 * _NUMBER + rb"[ \t\r\n\v\f]")
_SAMPLES = re.compile(rb"P[2356]" + 3 * _NUMBER + rb"[ \t\r\n\v\f]")
_LOOK_BYTES = 4096  # longest header, with comments
_BLANK = b" \t\r\n\v\f"
# a sample as text; 255 is the only supported maximum
_SAMPLE = re.compile(rb"(?<!\S)0*(?:25[0-5]|2[0-4]\d|1\d\d|\d{1,2})(?!\S)")
_BLOCK_BYTES = 1 << 20


def header(buffer: Buffer) -> Header:
    """Parse the header of a PNM file. Raise DamagedImage if it is damaged."""
    form = buffer[1] - ord("0")
    head = bytes(buffer[:_LOOK_BYTES])
    match = (_BITMAP if form in (1, 4) else _SAMPLES).match(head)
    if match is None:
        raise damaged("pnm", "its header is cut or has no width and height")
    width, height, *rest = map(int, match.groups())
    most = rest[0] if rest else 255
    # OpenCV scales only some of the smaller ranges
    if most != 255 and (form in (2, 3) or not 255 < most <= 65535):
        raise damaged("pnm", f"samples up to {most} are not supported, expected 255, or 256 to 65535 in a binary file")
    return Header(
        "pnm",
        height,
        width,
        3 if form in (3, 6) else 1,
        "uint8" if most == 255 else "uint16",
        bits=1 if form in (1, 4) else 8 if most == 255 else 16,
        data_at=match.end(),
    )


def check_end(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if the file is too short for its samples. A sample as text has a digit and a gap at least."""
    row_bytes = (found.width * found.bits * found.channels + 7) // 8
    if buffer[1] == ord("1"):
        row_bytes = found.width
    elif buffer[1] in b"23":
        row_bytes = 2 * found.width * found.channels
    needed = found.data_at + row_bytes * found.height - (buffer[1] in b"23")
    if len(buffer) < needed:
        raise damaged("pnm", f"it is cut: {len(buffer)} bytes, expected at least {needed}")


def check_text(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if a PNM file in text form has another number of pixel values, or one out of range."""
    if buffer[1] not in b"123":
        return
    count = _count_bits if buffer[1] == ord("1") else _count_samples
    samples = sum(map(count, _blocks(buffer, found.data_at)))
    wanted = found.height * found.width * found.channels
    if samples != wanted:
        raise damaged("pnm", f"it has {samples} samples, expected {wanted}")


def _blocks(buffer: Buffer, at: int) -> Iterator[bytes]:
    """Yield the text from offset `at` in blocks. Each block ends between two samples."""
    while at < len(buffer):
        block = bytes(buffer[at : at + _BLOCK_BYTES])
        if at + len(block) < len(buffer):
            whole = len(block.rstrip(b"0123456789"))
            block = block[:whole] if whole else block
        yield block
        at += len(block)


def _count_bits(block: bytes) -> int:
    bits = block.translate(None, _BLANK)
    if bits.translate(None, b"01"):
        raise damaged("pnm", "its samples are not all 0 or 1")
    return len(bits)


def _count_samples(block: bytes) -> int:
    samples = len(block.split())
    if len(_SAMPLE.findall(block)) != samples:
        raise damaged("pnm", "its samples are not all numbers from 0 to 255")
    return samples
