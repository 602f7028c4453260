"""Random access files: reads bytes from large files by file number, offset and size.

Each thread keeps the last file open, so each of several consecutive records needs one pread(2). Files are not
memory-mapped, because access to a truncated mapped file kills the process. A pickled `RecordFiles` contains only names.
`UnpackedFile` decompresses gzip, zlib or raw deflate. Its offsets count decompressed bytes.
"""

import errno
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from packer.errors import BadInput, InvalidRequest, printable
from packer.sources._trees.folder_tree import EMPTY, SourceRoot

_POINTER = b"version https://git-lfs.github.com/spec/v1"
_WINDOW_BYTES = 1 << 16  # bytes of one buffered read
_BLOCK_BYTES = 16 << 20  # decompressed bytes between two saved decoder states
_BLOCKS = 4  # decompressed blocks in memory
_INPUT_BYTES = 1 << 18
_FIRST_INPUT_BYTES = 1 << 8  # enough for the shortest members
_EITHER = 32 + zlib.MAX_WBITS  # zlib detects gzip or zlib from the first bytes
_BARE = -zlib.MAX_WBITS  # deflate without a header, as in zip files


def is_pointer(start: bytes) -> bool:
    """Return whether `start`, the first bytes of a file, is a git-lfs pointer instead of the content."""
    return start.startswith(_POINTER)


def check_no_pointer(start: bytes, path: Path) -> None:
    """Raise BadInput if `start`, the first bytes of the file `path`, is a git-lfs pointer."""
    if is_pointer(start):
        raise BadInput(f"{path}: is a git-lfs pointer, not the file itself; fetch it: git lfs pull")


def check_not_empty(start: bytes, path: Path) -> None:
    """Raise InvalidRequest if `start`, the first bytes of the file `path`, is empty."""
    if not start:
        raise InvalidRequest(f"{printable(str(path))}: {EMPTY}")


def check_magic(start: bytes, magic: bytes, path: Path, *, what: str) -> None:
    """Raise InvalidRequest unless `start` begins with `magic`, and BadInput for a git-lfs pointer.

    `start` contains the first bytes of the file, `what` is the name of the format for messages.
    """
    check_no_pointer(start, path)
    check_not_empty(start, path)
    if not start.startswith(magic):
        raise InvalidRequest(
            f"{printable(str(path))}: is not in the format {what}: it begins with {start[: len(magic)].hex(' ')}, "
            f"expected {magic.hex(' ')}"
        )


class PackedSpan(NamedTuple):
    """Offset and size of a raw deflate stream in a file, such as a member of a zip file."""

    offset: int
    size: int


class RecordFile(NamedTuple):
    """A file that contains records.

    Attributes:
        name: The relative path.
        size: The size on disk in bytes.
        is_packed: True if the file is compressed with gzip or zlib, or if `span` is not None.
        span: The deflate stream in the file to read. None for the complete file.
    """

    name: str
    size: int
    is_packed: bool = False
    span: PackedSpan | None = None


class RecordFiles:
    """Random access to the bytes of several files in a folder. Thread-safe."""

    def __init__(self, folder: SourceRoot, files: Sequence[RecordFile]) -> None:
        self._folder = folder
        self.files = tuple(files)
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder, "files": self.files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        self._mine = threading.local()
        self._unpacked: dict[int, UnpackedFile] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def forget(self) -> None:
        """Close all files. The next read opens the files again."""
        self._begin()

    def unpacks_again(self, ends: Iterable[tuple[int, int]]) -> bool:
        """Return whether reads in random order would decompress the same data many times.

        `ends` contains, for each record, the number of the file and the offset of the end of the record.
        """
        packed = {number for number, file in enumerate(self.files) if file.is_packed}
        most = _BLOCKS * _BLOCK_BYTES if len(packed) == 1 else 0
        return bool(packed) and any(number in packed and end > most for number, end in ends)

    def path(self, number: int) -> Path:
        """Return the path of the file at position `number`."""
        return self._folder.root / self.files[number].name

    def open(self, number: int) -> "OpenFile":
        """Open the file at position `number`. Raise BadInput if it is unreadable or has changed since it was listed."""
        return OpenFile(self._folder, self.files[number].name)

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on. Raise BadInput if the file is unreadable or has changed."""
        file = self.files[number]
        if self._pid != os.getpid():  # after a fork, another thread may hold the lock
            self._begin()
        if file.is_packed:
            with self._lock:
                if number not in self._unpacked:
                    self._unpacked.clear()  # one at a time: files are read one after the other
                    self._unpacked[number] = UnpackedFile(self.open(number), file.span)
                data = self._unpacked[number].read(offset, size)
        else:
            last: tuple[int, OpenFile] | None = getattr(self._mine, "last", None)
            if last is None or last[0] != number:
                self._mine.last = last = (number, self.open(number))
            data = last[1].read(offset, size)
        if len(data) != size:
            raise BadInput(
                f"{self.path(number)}: ends at byte {offset + len(data)}, a record goes on to {offset + size}; it "
                "changed while it was read, run again"
            )
        return data


class OpenFile:
    """An open regular file with random access. The file is closed when the object is deleted."""

    def __init__(self, folder: SourceRoot, name: str) -> None:
        """Open a file. Raises `BadInput` if the file cannot be read or has changed since the folder was listed."""
        self.folder, self.name, self.path = folder, name, folder.root / name
        self._descriptor = -1
        self._descriptor = folder.open(name)
        self.status = os.fstat(self._descriptor)
        self.size = self.status.st_size

    @property
    def descriptor(self) -> int:
        """Return the file descriptor, which is valid for the lifetime of this object."""
        return self._descriptor

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def data_from(self, offset: int) -> int:
        """Return `offset` if the file has data there, otherwise the end of the hole (of a sparse file) at `offset`."""
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else offset

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, fewer at the end. Raise BadInput if this fails or the file changed."""
        if offset >= self.size:  # a damaged file can contain any offset
            return b""
        try:
            data = os.pread(self._descriptor, size, offset)
            while len(data) < size and (more := os.pread(self._descriptor, size - len(data), offset + len(data))):
                data += more
        except OSError as error:
            raise BadInput(f"{self.path}: cannot read: {error.strerror}; make it readable or leave it out") from error
        self.folder.check(self.name, os.fstat(self._descriptor))
        return data


