"""The only place that syncs, locks, renames and removes: files and folders that are on disk, or not there at all.

An fsync that fails is never tried again (the kernel may have dropped the dirty pages): it raises StorageFailed.
"""

import ctypes
import errno
import fcntl
import functools
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from packer.errors import CorruptPack, Locked, PackerError, PackExists, StorageFailed

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1  # linux/fs.h
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@contextmanager
def failing(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError of the block into StorageFailed with the path, and the free space where that is the cause."""
    try:
        yield
    except PackerError:  # some of them are OSErrors too
        raise
    except OSError as error:
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            with suppress(OSError):  # what cannot be asked on a failing disk must not hide the failure
                hint = f"; {free_bytes(path):,} bytes are free there: free some, or choose another folder"
        elif error.errno == errno.EIO:
            hint = "; the disk fails: see the kernel's log (dmesg), and choose another one"
        raise StorageFailed(f"{path}: cannot {doing}: {error.strerror or error}{hint}") from error


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write to the file system of `path` or of its nearest existing parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def free_files(path: Path) -> int | None:
    """How many files this user may still make on the file system of `path`; None where it sets no limit."""
    with failing(path, "ask for free space"):
        found = os.statvfs(path)
    return found.f_favail if found.f_files else None


def open_file(path: Path) -> BinaryIO:
    """A file of a pack, open for reading. Never follows a link and never waits, as opening a FIFO would.

    Raises CorruptPack where there is no such file or something else, StorageFailed where it cannot be read.
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


def file_sha256(path: Path) -> str:
    """The sha256 of a file of a pack, in hex; raises CorruptPack, StorageFailed."""
    digest = hashlib.sha256()
    with open_file(path) as file, failing(path, "read"):
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """fsync a file or a folder; raises StorageFailed."""
    with failing(path, "sync to disk"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_file_system(path: Path) -> None:
    """Everything written to the file system that holds `path`, by one syncfs(2): many small files; StorageFailed."""
    with failing(path, "sync to disk"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if function is None:
                os.sync()
            elif function(descriptor):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(descriptor)


def sync_part(path: Path) -> None:
    """A part, which is a file or a folder with files in it; raises StorageFailed."""
    (sync_file_system if path.is_dir() else sync)(path)


def replace_file(staged: Path, target: Path) -> None:
    """Put the synced file `staged` in the place of `target`, which may be absent, by one rename; StorageFailed."""
    with failing(target, "replace"):
        os.replace(staged, target)
    sync(target.parent)


def write_file(path: Path, data: bytes) -> None:
    """A new file with `data`, synced; raises StorageFailed."""
    with failing(path, "write"), path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def append_line(path: Path, line: bytes) -> None:
    """`line` and a newline at the end of a file, synced; raises StorageFailed, and leaves no half line then."""
    with failing(path, "write"), path.open("ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        data = memoryview(line + b"\n")
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fileno(), before)
            raise
        os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """A folder that may exist; its parent must. Raises StorageFailed."""
    with failing(path, "make the folder"):
        path.mkdir(exist_ok=True)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, if it is there; raises StorageFailed."""
    with failing(path, "remove"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, *, waiting: Callable[[], None] | None = None, mode: int = 0o777) -> Iterator[None]:
    """Hold the lock of `folder`, which is made with `mode` where it is not there.

    Where another process has it: raises Locked, or calls `waiting` and waits for it to end.
    The lock is the kernel's flock on the folder itself: it ends with the process, and leaves no file behind; the
    folder too is removed at the end if nothing was put into it.
    """
    while True:
        descriptor = _open_folder(folder, mode)
        if descriptor is None:
            continue
        try:
            _flock(descriptor, folder, waiting)
            if _is_same(descriptor, folder):  # else another process finished between our open and our lock
                try:
                    yield
                finally:
                    _remove_if_empty(descriptor, folder)
                return
        finally:
            os.close(descriptor)


def _open_folder(folder: Path, mode: int) -> int | None:
    """None where the folder goes between the two calls: another process finished just now and removed it."""
    with failing(folder, "make or open the folder"):
        with suppress(FileExistsError):
            os.mkdir(folder, mode)
        try:
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None


def _flock(descriptor: int, folder: Path, waiting: Callable[[], None] | None) -> None:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is None:
                raise
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BlockingIOError as error:
        raise Locked(f"{folder}: another process works on the same target; wait for it to end") from error
    except OSError as error:
        raise StorageFailed(f"{folder}: cannot lock: {error.strerror}; use a local file system") from error


def _is_same(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except FileNotFoundError:
        return False


def _remove_if_empty(descriptor: int, folder: Path) -> None:
    with suppress(OSError):  # ENOTEMPTY is the rule: unfinished work stays for the next run
        if _is_same(descriptor, folder):
            os.rmdir(folder)


def publish(staged: Path, target: Path) -> None:
    """Rename the complete folder `staged` to `target`, which must not exist; raises PackExists, StorageFailed."""
    sync(staged)
    if not _rename(staged, target, _RENAME_NOREPLACE):
        if os.path.lexists(target):
            raise PackExists(f"{target}: already there; --overwrite replaces a pack")
        with failing(target, "rename the finished pack"):
            os.rename(staged, target)
    sync(target.parent)


def swap(staged: Path, target: Path) -> None:
    """Put the complete folder `staged` in the place of `target`, which ends up at `staged`; raises StorageFailed.

    One atomic exchange where the system has it; elsewhere two renames, between which `target` is absent.
    """
    sync(staged)
    if not _rename(staged, target, _RENAME_EXCHANGE):
        aside = staged.with_name(staged.name + ".old")
        with failing(target, "swap with the finished pack"):
            os.rename(target, aside)
            os.rename(staged, target)
            os.rename(aside, staged)
    sync(target.parent)


@functools.cache
def _renameat2() -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _rename(old: Path, new: Path, flags: int) -> bool:
    """renameat2(2); False where the C library, kernel or file system does not have it."""
    function = _renameat2()
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), ctypes.c_uint(flags)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    if code == errno.EEXIST:
        raise PackExists(f"{new}: already there; --overwrite replaces a pack")
    with failing(new, "rename the finished folder to this name"):
        raise OSError(code, os.strerror(code))
