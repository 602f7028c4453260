"""NPZ: files of numpy.savez, whose arrays have one row per sample, such as MedMNIST's files and mnist.npz.

packer never unpickles: arrays of Python objects are skipped. packer.sources.arrays._array_source describes fields,
tables and splits. The modules packer.files.npy_arrays and packer.layouts.zip_archive describe the layouts.
"""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from packer.errors import BadInput
from packer.files.npy_arrays import read_header
from packer.layouts.zip_archive import ZIP_ERRORS, Archive, ArchiveEntry
from packer.sources._message_texts import shown
from packer.sources.arrays._array_source import ArraySource
from packer.sources.arrays._stored_array import ArrayForm, SpanArray, StoredArray, Unread
from packer.sources.records._random_access_files import FileBytes, PackedSpan, RecordFile, RecordFiles

SPECIFICITY = -1  # a folder that contains images is a folder of images
_SUFFIX = ".npy"
_HEADER_BYTES = 8192
_PIECE_BYTES = 1 << 20


class Source(ArraySource):
    """A .npz file, or a folder of .npz files."""

    kind, noun, title = "npz", ".npz file", "NumPy .npz"
    suffixes, magic = (".npz",), b"PK\x03\x04"

    def _arrays_in(self, files: RecordFiles, number: int) -> Iterator[StoredArray | Unread]:
        file = files.open(number)
        try:
            with os.fdopen(os.dup(file.descriptor), "rb") as stream:
                entries = Archive(FileBytes(file), stream, wanted=None, may_deflate=True).places()
        except (*ZIP_ERRORS, OSError) as error:
            reason = shown(" ".join(str(error).split())[:200])
            raise BadInput(f"{file.path}: is damaged, or not an .npz file: {reason}; get the file again") from error
        for member, entry in entries.items():
            path = f"{file.name}/{member}"
            yield self._array(file.name, member, entry) if member.endswith(_SUFFIX) else Unread(path, "is not .npy")

    def _array(self, name: str, member: str, entry: ArchiveEntry) -> StoredArray | Unread:
        """Return the array of a zip member. Raise BadInput if its crc32 or size is wrong."""
        span = PackedSpan(entry.offset, entry.size_bytes) if entry.is_deflated else None
        size = self.folder.status(name).st_size
        files = RecordFiles(self.folder, [RecordFile(name, size, is_packed=entry.is_deflated, span=span)])
        where = f"{files.path(0)}: {shown(member)} is damaged"
        start = 0 if entry.is_deflated else entry.offset
        header, crc = b"", 0
        for at in range(0, entry.unpacked_bytes, _PIECE_BYTES):
            piece = files.read(0, start + at, min(_PIECE_BYTES, entry.unpacked_bytes - at))
            header, crc = header or piece[:_HEADER_BYTES], zlib.crc32(piece, crc)
        if crc != entry.crc32:
            raise BadInput(f"{where}: crc32 {crc:08x}, expected {entry.crc32:08x}; get the file again")
        try:
            found = read_header(header, texts=True)
        except ValueError as error:
            return Unread(f"{name}/{member}", str(error))
        if found.data_at + found.data_bytes != entry.unpacked_bytes:
            raise BadInput(
                f"{where}: {entry.unpacked_bytes} bytes, expected {found.data_at + found.data_bytes} for {found.name} "
                f"{found.shape}; get the file again"
            )
        path = f"{name}/{member.removesuffix(_SUFFIX)}"
        form = ArrayForm(path, files, 0, found.dtype, found.shape, start + found.data_at)
        return SpanArray(form, is_fortran=found.is_fortran)

    @classmethod
    def begins(cls, start: bytes, path: Path) -> bool:
        """Return whether a file is a zip with the suffix .npz."""
        return start.startswith(cls.magic) and path.name.lower().endswith(cls.suffixes)
