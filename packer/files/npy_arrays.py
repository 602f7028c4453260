"""NPY arrays: writes and reads the headers of .npy files, and maps the arrays of an index.

NumPy's reader evaluates the header as a Python literal. This module does not: a regular expression matches it, for
arrays of plain numbers only. Arrays of an index must be little-endian, C-ordered, of one or two dimensions, and of the
right size. The layout is magic, version, header length (uint16, or uint32 since version 2.0), header, data. Version 1.0
is written. Source: numpy/lib/format.py, versions 1.0 to 3.0.
"""

import math
import mmap
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import CorruptPack
from packer.files.safe_paths import open_file
from packer.files.storage_errors import failing
from packer.schema import DTYPES, Buffer

MAGIC = b"\x93NUMPY"
_MOST_OF_NONE = 1 << 40
_MOST_HEADER_BYTES = 4096
_MOST_READ_BYTES = 1 << 20
_UNIT = 64  # the size of magic and header is a multiple
_SPARE = 21  # characters for the first length
_LENGTH = rb"(?:0|[1-9]\d{0,17})"  # without leading zeros, as in Python
_HEADER = re.compile(
    rb"\{'descr': '([<>|=])([a-z]\d{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \((%b(?:, ?%b)*,?)\), ?\} *\n?" % (_LENGTH, _LENGTH)
)
_TEXT_HEADER = _HEADER.pattern.replace(rb"[a-z]\d{1,2}", rb"[SU]\d{1,4}")
_OBJECTS = b"{'descr': '|O'"
_DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|[?]|[SU][0-9]{1,9})", re.ASCII)


def dtype_of(text: str) -> np.dtype[Any]:
    """Return the dtype for a short form of NumPy, such as `<f4` or `|S7`. Raises ValueError for another text.

    Call it for texts from files, because numpy.dtype also accepts lists of fields, such as `f4,i8`.
    """
    if not _DTYPE.fullmatch(text):
        raise ValueError(f"dtype {text[:40]!r}: expected numbers or texts, such as '<f4'")
    return np.dtype(text)


_CODES = {np.dtype(name).str[1:]: name for name in DTYPES}


