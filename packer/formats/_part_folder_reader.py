"""Part folder reader: the files of a part that is a folder of many, opened beneath it and compared with their size.

`read` maps nothing, so a file that is cut meanwhile is an error and never a signal. `mapped` is for large files of many
values. Neither keeps a descriptor open: a part may have more files than a process may have open.
"""

import ctypes
import errno
import mmap
import os
import stat
import threading
import weakref
from pathlib import Path

from packer.errors import CorruptPack, OutOfMemory, PackerError, StorageError
from packer.files.safe_paths import open_beneath
from packer.formats._columns import OF_THE_MACHINE
from packer.system.buffer_pool import BufferPool, pageable

MOST_FILE_BYTES = (1 << 32) - 1  # of one value: what BMP and LMDB have numbers for, and more than any image
_MOST_FREE = 8  # pieces of memory that wait for the next file
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Memory(threading.local):
    """What a thread reads into: its own, since that is in its core's caches."""

    def __init__(self) -> None:
        self.buffers = BufferPool(_MOST_FREE, new=pageable)


class PartFolderReader:
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

    def read(self, path: bytes, size_bytes: int) -> memoryview:
        """The content of a file of that size, in memory that is used again when nobody holds it.

        Raises StorageError, OutOfMemory, and CorruptPack for anything but a plain file of that size.
        """
        try:
            descriptor = self._opened(path, size_bytes)
            try:
                if size_bytes > MOST_FILE_BYTES:  # which may be a hole in a disk, and memory that the system promises
                    raise ValueError(f"file of {size_bytes} bytes, expected at most {MOST_FILE_BYTES}")
                return self._content(descriptor, size_bytes)
            finally:
                os.close(descriptor)
        except (OutOfMemory, OSError, ValueError) as error:
            raise self._failure(path, error) from error

    def mapped(self, path: bytes, size_bytes: int) -> memoryview:
        """The content of a file of that size, at least one byte, mapped while a slice lives; raises as `read`."""
        try:
            descriptor = self._opened(path, size_bytes)
            try:
                return map_file(descriptor, size_bytes)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise self._failure(path, error) from error

    def _opened(self, path: bytes, size_bytes: int) -> int:
        """A descriptor of a plain file of that size; raises OSError, ValueError."""
        descriptor = open_beneath(self._root, path)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("expected a file, found a folder or a device")
            if status.st_size != size_bytes:
                raise ValueError(f"file is cut or changed: expected {size_bytes} bytes, found {status.st_size}")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _failure(self, path: bytes, error: Exception) -> PackerError:
        """The error of packer that stands for another."""
        where = self._where(path)
        if isinstance(error, OutOfMemory):
            return OutOfMemory(f"{where}: cannot read: {error}")
        if not isinstance(error, OSError):
            return CorruptPack(f"{where}: {error}; copy the pack again")
        if error.errno in OF_THE_MACHINE:
            return StorageError(f"{where}: cannot read: {error.strerror}; see its permissions and disk")
        cause = "missing" if error.errno == errno.ENOENT else f"cannot be opened as a file: {error.strerror}"
        return CorruptPack(f"{where}: {cause}; copy the pack again")

    def _where(self, path: bytes) -> str:
        return f"{self.path}/{os.fsdecode(path)}"

    def _content(self, descriptor: int, size_bytes: int) -> memoryview:
        try:
            data = self._memory.buffers.take(size_bytes)
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


# ---- mapping without a descriptor

_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
_C.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t)
_C.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def map_file(descriptor: int, size_bytes: int) -> memoryview:
    """Map the first bytes of an open file, at least one, read-only, until the last slice is gone; raises OSError.

    Python's mmap keeps a descriptor of its own until 3.13, so a process could map no more files than it may open. The
    file must contain that many bytes: reading beyond its end, also after it was cut, ends the process.
    """
    start = _C.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, 0)
    if start == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    memory = (ctypes.c_ubyte * size_bytes).from_address(start)
    weakref.finalize(memory, _C.munmap, start, size_bytes).atexit = False
    return memoryview(memory).cast("B").toreadonly()
