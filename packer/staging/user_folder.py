"""User folder: the folder of one user that holds staged copies or a cache, of nobody else and behind no link."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.errors import InvalidRequest, Locked, UnsafePath
from packer.files.folder_handle import FolderHandle
from packer.files.storage_errors import failing
from packer.files.work_folder import ANYTHING, WorkFolder, check_marker, work_folder
from packer.stores.url import path_or_url
from packer.system.machine_limits import Machine

CODEC = r"[a-z0-9_]+(?::[a-z0-9_]+)*"  # of a copy that is made in another one, in its name
_WORK = ".work"
_NAMES = {ANYTHING: ANYTHING}  # copies, and what is none is left alone: what goes is named, copy by copy


class UserFolder:
    """`base`/<name>-<uid>, which need not be there yet."""

    def __init__(self, base: Path, *, name: str = "packer", purpose: str = "stage into", option: str = "--to") -> None:
        """purpose: what the folder is for, option: how the user names it, both for messages.

        Raises InvalidRequest where `base` is no folder, UnsafePath where others than root may rename what is made in
        it.
        """
        self._purpose, self._option = purpose, option
        with failing(base, "ask for the folder"):
            try:
                status = os.stat(base)
            except FileNotFoundError as error:
                raise InvalidRequest(f"{base}: no such folder to {purpose}; make it, or choose another one") from error
        if not stat.S_ISDIR(status.st_mode):
            raise InvalidRequest(f"{base}: expected a folder to {purpose}, found a file; choose another one")
        others = "their group" if status.st_mode & stat.S_IWGRP else ""
        others = "anybody" if status.st_mode & stat.S_IWOTH else others
        if others and not status.st_mode & stat.S_ISVTX:
            raise UnsafePath(
                f"{base}: {others} may rename files there: chmod +t {base}, or choose another folder ({option})"
            )
        if status.st_uid not in (0, os.geteuid()):
            raise UnsafePath(
                f"{base}: belongs to user {status.st_uid}, who may rename files there; choose another folder ({option})"
            )
        self.base = base.resolve()
        self.folder = self.base / f"{name}-{os.geteuid()}"
        self._opened: tuple[WorkFolder, FolderHandle] | None = None

    @classmethod
    def of(cls, to: str, machine: Machine) -> "UserFolder":
        """The place that a user names: "auto" for the machine's shared memory, or a folder."""
        return cls(machine.shared_memory if to == "auto" else path_or_url(to))

    def is_there(self) -> bool:
        """Whether the folder is there; raises UnsafePath where it is not this user's own and closed to others."""
        with failing(self.folder, "ask for the folder"):
            try:
                status = os.stat(self.folder, follow_symlinks=False)
            except FileNotFoundError:
                return False
        what = ""
        if not stat.S_ISDIR(status.st_mode):
            what = "a link or a file is in its place"
        elif status.st_uid != os.geteuid():
            what = f"it belongs to user {status.st_uid}, not to {os.geteuid()}"
        elif stat.S_IMODE(status.st_mode) & 0o077:
            what = f"its mode is {stat.S_IMODE(status.st_mode):o}, so others may get at it; expected 700"
        if what:
            raise UnsafePath(
                f"{self.folder}: not a folder to {self._purpose}: {what}; have it removed, or choose another folder "
                f"({self._option})"
            )
        with self.opened() as folder:
            check_marker(folder)
        return True

    def opened(self) -> FolderHandle:
        """The folder, open, for looking at it; the caller closes it. Raises UnsafePath for a link, StorageError."""
        with FolderHandle.at(self.base) as base:
            return base.folder(self.folder.name)

    @contextmanager
    def locked(self, waiting: Callable[[], None] | None) -> Iterator[None]:
        """Hold the lock of the folder, made where it is not there, with nothing in .work before and after.

        waiting: called when another process holds the lock, before waiting for its end; None to raise Locked instead.
        Raises UnsafePath as `is_there` does. A folder in which nothing is left is removed.
        """
        self.is_there()
        with work_folder(self.folder, _NAMES, waiting=waiting) as folder:
            self.is_there()
            folder.remove(_WORK)
            try:
                with folder.make_folder(_WORK) as work:
                    self._opened = folder, work
                    yield
            finally:
                self._opened = None
                folder.remove(_WORK)

    @property
    def held(self) -> FolderHandle:
        """The open folder, while it is locked."""
        return self._both()[0]

    @property
    def work(self) -> FolderHandle:
        """The open folder .work, while it is locked: what is not finished yet, or about to go."""
        return self._both()[1]

    def work_path(self, name: str) -> Path:
        """A path of something in .work, for what wants one, while it is locked."""
        return self.held.inside / _WORK / name

    def _both(self) -> tuple[WorkFolder, FolderHandle]:
        if self._opened is None:
            raise Locked(f"{self.folder}: not locked by this process; lock it first")
        return self._opened

    def sweep(self) -> None:
        """Remove what a killed stager left, unless somebody is at work; raises StorageError."""
        if os.path.lexists(self.folder / _WORK):
            with suppress(Locked), self.locked(None):
                pass

    def copies(self) -> list[tuple[str, str | None]]:
        """Digest and codec of all copies, as `copy_name` takes them, also of those in the making, sorted."""
        if not self.is_there():
            return []
        with failing(self.folder, "list the folder"):
            found = {_COPY.fullmatch(name) for name in os.listdir(self.folder)}
        names = {(match["digest"], match["codec"]) for match in found if match and _is_copy(match)}
        return sorted(names, key=lambda name: copy_name(*name))


_COPY = re.compile(rf"(?P<dot>\.)?(?P<digest>[0-9a-f]{{64}})(-(?P<codec>{CODEC}))?(?P<partial>\.partial)?")


def _is_copy(match: re.Match[str]) -> bool:
    """Whether a name is that of a copy, or of one in the making, which is always in another codec."""
    return bool(match["dot"]) == bool(match["partial"]) and bool(match["codec"] or not match["dot"])


def is_digest(name: str) -> bool:
    """Whether a name is a sha256 in hex, as those of copies begin with."""
    return len(name) == 64 and set(name) <= set("0123456789abcdef")


def copy_name(digest: str, codec: str | None) -> str:
    """The name of a copy: of the pack whose packer.json has that sha256, as it is, or with its images in a codec."""
    return digest if codec is None else f"{digest}-{codec}"
