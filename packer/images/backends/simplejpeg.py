"""simplejpeg backend: JPEG by the libjpeg-turbo inside the wheels of simplejpeg."""

import numpy as np
import numpy.typing as npt
import simplejpeg

from packer.images.backends.strict_jpeg import is_trailing_data
from packer.images.file_types._header_record import Buffer, Header, damaged


class SimpleJPEG:
    """A JPEGLibrary (see packer.images.backends.strict_jpeg) that calls simplejpeg."""

    name = f"simplejpeg {simplejpeg.__version__}"
    binary = "simplejpeg"
    decode_region = None  # simplejpeg has no function for regions

    def decode(
        self,
        buffer: Buffer,
        pixels: npt.NDArray[np.uint8],
        *,
        eighths: int = 8,
        fast_dct: bool = False,
        fast_upsampling: bool = False,
        allow_trailing_data: bool = False,
    ) -> None:
        height, width, channels = pixels.shape
        form = "GRAY" if channels == 1 else "RGB"
        if eighths == 8:
            height = width = 0  # no scaling
            fast_upsampling = fast_upsampling or fast_dct
        try:
            shape = simplejpeg.decode_jpeg(
                buffer, form, fast_dct, fast_upsampling, height, width, 1, pixels, True
            ).shape
        except ValueError as error:
            if not (allow_trailing_data and is_trailing_data(str(error))):
                raise damaged("jpeg", str(error)) from error
            shape = (*simplejpeg.decode_jpeg_header(buffer, height, width, 1)[:2], channels)
        if shape != pixels.shape:
            raise damaged("jpeg", f"libjpeg-turbo finds shape {shape}, the header has {pixels.shape}")

    def check(self, buffer: Buffer, found: Header) -> None:
        form = "CMYK" if found.cmyk else "GRAY"
        try:
            simplejpeg.decode_jpeg(buffer, form, min_height=1, min_width=1, min_factor=8, strict=True)
        except ValueError as error:
            raise damaged("jpeg", str(error)) from error
