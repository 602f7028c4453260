"""Place: the folder of one user that holds staged copies, of nobody else and behind no link."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from packer.errors import Locked, Refused
from packer.machine import Machine
from packer.pack.storage import failing, locked, remove

_WORK = ".work"


class Place:
    """`base`/packer-<uid>, which need not be there yet."""

    def __init__(self, base: Path) -> None:
        """Raises Refused where `base` is no folder, or one in which anybody may rename what others made."""
        with failing(base, "ask for the folder"):
            try:
                status = os.stat(base)
            except FileNotFoundError as error:
                raise Refused(f"{base}: no such folder to stage into; make it, or choose another one") from error
        if not stat.S_ISDIR(status.st_mode):
            raise Refused(f"{base}: expected a folder to stage into, found a file; choose another one")
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise Refused(f"{base}: anybody may rename files there: chmod +t {base}, or choose another folder")
        self.base = base.resolve()
        self.folder = self.base / f"packer-{os.geteuid()}"
        self.work = self.folder / _WORK

    @classmethod
    def of(cls, to: str, machine: Machine) -> "Place":
        """The place that a user names: "auto" for the machine's shared memory, or a folder."""
        return cls(machine.shared_memory if to == "auto" else Path(to))

    def is_there(self) -> bool:
        """Whether the folder is there; raises Refused where it is not this user's own and closed to others."""
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
            raise Refused(f"{self.folder}: not a folder to stage into: {what}; remove it, or choose another one (--to)")
        return True

    @contextmanager
    def locked(self, waiting: Callable[[], None] | None) -> Iterator[None]:
        """Hold the lock of the folder, made where it is not there, with nothing in .work before and after.

        waiting: called when another process holds the lock, before waiting for its end; None to raise Locked instead.
        Raises Refused as `is_there` does. A folder in which nothing is left is removed.
        """
        self.is_there()
        with locked(self.folder, waiting=waiting, mode=0o700):
            self.is_there()
            remove(self.work)
            try:
                yield
            finally:
                remove(self.work)

    def sweep(self) -> None:
        """Remove what a killed stager left, unless somebody is at work; raises StorageFailed."""
        if os.path.lexists(self.work):
            with suppress(Locked), self.locked(None):
                pass

    def digests(self) -> list[str]:
        """The names of all copies, sorted."""
        if not self.is_there():
            return []
        with failing(self.folder, "list the folder"):
            return sorted(name for name in os.listdir(self.folder) if is_digest(name))


def is_digest(name: str) -> bool:
    """Whether a name is that of a copy."""
    return len(name) == 64 and set(name) <= set("0123456789abcdef")
