"""Small pictures of every format decoded, as image, depth and mask: what the header says is what comes out."""

from collections.abc import Iterator

import cv2
import pictures

from fuzz.target import Disagreement
from packer.decoders import decode, sniff, validate
from packer.errors import PackerError

_MOST_PX = 1 << 16  # a larger picture is slow and shows nothing more
MOST_BYTES = 4096


def seeds() -> Iterator[bytes]:
    cv2.setNumThreads(0)
    small = pictures.colours(height=9, width=11)
    yield pictures.jpeg(small)
    yield pictures.progressive(small)
    for form in ("PNG", "BMP", "TIFF", "WEBP", "PPM"):
        yield pictures.with_pillow(small, form)
        if form != "WEBP":
            yield pictures.with_pillow(small[:, :, 0].copy(), form)
    for compression in (5, 8, 32773):
        yield pictures.with_opencv(small, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, compression)
    yield pictures.npy(small)
    yield pictures.palette_png(small[:, :, 0] % 4, bits=2)


def check(data: bytes) -> None:
    found = sniff(data)
    if found.height * found.width > _MOST_PX:
        return
    refusal: PackerError | None = None
    for kind, decoder in (("image", "auto"), ("image", "opencv"), ("depth", "auto"), ("mask", "auto")):
        try:
            pixels = decode(data, kind, decoder=decoder)
        except PackerError as error:
            refusal = error
            continue
        if pixels.shape[:2] != (found.height, found.width):
            raise Disagreement(f"{kind} with {decoder}: {pixels.shape}, announced {found}")
    validate(data, "image")
    if refusal is not None:
        raise refusal
