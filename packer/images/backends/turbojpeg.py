"""TurboJPEG backend: JPEG by the system's libjpeg-turbo, which PyTurboJPEG 1.x finds.

PyTurboJPEG finds and loads the library. Decoding calls the C functions of the library directly, which takes a quarter
of the interpreter time of PyTurboJPEG's method. Each call creates its own libjpeg handle. A reused handle would keep
the quantization and Huffman tables of the previous file, and apply them to a file without tables.

Declarations: turbojpeg.h of libjpeg-turbo 1.4 to 3.1 (3-clause BSD). The functions `tj3...` exist in 3.0 to 3.1, and
are looked up in the library that PyTurboJPEG 1.x has loaded.
"""

import ctypes
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import turbojpeg

from packer.images.backends.strict_jpeg import is_trailing_data
from packer.images.file_types._header_record import Buffer, Header, damaged

_Request = tuple[Any, int, int, int, int, int, int, int]  # arguments of tjDecompress2, without the handle
_INT, _POINTER, _SIZE, _TEXT = ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_char_p
# short calls keep the GIL (PYFUNCTYPE); decoding releases it (CFUNCTYPE)
_DECLARED = {
    # tjhandle tjInitDecompress(void)
    "tjInitDecompress": ctypes.PYFUNCTYPE(_POINTER),
    # int tjDestroy(tjhandle)
    "tjDestroy": ctypes.PYFUNCTYPE(_INT, _POINTER),
    # int tjDecompressHeader3(tjhandle, const unsigned char *jpegBuf, unsigned long jpegSize,
    #                         int *width, int *height, int *jpegSubsamp, int *jpegColorspace)
    "tjDecompressHeader3": ctypes.PYFUNCTYPE(_INT, _POINTER, _POINTER, _SIZE, *[_POINTER] * 4),
    # int tjDecompress2(tjhandle, const unsigned char *jpegBuf, unsigned long jpegSize, unsigned char *dstBuf,
    #                   int width, int pitch, int height, int pixelFormat, int flags)
    "tjDecompress2": ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _SIZE, _POINTER, *[_INT] * 5),
    # char *tjGetErrorStr2(tjhandle), from libjpeg-turbo 2.0 on
    "tjGetErrorStr2": ctypes.PYFUNCTYPE(_TEXT, _POINTER),
    # char *tjGetErrorStr(void), of the thread
    "tjGetErrorStr": ctypes.PYFUNCTYPE(_TEXT),
}

_TJINIT_DECOMPRESS, _TJPARAM_JPEGWIDTH, _TJPARAM_JPEGHEIGHT = 1, 5, 6


class _Region(ctypes.Structure):
    _fields_ = (("x", _INT), ("y", _INT), ("w", _INT), ("h", _INT))


_DECLARED_3 = {
    # tjhandle tj3Init(int initType)
    "tj3Init": ctypes.PYFUNCTYPE(_POINTER, _INT),
    # void tj3Destroy(tjhandle)
    "tj3Destroy": ctypes.PYFUNCTYPE(None, _POINTER),
    # int tj3DecompressHeader(tjhandle, const unsigned char *jpegBuf, size_t jpegSize)
    "tj3DecompressHeader": ctypes.PYFUNCTYPE(_INT, _POINTER, _POINTER, ctypes.c_size_t),
    # int tj3Get(tjhandle, int param)
    "tj3Get": ctypes.PYFUNCTYPE(_INT, _POINTER, _INT),
    # int tj3SetCroppingRegion(tjhandle, tjregion croppingRegion)
    "tj3SetCroppingRegion": ctypes.PYFUNCTYPE(_INT, _POINTER, _Region),
    # int tj3Decompress8(tjhandle, const unsigned char *jpegBuf, size_t jpegSize, unsigned char *dstBuf, int pitch,
    #                    int pixelFormat)
    "tj3Decompress8": ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, ctypes.c_size_t, _POINTER, _INT, _INT),
    # char *tj3GetErrorStr(tjhandle)
    "tj3GetErrorStr": ctypes.PYFUNCTYPE(_TEXT, _POINTER),
}


class _SymbolInfo(ctypes.Structure):
    _fields_ = (("file", _TEXT), ("base", _POINTER), ("name", _TEXT), ("address", _POINTER))


def _path_of(function: Any) -> str | None:
    """Return the path of the shared object that contains a C function. Return None on systems without dladdr(3)."""
    try:
        dladdr = ctypes.CDLL(None).dladdr
    except (AttributeError, OSError, TypeError):  # Windows has neither the function nor a library without a name
        return None
    info = _SymbolInfo()
    found = dladdr(ctypes.cast(function, _POINTER), ctypes.byref(info))
    return os.fsdecode(info.file) if found and info.file else None


def _functions_3(path: str | None) -> dict[str, Any]:
    """Return name -> function for libjpeg-turbo 3 in the library at `path`. Return {} if the library is older."""
    if path is None:
        return {}
    library = ctypes.CDLL(path)  # the one that is loaded
    try:
        return {name: declared((name, library)) for name, declared in _DECLARED_3.items()}
    except AttributeError:
        return {}


def _functions(found: turbojpeg.TurboJPEG) -> dict[str, Any]:
    """Return C name -> function for the functions of `_DECLARED` in the library that PyTurboJPEG has loaded.

    `found` contains them as attributes. A function that the library does not have is absent from the result.
    """
    held = {getattr(value, "__name__", ""): value for value in vars(found).values()}
    return {
        name: declared(ctypes.cast(held[name], _POINTER).value or 0)
        for name, declared in _DECLARED.items()
        if name in held
    }


