"""Part folder: the files of a part that is a folder of many, opened, compared with their size and read when asked for.

Nothing is mapped, so a file that is cut meanwhile is an error and never a signal, and a part may have more files than
a process may keep open or mapped.
"""

import errno
import os
import stat
import threading
from pathlib import Path

from packer.errors import CorruptPack, OutOfMemory, StorageError
from packer.files.safe_paths import open_beneath
from packer.formats._columns import OF_THE_MACHINE
from packer.system.buffer_pool import BufferPool, pageable

MOST_FILE_BYTES = (1 << 32) - 1  # of one value: what BMP and LMDB have numbers for, and more than any picture
_MOST_FREE = 8  # pieces of memory that wait for the next value
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Memory(threading.local):
    """What a thread reads into: its own, since that is in its core's caches."""

    def __init__(self) -> None:
        self.buffers = BufferPool(_MOST_FREE, new=pageable)


class PartFolder:
    """The files of a part that is a folder; may be read by many threads.

    A file is opened beneath the folder, and must be a plain one of the expected size, which is compared before a byte
    is read.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError where there is no such folder, or a link."""
        self.path = path
        self._root = os.open(path, _FOLDER)
        self._memory = _Memory()

    def open(self, path: bytes) -> int:
        """A descriptor of a file, for reading; raises OSError."""
        return open_beneath(self._root, path)

    def read(self, path: bytes, size_bytes: int, *, span: tuple[int, int] | None = None) -> memoryview:
        """The content of a file that has `size_bytes`, in memory that is used again when nobody holds it.

        span: first byte and number of bytes of what is wanted, within the file; None for all of it.
        Raises StorageError, OutOfMemory, and CorruptPack for anything but a plain file of that size.
        """
        try:
            return self._read(path, size_bytes, *(span or (0, size_bytes)))
        except OutOfMemory as error:
            raise OutOfMemory(f"{self._where(path)}: cannot read: {error}") from error
        except OSError as error:
            where = self._where(path)
            if error.errno in OF_THE_MACHINE:
                raise StorageError(f"{where}: cannot read: {error.strerror}; see its permissions and disk") from error
            cause = "missing" if error.errno == errno.ENOENT else f"cannot be opened as a file: {error.strerror}"
            raise CorruptPack(f"{where}: {cause}; copy the pack again") from error
        except ValueError as error:
            raise CorruptPack(f"{self._where(path)}: {error}; copy the pack again") from error

    def _where(self, path: bytes) -> str:
        return f"{self.path}/{os.fsdecode(path)}"

    def _read(self, path: bytes, size_bytes: int, start: int, wanted: int) -> memoryview:
        """As `read`; raises OSError, and ValueError for what is no such file."""
        descriptor = open_beneath(self._root, path)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("expected a file, found a folder or a device")
            if status.st_size != size_bytes:
                raise ValueError(f"file is cut or changed: expected {size_bytes} bytes, found {status.st_size}")
            if wanted > MOST_FILE_BYTES:  # which may be a hole in a disk, and memory that the system promises
                raise ValueError(f"a value of {wanted} bytes, expected at most {MOST_FILE_BYTES}")
            return self._content(descriptor, start, wanted)
        finally:
            os.close(descriptor)

    def _content(self, descriptor: int, start: int, wanted: int) -> memoryview:
        try:
            data = self._memory.buffers.take(wanted)
        except MemoryError as error:
            raise OutOfMemory(f"a value of {wanted:,} bytes does not fit the memory that is left") from error
        done = 0
        while done < wanted:  # once is the rule
            count = os.preadv(descriptor, (data[done:],), start + done)
            if not count:
                raise ValueError(f"file was cut while it was read: {wanted - done} of {wanted} bytes are missing")
            done += count
        return data.toreadonly()

    def close(self) -> None:
        """Give the descriptor back; may be called twice."""
        if self._root >= 0:
            os.close(self._root)
        self._root = -1
