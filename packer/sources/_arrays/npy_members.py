"""NPY members: the arrays of .npy and .npz files, without NumPy's reader, which evaluates and unpickles.

Stored members are read by offset, deflated ones by unpacking. The crc32 of a member is compared once, when the source
is made. Layouts: packer.files.npy_arrays, packer.files.zip_archive.
"""

import math
import os

from packer.errors import BadInput
from packer.files.npy_arrays import MAGIC, NpyHeader, read_header
from packer.files.zip_archive import ZIP_ERRORS, Archive, ArchiveEntry
from packer.sources._arrays.array_source import LeftOut
from packer.sources._arrays.stored_array import (
    Checksum,
    ColumnsArray,
    DeflatedArray,
    PlainArray,
    StoredArray,
    TextArray,
)
from packer.sources._parse.folder_listing import shown
from packer.sources._records.random_access_files import FileBytes, OpenFile, PackedSpan, RecordFiles, UnpackedFile

ZIP_MAGIC = b"PK\x03\x04"
_SUFFIX = ".npy"
_HEADER_BYTES = 8192
_MOST_LENGTHS = 8


class _NoArray(Exception):
    """An array that is not read, and why."""


def single(files: RecordFiles, number: int) -> StoredArray:
    """The array of an .npy file, which has the file's name; raises BadInput."""
    folder, _, last = files.files[number].name.rpartition("/")
    path, file = files.path(number), files.open(number)
    try:
        found = read_header(file.read(0, _HEADER_BYTES), texts=True)
        _check(found)
    except (ValueError, _NoArray) as error:
        raise BadInput(f"{path}: {error}; numpy.save an array of numbers") from error
    if found.data_at + _data_bytes(found) != file.size:
        raise BadInput(
            f"{path}: is cut, or has more than one array: {file.size} bytes, expected "
            f"{found.data_at + _data_bytes(found)} for {found.name} {found.shape}; get the file again"
        )
    return _plain(folder, last[: -len(_SUFFIX)], found, files=files, number=number, offset=found.data_at, checksum=None)


def members(files: RecordFiles, number: int) -> tuple[list[StoredArray], list[LeftOut]]:
    """The arrays of an .npz file, and what else is in it; raises BadInput."""
    path, name, file = files.path(number), files.files[number].name, files.open(number)
    try:
        with os.fdopen(os.dup(file.descriptor), "rb") as stream:
            entries = Archive(FileBytes(file), stream, wanted=None, may_deflate=True).places()
    except (*ZIP_ERRORS, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise BadInput(f"{path}: is damaged, or no .npz file: {shown(said)}; get the file again") from error
    found: list[StoredArray] = []
    left: list[LeftOut] = []
    for member, entry in entries.items():
        try:
            found.append(_member(files, number, name, member, entry, file))
        except _NoArray as error:
            left.append(LeftOut(f"{name}/{member}", str(error)))
    return found, left


def _member(
    files: RecordFiles, number: int, container: str, name: str, entry: ArchiveEntry, file: OpenFile
) -> StoredArray:
    if not name.endswith(_SUFFIX):
        raise _NoArray("is no .npy member")
    span = PackedSpan(entry.offset, entry.size_bytes)
    try:
        if entry.is_deflated:
            start = UnpackedFile(file, span).read(0, _HEADER_BYTES)
        else:
            start = file.read(entry.offset, min(_HEADER_BYTES, entry.size_bytes))
        found = read_header(start, texts=True)
    except ValueError as error:
        raise _NoArray(str(error)) from error
    _check(found)
    if found.data_at + _data_bytes(found) != entry.unpacked_bytes:
        raise BadInput(
            f"{files.path(number)}: {shown(name)} is damaged: {entry.unpacked_bytes} bytes, expected "
            f"{found.data_at + _data_bytes(found)} for {found.name} {found.shape}; get the file again"
        )
    stem = name.removesuffix(_SUFFIX)
    folder, _, last = stem.rpartition("/")
    place = f"{container}/{folder}" if folder else container
    if not entry.is_deflated:
        checksum = Checksum(entry.offset, entry.size_bytes, entry.crc32)
        offset = entry.offset + found.data_at
        return _plain(place, last, found, files=files, number=number, offset=offset, checksum=checksum)
    stored: StoredArray = DeflatedArray(
        place,
        last,
        files=files,
        number=number,
        span=span,
        data_at=found.data_at,
        dtype=found.dtype,
        shape=found.shape[::-1] if _is_turned(found) else found.shape,
        crc32=entry.crc32,
    )
    return _as_said(stored, found)


def _plain(
    container: str,
    name: str,
    found: NpyHeader,
    *,
    files: RecordFiles,
    number: int,
    offset: int,
    checksum: Checksum | None,
) -> StoredArray:
    stored = PlainArray(
        container,
        name,
        files=files,
        number=number,
        offset=offset,
        dtype=found.dtype,
        shape=found.shape[::-1] if _is_turned(found) else found.shape,
        checksum=checksum,
    )
    return _as_said(stored, found)


def _as_said(stored: StoredArray, found: NpyHeader) -> StoredArray:
    if found.dtype.kind in "SU":
        return TextArray(stored)
    return ColumnsArray(stored, found.shape) if _is_turned(found) else stored


def _is_turned(found: NpyHeader) -> bool:
    """Whether the array is in Fortran order, and that is another one."""
    return found.is_fortran and len(found.shape) > 1


def _check(found: NpyHeader) -> None:
    """Raise _NoArray for what no field can hold."""
    if len(found.shape) > _MOST_LENGTHS or (found.dtype.kind in "SU" and len(found.shape) > 1):
        raise _NoArray(f"is {found.name} {found.shape}, which no field can hold")


def _data_bytes(found: NpyHeader) -> int:
    return math.prod(found.shape) * found.dtype.itemsize


def is_npy(start: bytes) -> bool:
    """Whether a file that begins so is an .npy file."""
    return start.startswith(MAGIC)


def is_npz(start: bytes) -> bool:
    """Whether a file that begins so is a zip file whose first member is an array."""
    length = int.from_bytes(start[26:28], "little")
    return start.startswith(ZIP_MAGIC) and start[30 : 30 + length].endswith(_SUFFIX.encode())
