"""Part folder: a part that is a folder, filled with one file per value and read back, and the names of its files.

What is written is always a new file in folders that are no links; what is read is opened beneath the folder, and must
be a plain file of the expected size, which is compared before a byte is read: nothing is mapped, so a file that is cut
meanwhile is an error and never a signal.

The key is the name, with a suffix that fits the value. Where that could lead out of the folder, is too long, or is what
some file system takes for an earlier name (upper and lower case, composed accents), `~` and the row's number come in:

    cat/a.jpg    ->  cat/a.jpg.bmp        cat/A.jpg  ->  cat/A.jpg~7.bmp       because of the one before
    cat/<long>   ->  cat/~7.bmp           ../a.jpg   ->  ~7.bmp
"""

import hashlib
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from packer.errors import InvalidRequest, OutOfMemory
from packer.files.open_beneath import open_beneath
from packer.files.safe_paths import components, folded
from packer.system.buffer_pool import BufferPool, pageable

MOST_FILE_BYTES = (1 << 32) - 1  # of one value: what BMP and LMDB have numbers for, and more than any picture
_MOST_FREE = 8  # pieces of memory that wait for the next file
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Memory(threading.local):
    """What a thread reads into: its own, since that is in its core's caches."""

    def __init__(self) -> None:
        self.slabs = BufferPool(_MOST_FREE, new=pageable)


class PartFolder:
    """The files below an existing folder; may be read by many threads."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where there is no such folder, or a link."""
        self._root = os.open(path, _FOLDER)
        self._memory = _Memory()

    def open(self, path: bytes) -> int:
        """A descriptor of a file, for reading; raises OSError."""
        return open_beneath(self._root, path)

    def read(self, path: bytes, size_bytes: int) -> memoryview:
        """The file's content, in memory that is used again when nobody holds it.

        Raises OSError, and ValueError for anything but a plain file of that size.
        """
        descriptor = open_beneath(self._root, path)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("expected a file, found a folder or a device")
            if status.st_size != size_bytes:
                raise ValueError(f"file is cut or changed: expected {size_bytes} bytes, found {status.st_size}")
            if size_bytes > MOST_FILE_BYTES:  # which may be a hole in a disk, and memory that the system promises
                raise ValueError(f"file of {size_bytes} bytes, expected at most {MOST_FILE_BYTES}")
            return self._content(descriptor, size_bytes)
        finally:
            os.close(descriptor)

    def _content(self, descriptor: int, size_bytes: int) -> memoryview:
        try:
            data = self._memory.slabs.take(size_bytes)
        except MemoryError as error:
            raise OutOfMemory(f"a file of {size_bytes:,} bytes does not fit the memory that is left") from error
        done = 0
        while done < size_bytes:  # once is the rule
            count = os.readv(descriptor, (data[done:],))
            if not count:
                missing = size_bytes - done
                raise ValueError(f"file was cut while it was read: {missing} of {size_bytes} bytes are missing")
            done += count
        return data.toreadonly()

    def close(self) -> None:
        """Give the descriptor back; may be called twice."""
        if self._root >= 0:
            os.close(self._root)
        self._root = -1


# ---- names


class FileNames:
    """The names of one part's files, in the order of its rows; 8 bytes are kept of each in a set."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self, key: bytes, row: int, wanted: Sequence[tuple[str, ...]]) -> list[str]:
        """The path of each of a row's files below the folder of its field; wanted: the suffixes that fit it."""
        for path in _candidates(key.decode("utf-8", "surrogateescape"), row):
            found = [path if path.lower().endswith(fitting) else path + fitting[0] for fitting in wanted]
            marks = [marks for name in dict.fromkeys(found) if (marks := self._marks(name)) is not None]
            if len(marks) == len(set(found)):
                self._taken.update(*marks)
                return found
        raise InvalidRequest(f"row {row}: no name is left for its files; use another format")

    def _marks(self, path: str) -> list[int] | None:
        """What stands for the path and its folders; None where it is unsafe or something is in its way."""
        try:
            components(path)
        except InvalidRequest:
            return None
        key = folded(path)
        file = _mark(key)
        if file in self._taken or _mark(f"{key}/") in self._taken:
            return None
        marks = [file]
        at = key.rfind("/")
        while at >= 0 and (folder := _mark(key[: at + 1])) not in self._taken:
            if _mark(key[:at]) in self._taken:  # a file lies where the folder should
                return None
            marks.append(folder)
            at = key.rfind("/", 0, at)
        return marks


def _candidates(path: str, row: int) -> Iterator[str]:
    folder, slash, _ = path.rpartition("/")
    yield from (path, f"{path}~{row}", f"{folder}{slash}~{row}")
    for tildes in count(1):
        yield f"{'~' * tildes}{row}"


def _mark(folded_path: str) -> int:
    """64 bits of a hash: should two paths ever share them, one gets another name than it needed to."""
    raw = folded_path.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")
