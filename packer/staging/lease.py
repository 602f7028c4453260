"""Lease: a shared lock on a staged copy, which nobody removes as long as it is read."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packer.errors import UnsafePath
from packer.pack.storage import failing

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def take(folder: Path) -> int | None:
    """A descriptor that holds a lease on `folder` until it is closed, by the process and by all that inherit it.

    None where there is no such folder. Raises UnsafePath where it is something else, StorageFailed.
    """
    descriptor = _open(folder)
    if descriptor is None:
        return None
    with failing(folder, "lock"):
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits for the few moments that a release takes to rename it
    if _is_there(descriptor, folder):
        return descriptor
    os.close(descriptor)
    return None


@contextmanager
def unread(folder: Path) -> Iterator[bool]:
    """Whether nobody has a lease on `folder`; if so, nobody gets one inside the block. Raises as `take` does."""
    descriptor = _open(folder)
    if descriptor is None:
        yield True
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        yield is_free
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int | None:
    with failing(folder, "open"):
        try:
            return os.open(folder, _FOLDER)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise UnsafePath(f"{folder}: expected a folder, found a link or a file; remove it") from error
            raise


def _is_there(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder, follow_symlinks=False))
    except FileNotFoundError:
        return False
