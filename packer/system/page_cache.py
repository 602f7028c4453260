"""Page cache: how much of an open file the system keeps in memory, and what it is asked to do with those pages. Linux.

posix_fadvise(2) is a wish: pages that wait to be written, that a process has mapped, or that lie on a file system in
memory (tmpfs) stay. mincore(2) counts, over a mapping of which no page is touched.
"""

import ctypes
import mmap
import os

import numpy as np


def resident_bytes(descriptor: int) -> int | None:
    """Bytes of an open file that are in memory, in whole pages; raises OSError where it cannot be mapped.

    None where the system has no such call, or the file is another's: the kernel then says that all of it is.
    """
    status = os.fstat(descriptor)
    if os.geteuid() not in (0, status.st_uid):
        return None
    if not status.st_size:
        return 0
    mincore = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)
    if mincore is None:
        return None
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped:
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapped, np.uint8)
        address, size = ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(mapped))
        failed = mincore(address, size, ctypes.c_void_p(pages.ctypes.data))
        del view  # else the file could not be unmapped
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return min(int((pages & 1).sum()) * mmap.PAGESIZE, status.st_size)


def drop_pages(descriptor: int) -> None:
    """Ask the system to let go of a file's pages; nothing where it cannot be asked. Raises OSError."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def expect_random_reads(descriptor: int) -> None:
    """Ask the system not to read ahead in a file; nothing where it cannot be asked. Raises OSError."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
