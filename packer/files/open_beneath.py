"""Open beneath: opens files below an open folder by relative path; no link and no `..` leads out of it (openat2).

One openat2(2) where the kernel has it: it judges the whole path, and costs about as much as a plain open. Elsewhere
every folder on the way is opened from the one above it, none of them through a link.
Constants: linux/openat2.h.
"""

import ctypes
import errno
import os
import platform
import sys

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_NUMBER = 437  # of the system call, on every architecture of Linux but alpha
_RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 4, 8
# not there, forbidden by a filter of system calls that is older than it, or disturbed by a rename elsewhere
_WITHOUT = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG, errno.EAGAIN)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _hows(flags: int) -> "ctypes._CArgObject":
    return ctypes.byref(_OpenHow(flags, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH))


_FILE, _FOLDER = _hows(_FLAGS), _hows(_FLAGS | os.O_DIRECTORY)
_CALL, _SIZE = ctypes.c_long(_NUMBER), ctypes.c_size_t(ctypes.sizeof(_OpenHow))
_HAS_CALL = sys.platform == "linux" and platform.machine() != "alpha"
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def open_beneath(folder: int, path: bytes, *, is_folder: bool = False) -> int:
    """A descriptor, for reading, of the file or folder at `path` below the open folder `folder`; the caller closes it.

    It does not wait, as opening a FIFO would. Raises OSError: ELOOP or ENOTDIR for a link, EXDEV for a path that would
    leave the folder or names none, EINVAL for NUL in it, and whatever open(2) says.
    """
    if b"\0" in path:
        raise OSError(errno.EINVAL, "NUL in a path")
    if _HAS_CALL:
        found: int = _syscall(_CALL, folder, path, _FOLDER if is_folder else _FILE, _SIZE)
        if found >= 0:
            return found
        code = ctypes.get_errno()
        if code not in _WITHOUT:
            raise OSError(code, os.strerror(code))
    return open_stepwise(folder, path, is_folder=is_folder)


def open_stepwise(folder: int, path: bytes, *, is_folder: bool = False) -> int:
    """What `open_beneath` does where the kernel cannot: one folder after the other."""
    *above, last = path.split(b"/")
    if not {b"", b"..", b"."}.isdisjoint((*above, last)):
        raise OSError(errno.EXDEV, "a path that leads out of its folder")
    descriptor = folder
    try:
        for name in above:
            inner = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=descriptor)
            if descriptor != folder:
                os.close(descriptor)
            descriptor = inner
        return os.open(last, _FLAGS | (os.O_DIRECTORY if is_folder else 0), dir_fd=descriptor)
    finally:
        if descriptor != folder:
            os.close(descriptor)
