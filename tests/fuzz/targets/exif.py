"""EXIF orientation in a TIFF block."""

import struct
from collections.abc import Iterator

from packer.images.file_types import exif
from tests.fuzz.target import Disagreement

TOKENS = (b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08", b"\x12\x01\x03\x00", b"\x01\x12\x00\x03")


def seeds() -> Iterator[bytes]:
    for order, mark in (("<", b"II*\0"), (">", b"MM\0*")):
        entry = struct.pack(f"{order}HHIHH", 0x0112, 3, 1, 6, 0)
        yield mark + struct.pack(f"{order}IH", 8, 1) + entry + bytes(4)
        yield mark + struct.pack(f"{order}IH", 8, 2) + struct.pack(f"{order}HHII", 0x010F, 2, 1, 65) + entry + bytes(4)


def check(data: bytes) -> None:
    for at, end in ((0, len(data)), (3, len(data) - 3), (len(data), len(data) + 8)):
        found = exif.orientation(data, at, end)
        if not 1 <= found <= 8:
            raise Disagreement(f"orientation {found}")
