"""PyTurboJPEG 1.x with the system's libjpeg-turbo."""

from typing import Any

import numpy as np
import numpy.typing as npt
import turbojpeg

from packer.decoders.header import Buffer, Header, damaged

_EIGHTH = (1, 8)
_REPORT, _MESSAGE = "_TurboJPEG__report_error", "_TurboJPEG__get_error_string"


class _Strict(turbojpeg.TurboJPEG):  # type: ignore[misc]
    """Raises DamagedImage where libjpeg fails or warns; the method replaced here makes a Python warning of a warning.

    May be shared by threads: each call makes a libjpeg handle of its own.
    """

    def _TurboJPEG__report_error(self, handle: Any) -> None:
        raise damaged("jpeg", getattr(self, _MESSAGE)(handle))


class Library:
    """PyTurboJPEG, as packer.decoders.libjpeg.Library; RuntimeError or OSError where it cannot work."""

    name = f"PyTurboJPEG {turbojpeg.__version__}"
    binary = "libturbojpeg"

    def __init__(self) -> None:
        if not (hasattr(turbojpeg.TurboJPEG, _REPORT) and hasattr(turbojpeg.TurboJPEG, _MESSAGE)):
            raise RuntimeError(f"{self.name} has no {_REPORT}, expected release 1.8")
        self._library = _Strict()

    def decode(self, buffer: Buffer, pixels: npt.NDArray[np.uint8]) -> None:
        form = turbojpeg.TJPF_GRAY if pixels.shape[2] == 1 else turbojpeg.TJPF_RGB
        written = self._library.decode(buffer, pixel_format=form, dst=pixels)
        if written is not pixels:
            raise damaged("jpeg", f"libjpeg-turbo finds shape {written.shape}, the header says {pixels.shape}")

    def check(self, buffer: Buffer, found: Header) -> None:
        form = turbojpeg.TJPF_CMYK if found.cmyk else turbojpeg.TJPF_GRAY
        self._library.decode(buffer, pixel_format=form, scaling_factor=_EIGHTH)