def _address(buffer: Buffer) -> int:
    if isinstance(buffer, memoryview) and not buffer.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))  # faster than through NumPy
    return np.frombuffer(buffer, np.uint8).ctypes.data


def _request(buffer: Buffer, pixels: npt.NDArray[np.uint8], fast_dct: bool, fast_upsampling: bool = False) -> _Request:
    height, width, channels = pixels.shape
    form = turbojpeg.TJPF_GRAY if channels == 1 else turbojpeg.TJPF_RGB
    source = buffer if type(buffer) is bytes else _address(buffer)
    target = ctypes.addressof(ctypes.c_char.from_buffer(pixels.data))
    flags = turbojpeg.TJFLAG_FASTDCT if fast_dct else 0
    if fast_upsampling:
        flags |= turbojpeg.TJFLAG_FASTUPSAMPLE
    return source, len(buffer), target, width, 0, height, form, flags


class PyTurboJPEG:
    """A JPEGLibrary (see packer.images.backends.strict_jpeg) that calls the library of PyTurboJPEG.

    The constructor raises RuntimeError or OSError if the library cannot be used.
    """

    name = f"PyTurboJPEG {turbojpeg.__version__}"
    binary = "libturbojpeg"

    def __init__(self) -> None:
        functions = _functions(turbojpeg.TurboJPEG())
        missing = _DECLARED.keys() - functions.keys() - {"tjGetErrorStr2"}
        if missing:
            raise RuntimeError(f"{self.name} does not hold the function {min(missing)}, expected release 1.8")
        self._init = functions["tjInitDecompress"]
        self._destroy = functions["tjDestroy"]
        self._read_header = functions["tjDecompressHeader3"]
        self._decompress = functions["tjDecompress2"]
        self._error_of_handle = functions.get("tjGetErrorStr2")
        self._error_of_thread = functions["tjGetErrorStr"]
        functions_3 = _functions_3(_path_of(functions["tjDecompress2"]))
        self.decode_region = _RegionDecoder(functions_3) if functions_3 else None

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
        request = _request(buffer, pixels, fast_dct, fast_upsampling or (fast_dct and eighths == 8))
        handle = self._init()
        try:
            self._check_header(handle, request, eighths)
            self._decompressed(handle, request, allow_trailing_data)
        finally:
            self._destroy(handle)

    def _check_header(self, handle: int, request: _Request, eighths: int) -> None:
        source, size, _, width, _, height, _, _ = request
        found = self._size(handle, source, size)
        if (-(-found[1] * eighths // 8), -(-found[0] * eighths // 8)) != (height, width):
            raise damaged("jpeg", f"libjpeg-turbo finds {found[0]}x{found[1]} px, the header another size")

    def _size(self, handle: int, source: Any, size: int) -> tuple[int, int]:
        told = (_INT * 4)()
        at = ctypes.addressof(told)
        if self._read_header(handle, source, size, at, at + 4, at + 8, at + 12):
            raise damaged("jpeg", self._message(handle))
        return told[0], told[1]

    def _decompressed(self, handle: int, request: _Request, allow_trailing_data: bool) -> None:
        if self._decompress(handle, *request):
            message = self._message(handle)
            if not (allow_trailing_data and is_trailing_data(message)):
                raise damaged("jpeg", message)

    def _message(self, handle: int) -> str:
        """Return the library's message about its last failure or warning."""
        raw = self._error_of_thread() if self._error_of_handle is None else self._error_of_handle(handle)
        text: str = raw.decode()
        return text

    def check(self, buffer: Buffer, found: Header) -> None:
        form, channels = (turbojpeg.TJPF_CMYK, 4) if found.cmyk else (turbojpeg.TJPF_GRAY, 1)
        source = buffer if type(buffer) is bytes else _address(buffer)
        handle = self._init()
        try:
            width, height = (-(-side // 8) for side in self._size(handle, source, len(buffer)))
            pixels = np.empty(width * height * channels, np.uint8)
            request = (source, len(buffer), pixels.ctypes.data, width, 0, height, form, 0)
            self._decompressed(handle, request, False)
        finally:
            self._destroy(handle)


class _RegionDecoder:
    """A RegionDecoder (see packer.images.backends.strict_jpeg) that calls libjpeg-turbo 3."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self._init = functions["tj3Init"]
        self._destroy = functions["tj3Destroy"]
        self._read_header = functions["tj3DecompressHeader"]
        self._get = functions["tj3Get"]
        self._set_region = functions["tj3SetCroppingRegion"]
        self._decompress = functions["tj3Decompress8"]
        self._error = functions["tj3GetErrorStr"]

    def __call__(
        self, buffer: Buffer, pixels: npt.NDArray[np.uint8], *, size: tuple[int, int], corner: tuple[int, int]
    ) -> None:
        source = buffer if type(buffer) is bytes else _address(buffer)
        target = ctypes.addressof(ctypes.c_char.from_buffer(pixels.data))
        region = _Region(corner[1], corner[0], pixels.shape[1], pixels.shape[0])
        handle = self._init(_TJINIT_DECOMPRESS)
        try:
            if self._read_header(handle, source, len(buffer)):
                raise damaged("jpeg", self._error(handle).decode())
            found = self._get(handle, _TJPARAM_JPEGHEIGHT), self._get(handle, _TJPARAM_JPEGWIDTH)
            if found != size:
                raise damaged("jpeg", f"libjpeg-turbo finds {found[1]}x{found[0]} px, the header another size")
            if self._set_region(handle, region) or self._decompress(
                handle, source, len(buffer), target, 0, turbojpeg.TJPF_RGB
            ):
                raise damaged("jpeg", self._error(handle).decode())
        finally:
            self._destroy(handle)