def npy_header(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> bytes:
    """Return magic and header of a C-ordered array. Its bytes are those that NumPy 2 writes."""
    text = f"{{'descr': {np.dtype(dtype).str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (_SPARE - len(repr(shape[0]))) if shape else ""
    return _padded(text, -(len(text) + 11) % _UNIT or _UNIT)


def npy_header_of_size(dtype: npt.DTypeLike, shape: tuple[int, ...], *, least_bytes: int) -> bytes:
    """Return magic and header, with spaces up to `least_bytes`. A header that needs more bytes is longer."""
    text = repr({"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape})
    needed = len(text) + 11
    return _padded(text, max(least_bytes, -(-needed // _UNIT) * _UNIT) - needed)


def _padded(text: str, spaces: int) -> bytes:
    line = text.encode("ascii") + b" " * spaces + b"\n"
    return MAGIC + b"\1\0" + len(line).to_bytes(2, "little") + line


def npy_file(array: npt.NDArray[Any]) -> bytes:
    """Return the file that numpy.save writes for the array in C order. Raises ValueError for Python objects."""
    if array.dtype.hasobject:
        raise ValueError(f"an array of {array.dtype} has no bytes of its own")
    return npy_header(array.dtype, array.shape) + array.tobytes()


class NpyHeader(NamedTuple):
    """The header of an .npy file.

    Attributes:
        dtype: Dtype in the file, with its byte order.
        name: Name of the dtype in native byte order, such as "int64", or "text" for texts.
        is_fortran: True for Fortran order, False for C order.
        shape: Shape of the array.
        data_at: Offset of the data in the file, in bytes.
    """

    dtype: np.dtype[Any]
    name: str
    is_fortran: bool
    shape: tuple[int, ...]
    data_at: int

    @property
    def data_bytes(self) -> int:
        """Size of the data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def array(self, buffer: Buffer | mmap.mmap) -> npt.NDArray[Any]:
        """Return the array of the file in its dtype and order. It shares the memory of `buffer`, the file."""
        values = np.frombuffer(buffer, self.dtype, math.prod(self.shape), self.data_at)
        return values.reshape(self.shape, order="F" if self.is_fortran else "C")


def read_header(buffer: Buffer | mmap.mmap, *, texts: bool = False) -> NpyHeader:
    """Return the header of an .npy file. Raises ValueError unless it describes an array of plain numbers.

    Args:
        buffer: The complete file.
        texts: True also accepts arrays of texts of a fixed length, whose `name` is "text". False refuses them.
    """
    start = bytes(buffer[:12])
    if start[:6] != MAGIC or len(start) < 12:
        raise ValueError("it does not begin like an .npy file")
    version, minor = start[6], start[7]
    if version not in (1, 2, 3) or minor:
        raise ValueError(f"unknown version {version}.{minor}, expected 1.0, 2.0 or 3.0")
    at = 10 if version == 1 else 12
    length = int.from_bytes(start[8:at], "little")
    header = bytes(buffer[at : at + min(length, _MOST_HEADER_BYTES)])
    match = _HEADER.fullmatch(header)
    if texts and match is None:
        match = re.fullmatch(_TEXT_HEADER, header)
    elif match is not None and match[2].decode() not in _CODES:
        match = None
    if match is None and header.startswith(_OBJECTS):
        raise ValueError("it contains Python objects, which only unpickling would read")
    if match is None:
        raise ValueError("its header does not describe an array of numbers")
    order, code, fortran, shape = (part.decode() for part in match.groups())
    lengths = tuple(int(part) for part in shape.split(",") if part)
    return NpyHeader(np.dtype(order + code), _CODES.get(code, "text"), fortran == "True", lengths, at + length)


def map_file(path: Path, expected_bytes: int) -> tuple[npt.NDArray[Any], bytes | mmap.mmap]:
    """Return the read-only array of an index file, without a copy, and the memory that contains it.

    Small files are read into bytes. Larger ones are mapped, which keeps a file descriptor for each file open.

    Raises CorruptPack unless the file has `expected_bytes` bytes and is an array of an index. Raises StorageError.
    """
    with open_file(path) as file:
        size = file.seek(0, 2)
        if size != expected_bytes:
            raise CorruptPack(
                f"{path}: index file is cut: expected {expected_bytes} bytes, found {size}; copy it again"
            )
        if size == 0:  # cannot be mapped
            raise CorruptPack(f"{path}: not an index file: it is empty; copy or pack it again")
        file.seek(0)
        with failing(path, "map the index file"):
            is_small = size <= _MOST_READ_BYTES
            mapped = file.read(size) if is_small else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _array(path, mapped), mapped


def _array(path: Path, mapped: bytes | mmap.mmap) -> npt.NDArray[Any]:
    try:
        found = read_header(mapped)
    except ValueError as error:
        raise CorruptPack(f"{path}: not an index file: unexpected .npy header; copy or pack it again") from error
    dtype, shape = found.dtype, found.shape
    plain = len(shape) in (1, 2) and dtype.str[0] in "<|"
    if not plain or not _is_as_written(mapped[: found.data_at], npy_header(dtype, shape)):
        raise CorruptPack(f"{path}: not an index file: unexpected .npy header; copy or pack it again")
    # NumPy fails for an empty array of huge lengths, which has the right size
    if found.data_bytes != len(mapped) - found.data_at or (not found.data_bytes and max(shape) > _MOST_OF_NONE):
        raise CorruptPack(f"{path}: not an index file: shape {shape} does not fit its size; copy or pack it again")
    return found.array(mapped)


def _is_as_written(stored: bytes, expected: bytes) -> bool:
    texts = [header[:8] + header[10:].rstrip(b" ") for header in (stored[:-1], expected[:-1])]
    return texts[0] == texts[1] and stored[-1:] == b"\n"
