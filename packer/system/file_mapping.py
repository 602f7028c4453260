"""File mapping: the bytes of a file as memory, without a descriptor that stays open for it.

Python's mmap keeps a descriptor of its own until 3.13, so that a process could map no more files than it may open. This
one asks the system directly, and unmaps with the last slice.
"""

import ctypes
import mmap
import os
import weakref

_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
_C.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t)
_C.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def mapped(descriptor: int, size_bytes: int) -> memoryview:
    """The first bytes of an open file, at least one, read-only; raises OSError.

    The file must have so many: a byte beyond its end, also one that is cut off later, ends the process.
    """
    start = _C.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, 0)
    if start == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    memory = (ctypes.c_ubyte * size_bytes).from_address(start)
    weakref.finalize(memory, _C.munmap, start, size_bytes).atexit = False
    return memoryview(memory).cast("B").toreadonly()