class FileBytes:
    """An adapter that reads an open file with slices: `data[start:stop]`."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file

    def __getitem__(self, span: slice, /) -> bytes:
        start, stop, _ = span.indices(self._file.size)
        return self._file.read(start, max(0, stop - start))


class HeaderReader:
    """A buffered reader of short byte ranges at ascending offsets, such as the headers of records."""

    def __init__(self, file: "OpenFile | UnpackedFile", *, window_bytes: int = _WINDOW_BYTES) -> None:
        """Wrap a file. One read fetches `window_bytes` bytes into the buffer."""
        self._file = file
        self._window_bytes = window_bytes
        self._start = 0
        self._window = b""

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, fewer at the end of the file. Raise BadInput if reading fails."""
        at = offset - self._start
        if at < 0 or at + size > len(self._window):
            self._start, self._window = offset, self._file.read(offset, max(size, self._window_bytes))
            at = 0
        return self._window[at : at + size]


class UnpackedFile:
    """Random access to the decompressed bytes of a gzip or zlib file, or of a raw deflate stream.

    The decoder state is saved every 16 MiB (40 KB each). A read decompresses from the last saved state before `offset`.
    The last 4 decompressed blocks stay in memory.
    """

    def __init__(self, file: OpenFile, span: PackedSpan | None = None) -> None:
        """Wrap a file. `span` is the deflate stream to read. None: the complete file, which may have gzip members."""
        self._file = file
        self._input = HeaderReader(file, window_bytes=_INPUT_BYTES)
        self._span = span
        start, self._end = (span.offset, span.offset + span.size) if span else (0, file.size)
        decoder = zlib.decompressobj(_BARE if span else _EITHER)
        self._states = [(start, decoder)]  # offset in the file, and the decoder there
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def data_from(self, offset: int) -> int:
        """Return `offset`, because compressed files have no holes."""
        return offset

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` decompressed bytes from `offset` on, fewer at the end. Raise BadInput for damaged data."""
        pieces = []
        while size > 0:
            number, at = divmod(offset, _BLOCK_BYTES)
            piece = self._block(number)[at : at + size]
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _block(self, number: int) -> bytes:
        if number in self._blocks:
            self._blocks.move_to_end(number)
            return self._blocks[number]
        while len(self._states) <= number:
            last = len(self._states) - 1
            if len(self._unpack(last)) < _BLOCK_BYTES:
                return b""
        return self._unpack(number)

    def _unpack(self, number: int) -> bytes:
        """Decompress and cache block `number`. Save the state of the decoder after it."""
        place, state = self._states[number]
        decoder = state.copy()
        pieces: list[bytes] = []
        missing, step = _BLOCK_BYTES, _FIRST_INPUT_BYTES
        while missing:
            if decoder.eof:  # another member may follow
                place -= len(decoder.unused_data)
                if self._span is not None or not self._input.read(place, 1):
                    break
                decoder, step = zlib.decompressobj(_EITHER), _FIRST_INPUT_BYTES
            given = decoder.unconsumed_tail
            if not given:
                given = self._input.read(place, max(0, min(step, self._end - place)))
                place += len(given)
                step = min(2 * step, _INPUT_BYTES)  # small, because bytes after a member are read again
            try:
                piece = decoder.decompress(given, missing)
            except zlib.error as error:
                raise BadInput(f"{self._file.path}: damaged: {error}; get the file again") from error
            if not piece and not given and not decoder.eof:
                raise BadInput(f"{self._file.path}: is cut: its compressed data does not end; get the file again")
            pieces.append(piece)
            missing -= len(piece)
        block = b"".join(pieces)
        if not missing and len(self._states) == number + 1:
            self._states.append((place, decoder))
        self._blocks[number] = block
        if len(self._blocks) > _BLOCKS:
            self._blocks.popitem(last=False)
        return block


def open_records(
    folder: SourceRoot, name: str, *, is_packed: bool = False
) -> "tuple[OpenFile, OpenFile | UnpackedFile]":
    """Return the open file, and its decompressed content.

    If `is_packed` is false, both are the same object.
    """
    file = OpenFile(folder, name)
    return file, UnpackedFile(file) if is_packed else file


def is_packed(start: bytes) -> bool:
    """Return whether a file that begins with the bytes `start` is compressed with gzip or zlib."""
    return start[:2] == b"\x1f\x8b" or (
        len(start) > 1 and start[0] & 15 == 8 and start[0] >> 4 <= 7 and int.from_bytes(start[:2], "big") % 31 == 0
    )
