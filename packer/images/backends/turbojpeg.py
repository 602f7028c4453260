"""PyTurboJPEG 1.x with the system's libjpeg-turbo.

Decoding calls the functions of the library that PyTurboJPEG has loaded, which takes a quarter of the time that the
interpreter is busy in PyTurboJPEG's own method. Each call makes a libjpeg handle of its own, in 0.4 us: a handle that
is used again remembers the quantisation and Huffman tables of the file before, and gives them to one that has none.
"""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import turbojpeg

from packer.images.backends.libjpeg import is_left_over
from packer.images.header import Buffer, Header, damaged

_EIGHTH = (1, 8)
_REPORT, _MESSAGE = "_TurboJPEG__report_error", "_TurboJPEG__get_error_string"
_Request = tuple[Any, int, int, int, int, int, int, int]  # of decompress, without the handle
_INT, _POINTER, _SIZE = ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong
# what takes microseconds keeps the interpreter (PYFUNCTYPE); decoding lets go of it (CFUNCTYPE)
_INIT = ctypes.PYFUNCTYPE(_POINTER)
_DESTROY = ctypes.PYFUNCTYPE(_INT, _POINTER)
_READ_HEADER = ctypes.PYFUNCTYPE(_INT, _POINTER, _POINTER, _SIZE, *[_POINTER] * 4)
_DECOMPRESS = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _SIZE, _POINTER, *[_INT] * 5)


class _Strict(turbojpeg.TurboJPEG):  # type: ignore[misc]
    """Raises DamagedImage where libjpeg fails or warns; the method replaced here makes a Python warning of a warning.

    May be shared by threads: each call makes a libjpeg handle of its own.
    """

    def _TurboJPEG__report_error(self, handle: Any) -> None:
        raise damaged("jpeg", getattr(self, _MESSAGE)(handle))


def _address(buffer: Buffer) -> int:
    if isinstance(buffer, memoryview) and not buffer.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))  # 0.3 us; NumPy's way takes 2
    return np.frombuffer(buffer, np.uint8).ctypes.data


def _request(buffer: Buffer, pixels: npt.NDArray[np.uint8], fast_dct: bool) -> _Request:
    height, width, channels = pixels.shape
    form = turbojpeg.TJPF_GRAY if channels == 1 else turbojpeg.TJPF_RGB
    source = buffer if type(buffer) is bytes else _address(buffer)
    target = ctypes.addressof(ctypes.c_char.from_buffer(pixels.data))
    return source, len(buffer), target, width, 0, height, form, turbojpeg.TJFLAG_FASTDCT if fast_dct else 0


class Library:
    """PyTurboJPEG, as packer.images.backends.libjpeg.Library; RuntimeError or OSError where it cannot work."""

    name = f"PyTurboJPEG {turbojpeg.__version__}"
    binary = "libturbojpeg"

    def __init__(self) -> None:
        if not (hasattr(turbojpeg.TurboJPEG, _REPORT) and hasattr(turbojpeg.TurboJPEG, _MESSAGE)):
            raise RuntimeError(f"{self.name} has no {_REPORT}, expected release 1.8")
        self._library = _Strict()
        self._init = _INIT(self._address("init_decompress"))
        self._destroy = _DESTROY(self._address("destroy"))
        self._read_header = _READ_HEADER(self._address("decompress_header"))
        self._decompress = _DECOMPRESS(self._address("decompress"))

    def _address(self, name: str) -> int:
        """Where a function of the library lies; PyTurboJPEG keeps it under its own name for it."""
        function = getattr(self._library, f"_TurboJPEG__{name}")
        return ctypes.cast(function, _POINTER).value or 0

    def decode(
        self,
        buffer: Buffer,
        pixels: npt.NDArray[np.uint8],
        *,
        eighths: int = 8,
        fast_dct: bool = False,
        goes_on: bool = False,
    ) -> None:
        request = _request(buffer, pixels, fast_dct)
        handle = self._init()
        try:
            self._check_header(handle, request, eighths)
            self._decompressed(handle, request, goes_on)
        finally:
            self._destroy(handle)

    def prepare(
        self, buffer: Buffer, pixels: npt.NDArray[np.uint8], *, eighths: int = 8, fast_dct: bool = False
    ) -> Callable[[], None]:
        request = _request(buffer, pixels, fast_dct)
        handle = self._init()
        try:
            self._check_header(handle, request, eighths)
        finally:
            self._destroy(handle)
        return partial(self._decode_prepared, request, (memoryview(buffer), pixels))  # a view keeps its size, too

    def _decode_prepared(self, request: _Request, held: object) -> None:
        """held: what owns the memory that the request names."""
        del held
        handle = self._init()
        try:
            self._decompressed(handle, request, False)
        finally:
            self._destroy(handle)

    def _check_header(self, handle: int, request: _Request, eighths: int) -> None:
        source, size, _, width, _, height, _, _ = request
        told = (_INT * 4)()
        at = ctypes.addressof(told)
        if self._read_header(handle, source, size, at, at + 4, at + 8, at + 12):
            raise damaged("jpeg", getattr(self._library, _MESSAGE)(handle))
        if (-(-told[1] * eighths // 8), -(-told[0] * eighths // 8)) != (height, width):
            raise damaged("jpeg", f"libjpeg-turbo finds {told[0]}x{told[1]} px, the header another size")

    def _decompressed(self, handle: int, request: _Request, goes_on: bool) -> None:
        if self._decompress(handle, *request):
            message = getattr(self._library, _MESSAGE)(handle)
            if not (goes_on and is_left_over(message)):
                raise damaged("jpeg", message)

    def check(self, buffer: Buffer, found: Header) -> None:
        form = turbojpeg.TJPF_CMYK if found.cmyk else turbojpeg.TJPF_GRAY
        self._library.decode(buffer, pixel_format=form, scaling_factor=_EIGHTH)
