"""Part files: reads or maps the files of a part that is a folder, and compares the size of each with the expected size.

The files are closed after each read, because a part may have more files than a process may open.
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
from packer.formats._column_part import is_machine_error
from packer.formats._folder_part import FOLDER_FLAGS, TABLE
from packer.system.buffer_pool import BufferPool, pageable

MOST_FILE_BYTES = (1 << 32) - 1  # of one value: the limit of BMP and LMDB, and larger than any image
_MOST_FREE = 8  # buffers that wait for the next file


class _Memory(threading.local):
    """Buffers that only one thread reuses, because they are probably in the cache of its core."""

    def __init__(self) -> None:
        self.buffers = BufferPool(_MOST_FREE, new=pageable)


class PartFiles:
    """The files of a part that is a folder. Methods may be called from any thread. Links are not followed."""

    def __init__(self, path: Path, folder: int) -> None:
        """Open the files of a folder that is already open.

        Args:
            path: The folder, for messages.
            folder: Descriptor of the folder. It is duplicated, so the original may be closed.
        """
        self.path = path
        self._root = os.dup(folder)
        self._table = _identity(folder)
        self._memory = _Memory()

    def read(self, path: bytes, size_bytes: int) -> memoryview:
        """Return a copy of a file in memory. A later call reuses this memory, but only after all slices of it are gone.

        A file that becomes shorter during the read raises CorruptPack. With a mapping, it would end the process.

        Raises:
            CorruptPack: `path` is not a regular file of this size.
            StorageError: The machine cannot read the file.
            OutOfMemory: The file does not fit into the free memory.
        """
        try:
            descriptor = self._opened(path, size_bytes)
            try:
                if size_bytes > MOST_FILE_BYTES:  # may be a hole, and memory that the system only promises
                    raise ValueError(f"file of {size_bytes} bytes, expected at most {MOST_FILE_BYTES}")
                return self._content(descriptor, size_bytes)
            finally:
                os.close(descriptor)
        except (OutOfMemory, OSError, ValueError) as error:
            raise self._failure(path, error) from error

    def mapped(self, path: bytes, size_bytes: int) -> memoryview:
        """Map a file of at least one byte. It stays mapped while a slice exists. Raises CorruptPack, StorageError."""
        try:
            descriptor = self._opened(path, size_bytes)
            try:
                return map_file(descriptor, size_bytes)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise self._failure(path, error) from error

    def _opened(self, path: bytes, size_bytes: int) -> int:
        """Return a descriptor of a regular file of this size. Raise OSError or ValueError for anything else."""
        try:
            descriptor = open_beneath(self._root, path)
        except FileNotFoundError:
            descriptor = self._opened_link(path)
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

    def _opened_link(self, path: bytes) -> int:
        """Open a file in the new folder at the same path, which `packer append` creates with links to the same files.

        Raises OSError, also if the new folder is another part.
        """
        root = os.open(self.path, FOLDER_FLAGS)
        try:
            if _identity(root) != self._table:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return open_beneath(root, path)
        finally:
            os.close(root)

    def _failure(self, path: bytes, error: Exception) -> PackerError:
        where = f"{self.path}/{os.fsdecode(path)}"
        if isinstance(error, OutOfMemory):
            return OutOfMemory(f"{where}: cannot read: {error}")
        if not isinstance(error, OSError):
            return CorruptPack(f"{where}: {error}; copy the pack again")
        if is_machine_error(error):
            return StorageError(f"{where}: cannot read: {error.strerror}; see its permissions and disk")
        cause = "missing" if error.errno == errno.ENOENT else f"cannot be opened as a file: {error.strerror}"
        return CorruptPack(f"{where}: {cause}; copy the pack again")

    def _content(self, descriptor: int, size_bytes: int) -> memoryview:
        try:
            data = self._memory.buffers.take(size_bytes)
        except MemoryError as error:
            raise OutOfMemory(f"a file of {size_bytes:,} bytes does not fit the free memory") from error
        done = 0
        while done < size_bytes:
            count = os.readv(descriptor, (data[done:],))
            if not count:
                missing = size_bytes - done
                raise ValueError(f"file was cut while it was read: {missing} of {size_bytes} bytes are missing")
            done += count
        return data.toreadonly()

    def close(self) -> None:
        """Close the folder. A second call does nothing."""
        if self._root >= 0:
            os.close(self._root)
        self._root = -1


def _identity(folder: int) -> tuple[int, int]:
    """Return device and inode of values.npz. The reader has mapped this file, so no other file can get its inode."""
    status = os.stat(TABLE, dir_fd=folder, follow_symlinks=False)
    return status.st_dev, status.st_ino


# ---- mapping without a descriptor

_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
_C.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t)
_C.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def map_file(descriptor: int, size_bytes: int) -> memoryview:
    """Map the first `size_bytes` bytes (at least 1) of an open file, read-only; raises OSError.

    The mapping ends with its last slice. The file must contain all these bytes: a read beyond its end is a SIGBUS.
    Up to Python 3.12, a mapping of the module mmap keeps a descriptor open, and a process may open only some files.
    """
    start = _C.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, 0)
    if start == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    memory = (ctypes.c_ubyte * size_bytes).from_address(start)
    weakref.finalize(memory, _C.munmap, start, size_bytes).atexit = False
    return memoryview(memory).cast("B").toreadonly()
