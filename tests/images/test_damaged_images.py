"""Files of every format but JPEG that are cut or changed: they raise, or at least keep the form that they announce."""

import pytest

from packer.errors import DamagedImage
from packer.images import decode, validate
from tests.support import image_files

LOSSLESS = image_files.lossless()
DEPTHS = image_files.depths()


def damaged(file: bytes, kind: str) -> None:
    for attempt in (decode, validate):
        with pytest.raises(DamagedImage):
            attempt(file, kind)
    with pytest.raises(DamagedImage):
        validate(file, kind, full=False)


@pytest.mark.parametrize("name", [*LOSSLESS, *DEPTHS])
def test_every_cut_file_is_damaged(name: str) -> None:
    file, kind = (LOSSLESS[name][0], "image") if name in LOSSLESS else (DEPTHS[name][0], "depth")
    alignment = 4 if name.startswith("bmp") else 1  # a row's last padding may be absent without loss
    for cut in {alignment, 3 + alignment, 13, 50, len(file) // 10, len(file) // 2, len(file) * 9 // 10}:
        damaged(file[:-cut], kind)


def test_a_flipped_byte_in_any_png_chunk_is_found_by_its_crc32() -> None:
    file = image_files.oriented(6, "PNG")
    assert {name for name, _, _ in image_files.png_chunks(file)} >= {b"IHDR", b"eXIf", b"IDAT", b"IEND"}
    for _, at, length in image_files.png_chunks(file):
        for place in {at - 1, at + length // 2, at + length}:
            changed = bytearray(file)
            changed[place] ^= 0x20
            with pytest.raises(DamagedImage):
                validate(bytes(changed), "image")
