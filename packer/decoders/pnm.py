"""PNM headers (PBM, PGM, PPM; text and binary).

Layout: netpbm manual pages pbm(5), pgm(5), ppm(5). Samples of 16 bit are big-endian.
"""

import re

from packer.decoders.header import Buffer, Header, damaged

MAGICS = (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6")

_GAP = rb"(?:[ \t\r\n\v\f]|#[^\r\n]*[\r\n])+"
_NUMBER = _GAP + rb"(\d{1,9})"
_BITMAP = re.compile(rb"P[14]" + 2 * _NUMBER + rb"[ \t\r\n\v\f]")
_SAMPLES = re.compile(rb"P[2356]" + 3 * _NUMBER + rb"[ \t\r\n\v\f]")
_LOOK_BYTES = 4096  # comments included, a header is shorter


def header(buffer: Buffer) -> Header:
    """The header of a PNM file; raises DamagedImage where it is cut or broken."""
    form = buffer[1] - ord("0")
    head = bytes(buffer[:_LOOK_BYTES])
    match = (_BITMAP if form in (1, 4) else _SAMPLES).match(head)
    if match is None:
        raise damaged("pnm", "its header is cut or has no width and height")
    width, height, *rest = map(int, match.groups())
    most = rest[0] if rest else 255
    # OpenCV scales some smaller ranges and leaves others: no one answer, so none
    if most != 255 and (form in (2, 3) or not 255 < most <= 65535):
        raise damaged("pnm", f"samples up to {most} are not supported, expected 255, or 256 to 65535 in a binary file")
    return Header(
        *("pnm", height, width, 3 if form in (3, 6) else 1, "uint8" if most == 255 else "uint16"),
        bits=1 if form in (1, 4) else 8 if most == 255 else 16,
        data_at=match.end(),
    )


def check_end(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage where the file is shorter than its samples; text needs at least a digit and a gap each."""
    row_bytes = (found.width * found.bits * found.channels + 7) // 8
    if buffer[1] == ord("1"):
        row_bytes = found.width
    elif buffer[1] in b"23":
        row_bytes = 2 * found.width * found.channels
    needed = found.data_at + row_bytes * found.height - (buffer[1] in b"23")
    if len(buffer) < needed:
        raise damaged("pnm", f"it is cut: {len(buffer)} bytes, expected at least {needed}")
