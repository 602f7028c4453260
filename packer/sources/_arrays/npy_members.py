"""NPY members: the arrays of .npy and .npz files, without NumPy's reader, which evaluates and unpickles.

Stored members are read by offset, deflated ones by unpacking. The crc32 of a member is compared once, before its
header is read. Layouts: packer.files.npy_arrays, packer.files.zip_archive.
"""

import math
import os
import zlib

from packer.errors import BadInput
from packer.files.npy_arrays import MAGIC, NpyHeader, read_header
from packer.files.zip_archive import ZIP_ERRORS, Archive, ArchiveEntry
from packer.sources._arrays.array_source import LeftOut
from packer.sources._arrays.stored_array import (
    ColumnsArray,
    DeflatedArray,
    PlainArray,
    StoredArray,
    TextArray,
)
from packer.sources._parse.folder_listing import shown
from packer.sources.records._random_access_files import FileBytes, OpenFile, PackedSpan, RecordFiles, UnpackedFile

ZIP_MAGIC = b"PK\x03\x04"
_SUFFIX = ".npy"
_HEADER_BYTES = 8192
_MOST_LENGTHS = 8
_PIECE_BYTES = 1 << 20


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
    return _plain(folder, last[: -len(_SUFFIX)], found, files=files, number=number, offset=found.data_at)


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
    start = _sound_start(files, number, name, entry, UnpackedFile(file, span) if entry.is_deflated else file)
    try:
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
        return _plain(place, last, found, files=files, number=number, offset=entry.offset + found.data_at)
    stored: StoredArray = DeflatedArray(
        place,
        last,
        files=files,
        number=number,
        span=span,
        data_at=found.data_at,
        dtype=found.dtype,
        shape=found.shape[::-1] if _is_turned(found) else found.shape,
    )
    return _as_said(stored, found)


def _sound_start(
    files: RecordFiles, number: int, name: str, entry: ArchiveEntry, file: OpenFile | UnpackedFile
) -> bytes:
    """The first bytes of a member; raises BadInput unless all its bytes have the crc32 that the archive names."""
    first, most = (0, entry.unpacked_bytes + 1) if entry.is_deflated else (entry.offset, entry.size_bytes)
    start = file.read(first, min(_HEADER_BYTES, most))
    at = crc = 0
    while at < most and (piece := file.read(first + at, min(_PIECE_BYTES, most - at))):
        crc = zlib.crc32(piece, crc)
        at += len(piece)
    if crc != entry.crc32 or at != entry.unpacked_bytes:
        raise BadInput(
            f"{files.path(number)}: {shown(name)} is damaged: crc32 {crc:08x} of {at} bytes, the archive says "
            f"{entry.crc32:08x} of {entry.unpacked_bytes}; get the file again"
        )
    return start


def _plain(
    container: str,
    name: str,
    found: NpyHeader,
    *,
    files: RecordFiles,
    number: int,
    offset: int,
) -> StoredArray:
    stored = PlainArray(
        container,
        name,
        files=files,
        number=number,
        offset=offset,
        dtype=found.dtype,
        shape=found.shape[::-1] if _is_turned(found) else found.shape,
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
