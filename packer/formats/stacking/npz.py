"""npz: arrays in one uncompressed .npz file, which numpy.load opens, and their places in the mapped file.

Layout: a zip file whose entries are stored as they are: the end record under the name `packer.json`, then one `.npy`
file (numpy/lib/format.py, version 1.0) per array. The header of each is exactly the one that `header` makes.
"""

import mmap
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from os import truncate
from pathlib import Path
from typing import IO

from packer.errors import CorruptPack
from packer.formats.stacking.archive import ZIP_ERRORS, Archive
from packer.formats.stacking.layout import MOST_END_BYTES, Array, check_end, end_record, reason
from packer.formats.stacking.mapping import Place
from packer.formats.stacking.spooling import Content
from packer.schema import Schema

_END = "packer.json"
_UNIT = 64  # what NumPy rounds the size of a header up to
_OF_A_LIST = 128  # bytes of the header of every array with one dimension


def header(array: Array, length: int) -> bytes:
    """The header of the array's .npy file; length: in the place of the one that its shape leaves open."""
    shape = tuple(length if known is None else known for known in array.shape)
    text = repr({"descr": array.dtype.str, "fortran_order": False, "shape": shape}).encode("ascii")
    text += b" " * (max(_OF_A_LIST, -(-(len(text) + 11) // _UNIT) * _UNIT) - 11 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def save(path: Path, contents: Mapping[str, tuple[Array, Content]], *, schema: Schema, samples: int) -> None:
    """A new file with the arrays under these names; raises OSError, and leaves an empty file then."""
    with path.open("xb") as file:
        try:
            with zipfile.ZipFile(file, "w") as archive:
                _add(archive, _END, end_record(schema, samples))
                for name, (array, content) in contents.items():
                    _add(archive, f"{name}.npy", header(array, len(content)), content)
        except BaseException:
            with suppress(OSError):  # what is left may look complete
                truncate(path, 0)
            raise


def _add(archive: zipfile.ZipFile, name: str, *blocks: Content | bytes) -> None:
    entry = zipfile.ZipInfo(name)  # its time is 1980, its rights are the same everywhere
    with archive.open(entry, "w", force_zip64=True) as file:
        for block in blocks:
            with memoryview(block) as view:
                file.write(view)


def places(
    path: Path, mapped: mmap.mmap, file: IO[bytes], arrays: Mapping[str, Array], *, schema: Schema, samples: int
) -> dict[str, Place]:
    """Where the numbers of each array lie; raises CorruptPack for anything but what `save` writes."""
    try:
        entries = Archive(mapped, file, wanted={_END, *(f"{name}.npy" for name in arrays)}).places()
    except ZIP_ERRORS as error:
        raise CorruptPack(f"{path}: not an .npz file: {reason(error)}; copy or pack it again") from error
    end = entries[_END]
    found = mapped[end.offset : end.offset + min(end.size_bytes, MOST_END_BYTES + 1)]
    check_end(path, found, schema=schema, samples=samples)
    return {name: _numbers(path, mapped, array, entries[f"{name}.npy"]) for name, array in arrays.items()}


def _numbers(path: Path, mapped: mmap.mmap, array: Array, entry: Place) -> Place:
    """The place behind the header, which must be the expected one, and of the size that it says."""
    length = max(0, entry.size_bytes - _OF_A_LIST)
    start = header(array, length)
    size_bytes = entry.size_bytes - len(start)
    if mapped[entry.offset : entry.offset + len(start)] != start or array.size_bytes not in (None, size_bytes):
        raise CorruptPack(
            f"{path}: {array.name('.')} is not the array that the schema has: expected {array.dtype} of shape "
            f"{array.shape} in {entry.size_bytes} bytes; copy or pack it again"
        )
    return Place(entry.offset + len(start), size_bytes)
