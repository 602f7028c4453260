"""JPEG headers: segments, scans, sampling, restart intervals."""

from collections.abc import Iterator

import cropping
import pictures

from fuzz.headers import check_header
from packer.decoders import jpeg

TOKENS = (b"\xff\xd8\xff", b"\xff\xd9", b"\xff\xda", b"\xff\xdb", b"\xff\xc0", b"\xff\xc2", b"\xff\xdd\x00\x04")
TOKENS += (b"\xff\xe1", b"Exif\0\0II*\0", b"\xff\xeb", b"packer\0", b"\xff\xd0", b"\xff\xc4", b"\xff\xee", b"Adobe")


def seeds() -> Iterator[bytes]:
    yield from (pictures.jpeg(pictures.colours(height=17, width=24), sampling=name) for name in ("444", "420", "411"))
    yield pictures.jpeg(pictures.grays(height=9, width=8))
    yield pictures.progressive(pictures.colours(height=9, width=9))
    yield pictures.oriented(6, pixels=pictures.colours(height=8, width=8))
    yield cropping.jpeg("420", height=32, width=64, mcus=2, table=True)
    yield cropping.jpeg("420", height=32, width=64, mcus=1, table=False)


def check(data: bytes) -> None:
    found = check_header(data)
    if found.format == "jpeg":
        jpeg.has_end(data, found)
