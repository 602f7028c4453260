"""Small images of every format decoded, as image, depth and mask: what the header says is what comes out."""

from collections.abc import Iterator

import cv2
import numpy as np

from packer.images import DecodeOptions, decode, sniff, validate
from tests.fuzz.target import Disagreement, refusable
from tests.support import image_files

_MOST_PX = 1 << 16  # a larger image is slow and shows nothing more


def seeds() -> Iterator[bytes]:
    cv2.setNumThreads(0)
    small = image_files.colors(height=9, width=11)
    yield image_files.jpeg(small)
    yield image_files.progressive(small)
    for form in ("PNG", "BMP", "TIFF", "WEBP", "PPM"):
        yield image_files.with_pillow(small, form)
        if form != "WEBP":
            yield image_files.with_pillow(small[:, :, 0].copy(), form)
    for compression in (5, 8, 32773):
        yield image_files.with_opencv(small, ".tiff", cv2.IMWRITE_TIFF_COMPRESSION, compression)
    yield image_files.npy(small)
    yield image_files.palette_png(small[:, :, 0] % 4, bits=2)
    yield image_files.with_opencv(small[:, :, 0].astype(np.uint16) * 101, ".png")


def check(data: bytes) -> None:
    found = sniff(data)
    if found.height * found.width > _MOST_PX:
        return
    kinds = (("image", "auto"), ("image", "opencv"), ("depth", "auto"), ("mask", "auto"), ("mask:uint16", "auto"))
    for typed, decoder in kinds:
        kind, _, dtype = typed.partition(":")
        with refusable():
            pixels = decode(data, kind, wide=bool(dtype), options=DecodeOptions(decoder=decoder))
            if kind == "mask" and pixels.dtype != (dtype or "uint8"):
                raise Disagreement(f"{typed}: {pixels.dtype}, announced {found}")
            if pixels.shape[:2] != (found.height, found.width):
                raise Disagreement(f"{kind} with {decoder}: {pixels.shape}, announced {found}")
    validate(data, "image")
