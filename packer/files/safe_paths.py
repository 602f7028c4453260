"""Safe paths: checks relative paths that packs and other files contain, and opens files below a folder by them.

`components` checks the names of files that packer writes for a pack, because a pack may be hostile. It refuses:
* an absolute path, and a path of more than 4000 bytes;
* a component that is empty, `.` or `..`, contains NUL, or is longer than 255 bytes;
* a path that leads out of a folder on Windows: `..` between backslashes, a drive (`C:`, `C:\\x`), a share (`\\\\host`).

Other names are unchanged, because a refused file would be lost data: `12:30:00.jpg`, `a\\b`, `CON`, `name.`.

`open_beneath` opens a file for reading. No link and no `..` can lead it out of the folder. If the kernel has
openat2(2), it makes one call, which costs about as much as a plain open. Otherwise it opens each folder of the path
from the folder above, and never through a link. Its constants come from linux/openat2.h.
"""

import ctypes
import errno
import os
import re
import stat
import sys
import unicodedata
from io import BufferedReader
from pathlib import Path

from packer.errors import CorruptPack, InvalidRequest
from packer.files.storage_errors import failing

MOST_NAME_BYTES = 255  # NAME_MAX of Linux file systems
MOST_PATH_BYTES = 4000  # below PATH_MAX, so that other programs can open the files
_ELSEWHERE = re.compile(r"(?:[A-Za-z]:(?:\\.*)?|\\\\.*|(?:.*\\)?\.\.(?:\\.*)?)", re.DOTALL)


def components(path: str) -> tuple[bytes, ...]:
    """Return the names in a relative POSIX path as bytes: its folders, then the file. Surrogates are as in PEP 383.

    Raises InvalidRequest with the reason. The message contains `path`, but not where this path comes from.
    """
    parts = []
    for name in path.split("/"):
        try:
            raw = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"name {name!r:.80} contains a surrogate that is not an escaped byte") from error
        if name in ("", ".", ".."):
            raise InvalidRequest(f"path {path!r:.200}: component {name!r} does not name a file")
        if b"\0" in raw or _ELSEWHERE.fullmatch(name):
            raise InvalidRequest(f"path {path!r:.200}: component {name!r:.80} could lead out of the target")
        if len(raw) > MOST_NAME_BYTES:
            raise InvalidRequest(f"name {name!r:.80} has {len(raw)} bytes, expected at most {MOST_NAME_BYTES}")
        parts.append(raw)
    if sum(map(len, parts)) + len(parts) > MOST_PATH_BYTES:
        raise InvalidRequest(f"path {path!r:.80} is longer than {MOST_PATH_BYTES} bytes")
    return tuple(parts)


def folded(path: str) -> str:
    """Return a text that is equal for paths that some file system treats as equal (case, composed characters)."""
    if path.isascii():  # fast path for most names
        return path.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


class Collisions:
    """Finds paths that collide: equal paths, also if only the case differs, and a file in the place of a folder."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}  # folded folder -> one of its files

    def add(self, path: str) -> str | None:
        """Add a path. Return an earlier path that collides with it, or None if there is none."""
        key = folded(path)
        other = self._files.get(key) or self._folders.get(key)
        if other is not None:
            return other
        self._files[key] = path
        at = key.find("/")
        while at >= 0:
            if key[:at] in self._files:
                return self._files[key[:at]]
            self._folders.setdefault(key[:at], path)
            at = key.find("/", at + 1)
        return None


# ---- opening below a folder

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_NUMBER = 437  # of the system call, on every architecture of Linux but alpha
_RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 4, 8
# errors that the fallback handles: no such call, an old filter of system calls, a concurrent rename
_WITHOUT = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG, errno.EAGAIN)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _hows(flags: int) -> "ctypes._CArgObject":
    return ctypes.byref(_OpenHow(flags, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH))


_FILE, _FOLDER = _hows(_FLAGS), _hows(_FLAGS | os.O_DIRECTORY)
_CALL, _SIZE = ctypes.c_long(_NUMBER), ctypes.c_size_t(ctypes.sizeof(_OpenHow))
_HAS_CALL = sys.platform == "linux" and os.uname().machine != "alpha"
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


def open_beneath(folder: int, path: bytes, *, is_folder: bool = False) -> int:
    """Open the file at `path` below an open folder, or with `is_folder` the folder there. Return its descriptor.

    Opening never waits for a FIFO. Raises the OSErrors of open(2), and ELOOP or ENOTDIR for a link. EXDEV means that
    the path is empty or would leave the folder. EINVAL means that it contains NUL.
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
    """Do what `open_beneath` does without openat2(2): open one folder of the path after the other."""
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


def open_file(path: Path) -> BufferedReader:
    """Open a file of a pack for reading. A link is not followed, and opening never waits for a FIFO.

    Raises CorruptPack if the file is absent, a link or not a regular file, StorageError if it cannot be opened.
    """
    with failing(path, "open"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CorruptPack(f"{path}: missing; copy the pack again") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise CorruptPack(f"{path}: expected a file, found a link; copy the pack with cp -rL") from error
            raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise CorruptPack(f"{path}: expected a file, found a folder or a device; copy the pack again")
