"""simplejpeg with the libjpeg-turbo that its wheels bring."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import simplejpeg

from packer.decoders.header import Buffer, Header, damaged
from packer.decoders.libjpeg import is_left_over


class Library:
    """simplejpeg, as packer.decoders.libjpeg.Library."""

    name = f"simplejpeg {simplejpeg.__version__}"
    binary = "simplejpeg"

    def prepare(
        self,
        buffer: Buffer,
        pixels: npt.NDArray[np.uint8],
        *,
        eighths: int = 8,
        fast_dct: bool = False,
        goes_on: bool = False,
    ) -> Callable[[], None]:
        height, width, channels = pixels.shape
        form = "GRAY" if channels == 1 else "RGB"
        if eighths == 8:
            height = width = 0  # no scaling, whatever size the file has
        request = (buffer, form, fast_dct, False, height, width, 1, pixels, True)
        return partial(self._decode, request, pixels, goes_on)

    def _decode(self, request: tuple[Any, ...], pixels: npt.NDArray[np.uint8], goes_on: bool) -> None:
        try:
            written = simplejpeg.decode_jpeg(*request)
            shape = written.shape
        except ValueError as error:
            if not (goes_on and is_left_over(str(error))):
                raise damaged("jpeg", str(error)) from error
            buffer, _, _, _, *scale, _, _ = request
            shape = (*simplejpeg.decode_jpeg_header(buffer, *scale)[:2], pixels.shape[2])
        if shape != pixels.shape:
            raise damaged("jpeg", f"libjpeg-turbo finds shape {shape}, the header says {pixels.shape}")

    def check(self, buffer: Buffer, found: Header) -> None:
        form = "CMYK" if found.cmyk else "GRAY"
        try:
            simplejpeg.decode_jpeg(buffer, form, min_height=1, min_width=1, min_factor=8, strict=True)
        except ValueError as error:
            raise damaged("jpeg", str(error)) from error
