"""Storage errors: raises errors of the operating system as StorageError, and reports free space."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.errors import PackerError, StorageError


@contextmanager
def failing(path: Path, doing: str) -> Iterator[None]:
    """Return a `with` block that raises an OSError as StorageError "PATH: cannot DOING: CAUSE", with advice."""
    try:
        yield
    except PackerError:  # some of them are OSErrors too
        raise
    except OSError as error:
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            with suppress(OSError):  # a second failure must not hide the first
                hint = f"; {free_bytes(path):,} bytes are free there: free some, or choose another folder"
        elif error.errno == errno.EIO:
            hint = "; the disk fails: see the kernel's log (dmesg), and choose another one"
        raise StorageError(f"{path}: cannot {doing}: {error.strerror or error}{hint}") from error


def free_bytes(path: Path) -> int:
    """Return how many bytes this user may still write to the file system of `path`. The path need not exist."""
    found = _statvfs(path)
    return found.f_bavail * found.f_frsize


def free_files(path: Path) -> int | None:
    """Return how many files this user may still make on the file system of `path`. The path need not exist.

    None means that the file system has no limit. Raises StorageError.
    """
    with failing(path, "ask for free space"):
        found = _statvfs(path)
    return found.f_favail if found.f_files else None


def _statvfs(path: Path) -> os.statvfs_result:
    while not path.exists() and path != path.parent:
        path = path.parent
    return os.statvfs(path)
