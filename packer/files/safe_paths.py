"""Safe paths: validates relative paths from outside, and opens files below a folder by them (openat2).

`components` checks the names of files that a pack asks to write. A pack may be hostile, so a path is judged component
by component, and never by what the disk makes of it. Refused are an absolute path; a component that is empty, `.` or
`..`, holds NUL or is longer than 255 bytes; a path of more than 4000 bytes; and what is a way out elsewhere: `..`
between backslashes, a drive (`C:`, `C:\\x`) and a share (`\\\\host`). Everything else that a file may be called where
packer runs is given back as it was: `12:30:00.jpg`, `a\\b`, `CON`, `name.` are ordinary names there, and leaving them
out would lose data.

`open_beneath` opens what is to be read: no link and no `..` leads out of the folder. It is one openat2(2) where the
kernel has it, which judges the whole path and costs about as much as a plain open. Elsewhere every folder on the way is
opened from the one above it, none of them through a link. Constants: linux/openat2.h.
"""

import ctypes
import errno
import os
import re
import stat
import sys
import unicodedata
from pathlib import Path
from typing import BinaryIO

from packer.errors import CorruptPack, InvalidRequest
from packer.files.storage_errors import failing

MOST_NAME_BYTES = 255  # NAME_MAX of Linux file systems
MOST_PATH_BYTES = 4000  # below PATH_MAX, so that people can open what was written
_ELSEWHERE = re.compile(r"(?:[A-Za-z]:(?:\\.*)?|\\\\.*|(?:.*\\)?\.\.(?:\\.*)?)", re.DOTALL)


def components(path: str) -> tuple[bytes, ...]:
    """The folders and the file of a relative POSIX path, surrogates as the bytes that they stand for (PEP 383).

    Raises InvalidRequest with the reason, for a caller to say where the path stands.
    """
    parts = []
    for name in path.split("/"):
        try:
            raw = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"name {name!r:.80} holds a surrogate that stands for no byte") from error
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
    """What paths have in common that some file system takes for one: upper and lower case, composed and not."""
    if path.isascii():  # what the next line gives for most names, and a million of them are asked
        return path.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


class Collisions:
    """Finds paths that could not lie beside each other: twice the same, the same but for case, a file as a folder."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}  # folded folder -> a file in it

    def add(self, path: str) -> str | None:
        """The earlier path that is in the way of this one, None where there is none."""
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
# not there, forbidden by a filter of system calls that is older than it, or disturbed by a rename elsewhere
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


def open_file(path: Path) -> BinaryIO:
    """A file of a pack, open for reading. Never follows a link and never waits, as opening a FIFO would.

    Raises CorruptPack where there is no such file or something else, StorageError where it cannot be read.
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
