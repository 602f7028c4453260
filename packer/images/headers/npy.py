"""npy: header and pixels of a NumPy array file.

Layout: numpy.lib.format versions 1.0 to 3.0. The header is read with a pattern: nothing in it is evaluated.
"""

import re
import struct

import numpy as np

from packer.images.header import Buffer, Header, damaged
from packer.schema import DTYPES, Value

MAGIC = b"\x93NUMPY"

_LENGTH = rb"(?:0|[1-9]\d{0,17})"  # as Python has it, which NumPy reads it with: no zeros in front
_HEADER = re.compile(
    rb"\{'descr': '([<>|=])([a-z]\d{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \((%b(?:, ?%b)*,?)\), ?\} *\n?" % (_LENGTH, _LENGTH)
)
_CODES = {np.dtype(name).str[1:]: name for name in DTYPES}


def header(buffer: Buffer) -> Header:
    """The header of an npy file that holds (H, W), (H, W, 1), (H, W, 3) or (H, W, 4); raises DamagedImage."""
    start, _, _, shape, name = _read(buffer)
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise damaged("npy", f"its shape is {shape}, expected (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)")
    channels = shape[2] if len(shape) == 3 else 1
    return Header("npy", shape[0], shape[1], channels, name, bits=8 * np.dtype(name).itemsize, data_at=start)


def _read(buffer: Buffer) -> tuple[int, np.dtype[Value], bool, tuple[int, ...], str]:
    """Offset of the data, stored dtype, whether the order is Fortran's, shape, name of the dtype."""
    version, minor, short = struct.unpack_from("<BBH", buffer, 6)
    if version not in (1, 2, 3) or minor:
        raise damaged("npy", f"unknown version {version}.{minor}, expected 1.0, 2.0 or 3.0")
    start = 10 if version == 1 else 12
    length = short if version == 1 else struct.unpack_from("<I", buffer, 8)[0]
    match = _HEADER.fullmatch(bytes(buffer[start : start + min(length, 4096)]))
    if match is None or match[2].decode() not in _CODES:
        raise damaged("npy", "its header does not describe an array of numbers")
    order, code, fortran, shape = (part.decode() for part in match.groups())
    lengths = tuple(int(part) for part in shape.split(",") if part)
    return start + length, np.dtype(order + code), fortran == "True", lengths, _CODES[code]


def check_end(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage where the file is not as long as its array."""
    needed = found.data_at + found.height * found.width * found.channels * np.dtype(found.dtype).itemsize
    if len(buffer) != needed:
        raise damaged("npy", f"it has {len(buffer)} bytes, expected {needed}")


def decode(buffer: Buffer, found: Header) -> np.ndarray[tuple[int, ...], np.dtype[Value]]:
    """The array, (H, W) or (H, W, C), in native byte order; a view of `buffer` where nothing had to be converted."""
    check_end(buffer, found)
    start, dtype, fortran, shape, _ = _read(buffer)
    values = np.frombuffer(buffer, dtype, offset=start)
    return values.reshape(shape, order="F" if fortran else "C").astype(found.dtype, copy=False)
