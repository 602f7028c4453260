"""The one shape of .npy file that an index holds, read without evaluating anything.

NumPy's reader evaluates the header as a Python literal and can be told to unpickle. Here the header must be exactly
what NumPy writes for one- and two-dimensional little-endian arrays of plain numbers, and the size must fit.
Layout: numpy/lib/format.py, version 1.0: magic, 1, 0, uint16 header length, header, data.
"""

import math
import mmap
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from packer.errors import CorruptPack
from packer.files.storage import failing, open_file

_format: Any = np.lib.format  # has types since NumPy 2.3
_MAGIC = b"\x93NUMPY\x01\x00"
_MOST_OF_NONE = 1 << 40
_HEADER = re.compile(
    rb"\{'descr': '(\|[uib]1|<[ui][248]|<f[248])', 'fortran_order': False, "
    rb"'shape': \((0|[1-9]\d{0,17}),(?: (0|[1-9]\d{0,17}))?\), \} *\n"
)


def write_header(file: BinaryIO, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
    """Magic and header of a C-ordered array, as NumPy writes them."""
    header = {"descr": _format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    _format.write_array_header_1_0(file, header)


def map_file(path: Path, expected_bytes: int) -> tuple[npt.NDArray[Any], mmap.mmap]:
    """The array, a read-only view of the mapped file, and the mapping.

    Raises CorruptPack for anything unexpected, StorageError where the file cannot be read.
    """
    with open_file(path) as file:
        size = file.seek(0, 2)
        if size != expected_bytes:
            raise CorruptPack(
                f"{path}: index file is cut: expected {expected_bytes} bytes, found {size}; copy it again"
            )
        if size == 0:  # cannot be mapped
            raise CorruptPack(f"{path}: not an index file: it is empty; copy or pack it again")
        with failing(path, "map the index file"):
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _array(path, mapped), mapped


def _array(path: Path, mapped: mmap.mmap) -> npt.NDArray[Any]:
    length = int.from_bytes(mapped[8:10], "little")
    match = _HEADER.fullmatch(mapped[10 : 10 + length]) if mapped[:8] == _MAGIC else None
    if match is None:
        raise CorruptPack(f"{path}: not an index file: unexpected .npy header; copy or pack it again")
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(number) for number in match.groups()[1:] if number is not None)
    count = math.prod(shape)
    start = 10 + length
    # an empty array of huge lengths would fit the size, and NumPy would stumble over it
    if count * dtype.itemsize != len(mapped) - start or (count == 0 and max(shape) > _MOST_OF_NONE):
        raise CorruptPack(f"{path}: not an index file: shape {shape} does not fit its size; copy or pack it again")
    return np.frombuffer(mapped, dtype, count, start).reshape(shape)
