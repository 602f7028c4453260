"""Image: pictures, masks and depth maps as the bytes of a file."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import PackerError

Picture = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.float32]


def jpeg(picture: Picture, *, quality: int) -> bytes:
    """A baseline JPEG with 4:2:0 chroma of uint8 (H, W, 3) RGB."""
    return _encoded(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), (cv2.IMWRITE_JPEG_QUALITY, quality))


def png(picture: Picture) -> bytes:
    """A PNG of uint8 (H, W, 3) RGB or (H, W)."""
    return _encoded(".png", picture if picture.ndim == 2 else cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), ())


def tiff(depth: Plane) -> bytes:
    """A TIFF of float32 (H, W): uncompressed, in one strip."""
    settings = (cv2.IMWRITE_TIFF_COMPRESSION, 1, cv2.IMWRITE_TIFF_ROWSPERSTRIP, depth.shape[0])
    return _encoded(".tiff", depth, settings)


def tiff_lzw(depth: Plane) -> bytes:
    """A TIFF of float32 (H, W): LZW, two rows per strip, no predictor (TIFF 6.0 tags 259, 278 and 317)."""
    settings = (cv2.IMWRITE_TIFF_COMPRESSION, 5, cv2.IMWRITE_TIFF_ROWSPERSTRIP, 2, cv2.IMWRITE_TIFF_PREDICTOR, 1)
    return _encoded(".tiff", depth, settings)


def _encoded(suffix: str, pixels: npt.NDArray[Any], settings: tuple[int, ...]) -> bytes:
    done, data = cv2.imencode(suffix, pixels, settings)
    if not done:
        raise PackerError(f"{suffix}: OpenCV cannot encode an array of shape {pixels.shape}; install another build")
    return data.tobytes()
