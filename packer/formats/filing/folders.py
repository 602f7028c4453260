"""Folders: a new folder that is filled with files, and the files of such a folder read back.

What is written is always a new file in folders that are no links; what is read is opened beneath the folder, and must
be a plain file of the expected size, which is compared before a byte is read: nothing is mapped, so a file that is cut
meanwhile is an error and never a signal.
"""

import os
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from packer.beneath import open_beneath
from packer.errors import OutOfMemory
from packer.schema import Buffer
from packer.slabs import Slabs

MOST_FILE_BYTES = (1 << 32) - 1  # of one value: what BMP and LMDB have numbers for, and more than any picture
_MOST_FREE = 8  # pieces of memory that wait for the next file
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NewFolder:
    """Files below the new folder `path`; of each folder in it, the one below it that was last written to stays open."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, FileExistsError where anything is there."""
        os.mkdir(path)
        self._root = os.open(path, _FOLDER)
        self._open: dict[bytes, tuple[tuple[bytes, ...], int]] = {}

    def write(self, top: bytes, components: Sequence[bytes], data: Buffer) -> None:
        """A new file in the folder `top`; components as `naming.components` gives them. Raises OSError."""
        names = (top, *components[:-1])
        opened = self._open.get(top)
        if opened is None or opened[0] != names:
            self._close(top)
            opened = self._open[top] = (names, self._folder(names))
        file = os.open(components[-1], _NEW_FILE, 0o666, dir_fd=opened[1])
        try:
            with memoryview(data) as view:
                done = 0
                while done < len(view):
                    done += os.write(file, view[done:])
        finally:
            os.close(file)

    def _folder(self, names: Sequence[bytes]) -> int:
        descriptor = os.dup(self._root)
        for name in names:
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
                inner = os.open(name, _FOLDER, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor

    def _close(self, top: bytes) -> None:
        if top in self._open:
            os.close(self._open.pop(top)[1])

    def close(self) -> None:
        """Give the descriptors back; may be called twice."""
        for top in list(self._open):
            self._close(top)
        if self._root >= 0:
            os.close(self._root)
        self._root = -1


class _Memory(threading.local):
    """What a thread reads into: its own, since that is in its core's caches."""

    def __init__(self) -> None:
        self.slabs = Slabs(_MOST_FREE)


class Folder:
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
