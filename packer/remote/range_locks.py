"""Range locks: the kernel's locks on ranges of bytes of one file, by open file description (OFD, Linux).

They exclude threads of one process as well as processes, since whoever takes one opens the file for it. They end with
their holder, however it ends. `held` tells what others hold: so a lock can say something, such as how many bytes its
holder has reserved. Constants and layout: fcntl(2), linux/fcntl.h, glibc's struct flock of 64-bit machines.
"""

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packer.errors import InvalidRequest, StorageError
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.system.closed_after_fork import closed_after_fork

_GETLK, _SETLK, _SETLKW = 36, 37, 38  # F_OFD_...
_FLOCK = struct.Struct("hhqqi0q")  # type, whence, start, length, pid
_TAKEN = (errno.EAGAIN, errno.EACCES)


class HeldRange:
    """A range that is locked until `release`, or until the process ends."""

    def __init__(self, path: Path, descriptor: int, start: int, length: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.start = start
        self.length = length

    def resize(self, length: int) -> None:
        """Lock so many bytes from the same start on, those that are added being nobody else's; raises StorageError."""
        kind, at = (fcntl.F_WRLCK, self.length) if length > self.length else (fcntl.F_UNLCK, length)
        if length != self.length and not _set(
            self._path, self._descriptor, kind, self.start + at, abs(length - self.length)
        ):
            raise StorageError(f"{self._path}: a lock of packer's is held by something else; end it")
        self.length = length

    def release(self) -> None:
        """Unlock; may be called twice."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            closed_after_fork.close(descriptor)


class RangeLocks:
    """The locks of one file in a folder, which is made where it is not there."""

    def __init__(self, folder: Path, name: str) -> None:
        """Raises InvalidRequest where the system is not Linux."""
        if sys.platform != "linux":
            raise InvalidRequest(f"{folder}: a cache needs Linux; copy the pack, and open the copy")
        self._folder = folder
        self._name = name
        self._path = folder / name

    def take(self, start: int, *, is_shared: bool = False) -> HeldRange | None:
        """Lock one byte; None where somebody else has it. Raises StorageError."""
        descriptor = self._opened()
        if _set(self._path, descriptor, fcntl.F_RDLCK if is_shared else fcntl.F_WRLCK, start, 1):
            return HeldRange(self._path, descriptor, start, 1)
        closed_after_fork.close(descriptor)
        return None

    @contextmanager
    def taken(self, start: int) -> Iterator[None]:
        """Wait for one byte and hold it inside the block; raises StorageError."""
        descriptor = self._opened()
        try:
            _set(self._path, descriptor, fcntl.F_WRLCK, start, 1, wait=True)
            yield
        finally:
            closed_after_fork.close(descriptor)

    def held(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Start and length of each lock in that range of bytes, whoever has it; raises StorageError."""
        descriptor = self._opened()
        try:
            return sorted(_held(self._path, descriptor, start, stop))
        finally:
            closed_after_fork.close(descriptor)

    def _opened(self) -> int:
        with failing(self._path, "open"), FolderHandle.at(self._folder) as folder:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            return closed_after_fork.opened(
                lambda: os.open(self._name, flags, 0o600, dir_fd=folder.descriptor),
            )


def _set(path: Path, descriptor: int, kind: int, start: int, length: int, *, wait: bool = False) -> bool:
    """Whether the range could be locked, or unlocked."""
    request = _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
    try:
        fcntl.fcntl(descriptor, _SETLKW if wait else _SETLK, request)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise StorageError(f"{path}: cannot lock: {error.strerror}; use a folder on a local disk") from error
    return True


def _held(path: Path, descriptor: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The kernel tells of one lock that is in the way: that one, and what is before and behind it."""
    waiting = [(start, stop)]
    while waiting:
        first, last = waiting.pop()
        if first >= last:
            continue
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, last - first, 0)
        try:
            answer = fcntl.fcntl(descriptor, _GETLK, request)
        except OSError as error:
            raise StorageError(f"{path}: cannot ask for locks: {error.strerror}; use a local disk") from error
        kind, _, at, length, _ = _FLOCK.unpack(answer)
        if kind != fcntl.F_UNLCK:
            yield at, length
            waiting += [(first, at), (at + length, last)]
