"""JPEG headers: segments, scans, sampling, restart intervals."""

from collections.abc import Iterator

from packer.images.file_types import jpeg
from tests.fuzz.headers import check_header
from tests.support import image_files, restart_jpegs

TOKENS = (b"\xff\xd8\xff", b"\xff\xd9", b"\xff\xda", b"\xff\xdb", b"\xff\xc0", b"\xff\xc2", b"\xff\xdd\x00\x04")
TOKENS += (b"\xff\xe1", b"Exif\0\0II*\0", b"\xff\xeb", b"packer\0", b"\xff\xd0", b"\xff\xc4", b"\xff\xee", b"Adobe")


def seeds() -> Iterator[bytes]:
    yield from (
        image_files.jpeg(image_files.colors(height=17, width=24), sampling=name) for name in ("444", "420", "411")
    )
    yield image_files.jpeg(image_files.grays(height=9, width=8))
    yield image_files.progressive(image_files.colors(height=9, width=9))
    yield image_files.oriented(6, pixels=image_files.colors(height=8, width=8))
    yield restart_jpegs.jpeg("420", height=32, width=64, mcus=2, table=True)
    yield restart_jpegs.jpeg("420", height=32, width=64, mcus=1, table=False)


def check(data: bytes) -> None:
    found = check_header(data)
    if found.format == "jpeg":
        jpeg.has_end(data, found)
