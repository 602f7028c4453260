"""npy: header and pixels of a NumPy array file.

Layout: packer.files.npy_arrays.
"""

import numpy as np

from packer.files.npy_arrays import MAGIC as MAGIC
from packer.files.npy_arrays import NpyHeader, read_header
from packer.images.file_types._header_record import Buffer, Header, damaged
from packer.schema import Value


def header(buffer: Buffer) -> Header:
    """Parse the header of an npy file of shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4). Raises DamagedImage."""
    found = _read(buffer)
    shape, name = found.shape, found.name
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise damaged("npy", f"its shape is {shape}, expected (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)")
    channels = shape[2] if len(shape) == 3 else 1
    return Header("npy", shape[0], shape[1], channels, name, bits=8 * np.dtype(name).itemsize, data_at=found.data_at)


def _read(buffer: Buffer) -> NpyHeader:
    try:
        return read_header(buffer)
    except ValueError as error:
        raise damaged("npy", str(error)) from error


def check_end(buffer: Buffer, found: Header) -> None:
    """Raise DamagedImage if the file is shorter or longer than its header requires."""
    needed = found.data_at + found.height * found.width * found.channels * np.dtype(found.dtype).itemsize
    if len(buffer) != needed:
        raise damaged("npy", f"it has {len(buffer)} bytes, expected {needed}")


def decode(buffer: Buffer, found: Header) -> np.ndarray[tuple[int, ...], np.dtype[Value]]:
    """Return the array, (H, W) or (H, W, C), in native byte order. It is a copy only if the file has another order."""
    check_end(buffer, found)
    return _read(buffer).array(buffer).astype(found.dtype, copy=False)
